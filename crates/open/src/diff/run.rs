//! Collects what is compared of a run: the sequence of each thread, and spans.

use crate::{Losses, Trace, accounts_after_reading};
use lastwords_ctf::{Error, Version};
use lastwords_render::iter::{EventRef, Order};
use lastwords_render::select::Selection;
use lastwords_render::spans::{OpenSpan, Step};
use lastwords_session::info::SessionScope;
use lastwords_trace::evidence::Cause;
use std::collections::{BTreeSet, HashMap};

/// Names of events and spans, with a number for each. Runs that are compared share them.
#[derive(Debug, Default)]
pub struct Names {
    texts: Vec<String>,
    numbers: HashMap<String, u32>,
}

impl Names {
    /// Returns the number of a name.
    pub(super) fn number(&mut self, text: &str) -> u32 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = u32::try_from(self.texts.len()).unwrap_or(u32::MAX);
        self.texts.push(text.to_owned());
        self.numbers.insert(text.to_owned(), number);
        number
    }

    pub(super) fn text(&self, number: u32) -> &str {
        self.texts.get(number as usize).map_or("?", String::as_str)
    }

    pub(super) fn len(&self) -> usize {
        self.texts.len()
    }
}

/// An event of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Moment {
    pub(super) time: Option<i64>,
    pub(super) name: u32,
}

/// A thread of a run.
#[derive(Debug, Clone, Default)]
pub(super) struct Thread {
    /// Its name; none if it is not known.
    pub(super) name: Option<String>,
    /// Its id; none for events whose thread is not known.
    pub(super) tid: Option<i64>,
    pub(super) events: Vec<Moment>,
}

/// A span of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SpanUse {
    pub(super) name: u32,
    pub(super) begin: Option<i64>,
    pub(super) end: Option<i64>,
    /// It was open when the run ended.
    pub(super) is_open: bool,
}

/// A trace, a process if it is known, and an id of a thread or span in it.
type Key = (usize, Option<i64>, u64);

/// What is compared of a run.
#[derive(Debug, Default)]
pub struct Run {
    pub(super) threads: Vec<Thread>,
    pub(super) spans: Vec<SpanUse>,
    /// The times of the first and of the last event.
    pub(super) begin: Option<i64>,
    pub(super) end: Option<i64>,
    /// The time from which all events are recovered, if older ones are overwritten.
    pub(super) complete_from: Option<i64>,
    pub(super) has_losses: bool,
    pub(super) lost: String,
    known_threads: HashMap<Key, usize>,
    open_spans: HashMap<Key, usize>,
}

/// An event as it is compared.
pub(super) struct Seen<'a> {
    pub(super) trace: usize,
    pub(super) time: Option<i64>,
    pub(super) pid: Option<i64>,
    pub(super) tid: Option<i64>,
    pub(super) thread: Option<&'a str>,
    pub(super) name: u32,
    /// A step of a span: the name and the id of the span.
    pub(super) span: Option<(Step, u32, u64)>,
}

/// The field that has a span's id.
const SPAN_ID: &str = "span_id";

/// An event class: its number and, if it is a step of a span, the step and the span's number.
type Class = (u32, Option<(Step, u32)>);

impl Run {
    /// Reads the selected events of traces, merged by time. An event that several channels have
    /// counts once.
    ///
    /// # Errors
    /// The description of a trace does not decode its events; a time is selected, and nothing
    /// relates the clock of a kernel's trace to real time.
    pub fn read(traces: &[Trace], events: &[String], names: &mut Names) -> Result<Self, Error> {
        let selection =
            Selection { events: events.to_vec(), deduplicate: true, ..Selection::default() };
        let selected = crate::Selected::new(traces, selection)?;
        let mut events = selected.events(Order::Time);
        let (mut run, mut classes) = (Self::default(), HashMap::new());
        // The first event of each stream.
        let mut firsts: HashMap<(usize, u64), i64> = HashMap::new();
        loop {
            while let Some(mut event) = events.advance() {
                let trace = selected.position(event.trace()).unwrap_or(event.trace());
                if let Some(time) = event.time() {
                    firsts.entry((trace, event.stream())).or_insert(time);
                }
                run.take(traces, trace, &mut event, &mut classes, names);
            }
            // Faults are counted by the totals.
            if events.fault().is_none() {
                break;
            }
        }
        run.end_spans(traces, names);
        let accounts = accounts_after_reading(traces, &events.totals(), &[]);
        let losses = Losses::from_accounts(&accounts);
        run.has_losses = losses.any || !selected.undescribed().is_empty();
        run.lost = losses.words();
        for (at, (trace, account)) in traces.iter().zip(&accounts).enumerate() {
            let cut = cut_streams(trace, &account.evidence.gaps);
            let own = firsts.iter().filter(|((trace, _), _)| *trace == at);
            let is_cut = |stream: u64| match &cut {
                Cut::None => false,
                Cut::All => true,
                Cut::Streams(streams) => streams.contains(&stream),
            };
            let from =
                own.filter(|((_, stream), _)| is_cut(*stream)).map(|(_, first)| *first).max();
            // Nothing is left of a ring that was overwritten.
            let from = from.or(run.end.filter(|_| cut != Cut::None));
            run.complete_from = run.complete_from.max(from);
        }
        Ok(run)
    }

    fn take(
        &mut self,
        traces: &[Trace],
        trace: usize,
        event: &mut EventRef<'_, '_>,
        classes: &mut HashMap<usize, Class>,
        names: &mut Names,
    ) {
        // All events of a class have the same kind in memory.
        let class = std::sync::Arc::as_ptr(event.kind()).addr();
        let (name, step) = match classes.get(&class) {
            Some(known) => *known,
            None => {
                let text = event.kind().whole_name();
                let step = Step::parse(&text).map(|(step, span)| (step, names.number(span)));
                *classes.entry(class).or_insert((names.number(&text), step))
            }
        };
        let ids = event.ids();
        let (pid, tid) = (ids.pid, ids.tid);
        let comm = ids.comm.map(|comm| String::from_utf8_lossy(comm).into_owned());
        let creator = traces.get(trace).and_then(creator);
        let is_main = tid.is_some() && tid == pid.or(creator);
        let thread = comm.or_else(|| is_main.then(|| "main".to_owned()));
        let span = step.and_then(|(step, span)| {
            let fields = event.fields();
            let id = fields.iter().find(|field| field.name == SPAN_ID)?.value.number()?;
            Some((step, span, id))
        });
        let time = event.time();
        self.record(&Seen { trace, time, pid, tid, thread: thread.as_deref(), name, span });
    }

    /// Adds an event.
    pub(super) fn record(&mut self, seen: &Seen<'_>) {
        let Seen { trace, time, pid, tid, thread, name, span } = *seen;
        if let Some(time) = time {
            self.begin = Some(self.begin.map_or(time, |begin| begin.min(time)));
            self.end = Some(self.end.map_or(time, |end| end.max(time)));
        }
        let key = (trace, pid, tid.map_or(u64::MAX, i64::cast_unsigned));
        let next = self.threads.len();
        let at = *self.known_threads.entry(key).or_insert(next);
        if at == next {
            let name = thread.map(str::to_owned);
            self.threads.push(Thread { name, tid, events: Vec::new() });
        }
        if let Some(thread) = self.threads.get_mut(at) {
            thread.events.push(Moment { time, name });
        }
        let Some((step, name, id)) = span else { return };
        let key = (trace, pid, id);
        match step {
            Step::New => {
                self.open_spans.insert(key, self.spans.len());
                self.spans.push(SpanUse { name, begin: time, end: None, is_open: true });
            }
            Step::Close => match self.open_spans.remove(&key).and_then(|at| self.spans.get_mut(at))
            {
                Some(span) => (span.end, span.is_open) = (time, false),
                None => {
                    self.spans.push(SpanUse { name, begin: None, end: time, is_open: false });
                }
            },
            Step::Enter | Step::Exit | Step::Record => {}
        }
    }

    /// Adds spans that the tables of sessions have as open, and whose beginning was not recorded or
    /// is overwritten.
    fn end_spans(&mut self, traces: &[Trace], names: &mut Names) {
        for (at, trace) in traces.iter().enumerate() {
            let Some(found) = trace.session() else { continue };
            for span in OpenSpan::all(&*found.session, at) {
                if span.keys().iter().any(|key| self.open_spans.contains_key(key)) {
                    continue;
                }
                let (name, begin) = (names.number(&span.name), Some(span.opened));
                self.spans.push(SpanUse { name, begin, end: None, is_open: true });
            }
        }
    }

    /// Returns the number of events of each name since a time.
    pub(super) fn counts(&self, names: &Names, since: Option<i64>) -> Vec<u64> {
        let mut counts = vec![0u64; names.len()];
        let events = self.threads.iter().flat_map(|thread| &thread.events);
        let is_since = |event: &&Moment| {
            since.is_none_or(|since| event.time.is_some_and(|time| time >= since))
        };
        for event in events.filter(is_since) {
            if let Some(count) = counts.get_mut(event.name as usize) {
                *count = count.saturating_add(1);
            }
        }
        counts
    }
}

/// Returns the process of a session that has only one. Its main thread has the same id.
fn creator(trace: &Trace) -> Option<i64> {
    let info = trace.session()?.session.info();
    (info.scope == SessionScope::Process).then_some(i64::from(info.creator_pid))
}

/// The streams whose oldest events are gone.
#[derive(Debug, PartialEq, Eq)]
enum Cut {
    None,
    All,
    /// By the number of the stream in the trace.
    Streams(BTreeSet<u64>),
}

fn cut_streams(trace: &Trace, gaps: &[lastwords_trace::evidence::Gap]) -> Cut {
    let is_of_oldest = |cause| {
        matches!(
            cause,
            Cause::Overwritten | Cause::Unread | Cause::Cleared | Cause::Consumed | Cause::Dropped
        )
    };
    let cut: Vec<Option<usize>> =
        gaps.iter().filter(|gap| is_of_oldest(gap.cause)).map(|gap| gap.stream).collect();
    if cut.is_empty() {
        return Cut::None;
    }
    // The account of a session numbers the streams of its memory.
    let packets = trace.session().and_then(|_| trace.packets(Version::V2)?.ok());
    let number = |stream: usize| match &packets {
        Some(packets) => packets
            .streams
            .iter()
            .position(|own| own.memory.as_ref().is_some_and(|memory| memory.stream == stream))
            .map(|at| at as u64),
        None => Some(stream as u64),
    };
    let streams = cut.into_iter().map(|stream| stream.and_then(number));
    streams.collect::<Option<BTreeSet<u64>>>().map_or(Cut::All, Cut::Streams)
}

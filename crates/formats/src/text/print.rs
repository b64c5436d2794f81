//! Large traces as text: events are gathered in batches, which become lines on as many threads as there are CPUs.

use super::Style;
use super::babeltrace;
use super::batch::{Batch, Context, Record, Window};
use super::columns;
use super::pipeline::{Formatter, Out, Pipeline};
use super::plan::{StreamPlan, plan};
use super::time::{TimeOfDay, Zone};
use super::value::Writer;
use crate::Totals;
use crate::events::{Chosen, Facts, Filter, Note, Tally, Used};
use lastwords_ctf::read::{Due, Error, Loss, Reader, Sink, Trace, run};
use lastwords_ctf::uuid_text;
use lastwords_trace::class::Scope;
use lastwords_trace::parallel;
use std::sync::Arc;

/// Events that become text together: so many that handing them to another thread costs little beside.
const BATCH: usize = 8192;
/// Without threads: so few that they stay in the cache.
const SMALL_BATCH: usize = 512;
/// Most bytes that a batch takes in memory: of windows that no batch before it had, and of text beside the events' bytes.
const BATCH_BYTES: u64 = 8 << 20;
/// Bytes of packets from which on threads gain more than they cost.
const WORTH_THREADS: u64 = 1 << 20;
/// The scopes before an event's own fields.
const HEADERS: [Scope; 3] = [Scope::PacketHeader, Scope::PacketContext, Scope::EventHeader];

/// What is known of the stream classes of some traces, one behind the other.
struct Classes {
    /// By trace: the position of its first class.
    firsts: Vec<usize>,
    /// By class and event class: its fields depend on what stands before the event.
    depends: Vec<Vec<bool>>,
}

impl Classes {
    fn new(traces: &[Trace]) -> Self {
        let (mut firsts, mut depends) = (Vec::new(), Vec::new());
        for trace in traces {
            firsts.push(depends.len());
            let class = trace.class();
            depends.extend(class.streams.iter().enumerate().map(|(stream, of)| {
                (0..of.events.len()).map(|event| class.depends_on(stream, event, &HEADERS)).collect::<Vec<_>>()
            }));
        }
        Self { firsts, depends }
    }

    fn position(&self, of: &Facts) -> usize {
        self.firsts.get(of.trace).map_or(usize::MAX, |first| first + of.class)
    }

    fn depends(&self, class: usize, event: usize) -> bool {
        self.depends.get(class).and_then(|of| of.get(event)).copied().unwrap_or(false)
    }
}

/// Prints the chosen events in a style.
///
/// # Errors
/// `out` cannot be written.
pub(super) fn print<'o>(
    chosen: Chosen<'_>,
    style: Style,
    zone: &Zone,
    out: Out<'o>,
    notes: &'o mut dyn FnMut(Note),
) -> crate::Result<Totals> {
    let has_lines = matches!(out, Out::Lines(_));
    let threads = if !has_lines && chosen.bytes() >= WORTH_THREADS { parallel::cpus() } else { 1 };
    let Chosen { traces, mut readers, facts, filter } = chosen;
    let classes = Classes::new(traces);
    let plans: Vec<StreamPlan<'_>> =
        if style.is_babeltrace() { traces.iter().flat_map(plan).collect() } else { Vec::new() };
    let columns = (!style.is_babeltrace()).then(|| columns::Plan::new(traces, &facts, style == Style::Ftrace));
    let formatter = || match &columns {
        Some(plan) => Formatter::Columns(columns::Lines::new(plan, traces, zone)),
        None => Formatter::Babeltrace(babeltrace::Lines::new(&plans, traces, zone)),
    };
    let state = |facts: &Facts| {
        let class = classes.position(facts);
        let all_alike = !classes.depends.get(class).is_some_and(|of| of.contains(&true));
        let context = Arc::new(Context::new(Vec::new()));
        StreamState { trace: facts.trace, class, all_alike, context, known: (0, 0, 0), window: 0 }
    };
    let streams = facts.iter().map(state).collect();
    std::thread::scope(|scope| {
        let pipeline = if threads == 1 {
            Pipeline::here(formatter(), out)
        } else {
            let (pipeline, queue) = Pipeline::threads(threads, out);
            let queue = Arc::new(queue);
            for _ in 0..threads {
                let (queue, formatter) = (Arc::clone(&queue), formatter());
                scope.spawn(move || queue.work(formatter));
            }
            pipeline
        };
        let mut printer = Printer {
            traces,
            plans: &plans,
            classes: &classes,
            streams,
            filter,
            notes,
            moments: TimeOfDay::new(zone, b"[", b"]"),
            previous: None,
            batch: Batch::default(),
            full: match (has_lines, pipeline.has_threads()) {
                (true, _) => 1,
                (false, true) => BATCH,
                (false, false) => SMALL_BATCH,
            },
            bytes: 0,
            number: 0,
            pipeline,
            totals: Totals::default(),
            tally: Tally::new(&facts),
            used: Used::new(readers.len()),
            failed: None,
        };
        run(&mut readers, &mut printer);
        printer.finish()
    })
}

struct Printer<'p, 't, 'o> {
    traces: &'t [Trace],
    /// By class: how babeltrace2's style shows it; empty for other styles.
    plans: &'p [StreamPlan<'t>],
    classes: &'p Classes,
    /// By stream.
    streams: Vec<StreamState>,
    filter: Filter<'t>,
    notes: &'o mut dyn FnMut(Note),
    /// For remarks.
    moments: TimeOfDay,
    previous: Option<i64>,
    batch: Batch,
    /// Events of a full batch.
    full: usize,
    /// Bytes of the batch.
    bytes: u64,
    /// Counts batches.
    number: u64,
    pipeline: Pipeline<'p, 't, 'o>,
    totals: Totals,
    tally: Tally,
    used: Used,
    failed: Option<std::io::Error>,
}

struct StreamState {
    trace: usize,
    /// Position of its class among those of all traces.
    class: usize,
    /// No field of an event depends on what stands before the event.
    all_alike: bool,
    /// Context of the packet that is read, as text.
    context: Arc<Context>,
    /// The batch and the reader's window that `window` is the position of, and the bytes of text that the stream's events
    /// have become beyond their own bytes: all as they were at its last event.
    known: (u64, u64, u64),
    window: u32,
}

impl Printer<'_, '_, '_> {
    fn finish(mut self) -> crate::Result<Totals> {
        self.flush();
        self.tally.tell(self.notes);
        self.totals.bytes = self.pipeline.bytes();
        self.totals.streams = self.used.count();
        match self.failed {
            Some(error) => Err(crate::Error::Output(error)),
            None => Ok(self.totals),
        }
    }

    /// Sends the batch on its way; false where writing has failed.
    fn send(&mut self) -> bool {
        self.totals.events += self.batch.records.len() as u64;
        if self.failed.is_none() {
            self.failed = self.pipeline.put(&mut self.batch).err();
        }
        self.batch.restart(self.previous);
        self.number += 1;
        self.bytes = 0;
        self.failed.is_none()
    }

    /// Writes all events up to here.
    fn flush(&mut self) {
        if self.send() {
            self.failed = self.pipeline.drain().err();
        }
    }

    /// Counts the bytes of a stream's next event that the batch did not have yet, and adds its window if that is new.
    #[cold]
    fn go_on(&mut self, stream: usize, known: (u64, u64, u64), reader: &mut Reader<'_>, is_timed: bool) {
        let Some(state) = self.streams.get_mut(stream) else { return };
        let before = std::mem::replace(&mut state.known, known);
        let bytes = if before.1 == known.1 { 0 } else { reader.parts().2.bytes.len() as u64 };
        self.bytes = self.bytes.saturating_add(bytes).saturating_add(known.2.saturating_sub(before.2));
        if (before.0, before.1) != (known.0, known.1) {
            state.window = self.batch.windows.len() as u32;
            let (bytes, base, content_end) = reader.window();
            let context = Arc::clone(&state.context);
            let (trace, plan) = (state.trace, state.class);
            self.batch.windows.push(Window { bytes, base, content_end, context, stream, trace, plan, is_timed });
        }
    }

    fn moment(&mut self, nanoseconds: Option<i64>) -> String {
        let mut text = Vec::new();
        match nanoseconds {
            Some(nanoseconds) => self.moments.put(nanoseconds, &mut text),
            None => text.extend_from_slice(b"[??:??:??.?????????]"),
        }
        String::from_utf8_lossy(&text).into_owned()
    }
}

impl Sink for Printer<'_, '_, '_> {
    #[inline]
    fn event(&mut self, stream: usize, reader: &mut Reader<'_>, event: &Due) -> bool {
        if !self.filter.wants(stream, reader, event) {
            return true;
        }
        let Some(state) = self.streams.get_mut(stream) else { return true };
        if !state.all_alike && self.classes.depends(state.class, event.class) {
            let decoder = reader.parts().1.clone();
            self.batch.decoders.push((self.batch.records.len(), decoder));
        }
        let known = (self.number, reader.windows(), reader.parts().1.paid());
        if state.known != known {
            self.go_on(stream, known, reader, event.nanoseconds.is_some());
        }
        let Some(state) = self.streams.get(stream) else { return true };
        let nanoseconds = event.nanoseconds.unwrap_or(0);
        if event.nanoseconds.is_some() {
            self.previous = event.nanoseconds;
        }
        // Classes are in memory, each with a name: fewer than 2^32.
        self.batch.records.push(Record {
            window: state.window,
            class: event.class as u32,
            body: event.body,
            nanoseconds,
        });
        (self.batch.records.len() < self.full && self.bytes < BATCH_BYTES) || self.send()
    }

    fn packet(&mut self, stream: usize, reader: &mut Reader<'_>) {
        self.totals.packets += 1;
        self.used.mark(stream);
        let Some(state) = self.streams.get_mut(stream) else { return };
        let Some(scope) = self.plans.get(state.class).and_then(|plan| plan.context.as_ref()) else { return };
        let mut context = Vec::new();
        if let Some(packet) = reader.packet().copied() {
            let mut writer = Writer { out: &mut context, parts: &scope.parts, hidden: 0 };
            let (program, decoder, bytes) = reader.parts();
            // The packet's own reading of the same bytes went well.
            let _ = program.visit_context(decoder, &packet, bytes.bytes, &mut writer);
        }
        state.context = Arc::new(Context::new(context));
    }

    fn loss(&mut self, stream: usize, reader: &mut Reader<'_>, loss: Loss) {
        self.totals.lose(loss);
        self.tally.lose(stream, loss);
        let Some(state) = self.streams.get(stream) else { return };
        let Some(trace) = self.traces.get(state.trace) else { return };
        let class = trace.class();
        let what = if loss.packets { "packet" } else { "event" };
        let plural = if loss.count == 1 { "" } else { "s" };
        let range = match loss.between {
            Some((begin, end)) => {
                let (begin, end) = (reader.nanoseconds(begin), reader.nanoseconds(end));
                format!("between {} and {}", self.moment(begin), self.moment(end))
            }
            None => "(unknown time range)".to_owned(),
        };
        let uuid = class.uuid.map_or("(no UUID)".to_owned(), |uuid| format!("(UUID: {})", uuid_text(&uuid)));
        let id = class.streams.get(reader.stream().class).map_or(0, |class| class.id);
        let own = reader.stream().id.map_or("no stream ID".to_owned(), |id| format!("stream ID: {id}"));
        let text = format!(
            "Tracer discarded {} {what}{plural} {range} in trace \"{}\" {uuid} within stream \"{}\" (stream class ID: \
             {id}, {own}).",
            loss.count,
            trace.name(),
            reader.stream().place()
        );
        (self.notes)(Note::Loss(loss, text));
    }

    fn fault(&mut self, stream: usize, fault: Error) {
        self.totals.faults += 1;
        self.tally.fault(stream);
        self.flush();
        (self.notes)(Note::Fault(fault));
    }
}

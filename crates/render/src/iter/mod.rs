//! Events one at a time, typed, the same for every source.
//!
//! [`Events`] is an iterator. What is behind the event at which a caller stops is not read; the
//! names and times that a [`Selection`] leaves out are skipped before their fields are decoded.
//! [`Events::advance`] lends each event instead, without an allocation for it.

mod kind;
mod value;

pub use kind::{EventKind, split_name};
pub use value::{Field, Value};

use crate::Totals;
use crate::choose::{Chosen, Filter};
use crate::events::{Note, Take, Tally};
use crate::filter::bound::Values;
use crate::select::Selection;
use crate::streams::StreamInfo;
use kind::{COMM, CONTEXTS, Class, PID, TID};
use lastwords_ctf::names::is_unsafe;
use lastwords_ctf::program::Code;
use lastwords_ctf::read::{Due, Error, Loss, Merge, Reader, Sink, Trace, Watch};
use lastwords_filter::Value as Found;
use lastwords_trace::class::Scope;
use lastwords_trace::clock::Rounding;
use lastwords_trace::visit::{Ignore, Visitor};
use std::collections::{HashMap, VecDeque};
use std::fmt::{self, Write as _};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use value::{Collector, Plan};

const SECOND: i64 = 1_000_000_000;

/// The text that ftrace prints in place of an unknown name of a thread.
const NAMELESS: &[u8] = b"<...>";

/// The order in which events come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// All streams are merged by time.
    #[default]
    Time,
    /// One stream after the other, which is faster. Each stream is in order of time. A selection
    /// that needs the order of time ([`Selection::last`], [`Selection::deduplicate`]) has it.
    Stream,
}

/// An event.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// The position of its trace.
    pub trace: usize,
    /// The number of its stream in the trace.
    pub stream: u64,
    /// The CPU of the stream; none if it is not bound to one.
    pub cpu: Option<u32>,
    /// The time in nanoseconds from the clock's origin: since the epoch, if the trace relates its
    /// clock to real time. None if the stream has no clock.
    pub time: Option<i64>,
    /// The reading of the clock, in ticks.
    pub ticks: u64,
    /// The kind: channel, provider, name and severity.
    pub kind: Arc<EventKind>,
    /// The process; none if it is not known.
    pub pid: Option<i64>,
    /// The thread; none if it is not known.
    pub tid: Option<i64>,
    /// The name of the thread; none if it is not known.
    pub comm: Option<String>,
    /// The other contexts.
    pub contexts: Vec<Field>,
    /// The fields.
    pub fields: Vec<Field>,
}

impl Event {
    /// Returns the value of a field.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&Value> {
        self.fields.iter().find(|field| field.name == name).map(|field| &field.value)
    }

    /// Returns the value of a context.
    #[must_use]
    pub fn context(&self, name: &str) -> Option<&Value> {
        self.contexts.iter().find(|field| field.name == name).map(|field| &field.value)
    }
}

/// Writes `seconds.nanoseconds [CPU] comm-tid provider:name: field=value …`. What is not known is
/// `-`, and characters that could control a terminal are escaped.
impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.time {
            Some(time) => {
                write!(f, "{}.{:09}", time.div_euclid(SECOND), time.rem_euclid(SECOND))?;
            }
            None => f.write_str("-")?,
        }
        let cpu = self.cpu.map_or_else(|| "-".to_owned(), |cpu| cpu.to_string());
        let tid = self.tid.map_or_else(|| "-".to_owned(), |tid| tid.to_string());
        let comm = self.comm.as_deref().unwrap_or("-");
        let mut text = format!(" [{cpu}] {comm}-{tid} {}:", self.kind.whole_name());
        self.fields.iter().chain(&self.contexts).for_each(|field| text += &format!(" {field}"));
        text.chars().try_for_each(|c| match is_unsafe(c) {
            true => write!(f, "{}", c.escape_default()),
            false => f.write_char(c),
        })
    }
}

/// The selected events of some traces.
pub struct Events<'t> {
    traces: &'t [Trace],
    readers: Vec<(usize, Reader<'t>)>,
    facts: Vec<StreamInfo>,
    filter: Filter<'t>,
    order: Order,
    /// The streams that are merged now.
    merged: Range<usize>,
    /// None before the first event and behind the last.
    merge: Option<Merge>,
    /// The event that is due was returned.
    is_taken: bool,
    /// The position of each stream's class in `classes`.
    kinds: Vec<usize>,
    /// The event classes of each stream class. One is prepared when its first event is read.
    classes: Vec<Vec<Option<Class<'t>>>>,
    /// The number of event classes that were prepared.
    prepared: usize,
    values: Values<'t>,
    stop: Option<&'t AtomicBool>,
    around: Around,
}

/// Counts packets and losses, and keeps errors, while events are read.
struct Around {
    tally: Tally,
    /// Position of the first stream that is merged now.
    first: usize,
    faults: VecDeque<Error>,
}

/// Passes what surrounds the events to a [`Take`], too.
struct Passing<'a, 'b> {
    around: &'a mut Around,
    facts: &'a [StreamInfo],
    to: Option<&'a mut (dyn Take + 'b)>,
}

impl Passing<'_, '_> {
    /// Returns the position of a stream, given by its place among those that are merged.
    fn stream(&self, place: usize) -> usize {
        self.around.first.saturating_add(place)
    }

    fn pass(&mut self, stream: usize, what: impl FnOnce(&mut dyn Take, &StreamInfo)) {
        if let (Some(to), Some(facts)) = (self.to.as_deref_mut(), self.facts.get(stream)) {
            what(to, facts);
        }
    }
}

impl Sink for Passing<'_, '_> {
    fn event(&mut self, _: usize, _: &mut Reader<'_>, _: &Due) -> bool {
        true
    }

    fn packet(&mut self, place: usize, reader: &mut Reader<'_>) {
        let stream = self.stream(place);
        self.around.tally.packet(stream);
        self.pass(stream, |to, facts| to.packet(facts, reader));
    }

    fn loss(&mut self, place: usize, reader: &mut Reader<'_>, loss: Loss) {
        let stream = self.stream(place);
        self.around.tally.loss(stream, loss);
        self.pass(stream, |to, facts| to.loss(facts, reader, loss));
    }

    fn fault(&mut self, place: usize, fault: Error) {
        let stream = self.stream(place);
        self.around.tally.fault(stream);
        self.pass(stream, |to, facts| to.fault(facts));
        self.around.faults.push_back(fault);
    }
}

impl<'t> Events<'t> {
    /// Prepares to read the selected events of some traces. `watch` receives the number of bytes
    /// that were read.
    #[must_use]
    pub fn new(
        traces: &'t [Trace],
        selection: &'t Selection,
        order: Order,
        watch: Watch<'t>,
    ) -> Self {
        let needs_time = selection.last.is_some() || selection.deduplicate;
        let Chosen { readers, facts, filter, passed, .. } =
            Chosen::last(traces, selection, Rounding::Floor, watch);
        let tally = Tally::new(&facts, &passed);
        let (mut known, mut classes) = (HashMap::new(), Vec::new());
        let mut kind = |facts: &StreamInfo| {
            *known.entry((facts.trace, facts.class)).or_insert_with(|| {
                let trace = traces.get(facts.trace);
                let class = trace.and_then(|trace| trace.class().streams.get(facts.class));
                let count = class.map_or(0, |class| class.events.len());
                classes.push(std::iter::repeat_with(|| None).take(count).collect());
                classes.len().saturating_sub(1)
            })
        };
        let kinds = facts.iter().map(&mut kind).collect();
        Self {
            traces,
            kinds,
            classes,
            prepared: 0,
            merged: 0..0,
            order: if needs_time { Order::Time } else { order },
            readers,
            facts,
            filter,
            merge: None,
            is_taken: false,
            values: Values::default(),
            stop: None,
            around: Around { tally, first: 0, faults: VecDeque::new() },
        }
    }

    /// Ends reading when another thread sets `stop`, also between two events that are selected.
    #[must_use]
    pub fn until_set(self, stop: &'t AtomicBool) -> Self {
        Self { stop: Some(stop), ..self }
    }

    /// Goes to the next event. Returns none after the last one, and where a part of the input
    /// cannot be read: [`Events::fault`] has the error then, and reading can go on.
    pub fn advance(&mut self) -> Option<EventRef<'_, 't>> {
        self.advance_with(None)
    }

    /// Goes to the next event as [`Events::advance`] does, and passes the event to `to`, after the
    /// packets, losses and faults before it. So one pass over the events serves two purposes.
    pub fn advance_with(
        &mut self,
        mut to: Option<&mut (dyn Take + '_)>,
    ) -> Option<EventRef<'_, 't>> {
        let (stream, due) = self.find(&mut to)?;
        let facts = self.facts.get(stream)?;
        let trace = self.traces.get(facts.trace)?;
        let place = self.classes.get_mut(*self.kinds.get(stream)?)?.get_mut(due.class)?;
        if place.is_none() {
            *place = Class::new(trace, (facts.class, due.class), self.prepared);
            self.prepared = self.prepared.saturating_add(1);
        }
        let class = place.as_ref()?;
        let (_, reader) = self.readers.get_mut(stream)?;
        if let Some(to) = to {
            to.event(facts, reader, &due);
        }
        Some(EventRef { facts, class, reader, due, values: &mut self.values, ends: [None; 2] })
    }

    /// Finds the next event that is selected.
    fn find(&mut self, to: &mut Option<&mut (dyn Take + '_)>) -> Option<(usize, Due)> {
        loop {
            let is_stopped = self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed));
            if is_stopped || !self.around.faults.is_empty() {
                return None;
            }
            let Some(merge) = &mut self.merge else {
                self.begin(to)?;
                continue;
            };
            let readers = self.readers.get_mut(self.merged.clone())?;
            if std::mem::take(&mut self.is_taken) {
                let (around, facts) = (&mut self.around, &self.facts);
                merge.advance(readers, &mut Passing { around, facts, to: to.as_deref_mut() });
                continue;
            }
            let Some((stream, due)) = merge.due() else {
                self.merge = None;
                continue;
            };
            self.is_taken = true;
            let due = *due;
            let (_, reader) = readers.get_mut(stream)?;
            let stream = self.merged.start.saturating_add(stream);
            if self.filter.wants(stream, reader, &due) {
                let events = &mut self.around.tally.totals.events;
                *events = events.saturating_add(self.filter.count(stream));
                return Some((stream, due));
            }
        }
    }

    /// Begins to read the next streams. Returns none if all are read.
    fn begin(&mut self, to: &mut Option<&mut (dyn Take + '_)>) -> Option<()> {
        let (first, all) = (self.merged.end, self.readers.len());
        let end = match self.order {
            Order::Time => all,
            Order::Stream => first.saturating_add(1),
        };
        self.merged = first..end;
        self.around.first = first;
        let readers = self.readers.get_mut(first..end).filter(|readers| !readers.is_empty())?;
        let (around, facts) = (&mut self.around, &self.facts);
        let mut passing = Passing { around, facts, to: to.as_deref_mut() };
        self.merge = Some(Merge::new(readers, &mut passing));
        Some(())
    }

    /// Takes the oldest error of reading that was not taken yet.
    pub fn fault(&mut self) -> Option<Error> {
        self.around.faults.pop_front()
    }

    /// Reports the losses and faults of each trace to `notes`, and returns the counts of all
    /// traces. `bytes` is the number of bytes written.
    ///
    /// # Errors
    /// Writing has failed with the error `failed`.
    pub fn finish(
        self,
        failed: Option<io::Error>,
        bytes: u64,
        notes: &mut dyn FnMut(Note),
    ) -> crate::Result<Totals> {
        self.around.tally.finish(failed, bytes, notes)
    }

    /// Returns the counts of what was read so far, losses and faults among them.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.around.tally.totals
    }
}

/// Each event, or an error where a part of the input cannot be read. Reading goes on behind it.
impl Iterator for Events<'_> {
    type Item = Result<Event, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(mut event) = self.advance() {
            return Some(Ok(event.to_event()));
        }
        self.fault().map(Err)
    }
}

/// An event while it is read.
pub struct EventRef<'e, 't> {
    facts: &'e StreamInfo,
    class: &'e Class<'t>,
    reader: &'e mut Reader<'t>,
    due: Due,
    values: &'e mut Values<'t>,
    /// Where the contexts end that were decoded.
    ends: [Option<u64>; 2],
}

/// The process and the thread of an event, as far as they are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ids<'e> {
    /// The process.
    pub pid: Option<i64>,
    /// The thread.
    pub tid: Option<i64>,
    /// The name of the thread.
    pub comm: Option<&'e [u8]>,
}

impl<'t> EventRef<'_, 't> {
    /// Returns the position of its trace.
    #[must_use]
    pub fn trace(&self) -> usize {
        self.facts.trace
    }

    /// Returns the number of its stream in the trace.
    #[must_use]
    pub fn stream(&self) -> u64 {
        self.facts.number
    }

    /// Returns the CPU of the stream; none if it is not bound to one.
    #[must_use]
    pub fn cpu(&self) -> Option<u32> {
        self.facts.cpu
    }

    /// Returns the time: see [`Event::time`].
    #[must_use]
    pub fn time(&self) -> Option<i64> {
        self.due.nanoseconds.filter(|_| self.class.is_timed)
    }

    /// Returns the reading of the clock, in ticks.
    #[must_use]
    pub fn ticks(&self) -> u64 {
        self.due.clock
    }

    /// Returns the kind: channel, provider, name and severity.
    #[must_use]
    pub fn kind(&self) -> &Arc<EventKind> {
        &self.class.kind
    }

    /// Returns the number of the kind. The kinds have the numbers 0, 1, … in the order in which
    /// [`Events::advance`] met them first, so that a caller can keep what it knows of each kind in a
    /// list.
    #[must_use]
    pub fn kind_number(&self) -> usize {
        self.class.number
    }

    /// Returns the process and the thread.
    pub fn ids(&mut self) -> Ids<'_> {
        if !self.class.ids.read(self.reader, &self.due, self.values) {
            return Ids::default();
        }
        let value = |slot| self.class.ids.value(slot, self.values, self.facts.cpu);
        let number = |slot| match value(slot)? {
            Found::Signed(number) => Some(number),
            Found::Unsigned(number) => i64::try_from(number).ok(),
            _ => None,
        };
        let comm = match value(COMM) {
            Some(Found::Text(name)) => Some(name),
            _ => None,
        };
        // The kernel's table of processes has 0 where it does not know one.
        let pid = number(PID).filter(|pid| !self.class.is_ftrace || *pid != 0);
        let comm = comm.filter(|name| !self.class.is_ftrace || *name != NAMELESS);
        Ids { pid, tid: number(TID), comm }
    }

    /// Returns the code that decodes a scope, or none if the event has no such scope. It is the
    /// same for all events of a kind.
    #[must_use]
    pub fn code(&self, scope: Scope) -> Option<&'t Code> {
        let Class { contexts: [common, specific], payload, .. } = self.class;
        let plan = match scope {
            Scope::CommonContext => common,
            Scope::SpecificContext => specific,
            Scope::Payload => payload,
            _ => return None,
        };
        plan.as_ref().map(|plan| plan.code)
    }

    /// Passes the values of a scope to a visitor, whose nodes are those of
    /// [`scope_code`](crate::streams::scope_code).
    pub fn visit(&mut self, scope: Scope, to: &mut impl Visitor) {
        let mut at = Some(self.due.body);
        let Class { contexts: [common, specific], payload, .. } = self.class;
        for ((which, plan), end) in CONTEXTS.into_iter().zip([common, specific]).zip(&mut self.ends)
        {
            let Some(plan) = plan else { continue };
            if which == scope {
                decode(self.reader, plan, &mut at, to);
                *end = at;
                return;
            }
            if end.is_none() {
                decode(self.reader, plan, &mut at, &mut Ignore);
                *end = at;
            }
            at = *end;
        }
        if let Some(plan) = payload.as_ref().filter(|_| scope == Scope::Payload) {
            decode(self.reader, plan, &mut at, to);
        }
    }

    fn collect(&mut self, scope: Scope, plan: &Plan<'_>, without: &[u32]) -> Vec<Field> {
        let mut collector = Collector::new(plan, without);
        self.visit(scope, &mut collector);
        collector.fields
    }

    /// Returns the contexts beside those of [`EventRef::ids`].
    pub fn contexts(&mut self) -> Vec<Field> {
        let class = self.class;
        self.contexts_without([&class.known[0], &class.known[1]])
    }

    /// Returns all contexts as the source names them.
    pub fn all_contexts(&mut self) -> Vec<Field> {
        self.contexts_without([&[], &[]])
    }

    fn contexts_without(&mut self, without: [&[u32]; 2]) -> Vec<Field> {
        let class = self.class;
        let mut fields = Vec::new();
        for ((scope, plan), without) in CONTEXTS.into_iter().zip(&class.contexts).zip(without) {
            fields.extend(plan.iter().flat_map(|plan| self.collect(scope, plan, without)));
        }
        fields
    }

    /// Returns the fields.
    pub fn fields(&mut self) -> Vec<Field> {
        let class = self.class;
        class.payload.as_ref().map_or_else(Vec::new, |plan| self.collect(Scope::Payload, plan, &[]))
    }

    /// Returns the event with all that it has.
    pub fn to_event(&mut self) -> Event {
        let Ids { pid, tid, comm } = self.ids();
        let comm = comm.map(|name| String::from_utf8_lossy(name).into_owned());
        Event {
            trace: self.trace(),
            stream: self.stream(),
            cpu: self.cpu(),
            time: self.time(),
            ticks: self.ticks(),
            kind: Arc::clone(self.kind()),
            pid,
            tid,
            comm,
            contexts: self.contexts(),
            fields: self.fields(),
        }
    }
}

/// Decodes a scope at a position, and goes on behind it.
fn decode(reader: &mut Reader<'_>, plan: &Plan<'_>, at: &mut Option<u64>, to: &mut impl Visitor) {
    let (program, decoder, part) = reader.parts();
    let begin = at.take();
    // The reader has accepted the same bytes.
    *at = begin.and_then(|at| program.visit(decoder, plan.code, &part, at, to).ok());
}

//! The tables `slice` and `sched`: what began and ended, and what ran, as far as events prove it.
//!
//! [`Timeline`] takes the events of a crash in order of time, and what is missing between them
//! ([`Missing`]). A begin and an end make a slice only if no event that could be the end of another
//! is missing between them. Where events are missing, what had begun has no end: `end_ts`, `dur`
//! and `is_open` are null. What had not ended when the recording did is open.

mod nested;
mod running;
mod spans;
#[cfg(test)]
mod tests;

use crate::events::TraceFacts;
use crate::rows::{Cell, Rows};
use crate::schema::Table;
use crate::{BATCH_ROWS, Error};
use arrow_array::RecordBatch;
use lastwords_ctf::read::{Due, Loss, Reader, Trace};
use lastwords_render::events::Take;
use lastwords_render::meaning::Meaning;
use lastwords_render::missing::{Edge, Missing, StreamKey};
use lastwords_render::picks::{Number, Picked, Picking, Picks, Words};
use lastwords_render::spans::OpenSpan;
use lastwords_render::streams::{StreamInfo, scope_code};
use lastwords_trace::class::Scope;
use lastwords_trace::symbols::Symbols;
use nested::{Call, Nested};
use running::Running;
use spans::Spans;
use std::collections::{BTreeMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

/// Takes the batches of a table.
pub(crate) type Put<'p> = &'p mut dyn FnMut(Table, RecordBatch) -> Result<(), Error>;

/// The facts about a trace that its packets do not have.
#[derive(Clone)]
pub(crate) struct Beside {
    pub(crate) facts: TraceFacts,
    /// Names the functions of the kernel.
    pub(crate) symbols: Option<Arc<dyn Symbols>>,
    /// The machine as `uname -m` has it; empty if it is not known.
    pub(crate) machine: String,
    /// The spans that were open at the end, if the trace has a table of them.
    pub(crate) open_spans: Option<Vec<OpenSpan>>,
}

/// The end of a slice, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// It ended at this time.
    At(i64),
    /// It had not ended when the recording did.
    Open,
    /// Events are missing.
    Unknown,
}

impl End {
    fn time(self) -> Option<i64> {
        if let Self::At(time) = self { Some(time) } else { None }
    }

    fn is_open(self) -> Option<bool> {
        match self {
            Self::At(_) => Some(false),
            Self::Open => Some(true),
            Self::Unknown => None,
        }
    }
}

/// A row of `slice`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Slice {
    pub(crate) trace: usize,
    pub(crate) begin: i64,
    pub(crate) category: &'static str,
    pub(crate) name: Rc<str>,
    pub(crate) cpu: Option<u32>,
    pub(crate) tid: Option<i64>,
    pub(crate) pid: Option<i64>,
    pub(crate) depth: Option<i64>,
    pub(crate) id: Option<i64>,
    pub(crate) parent: Option<i64>,
    pub(crate) returned: Option<i64>,
}

/// Rows of the two tables that are not yet written.
pub(crate) struct Out<'p> {
    beside: Vec<Beside>,
    slices: Rows,
    running: Rows,
    put: Put<'p>,
    failed: Option<Error>,
}

impl<'p> Out<'p> {
    fn new(beside: Vec<Beside>, put: Put<'p>) -> Self {
        let (slices, running) =
            (Rows::new(Table::Slice.schema()), Rows::new(Table::Sched.schema()));
        Self { beside, slices, running, put, failed: None }
    }

    fn slice(&mut self, slice: &Slice, end: End) {
        let Some(Beside { facts, .. }) = self.beside.get(slice.trace) else { return };
        let begin = Some(slice.begin);
        // The clocks of CPUs may differ a little, but nothing ends before it begins.
        let end_at = end.time().map(|time| time.max(slice.begin));
        self.slices.row(&[
            Cell::Text(Some(&facts.crash_id)),
            Cell::Text(Some(&facts.name)),
            Cell::Number(begin),
            Cell::Time(begin.filter(|_| facts.is_dated)),
            Cell::Number(end_at),
            Cell::Number(end_at.and_then(|end| end.checked_sub(slice.begin))),
            Cell::Bool(end.is_open()),
            Cell::Text(Some(slice.category)),
            Cell::Text(Some(&slice.name)),
            Cell::Number(slice.cpu.map(i64::from)),
            Cell::Number(slice.tid),
            Cell::Number(slice.pid),
            Cell::Number(slice.depth),
            Cell::Number(slice.id),
            Cell::Number(slice.parent),
            Cell::Number(slice.returned),
        ]);
        self.flush(BATCH_ROWS);
    }

    /// Writes the rows if there are as many.
    fn flush(&mut self, least: usize) {
        for (table, rows) in [(Table::Slice, &mut self.slices), (Table::Sched, &mut self.running)] {
            if rows.count() >= least && rows.count() > 0 && self.failed.is_none() {
                let put = rows.finish().map_err(Error::from);
                self.failed = put.and_then(|batch| (self.put)(table, batch)).err();
            }
        }
    }
}

/// A class of events, prepared for reading.
struct Class {
    meaning: Meaning,
    name: Rc<str>,
    /// The values that are taken of the common context, the specific context and the payload.
    scopes: [Option<Picks>; 3],
}

const SCOPES: [Scope; 3] = [Scope::CommonContext, Scope::SpecificContext, Scope::Payload];

impl Class {
    fn new(trace: &Trace, stream: &StreamInfo, event: usize) -> Option<Self> {
        let class = trace.class().streams.get(stream.class)?.events.get(event)?;
        let meaning = Meaning::from_name(class.name.as_deref().unwrap_or_default(), trace);
        let name = match &meaning {
            Meaning::SystemCall(name) | Meaning::SystemCallEnd(name) | Meaning::Span(_, name) => {
                name.as_str()
            }
            _ => "",
        };
        let is_ftrace = trace.class().is_ftrace();
        let scopes = SCOPES.map(|scope| {
            let code = scope_code(trace, scope, stream.class, event)?;
            Some(Picks::new(code, scope != Scope::Payload, is_ftrace))
        });
        Some(Self { name: name.into(), meaning, scopes })
    }

    fn read(
        &self,
        trace: &Trace,
        stream: &StreamInfo,
        reader: &mut Reader<'_>,
        due: &Due,
    ) -> Picked {
        let (mut picked, mut at) = (Picked::default(), Some(due.body));
        for (scope, picks) in SCOPES.into_iter().zip(&self.scopes) {
            let Some(picks) = picks else { continue };
            let Some(code) = scope_code(trace, scope, stream.class, due.class) else { continue };
            let (program, decoder, part) = reader.parts();
            let mut picking = Picking { picks, picked: &mut picked };
            // The reader has accepted the same bytes.
            at = at.and_then(|at| program.visit(decoder, code, &part, at, &mut picking).ok());
        }
        picked
    }
}

/// Takes the values of a map that are wanted out of it, in the order of their keys.
fn extract<K: Ord + Copy, V>(
    map: &mut BTreeMap<K, V>,
    is_wanted: impl Fn(&K, &V) -> bool,
) -> Vec<V> {
    let wanted = map.iter().filter(|(key, value)| is_wanted(key, value)).map(|(key, _)| *key);
    let keys: Vec<K> = wanted.collect();
    keys.iter().filter_map(|key| map.remove(key)).collect()
}

/// Where and when an event was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) stream: StreamKey,
    pub(crate) time: i64,
    pub(crate) cpu: Option<u32>,
    pub(crate) tid: Option<i64>,
    pub(crate) pid: Option<i64>,
    /// Events of the stream, and of any stream of the trace, are missing around it.
    pub(crate) is_lossy: (bool, bool),
}

/// Makes the rows of `slice` and `sched`.
pub(crate) struct Timeline<'t, 'p> {
    traces: &'t [Trace],
    /// The position in `classes` of the first event class of each stream class, by trace.
    begins: Vec<Vec<usize>>,
    /// The event classes of all traces. One is prepared when its first event is read.
    classes: Vec<Option<Option<Rc<Class>>>>,
    missing: Missing,
    /// The traces of which events are missing.
    lossy: HashSet<usize>,
    /// The process that created each session, for events that do not name theirs.
    creators: Vec<Option<i64>>,
    running: Running,
    nested: Nested,
    spans: Spans,
    out: Out<'p>,
}

impl<'t, 'p> Timeline<'t, 'p> {
    /// Prepares to take the events of `traces`, each of which has an entry in `beside`.
    pub(crate) fn new(traces: &'t [Trace], beside: Vec<Beside>, put: Put<'p>) -> Self {
        let mut count = 0_usize;
        let mut begin = |events: usize| {
            let begin = count;
            count = count.saturating_add(events);
            begin
        };
        let mut of_trace = |trace: &Trace| {
            trace.class().streams.iter().map(|stream| begin(stream.events.len())).collect()
        };
        Self {
            begins: traces.iter().map(&mut of_trace).collect(),
            classes: vec![None; count],
            missing: Missing::default(),
            lossy: HashSet::new(),
            creators: traces.iter().map(|trace| trace.class().number("vpid")).collect(),
            running: Running::default(),
            nested: Nested::default(),
            spans: Spans::default(),
            out: Out::new(beside, put),
            traces,
        }
    }

    /// Returns true if an event of the traces can begin or end anything.
    pub(crate) fn has_any(traces: &[Trace]) -> bool {
        let has = |trace: &Trace| {
            let streams = trace.class().streams.iter();
            let mut names = streams.flat_map(|stream| &stream.events);
            names.any(|event| {
                let name = event.name.as_deref().unwrap_or_default();
                Meaning::from_name(name, trace) != Meaning::Mark
            })
        };
        traces.iter().any(has)
    }

    /// Ends what is open, and writes the rows that are left.
    ///
    /// # Errors
    /// A row cannot be written.
    pub(crate) fn finish(mut self) -> Result<(), Error> {
        let tails: HashSet<StreamKey> =
            self.missing.tails(self.traces).iter().map(|tail| tail.stream).collect();
        self.lossy.extend(tails.iter().map(|(trace, _)| *trace));
        self.running.finish(&mut self.out, |stream| !tails.contains(&stream));
        let is_whole = |trace: usize| !tails.iter().any(|(other, _)| *other == trace);
        self.nested.finish(&mut self.out, |stream| !tails.contains(&stream), is_whole);
        self.spans.finish(&mut self.out, &self.lossy);
        self.out.flush(0);
        self.out.failed.map_or(Ok(()), Err)
    }

    /// Events are missing from or until a time.
    fn lost(&mut self, edge: &Edge) {
        self.lossy.insert(edge.stream.0);
        if self.missing.is_of_threads(edge) {
            self.nested.lost_threads(&mut self.out, edge.stream.0);
        }
        self.running.lost(&mut self.out, edge.stream);
        self.nested.lost_cpu(&mut self.out, edge.stream);
    }

    fn class(&mut self, stream: &StreamInfo, event: usize) -> Option<Rc<Class>> {
        let traces = self.traces;
        let new = || Class::new(traces.get(stream.trace)?, stream, event).map(Rc::new);
        let begin = self.begins.get(stream.trace)?.get(stream.class)?;
        self.classes.get_mut(begin.saturating_add(event))?.get_or_insert_with(new).clone()
    }

    /// Takes an event that has a meaning.
    fn judge(&mut self, stream: &StreamInfo, class: &Class, picked: &Picked, time: i64) {
        let key = (stream.trace, stream.number);
        let running = stream.cpu.and_then(|cpu| self.running.thread(stream.trace, cpu));
        // Where switches are missing, another thread may run.
        let running = running.filter(|(stream, _)| !self.missing.is_in(*stream));
        let place = Place {
            stream: key,
            time,
            cpu: stream.cpu,
            tid: picked.tid().or(running.map(|(_, tid)| tid)),
            pid: picked.pid(),
            is_lossy: (self.missing.is_in(key), self.missing.is_around(stream.trace)),
        };
        let out = &mut self.out;
        match &class.meaning {
            Meaning::Mark | Meaning::Log => {}
            Meaning::Switch => {
                self.running.switch(out, &place, picked);
                self.nested.switched(out, &place, picked);
            }
            Meaning::Interrupt => {
                let id = picked.number(Number::Irq).unwrap_or(0);
                let name = picked.words(Words::Name).unwrap_or_default();
                self.nested.interrupt(out, &place, "irq", id, &name);
            }
            Meaning::SoftInterrupt => {
                let id = picked.number(Number::Vector).unwrap_or(0);
                self.nested.interrupt(out, &place, "softirq", id, "");
            }
            Meaning::InterruptEnd { is_soft } => {
                let (category, number) = match is_soft {
                    true => ("softirq", Number::Vector),
                    false => ("irq", Number::Irq),
                };
                let id = picked.number(number).unwrap_or(0);
                self.nested.interrupt_end(out, &place, category, id);
            }
            Meaning::SystemCall(_) => {
                let call = Call::new(&class.name, picked, out.machine(stream.trace));
                self.nested.call(out, &place, call);
            }
            Meaning::SystemCallEnd(_) => {
                let call = Call::new(&class.name, picked, out.machine(stream.trace));
                let returned = picked.number(Number::Returned).map(u64::cast_signed);
                self.nested.call_end(out, &place, &call, returned);
            }
            Meaning::Exit => self.nested.thread_end(out, &place),
            Meaning::Function => self.nested.function(out, &place, picked),
            Meaning::FunctionEnd => self.nested.function_end(out, &place, picked),
            Meaning::Span(step, _) => {
                let creator = self.creators.get(stream.trace).copied().flatten();
                let place = Place { pid: place.pid.or(creator), ..place };
                self.spans.step(out, *step, &class.name, &place, picked);
            }
        }
    }
}

impl Out<'_> {
    fn machine(&self, trace: usize) -> &str {
        self.beside.get(trace).map_or("", |beside| &beside.machine)
    }
}

impl Take for Timeline<'_, '_> {
    fn event(&mut self, stream: &StreamInfo, reader: &mut Reader<'_>, due: &Due) {
        let Some(time) = due.nanoseconds else { return };
        // A loss ends what was known before it.
        while let Some(edge) = self.missing.pass((stream.trace, stream.number), time) {
            self.lost(&edge);
        }
        let Some(class) = self.class(stream, due.class) else { return };
        if class.meaning == Meaning::Mark {
            return;
        }
        let Some(trace) = self.traces.get(stream.trace) else { return };
        let picked = class.read(trace, stream, reader, due);
        self.judge(stream, &class, &picked, time);
    }

    fn packet(&mut self, stream: &StreamInfo, reader: &mut Reader<'_>) {
        let Some(trace) = self.traces.get(stream.trace) else { return };
        self.missing.packet(trace, stream, reader);
    }

    fn loss(&mut self, stream: &StreamInfo, _: &mut Reader<'_>, loss: Loss) {
        self.missing.loss(stream, loss);
    }

    fn fault(&mut self, stream: &StreamInfo) {
        self.missing.fault(stream);
    }
}

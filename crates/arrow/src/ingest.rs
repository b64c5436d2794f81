//! Adds crashes to a data set.

use crate::Error;
use crate::crash::{Crash, loss_rows, trace_facts, trace_rows};
use crate::dataset::{DataSet, Part};
use crate::events::{BATCH_ROWS, Batches, TraceFacts, Wanted};
use crate::log::{LogRows, is_record};
use crate::schema::Table;
use crate::threads::Threads;
use crate::timeline::{Beside, Put, Timeline};

use arrow_array::RecordBatch;
use lastwords_ctf::Totals;
use lastwords_open::{Losses, Machine, Order, Selected, Selection, Trace, accounts_after_reading};
use lastwords_render::events::{Note, Take};
use lastwords_render::spans::OpenSpan;
use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::Arc;

/// The files and rows that were written of a crash, and its losses.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Added {
    /// The file with its events.
    pub path: PathBuf,
    /// Rows of `events`.
    pub events: u64,
    /// Streams that were read.
    pub streams: u64,
    /// Packets that were read.
    pub packets: u64,
    /// Bytes of all its files.
    pub bytes: u64,
    /// Parts that cannot be read.
    pub faults: u64,
    /// The losses in the accounts of its traces.
    pub losses: Losses,
    /// Values of promoted fields that their columns cannot hold.
    pub unfit: u64,
    /// Traces whose events nothing describes.
    pub undescribed: usize,
}

/// The parts of a crash, one for each table, in the order of [`Table::ALL`].
struct Parts(Vec<(Table, Part)>);

impl Parts {
    fn new(set: &DataSet, crash: &Crash) -> Result<Self, Error> {
        let day = crash.day();
        let part = |table| Ok((table, set.part(table, &crash.id, day.as_deref())?));
        Table::ALL.into_iter().map(part).collect::<Result<_, _>>().map(Self)
    }

    fn write(&mut self, table: Table, batch: &RecordBatch) -> Result<(), Error> {
        let part = self.0.iter_mut().find(|(own, _)| *own == table);
        part.map_or(Ok(()), |(_, part)| part.write(batch))
    }

    /// Puts all parts in their places. Returns the path of the events, and the number of bytes.
    fn finish(mut self, set: &DataSet, id: &str) -> Result<(PathBuf, u64), Error> {
        let (mut path, mut total) = (PathBuf::new(), 0_u64);
        for (_, part) in &mut self.0 {
            part.complete()?;
        }
        let _lock = set.lock(id)?;
        for (table, part) in self.0 {
            let (own, bytes) = part.finish()?;
            total = total.saturating_add(bytes);
            if table == Table::Events {
                path = own;
            }
        }
        Ok((path, total))
    }
}

/// Counts that are made while the events are read.
struct Counted {
    totals: Totals,
    /// The losses and faults of traces that have any, each with its position.
    of_traces: Vec<(usize, Totals)>,
    /// Values of promoted fields that their columns cannot hold.
    unfit: u64,
}

/// The traces of a crash whose events are read.
struct Read<'t> {
    crash: &'t Crash,
    selected: &'t Selected,
    /// The traces of the packets that are read.
    traces: Vec<&'t Trace>,
    facts: Vec<TraceFacts>,
    machine: Option<&'t Machine>,
}

impl Read<'_> {
    /// Reads the events once. Writes them, and what is taken from them at the same time: threads,
    /// processes, the log, what began and ended, and what ran.
    fn events(&self, parts: &mut Parts) -> Result<Counted, Error> {
        let parts = RefCell::new(parts);
        let write = |table, batch: &RecordBatch| parts.borrow_mut().write(table, batch);
        let mut put = |table, batch| write(table, &batch);
        let mut timeline = self.timeline(&mut put);
        let events = self.selected.events(Order::Time);
        let mut batches = Batches::new(events, self.facts.clone(), &Wanted::default())?;
        let (mut threads, mut log) = (Threads::default(), LogRows::new());
        if let Some(machine) = self.machine {
            let dated = self.facts.iter().filter(|facts| facts.is_dated);
            let end = dated.filter_map(|facts| facts.end).max();
            let is_hidden = self.traces.iter().any(|trace| trace.hides("kernel:log", "message"));
            log.kernel(self.crash, machine, end, is_hidden);
        }
        let mut faults = 0_u64;
        loop {
            let mut seen = |seen: &crate::events::Seen<'_>| {
                threads.note(seen);
                if let Some(facts) = self.facts.get(seen.trace).filter(|_| is_record(seen)) {
                    log.record(seen, facts);
                }
            };
            let mut fault = |_| faults = faults.saturating_add(1);
            let to = timeline.as_mut().map(|timeline| timeline as &mut dyn Take);
            let Some(batch) = batches.next_with(&mut fault, Some(&mut seen), to)? else { break };
            write(Table::Events, &batch)?;
            if log.count() >= BATCH_ROWS {
                write(Table::Log, &log.finish()?)?;
            }
        }
        timeline.map_or(Ok(()), Timeline::finish)?;
        write(Table::Log, &log.finish()?)?;
        let (threads, processes) = threads.rows(&self.crash.id, &self.traces, self.machine)?;
        write(Table::Thread, &threads)?;
        write(Table::Process, &processes)?;
        let (unfit, mut of_traces) = (batches.unfit(), Vec::new());
        let mut totals = batches.finish(0, &mut |note| {
            if let Note::Read(at, totals) = note {
                of_traces.extend(self.selected.position(at).map(|at| (at, totals)));
            }
        })?;
        totals.faults = totals.faults.max(faults);
        Ok(Counted { totals, of_traces, unfit })
    }

    /// Prepares to write what began and ended, and what ran, to `put`. None if there is nothing
    /// of it.
    fn timeline<'p>(&self, put: Put<'p>) -> Option<Timeline<'_, 'p>> {
        let packets = self.selected.packets();
        let beside = |(at, trace): (usize, &&Trace)| {
            let tracing = trace.origin.machine.as_ref().map(|machine| &machine.tracing);
            let ftrace = trace.ftrace().map(|ftrace| &ftrace.machine.tracing.symbols);
            let session = trace.session();
            Beside {
                facts: self.facts.get(at).cloned().unwrap_or_default(),
                symbols: ftrace.map(Arc::clone),
                machine: tracing.map_or_else(String::new, |tracing| tracing.machine.clone()),
                open_spans: session.map(|found| OpenSpan::all(&*found.session, at).collect()),
            }
        };
        let beside: Vec<Beside> = self.traces.iter().enumerate().map(beside).collect();
        let has_spans = |own: &Beside| own.open_spans.as_ref().is_some_and(|all| !all.is_empty());
        if !Timeline::has_any(packets) && !beside.iter().any(has_spans) {
            return None;
        }
        Some(Timeline::new(packets, beside, put))
    }
}

/// Writes all tables of a crash. `traces` are those that were opened, among which
/// [`Crash::traces`] has positions.
///
/// # Errors
/// The events of a trace cannot be read; a file cannot be written. The data set then has what it
/// had before, or tables of the crash without a row in `crashes`.
pub fn add(set: &DataSet, crash: &Crash, traces: &[Trace]) -> Result<Added, Error> {
    let own: Vec<Trace> = crash.traces.iter().filter_map(|at| traces.get(*at).cloned()).collect();
    let mut crash = crash.clone();
    crash.traces = (0..own.len()).collect();
    let crash = &crash;
    let selected = Selected::new(&own, Selection::default())?;
    let all = trace_facts(std::slice::from_ref(crash), &own);
    let positions = || (0..own.len()).map_while(|at| selected.position(at));
    let read = Read {
        crash,
        selected: &selected,
        traces: positions().filter_map(|at| own.get(at)).collect(),
        facts: positions().filter_map(|at| all.get(at).cloned()).collect(),
        machine: crash.machine(),
    };
    let mut parts = Parts::new(set, crash)?;
    let Counted { totals, of_traces, unfit } = read.events(&mut parts)?;
    let accounts = accounts_after_reading(&own, &totals, &of_traces);
    let losses = Losses::from_accounts(&accounts);
    parts.write(Table::Losses, &loss_rows(crash, &own, &accounts)?)?;
    parts.write(Table::Traces, &trace_rows(crash, &own, &accounts)?)?;
    parts.write(Table::Crashes, &crash.row(&losses)?)?;
    let (path, bytes) = parts.finish(set, &crash.id)?;
    Ok(Added {
        path,
        events: totals.events,
        streams: totals.streams,
        packets: totals.packets,
        bytes,
        faults: totals.faults,
        losses,
        unfit,
        undescribed: selected.undescribed().len(),
    })
}

//! What is collected of traces: columns and slices, and how many of them.

use crate::blocks::Blocks;
use crate::classes::Kind;
use crate::gaps::Gap;
use crate::names::Names;
use crate::slices::Slices;
use lastwords_ctf::read::Trace;
use lastwords_render::missing::count;
use lastwords_render::perfetto::Task;
use lastwords_render::spans::OpenSpan;
use lastwords_trace::schema::EnvValue;
use serde::Serialize;
use std::collections::HashMap;

/// How events are collected.
#[derive(Debug, Clone)]
pub struct Options {
    /// Most events of the page: it keeps the newest.
    pub limit: u64,
    /// Spans that were open, as the accounts have them. Those whose opening is not among the
    /// events are drawn from here.
    pub open_spans: Vec<OpenSpan>,
    /// The threads that were in open spans, by trace, process and id.
    pub inside: HashMap<(usize, u32, u64), Inside>,
    /// The tasks of kernels by trace, with the thread groups that their events do not have.
    pub tasks: Vec<(usize, Task)>,
}

/// The threads that were in a span when recording ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inside {
    /// Number of threads.
    pub threads: u32,
    /// The thread that entered it last, if it was still in it.
    pub last: Option<u32>,
}

/// The columns: a row for each event.
#[derive(Default)]
pub(crate) struct Columns {
    pub(crate) times: Vec<i64>,
    pub(crate) kinds: Vec<u32>,
    pub(crate) threads: Vec<u32>,
    pub(crate) cpus: Vec<u32>,
}

impl Columns {
    pub(crate) fn drop_first(&mut self, count: usize) {
        self.times.drain(..count);
        self.kinds.drain(..count);
        self.threads.drain(..count);
        self.cpus.drain(..count);
    }
}

/// A line of a kernel's log.
pub(crate) struct LogRow {
    pub(crate) event: u64,
    pub(crate) level: u64,
    pub(crate) text: String,
}

/// The facts of a trace that filters read, besides the fields of its events.
#[derive(Debug, Serialize)]
pub(crate) struct FilterFacts {
    ftrace: bool,
    /// The process, if the properties of the trace have it.
    pid: Option<String>,
    /// Ids and names of threads that the properties have.
    threads: Vec<(String, String)>,
}

impl FilterFacts {
    pub(crate) fn new(trace: &Trace) -> Self {
        let class = trace.class();
        let pid = match class.property("vpid").or_else(|| class.property("pid")) {
            Some(EnvValue::Integer(pid)) => Some(pid.to_string()),
            _ => None,
        };
        let names = class.thread_names().into_iter();
        let mut threads: Vec<_> =
            names.map(|(tid, name)| (tid.to_string(), name.to_owned())).collect();
        threads.sort();
        Self { ftrace: class.is_ftrace(), pid, threads }
    }
}

/// Events that were read, ready to be written as a page.
pub struct Collected {
    pub(crate) columns: Columns,
    /// Number of events before the first row.
    pub(crate) dropped: u64,
    /// Number of the events of all traces, lines of logs not counted.
    pub(crate) counted: u64,
    pub(crate) limit: u64,
    pub(crate) kinds: Vec<Kind>,
    pub(crate) shapes: Vec<serde_json::Value>,
    pub(crate) filter_of: Vec<FilterFacts>,
    pub(crate) names: Names,
    pub(crate) slices: Slices,
    pub(crate) gaps: Vec<Gap>,
    /// Number of slices of CPUs and of system calls that are left out, because another trace has
    /// the same CPU.
    pub(crate) repeated: u64,
    pub(crate) blocks: Blocks,
    pub(crate) log: Vec<LogRow>,
    /// Machine, id and program of processes that created sessions.
    pub(crate) processes: Vec<(u32, i64, String)>,
    pub(crate) machines: Vec<String>,
    /// The machine of each trace.
    pub(crate) machine_of: Vec<u32>,
    pub(crate) traces: Vec<String>,
    /// All times count from the epoch.
    pub(crate) absolute: bool,
    /// Slices that found no place, because too many are open or nested.
    pub(crate) slices_not_drawn: u64,
}

impl Collected {
    /// Returns the number of events that the page will have, lines of logs not counted, and the
    /// number that were read.
    #[must_use]
    pub fn counts(&self) -> (u64, u64) {
        let is_log = |kind: &&u32| self.kinds.get(**kind as usize).is_some_and(|kind| kind.log);
        let lines = self.columns.kinds.iter().filter(is_log).count();
        (self.columns.kinds.len().saturating_sub(lines) as u64, self.counted)
    }

    /// Returns what the page does not show, in words.
    #[must_use]
    pub fn remarks(&self) -> Vec<String> {
        let repeated = (self.repeated > 0).then(|| {
            let slices = count(self.repeated, "slice");
            format!("{slices} of running threads, interrupts and system calls not drawn: another trace has the same CPU at the same time")
        });
        let merged = self.gaps.iter().filter(|gap| gap.number > 1);
        let number: u64 = merged.clone().map(|gap| gap.number).sum();
        let merged = (number > 0).then(|| {
            format!("{} drawn as {}: there are too many", count(number, "gap"), merged.count())
        });
        repeated.into_iter().chain(merged).collect()
    }
}

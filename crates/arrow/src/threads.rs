//! The tables `thread` and `process`: those that events name, and those that the kernel had at the
//! end.

use crate::Error;
use crate::events::Seen;
use crate::rows::{Cell, Rows};
use crate::schema::Table;
use arrow_array::RecordBatch;
use lastwords_open::{Machine, Trace};
use lastwords_render::perfetto::{Process, Task};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A trace, a thread in it and its process. A thread whose process is not known is one of its own.
type Key = (usize, i64, Option<i64>);

/// The events of a thread.
#[derive(Debug, Clone, Default)]
struct Thread {
    name: Option<String>,
    events: i64,
    first: Option<i64>,
    last: Option<i64>,
}

/// Threads whose positions are remembered.
const RECENT: usize = 256;

/// The threads that events name.
#[derive(Default)]
pub(crate) struct Threads {
    all: Vec<(Key, Thread)>,
    /// The position of each thread in `all`.
    known: HashMap<Key, usize>,
    /// The positions of those that were noted last, by the last bits of their ids.
    recent: Vec<usize>,
}

impl Threads {
    /// Notes the thread of an event.
    pub(crate) fn note(&mut self, seen: &Seen<'_>) {
        let Some(tid) = seen.tid else { return };
        let Some(thread) = self.thread((seen.trace, tid, seen.pid)) else { return };
        // The last name counts: a thread may change its name.
        if let Some(comm) = seen.comm.filter(|comm| thread.name.as_deref() != Some(*comm)) {
            thread.name = Some(comm.to_owned());
        }
        thread.events = thread.events.saturating_add(1);
        if let Some(time) = seen.time {
            thread.first = Some(thread.first.map_or(time, |first| first.min(time)));
            thread.last = thread.last.max(Some(time));
        }
    }

    fn thread(&mut self, key: Key) -> Option<&mut Thread> {
        self.recent.resize(RECENT, 0);
        let recent = self.recent.get_mut(usize::from(key.1.to_le_bytes()[0]))?;
        if self.all.get(*recent).is_none_or(|(own, _)| *own != key) {
            let all = &mut self.all;
            *recent = *self.known.entry(key).or_insert_with(|| {
                all.push((key, Thread::default()));
                all.len().saturating_sub(1)
            });
        }
        self.all.get_mut(*recent).map(|(_, thread)| thread)
    }

    /// Returns the rows of `thread` and of `process`. `traces` are those that were read.
    ///
    /// # Errors
    /// A batch cannot be built.
    pub(crate) fn rows(
        self,
        crash_id: &str,
        traces: &[&Trace],
        machine: Option<&Machine>,
    ) -> Result<(RecordBatch, RecordBatch), Error> {
        let tasks = machine.filter(|machine| machine.kernel.is_some()).map(Machine::tasks);
        let by_tid: HashMap<i64, &Task> =
            tasks.iter().flatten().map(|task| (task.pid.into(), task)).collect();
        let mut sorted = self.all;
        sorted.sort_by_key(|(key, _)| *key);
        let mut rows = Rows::new(Table::Thread.schema());
        let (mut processes, mut seen) = (BTreeMap::new(), BTreeSet::new());
        for ((trace, tid, pid), thread) in sorted {
            // A thread id may have been used again: the names tell.
            let task = by_tid.get(&tid).filter(|task| {
                tid == 0 || thread.name.as_deref().is_none_or(|name| name == task.comm)
            });
            let pid = pid.or(task.map(|task| task.tgid.into()));
            let name = thread.name.or_else(|| Some(task?.comm.clone()));
            seen.extend(task.map(|_| tid));
            if let Some(pid) = pid {
                let own = processes.entry(pid).or_insert(None);
                *own = own.take().or_else(|| name.clone().filter(|_| pid == tid));
            }
            rows.row(&[
                Cell::Text(Some(crash_id)),
                Cell::Text(traces.get(trace).map(|trace| trace.name.as_str())),
                Cell::Number(Some(tid)),
                Cell::Number(pid),
                Cell::Text(name.as_deref()),
                Cell::Bool(pid.map(|pid| pid == tid)),
                Cell::Bool(tasks.as_ref().map(|_| task.is_some())),
                Cell::Number(Some(thread.events)),
                Cell::Number(thread.first),
                Cell::Number(thread.last),
            ]);
        }
        for task in tasks.iter().flatten().filter(|task| !seen.contains(&i64::from(task.pid))) {
            rows.row(&[
                Cell::Text(Some(crash_id)),
                Cell::Text(None),
                Cell::Number(Some(task.pid.into())),
                Cell::Number(Some(task.tgid.into())),
                Cell::Text(Some(&task.comm)),
                Cell::Bool(Some(task.pid == task.tgid)),
                Cell::Bool(Some(true)),
                Cell::Number(Some(0)),
                Cell::Number(None),
                Cell::Number(None),
            ]);
        }
        let of_traces = process_rows(crash_id, processes, traces, machine, tasks.as_deref());
        Ok((rows.finish()?, of_traces?))
    }
}

/// Returns the rows of `process`. `named` has the names of those that events name.
fn process_rows(
    crash_id: &str,
    named: BTreeMap<i64, Option<String>>,
    traces: &[&Trace],
    machine: Option<&Machine>,
    tasks: Option<&[Task]>,
) -> Result<RecordBatch, Error> {
    let kernel = machine.and_then(|machine| machine.kernel.as_ref());
    let time = kernel.and_then(|kernel| kernel.time().ok());
    let boot = time.and_then(|time| i64::try_from(time.wall.checked_sub(time.uptime)?).ok());
    let mut rows = Rows::new(Table::Process.schema());
    let mut row =
        |pid: i64, name: Option<&str>, facts: Option<Process>, uid: Option<i64>, alive| {
            let parent = facts.map(|facts| i64::from(facts.parent)).filter(|parent| *parent != 0);
            let started = facts.and_then(|facts| i64::try_from(facts.started).ok());
            let start = boot.zip(started).and_then(|(boot, started)| boot.checked_add(started));
            rows.row(&[
                Cell::Text(Some(crash_id)),
                Cell::Number(Some(pid)),
                Cell::Text(name),
                Cell::Number(parent),
                Cell::Number(facts.map(|facts| facts.uid.into()).or(uid)),
                Cell::Bool(facts.map(|facts| facts.is_kernel_thread)),
                Cell::Bool(alive),
                Cell::Number(start),
                Cell::Time(start),
            ]);
        };
    let leaders = tasks.into_iter().flatten().filter(|task| task.pid == task.tgid);
    let mut known = BTreeSet::new();
    for task in leaders {
        known.insert(i64::from(task.pid));
        row(task.pid.into(), Some(&task.comm), task.process, None, Some(true));
    }
    let sessions: Vec<_> = traces.iter().filter_map(|trace| trace.session()).collect();
    let mut named = named;
    for process in sessions.iter().flat_map(|found| &found.session.info().processes) {
        named.entry(process.pid.into()).or_default();
    }
    for (pid, name) in named.into_iter().filter(|(pid, _)| !known.contains(pid)) {
        let infos = sessions.iter().map(|found| found.session.info());
        let creator = infos.clone().find(|info| i64::from(info.creator_pid) == pid);
        let uid = creator.map(|info| info.uid.into());
        row(pid, name.as_deref(), None, uid, tasks.map(|_| false));
    }
    Ok(rows.finish()?)
}

//! The threads, CPUs and texts that events refer to by number.

use serde::Serialize;
use std::collections::HashMap;

/// The number of a thread or CPU that is none.
pub(crate) const NONE: u32 = u32::MAX;
/// Most threads that have rows of their own.
const MAX_THREADS: usize = 1 << 16;
/// Most CPUs that have rows of their own.
const MAX_CPUS: usize = 1 << 14;
/// Most labels of slices.
const MAX_LABELS: usize = 1 << 18;

/// A thread, or a stream whose events name no thread.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Thread {
    pub(crate) machine: u32,
    /// The id of the thread; none for a stream.
    pub(crate) tid: Option<i64>,
    /// The id of its process, if it is known.
    pub(crate) pid: Option<i64>,
    pub(crate) name: String,
}

/// The CPU of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub(crate) struct Cpu {
    pub(crate) machine: u32,
    pub(crate) cpu: u32,
}

/// Who an event belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Owner {
    Thread { machine: u32, tid: i64 },
    Stream { machine: u32, trace: usize, class: usize },
}

/// All threads and CPUs.
#[derive(Default)]
pub(crate) struct Names {
    pub(crate) threads: Vec<Thread>,
    by_owner: HashMap<Owner, Vec<u32>>,
    pub(crate) cpus: Vec<Cpu>,
    by_cpu: HashMap<Cpu, u32>,
    pub(crate) labels: Vec<String>,
    by_label: HashMap<String, u32>,
}

/// Returns the position of a new last element.
fn next<T>(list: &[T], most: usize) -> Option<u32> {
    (list.len() < most).then(|| u32::try_from(list.len()).ok()).flatten()
}

impl Names {
    /// Returns the number of a thread, or [`NONE`] if there are too many. Its process and name are
    /// noted where they were not known before. Threads of one id in several processes are several
    /// threads: the kernel uses an id again, and processes in containers have small ids. Where the
    /// process is not known, it is the thread that was named last.
    pub(crate) fn thread(&mut self, owner: Owner, pid: Option<i64>, name: Option<String>) -> u32 {
        let threads = &self.threads;
        let of = |at: &u32| threads.get(*at as usize).and_then(|thread| thread.pid);
        let own = self.by_owner.entry(owner).or_default();
        let position = match pid {
            Some(_) => own
                .iter()
                .rposition(|at| of(at) == pid)
                .or_else(|| own.iter().rposition(|at| of(at).is_none())),
            None => own.len().checked_sub(1),
        };
        let at = if let Some(position) = position {
            // The thread that was named last is the last one.
            own.get_mut(position..).into_iter().for_each(|rest| rest.rotate_left(1));
            own.last().copied().unwrap_or(NONE)
        } else {
            let Some(at) = next(&self.threads, MAX_THREADS) else { return NONE };
            let (machine, tid) = match owner {
                Owner::Thread { machine, tid } => (machine, Some(tid)),
                Owner::Stream { machine, .. } => (machine, None),
            };
            own.push(at);
            self.threads.push(Thread { machine, tid, pid: None, name: String::new() });
            at
        };
        if let Some(thread) = self.threads.get_mut(at as usize) {
            thread.pid = thread.pid.or(pid);
            // The last name that is known: a process that executes another program changes its
            // name.
            if let Some(name) =
                name.filter(|name| !name.is_empty() && name != "<...>" && *name != thread.name)
            {
                thread.name = name;
            }
        }
        at
    }

    /// Returns the number of a CPU, or [`NONE`] if there are too many.
    pub(crate) fn cpu(&mut self, cpu: Cpu) -> u32 {
        if let Some(at) = self.by_cpu.get(&cpu) {
            return *at;
        }
        let Some(at) = next(&self.cpus, MAX_CPUS) else { return NONE };
        self.by_cpu.insert(cpu, at);
        self.cpus.push(cpu);
        at
    }

    /// Returns the number of a text. If there are too many, it is that of the last one.
    pub(crate) fn label(&mut self, text: &str) -> u32 {
        if let Some(at) = self.by_label.get(text) {
            return *at;
        }
        let full = next(&self.labels, MAX_LABELS).is_none();
        let text = if full { "(one of many names)" } else { text };
        let at = u32::try_from(self.labels.len()).unwrap_or(NONE);
        if let Some(at) = self.by_label.get(text) {
            return *at;
        }
        self.by_label.insert(text.to_owned(), at);
        self.labels.push(text.to_owned());
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(names: &mut Names, tid: i64, pid: Option<i64>) -> u32 {
        names.thread(Owner::Thread { machine: 0, tid }, pid, None)
    }

    #[test]
    fn threads_of_one_id_in_several_processes_are_several() {
        let mut names = Names::default();
        assert_eq!(thread(&mut names, 7, None), 0);
        assert_eq!(thread(&mut names, 7, Some(5)), 0);
        assert_eq!(thread(&mut names, 7, Some(6)), 1);
        assert_eq!(thread(&mut names, 7, None), 1);
        assert_eq!(thread(&mut names, 7, Some(5)), 0);
        assert_eq!(thread(&mut names, 7, None), 0);
        assert_eq!(
            names.threads.iter().map(|thread| thread.pid).collect::<Vec<_>>(),
            [Some(5), Some(6)]
        );
    }

    #[test]
    fn threads_beyond_the_most_have_no_row() {
        let mut names = Names::default();
        let most = i64::try_from(MAX_THREADS).unwrap();
        (0..most).for_each(|tid| assert_ne!(thread(&mut names, tid, None), NONE));
        assert_eq!(
            (thread(&mut names, most, None), thread(&mut names, most, Some(1))),
            (NONE, NONE)
        );
        assert_ne!(thread(&mut names, 0, Some(1)), NONE);
    }
}

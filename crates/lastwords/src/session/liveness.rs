//! Tells whether the processes of a session live.
//!
//! A process that has a listener's thread holds a guard in the session: a robust futex, which the
//! kernel marks when the thread ends (`guard.rs`). The guard decides. A process also has a record
//! lock on a byte of the session's file. The lock proves that the process lives; its absence proves
//! nothing, because a process loses its record locks when it closes any descriptor of the file.
//! (`flock` would not do either: a forked child keeps that of its parent.) Without guard and
//! lock (no thread and `closefrom`, or an older version) the process is looked for by pid and start
//! time in its pid namespace, as far as /proc shows that namespace. If that shows nothing either,
//! the answer is [`Life::Unknown`]: a living process is never reported as dead.

use std::os::unix::fs::MetadataExt as _;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

use lastwords_abi::session::{GUARD_DIED, GUARD_THREAD, Guard, Guards, Process, features_word};
use lastwords_ring::backend::Mapping;
use lastwords_ring::{forks, os};
use rustix::io::Errno;
use rustix::process::{Pid, geteuid, test_kill_process};

/// `pid` of an entry that is being written.
pub(super) const CLAIMING: u32 = u32::MAX;

/// A process locks the byte of the session region's file at this offset plus its index in the table
/// of processes (docs/ABI.md).
const LOCKS_AT: u64 = 1 << 62;

/// The identity of a process. It distinguishes the process from another one that has the same id
/// later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// Process id in its own namespace.
    pub pid: u32,
    /// Start time in clock ticks since boot; 0 when unknown.
    pub(crate) start: u64,
    /// Inode of the process's pid namespace; 0 when unknown.
    pub pidns: u64,
}

/// The state of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    /// The process runs.
    Alive,
    /// The process is gone, or another process has its id now.
    Dead,
    /// Nothing shows whether the process runs: it has no guard and no lock, and /proc does not show
    /// its pid namespace.
    Unknown,
}

/// The evidence of the state of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evidence {
    /// The session is of another boot of the machine.
    Boot,
    /// The guard in the session, which the kernel marks when the process dies.
    Guard,
    /// The process's lock on the session's file, which the kernel releases when the process dies.
    Lock,
    /// The process list of the kernel: a process has this id, namespace and start time, or none
    /// has.
    Proc,
    /// Nothing.
    None,
}

/// The state of a process, and what shows it.
pub(crate) type Judgement = (Life, Evidence);

const UNKNOWN: Judgement = (Life::Unknown, Evidence::None);
const ALIVE: Judgement = (Life::Alive, Evidence::Proc);
const DEAD: Judgement = (Life::Dead, Evidence::Proc);

/// This process's [`Identity`], once it was read, and the value of [`forks::forks`] for which it was.
/// A process reads it when it starts its first session, and keeps it: after `chroot` there is no
/// /proc. Written by any thread, `READ` last (Release); all threads write the same values.
static PID: AtomicU32 = AtomicU32::new(0);
static START: AtomicU64 = AtomicU64::new(0);
static PIDNS: AtomicU64 = AtomicU64::new(0);
static READ: AtomicU32 = AtomicU32::new(0);

impl Identity {
    /// Returns the identity of this process. Async-signal-safe.
    pub fn current() -> Self {
        let (pid, forks) = (std::process::id(), forks::forks());
        if READ.load(Acquire) == forks && PID.load(Relaxed) == pid {
            return Self { pid, start: START.load(Relaxed), pidns: PIDNS.load(Relaxed) };
        }
        let me = Self { pid, start: os::start_time(pid), pidns: os::pid_namespace() };
        PID.store(me.pid, Relaxed);
        START.store(me.start, Relaxed);
        PIDNS.store(me.pidns, Relaxed);
        READ.store(forks, Release);
        me
    }

    pub(super) fn from_entry(process: &Process) -> Option<Self> {
        let pid = process.pid.load(Acquire);
        let known = pid != 0 && pid != CLAIMING;
        known.then(|| Self {
            pid,
            start: process.start.load(Relaxed),
            pidns: process.pidns.load(Relaxed),
        })
    }

    /// Returns true if the process is of this process's pid namespace.
    pub(super) fn is_here(&self) -> bool {
        self.pidns != 0 && self.pidns == Identity::current().pidns
    }

    /// Looks for the process by its id, without a search. Async-signal-safe.
    pub(super) fn judge_here(&self) -> Judgement {
        match self.is_here() {
            true if os::is_process_alive(self.pid, self.start as u32) => ALIVE,
            true => DEAD,
            false => UNKNOWN,
        }
    }

    /// Looks for the process by its id, or among all processes if it is of another pid namespace.
    fn judge(&self) -> Judgement {
        match self.judge_here() {
            UNKNOWN if self.pidns != 0 => judge_elsewhere(self),
            judgement => judgement,
        }
    }

    /// The key of the process's guard: [`Guard::key`].
    fn key(&self) -> u64 {
        features_word(0, self.pid, self.start)
    }
}

/// The table of a session's processes.
#[derive(Debug, Clone, Copy)]
pub struct Table<'a> {
    pub(crate) processes: &'a [Process],
    /// The guards of the processes; none in sessions of older versions.
    pub(crate) guards: Option<&'a Guards>,
    /// The session region; none in tests.
    pub(crate) mapping: Option<&'a Mapping>,
}

/// The state of a guard.
enum State {
    /// The process has no guard, or this version does not trust it.
    Nothing,
    Held,
    Died,
}

impl<'a> Table<'a> {
    /// Iterates over the processes that joined and did not leave, with their indices. Dead ones
    /// among them died in the session.
    pub fn joined(self) -> impl Iterator<Item = (usize, Identity)> + use<'a> {
        self.processes
            .iter()
            .enumerate()
            .filter_map(|(index, process)| Some((index, Identity::from_entry(process)?)))
    }

    /// Returns the index of this process.
    pub(crate) fn own(self) -> Option<usize> {
        let me = Identity::current();
        self.joined().find(|(_, identity)| *identity == me).map(|(index, _)| index)
    }

    /// Returns the guard of an entry.
    pub(crate) fn guard(self, index: usize) -> Option<&'a Guard> {
        self.guards?.entries.get(index)
    }

    fn state(self, index: usize, identity: &Identity) -> State {
        let Some(guard) =
            self.guard(index).filter(|guard| guard.key.load(Acquire) == identity.key())
        else {
            return State::Nothing;
        };
        match guard.word.load(Acquire) {
            word if word & GUARD_DIED != 0 => State::Died,
            word if word & GUARD_THREAD == 0 => State::Nothing,
            _ if self.is_copy() => State::Nothing,
            _ => State::Held,
        }
    }

    /// Returns true if the mapped file is a copy, whose guards no kernel writes.
    fn is_copy(self) -> bool {
        let file = self.mapping.and_then(Mapping::identity).unwrap_or_default();
        self.guards
            .is_none_or(|guards| (guards.device.load(Relaxed), guards.inode.load(Relaxed)) != file)
    }

    /// Returns true if the session says that its region is in another file than the mapped one,
    /// which is a copy. Sessions of older versions do not say. The device is not compared: its
    /// number may be another one after a reboot, or in another mount of the file system.
    pub fn is_copied(self) -> bool {
        let inode = self.mapping.and_then(Mapping::identity).unwrap_or_default().1;
        self.guards.is_some_and(|guards| guards.inode.load(Relaxed) != inode)
    }

    /// Returns what a copy of the session's files says of the process: that it had died before, or
    /// nothing.
    pub fn judge_in_copy(self, index: usize, identity: &Identity) -> Judgement {
        match self.state(index, identity) {
            State::Died => (Life::Dead, Evidence::Guard),
            _ => UNKNOWN,
        }
    }

    /// Returns whether the process of an entry lives. Searches /proc for a process of another pid
    /// namespace that has no guard.
    pub fn judge(self, index: usize, identity: &Identity) -> Judgement {
        self.judge_with(index, identity, Identity::judge)
    }

    /// The same without a search. Async-signal-safe.
    pub(crate) fn judge_here(self, index: usize, identity: &Identity) -> Judgement {
        self.judge_with(index, identity, Identity::judge_here)
    }

    fn judge_with(
        self,
        index: usize,
        identity: &Identity,
        other: fn(&Identity) -> Judgement,
    ) -> Judgement {
        match self.state(index, identity) {
            State::Died => (Life::Dead, Evidence::Guard),
            // The kernel marks no guard whose page it cannot reach any more.
            State::Held if identity.is_here() && is_free(identity.pid) => DEAD,
            State::Held => (Life::Alive, Evidence::Guard),
            State::Nothing if self.is_locked(index) => (Life::Alive, Evidence::Lock),
            State::Nothing => other(identity),
        }
    }

    /// Locks this process's byte of the session's file, by its index. Async-signal-safe.
    pub(super) fn lock(self, index: usize) {
        self.mapping.into_iter().for_each(|mapping| mapping.lock_byte(LOCKS_AT + index as u64));
    }

    fn is_locked(self, index: usize) -> bool {
        self.mapping.is_some_and(|mapping| mapping.is_byte_locked(LOCKS_AT + index as u64))
    }

    /// Returns all processes that joined, each with its state.
    pub(crate) fn judged(self) -> impl Iterator<Item = (Identity, Judgement)> + use<'a> {
        self.joined().map(move |(index, identity)| (identity, self.judge(index, &identity)))
    }
}

/// Returns true if no process of this pid namespace has the id. Async-signal-safe.
fn is_free(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_none_or(|pid| test_kill_process(pid) == Err(Errno::SRCH))
}

/// The first pid namespace, from which all processes are seen: PROC_PID_INIT_INO of
/// include/linux/proc_ns.h.
const FIRST_NAMESPACE: u64 = 0xefff_fffc;

/// Looks for the process by its namespace, the last of its ids, as /proc of an outer namespace
/// shows both, and its start time.
fn judge_elsewhere(identity: &Identity) -> Judgement {
    let Ok(entries) = std::fs::read_dir("/proc") else { return UNKNOWN };
    let names =
        entries.filter_map(Result::ok).filter_map(|entry| entry.file_name().into_string().ok());
    let mut all_seen = os::pid_namespace() == FIRST_NAMESPACE;
    for pid in names.filter_map(|name| name.parse().ok()) {
        match is_it(identity, pid) {
            Some(true) => return ALIVE,
            Some(false) => {}
            None => all_seen = false,
        }
    }
    if all_seen { DEAD } else { UNKNOWN }
}

/// Returns true if /proc/PID is the process; `None` if the entry belongs to this user but cannot be
/// read.
fn is_it(identity: &Identity, pid: u32) -> Option<bool> {
    let folder = format!("/proc/{pid}");
    let Ok(namespace) = std::fs::metadata(format!("{folder}/ns/pid")) else {
        let own = std::fs::metadata(&folder).is_ok_and(|meta| meta.uid() == geteuid().as_raw());
        return if own { None } else { Some(false) };
    };
    if namespace.ino() != identity.pidns {
        return Some(false);
    }
    let status = std::fs::read_to_string(format!("{folder}/status")).ok()?;
    // If a zombie has other threads, only the first thread of the process has ended.
    let has = |wanted: &str| status.lines().any(|line| line.starts_with(wanted));
    let zombie = has("State:\tZ") && status.lines().any(|line| line == "Threads:\t1");
    let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    let has_id = ids.split_whitespace().last()?.parse() == Ok(identity.pid);
    // The namespace's inode, and the id in it, may be those of a namespace that ended.
    let has_begun_then = || {
        let start = os::start_time(pid);
        [0, start].contains(&identity.start) || start == 0 || !shares_boot_time(&folder)
    };
    Some(!zombie && has_id && has_begun_then())
}

/// Returns true if a process's start time is comparable with those that the process itself has
/// read: its boot time is that of this process (kernels before 5.6 have one for all).
fn shares_boot_time(folder: &str) -> bool {
    let of =
        |folder: &str| std::fs::metadata(format!("{folder}/ns/time")).map(|meta| meta.ino()).ok();
    of(folder) == of("/proc/thread-self")
}

/// Returns true if a session is certainly of another boot than this one, by their ids.
pub fn is_other_boot(id: &[u8; 16], this: &[u8; 16]) -> bool {
    id != this && ![id, this].contains(&&[0; 16])
}

/// Returns the boot id of the machine; zeroes if /proc does not provide it.
pub fn boot_id() -> [u8; 16] {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    u128::from_str_radix(&text.trim().replace('-', ""), 16).unwrap_or(0).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reused_pid_is_another_process() {
        let me = Identity::current();
        assert_eq!(me.judge(), ALIVE);
        assert_eq!(Identity { start: me.start + 1, ..me }.judge(), DEAD);
        assert_eq!(Identity { pid: 0, pidns: 0, ..me }.judge(), UNKNOWN);
    }

    #[test]
    fn a_process_of_a_reused_namespace_has_the_start_time_too() {
        let me = Identity::current();
        assert_eq!(is_it(&me, me.pid), Some(true));
        assert_eq!(is_it(&Identity { start: me.start - 1, ..me }, me.pid), Some(false));
        assert_eq!(
            is_it(&Identity { start: 0, ..me }, me.pid),
            Some(true),
            "an unknown start time"
        );
    }
}

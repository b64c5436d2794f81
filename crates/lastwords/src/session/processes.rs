//! The processes of a session: which have joined, which are alive, and what a forked child does.

use std::ops::Range;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::time::Duration;

use lastwords_abi::session::{FEATURE_CHANNELS, Process, SCOPE_PROCESS, features_word};
use lastwords_ring::os;
use rustix::process::geteuid;

use crate::session::session_region::SessionRegion;
use crate::session::{listener, shared};

/// `pid` of an entry that is being written.
const CLAIMING: u32 = u32::MAX;

/// The identity of a process. It distinguishes the process from another one that has the same id later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Process id in its own namespace.
    pub(crate) pid: u32,
    /// Start time in clock ticks since boot; 0 when unknown.
    pub(crate) start: u64,
    /// Inode of the process's pid namespace; 0 when unknown.
    pub(crate) pidns: u64,
}

/// The state of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    /// The process runs.
    Alive,
    /// The process is gone, or another process has its id now.
    Dead,
    /// The process is of another pid namespace, and it is not known here.
    Unknown,
}

impl Identity {
    /// Returns the identity of this process. Async-signal-safe.
    pub(crate) fn current() -> Self {
        let pid = std::process::id();
        Self { pid, start: os::start_time(pid), pidns: os::pid_namespace() }
    }

    /// Returns whether the process runs now.
    pub(crate) fn life(&self) -> Life {
        if self.pid == 0 {
            return Life::Dead;
        }
        if self.pidns != 0 && self.pidns != os::pid_namespace() {
            return life_elsewhere(self);
        }
        if os::is_process_alive(self.pid, self.start as u32) { Life::Alive } else { Life::Dead }
    }

    fn of(process: &Process) -> Option<Self> {
        let pid = process.pid.load(Acquire);
        let known = pid != 0 && pid != CLAIMING;
        known.then(|| Self { pid, start: process.start.load(Relaxed), pidns: process.pidns.load(Relaxed) })
    }
}

/// The first pid namespace, from which all processes are seen: PROC_PID_INIT_INO of include/linux/proc_ns.h.
const FIRST_NAMESPACE: u64 = 0xefff_fffc;

/// Looks for the process by its namespace and by the last of its ids, as /proc of an outer namespace shows both.
fn life_elsewhere(identity: &Identity) -> Life {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Life::Unknown };
    let names = entries.filter_map(Result::ok).filter_map(|entry| entry.file_name().into_string().ok());
    let mut all_seen = os::pid_namespace() == FIRST_NAMESPACE;
    for name in names.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit())) {
        match is_it(identity, &name) {
            Some(true) => return Life::Alive,
            Some(false) => {}
            None => all_seen = false,
        }
    }
    if all_seen { Life::Dead } else { Life::Unknown }
}

/// Returns true if /proc/NAME is the process; `None` if the entry belongs to this user but cannot be read.
fn is_it(identity: &Identity, name: &str) -> Option<bool> {
    use std::os::unix::fs::MetadataExt as _;
    let folder = format!("/proc/{name}");
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
    Some(!zombie && ids.split_whitespace().last()?.parse() == Ok(identity.pid))
}

/// Enters this process into the table. Returns false if the table is full of living processes. Async-signal-safe.
pub(crate) fn join(processes: &[Process]) -> bool {
    let me = Identity::current();
    if processes.iter().any(|process| Identity::of(process) == Some(me)) {
        return true;
    }
    let is_free = |process: &&Process| claim(process, 0);
    let dead = |process: &&Process| {
        let Some(identity) = Identity::of(process) else { return false };
        identity.life() == Life::Dead && claim(process, identity.pid)
    };
    let entry = processes.iter().find(is_free).or_else(|| processes.iter().find(dead));
    let Some(entry) = entry else { return false };
    entry.start.store(me.start, Relaxed);
    entry.pidns.store(me.pidns, Relaxed);
    entry.features.store(features_word(FEATURE_CHANNELS, me.pid, me.start), Relaxed);
    entry.pid.store(me.pid, Release);
    true
}

fn claim(process: &Process, from: u32) -> bool {
    process.pid.compare_exchange(from, CLAIMING, AcqRel, Relaxed).is_ok()
}

/// Removes this process from the table.
pub(crate) fn leave(processes: &[Process]) {
    let me = Identity::current();
    for process in processes.iter().filter(|process| Identity::of(process) == Some(me)) {
        process.pid.store(0, Release);
    }
}

/// Returns true if nobody has the session any more: no living process, and no dead one whose last words are in it. If
/// the process that created the session asks, children that died do not count.
pub(crate) fn is_left(view: &SessionRegion) -> bool {
    let (me, here) = (std::process::id(), os::pid_namespace());
    let info = &view.info;
    let in_charge = info.scope == SCOPE_PROCESS && (info.creator_pid, info.creator_pidns) == (me, here);
    // A session on the heap has no file: forked children have their own copy.
    let own_maps = maps_of("self");
    let file = file_of(&own_maps, view).filter(|(_, inode)| *inode != "0");
    let has_it = |process: &Identity| match process.life() {
        // The creator's entry stays if /proc does not show its start time.
        _ if in_charge && (process.pid, process.pidns) == (me, here) => false,
        Life::Dead => !in_charge,
        Life::Unknown => true,
        // A program started by `exec` has the id of the child that joined at the fork, but not its memory.
        Life::Alive => file.is_none_or(|file| maps(process, file)),
    };
    let stays = |file| (0..START_ROUNDS).all(|_| has_child(file));
    !file.is_some_and(stays) && !joined(view.processes()).iter().any(has_it)
}

/// Number of times that children are checked before they count as recording. A child that was just forked may be about
/// to execute another program.
const START_ROUNDS: u32 = 25;

/// Returns true, after a short wait, if a child of this process maps the file, whether or not it has joined yet.
fn has_child(file: MappedFile<'_>) -> bool {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().filter_map(Result::ok);
    let mut lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    let maps_it = |child: Identity| child.life() == Life::Alive && maps(&child, file);
    let child = |pid: &str| Some(Identity { pid: pid.parse().ok()?, start: 0, pidns: 0 });
    let has = lists.any(|list| list.split_whitespace().map_while(child).any(maps_it));
    if has {
        std::thread::sleep(Duration::from_millis(2));
    }
    has
}

/// Device and inode, as /proc writes them.
type MappedFile<'a> = (&'a str, &'a str);

fn maps_of(process: impl std::fmt::Display) -> String {
    std::fs::read_to_string(format!("/proc/{process}/maps")).unwrap_or_default()
}

/// Iterates over the mappings that /proc/PID/maps lists: addresses and file.
fn mappings(maps: &str) -> impl Iterator<Item = (Range<usize>, MappedFile<'_>)> {
    maps.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let (start, end) = words.next()?.split_once('-')?;
        let number = |digits| usize::from_str_radix(digits, 16).ok();
        Some((number(start)?..number(end)?, (words.nth(2)?, words.next()?)))
    })
}

/// Returns the file in which the session is mapped.
fn file_of<'a>(maps: &'a str, view: &SessionRegion) -> Option<MappedFile<'a>> {
    let at = view.mapping.as_ptr() as usize;
    mappings(maps).find(|(range, _)| range.contains(&at)).map(|(_, file)| file)
}

/// Returns true if a process maps the file, or if its mappings cannot be read.
fn maps(process: &Identity, file: MappedFile<'_>) -> bool {
    let here = process.pidns == 0 || process.pidns == os::pid_namespace();
    let maps = if here { maps_of(process.pid) } else { String::new() };
    maps.is_empty() || mappings(&maps).any(|(_, mapped)| mapped == file)
}

/// Returns all processes that joined and did not leave. Dead ones among them died in the session.
pub(crate) fn joined(processes: &[Process]) -> Vec<Identity> {
    processes.iter().filter_map(Identity::of).collect()
}

/// Returns a process that may record in the session, and cannot map channels that are created meanwhile: its version is
/// older.
pub(crate) fn without_channels(processes: &[Process]) -> Option<u32> {
    let lacks = |process: &&Process| {
        let Some(identity) = Identity::of(process) else { return false };
        let word = features_word(FEATURE_CHANNELS, identity.pid, identity.start);
        process.features.load(Relaxed) != word && identity.life() != Life::Dead
    };
    processes.iter().find(lacks).and_then(Identity::of).map(|identity| identity.pid)
}

/// Returns true if this process has joined and no other living process can be recording.
pub(crate) fn is_alone(processes: &[Process]) -> bool {
    let (me, joined) = (Identity::current(), joined(processes));
    joined.contains(&me) && joined.iter().all(|identity| *identity == me || identity.life() == Life::Dead)
}

/// Returns true if the process is this one, as its id shows, but has executed another program since it joined. Then it
/// maps the session only for this look.
pub(crate) fn was_executed_anew(process: &Identity, view: &SessionRegion) -> bool {
    if *process != Identity::current() {
        return false;
    }
    let (maps, at) = (maps_of("self"), view.mapping.as_ptr() as usize);
    let file = file_of(&maps, view);
    file.is_some() && mappings(&maps).filter(|(_, mapped)| Some(*mapped) == file).all(|(range, _)| range.contains(&at))
}

/// Returns true if a session is certainly of another boot than this one, by their ids.
pub(crate) fn is_other_boot(id: &[u8; 16], this: &[u8; 16]) -> bool {
    id != this && ![id, this].contains(&&[0; 16])
}

/// Returns the boot id of the machine; zeroes if /proc does not provide it.
pub(crate) fn boot_id() -> [u8; 16] {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    u128::from_str_radix(&text.trim().replace('-', ""), 16).unwrap_or(0).to_be_bytes()
}

/// In a forked child: joins the sessions of its parent. Async-signal-safe.
pub(crate) fn in_child() {
    for session in shared::all() {
        session.view().tell_namespace();
        join(session.view().processes());
    }
    listener::note_fork();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reused_pid_is_another_process() {
        let me = Identity::current();
        assert_eq!(me.life(), Life::Alive);
        assert_eq!(Identity { start: me.start + 1, ..me }.life(), Life::Dead);
        assert_eq!(Identity { pid: 0, ..me }.life(), Life::Dead);
    }

    #[test]
    fn the_table_takes_each_process_once_and_reuses_the_dead() {
        let table: Vec<Process> = (0..2)
            .map(|_| Process { pid: 0.into(), reserved: 0, start: 0.into(), pidns: 0.into(), features: 0.into() })
            .collect();
        assert!(join(&table) && join(&table));
        assert_eq!(joined(&table), [Identity::current()]);
        let me = Identity::current();
        table[1].pid.store(me.pid, Relaxed);
        table[1].start.store(me.start + 7, Relaxed);
        table[1].pidns.store(me.pidns, Relaxed);
        assert_eq!(joined(&table).len(), 2);
        assert!(is_alone(&table));
        table[0].start.store(me.start + 9, Relaxed);
        assert!(join(&table), "takes over an entry of the dead");
        leave(&table);
        assert_eq!(joined(&table).len(), 1);
    }
}

//! Processes of a session: who joined, who is alive, and what a forked child does.

use std::ops::Range;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::time::Duration;

use lastwords_abi::session::{Process, SCOPE_PROCESS};
use lastwords_ring::os;
use rustix::process::geteuid;

use crate::session::session_region::SessionRegion;
use crate::session::{listener, shared};

/// `pid` of an entry that is being written.
const CLAIMING: u32 = u32::MAX;

/// A process, so that another of the same id is not taken for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Process id in its own namespace.
    pub(crate) pid: u32,
    /// Start time, clock ticks since boot; 0 when unknown.
    pub(crate) start: u64,
    /// Inode of its pid namespace; 0 when unknown.
    pub(crate) pidns: u64,
}

/// Whether a process still runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    /// It runs.
    Alive,
    /// It is gone, or its id is another process's now.
    Dead,
    /// It is of another pid namespace, and nothing here tells.
    Unknown,
}

impl Identity {
    /// This process. Async-signal-safe.
    pub(crate) fn current() -> Self {
        let pid = std::process::id();
        Self { pid, start: os::start_time(pid), pidns: os::pid_namespace() }
    }

    /// Whether it runs now.
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

/// Whether /proc/NAME is the process; `None` when it is this user's and does not tell.
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
    // A zombie with other threads is a process of which only the first thread has ended.
    let has = |wanted: &str| status.lines().any(|line| line.starts_with(wanted));
    let zombie = has("State:\tZ") && status.lines().any(|line| line == "Threads:\t1");
    let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    Some(!zombie && ids.split_whitespace().last()?.parse() == Ok(identity.pid))
}

/// Enters this process; false when the table is full of the living. Async-signal-safe.
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
    entry.pid.store(me.pid, Release);
    true
}

fn claim(process: &Process, from: u32) -> bool {
    process.pid.compare_exchange(from, CLAIMING, AcqRel, Relaxed).is_ok()
}

/// Takes this process out.
pub(crate) fn leave(processes: &[Process]) {
    let me = Identity::current();
    for process in processes.iter().filter(|process| Identity::of(process) == Some(me)) {
        process.pid.store(0, Release);
    }
}

/// Whether nobody has the session any more: neither the living nor the dead, whose last words are in it. Children that died
/// before the process that made it are its own affair.
pub(crate) fn is_left(view: &SessionRegion) -> bool {
    let (me, here) = (std::process::id(), os::pid_namespace());
    let info = &view.info;
    let in_charge = info.scope == SCOPE_PROCESS && (info.creator_pid, info.creator_pidns) == (me, here);
    // None where it is on the heap: forked children have their own.
    let own_maps = maps_of("self");
    let file = file_of(&own_maps, view).filter(|(_, inode)| *inode != "0");
    let has_it = |process: &Identity| match process.life() {
        // Its entry stays where /proc did not tell its start time.
        _ if in_charge && (process.pid, process.pidns) == (me, here) => false,
        Life::Dead => !in_charge,
        Life::Unknown => true,
        // Programs that were executed have the id of the child that joined when it was forked, not its memory.
        Life::Alive => file.is_none_or(|file| maps(process, file)),
    };
    let stays = |file| (0..START_ROUNDS).all(|_| has_child(file));
    !file.is_some_and(stays) && !joined(view.processes()).iter().any(has_it)
}

/// How often children are looked at before they count as recording: one that was just forked may be about to execute another
/// program.
const START_ROUNDS: u32 = 25;

/// Whether a child of this process, joined or not yet, maps the file; if so, a little later.
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

/// Addresses and file of each mapping that /proc/PID/maps lists.
fn mappings(maps: &str) -> impl Iterator<Item = (Range<usize>, MappedFile<'_>)> {
    maps.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let (start, end) = words.next()?.split_once('-')?;
        let number = |digits| usize::from_str_radix(digits, 16).ok();
        Some((number(start)?..number(end)?, (words.nth(2)?, words.next()?)))
    })
}

/// The file in which the session is mapped.
fn file_of<'a>(maps: &'a str, view: &SessionRegion) -> Option<MappedFile<'a>> {
    let at = view.mapping.as_ptr() as usize;
    mappings(maps).find(|(range, _)| range.contains(&at)).map(|(_, file)| file)
}

/// Whether a process maps the file; one that does not tell does.
fn maps(process: &Identity, file: MappedFile<'_>) -> bool {
    let here = process.pidns == 0 || process.pidns == os::pid_namespace();
    let maps = if here { maps_of(process.pid) } else { String::new() };
    maps.is_empty() || mappings(&maps).any(|(_, mapped)| mapped == file)
}

/// All processes that joined and did not leave: the dead died in the session.
pub(crate) fn joined(processes: &[Process]) -> Vec<Identity> {
    processes.iter().filter_map(Identity::of).collect()
}

/// Returns true if this process has joined and no other living process can be recording.
pub(crate) fn is_alone(processes: &[Process]) -> bool {
    let (me, joined) = (Identity::current(), joined(processes));
    joined.contains(&me) && joined.iter().all(|identity| *identity == me || identity.life() == Life::Dead)
}

/// Whether a living process, as this one sees it, has executed another program since it joined: of this process that is known,
/// as it does not map the session but where it looks at it now.
pub(crate) fn was_executed_anew(process: &Identity, view: &SessionRegion) -> bool {
    if *process != Identity::current() {
        return false;
    }
    let (maps, at) = (maps_of("self"), view.mapping.as_ptr() as usize);
    let file = file_of(&maps, view);
    file.is_some() && mappings(&maps).filter(|(_, mapped)| Some(*mapped) == file).all(|(range, _)| range.contains(&at))
}

/// Whether a session is certainly of another boot than this one, by their ids.
pub(crate) fn is_other_boot(id: &[u8; 16], this: &[u8; 16]) -> bool {
    id != this && ![id, this].contains(&&[0; 16])
}

/// Boot id of the machine; zeroes where /proc does not tell.
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
            .map(|_| Process { pid: 0.into(), reserved: 0, start: 0.into(), pidns: 0.into(), reserved2: 0 })
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

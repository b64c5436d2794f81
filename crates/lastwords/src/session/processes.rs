//! The processes of a session: which have joined, which have it still, and what a forked child
//! does.

use std::ops::Range;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release};
use std::time::Duration;

use lastwords_abi::session::{
    FEATURE_CHANNELS, GUARD_DIED, Guard, MAX_PROCESSES, Process, SCOPE_PROCESS, features_word,
};
use lastwords_ring::os;

pub use crate::session::guard::is_possible as can_be_guarded;
use crate::session::liveness::CLAIMING;
pub use crate::session::liveness::{Evidence, Life};
use crate::session::liveness::{Identity, Table};
use crate::session::session_region::SessionRegion;
use crate::session::shared::SessionShared;
use crate::session::{listener, shared};

/// Enters this process into the table. Returns its index, or none if the table is full of living
/// processes. Async-signal-safe.
pub(crate) fn join(table: &Table<'_>) -> Option<usize> {
    let me = Identity::current();
    if let Some(index) = table.own() {
        // The process may have executed this program after another one that had the entry.
        let died = |guard: &&Guard| guard.word.load(Relaxed) & GUARD_DIED != 0;
        table.guard(index).filter(died).into_iter().for_each(|guard| guard.word.store(0, Relaxed));
        table.lock(index);
        return Some(index);
    }
    let take_free = |index: &usize| claim(&table.processes[*index], 0);
    let take_dead = |index: &usize| {
        let process = &table.processes[*index];
        let Some(identity) = Identity::from_entry(process) else { return false };
        table.judge_here(*index, &identity).0 == Life::Dead && claim(process, identity.pid)
    };
    let indices = || 0..table.processes.len().min(MAX_PROCESSES);
    let index = indices().find(take_free).or_else(|| indices().find(take_dead))?;
    if let Some(guard) = table.guard(index) {
        guard.word.store(0, Relaxed);
        guard.key.store(features_word(0, me.pid, me.start), Release);
    }
    let entry = &table.processes[index];
    entry.start.store(me.start, Relaxed);
    entry.pidns.store(me.pidns, Relaxed);
    entry.features.store(features_word(FEATURE_CHANNELS, me.pid, me.start), Relaxed);
    table.lock(index);
    entry.pid.store(me.pid, Release);
    Some(index)
}

fn claim(process: &Process, from: u32) -> bool {
    process.pid.compare_exchange(from, CLAIMING, AcqRel, Relaxed).is_ok()
}

/// Removes this process from the table of a session.
pub(crate) fn leave(session: &SessionShared) {
    let process = session.entry().and_then(|index| session.view().processes().get(index));
    if let Some(process) = process {
        // An entry of another process stays.
        let _ = process.pid.compare_exchange(std::process::id(), 0, Release, Relaxed);
    }
}

/// Returns true if nobody has the session any more: no living process, and no dead one whose last
/// words are in it. If the process that created the session asks, children that died do not count.
pub(crate) fn is_left(view: &SessionRegion) -> bool {
    let (me, info, table) = (Identity::current(), &view.info, view.table());
    let in_charge =
        info.scope == SCOPE_PROCESS && (info.creator_pid, info.creator_pidns) == (me.pid, me.pidns);
    // A session on the heap has no file: forked children have their own copy.
    let own_maps = maps_of("self");
    let file = file_of(&own_maps, view).filter(|(_, inode)| *inode != "0");
    let has_it = |(index, process): (usize, Identity)| match table.judge(index, &process) {
        // The creator's entry stays if /proc does not show its start time.
        _ if in_charge && (process.pid, process.pidns) == (me.pid, me.pidns) => false,
        (Life::Dead, _) => !in_charge,
        (Life::Unknown, _) | (Life::Alive, Evidence::Guard | Evidence::Lock) => true,
        // A program started by `exec` has the id of the child that joined at the fork, but not its
        // memory.
        (Life::Alive, _) => file.is_none_or(|file| maps(&process, file)),
    };
    let stays = |file| (0..START_ROUNDS).all(|_| has_child(file));
    !file.is_some_and(stays) && !table.joined().any(has_it)
}

/// Number of times that children are checked before they count as recording. A child that was just
/// forked may be about to execute another program.
const START_ROUNDS: u32 = 25;

/// Returns true, after a short wait, if a child of this process maps the file, whether or not it
/// has joined yet.
fn has_child(file: MappedFile<'_>) -> bool {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().filter_map(Result::ok);
    let mut lists =
        tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    let maps_it = |pid: u32| os::is_process_alive(pid, 0) && maps_file(pid, file);
    let child = |pid: &str| pid.parse().ok();
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
    !process.is_here() || maps_file(process.pid, file)
}

/// Returns true if the process of this id maps the file, or if its mappings cannot be read.
fn maps_file(pid: u32, file: MappedFile<'_>) -> bool {
    let maps = maps_of(pid);
    maps.is_empty() || mappings(&maps).any(|(_, mapped)| mapped == file)
}

/// Returns a process that may record in the session, and cannot map channels that are created
/// meanwhile: its version is older.
pub(crate) fn without_channels(table: Table<'_>) -> Option<u32> {
    let lacks = |(index, identity): &(usize, Identity)| {
        let word = features_word(FEATURE_CHANNELS, identity.pid, identity.start);
        let features = table.processes[*index].features.load(Relaxed);
        features != word && table.judge(*index, identity).0 != Life::Dead
    };
    table.joined().find(lacks).map(|(_, identity)| identity.pid)
}

/// Returns true if this process has joined and no other living process can be recording.
pub(crate) fn is_alone(table: Table<'_>) -> bool {
    let own = table.own();
    own.is_some()
        && table
            .joined()
            .all(|(index, of)| own == Some(index) || table.judge(index, &of).0 == Life::Dead)
}

/// Returns true if the process is this one, as its id shows, but has executed another program since
/// it joined. Then it maps the session only for this look.
pub(crate) fn was_executed_anew(process: &Identity, view: &SessionRegion) -> bool {
    if *process != Identity::current() {
        return false;
    }
    let (maps, at) = (maps_of("self"), view.mapping.as_ptr() as usize);
    let file = file_of(&maps, view);
    file.is_some()
        && mappings(&maps)
            .filter(|(_, mapped)| Some(*mapped) == file)
            .all(|(range, _)| range.contains(&at))
}

/// In a forked child: joins the sessions of its parent. Async-signal-safe.
pub(crate) fn in_child() {
    for session in shared::all() {
        session.view().tell_namespace();
        session.enter(join(&session.view().table()));
    }
    listener::note_fork();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_takes_each_process_once_and_reuses_the_dead() {
        let processes: Vec<_> = (0..2)
            .map(|_| Process {
                pid: 0.into(),
                reserved: 0,
                start: 0.into(),
                pidns: 0.into(),
                features: 0.into(),
            })
            .collect();
        let table = Table { processes: &processes, guards: None, mapping: None };
        let joined = || table.joined().map(|(_, identity)| identity).collect::<Vec<_>>();
        assert_eq!([join(&table), join(&table)], [Some(0), Some(0)]);
        let me = Identity::current();
        assert_eq!(joined(), [me]);
        processes[1].pid.store(me.pid, Relaxed);
        processes[1].start.store(me.start + 7, Relaxed);
        processes[1].pidns.store(me.pidns, Relaxed);
        assert_eq!(joined().len(), 2);
        assert!(is_alone(table));
        processes[0].start.store(me.start + 9, Relaxed);
        assert_eq!(join(&table), Some(0), "takes over an entry of the dead");
    }
}

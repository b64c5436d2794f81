//! Retention: ended sessions stay. When another session begins, the oldest ended sessions above the limits are removed.
//! The work at one start is bounded, whatever is in the folder; later starts do the rest.

use std::sync::atomic::Ordering::Acquire;

use lastwords_abi::session::{SCOPE_USER, SNAPSHOT_OFF};
use lastwords_ring::{ClockKind, os};

use super::dirs::{Base, Folder, name_of};
use super::ending::{self, Ending};
use super::error::Error;
use super::processes::{self, Life};
use super::regions::{is_persistent, look};
use super::session_region::SessionRegion;

/// How many ended sessions stay. A program's sessions are those of one session name. The oldest ones are removed first, but
/// those that a signal ended within the last hour last: a series of runs that ended well does not remove what a crash left.
///
/// Sessions in persistent memory are not counted, and never removed: their memory is used again only on request.
/// Sessions of other pid namespaces, and all sessions if there is no /proc, are removed only if they were ended in good
/// order, because otherwise it is not known that they ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Number of ended sessions of each name that stay, the newest ones. Default: 5.
    pub sessions: usize,
    /// Limit of the bytes of all ended sessions of the user in the folder of sessions. Default: 1 GiB.
    pub bytes: u64,
}

impl Retention {
    /// Nothing is removed.
    pub const ALL: Self = Self { sessions: usize::MAX, bytes: u64::MAX };
}

impl Default for Retention {
    fn default() -> Self {
        Self { sessions: 5, bytes: 1 << 30 }
    }
}

/// Largest number of sessions that one start examines.
const MOST_LOOKS: usize = 128;
/// Largest number of folders whose age one start reads.
const MOST_AGES: usize = 1024;
/// Largest number of sessions that one start removes.
const MOST_REMOVALS: usize = 8;

/// Time, in nanoseconds, for which a session that a signal ended goes after the others.
const CRASH_TIME: u64 = 3600 * 1_000_000_000;

/// The result of retention.
#[derive(Debug, Default)]
pub(crate) struct Removed {
    pub(crate) sessions: u32,
    pub(crate) bytes: u64,
    /// The first error of a removal.
    pub(crate) failed: Option<Error>,
}

impl Removed {
    /// Returns the notes for people.
    pub(crate) fn notes(&self) -> impl Iterator<Item = String> {
        let plural = if self.sessions == 1 { "" } else { "s" };
        let removed = || format!("retention removed {} ended session{plural}, {} bytes", self.sessions, self.bytes);
        let failed = self.failed.as_ref().map(|error| format!("retention could not remove a session: {error}"));
        (self.sessions > 0).then(removed).into_iter().chain(failed)
    }
}

/// An ended session.
struct Candidate {
    folder: String,
    /// CLOCK_REALTIME at its end, in nanoseconds.
    at: u64,
    /// A signal ended it.
    crashed: bool,
    bytes: u64,
    /// Another process may still join the session.
    joinable: bool,
}

/// Removes the sessions above the limits. `locked`: the caller holds the lock of the folder. The function never fails;
/// an error is part of the result.
pub(crate) fn apply(base: &Base, name: &str, retention: Retention, locked: bool) -> Removed {
    let mut removed = Removed::default();
    if retention == Retention::ALL {
        return removed;
    }
    // If several processes begin at a time, one of them does the work.
    let Some(_one) = base.try_lock_itself() else { return removed };
    let boot = processes::boot_id();
    let mut ended = candidates(base, name, &boot);
    sort(&mut ended, ClockKind::Realtime.now());
    for candidate in chosen(&ended, name, retention) {
        match remove(base, candidate, locked, &boot) {
            Ok(true) => {
                removed.sessions += 1;
                removed.bytes += candidate.bytes;
            }
            Ok(false) => {}
            Err(error) => drop(removed.failed.get_or_insert(error)),
        }
    }
    removed
}

/// Sorts ended sessions in the order in which they are removed. `now` is CLOCK_REALTIME in nanoseconds.
fn sort(ended: &mut [Candidate], now: u64) {
    let crashed_lately = |candidate: &Candidate| candidate.crashed && now.saturating_sub(candidate.at) < CRASH_TIME;
    ended.sort_by_key(|candidate| (crashed_lately(candidate), candidate.at));
}

/// Returns the sessions to remove, from ended sessions in the order of [`sort`]. `name` is that of the session that
/// begins.
fn chosen<'a>(ended: &'a [Candidate], name: &str, retention: Retention) -> Vec<&'a Candidate> {
    let is_own = |candidate: &&Candidate| name_of(&candidate.folder) == name;
    let mut excess = ended.iter().filter(is_own).count().saturating_sub(retention.sessions);
    let (mut chosen, rest): (Vec<_>, Vec<_>) = ended.iter().partition(|candidate| {
        let goes = excess > 0 && is_own(candidate);
        excess -= usize::from(goes);
        goes
    });
    let mut bytes = rest.iter().map(|candidate| candidate.bytes).fold(0, u64::saturating_add);
    for candidate in rest {
        if bytes <= retention.bytes {
            break;
        }
        bytes = bytes.saturating_sub(candidate.bytes);
        chosen.push(candidate);
    }
    chosen.truncate(MOST_REMOVALS);
    chosen
}

/// Returns the ended sessions among those that are examined: those of this name first, then the oldest folders.
fn candidates(base: &Base, name: &str, boot: &[u8; 16]) -> Vec<Candidate> {
    let (own, others): (Vec<_>, Vec<_>) =
        base.sessions().unwrap_or_default().into_iter().partition(|folder| name_of(folder) == name);
    let others = oldest(base, others, MOST_LOOKS / 2);
    let own = oldest(base, own, MOST_LOOKS - others.len());
    own.into_iter().chain(others).filter_map(|folder| candidate(base, folder, boot)).collect()
}

/// Returns the folders whose last change is oldest. Some others are added, because the oldest sessions may still live.
fn oldest(base: &Base, mut folders: Vec<String>, most: usize) -> Vec<String> {
    if folders.len() <= most {
        return folders;
    }
    // If there are too many folders, each process begins at another one.
    let start = std::process::id() as usize % folders.len();
    folders.rotate_left(start);
    folders.truncate(MOST_AGES);
    folders.sort_by_cached_key(|folder| base.modified(folder));
    let others = folders.split_off(most / 2);
    let step = others.len().div_ceil(most / 2).max(1);
    folders.extend(others.into_iter().skip(start % step).step_by(step));
    folders
}

fn candidate(base: &Base, folder: String, boot: &[u8; 16]) -> Option<Candidate> {
    let opened = base.folder(&folder).ok()?;
    let seen = |view: &SessionRegion| {
        let info = &view.info;
        let has_ended = !is_persistent(info.backend) && has_ended(view, boot);
        let joinable = info.scope == SCOPE_USER && view.control().finished.load(Acquire) == 0;
        has_ended.then(|| (ending::read(view), joinable))
    };
    let (ended, joinable) = look(&opened, seen).ok()??;
    let bytes = opened.bytes_on_disk();
    let crashed = matches!(ended.how, Ending::Signal(_));
    Some(Candidate { folder, at: ended.at, crashed, bytes, joinable })
}

/// Returns true if no process has the session. Unlike for a listing, processes of other pid namespaces are not searched
/// for and count as alive.
fn has_ended(view: &SessionRegion, boot: &[u8; 16]) -> bool {
    let here = os::pid_namespace();
    let is_gone = |process: &processes::Identity| {
        let is_known = here != 0 && process.pidns == here;
        is_known && (process.life() == Life::Dead || processes::was_executed_anew(process, view))
    };
    view.control().finished.load(Acquire) == 1
        || processes::is_other_boot(&view.info.boot_id, boot)
        || processes::joined(view.processes()).iter().all(is_gone)
}

/// Returns the bytes of a session's rings.
pub(crate) fn bytes(view: &SessionRegion) -> u64 {
    let halves = if view.control().snapshot.load(Acquire) == SNAPSHOT_OFF { 1 } else { 2 };
    let of = |(_, c): (u32, &lastwords_abi::session::Channel)| {
        u64::from(c.streams).saturating_mul(u64::from(c.sub_buffers)).saturating_mul(c.sub_buffer_size)
    };
    view.channels().map(of).fold(0, u64::saturating_add).saturating_mul(halves)
}

/// Removes the session, unless a process has it again, or another process removed it meanwhile.
fn remove(base: &Base, candidate: &Candidate, locked: bool, boot: &[u8; 16]) -> Result<bool, Error> {
    // While the folder is locked, no process joins a session.
    let lock = (candidate.joinable && !locked).then(|| base.try_lock());
    if matches!(lock, Some(None)) {
        return Ok(false);
    }
    let has_ended = |folder: &Folder| look(folder, |view| has_ended(view, boot)).unwrap_or(false);
    let folder = base.folder(&candidate.folder).ok().filter(has_ended);
    folder.map_or(Ok(false), |folder| folder.remove().map(|()| true))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::Session;

    #[test]
    fn what_a_signal_ended_lately_goes_last() {
        const MINUTE: u64 = 60 * 1_000_000_000;
        let now = 1000 * MINUTE;
        let candidate = |minutes: u64, crashed: bool| Candidate {
            folder: format!("app-{minutes}"),
            at: now - minutes * MINUTE,
            crashed,
            bytes: 1,
            joinable: false,
        };
        let mut ended = [candidate(70, true), candidate(50, true), candidate(40, false), candidate(5, false)];
        sort(&mut ended, now);
        let retention = Retention { sessions: 1, bytes: 1 << 30 };
        let gone: Vec<&str> = chosen(&ended, "app", retention).iter().map(|c| c.folder.as_str()).collect();
        assert_eq!(gone, ["app-70", "app-40", "app-5"]);
        // The limits hold all the same.
        assert_eq!(chosen(&ended, "app", Retention { sessions: 0, bytes: 0 }).len(), 4);
    }

    #[test]
    fn a_session_lives_though_no_boot_is_known() {
        let dir = tempfile::tempdir().expect("a folder");
        let session = Session::builder("no-boot").dir(dir.path()).listen(false).start().expect("it starts");
        let folder = Folder::open(session.folder().expect("a folder")).expect("it opens");
        let over = |boot: [u8; 16]| look(&folder, |view| has_ended(view, &boot)).expect("readable");
        assert!(!over(processes::boot_id()), "it is of this boot");
        assert!(!over([0; 16]), "/proc does not tell which boot this is");
        assert!(over([7; 16]), "its boot is over");
        session.remove();
    }
}

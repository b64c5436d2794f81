//! Retention: a session that ended stays, and when another begins the oldest of the ended sessions are removed that are more
//! than asked for. The work of one start is bounded, whatever lies in the folder; what is left is done by later starts.

use std::sync::atomic::Ordering::Acquire;

use lastwords_abi::session::{SCOPE_USER, SNAPSHOT_OFF};
use lastwords_ring::os;

use super::dirs::{Base, Folder, name_of};
use super::ending;
use super::error::Error;
use super::processes::{self, Life};
use super::regions::{is_persistent, look};
use super::session_region::SessionRegion;

/// How many ended sessions stay. A program's sessions are those of one session name.
///
/// Sessions in persistent memory are not counted, and never removed: their place is used again on request only. Sessions of
/// other pid namespaces, and all where there is no /proc, are removed only where they were ended in good order, as nothing else
/// tells that they ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Ended sessions of each name, the newest. Default: 5.
    pub sessions: usize,
    /// Bytes of all ended sessions of the user in the folder of sessions. Default: 1 GiB.
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

/// Most sessions that one start looks into.
const MOST_LOOKS: usize = 128;
/// Most folders whose age one start asks for.
const MOST_AGES: usize = 1024;
/// Most sessions that one start removes.
const MOST_REMOVALS: usize = 8;

/// What was removed.
#[derive(Debug, Default)]
pub(crate) struct Removed {
    pub(crate) sessions: u32,
    pub(crate) bytes: u64,
    /// The first that could not be removed.
    pub(crate) failed: Option<Error>,
}

impl Removed {
    /// For people.
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
    /// CLOCK_REALTIME at its end, ns.
    at: u64,
    bytes: u64,
    /// Another process may join it yet.
    joinable: bool,
}

/// Removes what is too much. `locked`: the caller holds the lock of the folder. Never fails: the reason is part of what is
/// returned.
pub(crate) fn apply(base: &Base, name: &str, retention: Retention, locked: bool) -> Removed {
    let mut removed = Removed::default();
    if retention == Retention::ALL {
        return removed;
    }
    // Of several processes that begin at a time one does the work.
    let Some(_one) = base.try_lock_itself() else { return removed };
    let boot = processes::boot_id();
    let mut ended = candidates(base, name, &boot);
    ended.sort_by_key(|candidate| candidate.at);
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

/// Those to remove, of ended sessions in the order of their ends; `name` is that of the session that begins.
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

/// The ended sessions among those that are looked into: of this name first, then the oldest folders.
fn candidates(base: &Base, name: &str, boot: &[u8; 16]) -> Vec<Candidate> {
    let (own, others): (Vec<_>, Vec<_>) =
        base.sessions().unwrap_or_default().into_iter().partition(|folder| name_of(folder) == name);
    let others = oldest(base, others, MOST_LOOKS / 2);
    let own = oldest(base, own, MOST_LOOKS - others.len());
    own.into_iter().chain(others).filter_map(|folder| candidate(base, folder, boot)).collect()
}

/// The folders that were changed last the longest ago, and, as living sessions may be the oldest, some of the others.
fn oldest(base: &Base, mut folders: Vec<String>, most: usize) -> Vec<String> {
    if folders.len() <= most {
        return folders;
    }
    // Another part of too many each time.
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
        has_ended.then(|| (ending::read(view).at, bytes(view), joinable))
    };
    let (at, bytes, joinable) = look(&opened, seen).ok()??;
    Some(Candidate { folder, at, bytes, joinable })
}

/// Whether no process has the session. Unlike for a listing, nothing is searched for: processes of other pid namespaces live.
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

/// Bytes of a session's rings.
pub(crate) fn bytes(view: &SessionRegion) -> u64 {
    let halves = if view.control().snapshot.load(Acquire) == SNAPSHOT_OFF { 1 } else { 2 };
    let of = |(_, c): (u32, &lastwords_abi::session::Channel)| {
        u64::from(c.streams).saturating_mul(u64::from(c.sub_buffers)).saturating_mul(c.sub_buffer_size)
    };
    view.channels().map(of).fold(0, u64::saturating_add).saturating_mul(halves)
}

/// Removes it, unless somebody has it again, or another removed it meanwhile.
fn remove(base: &Base, candidate: &Candidate, locked: bool, boot: &[u8; 16]) -> Result<bool, Error> {
    // While the folder is locked nobody joins a session.
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

//! Retention: ended sessions stay. When another session begins, the oldest ended sessions above the
//! limits are removed. The work at one start is bounded, whatever is in the folder; later starts do
//! the rest.
//!
//! A start lists the folder and the age of each session's folder. It looks into the sessions of its
//! own name, and adds the bytes that the files of all sessions take. Only if the sum is above the
//! limit does it look into the others.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use lastwords_abi::session::{SCOPE_USER, SNAPSHOT_OFF};
use lastwords_ring::ClockKind;

use super::backends::is_persistent;
use super::dirs::{Base, Folder};
use super::ending::{self, Ended, Ending};
use super::error::Error;
use super::liveness::{self, Life};
use super::processes;
use super::regions::look;
use super::session_region::SessionRegion;
use lastwords_folders::name_of;

/// How many ended sessions stay. A program's sessions are those of one session name. The oldest
/// ones are removed first, but those that ended by a death (a signal, a panic, a kill) within the
/// last hour last: a series of runs that ended well does not remove what a crash left. When deaths
/// follow each other within ten minutes, as in a crash loop, the first of them stays beside the
/// newest ones.
///
/// Sessions in persistent memory are not counted, and never removed: their memory is used again
/// only on request. A session whose processes may live is not counted. If nothing shows whether
/// they live (they have no thread of the session, and their pid namespace is not seen), the session
/// counts as ended a minute after its last sign of life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Number of ended sessions of each name that stay beside the one that begins. Default: 5.
    pub sessions: usize,
    /// Limit of the bytes that the files of all ended sessions of the user in the folder of
    /// sessions take. Default: 1 GiB.
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

/// Largest number of ended sessions of all names that stay. Also the largest number of sessions
/// whose bytes one start adds.
const MOST_SESSIONS: usize = 1024;
/// Largest number of sessions of its own name, and of the oldest ones above [`MOST_SESSIONS`], into
/// which one start looks.
const MOST_LOOKS: usize = 256;
/// Largest number of folders whose age one start reads.
const MOST_AGES: usize = 8192;
/// Largest number of sessions that one start removes.
const MOST_REMOVALS: usize = 256;

const SECOND: u64 = 1_000_000_000;
/// Time, in nanoseconds, for which a session that a death ended is removed after the others.
const CRASH_TIME: u64 = 3600 * SECOND;
/// Longest time, in nanoseconds, from one death to the next of the same burst. Supervisors restart
/// a program that crashes again and again within five minutes.
const BURST_GAP: u64 = 600 * SECOND;
/// Time without a sign of life, in nanoseconds, after which a session counts as ended if nothing
/// shows whether its processes live. Each second shows that a process with a thread of the session
/// lives.
const SILENT: u64 = 60 * SECOND;

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
        let removed = || {
            format!(
                "retention removed {} ended session{plural}, {} bytes",
                self.sessions, self.bytes
            )
        };
        let failed = self
            .failed
            .as_ref()
            .map(|error| format!("retention could not remove a session: {error}"));
        (self.sessions > 0).then(removed).into_iter().chain(failed)
    }
}

/// An ended session.
#[derive(Debug)]
struct Candidate {
    folder: String,
    /// CLOCK_REALTIME at its end, in nanoseconds.
    at: u64,
    /// A death ended it.
    died: bool,
    /// End of the last death of the burst of which this session is known to be the first; 0 if
    /// none is known.
    burst: u64,
    /// It is the first of a burst of deaths.
    is_first: bool,
    bytes: u64,
    /// Another process may still join the session.
    joinable: bool,
}

/// Removes the sessions above the limits. `locked`: the caller holds the lock of the folder. The
/// function never fails; an error is part of the result.
pub(crate) fn apply(base: &Base, name: &str, retention: Retention, locked: bool) -> Removed {
    let mut removed = Removed::default();
    if retention == Retention::ALL {
        return removed;
    }
    // If several processes begin at a time, one of them does the work.
    let Some(_one) = base.try_lock_itself() else { return removed };
    let now = Now { boot: liveness::boot_id(), realtime: ClockKind::Realtime.now() };
    let mut ended = candidates(base, name, retention.bytes, &now);
    mark_firsts(&mut ended);
    sort(&mut ended, now.realtime);
    let chosen = chosen(&ended, name, retention);
    keep_bursts(base, &ended, &chosen);
    for candidate in chosen {
        match remove(base, candidate, locked, &now) {
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

/// The boot and the time of this start.
struct Now {
    boot: [u8; 16],
    /// CLOCK_REALTIME in nanoseconds.
    realtime: u64,
}

/// Finds the first death of each burst, by name, and until when its burst lasts.
fn mark_firsts(ended: &mut [Candidate]) {
    ended.sort_by_key(|candidate| candidate.at);
    let mut firsts: BTreeMap<String, (usize, u64)> = BTreeMap::new();
    for index in 0..ended.len() {
        let Candidate { folder, at, died: true, burst, .. } = &ended[index] else { continue };
        let until = *at.max(burst);
        let (first, last) = firsts.entry(name_of(folder).to_owned()).or_insert((index, until));
        if at.saturating_sub(*last) > BURST_GAP {
            // Another burst begins. Only the newest one has a first death that stays.
            ended[std::mem::replace(first, index)].is_first = false;
        }
        *last = until.max(*last);
        let (first, last) = (*first, *last);
        ended[first].burst = last;
        ended[first].is_first = last > ended[first].at;
    }
}

/// Sorts ended sessions in the order in which they are removed. `now` is CLOCK_REALTIME in
/// nanoseconds.
fn sort(ended: &mut [Candidate], now: u64) {
    let lately = |at: u64| now.saturating_sub(at) < CRASH_TIME;
    ended.sort_by_key(|candidate| {
        let rank = match candidate {
            Candidate { is_first: true, burst, .. } if lately(*burst) => 2,
            Candidate { died: true, at, .. } if lately(*at) => 1,
            _ => 0,
        };
        (rank, candidate.at)
    });
}

/// Returns the sessions to remove, from ended sessions in the order of [`sort`]. `name` is that of
/// the session that begins.
fn chosen<'a>(ended: &'a [Candidate], name: &str, retention: Retention) -> Vec<&'a Candidate> {
    let is_own = |candidate: &&Candidate| name_of(&candidate.folder) == name;
    let mut excess = ended.iter().filter(is_own).count().saturating_sub(retention.sessions);
    let (mut chosen, rest): (Vec<_>, Vec<_>) = ended.iter().partition(|candidate| {
        let goes = excess > 0 && is_own(candidate);
        excess -= usize::from(goes);
        goes
    });
    let mut bytes = rest.iter().map(|candidate| candidate.bytes).fold(0, u64::saturating_add);
    for (left, candidate) in (1..=rest.len()).rev().zip(rest) {
        if bytes <= retention.bytes && left <= MOST_SESSIONS {
            break;
        }
        bytes = bytes.saturating_sub(candidate.bytes);
        chosen.push(candidate);
    }
    chosen.truncate(MOST_REMOVALS);
    chosen
}

/// Notes in the first session of a burst until when the burst lasts, if sessions of its name are
/// removed: later starts do not see the deaths between it and the newest ones.
fn keep_bursts(base: &Base, ended: &[Candidate], chosen: &[&Candidate]) {
    let loses = |first: &&Candidate| {
        chosen.iter().any(|gone| name_of(&gone.folder) == name_of(&first.folder))
    };
    for first in ended.iter().filter(|candidate| candidate.is_first).filter(loses) {
        let note = |view: &SessionRegion| view.control().burst.fetch_max(first.burst, Relaxed);
        // If it is removed too, or cannot be written, the next deaths begin a burst of their own.
        drop(base.folder(&first.folder).and_then(|folder| look(&folder, note)));
    }
}

/// Returns the ended sessions of this name, and those of all names if the sessions take more than
/// the limit.
fn candidates(base: &Base, name: &str, limit: u64, now: &Now) -> Vec<Candidate> {
    let mut folders = newest_first(base);
    let oldest = folders.split_off(folders.len().min(MOST_SESSIONS));
    let sized: Vec<(String, u64)> =
        folders.into_iter().map(|folder| with_bytes(base, folder)).collect();
    let is_above =
        sized.iter().map(|(_, bytes)| bytes).fold(0u64, |sum, bytes| sum.saturating_add(*bytes))
            > limit;
    let above_number = oldest
        .into_iter()
        .rev()
        .take(MOST_LOOKS)
        .map(|folder| with_bytes(base, folder))
        .collect::<Vec<_>>();
    let mut own = 0;
    let is_wanted = |(folder, _): &(String, u64)| {
        let is_own = name_of(folder) == name;
        own += usize::from(is_own);
        is_above || !above_number.is_empty() || (is_own && own <= MOST_LOOKS)
    };
    let wanted: Vec<_> = sized.into_iter().filter(is_wanted).collect();
    let all = wanted.into_iter().chain(above_number);
    all.filter_map(|(folder, bytes)| candidate(base, folder, bytes, now)).collect()
}

/// Returns the folders of sessions, the last changed first.
fn newest_first(base: &Base) -> Vec<String> {
    let mut folders = base.sessions().unwrap_or_default();
    if folders.len() > MOST_AGES {
        // If there are too many folders, each process begins at another one.
        let start = std::process::id() as usize % folders.len();
        folders.rotate_left(start);
        folders.truncate(MOST_AGES);
    }
    folders.sort_by_cached_key(|folder| std::cmp::Reverse(base.modified(folder)));
    folders
}

/// Adds the bytes that the session's files take.
fn with_bytes(base: &Base, folder: String) -> (String, u64) {
    let bytes = base.folder(&folder).map_or(0, |folder| folder.bytes_on_disk());
    (folder, bytes)
}

fn candidate(base: &Base, folder: String, bytes: u64, now: &Now) -> Option<Candidate> {
    let opened = base.folder(&folder).ok()?;
    let seen = |view: &SessionRegion| {
        let info = &view.info;
        let joinable = info.scope == SCOPE_USER && view.control().finished.load(Acquire) == 0;
        let counts = !is_persistent(info.backend) && has_ended(view, now);
        counts.then(|| (ending::read(view), joinable, view.control().burst.load(Relaxed)))
    };
    let (Ended { at, how, .. }, joinable, burst) = look(&opened, seen).ok()??;
    let died = matches!(how, Ending::Signal(_) | Ending::Panic | Ending::Killed);
    Some(Candidate { folder, at, died, burst, is_first: false, bytes, joinable })
}

/// Returns true if no process has the session, or if nothing shows that one has it and the session
/// is silent. Unlike for a listing, processes of other pid namespaces are not searched for.
fn has_ended(view: &SessionRegion, now: &Now) -> bool {
    if view.control().finished.load(Acquire) == 1
        || liveness::is_other_boot(&view.info.boot_id, &now.boot)
    {
        return true;
    }
    let table = view.table();
    let life =
        |(index, process): (usize, liveness::Identity)| match table.judge_here(index, &process).0 {
            Life::Alive if processes::was_executed_anew(&process, view) => Life::Dead,
            life => life,
        };
    let lives: Vec<Life> = table.joined().map(life).collect();
    let is_silent = || now.realtime.saturating_sub(ending::read(view).at) > SILENT;
    !lives.contains(&Life::Alive) && (!lives.contains(&Life::Unknown) || is_silent())
}

/// Returns the bytes of a session's rings.
pub fn bytes(view: &SessionRegion) -> u64 {
    let halves = if view.control().snapshot.load(Acquire) == SNAPSHOT_OFF { 1 } else { 2 };
    let of = |(_, c): (u32, &lastwords_abi::session::Channel)| {
        u64::from(c.streams)
            .saturating_mul(u64::from(c.sub_buffers))
            .saturating_mul(c.sub_buffer_size)
    };
    view.channels().map(of).fold(0, u64::saturating_add).saturating_mul(halves)
}

/// Removes the session, unless a process has it again, or another process removed it meanwhile.
fn remove(base: &Base, candidate: &Candidate, locked: bool, now: &Now) -> Result<bool, Error> {
    // While the folder is locked, no process joins a session.
    let lock = (candidate.joinable && !locked).then(|| base.try_lock());
    if matches!(lock, Some(None)) {
        return Ok(false);
    }
    let has_ended = |folder: &Folder| look(folder, |view| has_ended(view, now)).unwrap_or(false);
    let folder = base.folder(&candidate.folder).ok().filter(has_ended);
    folder.map_or(Ok(false), |folder| folder.remove().map(|()| true))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handle::Session;

    const MINUTE: u64 = 60 * SECOND;
    const NOW: u64 = 1000 * MINUTE;

    fn candidate(minutes: u64, died: bool) -> Candidate {
        let folder = format!("app-{minutes}");
        Candidate {
            folder,
            at: NOW - minutes * MINUTE,
            died,
            burst: 0,
            is_first: false,
            bytes: 1,
            joinable: false,
        }
    }

    /// Returns the sessions that a start of `app` removes, in order.
    fn gone(mut ended: Vec<Candidate>, retention: Retention) -> Vec<String> {
        mark_firsts(&mut ended);
        sort(&mut ended, NOW);
        chosen(&ended, "app", retention).iter().map(|c| c.folder.clone()).collect()
    }

    #[test]
    fn what_a_death_ended_lately_goes_last() {
        let ended = || {
            vec![
                candidate(70, true),
                candidate(50, true),
                candidate(40, false),
                candidate(5, false),
            ]
        };
        assert_eq!(
            gone(ended(), Retention { sessions: 1, bytes: 1 << 30 }),
            ["app-70", "app-40", "app-5"]
        );
        // The limits hold all the same.
        assert_eq!(gone(ended(), Retention { sessions: 0, bytes: 0 }).len(), 4);
        assert_eq!(gone(ended(), Retention { sessions: 4, bytes: 1 }).len(), 3);
    }

    #[test]
    fn the_first_death_of_a_burst_stays_beside_the_newest() {
        let deaths = || {
            [25, 19, 18, 17, 16, 9, 8].map(|minutes| candidate(minutes, true)).into_iter().collect()
        };
        let retention = Retention { sessions: 4, bytes: 1 << 30 };
        assert_eq!(gone(deaths(), retention), ["app-19", "app-18", "app-17"]);
        // The deaths in between are gone, but the first session knows until when its burst lasts.
        let later = |burst| {
            let first = Candidate { burst, ..candidate(35, true) };
            vec![
                first,
                candidate(9, true),
                candidate(8, true),
                candidate(7, true),
                candidate(6, true),
            ]
        };
        assert_eq!(gone(later(NOW - 16 * MINUTE), retention), ["app-9"]);
        assert_eq!(gone(later(NOW - 30 * MINUTE), retention), ["app-35"], "it is of another burst");
    }

    #[test]
    fn a_session_lives_though_no_boot_is_known() {
        let dir = tempfile::tempdir().expect("a folder");
        let session =
            Session::builder("no-boot").dir(dir.path()).listen(false).start().expect("it starts");
        let folder = Folder::open(session.folder().expect("a folder")).expect("it opens");
        let realtime = ClockKind::Realtime.now();
        let over = |boot| {
            look(&folder, |view| has_ended(view, &Now { boot, realtime })).expect("readable")
        };
        assert!(!over(liveness::boot_id()), "it is of this boot");
        assert!(!over([0; 16]), "/proc does not tell which boot this is");
        assert!(over([7; 16]), "its boot is over");
        session.remove();
    }
}

//! The parts of conditions that rules do not have: a window, a limit, a folder, a second event. Two
//! tables beside the rules of the conditions hold them, and change together with these rules.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::atomic::fence;

use lastwords_abi::sync::AtomicU64;
use lastwords_abi::triggers::{
    CONDITION_ALWAYS, CONDITION_LATENCY, Conditions, EXTRA_WORDS, Extra, FIRES_UNLIMITED,
    MAX_CONDITIONS,
};

use super::action::Action;
use super::counter::{Counter, TAG_SHIFT};
use super::limits::is_within_limit;
use super::rules::PATTERN_LEN;
use super::session_region::{SessionRegion, locked};
use super::text::until_nul;

/// Largest size of the folder of a condition, in bytes.
pub(crate) const FOLDER_LEN: usize = EXTRA_WORDS * 8;

/// The words of an [`Extra`], as they were read or will be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Own {
    /// Nanoseconds before and after; none: the session's window.
    pub(crate) window: Option<(u64, u64)>,
    /// Number and nanoseconds of the condition's limit; a period of 0: none.
    pub(crate) limit: (u32, u64),
    /// Nanoseconds that a latency must be above; none: the condition is no latency.
    pub(crate) above: Option<u64>,
    pub(crate) then: [u64; PATTERN_LEN / 8],
    pub(crate) on: [u64; EXTRA_WORDS],
    /// The folder of the snapshot, or the glob of the events that are enabled or disabled.
    pub(crate) folder: [u64; EXTRA_WORDS],
    /// One of `TRIGGER_` that a rule has no word for; 0: the rule has it.
    pub(crate) action: u32,
    pub(crate) always: bool,
    /// How often the condition still fires; none: without limit.
    pub(crate) times: Option<u64>,
    /// The counter of `times`; none yet for a new condition.
    pub(crate) counter: Option<Counter>,
}

impl Default for Own {
    fn default() -> Self {
        let (on, folder) = ([0; EXTRA_WORDS], [0; EXTRA_WORDS]);
        let then = [0; PATTERN_LEN / 8];
        let (action, always, times, counter) = (0, false, None, None);
        Self {
            window: None,
            limit: (0, 0),
            above: None,
            then,
            on,
            folder,
            action,
            always,
            times,
            counter,
        }
    }
}

/// Returns the words of some bytes, NUL-padded. The caller checked that they fit.
pub(crate) fn words_of<const N: usize>(bytes: &[u8]) -> [u64; N] {
    let mut bytes = bytes.iter().copied();
    std::array::from_fn(|_| u64::from_ne_bytes(std::array::from_fn(|_| bytes.next().unwrap_or(0))))
}

/// Returns the bytes of some words, up to the first NUL.
pub(crate) fn bytes_of(words: &[u64]) -> Vec<u8> {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    until_nul(&bytes).to_vec()
}

fn load_all<const N: usize>(words: &[AtomicU64; N]) -> [u64; N] {
    std::array::from_fn(|at| words[at].load(Relaxed))
}

/// Stores words from the begin of these places on.
pub(crate) fn store_all(to: &[AtomicU64], words: &[u64]) {
    to.iter().zip(words).for_each(|(to, word)| to.store(*word, Relaxed));
}

fn window(extra: &Extra) -> Option<(u64, u64)> {
    let (before, after) = (extra.before.load(Relaxed), extra.after.load(Relaxed));
    (before != u64::MAX).then_some((before, after))
}

fn limit(extra: &Extra) -> (u32, u64) {
    (extra.most.load(Relaxed), extra.period.load(Relaxed))
}

impl Own {
    /// Reads the words. The caller checks that the table did not change meanwhile, or holds the
    /// lock.
    pub(crate) fn load(area: &Conditions, extra: &Extra) -> Self {
        let flags = extra.flags.load(Relaxed);
        let is_latency = flags & CONDITION_LATENCY != 0;
        let counter = Counter::from_extra(extra);
        Self {
            window: window(extra),
            limit: limit(extra),
            above: is_latency.then(|| extra.above.load(Relaxed)),
            then: load_all(&extra.then),
            on: load_all(&extra.on),
            folder: load_all(&extra.folder),
            action: flags >> 8 & 0xff,
            always: flags & CONDITION_ALWAYS != 0,
            times: counter.and_then(|counter| counter.left(area)),
            counter,
        }
    }

    fn store(&self, extra: &Extra) {
        let (before, after) = self.window.unwrap_or((u64::MAX, u64::MAX));
        extra.before.store(before, Relaxed);
        extra.after.store(after, Relaxed);
        extra.most.store(self.limit.0, Relaxed);
        extra.period.store(self.limit.1, Relaxed);
        let latency = if self.above.is_some() { CONDITION_LATENCY } else { 0 };
        let always = if self.always { CONDITION_ALWAYS } else { 0 };
        extra.flags.store(latency | always | self.action << 8, Relaxed);
        extra.counter.store(self.counter.map_or(0, Counter::word), Relaxed);
        extra.above.store(self.above.unwrap_or(0), Relaxed);
        store_all(&extra.then, &self.then);
        store_all(&extra.on, &self.on);
        store_all(&extra.folder, &self.folder);
    }
}

/// Returns the words at a place of the table that is current in a turn.
pub(crate) fn at(area: &Conditions, turn: u32, place: usize) -> Option<&Extra> {
    area.extras[(turn & 1) as usize].get(place)
}

/// Writes the table that is not current, and empties what counts for the current one. The caller
/// holds the lock, or nobody else sees the session yet; it publishes the table by writing the
/// rules.
pub(crate) fn write(area: &Conditions, owns: &[Own]) {
    let next = area.rules.turn.load(Relaxed).wrapping_add(1);
    // This pairs with the fence in `rules::at_one_moment`: readers of this table notice the change.
    fence(Release);
    area.extras[(next & 1) as usize].iter().zip(owns).for_each(|(extra, own)| own.store(extra));
    let counters = area
        .hits
        .iter()
        .chain(&area.dues)
        .chain(area.starts.iter().flatten().map(|start| &start.key));
    counters.for_each(|counter| counter.store(0, Relaxed));
}

/// A condition that an event fulfils, and what its trigger needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fired {
    pub(crate) action: Action,
    /// Nanoseconds before and after; none: the session's window.
    pub(crate) window: Option<(u64, u64)>,
    limit: (u32, u64),
    place: usize,
    /// The turn of the conditions, if the condition has a folder. Else 0, so that a condition that
    /// stays the same in a new turn needs no new memory.
    turn: u32,
    has_folder: bool,
    pub(crate) counter: Option<Counter>,
}

impl Fired {
    /// Returns the condition at a place of the table that is current in a turn.
    pub(crate) fn new(extra: &Extra, action: Action, place: usize, turn: u32) -> Self {
        let has_folder = action == Action::Snapshot && extra.folder[0].load(Relaxed) != 0;
        let turn = if has_folder { turn } else { 0 };
        let counter = Counter::from_extra(extra);
        Self {
            action,
            window: window(extra),
            limit: limit(extra),
            place,
            turn,
            has_folder,
            counter,
        }
    }

    /// Takes one of the places of the condition's limit, if there is one. Async-signal-safe.
    pub(crate) fn is_within_limit(&self, view: &SessionRegion, now: u64) -> bool {
        let used_to = view.conditions().dues.get(self.place);
        self.limit.1 == 0 || used_to.is_none_or(|used_to| is_within_limit(self.limit, used_to, now))
    }

    /// Returns the place where the snapshot is saved, as
    /// [`lastwords_abi::triggers::Pending::target`].
    pub(crate) fn target(&self) -> u64 {
        if self.has_folder { u64::from(self.turn) << 32 | (self.place as u64 + 1) } else { 0 }
    }
}

/// Returns the folder of a target; none if the conditions changed twice since, so that it is not
/// known any more.
pub(crate) fn folder(view: &SessionRegion, target: u64) -> Option<PathBuf> {
    let area = view.conditions();
    let (turn, place) = ((target >> 32) as u32, (target as u32).checked_sub(1)?);
    let folder = locked(&area.rules.lock, &view.control().namespaces, || {
        // The holder of the lock is the only writer. The table of the turn before the current one
        // is as it was then.
        let is_known = area.rules.turn.load(Relaxed).wrapping_sub(turn) <= 1;
        is_known
            .then(|| Some(bytes_of(&load_all(&at(area, turn, place as usize)?.folder))))
            .flatten()
    });
    folder
        .ok()?
        .filter(|folder| !folder.is_empty())
        .map(|folder| PathBuf::from(OsStr::from_bytes(&folder)))
}

/// Gives counters to the conditions that need one and have none. The caller holds the lock, or
/// nobody else sees the session yet.
pub(crate) fn give_counters(area: &Conditions, owns: &mut [Own]) {
    for at in 0..owns.len() {
        if owns[at].counter.is_some() || owns[at].times.is_none() && owns[at].action == 0 {
            continue;
        }
        let is_free = |place: &usize| {
            owns.iter().flat_map(|own| own.counter).all(|counter| counter.place != *place)
        };
        // There are as many counters as conditions.
        let Some(place) = (0..MAX_CONDITIONS).find(is_free) else { return };
        let tag = ((area.firings[place].load(Relaxed) >> TAG_SHIFT) as u16).wrapping_add(1);
        let counter = Counter { place, tag };
        area.orders[place].store(0, Relaxed);
        // Release: a thread that sees the new tag sees no order of the condition before.
        area.firings[place]
            .store(counter.order(owns[at].times.unwrap_or(FIRES_UNLIMITED)), Release);
        owns[at].counter = Some(counter);
    }
}

//! Windows of triggers: how much ahead of a trigger and behind it a saved snapshot has.
//!
//! A trigger whose window ends later than the trigger, or that cannot take its snapshot itself,
//! waits in an entry of [`Triggers::pending`]. The session's thread takes one snapshot for all that
//! wait, when the last of their windows ends. The snapshot's window begins where the first of
//! theirs begins. Readers of the saved snapshot show the events of the window alone; the rings are
//! copied as they are.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::time::Duration;

use lastwords_abi::sync::AtomicU64;
use lastwords_abi::triggers::{MAX_PENDING, PENDING_CLAIMED, Pending, TARGET_BESIDE, Triggers};
use lastwords_ring::ClockKind;

use super::session_region::SessionRegion;

/// The events around a trigger that its saved snapshot has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[must_use]
pub struct Window {
    /// Time ahead of the trigger. `None`: all that the rings have.
    pub before: Option<Duration>,
    /// Time behind the trigger. Recording goes on, and the session's thread takes the snapshot
    /// when it has passed. Zero: the snapshot is taken at once, and nothing is cut at its end.
    pub after: Duration,
}

impl Window {
    /// Keeps events from `before` ahead of the trigger to `after` behind it.
    pub fn new(before: Duration, after: Duration) -> Self {
        Self { before: Some(before), after }
    }

    /// Returns the nanoseconds before and after, as the session has them.
    pub(crate) fn words(self) -> (u64, u64) {
        let nanos =
            |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).min(u64::MAX - 1);
        // 0 stands for all that the rings have.
        (self.before.map_or(0, |before| nanos(before).max(1)), nanos(self.after))
    }

    /// Returns the window of these nanoseconds.
    pub(crate) fn from_times((before, after): (u64, u64)) -> Self {
        Self {
            before: (before != 0).then(|| Duration::from_nanos(before)),
            after: Duration::from_nanos(after),
        }
    }
}

/// The window of a snapshot, and the places where it is saved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Cut {
    /// First and last clock, in ticks; 0: no limit.
    pub(crate) begin: u64,
    pub(crate) end: u64,
    /// As [`Triggers::targets`].
    pub(crate) targets: [u64; MAX_PENDING],
}

/// A trigger and its window, in ticks of the session's clock.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Moment {
    /// Clock at which the window begins; 0: all that the rings have.
    pub(crate) begin: u64,
    /// Ticks from the trigger's event to the end of the window.
    pub(crate) after: u64,
    /// As [`Pending::target`].
    pub(crate) target: u64,
}

impl Moment {
    /// Returns the window of a trigger that fires now, by nanoseconds before and after.
    /// Async-signal-safe.
    pub(crate) fn now(view: &SessionRegion, (before, after): (u64, u64), target: u64) -> Self {
        let begin =
            if before == 0 { 0 } else { clock(view).saturating_sub(ticks(view, before)).max(1) };
        Self { begin, after: ticks(view, after), target }
    }

    /// Returns the window of a snapshot that is taken at once.
    pub(crate) fn at_once(self) -> Cut {
        let mut targets = [0; MAX_PENDING];
        targets[0] = self.target;
        Cut { begin: self.begin, end: 0, targets }
    }

    /// Makes the trigger wait for the end of its window, which is counted from now: the trigger's
    /// event is recorded, and is inside. Without a free entry, or if nothing is to be remembered,
    /// the trigger waits without a window. Async-signal-safe.
    pub(crate) fn wait(self, view: &SessionRegion, triggers: &Triggers) {
        let is_plain = self.begin == 0 && self.after == 0 && self.target == 0;
        let claim = |entry: &&Pending| {
            entry.due.compare_exchange(0, PENDING_CLAIMED, AcqRel, Relaxed).is_ok()
        };
        match triggers.pending.iter().find(|entry| !is_plain && claim(entry)) {
            Some(entry) => {
                let due = clock(view).saturating_add(self.after).max(PENDING_CLAIMED + 1);
                entry.begin.store(self.begin, Relaxed);
                entry.last.store(if self.after == 0 { 0 } else { due }, Relaxed);
                entry.target.store(self.target, Relaxed);
                entry.due.store(due, Release);
            }
            None => _ = triggers.waiting.fetch_add(1, AcqRel),
        }
    }
}

fn clock(view: &SessionRegion) -> u64 {
    view.clock_kind().map_or(0, ClockKind::now_ordered)
}

/// Returns the ticks of the session's clock in some nanoseconds.
pub(crate) fn ticks(view: &SessionRegion, nanos: u64) -> u64 {
    let ticks =
        u128::from(nanos) * u128::from(view.clock().frequency.load(Relaxed)) / 1_000_000_000;
    u64::try_from(ticks).unwrap_or(u64::MAX)
}

/// Returns the triggers that wait for the ends of their windows, with these ends.
fn waiting(triggers: &Triggers) -> impl Iterator<Item = (&Pending, u64)> {
    // Acquire: the entry was filled before its due was published.
    let due = |entry: &Pending| Some(entry.due.load(Acquire)).filter(|due| *due > PENDING_CLAIMED);
    triggers.pending.iter().filter_map(move |entry| Some((entry, due(entry)?)))
}

/// Returns the number of triggers that wait for the ends of their windows.
pub(crate) fn count(triggers: &Triggers) -> u32 {
    waiting(triggers).count() as u32
}

/// Returns the nanoseconds until the last of the windows ends; 0 if it has ended, none if no
/// trigger waits.
pub(crate) fn remaining(view: &SessionRegion, triggers: &Triggers) -> Option<u64> {
    let due = waiting(triggers).map(|(_, due)| due).max()?;
    let ticks = u128::from(due.saturating_sub(clock(view)));
    let nanos =
        (ticks * 1_000_000_000).div_ceil(u128::from(view.clock().frequency.load(Relaxed).max(1)));
    Some(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// The triggers that wait, taken out for one snapshot.
pub(crate) struct Taking<'a> {
    entries: [Option<(&'a Pending, u64)>; MAX_PENDING],
}

impl<'a> Taking<'a> {
    /// Takes out all triggers that wait for the ends of their windows. Other processes do not see
    /// them any more.
    pub(crate) fn all(triggers: &'a Triggers) -> Self {
        let mut entries = [None; MAX_PENDING];
        let owned = |(entry, due): &(&Pending, u64)| {
            entry.due.compare_exchange(*due, PENDING_CLAIMED, AcqRel, Acquire).is_ok()
        };
        for (place, taken) in entries.iter_mut().zip(waiting(triggers).filter(owned)) {
            *place = Some(taken);
        }
        Self { entries }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries[0].is_none()
    }

    /// Returns the window of the snapshot for these triggers: one that contains all their windows.
    /// `others` wait without one, so that the snapshot is not cut.
    pub(crate) fn cut(&self, others: bool) -> Cut {
        let entries = || self.entries.iter().flatten();
        let words = |word: fn(&Pending) -> &AtomicU64| {
            entries().map(move |(entry, _)| word(entry).load(Relaxed))
        };
        // 0 stands for no limit. One trigger without a limit is enough.
        let begin = words(|entry| &entry.begin).min().filter(|_| !others).unwrap_or(0);
        let is_limited = !others && words(|entry| &entry.last).all(|last| last != 0);
        let end = if is_limited { words(|entry| &entry.last).max().unwrap_or(0) } else { 0 };
        let mut cut = Cut { begin, end, targets: [0; MAX_PENDING] };
        let wanted =
            entries().map(|(entry, _)| entry.target.load(Relaxed)).chain(others.then_some(0));
        for target in wanted.map(|target| if target == 0 { TARGET_BESIDE } else { target }) {
            let is_place = |place: &&mut u64| **place == 0 || **place == target;
            cut.targets.iter_mut().find(is_place).into_iter().for_each(|place| *place = target);
        }
        cut
    }

    /// Ends the waiting: the snapshot was taken. Else the triggers go on waiting.
    pub(crate) fn end(self, is_taken: bool) {
        for (entry, due) in self.entries.into_iter().flatten() {
            entry.due.store(if is_taken { 0 } else { due }, Release);
        }
    }
}

/// Writes the window of a snapshot. The caller holds the snapshot lock, and publishes the snapshot
/// after this.
pub(crate) fn note(view: &SessionRegion, cut: &Cut) {
    let triggers = view.triggers();
    triggers.window_begin.store(cut.begin, Relaxed);
    triggers.window_end.store(cut.end, Relaxed);
    // The clock of the snapshot before, which is replaced after this.
    triggers.window_from.store(view.control().snapshot_clock.load(Relaxed), Relaxed);
    for (place, target) in triggers.targets.iter().zip(cut.targets) {
        place.store(target, Relaxed);
    }
}

/// Returns the words of [`Triggers::window_begin`], `window_end` and `window_from`; none if the
/// snapshot is not cut.
pub(crate) fn of_snapshot(triggers: &Triggers) -> Option<[u64; 3]> {
    let words = [&triggers.window_begin, &triggers.window_end, &triggers.window_from]
        .map(|word| word.load(Relaxed));
    (words[0] != 0 || words[1] != 0).then_some(words)
}

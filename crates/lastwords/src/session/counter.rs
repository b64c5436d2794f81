//! The counters of conditions that fire a limited number of times.
//!
//! A condition that fires a limited number of times, or whose action the session's thread carries
//! out, has a counter. The counter stays with its condition while other conditions come and go. A
//! tag tells a counter from the one that another condition had there before, because threads still
//! record by earlier conditions for some milliseconds.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use lastwords_abi::triggers::{Conditions, Extra, FIRES_UNLIMITED, MAX_CONDITIONS};

/// A condition fires less often than this, or without limit.
pub(crate) const MOST_TIMES: u64 = FIRES_UNLIMITED;

/// Bits of a counter below its tag.
pub(crate) const TAG_SHIFT: u32 = 48;

/// The counter of a condition: its place in [`Conditions::firings`] and its tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counter {
    pub(super) place: usize,
    pub(super) tag: u16,
}

impl Counter {
    /// Returns the counter of a condition.
    pub(crate) fn from_extra(extra: &Extra) -> Option<Self> {
        let word = extra.counter.load(Relaxed);
        let place =
            usize::from(word as u16).checked_sub(1).filter(|place| *place < MAX_CONDITIONS)?;
        Some(Self { place, tag: (word >> 16) as u16 })
    }

    /// Returns the word of [`Extra::counter`].
    pub(crate) fn word(self) -> u64 {
        u64::from(self.tag) << 16 | (self.place as u64 + 1)
    }

    /// Returns how often the condition still fires; none: without limit.
    pub(crate) fn left(self, area: &Conditions) -> Option<u64> {
        let word = area.firings[self.place].load(Acquire);
        let left = if (word >> TAG_SHIFT) as u16 == self.tag { word & FIRES_UNLIMITED } else { 0 };
        (left != FIRES_UNLIMITED).then_some(left)
    }

    /// Takes one firing. Returns false if none is left, or the condition is gone.
    /// Async-signal-safe.
    pub(super) fn take(self, area: &Conditions) -> bool {
        let next = |word: u64| {
            let is_own = (word >> TAG_SHIFT) as u16 == self.tag;
            match word & FIRES_UNLIMITED {
                FIRES_UNLIMITED => is_own.then_some(word),
                left => (is_own && left > 0).then(|| word - 1),
            }
        };
        area.firings[self.place].fetch_update(AcqRel, Acquire, next).is_ok()
    }

    /// Returns the word of an order with this state.
    pub(super) fn order(self, state: u64) -> u64 {
        u64::from(self.tag) << TAG_SHIFT | state
    }
}

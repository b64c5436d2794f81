//! Limits on work that hostile bytes ask for.

use crate::error::Error;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Where a [`Budget`] begins. One number a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes read from the image, or produced by decompression.
    pub bytes: u64,
    /// Events decoded.
    pub events: u64,
    /// Structures looked at: regions, records, sub-buffers, table entries.
    pub steps: u64,
    /// Nesting.
    pub depth: u64,
}

impl Limits {
    /// What an input of any size may cost: about a second of work.
    const FLOOR: Self = Self { bytes: 1 << 29, events: 1 << 24, steps: 1 << 22, depth: 64 };

    /// What an input may cost besides, by its size in bytes. Real dumps of kernels and cores take less than a tenth of it.
    fn of_size(len: u64) -> Self {
        Self { bytes: len.saturating_mul(64), events: len.saturating_mul(4), steps: len / 8, depth: 0 }
    }
}

impl Default for Limits {
    /// What an input of any size may cost.
    fn default() -> Self {
        Self::FLOOR
    }
}

/// What is left of the [`Limits`]. Shared: threads that work on one image spend from the same budget.
///
/// A budget is in proportion to its input. It begins with what an input of any size may cost; each function that opens a file
/// admits the file's size.
#[derive(Debug)]
pub struct Budget {
    bytes: AtomicU64,
    events: AtomicU64,
    steps: AtomicU64,
    depth: u64,
    /// How often the size of an input counts.
    factor: u64,
}

impl Default for Budget {
    /// A budget for an input that has yet to be opened.
    fn default() -> Self {
        Self { factor: 1, ..Self::new(Limits::FLOOR) }
    }
}

impl Budget {
    /// A budget with all of `limits` left, whatever the input's size.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            bytes: AtomicU64::new(limits.bytes),
            events: AtomicU64::new(limits.events),
            steps: AtomicU64::new(limits.steps),
            depth: limits.depth,
            factor: 0,
        }
    }

    /// A budget for an input of `len` bytes that is in memory, or open already.
    #[must_use]
    pub fn for_input(len: u64) -> Self {
        let budget = Self::default();
        budget.admit(len);
        budget
    }

    /// The same for `factor` times as much work, of what is left and of each input that is yet to be admitted.
    #[must_use]
    pub fn times(self, factor: u64) -> Self {
        let Limits { bytes, events, steps, depth } = self.left();
        let [bytes, events, steps] = [bytes, events, steps].map(|n| n.saturating_mul(factor));
        Self { factor: self.factor.saturating_mul(factor), ..Self::new(Limits { bytes, events, steps, depth }) }
    }

    /// Adds what an input of `len` bytes may cost. Of a compressed or sparse input, `len` is the size of the container, or the most
    /// that its format can hold in a container of that size.
    pub fn admit(&self, len: u64) {
        let Limits { bytes, events, steps, .. } = Limits::of_size(len);
        for (left, more) in [(&self.bytes, bytes), (&self.events, events), (&self.steps, steps)] {
            let more = more.saturating_mul(self.factor);
            let _ = left.fetch_update(Relaxed, Relaxed, |left| Some(left.saturating_add(more)));
        }
    }

    /// Takes `n` bytes.
    ///
    /// # Errors
    /// Fewer are left; nothing is taken then.
    pub fn bytes(&self, what: &str, n: u64) -> Result<(), Error> {
        spend(&self.bytes, n).ok_or_else(|| Error::budget(what, "bytes", n))
    }

    /// Takes `n` events.
    ///
    /// # Errors
    /// Fewer are left; nothing is taken then.
    pub fn events(&self, what: &str, n: u64) -> Result<(), Error> {
        spend(&self.events, n).ok_or_else(|| Error::budget(what, "events", n))
    }

    /// Takes `n` steps.
    ///
    /// # Errors
    /// Fewer are left; nothing is taken then.
    pub fn steps(&self, what: &str, n: u64) -> Result<(), Error> {
        spend(&self.steps, n).ok_or_else(|| Error::budget(what, "steps", n))
    }

    /// Checks a nesting of `depth`.
    ///
    /// # Errors
    /// It is deeper than the limit.
    pub fn depth(&self, what: &str, depth: u64) -> Result<(), Error> {
        if depth > self.depth { Err(Error::budget(what, "levels of nesting", depth)) } else { Ok(()) }
    }

    /// What is left.
    #[must_use]
    pub fn left(&self) -> Limits {
        Limits {
            bytes: self.bytes.load(Relaxed),
            events: self.events.load(Relaxed),
            steps: self.steps.load(Relaxed),
            depth: self.depth,
        }
    }
}

fn spend(left: &AtomicU64, n: u64) -> Option<()> {
    left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(n)).ok().map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_grows_with_its_input() {
        let floor = Limits::default();
        let budget = Budget::for_input(1 << 20);
        assert_eq!(budget.left().bytes, floor.bytes + (64 << 20));
        assert_eq!((budget.left().steps, budget.left().depth), (floor.steps + (1 << 17), floor.depth));
        budget.admit(1 << 20);
        assert_eq!(budget.left().bytes, floor.bytes + (128 << 20));
        let tenfold = Budget::default().times(10);
        tenfold.admit(1 << 20);
        assert_eq!(tenfold.left().bytes, 10 * (floor.bytes + (64 << 20)));
        tenfold.admit(u64::MAX);
        assert_eq!(tenfold.left().bytes, u64::MAX);
        // Limits that were given stay.
        let fixed = Budget::new(Limits { bytes: 10, ..floor });
        fixed.admit(1 << 20);
        assert_eq!(fixed.left().bytes, 10);
    }

    #[test]
    fn a_refusal_takes_nothing() {
        let budget = Budget::new(Limits { bytes: 10, events: 1, steps: 2, depth: 3 });
        assert!(budget.bytes("x", 7).is_ok());
        let error = budget.bytes("x", 4).unwrap_err();
        assert_eq!(error.to_string(), "x: 4 more bytes would exceed the limit; raise it to go on");
        assert!(budget.bytes("x", 3).is_ok());
        assert!(budget.depth("x", 3).is_ok() && budget.depth("x", 4).is_err());
        assert_eq!(budget.left(), Limits { bytes: 0, events: 1, steps: 2, depth: 3 });
    }
}

//! Limits the work that untrusted bytes can cause.

use crate::error::Error;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The initial limits of a [`Budget`], one for each resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes read from the image or produced by decompression.
    pub bytes: u64,
    /// Number of events decoded.
    pub events: u64,
    /// Number of structures examined: regions, records, sub-buffers, table entries.
    pub steps: u64,
    /// Levels of nesting.
    pub depth: u64,
}

impl Limits {
    /// Limits for an input of any size: about a second of work.
    const FLOOR: Self = Self { bytes: 1 << 29, events: 1 << 24, steps: 1 << 22, depth: 64 };

    /// Additional limits by the size of the input in bytes. Real dumps of kernels and cores use
    /// less than a tenth.
    fn of_size(len: u64) -> Self {
        Self {
            bytes: len.saturating_mul(64),
            events: len.saturating_mul(4),
            steps: len / 8,
            depth: 0,
        }
    }
}

impl Default for Limits {
    /// The limits for an input of any size.
    fn default() -> Self {
        Self::FLOOR
    }
}

/// The remaining [`Limits`]. Threads that work on one image share a budget.
///
/// A budget is proportional to its input. It starts with the limits for an input of any size; each
/// function that opens a file admits the file's size.
#[derive(Debug)]
pub struct Budget {
    bytes: AtomicU64,
    events: AtomicU64,
    steps: AtomicU64,
    depth: u64,
    /// Multiplier of the limits for admitted inputs.
    factor: u64,
}

impl Default for Budget {
    /// The budget for an input that is not open yet.
    fn default() -> Self {
        Self { factor: 1, ..Self::new(Limits::FLOOR) }
    }
}

impl Budget {
    /// Creates a budget of exactly `limits`, whatever the size of the input.
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

    /// Creates the budget for an input of `len` bytes that is in memory or already open.
    #[must_use]
    pub fn for_input(len: u64) -> Self {
        let budget = Self::default();
        budget.admit(len);
        budget
    }

    /// Multiplies what is left by `factor`, and also the limits for each input admitted later.
    #[must_use]
    pub fn times(self, factor: u64) -> Self {
        let Limits { bytes, events, steps, depth } = self.left();
        let [bytes, events, steps] = [bytes, events, steps].map(|n| n.saturating_mul(factor));
        Self {
            factor: self.factor.saturating_mul(factor),
            ..Self::new(Limits { bytes, events, steps, depth })
        }
    }

    /// Creates a budget of `limits` for one part of the work on an input. The factor of
    /// [`Budget::times`] counts for `limits` too.
    #[must_use]
    pub fn part(&self, limits: Limits) -> Self {
        Self::new(limits).times(self.factor.max(1))
    }

    /// Adds the limits for an input of `len` bytes. For a compressed or sparse input, `len` is the
    /// size of the container, or the most that the format can store in a container of that size.
    pub fn admit(&self, len: u64) {
        let Limits { bytes, events, steps, .. } = Limits::of_size(len);
        for (left, more) in [(&self.bytes, bytes), (&self.events, events), (&self.steps, steps)] {
            let more = more.saturating_mul(self.factor);
            let _ = left.fetch_update(Relaxed, Relaxed, |left| Some(left.saturating_add(more)));
        }
    }

    /// Spends `n` bytes.
    ///
    /// # Errors
    /// Fewer bytes are left; then nothing is spent.
    pub fn bytes(&self, what: &str, n: u64) -> Result<(), Error> {
        spend(&self.bytes, n).ok_or_else(|| Error::budget(what, "bytes", n))
    }

    /// Spends `n` events.
    ///
    /// # Errors
    /// Fewer events are left; then nothing is spent.
    pub fn events(&self, what: &str, n: u64) -> Result<(), Error> {
        spend(&self.events, n).ok_or_else(|| Error::budget(what, "events", n))
    }

    /// Spends `n` steps.
    ///
    /// # Errors
    /// Fewer steps are left; then nothing is spent.
    pub fn steps(&self, what: &str, n: u64) -> Result<(), Error> {
        spend(&self.steps, n).ok_or_else(|| Error::budget(what, "steps", n))
    }

    /// Checks a nesting depth.
    ///
    /// # Errors
    /// The depth exceeds the limit.
    pub fn depth(&self, what: &str, depth: u64) -> Result<(), Error> {
        if depth > self.depth {
            Err(Error::budget(what, "levels of nesting", depth))
        } else {
            Ok(())
        }
    }

    /// The remaining limits.
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
        assert_eq!(
            (budget.left().steps, budget.left().depth),
            (floor.steps + (1 << 17), floor.depth)
        );
        budget.admit(1 << 20);
        assert_eq!(budget.left().bytes, floor.bytes + (128 << 20));
        let tenfold = Budget::default().times(10);
        tenfold.admit(1 << 20);
        assert_eq!(tenfold.left().bytes, 10 * (floor.bytes + (64 << 20)));
        tenfold.admit(u64::MAX);
        assert_eq!(tenfold.left().bytes, u64::MAX);
        // Limits given to `new` do not grow.
        let fixed = Budget::new(Limits { bytes: 10, ..floor });
        fixed.admit(1 << 20);
        assert_eq!(fixed.left().bytes, 10);
        // The limits of a part are multiplied as its budget is.
        assert_eq!(tenfold.part(Limits { bytes: 7, ..floor }).left().bytes, 70);
        assert_eq!(fixed.part(Limits { bytes: 7, ..floor }).left().bytes, 7);
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

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

impl Default for Limits {
    /// Enough for any real image (4 PiB, 2^42 events), finite for a made-up one.
    fn default() -> Self {
        Self { bytes: 1 << 52, events: 1 << 42, steps: 1 << 36, depth: 64 }
    }
}

/// What is left of the [`Limits`]. Shared: threads that work on one image spend from the same budget.
#[derive(Debug)]
pub struct Budget {
    bytes: AtomicU64,
    events: AtomicU64,
    steps: AtomicU64,
    depth: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Self::new(Limits::default())
    }
}

impl Budget {
    /// A budget with all of `limits` left.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            bytes: AtomicU64::new(limits.bytes),
            events: AtomicU64::new(limits.events),
            steps: AtomicU64::new(limits.steps),
            depth: limits.depth,
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

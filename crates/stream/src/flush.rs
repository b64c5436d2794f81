//! The interval at which a sender sends what is committed and would otherwise wait until a
//! sub-buffer is full.

use std::time::{Duration, Instant};

/// When the next flush is due.
#[derive(Debug, Clone, Copy)]
pub struct Flush {
    /// None: never.
    each: Option<Duration>,
    since: Instant,
}

impl Flush {
    /// Flushes each time this has passed; never, if it is zero.
    #[must_use]
    pub fn each(interval: Duration) -> Self {
        Self { each: (!interval.is_zero()).then_some(interval), since: Instant::now() }
    }

    /// Returns the time until the next flush is due.
    #[must_use]
    pub fn left(&self) -> Duration {
        self.each.map_or(Duration::MAX, |each| each.saturating_sub(self.since.elapsed()))
    }

    /// Returns true if a flush is due.
    #[must_use]
    pub fn is_due(&self) -> bool {
        self.left().is_zero()
    }

    /// Notes that everything was flushed now.
    pub fn done(&mut self) {
        self.since = Instant::now();
    }
}

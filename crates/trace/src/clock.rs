//! The trace's clock.

/// A clock: ticks, and how they relate to wall time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clock {
    /// `tsc`, `monotonic`, ...
    pub name: String,
    /// What it is, for people.
    pub description: String,
    /// Ticks a second.
    pub frequency: u64,
    /// Whole seconds from the epoch to tick 0; may be negative.
    pub offset_seconds: i64,
    /// Ticks, less than `frequency`, from there to tick 0.
    pub offset_ticks: u64,
    /// The offset leads to the Unix epoch.
    pub absolute: bool,
}

impl Clock {
    /// Nanoseconds since the epoch of a reading, floored.
    #[must_use]
    pub fn nanoseconds(&self, ticks: u64) -> i128 {
        let frequency = i128::from(self.frequency.max(1));
        let since = i128::from(ticks) + i128::from(self.offset_ticks);
        i128::from(self.offset_seconds) * 1_000_000_000
            + (since * 1_000_000_000).div_euclid(frequency)
    }
}

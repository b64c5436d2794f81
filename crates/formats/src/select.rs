//! Which events to show.

pub use lastwords_glob::{is_well_formed, matches};

/// Which events to show; the default shows all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// Only streams of these CPUs; empty = all.
    pub cpus: Vec<u32>,
    /// Only channels whose name matches one of these globs ([`matches()`]); empty = all.
    pub channels: Vec<String>,
    /// Only events whose `provider:name` one of these globs names ([`is_named()`]); empty = all.
    pub events: Vec<String>,
    /// Not before this time, nanoseconds since the epoch.
    pub since: Option<i64>,
    /// Not after this time, nanoseconds since the epoch.
    pub until: Option<i64>,
    /// Only the last so many of those that match.
    pub last: Option<u64>,
    /// An event that several channels of a session have is shown once, as the first of them that is shown has it.
    pub once: bool,
}

/// The glob matches a whole name, or what is behind its last colon: `sched_switch` is `sched:sched_switch`.
#[must_use]
pub fn is_named(glob: &str, name: &str) -> bool {
    matches(glob, name) || name.rsplit_once(':').is_some_and(|(_, last)| matches(glob, last))
}

impl Selection {
    /// A stream of this CPU is shown.
    #[must_use]
    pub fn wants_cpu(&self, cpu: Option<u32>) -> bool {
        self.cpus.is_empty() || cpu.is_some_and(|cpu| self.cpus.contains(&cpu))
    }

    /// A channel of this name is shown.
    #[must_use]
    pub fn wants_channel(&self, name: &str) -> bool {
        self.channels.is_empty() || self.channels.iter().any(|glob| matches(glob, name))
    }

    /// An event of this name is shown.
    #[must_use]
    pub fn wants_name(&self, name: &str) -> bool {
        self.events.is_empty() || self.events.iter().any(|glob| is_named(glob, name))
    }

    /// An event of this time is shown.
    #[inline]
    #[must_use]
    pub fn wants_time(&self, nanoseconds: i64) -> bool {
        self.since.is_none_or(|since| nanoseconds >= since) && self.until.is_none_or(|until| nanoseconds <= until)
    }
}

//! Selects the events to show.

pub use lastwords_glob::{is_well_formed, matches};

use lastwords_filter::Filter;
use lastwords_glob::is_named;
use std::sync::Arc;

/// The events to show. The default selects all events.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// Select only streams of these CPUs. An empty list selects all CPUs.
    pub cpus: Vec<u32>,
    /// Select only channels whose name matches one of these globs ([`matches()`]). An empty list
    /// selects all channels.
    pub channels: Vec<String>,
    /// Select only events whose `provider:name` matches one of these globs
    /// ([`lastwords_glob::is_named()`]). An empty list selects all names.
    pub events: Vec<String>,
    /// Select only events for which this expression is true. [`crate::filter::check`] finds names
    /// that no event has.
    pub filter: Option<Arc<Filter>>,
    /// Select no events before this time, in nanoseconds since the epoch.
    pub since: Option<i64>,
    /// Select no events after this time, in nanoseconds since the epoch.
    pub until: Option<i64>,
    /// Select only the last events that match, and at most this number of them.
    pub last: Option<u64>,
    /// With [`Selection::last`]: do not read what lies before the last events, as far as the times
    /// in the headers of packets tell. Losses and faults in it are then not found;
    /// [`Totals::unread`](crate::Totals) has the number of its packets.
    pub unread_before: bool,
    /// Show an event that a session recorded into several channels only once: in the first of
    /// these channels that is shown.
    pub deduplicate: bool,
}

impl Selection {
    /// Returns true if streams of this CPU are selected.
    #[must_use]
    pub fn wants_cpu(&self, cpu: Option<u32>) -> bool {
        self.cpus.is_empty() || cpu.is_some_and(|cpu| self.cpus.contains(&cpu))
    }

    /// Returns true if channels of this name are selected.
    #[must_use]
    pub fn wants_channel(&self, name: &str) -> bool {
        self.channels.is_empty() || self.channels.iter().any(|glob| matches(glob, name))
    }

    /// Returns true if events of this name are selected.
    #[must_use]
    pub fn wants_name(&self, name: &str) -> bool {
        self.events.is_empty() || self.events.iter().any(|glob| is_named(glob, name))
    }

    /// Returns true if each time that a thread enters a span of this name, and each time that it
    /// leaves one, is selected. Otherwise nobody knows how long it was in one.
    #[must_use]
    pub fn has_both_ends(&self, span: &str) -> bool {
        let wants = |step: &str| self.wants_name(&format!("span:{step} {span}"));
        let has_all_names = self.events.is_empty() || wants("enter") && wants("exit");
        has_all_names && self.cpus.is_empty() && self.filter.is_none()
    }

    /// Returns true if events at this time are selected.
    #[inline]
    #[must_use]
    pub fn wants_time(&self, nanoseconds: i64) -> bool {
        self.since.is_none_or(|since| nanoseconds >= since)
            && self.until.is_none_or(|until| nanoseconds <= until)
    }
}

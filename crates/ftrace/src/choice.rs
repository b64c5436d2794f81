//! The selection of events of a trace array.

use crate::{Ring, Tracing};
use lastwords_filter::Filter;
use lastwords_glob::is_named;
use std::sync::Arc;

/// Selects events of a trace array. The default selects all events of the live rings.
#[derive(Debug, Clone, Default)]
pub struct Choice {
    /// Selects the snapshots instead of the live rings.
    pub snapshot: bool,
    /// Selects these CPUs only; an empty list selects all CPUs.
    pub cpus: Vec<u32>,
    /// Selects only events whose name matches one of these globs: `sched_*`, or with the system
    /// `sched:*`. An empty list selects all events.
    pub events: Vec<String>,
    /// Selects only events for which this expression is true.
    pub filter: Option<Arc<Filter>>,
    /// Selects no event before this value of the clock.
    pub since: Option<u64>,
    /// Selects no event after this value of the clock.
    pub until: Option<u64>,
    /// Selects only this many of the matching events: the last ones.
    pub last: Option<u64>,
}

impl Choice {
    /// Returns true if an event at this value of the clock is selected.
    pub(crate) fn wants_time(&self, time: u64) -> bool {
        self.since.is_none_or(|since| time >= since) && self.until.is_none_or(|until| time <= until)
    }

    /// Returns for each event id whether it is selected. An event without a format is called
    /// `ftrace:unknown`.
    pub(crate) fn ids(&self, tracing: &Tracing) -> Vec<bool> {
        let mut ids =
            vec![is_selected(&self.events, "ftrace", "unknown"); usize::from(u16::MAX) + 1];
        for (id, format) in &tracing.formats {
            if let Some(wanted) = ids.get_mut(usize::from(*id)) {
                *wanted = is_selected(&self.events, &format.system, &format.name);
            }
        }
        ids
    }
}

/// Returns the positions in [`Ring::cpus`] of these CPUs, or of all CPUs if the list is empty.
pub(crate) fn selected_lanes(ring: &dyn Ring, cpus: &[u32]) -> Vec<usize> {
    let is_selected = |cpu: u32| cpus.is_empty() || cpus.contains(&cpu);
    ring.cpus().iter().enumerate().filter(|(_, c)| is_selected(c.cpu)).map(|(at, _)| at).collect()
}

/// Returns true if one of the globs matches the event, or if there are no globs.
pub(crate) fn is_selected(globs: &[String], system: &str, name: &str) -> bool {
    let whole = format!("{system}:{name}");
    globs.is_empty() || globs.iter().any(|glob| is_named(glob, &whole))
}

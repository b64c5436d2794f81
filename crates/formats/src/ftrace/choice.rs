//! Which events of a trace array.

use lastwords_trace::ftrace::{Ring, Tracing};

use super::text::is_selected;

/// Which events; the default is all of the live rings.
#[derive(Debug, Clone, Default)]
pub struct Choice {
    /// The snapshots in place of the live rings.
    pub snapshot: bool,
    /// Only these CPUs; empty = all.
    pub cpus: Vec<u32>,
    /// Only events that one of these globs matches: `sched_*`, or with the system `sched:*`; empty = all.
    pub events: Vec<String>,
    /// Not before this value of the clock.
    pub since: Option<u64>,
    /// Not after this value of the clock.
    pub until: Option<u64>,
    /// Only the last so many of those that match.
    pub last: Option<u64>,
}

impl Choice {
    /// An event at this reading of the clock is wanted.
    pub(crate) fn wants_time(&self, time: u64) -> bool {
        self.since.is_none_or(|since| time >= since) && self.until.is_none_or(|until| time <= until)
    }

    /// Positions in [`Ring::cpus`] that are wanted.
    pub(crate) fn lanes(&self, ring: &dyn Ring) -> Vec<usize> {
        let wants = |cpu: u32| self.cpus.is_empty() || self.cpus.contains(&cpu);
        ring.cpus().iter().enumerate().filter(|(_, c)| wants(c.cpu)).map(|(at, _)| at).collect()
    }

    /// By event id: it is wanted. What has no format is called `ftrace:unknown`.
    pub(crate) fn ids(&self, tracing: &Tracing) -> Vec<bool> {
        let mut ids = vec![is_selected(&self.events, "ftrace", "unknown"); usize::from(u16::MAX) + 1];
        for (id, format) in &tracing.formats {
            if let Some(wanted) = ids.get_mut(usize::from(*id)) {
                *wanted = is_selected(&self.events, &format.system, &format.name);
            }
        }
        ids
    }
}

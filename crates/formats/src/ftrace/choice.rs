//! Which events of a kernel's trace, over several trace arrays, in order of time.

use lastwords_bytes::ByteOrder;
use lastwords_trace::ftrace::{Ring, Tracing};

use super::text::{Common, Merge, is_selected};
use lastwords_ctf::{Error, Result};

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
    /// The ring of a trace array that is meant; none where there is no such snapshot.
    ///
    /// # Errors
    /// There is no such array.
    pub(crate) fn ring<'t>(&self, tracing: &'t Tracing, index: usize) -> Result<Option<&'t dyn Ring>> {
        let array =
            tracing.arrays.get(index).ok_or_else(|| Error::Schema(format!("trace array {index}: there is none")))?;
        Ok(if self.snapshot { array.snapshot.as_deref() } else { Some(&*array.live) })
    }

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

/// One trace array of several.
pub(crate) struct Part<'a> {
    /// Its events; the next one is the head.
    pub(crate) merge: Merge<'a>,
}

/// The chosen events of trace arrays, merged by time: of equal times the earlier array's first.
pub(crate) struct Chosen<'a> {
    parts: Vec<Part<'a>>,
    ids: Vec<bool>,
    order: ByteOrder,
    since: Option<u64>,
    until: Option<u64>,
    skip: u64,
}

impl<'a> Chosen<'a> {
    pub(crate) fn new(tracing: &'a Tracing, arrays: &[usize], choice: &Choice) -> Result<Self> {
        let mut chosen = Self::open(tracing, arrays, choice)?;
        if let Some(last) = choice.last {
            let mut count = 0u64;
            while let Some(part) = chosen.head() {
                count += 1;
                part.merge.advance();
            }
            chosen = Self::open(tracing, arrays, choice)?;
            chosen.skip = count.saturating_sub(last);
        }
        Ok(chosen)
    }

    fn open(tracing: &'a Tracing, arrays: &[usize], choice: &Choice) -> Result<Self> {
        let mut parts = Vec::new();
        for array in arrays {
            let Some(ring) = choice.ring(tracing, *array)? else { continue };
            parts.push(Part { merge: Merge::new(tracing, ring, &choice.lanes(ring)) });
        }
        let (since, until) = (choice.since, choice.until);
        Ok(Self { parts, ids: choice.ids(tracing), order: tracing.byte_order, since, until, skip: 0 })
    }

    /// The part whose head is the next event that is wanted; the caller passes over it when it is done with it.
    #[inline]
    pub(crate) fn head(&mut self) -> Option<&mut Part<'a>> {
        loop {
            let heads = self.parts.iter().enumerate().filter_map(|(at, part)| Some((part.merge.head()?, at)));
            let (time, at) = heads.min()?;
            if self.until.is_some_and(|until| time > until) {
                return None;
            }
            let wanted = self.since.is_none_or(|since| time >= since) && self.wants(at);
            if wanted && self.skip == 0 {
                return self.parts.get_mut(at);
            }
            self.skip -= u64::from(wanted);
            self.parts.get_mut(at)?.merge.advance();
        }
    }

    fn wants(&self, at: usize) -> bool {
        let id = self.parts.get(at).map_or(0, |part| Common::read(part.merge.payload(), self.order).id);
        self.ids.get(usize::from(id)).copied().unwrap_or(false)
    }

    /// Faults of all parts, and what is said of the first of each.
    pub(crate) fn faults(&mut self) -> (u64, Vec<String>) {
        let count = self.parts.iter().map(|part| part.merge.faults).sum();
        (count, self.parts.iter_mut().flat_map(|part| part.merge.notes.drain(..)).collect())
    }
}

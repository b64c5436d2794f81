//! Caches the beginning of an event's line for each CPU. It seldom changes from event to event,
//! except for the fraction of the second.

use super::context::{self, Common, EventInfo, Tasks};
use crate::relative_time::time_before;
use lastwords_bytes::low_u32;
use lastwords_trace::text::number::six_before;
use lastwords_trace::text::page::Put;

/// Longest beginning that is cached, in bytes, without the fraction of the second.
const ROOM: usize = 64;
/// Width of a time before a reading of the clock.
const RELATIVE: usize = 12;
/// Bytes of the fraction and of the colon and space after it.
const FRACTION: usize = 8;

/// The cached beginning of a CPU's lines.
#[derive(Clone)]
struct CachedHead {
    /// The common fields without the id.
    key: u64,
    /// The first microsecond of the second.
    begin: u64,
    /// The text up to the fraction of the second.
    block: [u8; ROOM],
    len: usize,
}

/// The cached beginnings of all CPUs' lines.
pub(crate) struct HeadCache {
    irq: bool,
    in_ns: bool,
    /// Times are shown as those before this reading of the clock. Their lines have no cached
    /// beginning.
    before: Option<i64>,
    /// Cached beginnings, by lane.
    cached: Vec<CachedHead>,
}

impl HeadCache {
    /// Makes an empty cache. `irq`: lines have a column of flags. `in_ns`: the clock counts
    /// nanoseconds. `before`: times are shown as those before this reading of the clock.
    pub(crate) fn new(irq: bool, in_ns: bool, before: Option<i64>) -> Self {
        Self { irq, in_ns, before, cached: Vec::new() }
    }

    /// Appends `            init-1       [000] ..... 67437.081273: `.
    #[inline]
    pub(crate) fn put(&mut self, out: &mut Vec<u8>, tasks: &mut Tasks<'_>, at: EventInfo) {
        if !self.put_cached(out, at.lane, at.time, key(at.common)) {
            self.put_new(out, tasks, at);
        }
    }

    /// Appends the cached beginning if it applies. Returns whether it did. `key`: the common fields
    /// without the id, as in [`Common::word`].
    #[inline]
    pub(crate) fn put_cached(&self, out: &mut impl Put, lane: usize, time: u64, key: u64) -> bool {
        let Some(cached) = self.cached.get(lane) else { return false };
        let within = (time.wrapping_add(500) / 1000).wrapping_sub(cached.begin);
        let is_cached = cached.key == key && within < 1_000_000;
        if is_cached {
            out.block(&cached.block, cached.len);
            out.block(&six_before(low_u32(within), *b": "), FRACTION);
        }
        is_cached
    }

    /// Forgets all cached beginnings, because the name of a task has changed.
    pub(crate) fn forget(&mut self) {
        self.cached.clear();
    }

    /// Appends a new beginning and caches it. Only beginnings that are short enough and have a
    /// fraction of the second are cached.
    #[cold]
    fn put_new(&mut self, out: &mut Vec<u8>, tasks: &mut Tasks<'_>, at: EventInfo) {
        let from = out.len();
        tasks.begin(out, at.common.pid);
        context::cpu(out, at.cpu);
        if self.irq {
            tasks.irq_flags(out, at.common);
        }
        match self.before {
            None => context::time(out, at.time, self.in_ns),
            Some(before) => {
                out.push(b' ');
                time_before(out, at.time, before, self.in_ns, RELATIVE);
            }
        }
        out.extend_from_slice(b": ");
        if !self.in_ns || self.before.is_some() {
            return;
        }
        let line = out.get(from..out.len().wrapping_sub(FRACTION)).unwrap_or_default();
        let mut block = [0; ROOM];
        let Some(place) = block.get_mut(..line.len()) else { return };
        place.copy_from_slice(line);
        let begin = (at.time.wrapping_add(500) / 1_000_000_000).wrapping_mul(1_000_000);
        let cached = CachedHead { key: key(at.common), begin, block, len: line.len() };
        if self.cached.len() <= at.lane {
            self.cached.resize(
                at.lane.wrapping_add(1),
                CachedHead { key: u64::MAX, begin: 0, block, len: 0 },
            );
        }
        if let Some(place) = self.cached.get_mut(at.lane) {
            *place = cached;
        }
    }
}

#[inline]
fn key(common: Common) -> u64 {
    common.word() >> 16
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::silent;
    use proptest::prelude::*;

    proptest! {
        /// Tests that a cached beginning equals a new one.
        #[test]
        fn cached_heads_equal_new_ones(
            events in proptest::collection::vec((0usize..5, 0u64..4, 0u64..3_000_000_000, 0u8..2, 0u8..2, 6u32..9), 1..200),
            in_ns in any::<bool>(),
            tgid in any::<bool>(),
        ) {
            let mut machine = silent();
            machine.comms.insert(8, "a name that is longer than what is remembered of a line's head, by far".into());
            let mut tasks = Tasks::new(&machine, tgid);
            let mut heads = HeadCache::new(true, in_ns, None);
            for (lane, far, near, flags, preempt, pid) in events {
                let time = (u64::MAX / 4).wrapping_mul(far).wrapping_add(near);
                let at = EventInfo { time, cpu: lane as u32 * 600, lane, common: Common { id: 1, flags, preempt, pid } };
                let (mut from_cache, mut fresh) = (Vec::new(), Vec::new());
                heads.put(&mut from_cache, &mut tasks, at);
                HeadCache::new(true, in_ns, None).put(&mut fresh, &mut tasks, at);
                prop_assert_eq!(&from_cache, &fresh);
                let mut again = Vec::new();
                if heads.put_cached(&mut again, lane, time, at.common.word() >> 16) {
                    prop_assert_eq!(again, fresh);
                }
            }
        }
    }
}

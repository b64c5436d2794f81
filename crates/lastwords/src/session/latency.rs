//! Latencies between two events: the starts that wait for their ends, in a table of fixed size in
//! the session. Recording threads change it without a lock.
//!
//! A start has a key: what it must have in common with its end. A recording thread claims an entry
//! by exchanging its key for [`START_CLAIMED`], writes the time, and publishes the entry by its
//! key. The end takes the entry in the same way, so that one end measures one start.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use lastwords_abi::triggers::{MAX_STARTS, START_CLAIMED, Start};

use super::session_region::SessionRegion;
use super::window::ticks;

/// Entries that are examined for a key.
const PROBES: usize = 16;

/// Returns the entries where a key may be.
fn entries(starts: &[Start; MAX_STARTS], key: u64) -> impl Iterator<Item = &Start> {
    let first = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize;
    (0..PROBES).map(move |step| &starts[(first + step) % MAX_STARTS])
}

fn claim(entry: &Start, key: u64) -> bool {
    entry.key.compare_exchange(key, START_CLAIMED, AcqRel, Relaxed).is_ok()
}

/// Notes a start. A start with the same key that still waits is replaced. Returns false if the
/// start replaced one with another key, or found no entry. Async-signal-safe.
fn start(starts: &[Start; MAX_STARTS], key: u64, now: u64) -> bool {
    let put = |entry: &Start| {
        entry.at.store(now, Relaxed);
        entry.key.store(key, Release);
    };
    let same =
        entries(starts, key).find(|entry| entry.key.load(Relaxed) == key && claim(entry, key));
    if let Some(entry) = same.or_else(|| entries(starts, key).find(|entry| claim(entry, 0))) {
        put(entry);
        return true;
    }
    // The oldest start waits for an end that probably never comes. An entry that stays claimed was
    // left by a thread that died.
    let keys = entries(starts, key).map(|entry| (entry, entry.key.load(Relaxed)));
    let oldest = keys
        .filter(|(_, old)| *old != START_CLAIMED)
        .min_by_key(|(entry, _)| entry.at.load(Relaxed));
    if let Some((entry, old)) = oldest
        && claim(entry, old)
    {
        put(entry);
    }
    false
}

/// Takes out the start with a key. Returns its time. Async-signal-safe.
fn end(starts: &[Start; MAX_STARTS], key: u64) -> Option<u64> {
    // Acquire, in `claim`: the time was written before the key was published.
    let entry =
        entries(starts, key).find(|entry| entry.key.load(Acquire) == key && claim(entry, key))?;
    let at = entry.at.load(Relaxed);
    entry.key.store(0, Release);
    Some(at)
}

/// The part of an event in a latency.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) starts: bool,
    pub(crate) ends: bool,
    /// Nanoseconds that the latency must be above.
    pub(crate) above: u64,
}

/// Notes an event of a latency at a place of the conditions. Returns true if it ends a latency
/// above the threshold. Async-signal-safe.
pub(crate) fn note(
    view: &SessionRegion,
    place: usize,
    part: Part,
    is_start: bool,
    key: u64,
) -> bool {
    let Some(starts) = view.conditions().starts.get(place) else { return false };
    let now = view.clock_kind().map_or(0, lastwords_ring::ClockKind::now_ordered);
    // No key is that of an entry which is free or claimed.
    let key = if key <= START_CLAIMED { key.wrapping_sub(2) } else { key };
    let begun = if part.ends { end(starts, key) } else { None };
    if is_start && !start(starts, key, now) {
        view.triggers().replaced.fetch_add(1, Relaxed);
    }
    begun.is_some_and(|begun| now.saturating_sub(begun) > ticks(view, part.above))
}

#[cfg(test)]
mod tests {
    use lastwords_testkit::random::Random;
    use std::collections::HashMap;

    use super::*;

    fn table() -> [Start; MAX_STARTS] {
        std::array::from_fn(|_| Start { key: 0.into(), at: 0.into() })
    }

    #[test]
    fn ends_find_the_starts_that_a_map_finds() {
        let starts = table();
        let (mut map, mut random) = (HashMap::new(), Random(7));
        for now in 1..if cfg!(miri) { 200 } else { 20_000 } {
            // So few keys that each finds an entry.
            let key = 2 + random.below(12);
            match random.below(2) {
                0 => assert!(
                    start(&starts, key, now) && map.insert(key, now).is_none_or(|old| old < now)
                ),
                _ => assert_eq!(end(&starts, key), map.remove(&key)),
            }
        }
    }

    #[test]
    fn a_full_table_replaces_its_oldest_starts_and_says_so() {
        let starts = table();
        let replaced = (0..1000).filter(|key| !start(&starts, 2 + key, 1 + key)).count();
        let held: Vec<u64> = (0..1000).filter(|key| end(&starts, 2 + key).is_some()).collect();
        assert_eq!(held.len() + replaced, 1000, "{held:?}");
        assert!(held.contains(&999) && !held.contains(&0));
    }

    #[test]
    fn threads_take_each_start_once() {
        let starts = table();
        let rounds = if cfg!(miri) { 20 } else { 5000 };
        let taken: usize = std::thread::scope(|scope| {
            let run = |key: u64| {
                let starts = &starts;
                move || {
                    let once =
                        |now| usize::from(start(starts, key, now) && end(starts, key) == Some(now));
                    (1..=rounds).map(once).sum::<usize>()
                }
            };
            let threads: Vec<_> = (0..4).map(|key| scope.spawn(run(100 + key))).collect();
            threads.into_iter().map(|thread| thread.join().expect("it ends")).sum()
        });
        assert_eq!(taken, 4 * rounds as usize);
    }
}

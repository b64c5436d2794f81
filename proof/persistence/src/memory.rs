//! A model of the caches between recorder and persistent memory, one cache line at a time. It gives
//! every content that the memory may have at a loss of power.
//!
//! A store is in the cache. It may reach memory at any later moment, because a cache may write any
//! line back. It has reached memory for certain when its line was flushed after it, and a fence
//! followed. The stores of one line reach memory in order. So the memory at a loss of power has, of
//! each line, one of the versions since the certain one. Where bytes are copied whose order
//! is not known (events, descriptions), it may have any words of 8 bytes of the step to the next
//! version.
//!
//! The model finds stores by comparing the memory with a copy of it, at each flush, fence and call
//! of the recorder. It cannot see two things: that some of the stores to a line of control words
//! between two such moments are there and the later ones are not, and a value that was overwritten
//! in between.

use std::collections::{BTreeMap, HashSet};

use lastwords_testkit::random::Random;

/// Bytes of a cache line.
pub(super) const LINE: usize = 64;
/// Versions of a line that are kept where it is never flushed; later ones replace the last.
const MOST_VERSIONS: usize = 8;
/// Lines whose subsets are all tried.
const ALL_SUBSETS: usize = 6;

/// One cache line that differs, or may differ, from the memory.
#[derive(Debug, Default)]
struct Dirty {
    /// Its contents since the certain one, the oldest first.
    versions: Vec<[u8; LINE]>,
    /// How many of them are certain after the next fence.
    flushed: usize,
    /// It changed since the last fence.
    is_new: bool,
}

/// Memory and caches.
#[derive(Debug)]
pub(super) struct Memory {
    /// The bytes that have certainly reached the memory.
    certain: Vec<u8>,
    /// The bytes that the processor sees, as of the last comparison.
    seen: Vec<u8>,
    dirty: BTreeMap<usize, Dirty>,
}

impl Memory {
    /// Memory whose contents are certain.
    pub(super) fn new(now: &[u8]) -> Self {
        Self { certain: now.to_vec(), seen: now.to_vec(), dirty: BTreeMap::new() }
    }

    /// Bytes.
    pub(super) fn len(&self) -> usize {
        self.seen.len()
    }

    /// Takes note of what was stored since the last time.
    pub(super) fn observe(&mut self, now: &[u8]) {
        const BLOCK: usize = LINE * 64;
        for (block, (old, new)) in self.seen.chunks_mut(BLOCK).zip(now.chunks(BLOCK)).enumerate() {
            if old == new {
                continue;
            }
            let (old, new) = (old.as_chunks_mut::<LINE>().0, new.as_chunks::<LINE>().0);
            for (at, (old, new)) in
                old.iter_mut().zip(new).enumerate().filter(|(_, (old, new))| old != new)
            {
                *old = *new;
                let line = self.dirty.entry(block * (BLOCK / LINE) + at).or_default();
                if line.versions.len() == MOST_VERSIONS && line.flushed < MOST_VERSIONS {
                    line.versions.pop();
                }
                line.versions.push(*new);
                line.is_new = true;
            }
        }
    }

    /// Flushes the lines of a range of bytes.
    pub(super) fn flush(&mut self, range: std::ops::Range<usize>) {
        for (_, line) in self.dirty.range_mut(range.start / LINE..range.end.div_ceil(LINE)) {
            line.flushed = line.versions.len();
        }
    }

    /// Waits for what was flushed.
    pub(super) fn fence(&mut self) {
        let certain = &mut self.certain;
        self.dirty.retain(|at, line| {
            if let Some(last) = line.flushed.checked_sub(1) {
                certain[at * LINE..][..LINE].copy_from_slice(&line.versions[last]);
            }
            line.versions.drain(..line.flushed);
            (line.flushed, line.is_new) = (0, false);
            !line.versions.is_empty()
        });
    }

    /// Calls `each` with at most `most` memories that a loss of power may leave now, each another
    /// one. `tears` tells whether the line at an offset may be there in part.
    pub(super) fn images(
        &self,
        most: usize,
        rng: &mut Random,
        tears: impl Fn(usize) -> bool,
        mut each: impl FnMut(Vec<u8>),
    ) {
        let mut made = HashSet::new();
        let mut each = |image: Image<'_>| {
            if made.insert(image.choice.clone()) {
                each(image.bytes());
            }
        };
        let new: Vec<usize> =
            self.dirty.iter().filter(|(_, line)| line.is_new).map(|(at, _)| *at).collect();
        let subsets = 1usize << new.len().min(ALL_SUBSETS);
        for n in 0..subsets.min(most) {
            // Where not all subsets are tried, the first are "nothing" and "all", and each line
            // alone or alone missing.
            let has = |at: usize| match new.iter().position(|line| *line == at) {
                Some(place) if new.len() <= ALL_SUBSETS => Some(n >> place & 1 == 1),
                Some(place) => Some((place == n / 2) == (n % 2 == 0)),
                None => None,
            };
            let old = rng.bits();
            each(self.image(|at, line| {
                let has = has(at).unwrap_or(old >> (at % 64) & 1 == 1);
                (if has { line.versions.len() } else { 0 }, 0)
            }));
        }
        for n in 0..most.saturating_sub(subsets) {
            let (bias, torn) = (rng.below(4), n % 2 == 1);
            each(self.image(|at, line| {
                let versions = line.versions.len() as u64;
                let version = match rng.below(4) {
                    low if low < bias => 0,
                    _ => rng.below(versions + 1),
                };
                (version as usize, if torn && tears(at * LINE) { rng.bits() as u8 } else { 0 })
            }));
        }
    }

    /// Chooses a version of each line, counted from the certain one, and some words of the next
    /// version.
    fn image(&self, mut choose: impl FnMut(usize, &Dirty) -> (usize, u8)) -> Image<'_> {
        let choice = self.dirty.iter().map(|(at, line)| {
            let (version, words) = choose(*at, line);
            // Words that the next version does not change make no difference.
            let last = version
                .checked_sub(1)
                .map_or(&self.certain[at * LINE..][..LINE], |last| &line.versions[last]);
            let next = line.versions.get(version).map_or(last, |next| next.as_slice());
            let changed =
                (0..LINE / 8).filter(|word| last[word * 8..][..8] != next[word * 8..][..8]);
            (version, words & changed.map(|word| 1 << word).sum::<u8>())
        });
        Image { memory: self, choice: choice.collect() }
    }
}

/// A memory that a loss of power may leave.
struct Image<'a> {
    memory: &'a Memory,
    /// Of each dirty line: the version, and the words of the next version.
    choice: Vec<(usize, u8)>,
}

impl Image<'_> {
    fn bytes(&self) -> Vec<u8> {
        let mut image = self.memory.certain.clone();
        for ((at, line), (version, words)) in self.memory.dirty.iter().zip(&self.choice) {
            let place = &mut image[at * LINE..][..LINE];
            if let Some(last) = version.checked_sub(1) {
                place.copy_from_slice(&line.versions[last]);
            }
            let Some(next) = line.versions.get(*version) else { continue };
            for word in (0..LINE / 8).filter(|word| words >> word & 1 == 1) {
                place[word * 8..][..8].copy_from_slice(&next[word * 8..][..8]);
            }
        }
        image
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// The first bytes of three lines, in all images.
    fn firsts(memory: &Memory) -> BTreeSet<[u8; 3]> {
        let mut all = BTreeSet::new();
        memory.images(
            400,
            &mut Random(1),
            |_| false,
            |image| {
                all.insert([image[0], image[LINE], image[2 * LINE]]);
            },
        );
        all
    }

    #[test]
    fn a_flush_is_certain_after_the_fence_and_only_the_flushed_version() {
        let mut now = vec![0; 3 * LINE];
        let mut memory = Memory::new(&now);
        (now[0], now[LINE]) = (1, 1);
        memory.observe(&now);
        assert_eq!(firsts(&memory), BTreeSet::from([[0, 0, 0], [0, 1, 0], [1, 0, 0], [1, 1, 0]]));
        memory.flush(0..1);
        assert_eq!(firsts(&memory).len(), 4, "a flush alone guarantees nothing");
        now[0] = 2;
        memory.observe(&now);
        memory.fence();
        assert_eq!(firsts(&memory), BTreeSet::from([[1, 0, 0], [1, 1, 0], [2, 0, 0], [2, 1, 0]]));
        memory.flush(0..2 * LINE);
        memory.fence();
        assert_eq!(firsts(&memory), BTreeSet::from([[2, 1, 0]]));
    }

    #[test]
    fn a_line_may_be_there_in_part() {
        let mut memory = Memory::new(&[0; LINE]);
        memory.observe(&[1; LINE]);
        let mut words = BTreeSet::new();
        memory.images(
            2000,
            &mut Random(1),
            |_| true,
            |image| {
                words.insert(image.iter().map(|byte| u32::from(*byte)).sum::<u32>());
            },
        );
        assert_eq!(words, (0..=8).map(|words| words * 8).collect());
    }
}

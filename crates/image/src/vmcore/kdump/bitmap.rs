//! Bitmaps of page frames; chunks are read on demand.

use super::header::FileRange;
use crate::file::Backing;
use crate::got::Got;
use lastwords_bytes::{Budget, Error};
use std::sync::{Mutex, PoisonError};

/// Size of a chunk, bytes.
const CHUNK: u64 = 512;
/// The same number as a length of memory.
const CHUNK_LEN: usize = 512;
/// Number of page frames in a chunk.
const CHUNK_BITS: u64 = CHUNK * 8;
/// Number of bytes read at a time while counting.
const BATCH: usize = 1 << 20;

/// A bitmap; page frame 8 m + n is bit n of byte m.
#[derive(Debug)]
pub(super) struct Bitmap {
    at: u64,
    /// Number of page frames for which the file has bits.
    pub(super) len: u64,
    /// The chunk that was read last, because pages are usually read in order.
    last: Mutex<Option<Chunk>>,
}

/// The page frame of the chunk's first bit, and the chunk.
type Chunk = (u64, [u8; CHUNK_LEN]);

/// Number of set bits before each chunk of a bitmap.
#[derive(Debug)]
pub(super) struct Counts(Vec<u64>);

impl Counts {
    /// Number of set bits in the whole bitmap.
    pub(super) fn total(&self) -> u64 {
        self.0.last().copied().unwrap_or(0)
    }
}

impl Bitmap {
    /// Creates the bitmap at `place`, as far as `file` has it, for page frames below `max`.
    pub(super) fn new(file: &Backing, place: FileRange, max: u64) -> Self {
        let held = place.len.min(file.len.saturating_sub(place.offset));
        Self { at: place.offset, len: held.saturating_mul(8).min(max), last: Mutex::default() }
    }

    /// Counts the bits of the whole bitmap.
    pub(super) fn count(&self, file: &Backing, budget: &Budget) -> Result<Counts, Error> {
        budget.bytes(&file.name, self.len.div_ceil(8))?;
        let chunks = usize::try_from(self.len.div_ceil(CHUNK_BITS)).unwrap_or(usize::MAX);
        let mut counts = Vec::with_capacity(chunks.saturating_add(1));
        let (mut total, mut batch) = (0u64, vec![0u8; BATCH]);
        counts.push(0);
        while counts.len() <= chunks {
            let done = (counts.len() as u64).saturating_sub(1).saturating_mul(CHUNK);
            batch.fill(0);
            // Unreadable bits count as zero: those pages are holes.
            let _ = file.read(self.at.saturating_add(done), &mut batch);
            for chunk in
                batch.chunks(CHUNK_LEN).take(chunks.saturating_sub(counts.len()).saturating_add(1))
            {
                total = total.saturating_add(ones(chunk));
                counts.push(total);
            }
        }
        Ok(Counts(counts))
    }

    /// The bit of a page frame; none if the file lacks it.
    pub(super) fn is_set(&self, file: &Backing, pfn: u64) -> Option<bool> {
        let mut byte = [0u8; 1];
        if pfn >= self.len
            || !matches!(file.read(self.at.saturating_add(pfn >> 3), &mut byte), Got::All)
        {
            return None;
        }
        Some(bit(&byte, pfn & 7))
    }

    /// The chunk with the bit of `pfn`, and the page frame of its first bit. Bits past the end are
    /// 0.
    pub(super) fn chunk(&self, file: &Backing, pfn: u64) -> Option<Chunk> {
        let index = pfn / CHUNK_BITS;
        let first = index.saturating_mul(CHUNK_BITS);
        let mut chunk = [0u8; CHUNK_LEN];
        if pfn >= self.len {
            return None;
        }
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = last.filter(|known| known.0 == first) {
            return Some(known);
        }
        match file.read(self.at.saturating_add(index.saturating_mul(CHUNK)), &mut chunk) {
            Got::Ended(got) if first.saturating_add((got as u64).saturating_mul(8)) <= pfn => {
                return None;
            }
            Got::Failed(_) => return None,
            Got::All | Got::Ended(_) => {}
        }
        let left = self.len.saturating_sub(first);
        for (i, byte) in chunk.iter_mut().enumerate() {
            let valid = left.saturating_sub((i as u64).saturating_mul(8));
            if valid < 8 {
                *byte &=
                    1u8.checked_shl(u32::try_from(valid).unwrap_or(0)).unwrap_or(0).wrapping_sub(1);
            }
        }
        *last = Some((first, chunk));
        *last
    }

    /// True if the bit of `pfn` is set; and the number of set bits before it.
    pub(super) fn rank(&self, counts: &Counts, file: &Backing, pfn: u64) -> Option<(bool, u64)> {
        let before = *counts.0.get(usize::try_from(pfn / CHUNK_BITS).ok()?)?;
        let (first, chunk) = self.chunk(file, pfn)?;
        let within = pfn.saturating_sub(first);
        let (whole, rest) = chunk.split_at_checked(usize::try_from(within >> 3).ok()?)?;
        let byte = rest.first().copied().unwrap_or(0);
        let below = byte & 1u8.checked_shl((within & 7) as u32).unwrap_or(0).wrapping_sub(1);
        let count =
            before.saturating_add(ones(whole)).saturating_add(u64::from(below.count_ones()));
        Some((bit(rest, within & 7), count))
    }

    /// First set bit at or after `pfn`, or the number of bits.
    pub(super) fn next_set(&self, counts: &Counts, file: &Backing, pfn: u64) -> u64 {
        let mut at = pfn;
        while at < self.len {
            let index = usize::try_from(at / CHUNK_BITS).unwrap_or(usize::MAX);
            let empty = counts.0.get(index) == counts.0.get(index.saturating_add(1));
            let next = (at / CHUNK_BITS).saturating_add(1).saturating_mul(CHUNK_BITS);
            if let Some((first, chunk)) = if empty { None } else { self.chunk(file, at) } {
                let found = (at..next).find(|n| bit_of(&chunk, n.saturating_sub(first)));
                if let Some(found) = found {
                    return found;
                }
            }
            at = next;
        }
        self.len
    }
}

/// Number of set bits in `bytes`.
fn ones(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let words: u64 = words.iter().map(|w| u64::from(u64::from_le_bytes(*w).count_ones())).sum();
    words.saturating_add(rest.iter().map(|b| u64::from(b.count_ones())).sum())
}

/// Bit `n`, below 8, of the first byte.
fn bit(bytes: &[u8], n: u64) -> bool {
    bytes.first().is_some_and(|b| b >> (n & 7) & 1 != 0)
}

/// Bit `n` of `bytes`.
pub(super) fn bit_of(bytes: &[u8], n: u64) -> bool {
    usize::try_from(n >> 3).ok().and_then(|at| bytes.get(at..)).is_some_and(|rest| bit(rest, n & 7))
}

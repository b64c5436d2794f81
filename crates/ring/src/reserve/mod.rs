//! Reserves space: gives each event its own bytes in the ring, and commits the event when it is
//! complete. The three algorithms are `rseq`, `lockless` and `locked`. The `record` function of
//! each records one event. Once it has returned `Ok`, the event can be recovered after a crash at
//! any later instruction. Otherwise it returns why the event was lost. [`crate::Channel`] calls
//! them directly: the fast path has no call through a table.

pub(crate) mod lane;
mod lane_cache;
pub(crate) mod locked;
pub(crate) mod lockless;
#[cfg(any(loom, not(target_arch = "x86_64")))]
pub(crate) mod never;
pub(crate) mod rseq;
pub(crate) mod rseq_fast;
pub(crate) mod single_writer;

#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(any(loom, miri))))]
pub(crate) use self::lane_cache::forget as forget_lane;

use lastwords_abi::header::LEN_FULL;
use lastwords_abi::packet::{HEADER_LEN, TRAILER_LEN, at};

use crate::hooks::bytes;
use crate::memory::Memory;
use crate::packet::{self, Closing};
use crate::record::{Chunk, Piece, Record};
use crate::stream::Stream;

/// The location of a position in its ring.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    /// Offset of the position's sub-buffer in the half.
    pub(crate) sub_buffer: u64,
    /// Offset of the position in the sub-buffer.
    pub(crate) within: u64,
    /// Number of the sub-buffer since the start of the ring.
    pub(crate) number: u64,
}

impl Stream {
    /// Returns the location of `position`.
    #[inline]
    pub(crate) fn place(&self, position: u64) -> Place {
        let size = self.spec.sub_buffer_size;
        Place {
            sub_buffer: position & (self.half_size() - 1) & !(size - 1),
            within: position & (size - 1),
            number: position >> self.size_shift,
        }
    }

    /// Returns the position of the sub-buffer after that of `position`.
    pub(crate) fn next_sub_buffer(&self, position: u64) -> u64 {
        (position | (self.spec.sub_buffer_size - 1)) + 1
    }

    /// Returns true if an event of `len` bytes, header included, fits after `within`.
    #[inline]
    pub(crate) fn fits(&self, within: u64, len: u64) -> bool {
        within >= HEADER_LEN as u64
            && within + len <= self.spec.sub_buffer_size - TRAILER_LEN as u64
    }

    /// Returns true if the event does not fit into an empty sub-buffer. The calculation uses the
    /// longest header, which the first event may get. So the limit is the same for every
    /// reservation and does not depend on the clock.
    pub(crate) fn is_too_big(&self, record: &Record<'_>) -> bool {
        (record.len as u64).saturating_add(LEN_FULL as u64) > self.room()
    }

    /// Returns the header of the sub-buffer at `place` as it must be when the sub-buffer is closed
    /// at `within`, and its checksum.
    ///
    /// # Safety
    /// All `within` bytes of the sub-buffer are committed, and only closing threads write them.
    pub(crate) unsafe fn closing<M: Memory>(
        &self,
        memory: M,
        place: Place,
        end: u64,
    ) -> ([u8; HEADER_LEN], [u8; 8]) {
        let (from, _) = memory.run(place.sub_buffer + at::TIMESTAMP_BEGIN as u64);
        bytes!(reads, from, 8);
        // SAFETY: the caller guarantees the bytes, and closing threads never write these. A header
        // is in one page, because sub-buffers have whole pages, and at a multiple of 8.
        let begin = unsafe { from.cast::<u64>().read_volatile() };
        let closing = Closing { end, content: place.within, discarded: self.lost() };
        let header = packet::header(&self.spec, place.number, begin, closing);
        // SAFETY: the caller guarantees the bytes.
        let sum = unsafe { packet::checksum(memory, place.sub_buffer, &header, place.within) };
        (header, sum.to_ne_bytes())
    }
}

/// Returns `clock`, or `last` if the clock has stepped back by a small amount (counters of two
/// CPUs, a wall clock).
pub(crate) fn not_before(clock: u64, last: u64) -> u64 {
    let back = last.wrapping_sub(clock);
    if clock < last && back >> 40 == 0 { last } else { clock }
}

/// Writes exactly the bytes of the chunk.
///
/// # Safety
/// This thread may write those bytes, in the half that `memory` belongs to.
#[inline(always)]
pub(crate) unsafe fn write<M: Memory>(memory: M, chunk: &Chunk<'_>) {
    chunk.pieces(memory, |Piece { dst, src, len }| {
        bytes!(writes, dst, len);
        // SAFETY: `len` bytes follow `dst` in the half, and the caller guarantees that it may write
        // them; `src` is not ring memory.
        unsafe { copy(src, dst, len) };
        true
    });
}

/// Copies `len` bytes. Most events consist of short runs. These are copied without a call and
/// without a loop, which the compiler would turn into a call.
///
/// # Safety
/// The conditions of [`core::ptr::copy_nonoverlapping`] apply.
#[inline(always)]
pub unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: `ends` is called only if `len` is at least the size of its type; the bytes copied
    // from the middle are within `len`.
    unsafe {
        match len {
            1..4 => {
                ends::<u8>(from, to, len);
                to.add(len / 2).write(from.add(len / 2).read());
            }
            4..8 => ends::<u32>(from, to, len),
            8..=16 => ends::<u64>(from, to, len),
            17..=32 => ends::<[u64; 2]>(from, to, len),
            33..=64 => {
                ends::<[u64; 2]>(from, to, len);
                ends::<[u64; 2]>(from.add(16), to.add(16), (len - 32).max(16));
            }
            _ => core::ptr::copy_nonoverlapping(from, to, len),
        }
    }
}

/// Copies the first and the last `T` of `len` bytes. They overlap if there are fewer than two.
///
/// # Safety
/// `len` bytes are readable at `from` and writable at `to`, and `len` is at least the size of `T`.
#[inline(always)]
unsafe fn ends<T: Copy>(from: *const u8, to: *mut u8, len: usize) {
    let last = len - size_of::<T>();
    // SAFETY: both values are within the `len` bytes of either side.
    unsafe {
        let (first, second) =
            (from.cast::<T>().read_unaligned(), from.add(last).cast::<T>().read_unaligned());
        to.cast::<T>().write_unaligned(first);
        to.add(last).cast::<T>().write_unaligned(second);
    }
}

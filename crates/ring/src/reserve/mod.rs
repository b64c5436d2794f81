//! Space reservation: gives each event a place of its own in the ring, and commits the event when it is whole. The three
//! algorithms are `rseq`, `lockless` and `locked`. The `record` function of each records one event; once it has returned
//! `Ok`, the event is recovered after a crash at any later instruction. Else it returns why the event was lost.

mod lane_cache;
pub(crate) mod locked;
pub(crate) mod lockless;
pub(crate) mod rseq;
pub(crate) mod rseq_fast;
pub(crate) mod single_writer;

use lastwords_abi::header::LEN_FULL;
use lastwords_abi::packet::{HEADER_LEN, TRAILER_LEN, at};

use crate::hooks::bytes;
use crate::memory::Memory;
use crate::packet::{self, Closing};
use crate::record::{Chunk, Piece, Record};
use crate::stream::Stream;

/// Where a position lies in its ring.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    /// Offset in the half of the position's sub-buffer.
    pub(crate) sub_buffer: u64,
    /// Offset in the sub-buffer.
    pub(crate) within: u64,
    /// Number of the sub-buffer since the ring was begun.
    pub(crate) number: u64,
}

impl Stream {
    /// Where `position` lies.
    #[inline]
    pub(crate) fn place(&self, position: u64) -> Place {
        let size = self.spec.sub_buffer_size;
        Place {
            sub_buffer: position & (self.half_size() - 1) & !(size - 1),
            within: position & (size - 1),
            number: position >> self.size_shift,
        }
    }

    /// Position of the sub-buffer behind that of `position`.
    pub(crate) fn next_sub_buffer(&self, position: u64) -> u64 {
        (position | (self.spec.sub_buffer_size - 1)) + 1
    }

    /// An event of `len` bytes, header included, fits behind `within`.
    #[inline]
    pub(crate) fn fits(&self, within: u64, len: u64) -> bool {
        within >= HEADER_LEN as u64 && within + len <= self.spec.sub_buffer_size - TRAILER_LEN as u64
    }

    /// The event does not fit into an empty sub-buffer. The longest header is counted, which the first event may get: so the
    /// limit is the same for every reservation, and no event is refused or not by the state of the clock.
    pub(crate) fn is_too_big(&self, record: &Record<'_>) -> bool {
        (record.len as u64).saturating_add(LEN_FULL as u64) > self.room()
    }

    /// Header of the sub-buffer at `place` as it stands when closed at `within`, and its checksum.
    ///
    /// # Safety
    /// All `within` bytes of the sub-buffer are committed, and nobody but closing threads writes them.
    pub(crate) unsafe fn closing<M: Memory>(&self, memory: M, place: Place, end: u64) -> ([u8; HEADER_LEN], [u8; 8]) {
        let (from, _) = memory.run(place.sub_buffer + at::TIMESTAMP_BEGIN as u64);
        bytes!(reads, from, 8);
        // SAFETY: as the caller vouches; closing threads never write these bytes. A header lies in one page, as sub-buffers have
        // whole pages, and at a multiple of 8.
        let begin = unsafe { from.cast::<u64>().read_volatile() };
        let closing = Closing { end, content: place.within, discarded: self.lost() };
        let header = packet::header(&self.spec, place.number, begin, closing);
        // SAFETY: as the caller vouches.
        let sum = unsafe { packet::checksum(memory, place.sub_buffer, &header, place.within) };
        (header, sum.to_ne_bytes())
    }
}

/// `clock`, but never before `last` where the clock has stepped back by little (counters of two CPUs, a wall clock).
pub(crate) fn not_before(clock: u64, last: u64) -> u64 {
    let back = last.wrapping_sub(clock);
    if clock < last && back >> 40 == 0 { last } else { clock }
}

/// Writes the chunk, exactly its bytes.
///
/// # Safety
/// Those bytes are this thread's to write, in the half that `memory` is of.
#[inline(always)]
pub(crate) unsafe fn write<M: Memory>(memory: M, chunk: &Chunk<'_>) {
    chunk.pieces(memory, |Piece { dst, src, len }| {
        bytes!(writes, dst, len);
        // SAFETY: `len` bytes lie behind `dst` in the half, and the caller vouches for them; `src` is not ring memory.
        unsafe { copy(src, dst, len) };
        true
    });
}

/// Copies `len` bytes; short runs, of which events are made, without a call and without a loop, of which the compiler would make
/// a call.
///
/// # Safety
/// As for [`core::ptr::copy_nonoverlapping`].
#[inline(always)]
unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: `ends` is called where `len` is at least the size of its type; what is copied from the middle lies within `len`.
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

/// Copies the first and the last `T` of `len` bytes, which overlap where there are fewer than two.
///
/// # Safety
/// `len` bytes are readable at `from` and writable at `to`, and they hold a `T`.
#[inline(always)]
unsafe fn ends<T: Copy>(from: *const u8, to: *mut u8, len: usize) {
    let last = len - size_of::<T>();
    // SAFETY: both lie in the `len` bytes of either side.
    unsafe {
        let (first, second) = (from.cast::<T>().read_unaligned(), from.add(last).cast::<T>().read_unaligned());
        to.cast::<T>().write_unaligned(first);
        to.add(last).cast::<T>().write_unaligned(second);
    }
}

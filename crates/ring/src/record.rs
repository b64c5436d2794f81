//! One event while it is recorded: its payload, and the copying of the payload.

use core::num::NonZeroU32;

use lastwords_abi::stream as abi;

use crate::memory::Memory;

/// Reasons why an event was not recorded. Each value is the index of its counter in
/// [`lastwords_abi::stream::StreamControl::lost`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Lost {
    /// The ring is in discard mode and has no room.
    Full = abi::LOST_FULL,
    /// The event is larger than a sub-buffer, or has too many pieces.
    TooBig = abi::LOST_TOO_BIG,
    /// There is no free thread entry, or the nesting is deeper than
    /// [`lastwords_abi::session::MAX_LEVELS`].
    NoEntry = abi::LOST_NO_ENTRY,
    /// Living threads are still writing in all sub-buffers, or the next one gets no memory.
    Busy = abi::LOST_BUSY,
    /// The lock could not be taken in bounded time.
    Lock = abi::LOST_LOCK,
}

/// An event: its id and its payload (contexts first), in parts that follow each other in memory
/// order.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Record<'a> {
    /// Event id in the channel.
    pub id: u16,
    /// The payload's parts.
    pub parts: &'a [&'a [u8]],
    /// Total bytes of the parts.
    pub len: usize,
}

/// The last value of a payload. It is copied into the ring directly from the caller's memory.
#[derive(Debug, Clone, Copy)]
pub enum Tail<'a> {
    /// Text without a NUL inside. In the ring, a NUL follows it.
    Text(&'a [u8]),
    /// Bytes that are copied without changes.
    Bytes(&'a [u8]),
}

impl<'a> Tail<'a> {
    /// Largest number of bytes in front of a tail with which the fast path records it.
    pub const MOST_BEFORE: usize = 20;

    /// Returns the bytes to copy, without the NUL.
    #[inline(always)]
    pub(crate) fn bytes(self) -> &'a [u8] {
        match self {
            Self::Text(bytes) | Self::Bytes(bytes) => bytes,
        }
    }

    /// Returns the number of bytes in the ring.
    #[cfg(any(target_arch = "x86_64", loom))]
    #[inline(always)]
    pub(crate) fn size(self) -> usize {
        self.bytes().len() + usize::from(matches!(self, Self::Text(_)))
    }
}

/// A short text of C. A bit marks its end: the section finds the length from that bit while it
/// reads the clock.
#[derive(Debug, Clone, Copy)]
pub struct ShortText {
    /// Address of the text. [`Self::BLOCK`] bytes are readable there.
    pub at: *const u8,
    /// One bit for each of these bytes; it is set if the byte is zero. The text ends before the
    /// first such byte.
    pub zeros: NonZeroU32,
}

impl ShortText {
    /// Number of bytes that are examined, and copied, together.
    pub const BLOCK: usize = 32;
}

/// Lengths of a tail that a section copies without a jump that depends on the length, in bytes.
pub(crate) const VARYING: core::ops::RangeInclusive<usize> = 16..=128;

/// A payload with zeros after it, so that a section copies it in whole blocks.
#[derive(Debug, Clone, Copy)]
pub struct Padded<'a> {
    /// The payload and the zeros.
    bytes: &'a [u8],
}

impl<'a> Padded<'a> {
    /// Number of zeros after the payload. A section copies blocks of this size.
    pub const PADDING: usize = 16;

    /// Takes a payload with [`Self::PADDING`] zeros after it. Returns none if `bytes` are too few.
    ///
    /// ```
    /// let padded = lastwords_ring::Padded::new(b"payload\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0").expect("16 zeros");
    /// assert_eq!(padded.payload(), b"payload");
    /// ```
    #[inline(always)]
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Option<Self> {
        (bytes.len() >= Self::PADDING).then_some(Self { bytes })
    }

    /// Returns the payload.
    #[inline(always)]
    #[must_use]
    pub fn payload(self) -> &'a [u8] {
        &self.bytes[..self.bytes.len() - Self::PADDING]
    }

    /// Returns the address of the payload and of the zeros after it.
    #[inline(always)]
    #[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(loom)))]
    pub(crate) fn as_ptr(self) -> *const u8 {
        self.bytes.as_ptr()
    }
}

/// Returns `N` words that contain the bytes of `first` followed by those of `words`, all in memory
/// order. Missing words are zero, and words that do not fit are left out.
#[inline(always)]
#[must_use]
pub fn prepend<const N: usize>(first: u32, words: &[u64]) -> [u64; N] {
    core::array::from_fn(|n| prepended(first, words, n))
}

/// Returns word `n` of [`prepend`].
#[inline(always)]
pub(crate) fn prepended(first: u32, words: &[u64], n: usize) -> u64 {
    let word = |n: usize| words.get(n).copied().unwrap_or(0);
    match (n, cfg!(target_endian = "little")) {
        (0, true) => u64::from(first) | word(0) << 32,
        (0, false) => u64::from(first) << 32 | word(0) >> 32,
        (_, true) => word(n - 1) >> 32 | word(n) << 32,
        (_, false) => word(n - 1) << 32 | word(n) >> 32,
    }
}

/// One copy: `len` bytes from `src` to `dst`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Piece {
    /// Destination.
    pub dst: *mut u8,
    /// Source.
    pub src: *const u8,
    /// Number of bytes.
    pub len: usize,
}

/// Bytes to write at an offset of a half: a first slice, and parts that follow it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chunk<'a> {
    /// Offset in the half.
    pub(crate) offset: u64,
    /// The first bytes.
    pub(crate) first: &'a [u8],
    /// The parts that follow `first`.
    pub(crate) parts: &'a [&'a [u8]],
}

impl<'a> Chunk<'a> {
    /// Makes a chunk of one slice.
    pub(crate) fn new(offset: u64, first: &'a [u8]) -> Self {
        Self { offset, first, parts: &[] }
    }

    /// Calls `each` with every copy, in order, until it returns false. Returns true if it never
    /// did.
    #[inline(always)]
    pub(crate) fn pieces<M: Memory>(&self, memory: M, mut each: impl FnMut(Piece) -> bool) -> bool {
        let mut offset = self.offset;
        let mut part = |part: &[u8]| {
            let mut src = part.as_ptr();
            let mut runs = memory.runs(offset, part.len());
            offset += part.len() as u64;
            runs.all(|(dst, len)| {
                let piece = Piece { dst, src, len };
                src = src.wrapping_add(len);
                each(piece)
            })
        };
        part(self.first) && self.parts.iter().all(|bytes| part(bytes))
    }
}

//! One event on its way into the ring.

use core::num::NonZeroU32;

use lastwords_abi::stream as abi;

use crate::memory::Memory;

/// Why an event was not recorded; each is the index of its counter in [`lastwords_abi::stream::StreamControl::lost`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Lost {
    /// Discard mode, and no room.
    Full = abi::LOST_FULL,
    /// Larger than a sub-buffer, or in too many pieces.
    TooBig = abi::LOST_TOO_BIG,
    /// No free thread entry, or nested deeper than [`lastwords_abi::session::MAX_LEVELS`].
    NoEntry = abi::LOST_NO_ENTRY,
    /// All sub-buffers are still being written by living threads.
    Busy = abi::LOST_BUSY,
    /// The lock was not had in bounded time.
    Lock = abi::LOST_LOCK,
}

/// An event: its id and its payload (contexts first), in parts that follow each other in memory order.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Record<'a> {
    /// Event id in the channel.
    pub id: u16,
    /// The payload's parts.
    pub parts: &'a [&'a [u8]],
    /// Their bytes in all.
    pub len: usize,
}

/// The last value of a payload, which is copied into the ring from where it lies.
#[derive(Debug, Clone, Copy)]
pub enum Tail<'a> {
    /// Text without NUL inside; a NUL follows it in the ring.
    Text(&'a [u8]),
    /// Bytes as they are.
    Bytes(&'a [u8]),
}

impl<'a> Tail<'a> {
    /// The bytes to copy, without the NUL.
    #[inline(always)]
    pub(crate) fn bytes(self) -> &'a [u8] {
        match self {
            Self::Text(bytes) | Self::Bytes(bytes) => bytes,
        }
    }

    /// Bytes that it takes in the ring.
    #[cfg(any(target_arch = "x86_64", loom))]
    #[inline(always)]
    pub(crate) fn size(self) -> usize {
        self.bytes().len() + usize::from(matches!(self, Self::Text(_)))
    }
}

/// A short text of C. A bit tells where it ends: the section finds the length from that bit while it reads the clock.
#[derive(Debug, Clone, Copy)]
pub struct ShortText {
    /// Where the text begins; [`Self::BLOCK`] bytes are readable there.
    pub at: *const u8,
    /// A bit for each of these bytes: whether it is zero. The text ends before the first such byte.
    pub zeros: NonZeroU32,
}

impl ShortText {
    /// Bytes that are looked at, and copied, together.
    pub const BLOCK: usize = 32;
}

/// The bytes of `first` and behind them those of `words`, in `N` words; all in memory order. Words that are not there are
/// zero, and what finds no room is left out.
#[inline(always)]
#[must_use]
pub fn prepend<const N: usize>(first: u32, words: &[u64]) -> [u64; N] {
    core::array::from_fn(|n| prepended(first, words, n))
}

/// Word `n` of [`prepend`].
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
    /// Where to.
    pub dst: *mut u8,
    /// Where from.
    pub src: *const u8,
    /// How many bytes.
    pub len: usize,
}

/// Bytes that belong at an offset of a half: some at hand, and parts that follow them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chunk<'a> {
    /// Where in the half.
    pub(crate) offset: u64,
    /// The first bytes.
    pub(crate) first: &'a [u8],
    /// What follows them.
    pub(crate) parts: &'a [&'a [u8]],
}

impl<'a> Chunk<'a> {
    /// The bytes of one slice.
    pub(crate) fn of(offset: u64, first: &'a [u8]) -> Self {
        Self { offset, first, parts: &[] }
    }

    /// Calls `each` with every copy, in order, until it returns false; whether it never did.
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

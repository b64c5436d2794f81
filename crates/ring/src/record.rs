//! One event on its way into the ring.

use core::mem::MaybeUninit;

use crate::hooks::{point, writes};
use crate::memory::Memory;

/// Why an event was not recorded; each has its counter in [`lastwords_abi::stream::StreamControl::lost`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lost {
    /// Discard mode, and no room.
    Full,
    /// Larger than a sub-buffer, or in too many pieces.
    TooBig,
    /// No free thread entry, or nested deeper than [`lastwords_abi::session::MAX_LEVELS`].
    NoEntry,
    /// All sub-buffers are still being written by living threads.
    Busy,
    /// The lock was not had in bounded time.
    Lock,
}

impl Lost {
    /// Index of its counter.
    #[must_use]
    pub fn counter(self) -> usize {
        use lastwords_abi::stream as abi;
        match self {
            Self::Full => abi::LOST_FULL,
            Self::TooBig => abi::LOST_TOO_BIG,
            Self::NoEntry => abi::LOST_NO_ENTRY,
            Self::Busy => abi::LOST_BUSY,
            Self::Lock => abi::LOST_LOCK,
        }
    }
}

/// An event: its id and its payload (contexts first), in parts that follow each other in memory order.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    /// Event id in the channel.
    pub id: u16,
    /// The payload's parts.
    pub parts: &'a [&'a [u8]],
    /// Their bytes in all.
    pub len: usize,
}

impl<'a> Record<'a> {
    /// An event of these parts.
    #[must_use]
    pub fn new(id: u16, parts: &'a [&'a [u8]]) -> Self {
        Self { id, parts, len: parts.iter().map(|p| p.len()).sum() }
    }
}

/// One copy: `len` bytes from `src` to `dst`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Piece {
    /// Where to.
    pub dst: *mut u8,
    /// Where from.
    pub src: *const u8,
    /// How many bytes.
    pub len: usize,
}

/// Most copies of one event: parts and page borders together.
pub const MAX_PIECES: usize = 48;

/// The copies that put bytes into the ring.
#[allow(missing_debug_implementations, reason = "raw copies, most of them not there")]
pub struct Pieces {
    list: [MaybeUninit<Piece>; MAX_PIECES],
    used: usize,
}

impl Pieces {
    /// No copies.
    #[inline]
    #[must_use]
    pub fn new() -> Self {
        Self { list: [const { MaybeUninit::uninit() }; MAX_PIECES], used: 0 }
    }

    /// Adds the copies that bring `bytes` to `offset` of the half; false when there are too many.
    #[inline]
    pub fn add<M: Memory>(&mut self, memory: M, mut offset: u64, bytes: &[u8]) -> bool {
        let mut rest = bytes;
        while !rest.is_empty() {
            let (dst, run) = memory.run(offset);
            let len = run.min(rest.len());
            let Some(piece) = self.list.get_mut(self.used) else { return false };
            piece.write(Piece { dst, src: rest.as_ptr(), len });
            self.used += 1;
            offset += len as u64;
            rest = &rest[len..];
        }
        true
    }

    /// The copies.
    #[must_use]
    pub fn as_slice(&self) -> &[Piece] {
        // SAFETY: `add` initialised the first `used` pieces.
        unsafe { core::slice::from_raw_parts(self.list.as_ptr().cast(), self.used) }
    }

    /// Does the copies, one byte run after the other.
    ///
    /// # Safety
    /// Each `dst` is writable for its `len`, and no other thread reads or writes those bytes meanwhile.
    pub unsafe fn copy(&self) {
        for p in self.as_slice() {
            point!(Step);
            writes!(p.dst, p.len);
            // SAFETY: the caller vouches for `dst`; `src` came from a slice that outlives `self`'s use in a recorder;
            // ring memory and the caller's payload do not overlap.
            unsafe { core::ptr::copy_nonoverlapping(p.src, p.dst, p.len) };
        }
    }
}

impl Default for Pieces {
    fn default() -> Self {
        Self::new()
    }
}

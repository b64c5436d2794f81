//! The stream region: the ring of one channel on one CPU.
//!
//! Order: [`RegionHeader`](crate::region::RegionHeader) at 0, [`StreamInfo`] at 128 (fixed),
//! [`StreamControl`] at [`CONTROL_OFF`], then at the offsets that `StreamInfo` gives the slots of
//! both halves and, page-aligned, the data of both. In a region that a receiver made of a stream,
//! the data are in front of the slots. A stream has two halves, alike: one is live, the other the
//! spare that a snapshot swaps in.
//!
//! Positions are bytes since the half was begun, and only grow; sub-buffer number = position /
//! sub-buffer size; its place = number mod sub-buffers. Position `first` of a half
//! ([`HalfControl::first`]) is where it was begun anew.

use crate::sync::{AtomicU32, AtomicU64};

/// [`StreamInfo::cpu`] of the stream that is not bound to a CPU.
pub const ANY_CPU: u32 = u32::MAX;
/// Offset of [`StreamControl`] in the region.
pub const CONTROL_OFF: usize = 256;
/// Bits of a position in [`HalfControl::reserve`] of a lockless stream.
pub const POSITION_BITS: u32 = 52;
/// Set in [`HalfControl::reserve`] when the half was swapped out: nothing may be reserved in it.
pub const CLOSED_BIT: u64 = 1 << 63;
/// Shift of the owner (thread entry * [`crate::session::MAX_LEVELS`] + level, plus one; 0 = none)
/// in [`HalfControl::reserve`]; 11 bits.
pub const OWNER_SHIFT: u32 = POSITION_BITS;

/// Geometry; fixed, covered by the region's checksum.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct StreamInfo {
    /// Channel id.
    pub channel: u32,
    /// CPU, or [`ANY_CPU`].
    pub cpu: u32,
    /// One of [`crate::session`]'s `RESERVATION_`: how THIS stream is written.
    pub reservation: u32,
    /// One of [`crate::session`]'s `MODE_`.
    pub mode: u32,
    /// Bytes of a sub-buffer, a power of two.
    pub sub_buffer_size: u64,
    /// Sub-buffers of a half, a power of two.
    pub sub_buffers: u32,
    /// Bytes of a page of the page table; 0 = the data is contiguous.
    pub page_size: u32,
    /// Offsets in this region of the two slot tables ([`Slot`] times `sub_buffers`).
    pub slots_off: [u64; 2],
    /// Offsets in this region of the data of the two halves; or, where `page_size` is not 0, of
    /// their page tables: a u64 address in the writer's memory for each page, 0 = not allocated.
    pub data_off: [u64; 2],
}
const _: () = assert!(size_of::<StreamInfo>() == 64);

/// The words of a stream that recorders and readers write.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct StreamControl {
    /// Xor'd with [`crate::session::Control::flip`]: which half is live; only bit 0.
    pub flip: AtomicU32,
    /// Events of the stream that were lost because the ring got no memory. They are also counted
    /// in `lost`, as [`LOST_BUSY`]. 0 in sessions before version 1.3.
    pub refused: AtomicU32,
    /// Value of `lost` at the last consuming read. The next consuming read reports the difference.
    pub told: [AtomicU64; 7],
    /// Locked streams: held while recording. See [`crate::session::OwnerLock`].
    pub lock: AtomicU64,
    /// Cause counters of the stream, for its whole life.
    pub lost: [AtomicU64; 7],
    /// The halves.
    pub half: [HalfControl; 2],
}
const _: () = assert!(size_of::<StreamControl>() == 128 + 2 * 192 || cfg!(loom));

/// Index in [`StreamControl::lost`]: no room in discard mode.
pub const LOST_FULL: usize = 0;
/// Larger than a sub-buffer.
pub const LOST_TOO_BIG: usize = 1;
/// No free entry for the thread (lockless) or for the description of the event (the registry is
/// full), or nested too deep.
pub const LOST_NO_ENTRY: usize = 2;
/// No sub-buffer could be begun: a living thread is still writing in it (lockless), or there is no
/// memory for it ([`StreamControl::refused`]).
pub const LOST_BUSY: usize = 3;
/// A lock was not had in bounded time: that of a locked stream, or of the registry by an event that
/// was not known yet.
pub const LOST_LOCK: usize = 4;
/// Reservations that dead threads left unfinished and that were reclaimed when the ring came round:
/// in flight, not lost.
pub const RECLAIMED: usize = 5;
/// Sub-buffers passed over because a living thread was still writing in them.
pub const SKIPPED: usize = 6;

/// One half of a stream.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct HalfControl {
    /// The produced position. rseq and locked: a position; all before it is committed. Lockless:
    /// `closed | owner | position`: all before it is reserved.
    pub reserve: AtomicU64,
    /// rseq and locked: the position that the last attempt would have published, stored before its
    /// bytes are copied; equal to `reserve` when nothing is in flight.
    pub attempt: AtomicU64,
    /// Clock of a committed event that is not newer than the newest; overflow of the 27 bits is
    /// judged by it.
    pub last_clock: AtomicU64,
    pad0: [u64; 5],
    /// Where readers begin: positions before it never existed, were consumed or were cleared, and
    /// are room where events are discarded; it may lie inside a sub-buffer.
    pub first: AtomicU64,
    /// Lockless: a position; all bytes before it in its sub-buffer were committed when it was
    /// stored.
    pub contiguous: AtomicU64,
    /// Bytes of snapshots that were replaced or freed though nobody had consumed them; what is in
    /// this half was recorded next.
    pub dropped: AtomicU64,
    /// Bytes from the begin of the half's data that have memory. Recorders raise it before they
    /// begin a sub-buffer beyond it; the rest of the data is a hole in its file. For recorders; 0
    /// in sessions before version 1.3, whose halves have all their memory.
    pub backed: AtomicU64,
    pad1: [u64; 4],
    /// Position up to which consuming readers have read; never above `first` for longer than it
    /// takes to raise both.
    pub consumed: AtomicU64,
    pad2: [u64; 7],
}
const _: () = assert!(size_of::<HalfControl>() == 192 || cfg!(loom));

/// Lockless: one for each sub-buffer place.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Slot {
    /// Bytes ever committed in this place, as if it had been filled on every lap from lap 0: a lap
    /// `l` is whole at `(l + 1) * sub_buffer_size`. The header's [`crate::packet::HEADER_LEN`]
    /// bytes are committed last, by whoever closes it.
    pub committed: AtomicU64,
    /// Position behind the last event of the sub-buffer last closed or being closed here.
    pub content_end: AtomicU64,
    /// Clock when that sub-buffer was left, which is its end.
    pub end_clock: AtomicU64,
    /// Number plus one of the sub-buffer here whose header is written, or whose other bytes are
    /// all committed: whoever finds that the one has happened and does the other closes the
    /// sub-buffer. For recorders.
    pub arrived: AtomicU64,
    pad0: [u64; 4],
}
const _: () = assert!(size_of::<Slot>() == 64 || cfg!(loom));

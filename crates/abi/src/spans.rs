//! The spans region: spans that are open now, so that a reader lists what was open at death.
//!
//! Order: [`RegionHeader`](crate::region::RegionHeader) at 0, [`SpansControl`] at [`CONTROL_OFF`], [`Span`]s from
//! [`SPANS_OFF`].

use crate::sync::{AtomicU32, AtomicU64};

/// Offset of [`SpansControl`].
pub const CONTROL_OFF: usize = 128;
/// Offset of the first [`Span`].
pub const SPANS_OFF: usize = 192;
/// Bytes of text of a span.
pub const TEXT_LEN: usize = 184;

/// What changes.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct SpansControl {
    /// Entries of the table; fixed.
    pub capacity: u32,
    /// Where to look first for a free entry.
    pub hint: AtomicU32,
    /// Spans that found no free entry.
    pub dropped: AtomicU64,
    /// Next span id to give.
    pub next_id: AtomicU64,
    pad0: [u64; 5],
}
const _: () = assert!(size_of::<SpansControl>() == 64 || cfg!(loom));

/// An open span. It exists while `id` is not 0 and `state` is [`SPAN_OPEN`].
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Span {
    /// 0 = free; claimed by compare-and-swap with the span's id.
    pub id: AtomicU64,
    /// Id of the parent, or 0.
    pub parent: AtomicU64,
    /// Clock when it was opened.
    pub opened: AtomicU64,
    /// `pid << 32 | tid` that opened it.
    pub opener: AtomicU64,
    /// `pid << 32 | tid` of a thread that is in it now, the first where there are many, or 0.
    pub entered: AtomicU64,
    /// 0 being written, [`SPAN_OPEN`].
    pub state: AtomicU32,
    /// Bytes of `text` in use.
    pub text_len: AtomicU32,
    /// Level of the span.
    pub level: AtomicU32,
    /// 0.
    pub reserved: u32,
    /// Low 64 bits of start time of the opener's process, to tell a reused pid.
    pub opener_start: AtomicU64,
    /// `target`, 0x1f, `name`, 0x1f, fields as `key=value` joined by blanks: UTF-8, cut at a character. Written as bytes
    /// before `state`.
    pub text: [u8; TEXT_LEN],
    pad0: [u64; 1],
}
const _: () = assert!(size_of::<Span>() == 256 || cfg!(loom));

/// The entry is complete.
pub const SPAN_OPEN: u32 = 1;

//! The spans region: spans that are open now, so that a reader lists what was open at death.
//!
//! Order: [`RegionHeader`](crate::region::RegionHeader) at 0, [`SpansControl`] at [`CONTROL_OFF`],
//! [`Span`]s from [`SPANS_OFF`].
//!
//! All writes are atomic. [`Span::inside`] is the sequence word of an entry: a recorder that
//! changes more than the number of threads and the end of the text first stores the next generation
//! with [`WRITING`], and last the same generation without it. A reader reads the fields up to the
//! text, then the text, then `inside` again; the entry is whole if both readings have
//! the same generation and neither is `WRITING`.

use crate::sync::{AtomicU32, AtomicU64};

/// Offset of [`SpansControl`].
pub const CONTROL_OFF: usize = 128;
/// Offset of the first [`Span`].
pub const SPANS_OFF: usize = 192;
/// Bytes of text of a span.
pub const TEXT_LEN: usize = 184;

/// Counts of the whole table.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct SpansControl {
    /// Entries of the table; fixed.
    pub capacity: u32,
    /// Where to look first for a free entry.
    pub hint: AtomicU32,
    /// Spans that found no free entry, and none to evict.
    pub dropped: AtomicU64,
    /// Next span id to give.
    pub next_id: AtomicU64,
    /// Open spans whose entries were evicted for newer spans.
    pub evicted: AtomicU64,
    /// Additions to the text of a span that were left out because another thread was adding to it.
    pub skipped: AtomicU64,
    /// Open spans that were taken out of the table because their recorder was taken out of the
    /// program: nothing is known of their end.
    pub abandoned: AtomicU64,
    pad0: [u64; 2],
}
const _: () = assert!(size_of::<SpansControl>() == 64 || cfg!(loom));

/// An open span. It exists while `id` is not 0 and `state` is [`SPAN_OPEN`] or [`SPAN_APPENDING`].
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
    /// `pid << 32 | tid` of the thread that entered it last, or 0 once that thread has left it.
    pub entered: AtomicU64,
    /// 0 being written, [`SPAN_OPEN`], [`SPAN_APPENDING`].
    pub state: AtomicU32,
    /// Bytes of `text` in use. Stored after the bytes.
    pub text_len: AtomicU32,
    /// Low 8 bits: level of the span. Above them: the number of the recorder that has listed it,
    /// the low 24 bits of it, which only its own process reads.
    pub level: AtomicU32,
    /// Low 16 bits: threads that are in the span or add to its text, or [`WRITING`]. High 16 bits:
    /// the generation, which is raised whenever the entry is claimed.
    pub inside: AtomicU32,
    /// Low 64 bits of start time of the opener's process, to tell a reused pid.
    pub opener_start: AtomicU64,
    /// `target`, 0x1f, `name`, 0x1f, fields as `key=value` joined by blanks: UTF-8, as bytes in
    /// memory order, cut at a character, a cut marked by `…`.
    pub text: [AtomicU64; TEXT_LEN / 8],
    /// Clock when a recorder that looked for an entry to evict last found this one in use, the
    /// clock of its opening at first; 0 = in use since.
    pub active: AtomicU64,
}
const _: () = assert!(size_of::<Span>() == 256 || cfg!(loom));

/// The entry is complete.
pub const SPAN_OPEN: u32 = 1;
/// The entry is complete up to `text_len`, and a thread adds to its text.
pub const SPAN_APPENDING: u32 = 2;
/// The number of threads in [`Span::inside`] of an entry that is being written.
pub const WRITING: u32 = 0xffff;

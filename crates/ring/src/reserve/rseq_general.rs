//! Forms of events for which an architecture has no section of their own: they are never recorded here, so that the general way
//! is taken.

use crate::reserve::rseq_fast::Lane;

/// Events in frames go the general way.
///
/// # Safety
/// None needed.
pub(in crate::reserve) unsafe fn record_framed_text<const W: usize>(
    _: &Lane,
    _: u32,
    _: &[u64; W],
    _: usize,
    _: &[u8],
) -> bool {
    false
}

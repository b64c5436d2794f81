//! Architectures without a section: nothing is ever published here, so every event goes to the lockless stream.

use super::Commit;
use crate::record::{Piece, ShortText, Tail};
use crate::reserve::rseq_fast::Lane;

/// Never publishes.
///
/// # Safety
/// None needed.
pub(super) unsafe fn publish(_commit: &Commit<'_>, _pieces: &[Piece]) -> bool {
    false
}

/// Never records.
///
/// # Safety
/// None needed.
pub(in crate::reserve) unsafe fn record<const W: usize>(
    _: &Lane,
    _: u32,
    _: &[u64; W],
    _: usize,
    _: Option<Tail<'_>>,
) -> bool {
    false
}

/// Never records: a text is measured first.
///
/// # Safety
/// None needed.
#[inline(always)]
pub(in crate::reserve) unsafe fn record_short_text(_: &Lane, _: u32, _: (u64, u64), _: usize, _: ShortText) -> bool {
    false
}

//! Architectures without a section of ours: nothing is ever published, so that the lockless way is taken.

use super::Commit;
use crate::record::Piece;
use crate::reserve::rseq_fast::Lane;

pub(in crate::reserve) use super::general::record_framed_text;

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
pub(in crate::reserve) unsafe fn record_words<const W: usize>(_: &Lane, _: u32, _: &[u64; W], _: usize) -> bool {
    false
}

/// Never records.
///
/// # Safety
/// None needed.
pub(in crate::reserve) unsafe fn record_framed<const W: usize>(_: &Lane, _: u32, _: &[u64; W], _: usize) -> bool {
    false
}

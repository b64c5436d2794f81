//! Architectures without a section: nothing is ever published here, so every event goes to the lockless stream.

use super::Commit;
use crate::record::Piece;
use crate::reserve::rseq_fast::Lane;
pub(in crate::reserve) use crate::reserve::rseq_fast::no_tail_section as record_tail;

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

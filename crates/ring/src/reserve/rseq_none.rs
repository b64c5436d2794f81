//! Architectures without a section of ours: nothing is ever published, so that the lockless way is taken.

use super::Commit;
use crate::record::Piece;

/// Never publishes.
///
/// # Safety
/// None needed.
pub(super) unsafe fn publish(_commit: &Commit<'_>, _pieces: &[Piece]) -> bool {
    false
}

/// Never publishes.
///
/// # Safety
/// None needed.
pub(super) unsafe fn publish_words<const W: usize>(_: &Commit<'_>, _: *mut u8, _: u32, _: &[u64; W], _: usize) -> bool {
    false
}

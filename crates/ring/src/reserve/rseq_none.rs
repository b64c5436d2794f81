//! Architectures without a section of ours: nothing is ever published, so that the lockless way is taken.

use super::Commit;
use crate::record::Piece;
use crate::reserve::quick::Check;

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
pub(in crate::reserve) unsafe fn publish_words<const W: usize>(_: &Check<'_>, _: &[u64; W], _: usize) -> bool {
    false
}

/// Never publishes.
///
/// # Safety
/// None needed.
pub(in crate::reserve) unsafe fn publish_text<const W: usize>(_: &Check<'_>, _: &[u64; W], _: &[u8]) -> bool {
    false
}

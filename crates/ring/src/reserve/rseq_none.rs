//! Functions for architectures without a section. They never publish, so every event goes to the
//! lockless stream.

use super::Commit;
use crate::record::{Piece, Tail};
use crate::reserve::lane::Lane;
pub(in crate::reserve) use crate::reserve::never::{
    record_padded, record_short_text, record_varying,
};

/// Never publishes.
///
/// # Safety
/// There are no requirements.
pub(super) unsafe fn publish(_commit: &Commit<'_>, _pieces: &[Piece]) -> bool {
    false
}

/// Never records.
///
/// # Safety
/// There are no requirements.
pub(in crate::reserve) unsafe fn record<const W: usize>(
    _: &Lane,
    _: u32,
    _: &[u64; W],
    _: usize,
    _: usize,
    _: Option<Tail<'_>>,
) -> bool {
    false
}

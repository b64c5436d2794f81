//! Functions for architectures without a section. They never publish, so every event goes to the
//! lockless stream.

use super::Commit;
use crate::record::{Padded, Piece, ShortText, Tail};
use crate::reserve::lane::Lane;

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

/// Never records, because this architecture has no section for such texts: the caller measures a
/// text first.
///
/// # Safety
/// There are no requirements.
#[inline(always)]
pub(in crate::reserve) unsafe fn record_short_text(
    _: &Lane,
    _: u32,
    _: (u64, u64),
    _: usize,
    _: ShortText,
) -> bool {
    false
}

/// Never records.
///
/// # Safety
/// There are no requirements.
#[inline(always)]
pub(in crate::reserve) unsafe fn record_varying(
    _: &Lane,
    _: u32,
    _: u64,
    _: usize,
    _: &[u8],
) -> bool {
    false
}

/// Never records.
///
/// # Safety
/// There are no requirements.
pub(in crate::reserve) unsafe fn record_padded(
    _: &Lane,
    _: u32,
    _: u16,
    _: usize,
    _: Padded<'_>,
) -> bool {
    false
}

//! Ways to record that a machine's sections do not have. They never record, so that the event takes
//! another way.

use super::lane::Lane;
#[cfg(any(loom, not(target_arch = "aarch64")))]
use crate::record::Padded;
use crate::record::ShortText;

/// Never records: the caller measures a text first.
///
/// # Safety
/// There are no requirements.
#[inline(always)]
pub(crate) unsafe fn record_short_text(
    _: &Lane,
    _: u32,
    _: (u64, u64),
    _: usize,
    _: ShortText,
) -> bool {
    false
}

/// Never records: events with a tail take the general path.
///
/// # Safety
/// There are no requirements.
#[inline(always)]
pub(crate) unsafe fn record_varying(_: &Lane, _: u32, _: u64, _: usize, _: &[u8]) -> bool {
    false
}

/// Never records: the payload takes the general path.
///
/// # Safety
/// There are no requirements.
#[cfg(any(loom, not(target_arch = "aarch64")))]
#[inline(always)]
pub(crate) unsafe fn record_padded(_: &Lane, _: u32, _: u16, _: usize, _: Padded<'_>) -> bool {
    false
}

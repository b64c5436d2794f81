//! The room for a span's text in an event.

use std::mem::MaybeUninit;

use lastwords_abi::spans::TEXT_LEN;

use crate::record::encode::writer::INNER_NUL;

/// Bytes that [`show`](super::span_text::show) may write: the longest text, two bytes for `::` and braces, and the rest of
/// a word.
pub(super) const SHOWN_LEN: usize = TEXT_LEN + 16;

/// Room for a span's text in an event.
pub(super) type ShownRoom = [MaybeUninit<u8>; SHOWN_LEN];

/// Replaces NULs in initialised bytes.
#[cold]
#[inline(never)]
pub(super) fn replace_nuls(bytes: &mut [MaybeUninit<u8>]) {
    for byte in bytes {
        // SAFETY: the caller has initialised the bytes.
        if unsafe { byte.assume_init() } == 0 {
            byte.write(INNER_NUL);
        }
    }
}

//! The room for a span's text in an event.

use std::mem::MaybeUninit;

use crate::record::encode::writer::INNER_NUL;
pub(super) use crate::record::in_span::{SHOWN_LEN, ShownRoom};

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

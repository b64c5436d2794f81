//! The end of a text, without a call to the C library: most texts of events are short.

use std::ffi::c_char;
use std::num::NonZeroU32;

/// Bytes of `text` before its NUL.
///
/// # Safety
/// `text` ends with a NUL.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) unsafe fn len(text: *const c_char) -> usize {
    let before = text as usize % BLOCK;
    let mut at = text.wrapping_sub(before);
    // SAFETY: `at` is a multiple of `BLOCK`, which divides the size of a page, and the text has bytes among these, so that they lie
    // in a page of the text.
    let mut found = unsafe { zeros(at) } >> before << before;
    while found == 0 {
        at = at.wrapping_add(BLOCK);
        // SAFETY: as above: the text did not end before `at`.
        found = unsafe { zeros(at) };
    }
    at as usize + found.trailing_zeros() as usize - text as usize
}

/// A bit for each of the first 32 bytes at `text`: whether it is zero. `None` where none is zero, or where the bytes are not of one
/// page. Where there are zeros, the bytes are readable.
///
/// # Safety
/// `text` ends with a NUL.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) unsafe fn zeros_of_block(text: *const c_char) -> Option<NonZeroU32> {
    // SAFETY: the bytes lie in the page in which the text begins. Pages have 4096 bytes or more.
    NonZeroU32::new(if text as usize % 4096 <= 4096 - BLOCK { unsafe { zeros(text) } } else { 0 })
}

/// Bytes that are looked at together.
#[cfg(target_arch = "x86_64")]
const BLOCK: usize = 32;

/// A bit for each of [`BLOCK`] bytes: whether it is zero.
///
/// # Safety
/// The bytes at `at` lie in one page that is readable. Bytes that are none of the text's are read as well, which is why this is not
/// left to the compiler.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn zeros(at: *const c_char) -> u32 {
    let (first, second): (u32, u32);
    // SAFETY: the loads stay in the page that the caller vouches for; every x86_64 has SSE2.
    unsafe {
        std::arch::asm!(
            "pxor {zero}, {zero}",
            "movdqu {x}, [{at}]",
            "movdqu {y}, [{at} + 16]",
            "pcmpeqb {x}, {zero}",
            "pcmpeqb {y}, {zero}",
            "pmovmskb {first:e}, {x}",
            "pmovmskb {second:e}, {y}",
            zero = out(xmm_reg) _,
            x = out(xmm_reg) _,
            y = out(xmm_reg) _,
            at = in(reg) at,
            first = lateout(reg) first,
            second = lateout(reg) second,
            options(pure, readonly, nostack, preserves_flags),
        );
    }
    first | second << 16
}

/// Nothing: no section takes a short text apart from others.
///
/// # Safety
/// None needed.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub(crate) unsafe fn zeros_of_block(_: *const c_char) -> Option<NonZeroU32> {
    None
}

/// Bytes of `text` before its NUL.
///
/// # Safety
/// `text` ends with a NUL.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub(crate) unsafe fn len(text: *const c_char) -> usize {
    // SAFETY: as the caller vouches.
    unsafe { std::ffi::CStr::from_ptr(text) }.count_bytes()
}

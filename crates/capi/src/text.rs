//! The length of a text, without a call to the C library: most texts of events are short.

use std::ffi::c_char;

/// Bytes of `text` before its NUL.
///
/// # Safety
/// `text` ends with a NUL.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) unsafe fn len(text: *const c_char) -> usize {
    let before = text as usize % 16;
    let mut at = text.wrapping_sub(before);
    // SAFETY: `at` is aligned, and the text has bytes among the 16, so that they lie in a page of the text.
    let mut found = unsafe { zeros(at) } >> before << before;
    while found == 0 {
        at = at.wrapping_add(16);
        // SAFETY: as above: the text did not end before `at`.
        found = unsafe { zeros(at) };
    }
    at as usize + found.trailing_zeros() as usize - text as usize
}

/// A bit for each of 16 bytes: whether it is zero.
///
/// # Safety
/// `at` is a multiple of 16, in a page that is readable. Bytes of the 16 that are none of the text's are read as well, which
/// is why this is not left to the compiler.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn zeros(at: *const c_char) -> u32 {
    let mask;
    // SAFETY: an aligned load, which stays in the page that the caller vouches for; every x86_64 has SSE2.
    unsafe {
        std::arch::asm!(
            "pxor {x}, {x}",
            "pcmpeqb {x}, xmmword ptr [{at}]",
            "pmovmskb {mask:e}, {x}",
            x = out(xmm_reg) _,
            at = in(reg) at,
            mask = lateout(reg) mask,
            options(pure, readonly, nostack, preserves_flags),
        );
    }
    mask
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

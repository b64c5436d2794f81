//! Finds the end of a text without a call to the C library, because most texts of events are short.

use std::ffi::c_char;
use std::num::NonZeroU32;

/// Returns the bytes of `text` before its NUL.
///
/// # Safety
/// `text` ends with a NUL.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) unsafe fn len(text: *const c_char) -> usize {
    let before = text as usize % BLOCK;
    let mut at = text.wrapping_sub(before);
    // SAFETY: `at` is a multiple of `BLOCK`, which divides the size of a page. The text has bytes
    // in this block, so the block is in a page of the text.
    let mut found = unsafe { zeros(at) } >> before << before;
    while found == 0 {
        at = at.wrapping_add(BLOCK);
        // SAFETY: the text did not end before `at`, so this block also contains bytes of the text.
        found = unsafe { zeros(at) };
    }
    at as usize + found.trailing_zeros() as usize - text as usize
}

/// Returns one bit for each of the first 32 bytes at `text`, which is set if the byte is zero.
/// Returns `None` if no byte is zero, or if the bytes are not all in one page. If there are zeros,
/// the bytes are readable.
///
/// # Safety
/// `text` ends with a NUL.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) unsafe fn zeros_of_block(text: *const c_char) -> Option<NonZeroU32> {
    // SAFETY: the bytes are in the page in which the text begins. Pages have at least 4096 bytes.
    NonZeroU32::new(if text as usize % 4096 <= 4096 - BLOCK { unsafe { zeros(text) } } else { 0 })
}

/// Number of bytes that are examined together.
#[cfg(target_arch = "x86_64")]
const BLOCK: usize = 32;

/// Returns one bit for each of [`BLOCK`] bytes, which is set if the byte is zero.
///
/// # Safety
/// The bytes at `at` are in one page that is readable. Bytes that do not belong to the text are
/// read too, so this code must not be left to the compiler.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn zeros(at: *const c_char) -> u32 {
    let (first, second): (u32, u32);
    // SAFETY: the loads stay in the page that the caller guarantees; every x86_64 has SSE2.
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

/// Returns nothing, because no section on this architecture handles short texts separately.
///
/// # Safety
/// There are no requirements.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub(crate) unsafe fn zeros_of_block(_: *const c_char) -> Option<NonZeroU32> {
    None
}

/// Returns the bytes of `text` before its NUL.
///
/// # Safety
/// `text` ends with a NUL.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub(crate) unsafe fn len(text: *const c_char) -> usize {
    // SAFETY: the caller guarantees the text.
    unsafe { std::ffi::CStr::from_ptr(text) }.count_bytes()
}

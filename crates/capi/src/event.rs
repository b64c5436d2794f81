//! Callsites and payloads as the macros of `lastwords_event.h` make them.

use std::ffi::{CStr, c_char, c_void};

use lastwords::__private::{Callsite, Part, record_framed, record_framed_text, record_parts, record_words};

use crate::desc::{describe, lw_event_desc};
use crate::text;

/// The static data of a callsite: bit per channel that takes the event, and what the library keeps there.
#[repr(C)]
pub struct lw_callsite {
    /// Not 0: the event is to be recorded, or was never reached.
    pub enabled: u64,
    /// The library's.
    pub known: u32,
    /// The library's.
    pub only: *mut c_void,
    /// The library's.
    pub ids: [u16; 32],
    /// The library's.
    pub desc: *mut c_void,
    /// The library's.
    pub next: *mut c_void,
    /// The library's.
    pub other: *mut c_void,
}

const _: () = assert!(size_of::<lw_callsite>() == size_of::<Callsite>());
const _: () = assert!(align_of::<lw_callsite>() == align_of::<Callsite>());

/// A part of a payload.
#[repr(C)]
pub struct lw_part {
    /// Its bytes.
    pub data: *const c_void,
    /// How many.
    pub len: usize,
}

const _: () = assert!(size_of::<lw_part>() == size_of::<Part>());

/// Records a payload of `len` bytes that lies in whole words. Called by `LW_EVENT` where `site->enabled` was
/// not 0.
///
/// # Safety
/// `site` and `event` are static, and of one callsite; `words` has `len` bytes rounded up to words.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_record_words(
    site: *mut lw_callsite,
    event: *const lw_event_desc,
    words: *const u64,
    len: usize,
) {
    // SAFETY: the caller gives a static callsite, of the library's own layout (asserted above), that changes by atomics
    // only; and as many words as `len` needs.
    let (site, words) = unsafe { (&*site.cast::<Callsite>(), std::slice::from_raw_parts(words, len.div_ceil(8))) };
    // SAFETY: the caller gives a static description.
    record_words(site, words, len, || unsafe { describe(event) });
}

/// Records a payload of 1 to 12 bytes where that is done at once. It lies behind 4 bytes of zeros in the two words; `size`
/// counts these and it. Called by `LW_EVENT`, which calls `lw_record_framed` when it gets false.
///
/// # Safety
/// `site` is static.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_try_2(first: u64, second: u64, site: *mut lw_callsite, size: usize) -> bool {
    // SAFETY: as in `lw_record_words`.
    let site = unsafe { &*site.cast::<Callsite>() };
    record_framed(site, [first, second], size)
}

/// The same with a payload of 13 to 20 bytes, in three words.
///
/// # Safety
/// `site` is static.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_try_3(first: u64, second: u64, site: *mut lw_callsite, size: usize, third: u64) -> bool {
    // SAFETY: as in `lw_record_words`.
    let site = unsafe { &*site.cast::<Callsite>() };
    record_framed(site, [first, second, third], size)
}

/// The same with a payload of up to 12 bytes, in two words, and a text with its NUL behind it. Called by `LW_EVENT`, which
/// calls `lw_record_framed_text` when it gets false.
///
/// # Safety
/// `site` is static; `text` ends with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_try_text(
    first: u64,
    second: u64,
    site: *mut lw_callsite,
    size: usize,
    text: *const c_char,
) -> bool {
    // SAFETY: as in `lw_record_words`; the text ends with a NUL.
    let (site, bytes) =
        unsafe { (&*site.cast::<Callsite>(), std::slice::from_raw_parts(text.cast::<u8>(), text::len(text))) };
    record_framed_text(site, [first, second], size, bytes)
}

/// Records a payload of 1 to 20 bytes, which lies in the words as for `lw_try_3`. Called by `LW_EVENT`.
///
/// # Safety
/// `site` and `event` are static, and of one callsite.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_record_framed(
    site: *mut lw_callsite,
    event: *const lw_event_desc,
    first: u64,
    second: u64,
    third: u64,
    size: usize,
) {
    let words = unframed([first, second, third]);
    // SAFETY: as the caller vouches; `size` counts 4 bytes more than there are, and three words hold 20.
    unsafe { lw_record_words(site, event, words.as_ptr(), size.saturating_sub(4).min(20)) }
}

/// Records a payload of up to 12 bytes, which lies in the words as for `lw_try_2`, and a text with its NUL behind it. Called
/// by `LW_EVENT`.
///
/// # Safety
/// `site` and `event` are static, and of one callsite; `text` ends with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_record_framed_text(
    site: *mut lw_callsite,
    event: *const lw_event_desc,
    first: u64,
    second: u64,
    text: *const c_char,
    size: usize,
) {
    let (head, head_len) = (unframed([first, second, 0]), size.saturating_sub(4).min(12));
    // SAFETY: the text ends with a NUL.
    let text = unsafe { CStr::from_ptr(text) }.to_bytes_with_nul();
    if head_len + text.len() <= 64 {
        let mut words = [head[0], head[1], 0, 0, 0, 0, 0, 0];
        // SAFETY: both the head's bytes and the text's lie within the words, whose bytes are initialised; the text is the
        // caller's and no part of them.
        unsafe {
            let to = words.as_mut_ptr().cast::<u8>().add(head_len);
            std::ptr::copy_nonoverlapping(text.as_ptr(), to, text.len());
            // SAFETY: as the caller vouches.
            return lw_record_words(site, event, words.as_ptr(), head_len + text.len());
        }
    }
    let parts = [
        lw_part { data: head.as_ptr().cast(), len: head_len },
        lw_part { data: text.as_ptr().cast(), len: text.len() },
    ];
    // SAFETY: as the caller vouches.
    unsafe { lw_record_parts(site, event, parts.as_ptr(), parts.len()) }
}

/// What lies behind the first 4 bytes of the words.
fn unframed([first, second, third]: [u64; 3]) -> [u64; 3] {
    let join = |a: u64, b: u64| if cfg!(target_endian = "little") { a >> 32 | b << 32 } else { a << 32 | b >> 32 };
    [join(first, second), join(second, third), join(third, 0)]
}

/// Records a payload given in parts. Called by `LW_EVENT` for long payloads.
///
/// # Safety
/// As for `lw_record_words`; `parts` are `count` parts whose bytes are readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_record_parts(
    site: *mut lw_callsite,
    event: *const lw_event_desc,
    parts: *const lw_part,
    count: usize,
) {
    // SAFETY: as in `lw_record_words`; `lw_part` has the layout of `Part`: a pointer and a length.
    unsafe {
        let (site, parts) = (&*site.cast::<Callsite>(), std::slice::from_raw_parts(parts.cast::<Part>(), count));
        record_parts(site, parts, || describe(event));
    }
}

//! Callsites and payloads as the macros of `lastwords_event.h` make them.

use std::ffi::{c_char, c_void};

use lastwords::__private::{
    Callsite, Part, ShortText, record_parts, record_short, record_short_text, record_text, would_record,
};

use crate::desc::{describe, lw_event_desc};
use crate::text;

#[repr(C)]
pub struct lw_callsite {
    pub enabled: u64,
    pub known: u32,
    pub only: *mut c_void,
    pub ids: [u16; 32],
    pub desc: *mut c_void,
    pub next: *mut c_void,
    pub other: *mut c_void,
}

const _: () = assert!(size_of::<lw_callsite>() == size_of::<Callsite>());
const _: () = assert!(align_of::<lw_callsite>() == align_of::<Callsite>());

#[repr(C)]
pub struct lw_part {
    pub data: *const c_void,
    pub len: usize,
}

const _: () = assert!(size_of::<lw_part>() == size_of::<Part>());

/// Records a payload of `len` bytes, at most 24, that lies in three words, which stay in registers. Called by `LW_EVENT`
/// where `site->enabled` was not 0.
///
/// # Safety
/// `site` and `event` are static, and of one callsite.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_record_short(
    site: *mut lw_callsite,
    event: *const lw_event_desc,
    len: usize,
    first: u64,
    second: u64,
    third: u64,
) {
    // SAFETY: the caller gives a static callsite, of the library's own layout (asserted above), that changes by atomics only.
    let site = unsafe { &*site.cast::<Callsite>() };
    // SAFETY: the caller gives a static description.
    record_short(site, (first, second, third), len, move || unsafe { describe(event) });
}

/// Records a payload of `len` bytes, at most 16, that lies in two words, and `text` with its NUL behind it. Called by
/// `LW_EVENT` as `lw_record_short`.
///
/// # Safety
/// As for `lw_record_short`; `text` ends with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_record_text(
    site: *mut lw_callsite,
    event: *const lw_event_desc,
    len: usize,
    first: u64,
    second: u64,
    text: *const c_char,
) {
    // SAFETY: as in `lw_record_short`; the text ends with a NUL, and its first block is readable where it has zeros.
    let is_recorded = unsafe {
        text::zeros_of_block(text).is_some_and(|zeros| {
            let short = ShortText { at: text.cast(), zeros };
            record_short_text(&*site.cast::<Callsite>(), (first, second), len, short)
        })
    };
    if !is_recorded {
        // SAFETY: as the caller vouches.
        unsafe { record_other_text(site, event, len, first, second, text) };
    }
}

/// Records what the fast path for a short text did not. It takes the arguments of `lw_record_text` in their order, so that the
/// fast path leaves them where they are.
///
/// # Safety
/// As for `lw_record_text`.
#[inline(never)]
unsafe extern "C" fn record_other_text(
    site: *mut lw_callsite,
    event: *const lw_event_desc,
    len: usize,
    first: u64,
    second: u64,
    text: *const c_char,
) {
    // SAFETY: as in `lw_record_short`; the text ends with a NUL, which is counted.
    let (site, text) =
        unsafe { (&*site.cast::<Callsite>(), std::slice::from_raw_parts(text.cast::<u8>(), text::len(text) + 1)) };
    // SAFETY: the caller gives a static description.
    record_text(site, (first, second), len, text, move || unsafe { describe(event) });
}

/// Records a payload given in parts. Called by `LW_EVENT` for long payloads.
///
/// # Safety
/// As for `lw_record_short`; `parts` are `count` parts whose bytes are readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_record_parts(
    site: *mut lw_callsite,
    event: *const lw_event_desc,
    parts: *const lw_part,
    count: usize,
) {
    // SAFETY: as in `lw_record_short`; `lw_part` has the layout of `Part`: a pointer and a length.
    unsafe {
        let (site, parts) = (&*site.cast::<Callsite>(), std::slice::from_raw_parts(parts.cast::<Part>(), count));
        record_parts(site, parts, || describe(event));
    }
}

/// Whether an event of the callsite is recorded now. Called by `LW_EVENT_ENABLED` where `site->enabled` is not 0.
///
/// # Safety
/// `site` and `event` are static, and of one callsite.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_event_enabled(site: *mut lw_callsite, event: *const lw_event_desc) -> bool {
    // SAFETY: as in `lw_record_short`.
    unsafe { would_record(&*site.cast::<Callsite>(), || describe(event)) }
}

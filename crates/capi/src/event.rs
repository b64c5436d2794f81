//! Records events with the callsites and payloads that the macros of `lastwords_event.h` make.

use std::ffi::{c_char, c_void};

use lastwords::__private::{
    Callsite, Part, ShortText, record_parts, record_short, record_short_text, record_text,
    would_record,
};

use crate::desc::{describe, lw_event_desc};
use crate::text;

#[repr(C)]
pub struct lw_callsite {
    pub enabled: u64,
    pub known: u32,
    pub hides: u32,
    pub only: *mut c_void,
    pub ids: [u16; 32],
    pub desc: *mut c_void,
    pub next: *mut c_void,
    pub other: *mut c_void,
    pub filters: *mut c_void,
}

const _: () = assert!(size_of::<lw_callsite>() == size_of::<Callsite>());
const _: () = assert!(align_of::<lw_callsite>() == align_of::<Callsite>());

#[repr(C)]
pub struct lw_part {
    pub data: *const c_void,
    pub len: usize,
}

const _: () = assert!(size_of::<lw_part>() == size_of::<Part>());

/// Records a payload of `len` bytes, at most 24, in three words, which stay in registers.
/// `LW_EVENT` calls this if `site->enabled` is not 0.
///
/// # Safety
/// `site` and `event` are static, and belong to one callsite.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_record_short(
    site: *mut lw_callsite,
    event: *const lw_event_desc,
    len: usize,
    first: u64,
    second: u64,
    third: u64,
) {
    // SAFETY: the caller passes a static callsite. It has the library's own layout (asserted above)
    // and changes only through atomics.
    let site = unsafe { &*site.cast::<Callsite>() };
    // SAFETY: the caller passes a static description.
    record_short(site, (first, second, third), len, move || unsafe { describe(event) });
}

/// Records a payload of `len` bytes, at most 16, in two words, followed by `text` with its NUL.
/// `LW_EVENT` calls this like `lw_record_short`.
///
/// # Safety
/// The conditions of `lw_record_short` apply, and `text` ends with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_record_text(
    site: *mut lw_callsite,
    event: *const lw_event_desc,
    len: usize,
    first: u64,
    second: u64,
    text: *const c_char,
) {
    // SAFETY: the reasons of `lw_record_short` apply. The text ends with a NUL, and its first block
    // is readable if it contains zeros.
    let is_recorded = unsafe {
        text::zeros_of_block(text).is_some_and(|zeros| {
            let short = ShortText { at: text.cast(), zeros };
            record_short_text(&*site.cast::<Callsite>(), (first, second), len, short)
        })
    };
    if !is_recorded {
        // SAFETY: the caller guarantees the conditions.
        unsafe { record_other_text(site, event, len, first, second, text) };
    }
}

/// Records an event that the fast path for a short text did not record. It takes the arguments of
/// `lw_record_text` in their order, so that the fast path need not move them.
///
/// # Safety
/// The conditions of `lw_record_text` apply.
#[inline(never)]
unsafe extern "C" fn record_other_text(
    site: *mut lw_callsite,
    event: *const lw_event_desc,
    len: usize,
    first: u64,
    second: u64,
    text: *const c_char,
) {
    // SAFETY: the reasons of `lw_record_short` apply. The text ends with a NUL, which is counted.
    let (site, text) = unsafe {
        (
            &*site.cast::<Callsite>(),
            std::slice::from_raw_parts(text.cast::<u8>(), text::len(text) + 1),
        )
    };
    // SAFETY: the caller passes a static description.
    record_text(site, (first, second), len, text, move || unsafe { describe(event) });
}

/// Records a payload given in parts. `LW_EVENT` calls this for long payloads.
///
/// # Safety
/// The conditions of `lw_record_short` apply. `parts` leads to `count` parts whose bytes are
/// readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_record_parts(
    site: *mut lw_callsite,
    event: *const lw_event_desc,
    parts: *const lw_part,
    count: usize,
) {
    // SAFETY: the reasons of `lw_record_short` apply. `lw_part` has the layout of `Part`: a pointer
    // and a length.
    unsafe {
        let (site, parts) =
            (&*site.cast::<Callsite>(), std::slice::from_raw_parts(parts.cast::<Part>(), count));
        record_parts(site, parts, || describe(event));
    }
}

/// Returns whether an event of the callsite is recorded now. `LW_EVENT_ENABLED` calls this if
/// `site->enabled` is not 0.
///
/// # Safety
/// `site` and `event` are static, and belong to one callsite.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_event_enabled(
    site: *mut lw_callsite,
    event: *const lw_event_desc,
) -> bool {
    // SAFETY: the reasons of `lw_record_short` apply.
    unsafe { would_record(&*site.cast::<Callsite>(), || describe(event)) }
}

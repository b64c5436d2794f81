//! lastwords for C and C++. `include/lastwords.h` documents every function. A test compares the
//! header with the functions and structures here. The header includes `lastwords_event.h`, which
//! has the macros.
//!
//! The library is `liblastwords.so.0`, or `liblastwords.a`. `install.sh` installs both, with
//! headers and a pkg-config file, where a compiler finds them.
//!
//! The crate has no features.
#![doc = include_str!("../README.md")]
#![allow(non_camel_case_types, reason = "names as C has them")]
#![allow(unreachable_pub, reason = "C reaches what is not public in Rust")]
#![allow(clippy::missing_safety_doc, reason = "the header says what C must pass")]

mod args;
mod builder;
mod channel;
mod context;
mod desc;
mod error;
mod event;
mod session;
mod snapshot;
mod text;

use std::ffi::{CStr, c_char, c_int};

use lastwords::crash;

use crate::error::status;

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_install_signal_handlers(signals: *const c_int, count: usize) -> c_int {
    status(|| {
        // SAFETY: C passes as many numbers as its count.
        let chosen = unsafe { args::list(signals, count, "the signals") }?;
        let signals = if signals.is_null() { &crash::FATAL } else { chosen };
        Ok(crash::install_signal_handlers(signals)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn lw_prepare_thread() -> c_int {
    status(|| Ok(crash::prepare_thread()?))
}

#[unsafe(no_mangle)]
extern "C" fn lw_refresh_modules() {
    status(|| {
        crash::refresh_modules();
        Ok(())
    });
}

#[unsafe(no_mangle)]
extern "C" fn lw_refresh_thread() {
    lastwords::context::refresh_thread();
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_trigger(name: *const c_char) {
    if !name.is_null() {
        // SAFETY: C passes a text that ends with a NUL.
        let name = unsafe { CStr::from_ptr(name) };
        lastwords::trigger(name.to_str().unwrap_or("a name that is not UTF-8"));
    }
}

/// Adds to what a name means: none if the name is no name.
type Add = fn(&str, u64) -> bool;

/// Adds a number to the counter or histogram of a name.
///
/// # Safety
/// `name` is null or ends with a NUL.
unsafe fn add_named(add: Add, name: *const c_char, number: u64) -> c_int {
    status(|| {
        // SAFETY: the caller guarantees it.
        let name = unsafe { args::text(name, "the name") }?;
        if add(name, number) {
            return Ok(());
        }
        let what = "a name has 1 to 176 bytes, none of which is 0x1f";
        Err(error::Failure::argument(what))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_counter_add(name: *const c_char, amount: u64) -> c_int {
    // SAFETY: C passes null or a text that ends with a NUL.
    unsafe { add_named(lastwords::__private::add_named, name, amount) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lw_histogram_record(name: *const c_char, value: u64) -> c_int {
    // SAFETY: C passes null or a text that ends with a NUL.
    unsafe { add_named(lastwords::__private::record_named, name, value) }
}

//! lastwords for C and C++.
//!
//! `include/lastwords.h` is generated from here (a test compares the two) and includes `lastwords_event.h`, the macros, which are
//! written by hand. The library is `liblastwords.so.0`, or `liblastwords.a`; `install.sh` puts both with header and pkg-config file
//! where a compiler finds them.
#![allow(non_camel_case_types, reason = "names as C has them")]
#![allow(clippy::missing_safety_doc, reason = "each function has its own; cbindgen copies them to the header")]

mod args;
pub mod builder;
pub mod context;
pub mod desc;
pub mod error;
pub mod event;
pub mod session;
pub mod snapshot;
mod text;

use std::ffi::c_int;

use lastwords::crash;

use crate::error::{note, status};

/// Level of an event: error.
pub const LW_LEVEL_ERROR: u32 = 1;
/// Level of an event: warning.
pub const LW_LEVEL_WARN: u32 = 2;
/// Level of an event: information.
pub const LW_LEVEL_INFO: u32 = 3;
/// Level of an event: debug.
pub const LW_LEVEL_DEBUG: u32 = 4;
/// Level of an event: trace.
pub const LW_LEVEL_TRACE: u32 = 5;

/// Context: process id.
pub const LW_CONTEXT_PID: u32 = 1;
/// Context: thread id.
pub const LW_CONTEXT_TID: u32 = 2;
/// Context: thread name.
pub const LW_CONTEXT_THREAD_NAME: u32 = 4;
/// Context: CPU.
pub const LW_CONTEXT_CPU: u32 = 8;
/// No contexts at all.
pub const LW_CONTEXT_NONE: u32 = 0x8000_0000;

/// Memory: the heap.
pub const LW_MEMORY_HEAP: u32 = 1;
/// Memory: shared-memory files.
pub const LW_MEMORY_SHM: u32 = 2;
/// Memory: a memfd, which a core with the default filter keeps.
pub const LW_MEMORY_MEMFD: u32 = 3;
/// Memory: huge pages.
pub const LW_MEMORY_HUGE: u32 = 4;

/// Reservation: restartable sequences, the fastest.
pub const LW_RESERVATION_RSEQ: u32 = 1;
/// Reservation: compare-and-swap and commit counters.
pub const LW_RESERVATION_LOCKLESS: u32 = 2;
/// Reservation: a lock that the dead cannot hold.
pub const LW_RESERVATION_LOCKED: u32 = 3;

/// Clock: `CLOCK_MONOTONIC`.
pub const LW_CLOCK_MONOTONIC: u32 = 1;
/// Clock: `CLOCK_MONOTONIC_RAW`.
pub const LW_CLOCK_MONOTONIC_RAW: u32 = 2;
/// Clock: `CLOCK_BOOTTIME`.
pub const LW_CLOCK_BOOTTIME: u32 = 3;
/// Clock: `CLOCK_REALTIME`.
pub const LW_CLOCK_REALTIME: u32 = 4;

/// Records `crash:signal` when the process gets SIGSEGV, SIGBUS, SIGABRT, SIGILL or SIGFPE, and then does what was done
/// before. Threads call `lw_prepare_thread` to have a stack overflow recorded too. 0, or -1 (see `lw_error`).
#[unsafe(no_mangle)]
pub extern "C" fn lw_install_signal_handlers() -> c_int {
    status(crash::install_signal_handlers(&crash::FATAL))
}

/// The same for some of these signals only. 0, or -1 (see `lw_error`): one is none of them.
///
/// # Safety
/// `signals` are `count` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lw_install_signal_handlers_for(signals: *const c_int, count: usize) -> c_int {
    if signals.is_null() {
        note(&"the signals are a null pointer");
        return -1;
    }
    // SAFETY: the caller vouches for it.
    status(crash::install_signal_handlers(unsafe { std::slice::from_raw_parts(signals, count) }))
}

/// Gives the calling thread an alternate signal stack if it has none. 0, or -1 (see `lw_error`).
#[unsafe(no_mangle)]
pub extern "C" fn lw_prepare_thread() -> c_int {
    status(crash::prepare_thread())
}

/// Notes the modules that were loaded since the last time (`dlopen`), so that addresses in them can be named.
#[unsafe(no_mangle)]
pub extern "C" fn lw_refresh_modules() {
    crash::refresh_modules();
}

/// Reads the calling thread's name anew, after a change.
#[unsafe(no_mangle)]
pub extern "C" fn lw_refresh_thread() {
    lastwords::context::refresh_thread();
}

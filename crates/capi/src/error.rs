//! Why a call failed: kept for the thread until its next failure.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::fmt::Display;

/// What a call comes to before C sees it: an argument that cannot be is an error as those of the library are.
pub(crate) type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Notes the error.
pub(crate) fn note(error: &dyn Display) {
    let text: Vec<u8> = error.to_string().into_bytes().into_iter().filter(|byte| *byte != 0).collect();
    LAST.with(|last| *last.borrow_mut() = CString::new(text).unwrap_or_default());
}

/// 0, or -1 with the error noted.
pub(crate) fn status<E: Display>(result: Result<(), E>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(error) => {
            note(&error);
            -1
        }
    }
}

/// What was made, for C to give back, or null with the error noted.
pub(crate) fn boxed<T>(result: Outcome<T>) -> *mut T {
    match result {
        Ok(made) => Box::into_raw(Box::new(made)),
        Err(error) => {
            note(&error);
            std::ptr::null_mut()
        }
    }
}

/// Why the last call of this thread failed: text that holds until the thread's next failure; empty if none failed.
#[unsafe(no_mangle)]
pub extern "C" fn lw_error() -> *const c_char {
    LAST.with(|last| last.borrow().as_ptr())
}

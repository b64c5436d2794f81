//! What differs between back-ends, while a session records.

use lastwords_abi::session::{BACKEND_DAX, BACKEND_PHYSICAL, ClockArea};

use crate::process::clock;

/// Returns the function that takes a new sample of the clock in memory of this back-end.
pub(crate) fn clock_refresh(backend: u32) -> fn(&ClockArea) {
    if is_persistent(backend) { clock::refresh_persistent } else { clock::refresh }
}

/// Returns true if a back-end's memory needs flushes to be kept.
pub fn is_persistent(backend: u32) -> bool {
    matches!(backend, BACKEND_DAX | BACKEND_PHYSICAL)
}

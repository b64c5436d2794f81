//! A fatal signal.

use std::ffi::c_int;

use super::unwind::Registers;

/// A fatal signal, as its handler received it.
pub(super) struct Fault {
    pub(super) signal: c_int,
    pub(super) code: i32,
    pub(super) address: u64,
    pub(super) at: Registers,
}

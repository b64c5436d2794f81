//! The part of the stepper that knows the machine.

#[cfg(target_arch = "aarch64")]
#[path = "machine_aarch64.rs"]
mod of_arch;
#[cfg(target_arch = "x86_64")]
#[path = "machine_x86_64.rs"]
mod of_arch;

pub(crate) use of_arch::{BEHIND, BREAKPOINT, arming, instructions, ip, set_ip};

/// One instruction.
pub(crate) struct Step {
    /// Its address.
    pub(crate) at: u64,
    /// Where it may branch to.
    pub(crate) target: Option<u64>,
}

//! The CPUs of the machine.

use std::fs;

/// Largest number of CPUs that get a stream of their own.
const MOST_CPUS: u32 = 4096;

/// Returns one more than the highest CPU that exists, or that can be plugged in without a new
/// board.
pub(crate) fn cpus() -> u32 {
    let listed = fs::read_to_string("/sys/devices/system/cpu/present").ok();
    let highest = listed
        .as_deref()
        .and_then(|list| list.trim().rsplit([',', '-']).next()?.parse::<u32>().ok());
    // SAFETY: no memory is involved.
    let configured = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
    let count =
        highest.map_or_else(|| u32::try_from(configured).unwrap_or(1), |highest| highest + 1);
    count.clamp(1, MOST_CPUS)
}

//! Pushing bytes out of the CPU's caches into persistent memory, and ordering it.
//!
//! x86_64: `clwb`, else `clflushopt`, else `clflush`, by CPUID; then `sfence`. aarch64: `dc cvap` where the machine has
//! it, else `dc cvac`; then `dsb ish`. Elsewhere there is nothing to be had.

use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// Bytes of a cache line that are flushed at a time; lines are never smaller on the machines we know.
pub const LINE: usize = 64;

/// Index among the machine's names of what flushes a line, and 1 more; 0 until the machine was asked. Any thread may write it, all
/// write the same; nothing is ordered by it.
static WAY: AtomicU8 = AtomicU8::new(0);

#[inline]
fn chosen() -> u8 {
    match WAY.load(Relaxed) {
        0 => {
            let way = machine::detect();
            WAY.store(way, Relaxed);
            way
        }
        way => way,
    }
}

/// Writes back every cache line that `len` bytes at `start` touch. [`fence`] waits for it.
///
/// # Safety
/// The bytes are mapped and readable.
#[inline]
pub unsafe fn flush(start: *const u8, len: usize) {
    let first = start as usize & !(LINE - 1);
    let end = start as usize + len;
    let way = chosen();
    let mut line = first;
    while line < end {
        // SAFETY: the line holds at least one byte of the caller's range, so its page is mapped.
        unsafe { machine::flush_line(line as *const u8, way) };
        line += LINE;
    }
}

/// Orders flushes before it with stores after it.
#[inline]
pub fn fence() {
    machine::fence();
}

/// How lines are flushed here, for people.
#[must_use]
pub fn way() -> &'static str {
    machine::NAMES[usize::from(chosen()) - 1]
}

#[cfg(target_arch = "x86_64")]
mod machine {
    use core::arch::asm;
    use core::arch::x86_64::__cpuid_count;

    pub(super) const NAMES: [&str; 3] = ["clflush, sfence", "clflushopt, sfence", "clwb, sfence"];
    const CLFLUSHOPT: u8 = 2;
    const CLWB: u8 = 3;

    #[cold]
    pub(super) fn detect() -> u8 {
        // Leaf 7 is there whenever CPUID's highest leaf says so.
        let highest = __cpuid_count(0, 0).eax;
        let features = if highest >= 7 { __cpuid_count(7, 0).ebx } else { 0 };
        match features {
            f if f & (1 << 24) != 0 => CLWB,
            f if f & (1 << 23) != 0 => CLFLUSHOPT,
            _ => 1,
        }
    }

    /// # Safety
    /// `line` points into a mapped page.
    #[inline]
    pub(super) unsafe fn flush_line(line: *const u8, way: u8) {
        // SAFETY: the instructions read no register but the address and change no memory that Rust sees; CPUID names
        // the one that is used.
        unsafe {
            match way {
                CLWB => asm!("clwb [{}]", in(reg) line, options(nostack, preserves_flags)),
                CLFLUSHOPT => asm!("clflushopt [{}]", in(reg) line, options(nostack, preserves_flags)),
                _ => asm!("clflush [{}]", in(reg) line, options(nostack, preserves_flags)),
            }
        }
    }

    #[inline]
    pub(super) fn fence() {
        // SAFETY: every x86_64 has SSE.
        unsafe { core::arch::x86_64::_mm_sfence() };
    }
}

#[cfg(target_arch = "aarch64")]
mod machine {
    use core::arch::asm;

    pub(super) const NAMES: [&str; 2] = ["dc cvac, dsb", "dc cvap, dsb"];
    const CVAP: u8 = 2;
    /// HWCAP_DCPOP, include/uapi/asm/hwcap.h of arm64.
    const HWCAP_DCPOP: u64 = 1 << 16;

    #[cold]
    pub(super) fn detect() -> u8 {
        // SAFETY: getauxval reads a vector that the kernel made at start.
        let features = unsafe { libc::getauxval(libc::AT_HWCAP) } as u64;
        if features & HWCAP_DCPOP != 0 { CVAP } else { 1 }
    }

    /// # Safety
    /// `line` points into a mapped page.
    #[inline]
    pub(super) unsafe fn flush_line(line: *const u8, way: u8) {
        // SAFETY: cache maintenance by address, which Linux allows to user space; `dc cvap` only where it exists, written
        // as its `sys` encoding so that assemblers of ARMv8.0 take it.
        unsafe {
            match way {
                CVAP => asm!("sys #3, c7, c12, #1, {}", in(reg) line, options(nostack, preserves_flags)),
                _ => asm!("dc cvac, {}", in(reg) line, options(nostack, preserves_flags)),
            }
        }
    }

    #[inline]
    pub(super) fn fence() {
        // SAFETY: a barrier.
        unsafe { asm!("dsb ish", options(nostack, preserves_flags)) };
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod machine {
    pub(super) const NAMES: [&str; 1] = ["no flush on this machine"];

    pub(super) fn detect() -> u8 {
        1
    }

    /// # Safety
    /// `line` points into a mapped page.
    #[inline]
    pub(super) unsafe fn flush_line(_line: *const u8, _way: u8) {}

    #[inline]
    pub(super) fn fence() {
        core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
    }
}

//! Pushing bytes out of the CPU's caches into persistent memory, and ordering it.
//!
//! x86_64: `clwb`, else `clflushopt`, else `clflush`, by CPUID; then `sfence`. aarch64: `dc cvap` where the machine has
//! it, else `dc cvac`; then `dsb ish`. Elsewhere there is nothing to be had.

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use core::arch::asm;
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// Bytes of a cache line that are flushed at a time; lines are never smaller on the machines we know.
pub const LINE: usize = 64;

/// How a line can be flushed here, and how flushes are ordered. The best way is the last.
const WAYS: &[&str] = if cfg!(target_arch = "x86_64") {
    &["clflush, sfence", "clflushopt, sfence", "clwb, sfence"]
} else if cfg!(target_arch = "aarch64") {
    &["dc cvac, dsb", "dc cvap, dsb"]
} else {
    &["no flush on this machine"]
};

/// Number of the way among [`WAYS`], from 1; 0 until the machine was asked. Any thread may write it, all write the same; nothing is
/// ordered by it.
static WAY: AtomicU8 = AtomicU8::new(0);

#[cold]
fn detect() -> u8 {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::__cpuid_count;
        // Leaf 7 is there whenever CPUID's highest leaf says so. Its bit 24 is CLWB, its bit 23 is CLFLUSHOPT.
        let highest = __cpuid_count(0, 0).eax;
        let features = if highest >= 7 { __cpuid_count(7, 0).ebx } else { 0 };
        match features {
            f if f & (1 << 24) != 0 => 3,
            f if f & (1 << 23) != 0 => 2,
            _ => 1,
        }
    }
    #[cfg(target_arch = "aarch64")]
    {
        if std::arch::is_aarch64_feature_detected!("dpb") { 2 } else { 1 }
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    1
}

#[inline]
fn chosen() -> u8 {
    if WAY.load(Relaxed) == 0 {
        WAY.store(detect(), Relaxed);
    }
    WAY.load(Relaxed)
}

/// Writes back every cache line that `len` bytes at `start` touch. [`fence`] waits for it.
///
/// # Safety
/// The bytes are mapped and readable.
#[inline]
pub unsafe fn flush(start: *const u8, len: usize) {
    let first = start as usize & !(LINE - 1);
    let way = chosen();
    for line in (first..start as usize + len).step_by(LINE) {
        // SAFETY: the line holds at least one byte of the caller's range, so its page is mapped.
        unsafe { flush_line(line as *const u8, way) };
    }
}

/// Writes back a line.
///
/// # Safety
/// `line` points into a mapped page.
#[inline]
unsafe fn flush_line(line: *const u8, way: u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instructions read no register but the address and change no memory that Rust sees; CPUID names
    // the one that is used.
    unsafe {
        match way {
            3 => asm!("clwb [{}]", in(reg) line, options(nostack, preserves_flags)),
            2 => asm!("clflushopt [{}]", in(reg) line, options(nostack, preserves_flags)),
            _ => asm!("clflush [{}]", in(reg) line, options(nostack, preserves_flags)),
        }
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: cache maintenance by address, which Linux allows to user space; `dc cvap` only where it exists, written
    // as its `sys` encoding so that assemblers of ARMv8.0 take it.
    unsafe {
        match way {
            2 => asm!("sys #3, c7, c12, #1, {}", in(reg) line, options(nostack, preserves_flags)),
            _ => asm!("dc cvac, {}", in(reg) line, options(nostack, preserves_flags)),
        }
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = (line, way);
}

/// Orders flushes before it with stores after it.
#[inline]
pub fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86_64 has SSE.
    unsafe {
        core::arch::x86_64::_mm_sfence();
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a barrier.
    unsafe {
        asm!("dsb ish", options(nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
}

/// How lines are flushed here, for people.
#[must_use]
pub fn way() -> &'static str {
    WAYS[usize::from(chosen()) - 1]
}

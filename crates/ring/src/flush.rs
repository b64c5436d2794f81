//! Writes bytes back from the CPU's caches into persistent memory, and orders these writes.
//!
//! On x86_64 this is `clwb`, else `clflushopt`, else `clflush`, by CPUID; then `sfence`. On aarch64
//! it is `dc cvap` if the machine has it, else `dc cvac`; then `dsb ish`. Other architectures have
//! no such instructions.

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use core::arch::asm;
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::sync::OnceLock;

use lastwords_abi::session as abi;

/// When a session writes events back from the CPU's caches into persistent memory. What was written
/// back survives a loss of power. What was not may be lost with it, or be there in part.
#[repr(u32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Persist {
    /// Never. A crash of the process or of the kernel loses nothing; a loss of power may lose
    /// anything.
    #[default]
    None = abi::PERSIST_NONE,
    /// When a sub-buffer is closed: first its bytes, then the position that declares it closed. A
    /// loss of power may lose the events of the open sub-buffer.
    SubBuffer = abi::PERSIST_SUB_BUFFER,
    /// When an event is committed: first its bytes, then the position that commits it. An event
    /// survives once the call that recorded it has returned.
    Event = abi::PERSIST_EVENT,
}

impl Persist {
    /// Returns the policy of a `PERSIST_` constant of [`lastwords_abi::session`]. An unknown number
    /// is the strictest.
    #[must_use]
    pub fn from_code(code: u32) -> Self {
        match code {
            abi::PERSIST_NONE => Self::None,
            abi::PERSIST_SUB_BUFFER => Self::SubBuffer,
            _ => Self::Event,
        }
    }
}

/// One step of the order of persistence, as [`watch`] reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// The cache lines of `len` bytes at the address `start` are about to be written back.
    Flush {
        /// Address of the first byte.
        start: usize,
        /// Number of bytes.
        len: usize,
    },
    /// Earlier flushes are about to be ordered before later stores.
    Fence,
}

/// The function of [`watch`]. It is written once, before [`WAY`] becomes [`WATCHED`].
static WATCHER: OnceLock<fn(Op)> = OnceLock::new();
/// Value of [`WAY`] while flushes are reported in place of being executed.
const WATCHED: u8 = u8::MAX;

/// Reports every flush and fence of this process to `watcher`, in place of executing it, from now
/// on. For tests of the order in which stores reach persistent memory.
#[doc(hidden)]
pub fn watch(watcher: fn(Op)) {
    // A second watcher is ignored.
    let _ = WATCHER.set(watcher);
    WAY.store(WATCHED, Relaxed);
}

#[cold]
fn report(op: Op) {
    if let Some(watcher) = WATCHER.get() {
        watcher(op);
    }
}

/// Bytes that are flushed at a time. No machine that we know has smaller cache lines.
pub const LINE: usize = 64;

/// The ways to flush a line on this architecture, with the instruction that orders flushes. The
/// best way is the last.
const WAYS: &[&str] = if cfg!(target_arch = "x86_64") {
    &["clflush, sfence", "clflushopt, sfence", "clwb, sfence"]
} else if cfg!(target_arch = "aarch64") {
    &["dc cvac, dsb", "dc cvap, dsb"]
} else {
    &["no flush on this machine"]
};

/// Number of the chosen way in [`WAYS`], from 1; 0 before the machine was asked; or [`WATCHED`].
/// Any thread may write it, and all write the same value, except [`watch`]. It orders nothing.
static WAY: AtomicU8 = AtomicU8::new(0);

#[cold]
fn detect() -> u8 {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::__cpuid_count;
        // CPUID has leaf 7 if its highest leaf is at least 7. Bit 24 of leaf 7 is CLWB, bit 23 is
        // CLFLUSHOPT.
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
        // An error means that another thread was first.
        let _ = WAY.compare_exchange(0, detect(), Relaxed, Relaxed);
    }
    WAY.load(Relaxed)
}

/// Writes back every cache line that `len` bytes at `start` touch. Call [`fence`] to wait for it.
///
/// # Safety
/// The bytes are mapped and readable.
#[inline]
pub unsafe fn flush(start: *const u8, len: usize) {
    let first = start as usize & !(LINE - 1);
    let way = chosen();
    if way == WATCHED {
        return report(Op::Flush { start: start as usize, len });
    }
    for line in (first..start as usize + len).step_by(LINE) {
        // SAFETY: the line contains at least one byte of the caller's range, so its page is mapped.
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
    // SAFETY: the instructions read only the address register and change no memory that Rust sees.
    // CPUID reports that the chosen instruction exists.
    unsafe {
        match way {
            3 => asm!("clwb [{}]", in(reg) line, options(nostack, preserves_flags)),
            2 => asm!("clflushopt [{}]", in(reg) line, options(nostack, preserves_flags)),
            _ => asm!("clflush [{}]", in(reg) line, options(nostack, preserves_flags)),
        }
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: this is cache maintenance by address, which Linux allows to user space. `dc cvap` is
    // used only if it exists. It is written as its `sys` encoding, so that assemblers of ARMv8.0
    // accept it.
    unsafe {
        match way {
            2 => asm!("sys #3, c7, c12, #1, {}", in(reg) line, options(nostack, preserves_flags)),
            _ => asm!("dc cvac, {}", in(reg) line, options(nostack, preserves_flags)),
        }
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = (line, way);
}

/// Orders earlier flushes before later stores.
#[inline]
pub fn fence() {
    if WAY.load(Relaxed) == WATCHED {
        return report(Op::Fence);
    }
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

/// Returns the way in which lines are flushed here, as text for people.
#[must_use]
pub fn way() -> &'static str {
    WAYS.get(usize::from(chosen()) - 1).copied().unwrap_or("flushes are watched")
}

/// Returns true if this machine has instructions that write lines back. Without them, no policy but
/// [`Persist::None`] can be kept.
#[must_use]
pub const fn is_possible() -> bool {
    cfg!(any(target_arch = "x86_64", target_arch = "aarch64"))
}

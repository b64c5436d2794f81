//! Counts aborted sections from outside of the recorder, whose code stays as it is; and changes what
//! the recorder learns of the kernel.
//!
//! Each restartable section has a descriptor with the address of its abort handler, to which the
//! kernel sends an interrupted thread. [`count_aborts`] replaces these addresses by those of stubs,
//! which add 1 to a counter and go on to the handler.
#![allow(unsafe_code)]

use std::sync::atomic::AtomicU64;

use nix::libc;

use crate::Result;

/// `struct rseq_cs` of include/uapi/linux/rseq.h.
#[cfg(target_arch = "x86_64")]
#[repr(C, align(32))]
struct Descriptor {
    version_and_flags: u64,
    start: u64,
    len: u64,
    abort: u64,
}

#[cfg(target_arch = "x86_64")]
unsafe extern "C" {
    /// The linker gives these names to begin and end of the ELF section `__rseq_cs`.
    #[link_name = "__start___rseq_cs"]
    static mut FIRST: Descriptor;
    #[link_name = "__stop___rseq_cs"]
    static mut END: Descriptor;
}

/// Bytes of the counter, and of each stub.
#[cfg(target_arch = "x86_64")]
const STUB: usize = 32;

/// Makes all sections of this program count their aborts. Call it once, before anything records.
///
/// # Errors
/// The kernel gives no memory that is writable and executable.
#[cfg(target_arch = "x86_64")]
pub(crate) fn count_aborts() -> Result<&'static AtomicU64> {
    // SAFETY: the descriptors between the two addresses belong to this program, and no thread is in
    // a section. The mapping has room for a counter and all stubs. A stub has the signature in
    // front, changes only the counter and the flags, and goes on to the handler.
    unsafe {
        let (first, end) = (&raw mut FIRST, &raw mut END);
        let count = (end as usize - first as usize) / size_of::<Descriptor>();
        let protection = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let len = (count + 1) * STUB;
        let memory = libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0);
        if memory == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error().into());
        }
        for n in 0..count {
            let descriptor = &mut *first.add(n);
            let stub = memory.cast::<u8>().add((n + 1) * STUB);
            let code = stub.add(8);
            // The counter, seen from the end of the instruction of 8 bytes.
            let counter = i32::try_from(memory as isize - code as isize - 8)?;
            stub.add(4).cast::<u32>().write(0x5305_3053);
            // lock inc qword ptr [rip + counter]
            code.cast::<[u8; 4]>().write([0xf0, 0x48, 0xff, 0x05]);
            code.add(4).cast::<i32>().write_unaligned(counter);
            // jmp qword ptr [rip], and the address
            code.add(8).cast::<[u8; 6]>().write([0xff, 0x25, 0, 0, 0, 0]);
            code.add(14).cast::<u64>().write_unaligned(descriptor.abort);
            descriptor.abort = code as u64;
        }
        Ok(&*memory.cast::<AtomicU64>())
    }
}

/// Only x86_64 has the stubs.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn count_aborts() -> Result<&'static AtomicU64> {
    Err("aborts are counted on x86_64 only".into())
}

/// Key of the auxiliary vector: how much of an area the kernel knows.
const AT_RSEQ_FEATURE_SIZE: usize = 27;

/// Returns how many bytes of an area the kernel knows; 0 before Linux 6.3.
pub(crate) fn known_by_kernel() -> u64 {
    // SAFETY: the call has no conditions.
    unsafe { libc::getauxval(AT_RSEQ_FEATURE_SIZE as libc::c_ulong) }
}

unsafe extern "C" {
    /// The environment; at first, the auxiliary vector is behind it.
    #[link_name = "environ"]
    static ENVIRONMENT: *mut *mut libc::c_char;
}

/// Makes this program believe that the kernel knows nothing of an area, so that the recorder
/// registers the 32 bytes that every kernel takes. Call it before any thread is started and the
/// environment changed.
///
/// # Errors
/// The kernel's word is still there.
pub(crate) fn hide_known() -> Result<()> {
    // SAFETY: the program has one thread. The kernel ends the environment by a null pointer, and
    // the auxiliary vector behind it, pairs of key and value, by the key 0.
    unsafe {
        let mut at = ENVIRONMENT;
        while !(*at).is_null() {
            at = at.add(1);
        }
        let mut pair = at.add(1).cast::<[usize; 2]>();
        while (*pair)[0] != 0 {
            if (*pair)[0] == AT_RSEQ_FEATURE_SIZE {
                (*pair)[1] = 0;
            }
            pair = pair.add(1);
        }
    }
    match known_by_kernel() {
        0 => Ok(()),
        known => Err(format!("the auxiliary vector still says {known}").into()),
    }
}

/// Signals of the timer.
pub(crate) static SIGNALS: AtomicU64 = AtomicU64::new(0);

extern "C" fn count_signal(_: libc::c_int) {
    SIGNALS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
}

/// Blocks the signal of the timer in this thread and in those that it starts, or unblocks it in this
/// thread.
///
/// # Errors
/// The kernel refuses.
pub(crate) fn take_signals(takes: bool) -> std::io::Result<()> {
    let how = if takes { libc::SIG_UNBLOCK } else { libc::SIG_BLOCK };
    // SAFETY: a set of zeros is valid, and the calls change nothing but it and this thread's mask.
    let failed = unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&raw mut set, libc::SIGALRM);
        libc::pthread_sigmask(how, &raw const set, std::ptr::null_mut())
    };
    if failed == 0 { Ok(()) } else { Err(std::io::Error::from_raw_os_error(failed)) }
}

/// Has a timer send this process a signal each time so many microseconds have passed; 0 stops it.
///
/// # Errors
/// The kernel refuses.
pub(crate) fn interrupt_each(microseconds: i32) -> Result<()> {
    let each = libc::timeval { tv_sec: 0, tv_usec: microseconds.into() };
    let timer = libc::itimerval { it_interval: each, it_value: each };
    // SAFETY: an action of zeros is valid. The handler only changes a counter.
    let failed = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = count_signal as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(libc::SIGALRM, &raw const action, std::ptr::null_mut()) != 0
            || libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()) != 0
    };
    if failed { Err(std::io::Error::last_os_error().into()) } else { Ok(()) }
}

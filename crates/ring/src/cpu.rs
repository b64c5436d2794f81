//! The CPU of this thread, and the thread's restartable-sequence area.
//!
//! glibc 2.35 and later registers an area for each thread and publishes its offset from the thread
//! pointer. With another C library, an older glibc, or `glibc.pthread.rseq=0`, each thread
//! registers our own area once, and unregisters it when the thread ends. It must unregister the
//! area, because the kernel writes to a registered area until the thread is gone, and musl unmaps
//! the memory of a detached thread before that.
//!
//! The length of our area decides how newer kernels (since 2026, kernel/rseq.c) treat it. At each
//! switch and signal of a thread whose area has the first length, 32 bytes, the kernel writes all
//! fields and looks for a section. For a longer area, the kernel writes only fields that have
//! changed, and looks for a section only if it has interrupted the program's own code. So our area
//! has the length that the kernel knows.

use core::cell::{Cell, UnsafeCell};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicI64, AtomicIsize, AtomicU32, Ordering::Relaxed};
use std::io::Error;

use crate::errno::ErrnoKept;

/// The signature that precedes every abort handler. It is the value that glibc registers.
const SIGNATURE: u32 = if cfg!(target_arch = "x86_64") { 0x5305_3053 } else { 0xd428_bc00 };

/// The part of the kernel's `struct rseq` (include/uapi/linux/rseq.h) that every version has.
#[repr(C, align(32))]
#[derive(Debug)]
pub(crate) struct Area {
    /// The CPU, or 0 before registration.
    pub cpu_id_start: AtomicU32,
    /// The CPU; 0xffff_ffff before registration, 0xffff_fffe after a failed one.
    pub cpu_id: AtomicU32,
    /// Address of the descriptor of the running section, or 0.
    pub rseq_cs: UnsafeCell<u64>,
    /// `flags`, `node_id` and `mm_cid`, which only the kernel uses.
    rest: [u32; 3],
}

impl Area {
    pub(crate) const fn new(cpu: u32) -> Self {
        Self {
            cpu_id_start: AtomicU32::new(0),
            cpu_id: AtomicU32::new(cpu),
            rseq_cs: UnsafeCell::new(0),
            rest: [0; 3],
        }
    }
}

/// Our own area, with room for the fields that newer kernels have added to [`Area`].
#[repr(C, align(64))]
struct Own {
    area: Area,
    /// Only the kernel uses these bytes.
    _newer: [UnsafeCell<u64>; 4],
}

impl Own {
    const fn new() -> Self {
        Self { area: Area::new(u32::MAX), _newer: [const { UnsafeCell::new(0) }; 4] }
    }
}

/// The length that every kernel accepts, in bytes.
const FIRST_LEN: u32 = 32;
/// Keys of the auxiliary vector, since Linux 6.3 (include/uapi/linux/auxvec.h).
const AT_RSEQ_FEATURE_SIZE: libc::c_ulong = 27;
const AT_RSEQ_ALIGN: libc::c_ulong = 28;

/// Returns the length of our own area for the kernel, in bytes. It is the same at each call, because
/// the kernel unregisters an area only with the length of its registration.
fn own_len() -> u32 {
    // SAFETY: the call has no conditions. It returns 0 for a key that the kernel does not know.
    let [size, align] =
        [AT_RSEQ_FEATURE_SIZE, AT_RSEQ_ALIGN].map(|key| unsafe { libc::getauxval(key) });
    len_for(size, align)
}

/// Returns the length for a kernel that knows `size` bytes of the area and requires `align`. The
/// kernel refuses any other length between the first one and `size`.
fn len_for(size: libc::c_ulong, align: libc::c_ulong) -> u32 {
    let fits = size as usize <= size_of::<Own>() && align as usize <= align_of::<Own>();
    if fits { FIRST_LEN.max(size as u32) } else { FIRST_LEN }
}

const UNKNOWN: isize = isize::MIN;
const NONE: isize = isize::MAX;
/// Offset from the thread pointer to the area; [`UNKNOWN`] before [`init`], [`NONE`] if the kernel
/// or the machine has no rseq.
pub(crate) static OFFSET: AtomicIsize = AtomicIsize::new(UNKNOWN);

std::thread_local! {
    /// Our own area, for threads whose C library registered none.
    static OWN: Own = const { Own::new() };
    /// The thread is ending, and has unregistered its area. It records without sections from then on.
    static IS_ENDING: Cell<bool> = const { Cell::new(false) };
}

/// Returns the thread pointer; null if the architecture has no sections.
#[inline]
fn thread_pointer() -> *mut u8 {
    let pointer: *mut u8;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: on x86_64 Linux the first word at the thread pointer is its own address, in every C
    // library.
    unsafe {
        core::arch::asm!("mov {}, fs:[0]", out(reg) pointer, options(nostack, readonly, preserves_flags, pure));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: reading TPIDR_EL0 touches no memory.
    unsafe {
        core::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nostack, nomem, preserves_flags, pure));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        pointer = core::ptr::null_mut();
    }
    pointer
}

/// Returns this thread's area, if there is one. Its `cpu_id` says whether it is registered. A child
/// of `vfork` has none: the area of the thread that waits for it is not the child's.
#[inline]
#[must_use]
pub(crate) fn area() -> Option<&'static Area> {
    #[cfg(loom)]
    return Some(crate::model::area());
    #[cfg(not(loom))]
    {
        #[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
        if crate::vfork::is_child() {
            return None;
        }
        let offset = OFFSET.load(Relaxed);
        (!matches!(offset, UNKNOWN | NONE)).then(|| area_at(offset))
    }
}

/// Returns the area at `offset`, which must be the value of [`OFFSET`] on a machine whose threads
/// have areas.
#[cfg(not(loom))]
#[inline(always)]
pub(crate) fn area_at(offset: isize) -> &'static Area {
    // SAFETY: `init` found that every thread has memory for an area at this offset: glibc's in its
    // thread block, or `OWN` in static thread-local storage. The reference is used by this thread
    // only, while it runs.
    unsafe { &*thread_pointer().wrapping_offset(offset).cast::<Area>() }
}

/// Returns the CPU on which this thread runs, in the cheapest way that works here. The thread may
/// be on another CPU when the call returns.
#[inline]
#[must_use]
pub fn current() -> u32 {
    if let Some(area) = area() {
        let cpu = area.cpu_id.load(Relaxed);
        if cpu < 0xffff_0000 {
            return cpu;
        }
    }
    // Miri has one CPU, and does not know the call. SAFETY: the call has no arguments; the vDSO
    // answers it.
    let cpu = if cfg!(miri) { 0 } else { unsafe { libc::sched_getcpu() } };
    u32::try_from(cpu).unwrap_or(0)
}

/// Returns true if restartable sequences work in this thread: the C library has registered the
/// area, or this call has.
#[must_use]
pub fn rseq_available() -> bool {
    init();
    register_thread()
}

/// Registers this thread's own area if the C library did not register one. Returns false if that
/// fails.
pub(crate) fn register_thread() -> bool {
    let Some(area) = area() else { return false };
    match area.cpu_id.load(Relaxed) {
        cpu if cpu < 0xffff_0000 => true,
        u32::MAX if OWN.with(|own| core::ptr::eq(&raw const own.area, area)) => register(area),
        _ => false,
    }
}

/// Registers the area until the end of the thread. Registers nothing if the end of the thread could
/// not be noticed.
fn register(area: &Area) -> bool {
    let Ok(key) = libc::pthread_key_t::try_from(END_OF_THREAD.load(Relaxed)) else { return false };
    let at = core::ptr::from_ref(area);
    let _errno = ErrnoKept::now();
    // SAFETY: the key was created. The area is the first part of an `Own`, which has the length and
    // the alignment of `own_len`. It is registered only until `unregister`, which the C library
    // calls before it frees the thread's memory.
    unsafe {
        !IS_ENDING.get()
            && libc::pthread_setspecific(key, at.cast()) == 0
            && libc::syscall(libc::SYS_rseq, at, own_len(), 0, SIGNATURE) == 0
    }
}

/// The key whose destructor is [`unregister`], or -1. It is written once, by the thread that first
/// looks for the area, before any other thread registers.
static END_OF_THREAD: AtomicI64 = AtomicI64::new(-1);
/// `RSEQ_FLAG_UNREGISTER` of include/uapi/linux/rseq.h.
const UNREGISTER: libc::c_int = 1;

/// Unregisters the area. The C library calls this at the end of a thread that has registered its
/// area.
extern "C" fn unregister(area: *mut libc::c_void) {
    IS_ENDING.set(true);
    // SAFETY: the kernel only stops using the area and resets its fields, which belong to this
    // thread.
    unsafe { libc::syscall(libc::SYS_rseq, area, own_len(), UNREGISTER, SIGNATURE) };
}

/// Looks for the area, once for each process.
pub(crate) fn init() {
    if OFFSET.load(Relaxed) == UNKNOWN {
        OFFSET.store(find().unwrap_or(NONE), Relaxed);
    }
}

fn find() -> Option<isize> {
    if !cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
        return None;
    }
    if let Some(offset) = offset_of_libc() {
        return Some(offset);
    }
    let offset = own_offset();
    // In a library that was loaded late, each thread may have its own area at another offset. Then
    // there is no common offset. If no thread can be started, this cannot be checked.
    let other = std::thread::Builder::new().spawn(own_offset).ok()?;
    if other.join().ok() != Some(offset) {
        return None;
    }
    let mut key = 0;
    // SAFETY: `key` is valid memory for the result, and the destructor stays: libraries that record
    // are never unloaded.
    if unsafe { libc::pthread_key_create(&raw mut key, Some(unregister)) } != 0 {
        return None;
    }
    END_OF_THREAD.store(i64::from(key), Relaxed);
    // Another thread may have its own area at another offset (dynamic TLS). `register_thread` then
    // refuses it.
    OWN.with(|own| register(&own.area)).then_some(offset)
}

/// Returns the offset from this thread's pointer to its [`OWN`].
fn own_offset() -> isize {
    (OWN.with(|own| &raw const own.area) as isize).wrapping_sub(thread_pointer() as isize)
}

/// Returns the offset from the thread pointer to the area that the C library has registered; none
/// if it registers no areas.
pub(crate) fn offset_of_libc() -> Option<isize> {
    let [offset, size] = symbols();
    // SAFETY: glibc defines `__rseq_offset` as a ptrdiff_t and `__rseq_size` as an unsigned int,
    // both constant.
    unsafe { (size.cast::<u32>().as_ref()? != &0).then_some(*offset.cast::<isize>().as_ref()?) }
}

/// Returns the addresses of `__rseq_offset` and `__rseq_size` of glibc; null if no loaded object
/// has them.
#[cfg(not(target_feature = "crt-static"))]
fn symbols() -> [*mut u8; 2] {
    // SAFETY: the names are NUL-terminated; RTLD_DEFAULT needs no handle.
    [c"__rseq_offset", c"__rseq_size"]
        .map(|name| unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }.cast())
}

/// Returns the addresses of `__rseq_offset` and `__rseq_size` of glibc. In a program without shared
/// libraries, only the linker knows them.
#[cfg(target_feature = "crt-static")]
fn symbols() -> [*mut u8; 2] {
    let (offset, size): (*mut u8, *mut u8);
    // SAFETY: the addresses come from the global offset table. They are null if no object has the
    // symbol (another C library).
    unsafe {
        #[cfg(target_arch = "x86_64")]
        core::arch::asm!(
            ".weak __rseq_offset",
            ".weak __rseq_size",
            "mov {offset}, qword ptr [rip + __rseq_offset@GOTPCREL]",
            "mov {size}, qword ptr [rip + __rseq_size@GOTPCREL]",
            offset = out(reg) offset,
            size = out(reg) size,
            options(nostack, readonly, preserves_flags),
        );
        #[cfg(target_arch = "aarch64")]
        core::arch::asm!(
            ".weak __rseq_offset",
            ".weak __rseq_size",
            "adrp {offset}, :got:__rseq_offset",
            "ldr {offset}, [{offset}, :got_lo12:__rseq_offset]",
            "adrp {size}, :got:__rseq_size",
            "ldr {size}, [{size}, :got_lo12:__rseq_size]",
            offset = out(reg) offset,
            size = out(reg) size,
            options(nostack, readonly, preserves_flags),
        );
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        {
            (offset, size) = (core::ptr::null_mut(), core::ptr::null_mut());
        }
    }
    [offset, size]
}

/// Returns true if a new thread can start. If glibc has registered the restartable-sequence area of
/// the first thread, it aborts the process when it cannot register the area of another thread. That
/// happens if a filter of system calls that refuses `rseq` was installed meanwhile. This function
/// calls `rseq` with an invalid length. The kernel refuses the call with EINVAL; a filter, or a
/// kernel without the call, gives another error.
#[must_use]
pub fn threads_can_start() -> bool {
    let _errno = ErrnoKept::now();
    // SAFETY: the kernel refuses a length of 0 before it looks at the area.
    let done = unsafe { libc::syscall(libc::SYS_rseq, null_mut::<u8>(), 0u32, 0, 0) };
    let is_known = done == 0 || Error::last_os_error().raw_os_error() == Some(libc::EINVAL);
    is_known || offset_of_libc().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_is_that_of_the_kernel() {
        assert_eq!((size_of::<Own>(), align_of::<Own>()), (64, 64));
        // Kernels before 6.3 have no such keys; 6.3 to 6.19 know 28 bytes.
        assert_eq!([len_for(0, 0), len_for(20, 32), len_for(28, 32)], [32; 3]);
        assert_eq!([len_for(33, 64), len_for(36, 64), len_for(64, 64)], [33, 36, 64]);
        // Too long, or more aligned than our area.
        assert_eq!([len_for(65, 128), len_for(36, 128)], [32; 2]);
    }
}

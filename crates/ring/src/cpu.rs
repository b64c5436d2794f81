//! The CPU of this thread, and its restartable-sequence area.
//!
//! glibc from 2.35 on registers an area for each thread and says where it lies relative to the thread pointer. Where it did
//! not (another C library, an older one, or `glibc.pthread.rseq=0`), a thread registers one of our own, once, and unregisters it when
//! it ends: the kernel writes to a registered area until the thread is gone, and musl unmaps the memory of a detached thread before.

use core::cell::{Cell, UnsafeCell};
use core::sync::atomic::{AtomicI64, AtomicIsize, AtomicU32, Ordering::Relaxed};

/// What precedes every abort handler; the value that glibc registers.
const SIGNATURE: u32 = if cfg!(target_arch = "x86_64") { 0x5305_3053 } else { 0xd428_bc00 };

/// The part of the kernel's `struct rseq` (include/uapi/linux/rseq.h) that every version has.
#[repr(C, align(32))]
#[derive(Debug)]
pub(crate) struct Area {
    /// CPU, or 0 before registration.
    pub cpu_id_start: AtomicU32,
    /// CPU; 0xffff_ffff before registration, 0xffff_fffe after a failed one.
    pub cpu_id: AtomicU32,
    /// Address of the descriptor of the section that runs, or 0.
    pub rseq_cs: UnsafeCell<u64>,
    /// `flags`, `node_id` and `mm_cid`, which only the kernel uses.
    rest: [u32; 3],
}

impl Area {
    pub(crate) const fn new(cpu: u32) -> Self {
        Self { cpu_id_start: AtomicU32::new(0), cpu_id: AtomicU32::new(cpu), rseq_cs: UnsafeCell::new(0), rest: [0; 3] }
    }
}

const UNKNOWN: isize = isize::MIN;
const NONE: isize = isize::MAX;
/// From the thread pointer to the area; [`UNKNOWN`] until looked for, [`NONE`] where the kernel or the machine has no rseq.
pub(crate) static OFFSET: AtomicIsize = AtomicIsize::new(UNKNOWN);

std::thread_local! {
    /// Our own area, for threads whose C library registered none.
    static OWN: Area = const { Area::new(u32::MAX) };
    /// The thread is ending, and has unregistered its area. It records without sections from then on.
    static IS_ENDING: Cell<bool> = const { Cell::new(false) };
}

/// The thread pointer; null where the architecture has no sections.
#[inline]
fn thread_pointer() -> *mut u8 {
    let pointer: *mut u8;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: on x86_64 Linux the first word at the thread pointer is its own address, in every C library.
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

/// This thread's area, if there is one; its `cpu_id` tells whether it is registered.
#[inline]
#[must_use]
pub(crate) fn area() -> Option<&'static Area> {
    #[cfg(loom)]
    return Some(crate::model::area());
    #[cfg(not(loom))]
    {
        let offset = OFFSET.load(Relaxed);
        (!matches!(offset, UNKNOWN | NONE)).then(|| area_at(offset))
    }
}

/// The area at `offset`, which is [`OFFSET`] where threads have areas.
#[cfg(not(loom))]
#[inline(always)]
pub(crate) fn area_at(offset: isize) -> &'static Area {
    // SAFETY: `init` found that every thread has, at this offset, a place for an area: glibc's in its thread block, or `OWN` in
    // static thread-local storage. The reference is used by this thread only, while it runs.
    unsafe { &*thread_pointer().wrapping_offset(offset).cast::<Area>() }
}

/// The CPU this thread runs on, by the cheapest way there is; it may have changed when the call returns.
#[inline]
#[must_use]
pub fn current() -> u32 {
    if let Some(area) = area() {
        let cpu = area.cpu_id.load(Relaxed);
        if cpu < 0xffff_0000 {
            return cpu;
        }
    }
    // Miri has one CPU, and does not know the call.
    // SAFETY: no arguments; answered by the vDSO.
    let cpu = if cfg!(miri) { 0 } else { unsafe { libc::sched_getcpu() } };
    u32::try_from(cpu).unwrap_or(0)
}

/// Restartable sequences work in this thread: the area is registered, by the C library or now by us.
#[must_use]
pub fn rseq_available() -> bool {
    init();
    register_thread()
}

/// Registers this thread's own area where the C library did not register one. False where that fails.
pub(crate) fn register_thread() -> bool {
    let Some(area) = area() else { return false };
    match area.cpu_id.load(Relaxed) {
        cpu if cpu < 0xffff_0000 => true,
        u32::MAX if OWN.with(|own| core::ptr::eq(own, area)) => register(area),
        _ => false,
    }
}

/// Registers the area for as long as this thread runs code. Nothing is registered where the end of the thread would not be
/// noticed.
fn register(area: &Area) -> bool {
    let Ok(key) = libc::pthread_key_t::try_from(END_OF_THREAD.load(Relaxed)) else { return false };
    let at = core::ptr::from_ref(area);
    let _errno = crate::os::ErrnoKept::now();
    // SAFETY: the key was created. The area is 32-aligned and 32 bytes long, and registered only until `unregister`, which the
    // C library calls before the thread's memory goes.
    unsafe {
        !IS_ENDING.get()
            && libc::pthread_setspecific(key, at.cast()) == 0
            && libc::syscall(libc::SYS_rseq, at, 32u32, 0, SIGNATURE) == 0
    }
}

/// The key whose destructor is [`unregister`], or -1. Written once, by the thread that first looks for the area, before any other
/// registers.
static END_OF_THREAD: AtomicI64 = AtomicI64::new(-1);
/// `RSEQ_FLAG_UNREGISTER` of include/uapi/linux/rseq.h.
const UNREGISTER: libc::c_int = 1;

/// Called by the C library at the end of a thread that has registered its area.
extern "C" fn unregister(area: *mut libc::c_void) {
    IS_ENDING.set(true);
    // SAFETY: the kernel only forgets the area and resets its fields, which are this thread's.
    unsafe { libc::syscall(libc::SYS_rseq, area, 32u32, UNREGISTER, SIGNATURE) };
}

/// Looks for the area, once a process.
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
    // In a library that was loaded late each thread may have its own elsewhere: then there is no such offset.
    // Where no thread can be started, nobody can tell.
    let other = std::thread::Builder::new().spawn(own_offset).ok()?;
    if other.join().ok() != Some(offset) {
        return None;
    }
    let mut key = 0;
    // SAFETY: the key has a place, and the destructor stays: libraries that record are never unloaded.
    if unsafe { libc::pthread_key_create(&raw mut key, Some(unregister)) } != 0 {
        return None;
    }
    END_OF_THREAD.store(i64::from(key), Relaxed);
    // Another thread may find its own elsewhere (dynamic TLS), and then `register_thread` refuses it.
    OWN.with(register).then_some(offset)
}

/// From this thread's pointer to its [`OWN`].
fn own_offset() -> isize {
    (OWN.with(core::ptr::from_ref) as isize).wrapping_sub(thread_pointer() as isize)
}

/// From the thread pointer to the area that the C library has registered; none where it registers no areas.
pub(crate) fn offset_of_libc() -> Option<isize> {
    let [offset, size] = symbols();
    // SAFETY: glibc defines `__rseq_offset` as a ptrdiff_t and `__rseq_size` as an unsigned int, both constant.
    unsafe { (size.cast::<u32>().as_ref()? != &0).then_some(*offset.cast::<isize>().as_ref()?) }
}

/// Where glibc keeps `__rseq_offset` and `__rseq_size`; null where nobody has them.
#[cfg(not(target_feature = "crt-static"))]
fn symbols() -> [*mut u8; 2] {
    // SAFETY: the names are NUL-terminated; RTLD_DEFAULT needs no handle.
    [c"__rseq_offset", c"__rseq_size"].map(|name| unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }.cast())
}

/// Where glibc keeps `__rseq_offset` and `__rseq_size`: in a program without shared libraries the linker knows, and nobody
/// else.
#[cfg(target_feature = "crt-static")]
fn symbols() -> [*mut u8; 2] {
    let (offset, size): (*mut u8, *mut u8);
    // SAFETY: addresses from the table of such, which are null where no object has the symbol (another C library).
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

//! What the ring asks of the kernel, all off the fast path: who am I, is that thread alive, take a lock from the dead,
//! memory.

use core::ffi::CStr;
use core::ptr::{NonNull, null_mut};
use core::time::Duration;
use std::io::{Error, Write as _};

use lastwords_abi::sync::{AtomicU64, Ordering};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::{read, retry_on_intr};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use rustix::thread::{CpuSet, MembarrierCommand, membarrier, sched_getaffinity, sched_setaffinity};

use crate::hooks::fault;

/// Thread id in this pid namespace.
#[must_use]
pub fn tid() -> u32 {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

/// Start time of a thread (or process, by its first thread) in clock ticks since boot: field 22 of /proc/TID/stat. 0 where it
/// cannot be read. Async-signal-safe: no allocation.
#[must_use]
pub fn start_time(tid: u32) -> u64 {
    Stat::read(tid).map_or(0, |stat| stat.start)
}

/// What /proc/TID/stat tells of a thread.
struct Stat {
    state: u8,
    /// Threads of its process, the first one included until the last has ended.
    threads: u64,
    /// Start time, clock ticks since boot.
    start: u64,
}

impl Stat {
    fn read(tid: u32) -> Option<Self> {
        let _errno = ErrnoKept::now();
        let mut path = [0u8; 32];
        // Numbers are formatted without memory of the heap; a NUL follows.
        write!(&mut path[..31], "/proc/{tid}/stat").ok()?;
        let path = CStr::from_bytes_until_nul(&path).ok()?;
        let file = retry_on_intr(|| open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())).ok()?;
        let mut text = [0u8; 512];
        let len = read(&file, &mut text).ok()?;
        let text = text.get(..len)?;
        // The second field is the name in parentheses and may hold anything; the fields after the last ')' are plain.
        let close = text.iter().rposition(|&b| b == b')')?;
        let mut fields = text.get(close + 2..)?.split(|&b| b == b' ');
        let state = *fields.next()?.first()?;
        let number = |field| str::from_utf8(field).ok()?.parse().ok();
        let threads = number(fields.nth(16)?)?;
        let start = number(fields.nth(1)?)?;
        Some(Self { state, threads, start })
    }

    /// The start time has these low 32 bits; 0 is equal to every start time.
    fn began_at(&self, start_low: u32) -> bool {
        start_low == 0 || self.start as u32 == start_low
    }
}

/// Inode of this process's pid namespace, 0 where /proc does not tell.
#[must_use]
pub fn pid_namespace() -> u64 {
    #[cfg(loom)]
    return 1;
    // Miri knows this `stat` and not the one that rustix calls there.
    #[cfg(not(loom))]
    // SAFETY: all zeroes is a valid `stat` for the call to fill; the path is NUL-terminated.
    unsafe {
        let mut st: libc::stat = core::mem::zeroed();
        // The link of this thread is read: /proc/self leads nowhere once the first thread has ended.
        if libc::stat(c"/proc/thread-self/ns/pid".as_ptr(), &raw mut st) == 0 { st.st_ino } else { 0 }
    }
}

/// The thread that had this id and start time (low 32 bits; 0 = not known) can still run.
#[must_use]
pub fn is_alive(tid: u32, start_low: u32) -> bool {
    #[cfg(loom)]
    return crate::model::is_alive(tid, start_low);
    #[cfg(not(loom))]
    {
        let _errno = ErrnoKept::now();
        // A zombie exists: it writes no more, but its id is not reused either. Miri does not know the call.
        // SAFETY: signal 0 sends nothing.
        let exists = cfg!(miri)
            || unsafe { libc::syscall(libc::SYS_tkill, tid, 0) } == 0
            || Error::last_os_error().raw_os_error() != Some(libc::ESRCH);
        exists && Stat::read(tid).is_none_or(|stat| !b"ZX".contains(&stat.state) && stat.began_at(start_low))
    }
}

/// The process that had this id and start time (low 32 bits; 0 = not known) can still run: with its other threads where the first
/// one has ended, which is a zombie until they have.
#[must_use]
pub fn is_process_alive(pid: u32, start_low: u32) -> bool {
    is_alive(pid, start_low) || Stat::read(pid).is_some_and(|stat| stat.threads > 1 && stat.began_at(start_low))
}

/// `len` bytes of zeroed private memory at an address of the kernel's choice; `None` where there are none. It stays until it is
/// unmapped. Not from the heap, and async-signal-safe.
#[must_use]
pub fn private_memory(len: usize) -> Option<NonNull<u8>> {
    // Miri does not know the last flag.
    let flags = MapFlags::PRIVATE | if cfg!(miri) { MapFlags::empty() } else { MapFlags::NORESERVE };
    // SAFETY: a new mapping at an address of the kernel's choice; no memory of ours is replaced.
    let fresh = unsafe { mmap_anonymous(null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, flags) };
    NonNull::new(fresh.ok()?.cast())
}

/// What a thread stores in an owner lock, [`lastwords_abi::session::OwnerLock`].
#[must_use]
pub fn lock_word(tid: u32, start: u64) -> u64 {
    (u64::from(tid) << 32) | (start & 0xffff_ffff)
}

/// How an owner lock was asked for ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lock {
    /// A living owner keeps it, or this very thread holds it already (a signal handler inside the section).
    Refused,
    /// It was free, or its owner is dead.
    Held,
    /// It was taken from an owner of whom nobody can tell whether it lives: it may go on where it stopped.
    Usurped,
}

/// Takes an owner lock in bounded time: spins, yields, and takes it from an owner that is dead.
///
/// `foreign` says that owners may be of another pid namespace, where ids say nothing: a lock is then taken only from an
/// owner that has kept it for the whole bound. It is asked each time an owner was seen, who told of its namespace before.
pub fn lock(word: &AtomicU64, mine: u64, foreign: impl Fn() -> bool) -> Lock {
    let (mut first, mut kept) = (None, true);
    for round in 0..LOCK_ROUNDS {
        let owner = match word.compare_exchange(0, mine, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return Lock::Held,
            Err(owner) => owner,
        };
        if owner == mine {
            return Lock::Refused;
        }
        kept &= *first.get_or_insert(owner) == owner;
        let from_owner = || word.compare_exchange(owner, mine, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if (round + 1).is_multiple_of(ASK_ROUNDS) {
            if !foreign() {
                let dead = fault!(StealLock) || !is_alive((owner >> 32) as u32, owner as u32);
                if dead && from_owner() {
                    return Lock::Held;
                }
            } else if kept && round == LOCK_ROUNDS - 1 && from_owner() {
                return Lock::Usurped;
            }
        }
        pause(round);
    }
    Lock::Refused
}

const LOCK_ROUNDS: u32 = if cfg!(loom) { 2 } else { 1024 };
/// The owner's life is asked after once in so many rounds.
const ASK_ROUNDS: u32 = if cfg!(loom) { 1 } else { 64 };

/// Gives an owner lock back, unless it was taken from us.
pub fn unlock(word: &AtomicU64, mine: u64) {
    let _ = word.compare_exchange(mine, 0, Ordering::Release, Ordering::Relaxed);
}

/// Waits a little, more with each round.
pub fn pause(round: u32) {
    #[cfg(loom)]
    {
        let _ = round;
        loom::thread::yield_now();
    }
    #[cfg(not(loom))]
    if round < 32 {
        core::hint::spin_loop();
    } else if round < 512 {
        std::thread::yield_now();
    } else {
        let _errno = ErrnoKept::now();
        std::thread::sleep(Duration::from_micros(50));
    }
}

/// Whether a new thread can start. Where glibc has registered the area for restartable sequences of the first thread, it ends the
/// process if it cannot do so for the next one: a filter of system calls that refuses `rseq` was installed meanwhile. The call
/// with a length that cannot be is refused with EINVAL, and with another error where there is a filter, or no such call.
#[must_use]
pub fn threads_can_start() -> bool {
    let _errno = ErrnoKept::now();
    // SAFETY: the kernel refuses a length of 0 before it looks at the area.
    let done = unsafe { libc::syscall(libc::SYS_rseq, null_mut::<u8>(), 0u32, 0, 0) };
    let is_known = done == 0 || Error::last_os_error().raw_os_error() == Some(libc::EINVAL);
    is_known || crate::cpu::offset_of_libc().is_none()
}

/// Keeps `errno` of this thread: dropped, it puts back the value that it found. Recording an event is no call of the C library to
/// the application, so that every way on which an event may call the system keeps it.
#[derive(Debug)]
pub struct ErrnoKept(i32);

impl ErrnoKept {
    /// Notes the value. Async-signal-safe.
    #[must_use]
    pub fn now() -> Self {
        // SAFETY: the place is this thread's, as long as the thread lives.
        Self(unsafe { *libc::__errno_location() })
    }
}

impl Drop for ErrnoKept {
    fn drop(&mut self) {
        // SAFETY: as in `now`.
        unsafe { *libc::__errno_location() = self.0 };
    }
}

/// All signals of this thread are blocked while the value lives, but for SIGBUS: the kernel ends a process where a page of a
/// session's file is lost and the signal that tells of it is blocked. Miri has no signals, so that nothing is blocked there.
#[derive(Debug)]
pub struct SignalsBlocked {
    before: libc::sigset_t,
}

impl SignalsBlocked {
    /// Blocks all signals of this thread. Async-signal-safe.
    #[must_use]
    pub fn now() -> Self {
        // SAFETY: both sets are places of this function for the calls to fill; an all-zero set is valid.
        unsafe {
            let mut all: libc::sigset_t = core::mem::zeroed();
            let mut before: libc::sigset_t = core::mem::zeroed();
            if !cfg!(miri) {
                libc::sigfillset(&raw mut all);
                libc::sigdelset(&raw mut all, libc::SIGBUS);
                libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
            }
            Self { before }
        }
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        if !cfg!(miri) {
            // SAFETY: `now` had the set filled.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, null_mut()) };
        }
    }
}

/// Forks between the process that first asked and this one, and one more. Written by [`in_child`] alone, when the child has one
/// thread; read by whoever keeps what a fork changes.
static FORKS: core::sync::atomic::AtomicU32 = core::sync::atomic::AtomicU32::new(1);
/// Calls of forked children, in the order in which they were asked for.
static IN_CHILD: std::sync::OnceLock<fn()> = std::sync::OnceLock::new();

/// A number that is another one in a forked child than in its parent; never 0. Holds once [`prepare_process`] was called.
#[inline]
#[must_use]
pub fn forks() -> u32 {
    FORKS.load(core::sync::atomic::Ordering::Relaxed)
}

/// Sees to it that forked children call `call`, which must be async-signal-safe. The first call that is given counts.
pub fn call_in_child(call: fn()) {
    // Another thread that was faster gives the same call.
    let _ = IN_CHILD.set(call);
    prepare_process();
}

/// What a process needs before it records: a forked child must forget what its parent's thread had claimed, and a
/// snapshot must be able to restart sections.
pub fn prepare_process() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler is an `extern "C"` function that stays as long as the process. A failure leaves what a program
        // without fork needs.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        // A kernel that refuses this refuses `restart_sections` too, which says so. Miri does not know the call.
        if !cfg!(miri) {
            let _ = membarrier(MembarrierCommand::RegisterPrivateExpeditedRseq);
        }
    });
}

extern "C" fn in_child() {
    FORKS.fetch_add(1, core::sync::atomic::Ordering::Relaxed);
    crate::threads::forget_in_child();
    if let Some(call) = IN_CHILD.get() {
        call();
    }
}

/// Restarts every section of this process that runs now. False where the kernel cannot (before Linux 5.10).
#[must_use]
pub fn restart_sections() -> bool {
    #[cfg(loom)]
    return crate::model::restart_sections();
    #[cfg(not(loom))]
    membarrier(MembarrierCommand::PrivateExpeditedRseq).is_ok()
}

/// Runs this thread for a moment on each of the CPUs, so that whatever ran there was preempted and its section restarts;
/// then puts its affinity back. Returns the CPUs where it may not run though they are on line; sections there had 20 ms to
/// end.
pub fn visit_cpus(cpus: impl Iterator<Item = u32>) -> alloc::vec::Vec<u32> {
    let Ok(before) = sched_getaffinity(None) else { return cpus.collect() };
    let is_refused = |cpu: &u32| {
        // The kernel refuses a set of no CPU, as it is for one that does not go into a set.
        let mut one = CpuSet::new();
        if (*cpu as usize) < CpuSet::MAX_CPU {
            one.set(*cpu as usize);
        }
        sched_setaffinity(None, &one).is_err() && is_online(*cpu)
    };
    let unvisited: alloc::vec::Vec<u32> = cpus.filter(is_refused).collect();
    let _ = sched_setaffinity(None, &before);
    if !unvisited.is_empty() {
        std::thread::sleep(Duration::from_millis(20));
    }
    unvisited
}

/// The CPU is on line; CPU 0, which has no such file, always is.
fn is_online(cpu: u32) -> bool {
    std::fs::read(std::format!("/sys/devices/system/cpu/cpu{cpu}/online")).map_or(true, |t| t.first() != Some(&b'0'))
}

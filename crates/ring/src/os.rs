//! What the ring asks of the kernel, all off the fast path: who am I, is that thread alive, take a lock from the dead,
//! memory.

use core::ptr::NonNull;
use std::io::Write as _;

use lastwords_abi::sync::{AtomicU64, Ordering};

use crate::hooks::fault;

/// Thread id in this pid namespace.
#[must_use]
pub fn tid() -> u32 {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

/// Process id in this pid namespace.
#[must_use]
pub fn pid() -> u32 {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::getpid() as u32 }
}

/// The thread exists (a zombie does not count as gone: it writes no more, but its id is not reused either).
#[must_use]
pub fn exists(tid: u32) -> bool {
    if cfg!(miri) {
        // Miri does not know the call.
        return true;
    }
    // SAFETY: signal 0 sends nothing.
    let sent = unsafe { libc::syscall(libc::SYS_tkill, tid, 0) };
    // SAFETY: errno is this thread's.
    sent == 0 || unsafe { *libc::__errno_location() } != libc::ESRCH
}

/// Start time of a thread (or process, by its first thread) in clock ticks since boot: field 22 of /proc/TID/stat. 0 where it
/// cannot be read. Async-signal-safe: no allocation.
#[must_use]
pub fn start_time(tid: u32) -> u64 {
    stat(tid).map_or(0, |stat| stat.start)
}

/// What /proc/TID/stat tells of a thread.
struct Stat {
    state: u8,
    /// Threads of its process, the first one included until the last has ended.
    threads: u64,
    /// Start time, clock ticks since boot.
    start: u64,
}

fn stat(tid: u32) -> Option<Stat> {
    let mut path = [0u8; 32];
    // Numbers are formatted without memory of the heap; a NUL follows.
    write!(&mut path[..31], "/proc/{tid}/stat").ok()?;
    let mut text = [0u8; 512];
    let len = read_file(&path, &mut text)?;
    let text = text.get(..len)?;
    // The second field is the name in parentheses and may hold anything; the fields after the last ')' are plain.
    let close = text.iter().rposition(|&b| b == b')')?;
    let mut fields = text.get(close + 2..)?.split(|&b| b == b' ');
    let state = *fields.next()?.first()?;
    let number = |field| str::from_utf8(field).ok()?.parse().ok();
    let threads = number(fields.nth(16)?)?;
    let start = number(fields.nth(1)?)?;
    Some(Stat { state, threads, start })
}

fn read_file(path: &[u8], out: &mut [u8]) -> Option<usize> {
    let _errno = ErrnoKept::new();
    // SAFETY: `path` is NUL-terminated (its callers write the NUL); the buffer is valid for its length; the descriptor is
    // closed before return.
    unsafe {
        let fd = loop {
            match libc::open(path.as_ptr().cast(), libc::O_RDONLY | libc::O_CLOEXEC) {
                -1 if *libc::__errno_location() == libc::EINTR => {}
                fd => break fd,
            }
        };
        if fd < 0 {
            return None;
        }
        let len = libc::read(fd, out.as_mut_ptr().cast(), out.len());
        libc::close(fd);
        usize::try_from(len).ok()
    }
}

/// Inode of this process's pid namespace, 0 where /proc does not tell.
#[must_use]
pub fn pid_namespace() -> u64 {
    #[cfg(loom)]
    return 1;
    #[cfg(not(loom))]
    // SAFETY: all zeroes is a valid `stat` for the call to fill; the path is NUL-terminated.
    unsafe {
        let mut st: libc::stat = core::mem::zeroed();
        // Of this thread: /proc/self tells nothing once the first thread has ended.
        if libc::stat(c"/proc/thread-self/ns/pid".as_ptr(), &raw mut st) == 0 { st.st_ino } else { 0 }
    }
}

/// The thread that had this id and start time (low 32 bits; 0 = not known) can still run.
#[must_use]
pub fn is_alive(tid: u32, start_low: u32) -> bool {
    #[cfg(loom)]
    return crate::model::is_alive(tid, start_low);
    #[cfg(not(loom))]
    is_alive_here(tid, start_low)
}

#[cfg(not(loom))]
fn is_alive_here(tid: u32, start_low: u32) -> bool {
    let _errno = ErrnoKept::new();
    if !exists(tid) {
        return false;
    }
    stat(tid).is_none_or(|stat| !b"ZX".contains(&stat.state) && is_start(&stat, start_low))
}

fn is_start(stat: &Stat, start_low: u32) -> bool {
    start_low == 0 || stat.start as u32 == start_low
}

/// The process that had this id and start time (low 32 bits; 0 = not known) can still run: with its other threads where the first
/// one has ended, which is a zombie until they have.
#[must_use]
pub fn is_process_alive(pid: u32, start_low: u32) -> bool {
    is_alive(pid, start_low) || stat(pid).is_some_and(|stat| stat.threads > 1 && is_start(&stat, start_low))
}

/// `len` bytes of zeroed private memory at an address of the kernel's choice; `None` where there are none. It stays until it is
/// unmapped. Not from the heap, and async-signal-safe.
#[must_use]
pub fn private_memory(len: usize) -> Option<NonNull<u8>> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // Miri does not know the last flag.
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | if cfg!(miri) { 0 } else { libc::MAP_NORESERVE };
    // SAFETY: no memory that is in use is asked for.
    let fresh = unsafe { libc::mmap(core::ptr::null_mut(), len, protection, flags, -1, 0) };
    if fresh == libc::MAP_FAILED { None } else { NonNull::new(fresh.cast()) }
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

/// Takes an owner lock in bounded time, as [`take`] does; whether it was had.
pub fn lock(word: &AtomicU64, mine: u64, foreign: impl Fn() -> bool) -> bool {
    take(word, mine, foreign) != Lock::Refused
}

/// Takes an owner lock in bounded time: spins, yields, and takes it from an owner that is dead.
///
/// `foreign` says that owners may be of another pid namespace, where ids say nothing: a lock is then taken only from an
/// owner that has kept it for the whole bound. It is asked each time an owner was seen, who told of its namespace before.
pub fn take(word: &AtomicU64, mine: u64, foreign: impl Fn() -> bool) -> Lock {
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
        // SAFETY: no arguments.
        unsafe { libc::sched_yield() };
    } else {
        let _errno = ErrnoKept::new();
        let nap = libc::timespec { tv_sec: 0, tv_nsec: 50_000 };
        // SAFETY: the time is valid; no remainder is asked for.
        unsafe { libc::nanosleep(&raw const nap, core::ptr::null_mut()) };
    }
}

/// Whether a new thread can start. Where glibc has registered the area for restartable sequences of the first thread, it ends the
/// process if it cannot do so for the next one: a filter of system calls that refuses `rseq` was installed meanwhile. The call
/// with a length that cannot be is refused with EINVAL, and with another error where there is a filter, or no such call.
#[must_use]
pub fn threads_can_start() -> bool {
    let _errno = ErrnoKept::new();
    // SAFETY: the kernel refuses a length of 0 before it looks at the area.
    let done = unsafe { libc::syscall(libc::SYS_rseq, core::ptr::null_mut::<u8>(), 0u32, 0, 0) };
    // SAFETY: errno is this thread's.
    let error = unsafe { *libc::__errno_location() };
    done == 0 || error == libc::EINVAL || !crate::cpu::is_registered_by_libc()
}

/// Keeps `errno` of this thread: dropped, it puts back the value that it found. Recording an event is no call of the C library to
/// the application, so that every way on which an event may call the system keeps it.
#[derive(Debug)]
pub struct ErrnoKept(i32);

impl ErrnoKept {
    /// Notes the value. Async-signal-safe.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "a value that acts when it is dropped is made on purpose")]
    pub fn new() -> Self {
        // SAFETY: the place is this thread's, as long as the thread lives.
        Self(unsafe { *libc::__errno_location() })
    }
}

impl Drop for ErrnoKept {
    fn drop(&mut self) {
        // SAFETY: as in `new`.
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
    #[allow(clippy::new_without_default, reason = "a default that blocks signals would surprise")]
    pub fn new() -> Self {
        // SAFETY: both sets are places of this function for the calls to fill; an all-zero set is valid.
        unsafe {
            let mut all: libc::sigset_t = core::mem::zeroed();
            let mut before: libc::sigset_t = core::mem::zeroed();
            if cfg!(miri) {
                return Self { before };
            }
            libc::sigfillset(&raw mut all);
            libc::sigdelset(&raw mut all, libc::SIGBUS);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
            Self { before }
        }
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        if cfg!(miri) {
            return;
        }
        // SAFETY: `new` had the set filled.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, core::ptr::null_mut()) };
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
        membarrier(MEMBARRIER_REGISTER_PRIVATE_EXPEDITED_RSEQ);
    });
}

extern "C" fn in_child() {
    FORKS.fetch_add(1, core::sync::atomic::Ordering::Relaxed);
    crate::threads::forget_in_child();
    if let Some(call) = IN_CHILD.get() {
        call();
    }
}

const MEMBARRIER_PRIVATE_EXPEDITED_RSEQ: libc::c_int = 1 << 7;
const MEMBARRIER_REGISTER_PRIVATE_EXPEDITED_RSEQ: libc::c_int = 1 << 8;

fn membarrier(command: libc::c_int) -> bool {
    // Miri does not know the call.
    // SAFETY: the call has no memory operands.
    !cfg!(miri) && unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// Restarts every section of this process that runs now. False where the kernel cannot (before Linux 5.10).
#[must_use]
pub fn restart_sections() -> bool {
    #[cfg(loom)]
    return crate::model::restart_sections();
    #[cfg(not(loom))]
    membarrier(MEMBARRIER_PRIVATE_EXPEDITED_RSEQ)
}

/// Runs this thread for a moment on each of the CPUs, so that whatever ran there was preempted and its section restarts;
/// then puts its affinity back. Returns the CPUs where it may not run though they are on line; sections there had 20 ms to
/// end.
pub fn visit_cpus(cpus: impl Iterator<Item = u32>) -> alloc::vec::Vec<u32> {
    let mut unvisited = alloc::vec::Vec::new();
    let size = size_of::<libc::cpu_set_t>();
    // SAFETY: the sets are plain bit arrays, valid when zeroed, and passed with their size.
    unsafe {
        let mut before: libc::cpu_set_t = core::mem::zeroed();
        if libc::sched_getaffinity(0, size, &raw mut before) != 0 {
            return cpus.collect();
        }
        for cpu in cpus {
            let mut one: libc::cpu_set_t = core::mem::zeroed();
            if cpu as usize >= 8 * size {
                unvisited.push(cpu);
                continue;
            }
            libc::CPU_SET(cpu as usize, &mut one);
            if libc::sched_setaffinity(0, size, &raw const one) != 0 && is_online(cpu) {
                unvisited.push(cpu);
            }
        }
        libc::sched_setaffinity(0, size, &raw const before);
    }
    if !unvisited.is_empty() {
        let nap = libc::timespec { tv_sec: 0, tv_nsec: 20_000_000 };
        // SAFETY: the time is valid; no remainder is asked for.
        unsafe { libc::nanosleep(&raw const nap, core::ptr::null_mut()) };
    }
    unvisited
}

/// The CPU is on line; CPU 0, which has no such file, always is.
fn is_online(cpu: u32) -> bool {
    std::fs::read(std::format!("/sys/devices/system/cpu/cpu{cpu}/online")).map_or(true, |t| t.first() != Some(&b'0'))
}

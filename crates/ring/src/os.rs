//! Calls of the system that the ring makes, none of them on the fast path: identity of threads,
//! whether a thread lives, owner locks, memory.

use core::ffi::CStr;
use core::ptr::{NonNull, null_mut};
use core::time::Duration;
#[cfg(not(loom))]
use std::io::Error;
use std::io::Write as _;

use lastwords_abi::sync::{AtomicU64, Ordering};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::{read, retry_on_intr};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
#[cfg(not(loom))]
use rustix::thread::{MembarrierCommand, membarrier};

use crate::errno::ErrnoKept;
use crate::hooks::fault;

/// Returns the thread id in this pid namespace.
#[must_use]
pub fn tid() -> u32 {
    // SAFETY: the call has no arguments and cannot fail.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

/// Returns the start time of a thread (or process, by its first thread) in clock ticks since boot:
/// field 22 of /proc/TID/stat. Returns 0 if it cannot be read. The function is async-signal-safe:
/// it allocates nothing.
#[must_use]
pub fn start_time(tid: u32) -> u64 {
    Stat::read(tid).map_or(0, |stat| stat.start)
}

/// The fields of /proc/TID/stat that are used here.
struct Stat {
    state: u8,
    /// Number of threads of the process. The first thread counts until the last has ended.
    threads: u64,
    /// Start time, in clock ticks since boot.
    start: u64,
}

impl Stat {
    fn read(tid: u32) -> Option<Self> {
        let _errno = ErrnoKept::now();
        let mut path = [0u8; 32];
        // The path is formatted without heap memory; a NUL follows it.
        write!(&mut path[..31], "/proc/{tid}/stat").ok()?;
        let path = CStr::from_bytes_until_nul(&path).ok()?;
        let file =
            retry_on_intr(|| open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())).ok()?;
        let mut text = [0u8; 512];
        let len = read(&file, &mut text).ok()?;
        let text = text.get(..len)?;
        // The second field is the name in parentheses, which may contain any characters. The fields
        // after the last ')' are plain.
        let close = text.iter().rposition(|&b| b == b')')?;
        let mut fields = text.get(close + 2..)?.split(|&b| b == b' ');
        let state = *fields.next()?.first()?;
        let number = |field| str::from_utf8(field).ok()?.parse().ok();
        let threads = number(fields.nth(16)?)?;
        let start = number(fields.nth(1)?)?;
        Some(Self { state, threads, start })
    }

    /// Returns true if the start time has these low 32 bits; 0 matches every start time.
    fn began_at(&self, start_low: u32) -> bool {
        start_low == 0 || self.start as u32 == start_low
    }
}

/// Returns the inode of this process's pid namespace; 0 if /proc does not provide it.
#[must_use]
pub fn pid_namespace() -> u64 {
    #[cfg(loom)]
    return 1;
    #[cfg(not(loom))]
    {
        let mut text = [0u8; 32];
        // The link is not followed: AppArmor does not let a confined process look at what it leads
        // to. It is that of this thread, because /proc/self is not usable once the first thread has
        // ended. SAFETY: the path is NUL-terminated, and the buffer has this length.
        let len = unsafe {
            libc::readlink(
                c"/proc/thread-self/ns/pid".as_ptr(),
                text.as_mut_ptr().cast(),
                text.len(),
            )
        };
        usize::try_from(len)
            .ok()
            .and_then(|len| text.get(..len))
            .and_then(namespace_of)
            .unwrap_or(0)
    }
}

/// Returns the inode in the text of a link to a namespace: `pid:[4026531836]`.
#[cfg(not(loom))]
fn namespace_of(link: &[u8]) -> Option<u64> {
    let number = link.strip_prefix(b"pid:[")?.strip_suffix(b"]")?;
    str::from_utf8(number).ok()?.parse().ok()
}

/// Returns true if the thread that had this id and start time (low 32 bits; 0 = not known) may
/// still run.
#[must_use]
pub fn is_alive(tid: u32, start_low: u32) -> bool {
    #[cfg(loom)]
    return crate::model::is_alive(tid, start_low);
    #[cfg(not(loom))]
    {
        let _errno = ErrnoKept::now();
        // A zombie still exists for this check. That is harmless: it writes nothing more, and its
        // id is not reused. Miri does not know the call. SAFETY: signal 0 sends nothing.
        let exists = cfg!(miri)
            || unsafe { libc::syscall(libc::SYS_tkill, tid, 0) } == 0
            || Error::last_os_error().raw_os_error() != Some(libc::ESRCH);
        exists
            && Stat::read(tid)
                .is_none_or(|stat| !b"ZX".contains(&stat.state) && stat.began_at(start_low))
    }
}

/// Returns true if the process that had this id and start time (low 32 bits; 0 = not known) may
/// still run. If its first thread has ended, that thread is a zombie while the other threads run.
#[must_use]
pub fn is_process_alive(pid: u32, start_low: u32) -> bool {
    is_alive(pid, start_low)
        || Stat::read(pid).is_some_and(|stat| stat.threads > 1 && stat.began_at(start_low))
}

/// Maps `len` bytes of zeroed private memory at an address of the kernel's choice; returns `None`
/// if the kernel refuses. The memory stays until it is unmapped. It does not come from the heap,
/// and the function is async-signal-safe.
#[must_use]
pub fn private_memory(len: usize) -> Option<NonNull<u8>> {
    // Miri does not know the last flag.
    let flags =
        MapFlags::PRIVATE | if cfg!(miri) { MapFlags::empty() } else { MapFlags::NORESERVE };
    // SAFETY: a new mapping at an address of the kernel's choice; no memory of ours is replaced.
    let fresh =
        unsafe { mmap_anonymous(null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, flags) };
    NonNull::new(fresh.ok()?.cast())
}

/// Returns the word that a thread stores in an owner lock, [`lastwords_abi::session::OwnerLock`].
#[must_use]
pub fn lock_word(tid: u32, start: u64) -> u64 {
    (u64::from(tid) << 32) | (start & 0xffff_ffff)
}

/// The result of an attempt to take an owner lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lock {
    /// A living owner holds the lock, or this same thread already does (in a signal handler that
    /// interrupted the locked section).
    Refused,
    /// The lock was free, or its owner is dead. This thread now holds it.
    Held,
    /// This thread took the lock from an owner that may still live. That owner may continue where
    /// it stopped.
    Usurped,
}

/// Takes an owner lock in bounded time. The function spins, yields, and takes the lock from an
/// owner that is dead.
///
/// `foreign` returns true if owners may be of another pid namespace, where this process cannot
/// interpret ids. A lock is then taken only from an owner that has held it for the whole bound.
/// `foreign` is called each time after an owner was seen, because an owner announces its namespace
/// before it takes the lock.
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
        let from_owner =
            || word.compare_exchange(owner, mine, Ordering::AcqRel, Ordering::Relaxed).is_ok();
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
/// The function checks once in this many rounds whether the owner lives.
const ASK_ROUNDS: u32 = if cfg!(loom) { 1 } else { 64 };

/// Releases an owner lock, unless another thread has taken it from this one.
pub fn unlock(word: &AtomicU64, mine: u64) {
    let _ = word.compare_exchange(mine, 0, Ordering::Release, Ordering::Relaxed);
}

/// Waits for a short time, which grows with each round.
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
/// Restarts every section of this process that runs now. Returns false if the kernel cannot do that
/// (before Linux 5.10).
#[must_use]
pub fn restart_sections() -> bool {
    #[cfg(loom)]
    return crate::model::restart_sections();
    #[cfg(not(loom))]
    membarrier(MembarrierCommand::PrivateExpeditedRseq).is_ok()
}

/// Runs this thread briefly on each of the CPUs. This preempts the thread that ran there, so its
/// section restarts. Then restores the affinity. Returns the CPUs that are online but on which this
/// thread may not run; sections there had 20 ms to end.
pub fn visit_cpus(cpus: impl Iterator<Item = u32>) -> alloc::vec::Vec<u32> {
    let Ok(before) = sched_getaffinity(None) else { return cpus.collect() };
    let is_refused = |cpu: &u32| {
        // The kernel refuses an empty set, which stands for a CPU number that does not fit into a
        // set.
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

/// Returns true if the CPU is online. CPU 0 has no such file and is always online.
fn is_online(cpu: u32) -> bool {
    std::fs::read(std::format!("/sys/devices/system/cpu/cpu{cpu}/online"))
        .map_or(true, |t| t.first() != Some(&b'0'))
}

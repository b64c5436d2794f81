//! This thread and this process: ids and the thread's name, read once a thread and kept in thread-local storage without a
//! destructor. A forked child reads them again.

use std::cell::Cell;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

/// Bytes of a thread's name.
pub(crate) const NAME_LEN: usize = 16;

/// What a thread's events say of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Identity {
    /// Value of [`FORKS`] for which this holds; 0 = not read yet.
    forks: u32,
    /// Process id, as the process sees it.
    pub(crate) pid: u32,
    /// Thread id.
    pub(crate) tid: u32,
    /// Thread name, NUL-padded.
    pub(crate) name: [u8; NAME_LEN],
}

impl Identity {
    /// Process id in the upper half, thread id in the lower one: an owner of a lock, or of a span.
    pub(crate) fn word(&self) -> u64 {
        u64::from(self.pid) << 32 | u64::from(self.tid)
    }
}

/// One more than the forks between the process that first asked and this one.
static FORKS: AtomicU32 = AtomicU32::new(1);

thread_local! {
    static IDENTITY: Cell<Identity> = const { Cell::new(Identity { forks: 0, pid: 0, tid: 0, name: [0; NAME_LEN] }) };
}

extern "C" fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// Sees to it that forked children read their own ids. Called when a session is begun.
pub(crate) fn watch_forks() {
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        // SAFETY: `forked` is an extern "C" function that lives as long as the process and only adds to an atomic.
        unsafe {
            libc::pthread_atfork(None, None, Some(forked));
        }
    });
}

/// This thread, from the cache.
#[inline]
pub(crate) fn identity() -> Identity {
    let cached = IDENTITY.get();
    if cached.forks == FORKS.load(Ordering::Relaxed) { cached } else { read_identity() }
}

#[cold]
fn read_identity() -> Identity {
    let mut name = [0u8; NAME_LEN];
    // SAFETY: PR_GET_NAME writes at most 16 bytes to the buffer given; getpid and gettid take nothing.
    let (pid, tid) = unsafe {
        libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr());
        (libc::getpid(), libc::syscall(libc::SYS_gettid))
    };
    let identity = Identity { forks: FORKS.load(Ordering::Relaxed), pid: pid as u32, tid: tid as u32, name };
    IDENTITY.set(identity);
    identity
}

/// Start time of this process, clock ticks since boot: read once, and once more in a forked child.
#[cfg(feature = "tracing")]
pub(crate) fn process_start() -> u64 {
    use std::sync::atomic::AtomicU64;
    static START: AtomicU64 = AtomicU64::new(0);
    static READ: AtomicU32 = AtomicU32::new(0);
    let forks = FORKS.load(Ordering::Relaxed);
    if READ.load(Ordering::Acquire) != forks {
        START.store(lastwords_ring::os::start_time(identity().pid), Ordering::Relaxed);
        READ.store(forks, Ordering::Release);
    }
    START.load(Ordering::Relaxed)
}

/// Reads this thread's name and ids anew: after a change of name, which is not noticed otherwise.
pub fn refresh_thread() {
    read_identity();
}

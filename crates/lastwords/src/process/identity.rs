//! This thread and this process: ids and the thread's name, read once a thread and kept in
//! thread-local storage without a destructor. A forked child reads them again.

use std::cell::Cell;

use lastwords_ring::{forks, os};

/// Bytes of a thread's name.
pub(crate) const NAME_LEN: usize = 16;

/// The identity of a thread, as its events show it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Identity {
    /// Value of [`forks::forks`] for which this is valid; 0 = not read yet.
    forks: u32,
    /// Process id, as the process sees it.
    pub pid: u32,
    /// Thread id.
    pub(crate) tid: u32,
    /// Thread name, NUL-padded.
    pub(crate) name: [u8; NAME_LEN],
}

impl Identity {
    /// Returns the process id in the upper half and the thread id in the lower half. This is the
    /// owner of a lock, or of a span.
    #[inline]
    pub(crate) fn word(&self) -> u64 {
        u64::from(self.pid) << 32 | u64::from(self.tid)
    }
}

thread_local! {
    static IDENTITY: Cell<Identity> = const { Cell::new(Identity { forks: 0, pid: 0, tid: 0, name: [0; NAME_LEN] }) };
}

/// Returns this thread's identity from the cache.
#[inline]
pub(crate) fn identity() -> Identity {
    let cached = IDENTITY.get();
    if cached.forks == forks::forks() { cached } else { read_identity() }
}

/// Returns the id of this thread. An event needs no more, and a copy of the whole identity would
/// pass through memory before the clock is read.
#[inline(always)]
pub(crate) fn tid() -> u32 {
    let cached = IDENTITY.get();
    if cached.forks == forks::forks() { cached.tid } else { read_identity().tid }
}

/// Returns [`Identity::word`] of this thread, without a copy of the whole identity.
#[cfg(feature = "tracing")]
#[inline(always)]
pub(crate) fn word() -> u64 {
    let cached = IDENTITY.get();
    if cached.forks == forks::forks() { cached.word() } else { read_identity().word() }
}

#[cold]
#[inline(never)]
fn read_identity() -> Identity {
    let mut name = [0u8; NAME_LEN];
    // SAFETY: PR_GET_NAME writes at most 16 bytes to the buffer given.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    let identity =
        Identity { forks: forks::forks(), pid: std::process::id(), tid: os::tid(), name };
    IDENTITY.set(identity);
    identity
}

/// Returns the start time of this process in clock ticks since boot. It is read once, and once more
/// in a forked child.
#[cfg(feature = "tracing")]
pub(crate) fn process_start() -> u64 {
    use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
    use std::sync::atomic::{AtomicU32, AtomicU64};
    static START: AtomicU64 = AtomicU64::new(0);
    static READ: AtomicU32 = AtomicU32::new(0);
    let forks = forks::forks();
    if READ.load(Acquire) != forks {
        START.store(os::start_time(identity().pid), Relaxed);
        READ.store(forks, Release);
    }
    START.load(Relaxed)
}

/// Reads this thread's name and ids again. Call it after a change of name, which is not noticed
/// otherwise.
pub fn refresh_thread() {
    read_identity();
}

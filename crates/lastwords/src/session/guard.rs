//! The guards of this process: robust futexes in its sessions, which the kernel marks when the
//! process dies.
//!
//! The listener's thread owns them: a robust list belongs to a thread, and any other thread may end
//! before its process. It has a robust list of its own, in which each session of the process has an
//! entry: the guard in the session's region. When the thread ends (`exit`, a signal, SIGKILL,
//! `execve` by another thread), the kernel walks the list and sets FUTEX_OWNER_DIED in every word
//! that holds the thread's id. So a reader in any pid namespace sees from the session's memory
//! alone whether the process lives. A forked child has entries of its own: it inherits no robust
//! list, and holds its guards when it has a listener's thread.
//!
//! The list replaces that of the C library in the listener's thread. The C library's list serves
//! robust mutexes of applications, which this thread does not lock.
//!
//! Source: Documentation/locking/robust-futexes.rst of Linux.

use core::mem::offset_of;
use core::ptr::{NonNull, null_mut};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicIsize, AtomicPtr, AtomicU32, AtomicUsize};

use lastwords_abi::session::Guard;
use lastwords_ring::{forks, os};

use crate::session::shared::{self, MAX_SESSIONS, SessionShared};

/// `struct robust_list_head` of linux/futex.h.
#[repr(C)]
struct Head {
    /// Address of the first entry; that of this head if there is none.
    next: AtomicUsize,
    /// From an entry to its futex, in bytes.
    offset: AtomicIsize,
    /// An entry that is just being changed. Not used: `next` is changed in one store.
    pending: AtomicUsize,
}

/// The robust list of the listener's thread. The kernel reads it when the thread ends. Written by
/// the holder of [`LOCK`].
static HEAD: Head = Head {
    next: AtomicUsize::new(0),
    offset: AtomicIsize::new(offset_of!(Guard, word) as isize - offset_of!(Guard, next) as isize),
    pending: AtomicUsize::new(0),
};
/// The entries of the list in their order, with gaps. Read and written by the holder of [`LOCK`].
/// Links are made from this table: those in the sessions' memory could be damaged.
static ENTRIES: [AtomicPtr<Guard>; MAX_SESSIONS] =
    [const { AtomicPtr::new(null_mut()) }; MAX_SESSIONS];
/// The value of [`forks::forks`] for which [`HEAD`] and [`ENTRIES`] are valid; 0: for none. In a
/// forked child they are those of its parent. Written by the holder of [`LOCK`].
static VALID: AtomicU32 = AtomicU32::new(0);
/// Id of the thread whose list this is. Kept, because the application may forbid system calls
/// later. Written by the holder of [`LOCK`] before `VALID`.
static THREAD: AtomicU32 = AtomicU32::new(0);
/// 0 or the value of [`forks::forks`] in the process whose thread holds the lock. What a forked child
/// inherits is not held.
static LOCK: AtomicU32 = AtomicU32::new(0);

fn locked<T>(change: impl FnOnce() -> T) -> T {
    let (mine, mut round) = (forks::forks(), 0);
    let is_held = |holder: u32| holder == mine;
    while LOCK.fetch_update(AcqRel, Acquire, |holder| (!is_held(holder)).then_some(mine)).is_err() {
        os::pause(round);
        round = round.saturating_add(1);
    }
    let done = change();
    LOCK.store(0, Release);
    done
}

/// Registers the list of this thread, which is the listener's, without entries.
pub(crate) fn begin() {
    let thread = os::tid();
    locked(|| {
        THREAD.store(thread, Relaxed);
        ENTRIES.iter().for_each(|entry| entry.store(null_mut(), Relaxed));
        link();
        // SAFETY: the head stays as long as the process. The kernel reads and writes entries only
        // through checked accesses.
        let registered =
            unsafe { libc::syscall(libc::SYS_set_robust_list, &raw const HEAD, size_of::<Head>()) }
                == 0;
        VALID.store(if registered { forks::forks() } else { 0 }, Relaxed);
    });
}

/// Links the entries in the order of the table. Each store leaves a list with all entries that were
/// and stay in the table, because it is done from the end.
fn link() {
    let mut next = (&raw const HEAD).addr();
    let guards = ENTRIES.iter().rev().filter_map(|entry| NonNull::new(entry.load(Relaxed)));
    for guard in guards {
        // SAFETY: the guards of the table are in mapped regions of sessions: `release` removes them
        // first.
        unsafe { guard.as_ref() }.next.store(next as u64, Relaxed);
        next = guard.addr().get();
    }
    HEAD.next.store(next, Release);
}

/// Returns true if the kernel lets this process register robust futexes, so that a session shows in
/// any pid namespace whether the process lives.
#[must_use]
pub fn is_possible() -> bool {
    let (mut head, mut len) = (null_mut::<u8>(), 0usize);
    // SAFETY: the call writes to these two local variables.
    unsafe { libc::syscall(libc::SYS_get_robust_list, 0, &raw mut head, &raw mut len) == 0 }
}

/// Returns the guard of this process in a session, if the process is in the session's table.
fn guard_of(session: &SessionShared) -> Option<&'static Guard> {
    session.view().guards()?.entries.get(session.entry()?)
}

/// Holds the guards of all sessions of this process. Only the listener's thread calls it.
pub(crate) fn hold() {
    locked(|| {
        if VALID.load(Relaxed) != forks::forks() {
            return;
        }
        let thread = THREAD.load(Relaxed);
        // A session that is being closed has released its guard, or will.
        let open = shared::all().filter(|session| session.handles.load(Acquire) > 0);
        for guard in open.filter_map(guard_of).filter(|guard| guard.word.load(Relaxed) != thread) {
            let raw = core::ptr::from_ref(guard).cast_mut();
            let Some(free) = ENTRIES.iter().find(|entry| entry.load(Relaxed).is_null()) else {
                break;
            };
            free.store(raw, Relaxed);
            link();
            // Readers take it from here on that the kernel will mark the guard.
            guard.word.store(thread, Release);
        }
    });
}

/// Releases the guard of a session that this process is leaving, before its memory is given back.
pub(crate) fn release(session: &SessionShared) {
    let Some(guard) = guard_of(session) else { return };
    locked(|| {
        if VALID.load(Relaxed) == forks::forks() {
            let raw = core::ptr::from_ref(guard).cast_mut();
            ENTRIES
                .iter()
                .filter(|entry| entry.load(Relaxed) == raw)
                .for_each(|entry| entry.store(null_mut(), Relaxed));
            link();
        }
        guard.word.store(0, Release);
    });
}

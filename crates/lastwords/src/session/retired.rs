//! Gives the address space and the heap of ended sessions back.
//!
//! When a session ends, private memory takes the place of its files ([`super::give_back`]), because
//! a thread that was about to record may still write there. The private memory is unmapped, and the
//! session's own structures are freed, when no such thread can exist any more:
//!
//! - All threads that the process had when the session ended have ended, but for the thread that
//!   ended it and the listener's thread. Threads that were started later never saw the session.
//! - The listener's thread has begun another round since.
//! - [`KEPT`] other sessions have ended since. The thread that ended the session may have done so
//!   inside of an event, while it evaluated a value, and then goes on to record that event.
//!
//! In a process whose other threads never end, both stay: nothing shows that such a thread does not
//! stand in the middle of an event, where a structure of another session in the place of the old
//! one would give it wrong memory. The address space takes no memory, and the kernel merges it. The
//! structures are some kilobytes a session.

use std::sync::{Mutex, PoisonError};

use super::shared::{self, SessionShared};
use super::{listener, listener_thread};
use crate::process::identity;

/// Number of the sessions that ended last, which keep their address space and structures.
const KEPT: usize = 8;

/// A session that has ended.
struct Retired {
    session: &'static SessionShared,
    /// Frees what recorders had of the session.
    free: Box<dyn FnOnce() + Send>,
    /// Process that ended it. A forked child has a copy of the list, and cannot judge the threads
    /// of its parent.
    pid: u32,
    /// Threads that may still be recording.
    threads: Vec<u32>,
    /// Round of the listener's thread at the end of the session.
    round: u64,
}

/// Ended sessions that have their address space, in the order of their end.
static RETIRED: Mutex<Vec<Retired>> = Mutex::new(Vec::new());

/// Returns the ids of the threads of this process; none if they cannot be read, or if /proc is that
/// of another pid namespace.
fn threads() -> Option<Vec<u32>> {
    let own = std::fs::read_link("/proc/self").ok()?;
    if own.to_str()?.parse::<u32>().ok()? != std::process::id() {
        return None;
    }
    let entries = std::fs::read_dir("/proc/self/task").ok()?;
    entries.map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// Notes that a session has ended and that its memory was given back. Frees those that ended before
/// it, where that is safe. `free` is called then for what else belongs to the session.
pub(crate) fn retire(session: &'static SessionShared, free: Box<dyn FnOnce() + Send>) {
    let Some(now) = threads() else { return };
    let mut retired = RETIRED.lock().unwrap_or_else(PoisonError::into_inner);
    let others = now
        .iter()
        .copied()
        .filter(|tid| *tid != identity::tid() && !listener_thread::is_thread_id(*tid));
    let pid = std::process::id();
    retired.retain(|old| old.pid == pid);
    retired.push(Retired {
        session,
        free,
        pid,
        threads: others.collect(),
        round: listener::round(),
    });
    let old = retired.len().saturating_sub(KEPT);
    let mut index = 0;
    let is_over = |one: &mut Retired| {
        index += 1;
        // A thread that has ended may have given its id to a new one. Then the session waits for
        // that one, too.
        one.threads.retain(|tid| now.contains(tid));
        index <= old && one.threads.is_empty() && listener::has_passed(one.round)
    };
    for one in retired.extract_if(.., is_over) {
        (one.free)();
        // SAFETY: the session is not listed, its handles are gone, and no thread of the process can
        // still be in it.
        unsafe { shared::free(one.session) };
    }
}

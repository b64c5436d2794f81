//! Which thread is the listener's.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::process::identity;

/// The thread, as [`identity::Identity::word`] names it; 0 before the first. The thread writes it
/// at its start. A forked child has another process id, so the word of its parent's thread matches
/// no thread of the child.
static THREAD: AtomicU64 = AtomicU64::new(0);

/// Notes that this thread is the listener's.
pub(crate) fn begin() {
    THREAD.store(identity::identity().word(), Relaxed);
}

/// Returns true if the word names the listener's thread. That thread's signals are blocked for its
/// whole life.
pub(crate) fn is_thread(word: u64) -> bool {
    THREAD.load(Relaxed) == word
}

/// Returns true if this is the id of the listener's thread of this process.
pub(crate) fn is_thread_id(tid: u32) -> bool {
    let word = THREAD.load(Relaxed);
    word >> 32 == u64::from(std::process::id()) && word as u32 == tid
}

//! Processes that are known to be dead. With this list, a recorder can evict spans that their
//! threads were in without asking the kernel.
//!
//! A recorder skips a span of another process if a thread is in it, and notes that here. The
//! listener's thread then asks the kernel which of the owners live. A dead process stays dead, so
//! an entry of this list never becomes wrong. Without a listener, the spans stay.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

use lastwords_abi::spans::Span;
use lastwords_ring::os::{self, lock_word};

use crate::session::liveness::Identity;

/// True if a recorder has skipped another process's span since the last look.
static SUSPECTED: AtomicBool = AtomicBool::new(false);
/// The dead processes, each in one word as in a lock: the pid, and enough of the start time to
/// recognize a reused pid; 0 = none. A new entry replaces the oldest.
static DEAD: [AtomicU64; 16] = [const { AtomicU64::new(0) }; 16];
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// Notes that another process's span was skipped, because that process may be dead.
pub(super) fn suspected() {
    if !SUSPECTED.load(Relaxed) {
        SUSPECTED.store(true, Relaxed);
    }
}

/// Returns true if the process is known to be dead.
pub(super) fn is_known(pid: u32, start: u64) -> bool {
    let key = lock_word(pid, start);
    DEAD.iter().any(|dead| dead.load(Acquire) == key)
}

/// Looks for dead processes among the owners of open spans, if a recorder suspected one since the
/// last look. Asks the kernel.
pub(crate) fn look() {
    if !SUSPECTED.swap(false, Relaxed) {
        return;
    }
    let pidns = Identity::current().pidns;
    let mut asked = BTreeSet::new();
    let mut noted = 0;
    // This process cannot interpret process ids of other namespaces.
    for (_, table) in super::tables().filter(|(session, _)| !session.view().is_foreign()) {
        for owner in table.entries.iter().filter_map(|entry| owner(entry, pidns)) {
            let is_new =
                !is_known(owner.pid, owner.start) && asked.insert((owner.pid, owner.start));
            // The next look finds those for which there is no room now.
            if is_new && noted < DEAD.len() && !os::is_process_alive(owner.pid, owner.start as u32)
            {
                let at = NEXT.fetch_add(1, Relaxed) % DEAD.len();
                DEAD[at].store(lock_word(owner.pid, owner.start), Release);
                noted += 1;
            }
        }
    }
}

/// Returns the process that opened the span, if the entry is complete.
fn owner(entry: &Span, pidns: u64) -> Option<Identity> {
    let is_open = entry.state.load(Acquire) != 0 && entry.id.load(Relaxed) != 0;
    let pid = (entry.opener.load(Relaxed) >> 32) as u32;
    is_open.then(|| Identity { pid, start: entry.opener_start.load(Relaxed), pidns })
}

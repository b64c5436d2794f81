//! A child that does not come to its next stop is killed, so that the command fails in place of
//! hanging.

use std::sync::atomic::{AtomicI32, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

static STOPS: AtomicU64 = AtomicU64::new(0);
static CHILD: AtomicI32 = AtomicI32::new(0);

/// Longest time between two stops.
const PATIENCE: Duration = Duration::from_secs(60);

/// The child came to a stop.
pub(crate) fn moved() {
    STOPS.fetch_add(1, SeqCst);
}

/// The child to watch; 0: none.
pub(crate) fn child(pid: i32) {
    CHILD.store(pid, SeqCst);
}

/// Begins to watch, until the program ends.
pub(crate) fn begin() {
    std::thread::spawn(|| {
        loop {
            let before = (STOPS.load(SeqCst), CHILD.load(SeqCst));
            std::thread::sleep(PATIENCE);
            let (stops, pid) = (STOPS.load(SeqCst), CHILD.load(SeqCst));
            if (stops, pid) == before && pid != 0 {
                eprintln!("the child has not come to a stop for {} s: killed", PATIENCE.as_secs());
                // SAFETY: a child of ours that was not yet waited for.
                unsafe { libc::kill(pid, libc::SIGKILL) };
            }
        }
    });
}

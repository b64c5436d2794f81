//! What a fork changes: a child is another process with one thread, which has claimed nothing.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;
use std::sync::{Once, OnceLock};

use rustix::thread::{MembarrierCommand, membarrier};

use crate::threads;

/// One more than the number of forks since the process that first called [`prepare_process`]. Only
/// [`in_child`] writes it, while the child has one thread. Code that keeps state which a fork
/// invalidates reads it.
static FORKS: AtomicU32 = AtomicU32::new(NOT_FORKED);

/// Value of [`FORKS`] in a process that is no forked child.
const NOT_FORKED: u32 = 1;

/// The function that a forked child calls. It is set once.
static IN_CHILD: OnceLock<fn()> = OnceLock::new();

/// Returns a number that differs between a forked child and its parent and is never 0. This works
/// after [`prepare_process`] was called.
#[inline]
#[must_use]
pub fn forks() -> u32 {
    FORKS.load(Relaxed)
}

/// Returns true in a forked child. This works after [`prepare_process`] was called in the parent.
#[must_use]
pub fn is_forked() -> bool {
    forks() != NOT_FORKED
}

/// Registers `call`, which must be async-signal-safe, to be called in forked children. Only the
/// first registered function is used.
pub fn call_in_child(call: fn()) {
    // If another thread was faster, it has registered the same function.
    let _ = IN_CHILD.set(call);
    prepare_process();
}

/// Prepares a process for recording. A forked child must forget what its parent's thread had
/// claimed, and a snapshot must be able to restart sections.
pub fn prepare_process() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler is an `extern "C"` function that stays as long as the process. If the
        // call fails, only programs that fork are affected.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        // A kernel that refuses this call also refuses `restart_sections`, which reports it. Miri
        // does not know the call.
        if !cfg!(miri) {
            let _ = membarrier(MembarrierCommand::RegisterPrivateExpeditedRseq);
        }
    });
}

extern "C" fn in_child() {
    FORKS.fetch_add(1, Relaxed);
    threads::forget_in_child();
    if let Some(call) = IN_CHILD.get() {
        call();
    }
}

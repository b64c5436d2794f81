//! Blocks signals while a thread holds what a signal handler would wait for.

use core::ptr::null_mut;

use crate::grow;

/// Blocks all signals of this thread while the value lives, except SIGBUS. If a page of a session's
/// file is lost, the kernel sends SIGBUS, and it ends the process if that signal is blocked. Miri
/// has no signals, so nothing is blocked there.
#[derive(Debug)]
pub struct SignalsBlocked {
    before: libc::sigset_t,
}

impl SignalsBlocked {
    /// Blocks all signals of this thread. The function is async-signal-safe.
    #[must_use]
    pub fn now() -> Self {
        // SAFETY: both sets are local variables that the calls fill; an all-zero set is valid.
        unsafe {
            let mut all: libc::sigset_t = core::mem::zeroed();
            let mut before: libc::sigset_t = core::mem::zeroed();
            if !cfg!(miri) {
                libc::sigfillset(&raw mut all);
                libc::sigdelset(&raw mut all, libc::SIGBUS);
                libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
                grow::look_again(&before);
            }
            Self { before }
        }
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        if !cfg!(miri) {
            // SAFETY: `now` had the set filled.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, null_mut()) };
        }
    }
}

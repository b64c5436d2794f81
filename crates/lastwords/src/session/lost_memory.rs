//! Memory of a session that its file has lost: a file that somebody truncated under its recorders, or whose file system could not
//! give the page after all. The kernel answers an access to such a page with SIGBUS, which would end the application.
//!
//! A handler puts a private zeroed page in the place of the lost one, and the access is made again. From then on recorders write
//! there, to nobody's use; readers of the file find it too short and report that. Every other SIGBUS is left to the handler that
//! was installed before, or ends the process as it would have.
//!
//! Only the user who owns the files can truncate them (they have mode 0600), and memfds are sealed against it. Nothing can be done
//! for a thread that blocks SIGBUS itself: the kernel ends its process at once.

use std::ffi::{c_int, c_void};

use lastwords_ring::os::ErrnoKept;

use crate::process::signals::Handler;
use crate::session::shared;

static HANDLER: Handler = Handler::new(on_fault);

/// Installs the handler, once a process. Where the kernel refuses it, SIGBUS does what it did before.
pub(crate) fn watch() {
    drop(HANDLER.install(libc::SIGBUS));
}

/// Whether a signal came from a page that a session of this process has lost, which is then there again. Async-signal-safe.
///
/// # Safety
/// `info` is what the kernel passed to the signal's handler.
pub(crate) unsafe fn mend(signal: c_int, info: *const libc::siginfo_t) -> bool {
    // SAFETY: as the caller vouches; a signal that a process sent, which has a code of 0 or less, has no address.
    let address = unsafe {
        if signal != libc::SIGBUS || (*info).si_code <= 0 {
            return false;
        }
        (*info).si_addr() as usize
    };
    shared::all().any(|session| session.regions.mappings().any(|mapping| mapping.mend(address)))
}

extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let _errno = ErrnoKept::now();
    // SAFETY: the arguments are those that the kernel passed to this handler.
    unsafe {
        if !mend(signal, info) {
            HANDLER.call_previous(signal, info, context);
        }
    }
}

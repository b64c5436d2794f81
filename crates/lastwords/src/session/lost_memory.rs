//! Memory of a session that its file has lost: somebody truncated the file while processes record in it, or its file
//! system could not provide the page. The kernel answers an access to such a page with SIGBUS, which would end the
//! application.
//!
//! A handler replaces the lost page by a private zeroed page, and the access is repeated. From then on recorders write
//! there, and no reader sees it. Readers of the file find it too short and report that. Every other SIGBUS goes to the
//! previous handler, or ends the process as it would have without this one.
//!
//! Only the user who owns the files can truncate them (they have mode 0600), and memfds are sealed against it. This
//! does not help a thread that blocks SIGBUS itself: the kernel ends its process at once.

use std::ffi::{c_int, c_void};

use lastwords_ring::os::ErrnoKept;

use crate::process::signals::Handler;
use crate::session::shared;

static HANDLER: Handler = Handler::new(on_fault);

/// Installs the handler, once for each process. If the kernel refuses it, SIGBUS has its previous effect.
pub(crate) fn watch() {
    drop(HANDLER.install(libc::SIGBUS));
}

/// Handles a signal that came from a page that a session of this process has lost: replaces the page and returns true.
/// Otherwise returns false. Async-signal-safe.
///
/// # Safety
/// `info` is the value that the kernel passed to the signal's handler.
pub(crate) unsafe fn mend(signal: c_int, info: *const libc::siginfo_t) -> bool {
    // SAFETY: the caller guarantees `info`. A signal that a process sent has a code of 0 or less, and no address.
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

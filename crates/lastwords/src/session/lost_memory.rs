//! Memory of a session that its file has lost: somebody truncated the file while processes record
//! in it, or its file system could not provide the page. The kernel answers an access to such a
//! page with SIGBUS, which would end the application.
//!
//! A handler replaces the lost page by a private zeroed page, and the access is repeated. From then
//! on recorders write there, and no reader sees it. Readers of the file find it too short and
//! report that. Every other SIGBUS goes to the previous handler, or ends the process as it would
//! have without this one.
//!
//! A thread that is about to give a ring its first memory ([`grow`]) gets the signal if the file
//! system is full. It continues where it reports the failure, and no page is replaced. A thread
//! that blocks the signal, or whose process has replaced the handler, gets none there.
//!
//! Only the user who owns the files can truncate them (they have mode 0600), and memfds are sealed
//! against it. For a truncated file, this does not help a thread that blocks SIGBUS itself: the
//! kernel ends its process at once.

use std::ffi::{c_int, c_void};

use lastwords_ring::errno::ErrnoKept;
use lastwords_ring::grow;

use crate::process::signals::{self, Handler};
use crate::session::shared;

static HANDLER: Handler = Handler::new(on_fault);

/// Installs the handler, once for each process. If the kernel refuses it, SIGBUS has its previous
/// effect.
pub(crate) fn watch() {
    drop(HANDLER.install(libc::SIGBUS));
    // The handlers of crashes call `handle_fault` first.
    grow::watch(signals::is_ours);
    // The application may have replaced the handler since an earlier start.
    grow::look_at_handler();
}

/// Handles a signal that came from a page that a session of this process has lost, or that got no
/// memory: replaces the page, or lets the thread continue without it, and returns true. Otherwise
/// returns false. Async-signal-safe.
///
/// # Safety
/// `info` and `context` are the values that the kernel passed to the signal's handler.
pub(crate) unsafe fn handle_fault(
    signal: c_int,
    info: *const libc::siginfo_t,
    context: *mut c_void,
) -> bool {
    // SAFETY: the caller guarantees `info`. A signal that a process sent has a code of 0 or less,
    // and no address.
    let address = unsafe {
        if signal != libc::SIGBUS || (*info).si_code <= 0 {
            return false;
        }
        (*info).si_addr() as usize
    };
    // SAFETY: the caller guarantees `context`.
    if unsafe { resume(context.cast()) } {
        return true;
    }
    shared::all()
        .any(|session| session.regions.mappings().any(|mapping| mapping.replace_page(address)))
}

/// Lets a thread that was about to give a ring memory continue where it reports that there is none.
/// Returns false for any other thread.
///
/// # Safety
/// `context` is the value that the kernel passed to the signal's handler.
unsafe fn resume(context: *mut libc::ucontext_t) -> bool {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller guarantees the context.
    let place = unsafe { &mut (*context).uc_mcontext.gregs[libc::REG_RIP as usize] };
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the caller guarantees the context.
    let place = unsafe { &mut (*context).uc_mcontext.pc };
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let place = &mut {
        let _ = context;
        0
    };
    let next = grow::resume_at(*place as usize);
    if let Some(next) = next {
        *place = next as _;
    }
    next.is_some()
}

extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let _errno = ErrnoKept::now();
    // SAFETY: the arguments are those that the kernel passed to this handler.
    unsafe {
        if !handle_fault(signal, info, context) {
            HANDLER.call_previous(signal, info, context);
        }
    }
}

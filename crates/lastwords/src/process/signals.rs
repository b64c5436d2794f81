//! Handlers for faults. After their work, they do what would have happened without them: call the
//! previous handler, or let the process die of the signal.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::io;
use std::sync::Mutex;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::atomic::{AtomicBool, AtomicUsize};

/// The type of a handler with SA_SIGINFO.
pub(crate) type Function = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// A handler for a signal, and the previous handler.
pub(crate) struct Handler {
    function: Function,
    /// Written once, by the caller of [`Handler::install`] that holds [`INSTALLING`], before
    /// `known` is set. Afterwards it is only read.
    previous: UnsafeCell<libc::sigaction>,
    known: AtomicBool,
}

// SAFETY: `previous` is written before `known` is set, by one thread, and only read afterwards.
unsafe impl Sync for Handler {}

/// Held while a handler is installed.
static INSTALLING: Mutex<()> = Mutex::new(());

/// The functions of handlers that this library installed.
static OURS: [AtomicUsize; 8] = [const { AtomicUsize::new(0) }; 8];

/// Returns true if this thread is certainly not in a signal handler: no signal is blocked, and no
/// handler of the application allows its own signal (SA_NODEFER). Returns false if that is not
/// certain, for example for a thread that blocks signals. Async-signal-safe.
pub(crate) fn is_outside_handlers() -> bool {
    let mask = blocked();
    // SAFETY: the set and the actions are local variables that the calls read or fill; zeroes are a
    // valid action.
    unsafe {
        (1..=libc::SIGRTMAX()).all(|signal| {
            let mut action: libc::sigaction = std::mem::zeroed();
            let known = libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0;
            let function = if known { action.sa_sigaction } else { libc::SIG_DFL };
            let harmless = action.sa_flags & libc::SA_NODEFER == 0
                || [libc::SIG_DFL, libc::SIG_IGN].contains(&function)
                || is_ours(function);
            libc::sigismember(&raw const mask, signal) != 1 && harmless
        })
    }
}

/// Returns true if this thread blocks the signal. Async-signal-safe.
pub(crate) fn is_blocked(signal: c_int) -> bool {
    let mask = blocked();
    // SAFETY: the call reads a set that is initialised.
    unsafe { libc::sigismember(&raw const mask, signal) == 1 }
}

/// Returns the signals that this thread blocks. Async-signal-safe.
fn blocked() -> libc::sigset_t {
    // SAFETY: the set is a local variable that the call fills; zeroes are a valid value.
    unsafe {
        let mut mask: libc::sigset_t = std::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut mask);
        mask
    }
}

/// Returns true if this library has installed the function as a handler. Async-signal-safe.
pub(crate) fn is_ours(function: usize) -> bool {
    function != libc::SIG_DFL && OURS.iter().any(|own| own.load(Acquire) == function)
}

impl Handler {
    /// Makes a handler that is not installed yet.
    pub(crate) const fn new(function: Function) -> Self {
        // SAFETY: all-zero is a sigaction: SIG_DFL without flags.
        let previous = UnsafeCell::new(unsafe { std::mem::zeroed() });
        Self { function, previous, known: AtomicBool::new(false) }
    }

    /// Installs the handler for this signal, once. Its signal is not blocked. It runs on the
    /// alternate stack, unless the previous handler does not: that may need more room than an
    /// alternate stack has.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(crate) fn install(&self, signal: c_int) -> io::Result<()> {
        let _one = INSTALLING.lock();
        if self.known.load(Acquire) {
            return Ok(());
        }
        let free = |own: &&AtomicUsize| [0, self.function as usize].contains(&own.load(Acquire));
        if let Some(own) = OURS.iter().find(free) {
            own.store(self.function as usize, Release);
        }
        // SAFETY: zeroed sigactions are valid. `function` has the type that SA_SIGINFO requires.
        // The old action is written to a cell that nobody else writes (`INSTALLING` is held) or
        // reads (`known` is false).
        let failed = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = self.function as usize;
            libc::sigaction(signal, std::ptr::null(), self.previous.get());
            let stack = alternate_stack_for(&*self.previous.get());
            action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER | stack;
            self.known.store(true, Release);
            libc::sigaction(signal, &raw const action, std::ptr::null_mut())
        };
        if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Does what would have happened without the handler.
    ///
    /// # Safety
    /// The caller is the handler's function, and passes the `signal`, `info` and `context` that it
    /// received.
    pub(crate) unsafe fn call_previous(
        &self,
        signal: c_int,
        info: *mut libc::siginfo_t,
        context: *mut c_void,
    ) {
        // SAFETY: a handler runs only after `install` has written the cell.
        let action = unsafe { &*self.previous.get() };
        match action.sa_sigaction {
            libc::SIG_DFL | libc::SIG_IGN => give_back(signal, info, action),
            handler => call(handler, action, signal, info, context),
        }
    }
}

/// Returns the flag with which a handler has the stack that its previous handler expects.
fn alternate_stack_for(previous: &libc::sigaction) -> c_int {
    match previous.sa_sigaction {
        libc::SIG_DFL | libc::SIG_IGN => libc::SA_ONSTACK,
        _ => previous.sa_flags & libc::SA_ONSTACK,
    }
}

/// Restores the old disposition. A fault happens again when the handler returns; a signal that was
/// sent is sent again.
fn give_back(signal: c_int, info: *mut libc::siginfo_t, action: &libc::sigaction) {
    // SAFETY: `action` is what sigaction returned. The siginfo is the kernel's and is sent on to
    // this same thread. The signal is not blocked (SA_NODEFER), so it ends the process inside the
    // call if its disposition is the default.
    unsafe {
        libc::sigaction(signal, action, std::ptr::null_mut());
        let sent = (*info).si_code <= 0;
        if sent && action.sa_sigaction == libc::SIG_DFL {
            let (pid, tid) = (libc::getpid(), libc::syscall(libc::SYS_gettid));
            if libc::syscall(libc::SYS_rt_tgsigqueueinfo, pid, tid, signal, info) != 0 {
                libc::raise(signal);
            }
        }
    }
}

/// Calls the previous handler as the kernel would have: with the signals blocked that it requested,
/// and with the default disposition if it was to be called once.
fn call(
    handler: usize,
    action: &libc::sigaction,
    signal: c_int,
    info: *mut libc::siginfo_t,
    context: *mut c_void,
) {
    // SAFETY: `handler` is a function that was installed with these flags, so it has the type that
    // the flags require; the mask is the action's own.
    unsafe {
        if action.sa_flags & libc::SA_RESETHAND != 0 {
            libc::signal(signal, libc::SIG_DFL);
        }
        let mut mask = action.sa_mask;
        if action.sa_flags & libc::SA_NODEFER == 0 {
            libc::sigaddset(&raw mut mask, signal);
        }
        let mut old: libc::sigset_t = std::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const mask, &raw mut old);
        if action.sa_flags & libc::SA_SIGINFO != 0 {
            let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
                std::mem::transmute(handler);
            handler(signal, info, context);
        } else {
            let handler: extern "C" fn(c_int) = std::mem::transmute(handler);
            handler(signal);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const old, std::ptr::null_mut());
    }
}

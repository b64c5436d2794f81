//! Handlers for the signals that kill.

use std::ffi::{c_int, c_void};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32};
use std::time::Duration;

use super::fault::Fault;
use super::stack;
use super::unwind::{Frames, Registers, interrupted};
use super::{MAX_FRAMES, ThreadName};
use lastwords_ring::errno::ErrnoKept;

use crate::process::identity;
use crate::process::signals::Handler;
use crate::record::callsite;
use crate::record::encode::{Hex, hex};
use crate::session::{Ending, ending, listener, lost_memory};

/// The signals that handlers can be installed for.
pub const FATAL: [c_int; 5] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGABRT, libc::SIGILL, libc::SIGFPE];

/// A signal by name.
#[derive(Clone, Copy)]
#[repr(i32)]
enum Signal {
    Ill = libc::SIGILL,
    Abrt = libc::SIGABRT,
    Bus = libc::SIGBUS,
    Fpe = libc::SIGFPE,
    Segv = libc::SIGSEGV,
}

crate::labels!(Signal as i32 {
    Ill => "SIGILL", Abrt => "SIGABRT", Bus => "SIGBUS", Fpe => "SIGFPE", Segv => "SIGSEGV"
});

impl Signal {
    fn from_number(signal: c_int) -> Option<Self> {
        [Self::Ill, Self::Abrt, Self::Bus, Self::Fpe, Self::Segv]
            .into_iter()
            .find(|known| *known as c_int == signal)
    }
}

// The callsite of `crash:signal` is separate from its use, so that it is known before the first
// signal.
crate::__site!(
    ("crash"),
    "signal",
    "",
    ERROR,
    ["signal", "code", "address", "pid", "tid", "thread", "pc", "backtrace"]
);

type Payload<'a> = (Signal, i32, Hex<u64>, u32, u32, ThreadName, Hex<u64>, &'a [Hex<u64>]);

/// Reasons why a handler could not be installed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The signal is not one of [`FATAL`].
    #[error(
        "signal {0} is not one that kills by a fault; use SIGSEGV, SIGBUS, SIGABRT, SIGILL, SIGFPE"
    )]
    NotFatal(c_int),
    /// The kernel refused the handler or the alternate stack.
    #[error("signal {signal}: {source}")]
    Refused {
        /// The signal, or 0 for the alternate stack.
        signal: c_int,
        /// The error of the system.
        source: std::io::Error,
    },
}

/// The handlers of [`FATAL`], in that order.
static HANDLERS: [Handler; FATAL.len()] = [const { Handler::new(on_signal) }; FATAL.len()];

/// Installs handlers for these signals (all or some of [`FATAL`]). They record `crash:signal` to
/// every channel whose rules take it and then do what would have happened without them: call the
/// previous handler, or let the process die of the signal. Gives this thread an alternate stack if
/// it has none. Other threads of Rust get one from the standard library; threads made in other ways
/// must call [`prepare_thread`].
///
/// Where the previous handler runs on the thread's own stack (without `SA_ONSTACK`), these do too,
/// and a stack overflow is not recorded: its handler would not have run either.
///
/// # Errors
/// A signal is none of [`FATAL`], or the kernel refuses.
pub fn install_signal_handlers(signals: &[c_int]) -> Result<(), InstallError> {
    if let Some(other) = signals.iter().find(|signal| !FATAL.contains(signal)) {
        return Err(InstallError::NotFatal(*other));
    }
    super::refresh_modules();
    prepare_thread()?;
    // The unwinder loads and looks up what it needs now, while it may allocate.
    super::unwind::unwind(&Frames::new(), 0);
    callsite::prime::<__LwSite, Payload<'_>>(&__LW_CALLSITE);
    let mut wanted =
        FATAL.into_iter().zip(&HANDLERS).filter(|(signal, _)| signals.contains(signal));
    wanted.try_for_each(|(signal, handler)| {
        handler.install(signal).map_err(|source| InstallError::Refused { signal, source })
    })
}

/// Installs handlers for all signals of [`FATAL`], as [`install_signal_handlers`] does.
///
/// # Errors
/// The kernel refuses.
pub fn install_default_signal_handlers() -> Result<(), InstallError> {
    install_signal_handlers(&FATAL)
}

/// Bytes of an alternate stack.
const STACK_LEN: usize = 64 << 10;

/// Gives this thread an alternate signal stack if it has none, so that a stack overflow is recorded
/// too. The stack stays for the life of the process, so this is for a program's few long-lived
/// threads.
///
/// # Errors
/// The kernel refuses the memory or the stack.
pub fn prepare_thread() -> Result<(), InstallError> {
    let refused = || InstallError::Refused { signal: 0, source: std::io::Error::last_os_error() };
    // SAFETY: the kernel overwrites a zeroed stack_t. The mapping is fresh, private and never
    // unmapped, and access to the page at its low end faults.
    unsafe {
        let mut now: libc::stack_t = std::mem::zeroed();
        if libc::sigaltstack(std::ptr::null(), &raw mut now) == 0
            && now.ss_flags & libc::SS_DISABLE == 0
        {
            return Ok(());
        }
        let (access, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let base = libc::mmap(std::ptr::null_mut(), STACK_LEN + 4096, access, flags, -1, 0);
        if base == libc::MAP_FAILED || libc::mprotect(base, 4096, libc::PROT_NONE) != 0 {
            return Err(refused());
        }
        let stack = libc::stack_t { ss_sp: base.byte_add(4096), ss_flags: 0, ss_size: STACK_LEN };
        if libc::sigaltstack(&raw const stack, std::ptr::null_mut()) != 0 {
            return Err(refused());
        }
    }
    Ok(())
}

/// Thread id of the thread whose fault is being recorded, or 0. One fault is recorded at a time;
/// other threads wait for a limited time.
static OWNER: AtomicU32 = AtomicU32::new(0);
/// The fault of the owner, on the owner's stack. Only the owner reads this, when a signal arrives
/// inside its handler.
static FAULT: AtomicPtr<Fault> = AtomicPtr::new(std::ptr::null_mut());
/// Set while the unwinder runs. A fault during that time comes from the unwinder.
static UNWINDING: AtomicBool = AtomicBool::new(false);
static FRAMES: Frames = Frames::new();

extern "C" fn on_signal(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let _errno = ErrnoKept::now();
    // SAFETY: the kernel passes the signal's own siginfo and context.
    if unsafe { lost_memory::handle_fault(signal, info, context) } {
        return;
    }
    let tid = identity::tid();
    if OWNER.load(Acquire) == tid {
        nested(signal);
    }
    if claim(tid) {
        // SAFETY: the kernel passes the context of the interrupted code, and a siginfo.
        let (at, code, address) = unsafe {
            (Registers::from_context(context.cast()), (*info).si_code, (*info).si_addr() as u64)
        };
        let mut fault = Fault { signal, code, address: if code > 0 { address } else { 0 }, at };
        FAULT.store(&raw mut fault, Release);
        stack::run(&fault, look_and_record);
        FAULT.store(std::ptr::null_mut(), Release);
        OWNER.store(0, Release);
    }
    if let Some((_, handler)) = FATAL.iter().zip(&HANDLERS).find(|(known, _)| **known == signal) {
        // SAFETY: the arguments are those that the kernel passed for this signal.
        unsafe { handler.call_previous(signal, info, context) };
    }
}

/// Does the work of the handler, on a separate stack.
extern "C" fn look_and_record(fault: &Fault) {
    listener::give_up();
    UNWINDING.store(true, Release);
    interrupted(&FRAMES, fault.at);
    UNWINDING.store(false, Release);
    end(fault);
}

/// Handles a fault inside the handler. If the unwinder caused it, the frames found so far are
/// recorded. The process dies of the first signal.
fn nested(signal: c_int) -> ! {
    // SAFETY: the pointer is null, or this thread stored it in the handler that it is still in.
    let first = unsafe { FAULT.load(Acquire).as_ref() };
    if UNWINDING.swap(false, AcqRel)
        && let Some(first) = first
    {
        end(first);
    }
    let first = first.map_or(signal, |fault| fault.signal);
    // SAFETY: the calls involve no memory. The process ends here by the first signal.
    unsafe {
        libc::signal(first, libc::SIG_DFL);
        libc::raise(first);
        libc::_exit(128 + first);
    }
}

/// Waits up to two seconds for another thread's crash to be recorded. Most likely, that crash ends
/// the process.
fn claim(tid: u32) -> bool {
    for _ in 0..2000 {
        if OWNER.compare_exchange(0, tid, AcqRel, Relaxed).is_ok() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    false
}

/// Marks the sessions with the signal and records it.
fn end(fault: &Fault) {
    ending::mark_all(Ending::Signal(Some(fault.signal as u8)));
    let Some(signal) = Signal::from_number(fault.signal) else { return };
    let me = identity::identity();
    let mut room = [hex(0); MAX_FRAMES];
    let (address, pc, backtrace) = (hex(fault.address), hex(fault.at.pc), FRAMES.copy(&mut room));
    let payload: Payload<'_> =
        (signal, fault.code, address, me.pid, me.tid, ThreadName(me.name), pc, backtrace);
    if __LW_CALLSITE.enabled() != 0 {
        callsite::record(&__LwSite, &__LW_CALLSITE, payload);
    }
}

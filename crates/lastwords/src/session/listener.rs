//! The thread that waits for changes from other processes: one in each process that has sessions.
//!
//! It sleeps on the generation of every session (a shared futex) and wakes once a second to keep the clocks' calibration
//! fresh, and to ask who died where spans find no room. All its signals are blocked, so that no handler of the application ever
//! runs on it.

use std::sync::atomic::Ordering::{Acquire, Release, SeqCst};
use std::sync::atomic::{AtomicPtr, AtomicU32};

use lastwords_abi::sync;
use lastwords_ring::os::SignalsBlocked;

use crate::process::clock;
use crate::session::shared::{self, MAX_SESSIONS};

/// 1 while the thread of this process exists.
static RUNNING: AtomicU32 = AtomicU32::new(0);
/// Counts changes of the set of sessions; the thread waits on it, too.
static WAKE: AtomicU32 = AtomicU32::new(0);

/// Stack of the thread, bytes.
const STACK: usize = 256 << 10;
/// Longest sleep, ns; and where several words cannot be waited on (kernels before 5.16, filters of system calls), the shortest
/// notice.
const SLEEP: i64 = 1_000_000_000;
const POLL: i64 = 50_000_000;

/// What the thread calls in the layers above.
#[derive(Debug)]
pub(crate) struct Calls {
    /// Rules, channels or sessions changed.
    pub(crate) changed: fn(),
    /// A second has passed.
    pub(crate) each_second: fn(),
}

/// The calls of the thread: null until a session asks for it. Written by [`ensure`] before the thread starts.
static CALLS: AtomicPtr<Calls> = AtomicPtr::new(core::ptr::null_mut());

/// Starts the thread, or tells the one that runs that the sessions changed. Async-signal-safe but for `pthread_create`.
pub(crate) fn ensure(calls: &'static Calls) {
    CALLS.store(core::ptr::from_ref(calls).cast_mut(), Release);
    start();
}

fn start() {
    if RUNNING.swap(1, SeqCst) != 0 {
        tell();
    } else if !spawn() {
        RUNNING.store(0, SeqCst);
    }
}

/// Tells the thread, where there is one, that the sessions changed.
pub(crate) fn tell() {
    if RUNNING.load(SeqCst) != 0 {
        WAKE.fetch_add(1, SeqCst);
        wake(&WAKE);
    }
}

fn calls() -> &'static Calls {
    // SAFETY: `ensure` stored a `&'static Calls` before it started the thread that is here.
    unsafe { &*CALLS.load(Acquire) }
}

/// In a forked child, which has no other thread than the one that forked: starts the thread again if the parent had one.
pub(crate) fn restart_in_child() {
    if RUNNING.swap(0, SeqCst) != 0 {
        start();
    }
}

/// Wakes the listeners of all processes that wait on a generation.
pub(crate) fn announce(generation: &sync::AtomicU32) {
    generation.fetch_add(1, SeqCst);
    wake(generation);
}

fn wake(word: &AtomicU32) {
    // SAFETY: the word is mapped; waking has no other effect than to wake.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX, 0, 0, 0) };
}

fn spawn() -> bool {
    // SAFETY: the attributes are local, initialised by the calls before they are used; `run` has the type
    // that is asked for and takes no argument.
    unsafe {
        let mut attributes: libc::pthread_attr_t = core::mem::zeroed();
        let mut thread: libc::pthread_t = core::mem::zeroed();
        if libc::pthread_attr_init(&raw mut attributes) != 0 {
            return false;
        }
        libc::pthread_attr_setstacksize(&raw mut attributes, STACK);
        libc::pthread_attr_setdetachstate(&raw mut attributes, libc::PTHREAD_CREATE_DETACHED);
        let signals = SignalsBlocked::new();
        let made = libc::pthread_create(&raw mut thread, &raw const attributes, run, core::ptr::null_mut());
        drop(signals);
        libc::pthread_attr_destroy(&raw mut attributes);
        made == 0
    }
}

extern "C" fn run(_argument: *mut libc::c_void) -> *mut libc::c_void {
    // SAFETY: the name is a C string of less than 16 bytes.
    unsafe { libc::prctl(libc::PR_SET_NAME, c"lastwords".as_ptr()) };
    let mut seen = [(core::ptr::null(), 0u32); MAX_SESSIONS];
    loop {
        let changes = WAKE.load(Acquire);
        let changed = look(&mut seen);
        if changed {
            // A panic of a re-evaluation must not take the application down.
            drop(std::panic::catch_unwind(calls().changed));
        }
        sleep(changes, &seen);
        shared::all().for_each(|session| clock::refresh(session.view().clock()));
        (calls().each_second)();
    }
}

/// Notes the generation of each session; whether one that was known has changed.
fn look(seen: &mut [(*const sync::AtomicU32, u32); MAX_SESSIONS]) -> bool {
    let mut changed = false;
    for (slot, seen) in seen.iter_mut().enumerate() {
        let word = shared::at(slot).map(|session| &session.view().control().generation);
        let now = word.map_or(0, |word| word.load(Acquire));
        let address = word.map_or(core::ptr::null(), core::ptr::from_ref);
        // A new session may have changed between its start and this look.
        changed |= *seen != (address, now);
        *seen = (address, now);
    }
    changed
}

/// The kernel's `struct futex_waitv`, include/uapi/linux/futex.h.
#[repr(C)]
#[derive(Clone, Copy)]
struct Wait {
    value: u64,
    address: u64,
    flags: u32,
    reserved: u32,
}

/// FUTEX2_SIZE_U32; without the private flag the words may be shared.
const U32: u32 = 2;

/// Sleeps until a generation or [`WAKE`] changes, or the time is over.
fn sleep(changes: u32, seen: &[(*const sync::AtomicU32, u32); MAX_SESSIONS]) {
    let wait = |address: *const AtomicU32, value: u32| Wait {
        value: u64::from(value),
        address: address as u64,
        flags: U32,
        reserved: 0,
    };
    let mut waits = [wait(&raw const WAKE, changes); MAX_SESSIONS + 1];
    let mut used = 1;
    for (address, value) in seen.iter().filter(|(address, _)| !address.is_null()) {
        waits[used] = wait(*address, *value);
        used += 1;
    }
    let mut until = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the array, its used length and the time are valid for the call; the words stay mapped for the life of the
    // process.
    let result = unsafe {
        libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut until);
        until.tv_sec += SLEEP / 1_000_000_000;
        let waits = waits.as_ptr();
        libc::syscall(libc::SYS_futex_waitv, waits, used, 0, &raw const until, libc::CLOCK_MONOTONIC)
    };
    let error = if result < 0 { std::io::Error::last_os_error().raw_os_error() } else { None };
    // Changed already, interrupted, or all the time slept. Whatever else the kernel, or a filter of its calls, says comes back
    // at once each time.
    let has_slept = matches!(error, None | Some(libc::EAGAIN | libc::EINTR | libc::ETIMEDOUT));
    if !has_slept {
        let nap = libc::timespec { tv_sec: 0, tv_nsec: POLL };
        // SAFETY: the time is valid; no remainder is asked for.
        unsafe { libc::nanosleep(&raw const nap, core::ptr::null_mut()) };
    }
}

//! The thread that waits for changes from other processes. Each process that has sessions has one.
//!
//! A forked child has no such thread at first, so that it can do what requires a process of one
//! thread: `unshare(CLONE_NEWUSER)`, or an `exec` right away. Until it has the thread, every event
//! of the child looks for changes itself ([`poll`]), and follows a change of rules at once. The
//! first event outside of a signal handler starts the thread. From then on a change is followed
//! within milliseconds. The same happens if the system refuses the thread at the start of a
//! session.
//!
//! It holds the guards that show readers whether this process lives ([`guard`]), and fires triggers
//! that other processes ask for, saves the snapshots of triggers, and maps channels that were
//! created.
//!
//! The thread sleeps on the generation of every session (a shared futex). It wakes once a second to
//! keep the clocks' calibration up to date, to look for dead processes if spans find no room, and to
//! read the memory limit of the process's control group as long as rings may grow in it
//! ([`room::look_again`]). All its signals are blocked, so that no handler of the application ever
//! runs on it. It does not keep a process alive whose other threads have ended ([`last_thread`]).

use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::Duration;

use lastwords_abi::sync;
use lastwords_ring::ClockKind;
use lastwords_ring::errno::ErrnoKept;
use lastwords_ring::grow;
use lastwords_ring::signals::SignalsBlocked;
use rustix::io::Errno;
use rustix::thread::futex::{self, Flags, Wait, WaitFlags, WaitPtr, WaitvFlags};
use rustix::thread::{ClockId, Timespec};

use crate::process::signals;
use crate::session::backends::clock_refresh;
use crate::session::calls::calls;
use crate::session::guard;
use crate::session::last_thread;
use crate::session::listener_thread;
use crate::session::room;
use crate::session::session_region::wake;
use crate::session::shared::{self, MAX_SESSIONS, SessionShared};
use crate::session::trigger;

/// State of this process's thread: [`NONE`], [`STARTING`] or [`RUNS`].
static RUNNING: AtomicU32 = AtomicU32::new(NONE);
/// There is no thread.
const NONE: u32 = 0;
/// The thread was requested.
const STARTING: u32 = 1;
/// The thread waits for changes, and calls the kernel only for that.
const RUNS: u32 = 2;
/// Rounds that the thread has begun.
static ROUNDS: AtomicU64 = AtomicU64::new(0);
/// Number of changes of the set of sessions. The thread waits on it, too.
static WAKE: AtomicU32 = AtomicU32::new(0);

/// Size of the thread's stack, in bytes.
const STACK: usize = 256 << 10;
/// Time between looks if the kernel cannot wait on several words (kernels before 5.16, filters of
/// system calls).
const POLL: Duration = Duration::from_millis(50);
/// Longest sleep, in nanoseconds.
const SECOND: u64 = 1_000_000_000;

/// Shortest sleep, in nanoseconds, while triggers wait: a reader may hold the snapshot before
/// theirs for long.
const SHORTEST: u64 = 5_000_000;

/// 1 while the thread is needed but does not exist. It is written at the start of a session, in a
/// forked child, and by [`poll`]. It is read when callsites are evaluated.
static IS_MISSING: AtomicU32 = AtomicU32::new(0);
/// The sum of the generations of all sessions when [`poll`] last looked.
static POLLED: AtomicU32 = AtomicU32::new(0);
/// Time of CLOCK_MONOTONIC from which [`poll`] may try again to start the thread.
static NEXT_TRY: AtomicU64 = AtomicU64::new(0);
/// Time between two such tries, in nanoseconds.
const RETRY: u64 = 20_000_000;
/// Starts the thread, or tells the running thread that the sessions changed. Async-signal-safe
/// except for `pthread_create`.
pub(crate) fn start() {
    // This is stored before the thread runs, because the thread first evaluates the callsites
    // again, which then need not poll any more.
    IS_MISSING.store(0, SeqCst);
    last_thread::watch();
    if RUNNING.compare_exchange(NONE, STARTING, SeqCst, SeqCst).is_err() {
        tell();
    } else if lastwords_ring::threads_can_start() && spawn() {
        wait_until_it_runs();
    } else {
        RUNNING.store(NONE, SeqCst);
        miss();
    }
}

/// Waits for the thread, at most a second. The thread makes system calls at its start that the
/// application's next statement may forbid, by a filter that kills.
fn wait_until_it_runs() {
    let tenth = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
    for _ in 0..10 {
        // The call returns when the word has another value.
        let _ = futex::wait(&RUNNING, Flags::empty(), STARTING, Some(&tenth));
        if RUNNING.load(SeqCst) != STARTING {
            return;
        }
    }
}

/// Returns the number of rounds that the thread has begun.
pub(crate) fn round() -> u64 {
    ROUNDS.load(SeqCst)
}

/// Returns true if the thread uses nothing that it found before round `since` was over, or if there
/// is no thread.
pub(crate) fn has_passed(since: u64) -> bool {
    RUNNING.load(SeqCst) == NONE || round() > since + 1
}

/// Notes that there is no thread although there should be one. Async-signal-safe.
fn miss() {
    IS_MISSING.store(1, SeqCst);
    NEXT_TRY.store(ClockKind::Monotonic.now().saturating_add(RETRY), Relaxed);
    (calls().watch)();
}

/// Returns true if events must call [`poll`].
#[inline]
pub(crate) fn is_missing() -> bool {
    IS_MISSING.load(Relaxed) != 0
}

/// Does the work of the missing thread: looks for changes of the sessions. Also starts the thread
/// if that is possible. It is not possible in a signal handler, because `pthread_create` takes
/// locks that the interrupted code may hold.
#[cold]
pub(crate) fn poll() {
    let _errno = ErrnoKept::now();
    let now = shared::all()
        .fold(0u32, |sum, session| sum.wrapping_add(generation_of(session).load(Acquire)));
    if POLLED.swap(now, SeqCst) != now {
        (calls().changed)();
    }
    let (time, next) = (ClockKind::Monotonic.now(), NEXT_TRY.load(Relaxed));
    let is_due = time >= next
        && NEXT_TRY.compare_exchange(next, time.saturating_add(RETRY), SeqCst, Relaxed).is_ok();
    if is_due && signals::is_outside_handlers() && is_missing() {
        start();
    }
}

/// Prevents further starts of the thread, because the process is about to die. Async-signal-safe.
pub(crate) fn give_up() {
    IS_MISSING.store(0, SeqCst);
}

fn generation_of(session: &SessionShared) -> &sync::AtomicU32 {
    &session.view().control().generation
}

/// Tells the thread, if there is one, that the sessions changed.
pub(crate) fn tell() {
    if RUNNING.load(SeqCst) != NONE {
        WAKE.fetch_add(1, SeqCst);
        wake(&WAKE);
    }
}

/// Notes in a forked child that the thread is missing if the parent had one. The child has only the
/// thread that forked. Async-signal-safe.
pub(crate) fn note_fork() {
    last_thread::note_fork();
    if RUNNING.swap(NONE, SeqCst) != NONE {
        // The first event may start the thread.
        miss();
        NEXT_TRY.store(0, Relaxed);
    }
}

fn spawn() -> bool {
    // SAFETY: the attributes are local, and the calls initialise them before they are used. `run`
    // has the required type and takes no argument.
    unsafe {
        let mut attributes: libc::pthread_attr_t = core::mem::zeroed();
        let mut thread: libc::pthread_t = core::mem::zeroed();
        if libc::pthread_attr_init(&raw mut attributes) != 0 {
            return false;
        }
        libc::pthread_attr_setstacksize(&raw mut attributes, STACK);
        libc::pthread_attr_setdetachstate(&raw mut attributes, libc::PTHREAD_CREATE_DETACHED);
        let signals = SignalsBlocked::now();
        let made = libc::pthread_create(
            &raw mut thread,
            &raw const attributes,
            run,
            core::ptr::null_mut(),
        );
        drop(signals);
        libc::pthread_attr_destroy(&raw mut attributes);
        made == 0
    }
}

extern "C" fn run(_argument: *mut libc::c_void) -> *mut libc::c_void {
    let _ = rustix::thread::set_name(c"lastwords");
    listener_thread::begin();
    guard::begin();
    grow::look();
    // The first round also comes before the application can forbid system calls.
    let mut seen = follow(&[NOTHING; MAX_SESSIONS + 1]);
    // A child that was forked meanwhile has its own copy of the word.
    RUNNING.store(RUNS, SeqCst);
    wake(&RUNNING);
    loop {
        ROUNDS.fetch_add(1, SeqCst);
        sleep(&seen);
        shared::all()
            .map(SessionShared::view)
            .for_each(|view| clock_refresh(view.info.backend)(view.clock()));
        room::look_again();
        (calls().each_round)();
        last_thread::round();
        seen = follow(&seen);
        // A panic there must not end the application.
        drop(std::panic::catch_unwind(trigger::round));
    }
}

/// Evaluates the callsites again if a session changed since `seen`. A new session may have changed
/// between its start and this look. Returns the result of [`look`].
fn follow(seen: &Words) -> Words {
    let now = look();
    guard::hold();
    // A panic there must not end the application. What cannot be mapped now is tried again each
    // second.
    drop(std::panic::catch_unwind(calls().attach));
    if now[1..] != seen[1..] {
        // A panic in the evaluation must not end the application.
        drop(std::panic::catch_unwind(calls().changed));
    }
    now
}

/// A word that the thread waits on, and its value.
type Word = (*const AtomicU32, u32);
const NOTHING: Word = (core::ptr::null(), 0);
type Words = [Word; MAX_SESSIONS + 1];

/// Returns [`WAKE`] and the generations of all sessions; [`NOTHING`] in the remaining entries.
fn look() -> Words {
    let mut words = [NOTHING; MAX_SESSIONS + 1];
    for (place, word) in
        words.iter_mut().zip(std::iter::once(&WAKE).chain(shared::all().map(generation_of)))
    {
        *place = (core::ptr::from_ref(word), word.load(Acquire));
    }
    words
}

/// Sleeps until one of the words has another value, or the time is over. The words may be shared,
/// and stay mapped for the life of the process.
fn sleep(words: &Words) {
    let mut waits = [Wait::new(); MAX_SESSIONS + 1];
    let used = words.iter().take_while(|word| **word != NOTHING).count();
    for (wait, (address, value)) in waits.iter_mut().zip(&words[..used]) {
        wait.val = u64::from(*value);
        wait.uaddr = WaitPtr::new(address.cast_mut().cast());
        wait.flags = WaitFlags::SIZE_U32;
    }
    let until = ClockKind::Monotonic.now()
        + trigger::until_next().map_or(SECOND, |next| next.clamp(SHORTEST, SECOND));
    let until = Timespec { tv_sec: (until / SECOND) as i64, tv_nsec: (until % SECOND) as i64 };
    let result =
        futex::waitv(&waits[..used], WaitvFlags::empty(), Some(&until), ClockId::Monotonic);
    // Expected results are: a word has changed already, a signal interrupted the wait, or the whole
    // time is over. Any other error, of the kernel or of a filter of its calls, returns at once
    // each time, so the thread sleeps here.
    if !matches!(result, Ok(_) | Err(Errno::AGAIN | Errno::INTR | Errno::TIMEDOUT)) {
        std::thread::sleep(POLL);
    }
}

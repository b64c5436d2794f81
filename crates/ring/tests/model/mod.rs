//! Replaces the kernel for the model checker: clock, identity, death, interruption, restartable
//! sections. It also makes a session with the types of the model checker. This module of the ring
//! is compiled only under `--cfg loom`, for `tests/loom_*.rs`, because it uses items of the ring
//! that are not public.
//!
//! The ring's bytes are plain memory. A cell of loom's shadows each two of them: if two threads
//! access the same bytes without an order between them, the model fails.

use core::cell::Cell;
use core::sync::atomic::AtomicUsize;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use lastwords_abi::sync::Ordering::{Acquire, Release};

use crate::cpu::Area;

pub mod reader;
pub(crate) mod section;
pub mod world;

pub use world::{Shape, World};

/// Most threads of a model, the first included.
pub const MAX_TIDS: usize = 5;

/// The points at which a recorder may be killed or interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Point {
    /// A half was chosen by the flip words, nothing more.
    Chosen,
    /// An entry of the thread table was claimed, but does not yet name its owner.
    Claimed,
    /// The reservation is announced, but not made.
    Announced,
    /// The reservation is made, but nothing is copied.
    Reserved,
    /// The bytes are copied, but the announcement does not confirm it.
    Written,
    /// The announcement confirms that the bytes are copied.
    Copied,
    /// The commit counter is up to date, and the announcement still exists.
    Committed,
    /// A sub-buffer was left and the next reserved, nothing more.
    Switched,
    /// The header of the next sub-buffer is written.
    Begun,
    /// All bytes are committed, but the header is not complete.
    Closing,
    /// Header and trailer are complete, but not committed.
    Closed,
    /// Locked: the lock is held.
    Locked,
    /// Between two steps of a section, or of the locked copy.
    Step,
    /// Header or event is published.
    Published,
    /// The spare is ready, and the flip word is about to be changed.
    Swapping,
}

/// A mistake that can be put into the ring to see that a model finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A recorder does not confirm the reservation before its own.
    NoConfirm,
    /// A swap does not close the old half.
    NoClosedBit,
    /// A recorder does not check again whether its half is still the live one.
    StaleHalf,
    /// A full sub-buffer is closed without waiting for its header to be written.
    EarlyClose,
    /// The bytes are committed before they are copied.
    CommitBeforeCopy,
    /// A reservation is announced after it was made.
    LateAnnouncement,
    /// The reserve word is swapped without ordering.
    RelaxedReserve,
    /// The commit counter is added to without ordering.
    RelaxedCommit,
    /// A living recorder's place is taken as if it were dead.
    ReclaimLiving,
    /// When the ring comes round, only recorders of the last lap are looked for.
    OneLap,
    /// A place that is still being written is not skipped.
    NoWait,
    /// Locked: the produced position is stored before the bytes.
    PublishFirst,
    /// Locked: the lock is taken from an owner without asking whether it lives.
    StealLock,
    /// Locked: a recorder that lost its lock publishes all the same.
    Rewind,
    /// Locked: a recorder that takes the lock from an owner that may live continues where that
    /// owner may still write.
    StayBeside,
    /// A section continues where it was interrupted.
    NoAbort,
    /// A section of the fast path does not check whether its cached lane is of the current CPU.
    OtherCpu,
    /// A section of the fast path does not check whether its cached lane is of the live half.
    OtherHalf,
    /// A thread uses a cached lane whatever channel it belongs to.
    OtherOwner,
    /// A fast path whose section was aborted returns that it recorded.
    ForgetAborted,
    /// An entry of the thread table can be judged by the old owner's start time.
    StaleStart,
    /// The flip words are read without ordering.
    RelaxedFlip,
    /// A consumer reads up to the produced position, although a recorder may still be writing
    /// before it.
    Unsettled,
    /// The begin of a reservation is announced without ordering.
    RelaxedBegin,
    /// A swap resets the spare while a recorder is still in it.
    NoWaitForSpare,
}

/// The fate of a modelled thread at one of its points.
pub enum Fate {
    /// Nothing happens.
    Lives,
    /// The thread is killed at this point after it has passed the point this many times.
    Dies(Point, usize),
    /// A signal handler interrupts the thread there, once.
    Interrupted(Point, usize, Box<dyn FnOnce(&World) + Send>),
    /// All sections of the thread are aborted.
    AlwaysAborted,
}

/// The panic payload with which a killed thread leaves its stack.
struct Killed;

struct Me {
    tid: Cell<u32>,
    fate: Cell<Fate>,
}

loom::thread_local! {
    static ME: Me = Me { tid: Cell::new(1), fate: Cell::new(Fate::Lives) };
}

std::thread_local! {
    // One thread of the system runs all threads of a model.
    static FAULT: Cell<Option<Fault>> = const { Cell::new(None) };
    static CLOCK: Cell<u64> = const { Cell::new(0) };
    static WORLD: Cell<*const World> = const { Cell::new(core::ptr::null()) };
    static AREAS: &'static [Area; MAX_TIDS] = Box::leak(Box::new([const { Area::new(0) }; MAX_TIDS]));
}

/// Checks all executions of `model`, with at most three preemptions unless `LOOM_MAX_PREEMPTIONS`
/// says otherwise, and returns how many there were.
pub fn check(model: impl Fn() + Sync + Send + 'static) -> usize {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(3));
    builder.max_branches = 20_000;
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    builder.check(move || {
        counted.fetch_add(1, core::sync::atomic::Ordering::Relaxed);
        model();
    });
    count.load(core::sync::atomic::Ordering::Relaxed)
}

/// Puts `fault` into every model that this thread checks from now on.
pub fn seed(fault: Fault) {
    FAULT.with(|f| f.set(Some(fault)));
}

/// Returns true if this fault is requested.
pub(crate) fn wants(fault: Fault) -> bool {
    FAULT.with(Cell::get) == Some(fault)
}

/// Returns a clock that advances with each reading.
pub(crate) fn tick() -> u64 {
    CLOCK.with(|c| c.replace(c.get() + 1))
}

pub(crate) fn restart_clock() {
    CLOCK.with(|c| c.set(1));
}

/// Returns the id of the modelled thread.
pub(crate) fn tid() -> u32 {
    ME.with(|me| me.tid.get())
}

/// Returns the area with the modelled CPU of the modelled thread.
pub(crate) fn area() -> &'static Area {
    let areas = AREAS.with(|a| *a);
    &areas[tid() as usize]
}

/// Moves the thread to another CPU.
pub fn migrate(cpu: u32) {
    area().cpu_id.store(cpu, core::sync::atomic::Ordering::Relaxed);
}

pub(crate) fn with_world<T>(f: impl FnOnce(&World) -> T) -> T {
    let world = WORLD.with(Cell::get);
    assert!(!world.is_null(), "no world");
    // SAFETY: `World::new` set it in this execution, and `World::drop` removes it.
    f(unsafe { &*world })
}

pub(crate) fn set_world(world: *const World) {
    WORLD.with(|w| w.set(world));
}

/// Returns true if the thread with this id was not killed.
pub(crate) fn lives(tid: u32) -> bool {
    with_world(|w| w.dead.get(tid as usize).is_none_or(|d| d.load(Acquire) == 0))
}

/// Returns the time when thread `tid` began to run.
pub(crate) fn start_of(tid: u32) -> u64 {
    u64::from(tid) + 100
}

/// Returns true if the thread with this id and start time (0 = not known) was not killed.
pub(crate) fn is_alive(tid: u32, start: u32) -> bool {
    lives(tid) && (start == 0 || u64::from(start) == start_of(tid))
}

/// Restarts every running section, as an interrupt on every CPU does.
pub(crate) fn restart_sections() -> bool {
    section::restart_all();
    true
}

/// Applies the thread's fate at this point.
pub(crate) fn point(here: Point) {
    point_here(here);
}

/// Applies the fate at a point of the model itself.
pub fn point_here(here: Point) {
    let fate = ME.with(|me| me.fate.replace(Fate::Lives));
    let next = match fate {
        Fate::Dies(at, 0) if at == here => {
            with_world(|w| w.dead[tid() as usize].store(1, Release));
            resume_unwind(Box::new(Killed));
        }
        Fate::Interrupted(at, 0, handler) if at == here => return with_world(handler),
        Fate::Dies(at, more) if at == here => Fate::Dies(at, more - 1),
        Fate::Interrupted(at, more, handler) if at == here => {
            Fate::Interrupted(at, more - 1, handler)
        }
        other => other,
    };
    ME.with(|me| me.fate.set(next));
}

/// Returns true if all sections of the thread are aborted.
pub(crate) fn aborts() -> bool {
    let fate = ME.with(|me| me.fate.replace(Fate::Lives));
    let always = matches!(fate, Fate::AlwaysAborted);
    ME.with(|me| me.fate.set(fate));
    always
}

/// Runs `body` as thread `tid` on `cpu`, with this fate. The thread's result is false if it was
/// killed.
pub fn spawn(
    world: &Arc<World>,
    tid: u32,
    cpu: u32,
    fate: Fate,
    body: impl FnOnce(&World) + Send + 'static,
) -> loom::thread::JoinHandle<bool> {
    let world = Arc::clone(world);
    loom::thread::spawn(move || run_as(&world, tid, cpu, fate, body))
}

/// Runs `body` in this thread as thread `tid`.
pub fn run_as(world: &World, tid: u32, cpu: u32, fate: Fate, body: impl FnOnce(&World)) -> bool {
    ME.with(|me| {
        me.tid.set(tid);
        me.fate.set(fate);
    });
    migrate(cpu);
    if world.claimed {
        crate::threads::assume(world.parts.threads, tid as usize - 1);
    }
    match catch_unwind(AssertUnwindSafe(|| body(world))) {
        Ok(()) => true,
        Err(cause) if cause.is::<Killed>() => false,
        Err(cause) => resume_unwind(cause),
    }
}

/// Reports that this thread is about to write bytes of a ring.
pub(crate) fn writes(to: *const u8, len: usize) {
    with_world(|w| w.touch(to, len, true));
}

/// Reports that this thread is about to read bytes of a ring.
pub(crate) fn reads(from: *const u8, len: usize) {
    with_world(|w| w.touch(from, len, false));
}

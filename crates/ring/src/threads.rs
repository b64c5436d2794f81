//! The table of threads that reserve without rseq: each announces what it is about to write, so that whoever finds it dead
//! knows what it left behind. See [`lastwords_abi::session::InFlight`].

use core::cell::Cell;

use lastwords_abi::session::{InFlight, MAX_LEVELS, Thread};
use lastwords_abi::sync::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::clock::ClockKind;
use crate::hooks::{fault, point};
use crate::os;

/// Sessions whose entry a thread remembers; one more claims anew each time it comes round.
const REMEMBERED: usize = 8;

#[derive(Clone, Copy)]
struct Claim {
    table: usize,
    entry: usize,
}

const NO_CLAIM: Claim = Claim { table: 0, entry: 0 };

/// A table that had no room for this thread: looking through all its owners takes system calls, which are not made for each
/// event that is lost.
#[derive(Clone, Copy)]
struct Refusal {
    table: usize,
    /// CLOCK_MONOTONIC from when on the table is looked through again.
    until: u64,
    /// Nanoseconds that were waited for that.
    wait: u64,
}

const NO_REFUSAL: Refusal = Refusal { table: 0, until: 0, wait: 0 };
const FIRST_WAIT: u64 = 1_000_000_000;
const LONGEST_WAIT: u64 = 64_000_000_000;

/// Cells of each thread; the model checker's threads are not threads of the system and have theirs from it.
macro_rules! thread_cells {
    ($($name:ident: $type:ty = $first:expr;)*) => {
        #[cfg(not(loom))]
        std::thread_local! { $(static $name: $type = const { $first };)* }
        #[cfg(loom)]
        loom::thread_local! { $(static $name: $type = $first;)* }
    };
}

#[cfg(any(not(target_arch = "x86_64"), loom))]
pub(crate) use thread_cells;

thread_cells! {
    CLAIMS: [Cell<Claim>; REMEMBERED] = [const { Cell::new(NO_CLAIM) }; REMEMBERED];
    NEXT: Cell<usize> = Cell::new(0);
    REFUSALS: [Cell<Refusal>; REMEMBERED] = [const { Cell::new(NO_REFUSAL) }; REMEMBERED];
    LEVEL: Cell<usize> = Cell::new(0);
    IDENTITY: Cell<(u32, u64)> = Cell::new((0, 0));
}

/// What a thread forgets in a forked child: it is another thread there.
pub(crate) fn forget_in_child() {
    CLAIMS.with(|claims| claims.iter().for_each(|c| c.set(NO_CLAIM)));
    REFUSALS.with(|refusals| refusals.iter().for_each(|r| r.set(NO_REFUSAL)));
    IDENTITY.with(|identity| identity.set((0, 0)));
}

/// This thread's word for owner locks; its start time is read once.
pub fn lock_word() -> u64 {
    let (tid, start) = identity();
    os::lock_word(tid, start)
}

/// Thread id and start time of this thread.
fn identity() -> (u32, u64) {
    #[cfg(loom)]
    return (crate::model::tid(), crate::model::start_of(crate::model::tid()));
    #[cfg(not(loom))]
    {
        if IDENTITY.get().0 == 0 {
            let tid = os::tid();
            IDENTITY.set((tid, os::start_time(tid)));
        }
        IDENTITY.get()
    }
}

/// One nesting level of this thread's entry, while it records.
pub(crate) struct Level<'a> {
    /// Where it announces.
    pub(crate) in_flight: &'a InFlight,
    /// Its number for the reserve word, 1 and up.
    pub(crate) owner: u64,
}

/// Runs `record` with a level of this thread's entry; none when the table is full or nesting too deep. `is_over` tells
/// whether a dead thread's announcement, of the level with that number, is of no use any more.
#[inline]
pub(crate) fn with_level<T>(
    threads: &[Thread],
    is_over: impl Fn(u64, &InFlight) -> bool,
    record: impl FnOnce(&Level<'_>) -> T,
) -> Option<T> {
    let level = LEVEL.with(Cell::get);
    if level >= MAX_LEVELS {
        return None;
    }
    LEVEL.with(|l| l.set(level + 1));
    let done = entry(threads, &is_over).map(|entry| {
        let in_flight = &threads[entry].levels[level];
        record(&Level { in_flight, owner: owner_number(entry, level) })
    });
    LEVEL.with(|l| l.set(level));
    done
}

/// Gives this thread an entry that nobody else looks at: most models are not about that.
#[cfg(loom)]
pub(crate) fn assume(threads: &[Thread], entry: usize) {
    let (tid, start) = identity();
    threads[entry].start.store(start, Relaxed);
    threads[entry].pidns.store(os::pid_namespace(), Relaxed);
    threads[entry].owner.store(owner_word(tid), Release);
    CLAIMS.with(|claims| claims[0].set(Claim { table: threads.as_ptr() as usize, entry }));
}

/// What an entry's owner word says of the thread `tid` of this process.
fn owner_word(tid: u32) -> u64 {
    (u64::from(tid) << 32) | u64::from(std::process::id())
}

fn owner_number(entry: usize, level: usize) -> u64 {
    (entry * MAX_LEVELS + level + 1) as u64
}

/// The level that a reserve word's owner number means.
pub(crate) fn level_of(threads: &[Thread], owner: u64) -> Option<&InFlight> {
    let index = usize::try_from(owner.checked_sub(1)?).ok()?;
    threads.get(index / MAX_LEVELS)?.levels.get(index % MAX_LEVELS)
}

/// Tells whether the announcement of a dead thread's level is of no use any more.
type IsOver<'a> = &'a dyn Fn(u64, &InFlight) -> bool;

#[inline]
fn entry(threads: &[Thread], is_over: IsOver<'_>) -> Option<usize> {
    let table = threads.as_ptr() as usize;
    let first = CLAIMS.with(|claims| claims[0].get());
    if first.table == table { Some(first.entry) } else { entry_slow(threads, table, is_over) }
}

#[cold]
fn entry_slow(threads: &[Thread], table: usize, is_over: IsOver<'_>) -> Option<usize> {
    let known = CLAIMS.with(|claims| claims.iter().map(Cell::get).find(|c| c.table == table));
    if let Some(claim) = known {
        return Some(claim.entry);
    }
    let entry = REFUSALS.with(|refusals| {
        // Two tables may share a place; then each forgets the refusal of the other.
        let cell = &refusals[(table >> 12) % REMEMBERED];
        let refusal = if cell.get().table == table { cell.get() } else { NO_REFUSAL };
        if refusal.until > 0 && ClockKind::Monotonic.now() < refusal.until {
            return None;
        }
        let claimed = claim(threads, is_over);
        if claimed.is_none() {
            let wait = (refusal.wait * 2).clamp(FIRST_WAIT, LONGEST_WAIT);
            cell.set(Refusal { table, until: ClockKind::Monotonic.now().saturating_add(wait), wait });
        }
        claimed
    })?;
    let slot = NEXT.with(|next| next.replace(next.get() + 1)) % REMEMBERED;
    CLAIMS.with(|claims| claims[slot].set(Claim { table, entry }));
    Some(entry)
}

/// Claims an entry: one of our own that we forgot, one that is free, or one whose owner died and left nothing of use.
#[cold]
fn claim(threads: &[Thread], is_over: IsOver<'_>) -> Option<usize> {
    let (tid, start) = identity();
    let mine = owner_word(tid);
    let namespace = os::pid_namespace();
    let is_ours = |t: &Thread| {
        t.owner.load(Acquire) == mine
            && start != 0
            && t.start.load(Relaxed) == start
            && t.pidns.load(Relaxed) == namespace
    };
    if let Some(ours) = threads.iter().position(is_ours) {
        return Some(ours);
    }
    // Without a process id until `start` and `pidns` are ours: nobody takes us for the dead owner of before.
    let claiming = if fault!(StaleStart) { mine } else { u64::from(tid) << 32 };
    let found = threads
        .iter()
        .position(|t| t.owner.load(Acquire) == 0 && t.owner.compare_exchange(0, claiming, AcqRel, Relaxed).is_ok())
        .or_else(|| (0..threads.len()).find(|&entry| take_over(threads, entry, claiming, namespace, is_over)))?;
    let thread = &threads[found];
    point!(Claimed);
    thread.levels.iter().for_each(|l| l.target.store(0, Release));
    thread.start.store(start, Relaxed);
    thread.pidns.store(namespace, Relaxed);
    thread.owner.store(mine, Release);
    Some(found)
}

fn take_over(threads: &[Thread], entry: usize, claiming: u64, namespace: u64, is_over: IsOver<'_>) -> bool {
    let thread = &threads[entry];
    let owner = thread.owner.load(Acquire);
    let over = || thread.levels.iter().enumerate().all(|(level, l)| is_over(owner_number(entry, level), l));
    // Asked again of the dead: it may have announced before it died.
    over()
        && !is_alive(thread, namespace)
        && over()
        && thread.owner.compare_exchange(owner, claiming, AcqRel, Relaxed).is_ok()
}

/// The living threads that have an announcement of which `is_meant` is true.
pub(crate) fn living(threads: &[Thread], is_meant: impl Fn(&InFlight) -> bool) -> impl Iterator<Item = &Thread> {
    let mut namespace = None;
    threads.iter().filter(move |thread| {
        thread.levels.iter().any(&is_meant) && is_alive(thread, *namespace.get_or_insert_with(os::pid_namespace))
    })
}

/// The entry's owner can still run, as far as this process can tell: owners of another pid namespace, and one that is just
/// claiming the entry, count as alive.
pub(crate) fn is_alive(thread: &Thread, namespace: u64) -> bool {
    let owner = thread.owner.load(Acquire);
    let claiming = owner as u32 == 0;
    let of = thread.pidns.load(Acquire);
    let elsewhere = of != 0 && of != namespace;
    owner != 0 && (claiming || elsewhere || os::is_alive((owner >> 32) as u32, thread.start.load(Relaxed) as u32))
}

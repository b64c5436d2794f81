//! The table of threads that reserve without rseq. Each thread announces what it is about to write. If the thread dies,
//! others know from the announcement what it left unfinished. See [`lastwords_abi::session::InFlight`].

use core::cell::Cell;

use lastwords_abi::session::{InFlight, MAX_LEVELS, Thread};
use lastwords_abi::sync::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::clock::ClockKind;
use crate::hooks::{fault, point};
use crate::os;

/// Number of sessions whose entry a thread remembers. With more sessions, it must claim its entries again.
const REMEMBERED: usize = 8;

#[derive(Clone, Copy)]
struct Claim {
    table: usize,
    entry: usize,
}

const NO_CLAIM: Claim = Claim { table: 0, entry: 0 };

/// A table that had no room for this thread. Searching all its owners takes system calls, so the search is not repeated
/// for each lost event.
#[derive(Clone, Copy)]
struct Refusal {
    table: usize,
    /// Time from which the table is searched again, of CLOCK_MONOTONIC.
    until: u64,
    /// Length of the last wait, in nanoseconds.
    wait: u64,
}

const NO_REFUSAL: Refusal = Refusal { table: 0, until: 0, wait: 0 };
const FIRST_WAIT: u64 = 1_000_000_000;
const LONGEST_WAIT: u64 = 64_000_000_000;

/// Cells of each thread. The model checker's threads are not threads of the system and get their cells from it.
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

/// Forgets in a forked child what the thread remembers, because the child is another thread.
pub(crate) fn forget_in_child() {
    CLAIMS.with(|claims| claims.iter().for_each(|c| c.set(NO_CLAIM)));
    REFUSALS.with(|refusals| refusals.iter().for_each(|r| r.set(NO_REFUSAL)));
    IDENTITY.with(|identity| identity.set((0, 0)));
}

/// Returns this thread's word for owner locks. The thread reads its start time once.
pub fn lock_word() -> u64 {
    let (tid, start) = identity();
    os::lock_word(tid, start)
}

/// Returns thread id and start time of this thread.
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

/// One nesting level of this thread's entry, which the thread uses while it records.
pub(crate) struct Level<'a> {
    /// The announcement of this level.
    pub(crate) in_flight: &'a InFlight,
    /// Number of the level for the reserve word, from 1.
    pub(crate) owner: u64,
}

/// Calls `record` with a level of this thread's entry. Returns none if the table is full or the nesting too deep.
/// `is_over` returns true if a dead thread's announcement, of the level with that number, is no longer needed.
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

/// Gives this thread an entry that no other thread claims, for models that do not test claims.
#[cfg(loom)]
pub(crate) fn assume(threads: &[Thread], entry: usize) {
    let (tid, start) = identity();
    threads[entry].start.store(start, Relaxed);
    threads[entry].pidns.store(os::pid_namespace(), Relaxed);
    threads[entry].owner.store(owner_word(tid), Release);
    CLAIMS.with(|claims| claims[0].set(Claim { table: threads.as_ptr() as usize, entry }));
}

/// Returns the owner word of an entry that the thread `tid` of this process owns.
fn owner_word(tid: u32) -> u64 {
    (u64::from(tid) << 32) | u64::from(std::process::id())
}

fn owner_number(entry: usize, level: usize) -> u64 {
    (entry * MAX_LEVELS + level + 1) as u64
}

/// Returns the level that an owner number of a reserve word refers to.
pub(crate) fn level_of(threads: &[Thread], owner: u64) -> Option<&InFlight> {
    let index = usize::try_from(owner.checked_sub(1)?).ok()?;
    threads.get(index / MAX_LEVELS)?.levels.get(index % MAX_LEVELS)
}

/// Returns true if the announcement of a dead thread's level is no longer needed.
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
        // Two tables may share a cell. Then each makes the thread forget the refusal of the other.
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

/// Claims an entry: one that this thread owns but has forgotten, a free one, or one whose owner died and left nothing
/// that is still needed.
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
    // The owner word has no process id until `start` and `pidns` are those of this thread, so nobody mistakes this
    // thread for the previous, dead owner.
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
    // The check is repeated after the owner was found dead, because it may have announced something before it died.
    over()
        && !is_alive(thread, namespace)
        && over()
        && thread.owner.compare_exchange(owner, claiming, AcqRel, Relaxed).is_ok()
}

/// Returns the living threads that have an announcement for which `is_meant` is true.
pub(crate) fn living(threads: &[Thread], is_meant: impl Fn(&InFlight) -> bool) -> impl Iterator<Item = &Thread> {
    let mut namespace = None;
    threads.iter().filter(move |thread| {
        thread.levels.iter().any(&is_meant) && is_alive(thread, *namespace.get_or_insert_with(os::pid_namespace))
    })
}

/// Returns true if the entry's owner may still run, as far as this process can know. Owners of another pid namespace,
/// and an owner that is just claiming the entry, count as alive.
pub(crate) fn is_alive(thread: &Thread, namespace: u64) -> bool {
    let owner = thread.owner.load(Acquire);
    let claiming = owner as u32 == 0;
    let of = thread.pidns.load(Acquire);
    let elsewhere = of != 0 && of != namespace;
    owner != 0 && (claiming || elsewhere || os::is_alive((owner >> 32) as u32, thread.start.load(Relaxed) as u32))
}

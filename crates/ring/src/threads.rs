//! The table of threads that reserve without rseq. Each thread announces what it is about to write.
//! If the thread dies, others know from the announcement what it left unfinished. See
//! [`lastwords_abi::session::InFlight`].

use core::cell::Cell;

use lastwords_abi::session::{InFlight, MAX_LEVELS, Thread};
use lastwords_abi::sync::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::clock::ClockKind;
use crate::hooks::{fault, point};
use crate::os;
use crate::thread_cells::thread_cells;

/// Number of sessions whose entry a thread remembers. With more sessions, it must claim its entries
/// again. The cells of a thread are few and small, because a library that is loaded late gets them
/// from a small reserve.
const REMEMBERED: usize = 3;
/// Number of full tables that a thread remembers.
const REFUSED: usize = 2;

/// An entry of a table, in one word: the table's address without its lowest bits, which are zero,
/// above the number of the entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Claim(u64);

impl Claim {
    const NONE: Self = Self(0);
    /// Bits of the entry's number. Addresses have 57 bits at the most.
    const ENTRY: u32 = 13;

    /// Packs an entry. Returns none if its number needs more bits.
    fn new(table: usize, entry: usize) -> Option<Self> {
        const { assert!(align_of::<Thread>() >= 64, "an address without 6 bits, and 57 - 6 + 13 bits") };
        (entry >> Self::ENTRY == 0)
            .then_some(Self((table as u64 >> 6) << Self::ENTRY | entry as u64))
    }

    /// Returns the number of the entry, if it is of this table.
    fn entry(self, table: usize) -> Option<usize> {
        let of_table = self.0 >> Self::ENTRY == table as u64 >> 6;
        of_table.then_some((self.0 & ((1 << Self::ENTRY) - 1)) as usize)
    }
}

/// A table that had no room for this thread. Searching all its owners takes system calls, so the
/// search is not repeated for each lost event. It is one word: the table's address without its
/// lowest bits, above 3 bits for the last wait, as the logarithm of its seconds, and 10 bits for
/// the second, of CLOCK_MONOTONIC, from which the table is searched again.
#[derive(Clone, Copy)]
struct Refusal(u64);

impl Refusal {
    const NONE: Self = Self(0);
    const UNTIL: u64 = (1 << 10) - 1;
    /// Logarithm of the longest wait in seconds.
    const LONGEST: u64 = 6;

    /// Returns the refusal if it is of this table.
    fn for_table(self, table: usize) -> Option<Self> {
        (self.0 >> Claim::ENTRY == table as u64 >> 6).then_some(self)
    }

    /// Returns true if the thread waits at this second. A refusal that is older than its bits can
    /// express may be taken for a new one, which makes the thread wait once more.
    fn waits(self, now: u64) -> bool {
        (1..=1 << Self::LONGEST).contains(&(self.0.wrapping_sub(now) & Self::UNTIL))
    }

    /// Returns a refusal at this second. The first wait is one second, and each is twice as long as
    /// the one before.
    fn again(before: Option<Self>, table: usize, now: u64) -> Self {
        let wait = before.map_or(0, |before| ((before.0 >> 10 & 7) + 1).min(Self::LONGEST));
        Self(
            (table as u64 >> 6) << Claim::ENTRY
                | wait << 10
                | now.wrapping_add(1 << wait) & Self::UNTIL,
        )
    }
}

const SECOND: u64 = 1_000_000_000;

/// Bits of the thread's id in `IDENTITY`, below its start time in ticks. The kernel gives no larger
/// ids (`PID_MAX_LIMIT`), and the bits above are enough for a thousand years of ticks.
#[cfg(not(loom))]
const TID_BITS: u32 = 22;

thread_cells! {
    CLAIMS: [Cell<Claim>; REMEMBERED] = [const { Cell::new(Claim::NONE) }; REMEMBERED];
    NEXT: Cell<u8> = Cell::new(0);
    REFUSALS: [Cell<Refusal>; REFUSED] = [const { Cell::new(Refusal::NONE) }; REFUSED];
    LEVEL: Cell<u8> = Cell::new(0);
    IDENTITY: Cell<u64> = Cell::new(0);
}

/// Number of times that tables were unmapped. Who unmaps one adds 1 before (Release); a thread that
/// finds another number than it knows forgets its claims.
#[cfg(not(loom))]
static UNMAPPED: core::sync::atomic::AtomicU32 = core::sync::atomic::AtomicU32::new(0);
#[cfg(not(loom))]
std::thread_local! {
    /// The number that this thread knows.
    static KNOWN_UNMAPPED: Cell<u32> = const { Cell::new(0) };
}

/// Makes all threads claim their entries again. It is called before the memory of a session is
/// unmapped: the table of a session that begins later may have the address of the old one.
#[cfg(not(loom))]
pub fn note_unmapped() {
    UNMAPPED.fetch_add(1, Release);
}

/// Forgets the claims if tables were unmapped since the last look.
#[inline]
fn look_for_unmapped() {
    #[cfg(not(loom))]
    {
        let unmapped = UNMAPPED.load(Acquire);
        if KNOWN_UNMAPPED.replace(unmapped) != unmapped {
            forget_tables();
        }
    }
}

#[cold]
fn forget_tables() {
    CLAIMS.with(|claims| claims.iter().for_each(|c| c.set(Claim::NONE)));
    REFUSALS.with(|refusals| refusals.iter().for_each(|r| r.set(Refusal::NONE)));
}

/// Forgets in a forked child what the thread remembers, because the child is another thread.
pub(crate) fn forget_in_child() {
    forget_tables();
    IDENTITY.with(|identity| identity.set(0));
}

/// Returns the number of nested records in which this thread is.
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(any(loom, miri))))]
pub(crate) fn level() -> usize {
    usize::from(LEVEL.get())
}

/// Sets the number of nested records in which this thread is, after another process has run on its
/// memory.
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(any(loom, miri))))]
pub(crate) fn set_level(level: usize) {
    LEVEL.set(level as u8);
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
        if IDENTITY.get() == 0 {
            let tid = os::tid();
            IDENTITY.set(os::start_time(tid) << TID_BITS | u64::from(tid));
            crate::grow::look();
        }
        let identity = IDENTITY.get();
        ((identity & ((1 << TID_BITS) - 1)) as u32, identity >> TID_BITS)
    }
}

/// One nesting level of this thread's entry, which the thread uses while it records.
pub(crate) struct Level<'a> {
    /// The announcement of this level.
    pub(crate) in_flight: &'a InFlight,
    /// Number of the level for the reserve word, from 1.
    pub(crate) owner: u64,
}

/// Calls `record` with a level of this thread's entry. Returns none if the table is full or the
/// nesting too deep. `is_over` returns true if a dead thread's announcement, of the level with that
/// number, is no longer needed.
#[inline]
pub(crate) fn with_level<T>(
    threads: &[Thread],
    is_over: impl Fn(u64, &InFlight) -> bool,
    record: impl FnOnce(&Level<'_>) -> T,
) -> Option<T> {
    let before = LEVEL.with(Cell::get);
    let level = usize::from(before);
    if level >= MAX_LEVELS {
        return None;
    }
    LEVEL.with(|l| l.set(before + 1));
    let done = entry(threads, &is_over).map(|entry| {
        let in_flight = &threads[entry].levels[level];
        record(&Level { in_flight, owner: owner_number(entry, level) })
    });
    LEVEL.with(|l| l.set(before));
    done
}

/// Gives this thread an entry that no other thread claims, for models that do not test claims.
#[cfg(loom)]
pub(crate) fn assume(threads: &[Thread], entry: usize) {
    let (tid, start) = identity();
    threads[entry].start.store(start, Relaxed);
    threads[entry].pidns.store(os::pid_namespace(), Relaxed);
    threads[entry].owner.store(owner_word(tid), Release);
    let claim = Claim::new(threads.as_ptr() as usize, entry).expect("a small table");
    CLAIMS.with(|claims| claims[0].set(claim));
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
    look_for_unmapped();
    let table = threads.as_ptr() as usize;
    let first = CLAIMS.with(|claims| claims[0].get());
    first.entry(table).or_else(|| entry_slow(threads, table, is_over))
}

#[cold]
fn entry_slow(threads: &[Thread], table: usize, is_over: IsOver<'_>) -> Option<usize> {
    let known = CLAIMS.with(|claims| claims.iter().find_map(|claim| claim.get().entry(table)));
    if known.is_some() {
        return known;
    }
    let entry = REFUSALS.with(|refusals| {
        // Two tables may share a cell. Then each makes the thread forget the refusal of the other.
        let cell = &refusals[(table >> 12) % REFUSED];
        let before = cell.get().for_table(table);
        let now = || ClockKind::Monotonic.now() / SECOND;
        if before.is_some_and(|before| before.waits(now())) {
            return None;
        }
        let claimed = claim(threads, is_over);
        if claimed.is_none() {
            cell.set(Refusal::again(before, table, now()));
        }
        claimed
    })?;
    if let Some(claim) = Claim::new(table, entry) {
        let slot = NEXT.with(|next| next.replace(next.get().wrapping_add(1)));
        CLAIMS.with(|claims| claims[usize::from(slot) % REMEMBERED].set(claim));
    }
    Some(entry)
}

/// Claims an entry: one that this thread owns but has forgotten, a free one, or one whose owner
/// died and left nothing that is still needed.
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
    // The owner word has no process id until `start` and `pidns` are those of this thread, so
    // nobody mistakes this thread for the previous, dead owner.
    let claiming = if fault!(StaleStart) { mine } else { u64::from(tid) << 32 };
    let found = threads
        .iter()
        .position(|t| {
            t.owner.load(Acquire) == 0
                && t.owner.compare_exchange(0, claiming, AcqRel, Relaxed).is_ok()
        })
        .or_else(|| {
            (0..threads.len())
                .find(|&entry| take_over(threads, entry, claiming, namespace, is_over))
        })?;
    let thread = &threads[found];
    point!(Claimed);
    thread.levels.iter().for_each(|l| l.target.store(0, Release));
    thread.start.store(start, Relaxed);
    thread.pidns.store(namespace, Relaxed);
    thread.owner.store(mine, Release);
    Some(found)
}

fn take_over(
    threads: &[Thread],
    entry: usize,
    claiming: u64,
    namespace: u64,
    is_over: IsOver<'_>,
) -> bool {
    let thread = &threads[entry];
    let owner = thread.owner.load(Acquire);
    let over = || {
        thread.levels.iter().enumerate().all(|(level, l)| is_over(owner_number(entry, level), l))
    };
    // The check is repeated after the owner was found dead, because it may have announced something
    // before it died.
    over()
        && !is_alive(thread, namespace)
        && over()
        && thread.owner.compare_exchange(owner, claiming, AcqRel, Relaxed).is_ok()
}

/// Returns the living threads that have an announcement for which `is_meant` is true.
pub(crate) fn living(
    threads: &[Thread],
    is_meant: impl Fn(&InFlight) -> bool,
) -> impl Iterator<Item = &Thread> {
    let mut namespace = None;
    threads.iter().filter(move |thread| {
        thread.levels.iter().any(&is_meant)
            && is_alive(thread, *namespace.get_or_insert_with(os::pid_namespace))
    })
}

/// Returns true if the entry's owner may still run, as far as this process can know. Owners of
/// another pid namespace, and an owner that is just claiming the entry, count as alive.
pub(crate) fn is_alive(thread: &Thread, namespace: u64) -> bool {
    let owner = thread.owner.load(Acquire);
    let claiming = owner as u32 == 0;
    let of = thread.pidns.load(Acquire);
    let elsewhere = of != 0 && of != namespace;
    owner != 0
        && (claiming
            || elsewhere
            || os::is_alive((owner >> 32) as u32, thread.start.load(Relaxed) as u32))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[cfg(not(loom))]
    #[test]
    fn a_table_in_the_place_of_an_unmapped_one_is_another() {
        // SAFETY: an entry has only integers, for which all-zero bytes are valid.
        let table: Vec<Thread> = (0..2).map(|_| unsafe { core::mem::zeroed() }).collect();
        let record = || with_level(&table, |_, _| true, |level| level.owner);
        let first = record();
        assert!(first.is_some() && record() == first);
        // Another session has this memory now.
        table.iter().for_each(|thread| thread.owner.store(0, Relaxed));
        note_unmapped();
        assert_eq!(record(), first);
        assert_ne!(table[0].owner.load(Relaxed), 0, "the entry is claimed again");
    }

    #[test]
    fn claims_and_refusals_are_of_one_table() {
        let (table, other) = (0x7fff_ffff_ffc0, 0x7fff_ffff_ff80);
        let claim = Claim::new(table, 509).expect("a small number");
        assert_eq!((claim.entry(table), claim.entry(other)), (Some(509), None));
        assert_eq!((Claim::new(table, 1 << 13), Claim::NONE.entry(table)), (None, None));
        let mut refusal = None;
        let mut now = 1_000_000;
        for wait in [1, 2, 4, 8, 16, 32, 64, 64] {
            let next = Refusal::again(refusal, table, now);
            assert!(
                next.for_table(other).is_none() && next.waits(now) && next.waits(now + wait - 1)
            );
            assert!(!next.waits(now + wait) && !next.waits(now + wait + 100));
            (refusal, now) = (next.for_table(table), now + wait);
        }
    }
}

//! The spans of [`LastwordsSubscriber`](super::LastwordsSubscriber): for each open span its site,
//! its parent, and how many handles it has.
//!
//! A slot is found by its index, which is the lower half of a span's id; the upper half changes
//! each time that the slot is used, so that ids are not used again soon. Free slots are in lists,
//! of which each thread uses one. A slot always returns to the list that it came from,
//! whichever thread closes the span. In front of the lists, a thread keeps one free slot for
//! itself, which takes no exchange of an atomic: most threads open a span after they have closed
//! one. A thread that ends puts that slot into its list. Memory comes from the system in ever
//! larger pages, and is never freed. It is private: a forked child has a copy, in which the slots
//! that other threads kept stay unused.

use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, compiler_fence, fence};

use lastwords_ring::os;
use tracing_core::Metadata;

use super::site::Site;

/// Slots of the first page. Each page has twice as many as the page before.
const FIRST: u64 = 1024;
/// Largest number of pages.
const PAGES: usize = 20;
/// Number of slots that a list gets at a time. It divides [`FIRST`], so that they are in one page.
const BATCH: u32 = 16;
/// Number of lists of free slots.
const LISTS: usize = 32;
/// Number of keys whose values a thread has without memory of the heap (`PTHREAD_KEY_2NDLEVEL_SIZE`
/// of glibc). The value may be set in a signal handler that interrupted `malloc`.
const FIRST_KEYS: u32 = 32;
/// Bits of an id above those that choose a place in the table of open spans.
const UPPERMOST: u32 = 13;
/// The lower half of a word with an index, or with the number of handles.
const LOW: u64 = u32::MAX as u64;

/// A span, or room for one. All-zero bytes are a slot that was never used.
#[repr(align(64))]
struct Slot {
    /// The upper half of the span's id, and the number of handles in the lower half; 0 handles =
    /// free. Who opens, clones or closes the span writes it. It is published after `site` and
    /// `parent`, and they stay until there are no handles.
    state: AtomicU64,
    /// The span's site. It is stored by who opens the span, after the slot was free.
    site: AtomicPtr<Site>,
    /// Id of the parent, of which this span has a handle, or 0.
    parent: AtomicU64,
    /// One more than the index of the next free slot, or 0. Who puts the slot into a list writes
    /// it before the head.
    next: AtomicU32,
    /// The list that the slot belongs to. It is written once, before the slot is in a list.
    list: AtomicU32,
}

/// A list of free slots: one more than the index of the first in the lower half, 0 = empty; a count
/// of changes in the upper half, so that a thread that was interrupted does not take a list for
/// unchanged that became the same again.
#[repr(align(64))]
struct List(AtomicU64);

static LISTS_OF_SLOTS: [List; LISTS] = [const { List(AtomicU64::new(0)) }; LISTS];
/// The pages. The first thread that needs one stores it.
static ALL_PAGES: [AtomicPtr<Slot>; PAGES] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; PAGES];
/// Number of slots that were given to lists.
static GIVEN: AtomicU64 = AtomicU64::new(0);
/// Number of threads that were given a list.
static THREADS: AtomicUsize = AtomicUsize::new(0);
/// One more than the key whose destructor is [`give_back`]; 0 before the first thread has made it.
/// The C library orders the key's own state.
static END_OF_THREAD: AtomicU32 = AtomicU32::new(0);

/// The free slots that a thread knows. Signal handlers of the thread use it too.
struct Own {
    /// One more than the list of this thread, or 0.
    list: Cell<usize>,
    /// One more than the index of a free slot that is in no list, or 0.
    kept: Cell<u32>,
    /// False while `kept` may be used: the thread has a list, gives `kept` back when it ends, and
    /// has not been interrupted while it used it.
    is_closed: Cell<bool>,
}

thread_local! {
    static OWN: Own = const { Own { list: Cell::new(0), kept: Cell::new(0), is_closed: Cell::new(true) } };
}

impl Own {
    /// Takes the kept slot if `new` is 0, and otherwise keeps a slot if there is none. Returns the
    /// old value of `kept`; none if nothing was replaced.
    #[inline(always)]
    fn replace(&self, new: u32) -> Option<u32> {
        if self.is_closed.get() || (self.kept.get() == 0) == (new == 0) {
            return None;
        }
        // A signal handler that interrupts the thread from here on finds `kept` closed. One that
        // came before has left it open, and perhaps changed it.
        self.is_closed.set(true);
        compiler_fence(SeqCst);
        let old = self.kept.get();
        let is_right = (old == 0) != (new == 0);
        if is_right {
            self.kept.set(new);
        }
        compiler_fence(SeqCst);
        self.is_closed.set(false);
        is_right.then_some(old)
    }
}

/// A span that has been closed.
pub(super) struct Closed {
    pub(super) site: &'static Site,
    /// The parent, whose handle now belongs to the caller, or 0.
    pub(super) parent: u64,
}

/// Opens a span with one handle, and takes a handle of its parent, if that is open here. Returns
/// its id, or none if the system gives no memory.
pub(super) fn open(site: &'static Site, parent: u64) -> Option<u64> {
    let (index, slot) = take()?;
    let upper = slot.state.load(Relaxed) & !LOW;
    let parent = if parent != 0 && share(parent) { parent } else { 0 };
    // A reader that sees this site also sees that the span before is closed.
    slot.site.store(std::ptr::from_ref(site).cast_mut(), Release);
    slot.parent.store(parent, Relaxed);
    slot.state.store(upper | 1, Release);
    Some(upper | (u64::from(index) + 1))
}

/// Adds a handle. Returns false if the span is not open.
pub(super) fn share(id: u64) -> bool {
    slot_of(id).is_some_and(|slot| change(slot, id, |state| state + 1).is_some())
}

/// Takes a handle away. Returns the span if that was the last one.
pub(super) fn release(id: u64) -> Option<Closed> {
    let slot = slot_of(id)?;
    let left = change(slot, id, |state| state - 1)? & LOW;
    if left != 1 {
        return None;
    }
    // SAFETY: `open` stored the address of a static.
    let site = unsafe { &*slot.site.load(Relaxed) };
    let closed = Closed { site, parent: slot.parent.load(Relaxed) };
    slot.state.store(next_use(id), Relaxed);
    let index = (id & LOW) as u32 - 1;
    if OWN.with(|own| own.replace(index + 1)).is_none() {
        put_back(index);
    }
    Some(closed)
}

/// Returns the state of a slot that is free after this span. The upper half counts uses, and its
/// low bits are the top bits of the id, so that the bits below stay for thousands of uses: they are
/// the span's place in the table of open spans.
#[inline]
fn next_use(id: u64) -> u64 {
    let uses = ((id >> 32) as u32).rotate_left(UPPERMOST);
    u64::from(uses.wrapping_add(1).rotate_right(UPPERMOST)) << 32
}

/// Returns the description of an open span.
pub(super) fn metadata(id: u64) -> Option<&'static Metadata<'static>> {
    site(id).map(|site| site.metadata)
}

/// Returns the site of an open span.
#[inline]
pub(super) fn site(id: u64) -> Option<&'static Site> {
    let slot = slot_of(id)?;
    let is_open = |state: u64| state & !LOW == id & !LOW && state & LOW != 0;
    if !is_open(slot.state.load(Acquire)) {
        return None;
    }
    let site = slot.site.load(Acquire);
    fence(Acquire);
    // SAFETY: `open` stored the address of a static before the state that was read.
    is_open(slot.state.load(Relaxed)).then(|| unsafe { &*site })
}

/// Changes the number of handles of an open span. Returns the state before, or none if the span is
/// not open.
#[inline]
fn change(slot: &Slot, id: u64, to: impl Fn(u64) -> u64) -> Option<u64> {
    // A span of which there are too many handles to count stays open.
    let counts = |state: u64| state & !LOW == id & !LOW && !matches!(state & LOW, 0 | LOW);
    slot.state.fetch_update(AcqRel, Relaxed, |state| counts(state).then(|| to(state))).ok()
}

/// Returns the slot of a span, which may belong to another span by now. Ids of other subscribers
/// lead nowhere, or to a slot too.
#[inline]
fn slot_of(id: u64) -> Option<&'static Slot> {
    slot((id & LOW).checked_sub(1)?)
}

#[inline]
fn slot(index: u64) -> Option<&'static Slot> {
    let (page, at) = place(index);
    let page = NonNull::new(ALL_PAGES.get(page)?.load(Acquire))?;
    // SAFETY: the page has more slots than `at`, lives for ever, and all-zero bytes are valid.
    Some(unsafe { page.add(at).as_ref() })
}

/// Returns the page of a slot, and its place there.
#[inline]
fn place(index: u64) -> (usize, usize) {
    let page = (index / FIRST + 1).ilog2();
    (page as usize, (index - ((1 << page) - 1) * FIRST) as usize)
}

/// Takes a free slot: the one that this thread keeps, or one from its list.
#[inline]
fn take() -> Option<(u32, &'static Slot)> {
    match OWN.with(|own| own.replace(0)) {
        Some(kept) => Some((kept - 1, slot(u64::from(kept - 1))?)),
        None => take_from_list(),
    }
}

#[inline(never)]
fn take_from_list() -> Option<(u32, &'static Slot)> {
    let number = match OWN.with(|own| own.list.get()) {
        0 => first_use(),
        number => number - 1,
    };
    let list = &LISTS_OF_SLOTS[number % LISTS];
    loop {
        let head = list.0.load(Acquire);
        let Some(index) = (head as u32).checked_sub(1) else {
            fill(list, number as u32)?;
            continue;
        };
        let slot = slot(u64::from(index))?;
        // If another thread takes the slot first, `next` is anything, and the exchange fails.
        let after = (head & !LOW).wrapping_add(LOW + 1) | u64::from(slot.next.load(Relaxed));
        if list.0.compare_exchange_weak(head, after, AcqRel, Relaxed).is_ok() {
            return Some((index, slot));
        }
    }
}

/// Puts linked slots, from `first` to `last`, in front of a list.
fn put(list: &List, first: u32, last: u32) {
    let Some(slot) = slot(u64::from(last)) else { return };
    let mut head = list.0.load(Relaxed);
    loop {
        slot.next.store(head as u32, Relaxed);
        let after = (head & !LOW).wrapping_add(LOW + 1) | (u64::from(first) + 1);
        match list.0.compare_exchange_weak(head, after, Release, Relaxed) {
            Ok(_) => return,
            Err(now) => head = now,
        }
    }
}

#[cold]
fn first_use() -> usize {
    let thread = THREADS.fetch_add(1, Relaxed);
    // A signal handler may come here in the middle, and give the thread a list before this does.
    OWN.with(|own| {
        own.list.set(thread % LISTS + 1);
        own.is_closed.set(!is_end_awaited());
    });
    thread % LISTS
}

/// Makes the C library call [`give_back`] when this thread ends. Returns false if it will not.
/// Async-signal-safe.
#[cold]
fn is_end_awaited() -> bool {
    let mut key = END_OF_THREAD.load(Relaxed);
    if key == 0 {
        let mut new = 0;
        // SAFETY: `new` is valid memory for the key, and the destructor stays: libraries that
        // record are never unloaded.
        if unsafe { libc::pthread_key_create(&raw mut new, Some(give_back)) } != 0 {
            return false;
        }
        key = new + 1;
        if let Err(other) = END_OF_THREAD.compare_exchange(0, key, Relaxed, Relaxed) {
            // SAFETY: the key was made above, and nobody else knows it.
            unsafe { libc::pthread_key_delete(new) };
            key = other;
        }
    }
    // SAFETY: the key exists, and the value is only compared with null.
    key <= FIRST_KEYS
        && unsafe { libc::pthread_setspecific(key - 1, std::ptr::without_provenance(1)) } == 0
}

/// Puts the slot that this thread keeps into its list. The C library calls this when the thread
/// ends. Spans that later destructors open use the lists alone.
extern "C" fn give_back(_: *mut libc::c_void) {
    OWN.with(|own| {
        let kept = own.replace(0);
        // A signal handler that comes before this may keep a slot again.
        own.is_closed.set(true);
        compiler_fence(SeqCst);
        for kept in [kept.unwrap_or(0), own.kept.replace(0)]
            .into_iter()
            .filter_map(|kept| kept.checked_sub(1))
        {
            put_back(kept);
        }
    });
}

/// Puts a free slot into its list.
fn put_back(index: u32) {
    if let Some(slot) = slot(u64::from(index)) {
        put(&LISTS_OF_SLOTS[slot.list.load(Relaxed) as usize % LISTS], index, index);
    }
}

/// Gives new slots to a list. Returns none if there is no memory.
#[cold]
#[inline(never)]
fn fill(list: &List, number: u32) -> Option<()> {
    let first = GIVEN.fetch_add(u64::from(BATCH), Relaxed);
    let (page, _) = place(first);
    make_page(page)?;
    let first = first as u32;
    for index in first..first + BATCH {
        let slot = slot(u64::from(index))?;
        slot.list.store(number, Relaxed);
        slot.next.store(index + 2, Relaxed);
    }
    put(list, first, first + BATCH - 1);
    Some(())
}

/// Makes the page, unless it is there.
fn make_page(number: usize) -> Option<()> {
    let page = ALL_PAGES.get(number)?;
    if !page.load(Acquire).is_null() {
        return Some(());
    }
    let len = (FIRST as usize * size_of::<Slot>()) << number;
    let fresh = os::private_memory(len)?.as_ptr();
    if page.compare_exchange(std::ptr::null_mut(), fresh.cast(), AcqRel, Acquire).is_err() {
        // SAFETY: nobody else has seen this memory.
        unsafe { libc::munmap(fresh.cast(), len) };
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Mutex;

    use lastwords_testkit::random::Random;

    use super::*;
    use crate::layer::site::tests::any;

    /// Lets one test run at a time: the tests take slots of the same lists.
    fn alone() -> std::sync::MutexGuard<'static, ()> {
        static ONE: Mutex<()> = Mutex::new(());
        ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Threads open spans in spans, share them, pass them to each other and close them. Beside them
    /// is a map of what is open.
    #[test]
    fn a_map_knows_the_same_spans() {
        let _alone = alone();
        type Spans = Mutex<HashMap<u64, (&'static Site, u64)>>;
        fn close(spans: &Spans, mut id: u64) {
            while let Some(closed) = release(id) {
                let (site, parent) = spans.lock().unwrap().remove(&id).expect("it was open");
                assert!(std::ptr::eq(site, closed.site) && parent == closed.parent);
                assert!(
                    super::site(id).is_none() && !share(id) && release(id).is_none(),
                    "it is closed"
                );
                id = parent;
            }
        }
        let (spans, passed, sites) = (Spans::default(), Mutex::new(Vec::new()), [any(), any()]);
        let work = |mut random: Random| {
            let mut held: Vec<u64> = Vec::new();
            for _ in 0..if cfg!(miri) { 80 } else { 20_000 } {
                let some = (!held.is_empty()).then(|| random.index(held.len()));
                match (random.below(16), some) {
                    (0..5, _) | (_, None) => {
                        let (site, parent) =
                            (*random.pick(&sites), some.map_or(0, |some| held[some]));
                        let id = open(site, parent).expect("memory");
                        assert!(
                            spans.lock().unwrap().insert(id, (site, parent)).is_none(),
                            "an id of its own"
                        );
                        held.push(id);
                    }
                    (5..8, Some(some)) => {
                        assert!(share(held[some]), "it is open");
                        held.push(held[some]);
                    }
                    (8, Some(some)) => passed.lock().unwrap().push(held.swap_remove(some)),
                    (9, _) => held.extend(passed.lock().unwrap().pop()),
                    (_, Some(some)) => close(&spans, held.swap_remove(some)),
                }
                let last = held
                    .last()
                    .map(|id| (spans.lock().unwrap()[id].0, super::site(*id).expect("it is open")));
                assert!(last.is_none_or(|(expected, site)| std::ptr::eq(expected, site)));
            }
            held.into_iter().for_each(|id| close(&spans, id));
        };
        std::thread::scope(|scope| {
            (1..4).for_each(|seed| {
                _ = scope.spawn({
                    let work = &work;
                    move || work(Random(seed))
                })
            })
        });
        passed.into_inner().unwrap().into_iter().for_each(|id| close(&spans, id));
        assert!(spans.into_inner().unwrap().is_empty());
    }

    /// A thread that opens one span after the other uses one slot. What interrupts it while it
    /// takes that slot gets others, and after it the thread has its slot again.
    #[test]
    fn a_thread_keeps_one_slot() {
        let _alone = alone();
        let site = any();
        let of = |id: u64| id & LOW;
        let (first, second) = (open(site, 0).expect("memory"), open(site, 0).expect("memory"));
        assert!(release(first).is_some() && release(second).is_some());
        // The first was kept, and the second went into the list.
        let again = open(site, 0).expect("memory");
        assert_eq!(of(again), of(first));
        assert!(release(again).is_some());
        OWN.with(|own| own.is_closed.set(true));
        let inside = open(site, 0).expect("memory");
        assert_ne!(of(inside), of(first));
        assert!(release(inside).is_some());
        OWN.with(|own| own.is_closed.set(false));
        let after = open(site, 0).expect("memory");
        assert!(of(after) == of(first) && super::site(inside).is_none());
        assert!(release(after).is_some());
    }

    /// Threads come and go, each with a span, and with another one in a destructor that is called
    /// after ours. The lists get no more slots than one batch each.
    #[test]
    fn a_thread_that_ends_leaves_its_slot() {
        let _alone = alone();
        extern "C" fn one(_: *mut libc::c_void) {
            let id = open(any(), 0).expect("memory");
            assert!(release(id).is_some());
        }
        one(std::ptr::null_mut());
        let mut key = 0;
        // SAFETY: `key` is valid memory for the key, which comes after ours.
        assert_eq!(unsafe { libc::pthread_key_create(&raw mut key, Some(one)) }, 0);
        assert!(key >= END_OF_THREAD.load(Relaxed), "its destructor is called after ours");
        let before = GIVEN.load(Relaxed);
        for _ in 0..if cfg!(miri) { 40 } else { 2000 } {
            let thread = std::thread::spawn(move || {
                one(std::ptr::null_mut());
                // SAFETY: the key exists; the value is a number.
                unsafe { libc::pthread_setspecific(key, std::ptr::without_provenance(1)) }
            });
            assert_eq!(thread.join().expect("it ends"), 0);
        }
        let given = GIVEN.load(Relaxed) - before;
        assert!(
            given <= LISTS as u64 * u64::from(BATCH),
            "{given} slots for threads that are gone"
        );
    }

    /// A forked child has the slot that its parent kept as a copy: both open a span in it, and each
    /// knows its own alone.
    #[cfg(not(miri))]
    #[test]
    fn a_forked_child_has_slots_of_its_own() {
        let _alone = alone();
        let sites = [any(), any()];
        let opened = open(sites[0], 0).expect("memory");
        assert!(release(opened).is_some(), "the slot is kept");
        let mut ends = [0; 2];
        // SAFETY: `ends` has room for both ends.
        assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
        // SAFETY: the child uses atomics and thread-local storage alone, and ends by `_exit`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: the parent closes its end when its span is open.
            unsafe { (libc::close(ends[1]), libc::read(ends[0], ends.as_mut_ptr().cast(), 1)) };
            let id = open(sites[1], 0);
            let is_own = id.and_then(super::site).is_some_and(|site| std::ptr::eq(site, sites[1]));
            let is_closed = id.and_then(release).is_some();
            // SAFETY: nothing else happens in the child.
            unsafe { libc::_exit(i32::from(!(is_own && is_closed))) };
        }
        let id = open(sites[0], 0).expect("memory");
        let mut status = -1;
        // SAFETY: the ends are ours, and the child is.
        unsafe {
            (libc::close(ends[1]), libc::waitpid(child, &raw mut status, 0), libc::close(ends[0]))
        };
        assert_eq!((status, id & LOW), (0, opened & LOW));
        assert!(
            super::site(id).is_some_and(|site| std::ptr::eq(site, sites[0]))
                && release(id).is_some()
        );
    }

    /// Signal handlers open and close spans while the thread does.
    #[cfg(not(miri))]
    #[test]
    fn handlers_open_spans_in_the_midst() {
        let _alone = alone();
        use std::sync::atomic::AtomicBool;

        static SITE: AtomicPtr<Site> = AtomicPtr::new(std::ptr::null_mut());
        static RUNS: AtomicU64 = AtomicU64::new(0);
        static IS_DONE: AtomicBool = AtomicBool::new(false);
        fn one(parent: u64) {
            // SAFETY: the test has stored a site that lives for ever.
            let site = unsafe { &*SITE.load(Relaxed) };
            let id = open(site, parent).expect("memory");
            let inner = open(site, id).expect("memory");
            // The second closes its parent too, whose last handle it has then.
            assert!(release(id).is_none() && super::site(id).is_some());
            assert_eq!(release(inner).expect("the last handle").parent, id);
            assert!(
                release(id).is_some() && super::site(id).is_none() && super::site(inner).is_none()
            );
        }
        extern "C" fn handler(_: libc::c_int) {
            one(0);
            RUNS.fetch_add(1, Relaxed);
        }
        SITE.store(std::ptr::from_ref(any()).cast_mut(), Relaxed);
        let signal = libc::SIGRTMIN() + 9;
        // SAFETY: the handler touches atomics and thread-local storage without a destructor alone.
        unsafe {
            libc::signal(signal, handler as extern "C" fn(libc::c_int) as libc::sighandler_t)
        };
        // SAFETY: the calling thread lives.
        let me = unsafe { libc::pthread_self() };
        std::thread::scope(|scope| {
            scope.spawn(move || {
                while !IS_DONE.load(Relaxed) {
                    let runs = RUNS.load(Relaxed);
                    // SAFETY: the thread of the test waits for this one.
                    unsafe { libc::pthread_kill(me, signal) };
                    // One at a time: signals that wait would leave the thread no time for itself.
                    while RUNS.load(Relaxed) == runs && !IS_DONE.load(Relaxed) {
                        std::thread::yield_now();
                    }
                }
            });
            let mut opened = 0u64;
            while RUNS.load(Relaxed) < 1000 || opened < 20_000 {
                one(0);
                opened += 1;
            }
            IS_DONE.store(true, Relaxed);
        });
    }

    #[test]
    fn pages_follow_each_other() {
        let mut expected = (0, 0);
        for index in 0..if cfg!(miri) { 10_000 } else { 100_000 } {
            assert_eq!(place(index), expected);
            expected.1 += 1;
            if expected.1 == (FIRST as usize) << expected.0 {
                expected = (expected.0 + 1, 0);
            }
        }
        assert!(place(u64::from(u32::MAX)).0 >= PAGES, "what has no index has no page");
    }
}

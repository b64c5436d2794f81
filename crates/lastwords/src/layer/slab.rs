//! The spans of [`LastwordsSubscriber`](super::LastwordsSubscriber): for each open span its site, its parent, and how many
//! handles it has.
//!
//! A slot is found by its index, which is the lower half of a span's id; the upper half changes each time that the slot is used, so
//! that ids are not used again soon. Free slots are in lists, of which each thread uses one. A slot always returns to the list that it came from,
//! whichever thread closes the span. Memory comes from the system in ever larger pages, and is never freed.

use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, fence};

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
/// Bits of an id above those that choose a place in the table of open spans.
const UPPERMOST: u32 = 13;
/// The lower half of a word with an index, or with the number of handles.
const LOW: u64 = u32::MAX as u64;

/// A span, or room for one. All-zero bytes are a slot that was never used.
#[repr(align(64))]
struct Slot {
    /// The upper half of the span's id, and the number of handles in the lower half; 0 handles = free. Who opens, clones or
    /// closes the span writes it. It is published after `site` and `parent`, and they stay until there are no handles.
    state: AtomicU64,
    /// The span's site. It is stored by who opens the span, after the slot was free.
    site: AtomicPtr<Site>,
    /// Id of the parent, of which this span has a handle, or 0.
    parent: AtomicU64,
    /// One more than the index of the next free slot, or 0. Who puts the slot into a list writes it before the head.
    next: AtomicU32,
    /// The list that the slot belongs to. It is written once, before the slot is in a list.
    list: AtomicU32,
}

/// A list of free slots: one more than the index of the first in the lower half, 0 = empty; a count of changes in the upper half, so
/// that a thread that was interrupted does not take a list for unchanged that became the same again.
#[repr(align(64))]
struct List(AtomicU64);

static LISTS_OF_SLOTS: [List; LISTS] = [const { List(AtomicU64::new(0)) }; LISTS];
/// The pages. The first thread that needs one stores it.
static ALL_PAGES: [AtomicPtr<Slot>; PAGES] = [const { AtomicPtr::new(std::ptr::null_mut()) }; PAGES];
/// Number of slots that were given to lists.
static GIVEN: AtomicU64 = AtomicU64::new(0);
/// Number of threads that were given a list.
static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// One more than the list of this thread, or 0.
    static LIST: Cell<usize> = const { Cell::new(0) };
}

/// A span that has been closed.
pub(super) struct Closed {
    pub(super) site: &'static Site,
    /// The parent, whose handle now belongs to the caller, or 0.
    pub(super) parent: u64,
}

/// Opens a span with one handle, and takes a handle of its parent, if that is open here. Returns its id, or none if the system
/// gives no memory.
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
    put(&LISTS_OF_SLOTS[slot.list.load(Relaxed) as usize % LISTS], index, index);
    Some(closed)
}

/// Returns the state of a slot that is free after this span. The upper half counts uses, and its low bits are the top bits of the
/// id, so that the bits below stay for thousands of uses: they are the span's place in the table of open spans.
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

/// Changes the number of handles of an open span. Returns the state before, or none if the span is not open.
#[inline]
fn change(slot: &Slot, id: u64, to: impl Fn(u64) -> u64) -> Option<u64> {
    // A span of which there are too many handles to count stays open.
    let counts = |state: u64| state & !LOW == id & !LOW && !matches!(state & LOW, 0 | LOW);
    slot.state.fetch_update(AcqRel, Relaxed, |state| counts(state).then(|| to(state))).ok()
}

/// Returns the slot of a span, which may belong to another span by now. Ids of other subscribers lead nowhere, or to a slot too.
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

/// Takes a free slot from this thread's list.
fn take() -> Option<(u32, &'static Slot)> {
    let number = match LIST.get() {
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
    let number = THREADS.fetch_add(1, Relaxed) % LISTS;
    LIST.set(number + 1);
    number
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

    use tracing_core::metadata::Kind;
    use tracing_core::{Callsite, Interest, Level};

    use super::*;
    use crate::layer::site;
    use crate::session::registry::EventDesc;

    struct Place;
    impl Callsite for Place {
        fn set_interest(&self, _: Interest) {}
        fn metadata(&self) -> &Metadata<'_> {
            &METADATA
        }
    }
    static METADATA: Metadata<'static> = tracing_core::metadata! {
        name: "x", target: "x", level: Level::INFO, fields: &[], callsite: &Place, kind: Kind::SPAN,
    };

    fn new_site() -> &'static Site {
        let desc = EventDesc { provider: "", name: "", level: 1, format: "", file: "", line: 0, fields: &[] };
        Box::leak(Box::new(Site::new(&METADATA, site::Kind::New, desc)))
    }

    /// Threads open spans in spans, share them, pass them to each other and close them. Beside them is a map of what is open.
    #[test]
    fn a_map_knows_the_same_spans() {
        type Spans = Mutex<HashMap<u64, (&'static Site, u64)>>;
        fn close(spans: &Spans, mut id: u64) {
            while let Some(closed) = release(id) {
                let (site, parent) = spans.lock().unwrap().remove(&id).expect("it was open");
                assert!(std::ptr::eq(site, closed.site) && parent == closed.parent);
                assert!(super::site(id).is_none() && !share(id) && release(id).is_none(), "it is closed");
                id = parent;
            }
        }
        let (spans, passed, sites) = (Spans::default(), Mutex::new(Vec::new()), [new_site(), new_site()]);
        let work = |mut random: u64| {
            let mut held: Vec<u64> = Vec::new();
            for _ in 0..if cfg!(miri) { 80 } else { 20_000 } {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let some = (!held.is_empty()).then(|| (random >> 20) as usize % held.len());
                match (random >> 60, some) {
                    (0..5, _) | (_, None) => {
                        let (site, parent) = (sites[random as usize >> 40 & 1], some.map_or(0, |some| held[some]));
                        let id = open(site, parent).expect("memory");
                        assert!(spans.lock().unwrap().insert(id, (site, parent)).is_none(), "an id of its own");
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
                let last = held.last().map(|id| (spans.lock().unwrap()[id].0, super::site(*id).expect("it is open")));
                assert!(last.is_none_or(|(expected, site)| std::ptr::eq(expected, site)));
            }
            held.into_iter().for_each(|id| close(&spans, id));
        };
        std::thread::scope(|scope| {
            (1..4).for_each(|seed| {
                _ = scope.spawn({
                    let work = &work;
                    move || work(seed)
                })
            })
        });
        passed.into_inner().unwrap().into_iter().for_each(|id| close(&spans, id));
        assert!(spans.into_inner().unwrap().is_empty());
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

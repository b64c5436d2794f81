//! Callsites: the static data of each `event!` and `mark!`, and the path from there into the rings.
//!
//! A disabled event is one load and one branch. A callsite makes itself known when it is first reached, whatever the state
//! of the sessions: types of the values are known there and nowhere before. From then on it is in a list, and whoever changes
//! rules, sessions or channels calls [`refresh_all`].

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicU16, AtomicU32, AtomicU64};

use lastwords_abi::stream::LOST_NO_ENTRY;
use lastwords_ring::os::{ErrnoKept, SignalsBlocked, pause};

use crate::process::{identity, kept_memory};
use crate::record::dispatch::record_to;
use crate::record::encode::{Given, Site, Values};
use crate::record::signature;
use crate::record::slot::{self, MAX_SLOTS, RecorderSlot, SLOTS};
use crate::session::listener;
use crate::session::registry::{Busy, EventDesc, MOST_IDS};

/// [`Callsite::enabled`] while it is not known which channels take the event: a bit that is no slot's.
const UNKNOWN: u64 = 1 << MAX_SLOTS;
const _: () = assert!(MAX_SLOTS < u64::BITS as usize, "a slot for each bit below UNKNOWN");
/// Set in [`Callsite::enabled`] while nobody but the events themselves looks for changes of rules: see [`listener::poll`].
const POLLS: u64 = UNKNOWN << 1;
/// Place of an id that was not given.
const NO_ID: u16 = u16::MAX;
/// Place of an id that cannot be given: the session's registry is full.
const NO_ROOM: u16 = u16::MAX - 1;
const _: () = assert!(MOST_IDS <= NO_ROOM as u32);
/// The bits of an address; those above have room for an id. Memory of a program is below (of 2^47 bytes on x86_64, of 2^48
/// on aarch64, unless it asks for memory above), but for programs of 32 bits.
const ADDRESS: usize = usize::MAX >> 16;

/// The static data of a callsite.
#[derive(Debug)]
#[repr(C)]
pub struct Callsite {
    /// A bit for each slot that takes the event; [`UNKNOWN`] at first. Written under [`LOCK`].
    enabled: AtomicU64,
    /// The [`signature`] of its values once `desc` and `next` hold, 0 before. Written under [`LOCK`].
    known: AtomicU32,
    /// The slot, where one alone takes the event, with the event's id there in the bits that addresses leave; null otherwise.
    /// One load from here leads to the slot: `rseq_fast.rs` in the crate `ring` says why that counts. Written under
    /// [`LOCK`], before `enabled`.
    only: AtomicPtr<RecorderSlot>,
    /// Id of the event in each slot. Written under [`LOCK`], before the bit of `enabled`.
    ids: [AtomicU16; MAX_SLOTS],
    desc: AtomicPtr<EventDesc>,
    next: AtomicPtr<Callsite>,
    /// The same place in the program with values of other types: that of a generic function is one static for all of them.
    other: AtomicPtr<Callsite>,
}

/// The callsites that were reached, newest first.
static LIST: AtomicPtr<Callsite> = AtomicPtr::new(std::ptr::null_mut());
/// Held while callsites change: `pid << 32 | tid`, or 0.
static LOCK: AtomicU64 = AtomicU64::new(0);

impl Callsite {
    /// A callsite that was not reached yet.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            enabled: AtomicU64::new(UNKNOWN),
            known: AtomicU32::new(0),
            only: AtomicPtr::new(std::ptr::null_mut()),
            ids: [const { AtomicU16::new(NO_ID) }; MAX_SLOTS],
            desc: AtomicPtr::new(std::ptr::null_mut()),
            next: AtomicPtr::new(std::ptr::null_mut()),
            other: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    /// Not 0 when the event is to be recorded, or was never reached.
    #[inline(always)]
    pub fn enabled(&self) -> u64 {
        self.enabled.load(Acquire)
    }

    /// The slot and the event's id there, where one slot alone takes the event.
    #[inline(always)]
    pub(crate) fn only(&self) -> Option<(&'static RecorderSlot, u16)> {
        let only = self.only.load(Acquire);
        let slot = only.map_addr(|address| address & ADDRESS);
        if slot.is_null() {
            return None;
        }
        // SAFETY: slots are published whole and never freed, and `refresh` stored this one's address below the id.
        Some((unsafe { &*slot }, (only.addr() >> ADDRESS.count_ones()) as u16))
    }

    /// The slot's handle and the event's id there, if it takes the event.
    fn slot(&self, index: usize) -> Option<(&'static RecorderSlot, u16)> {
        let slot = slot::at(index)?;
        let id = self.ids[index].load(Acquire);
        // The place may have been emptied and taken by another slot meanwhile, whose id this then is.
        let is_same = std::ptr::eq(slot, SLOTS[index].load(Relaxed));
        (id != NO_ID && is_same).then_some((slot, id))
    }

    /// The event's description, once the callsite is known.
    pub(crate) fn desc(&self) -> Option<&'static EventDesc> {
        let is_known = self.known.load(Acquire) != 0;
        // SAFETY: `desc` was stored from a `&'static EventDesc` before `known`.
        is_known.then(|| unsafe { &*self.desc.load(Relaxed) })
    }

    /// The callsite of these values: this one, or, where values of other types came here first, one that is chained to it.
    /// It is known from now on. `None` if the lock, or memory, was not had: the event is lost, and the next one tries again.
    #[cold]
    fn of_types(&'static self, desc: &'static EventDesc, signature: u32) -> Option<&'static Self> {
        let mut site = self;
        loop {
            if site.known.load(Acquire) == 0 {
                site.register(desc);
            }
            match site.known.load(Acquire) {
                0 => return None,
                known if known == signature => return Some(site),
                _ => site = site.other()?,
            }
        }
    }

    /// The next of the chain, made where there is none; `None` where there is no memory for it.
    fn other(&self) -> Option<&'static Self> {
        let found = self.other.load(Acquire);
        if !found.is_null() {
            // SAFETY: what is stored there lives for ever.
            return Some(unsafe { &*found });
        }
        let new = kept_memory::keep(Self::new())?;
        match self.other.compare_exchange(found, std::ptr::from_ref(new).cast_mut(), AcqRel, Acquire) {
            Ok(_) => Some(new),
            // SAFETY: as above; another thread was faster.
            Err(faster) => Some(unsafe { &*faster }),
        }
    }

    /// Makes the callsite known, then calls `record` for each slot that takes the event. A slot whose registry was not to be
    /// had counts the event as lost.
    #[cold]
    #[inline(never)]
    pub(crate) fn each_slot(
        &'static self,
        desc: &'static EventDesc,
        record: &mut dyn FnMut(&'static RecorderSlot, u16),
    ) {
        if listener::is_missing() {
            listener::poll();
        }
        let mask = self.judged(desc);
        let mut rest = mask & !(UNKNOWN | POLLS);
        while rest != 0 {
            let index = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            match self.slot(index) {
                Some((slot, NO_ROOM)) => slot.count(LOST_NO_ENTRY),
                Some((slot, id)) => record(slot, id),
                None => (),
            }
        }
        if mask & UNKNOWN != 0 {
            slot::count_unregistered(Some(desc), mask);
        }
    }

    /// Returns a mask of the slots that take the event, and finds it out where it is not known. [`UNKNOWN`] stays in the mask where a lock was not had:
    /// the slots that are not in it may want the event, and the next event tries again.
    pub(crate) fn judged(&'static self, desc: &'static EventDesc) -> u64 {
        let mask = self.enabled.load(Acquire);
        if mask & UNKNOWN == 0 {
            return mask;
        }
        self.register(desc);
        self.enabled.load(Acquire)
    }

    /// Puts the callsite on the list and judges it, where that is still to be done. Does nothing if the lock is not had.
    fn register(&'static self, desc: &'static EventDesc) {
        let _errno = ErrnoKept::now();
        let Some(_guard) = Guard::take() else { return };
        if self.known.load(Acquire) == 0 {
            self.desc.store(std::ptr::from_ref(desc).cast_mut(), Relaxed);
            // The list comes before the first id: whoever empties a slot later takes the ids from all that are on the list.
            self.next.store(LIST.load(Relaxed), Relaxed);
            LIST.store(std::ptr::from_ref(self).cast_mut(), Release);
            self.known.store(signature::of(desc.fields), Release);
        }
        if self.enabled.load(Acquire) & UNKNOWN != 0 {
            self.refresh(desc);
        }
    }

    /// Judges each slot anew; the caller holds [`LOCK`]. Where the lock of a session's registry is not had, the mask keeps
    /// [`UNKNOWN`] beside the slots whose ids are there, and the next event looks again.
    fn refresh(&self, desc: &EventDesc) {
        let mut enabled = 0u64;
        let mut only = std::ptr::null_mut();
        for index in 0..MAX_SLOTS {
            let Some(slot) = slot::at(index) else {
                self.ids[index].store(NO_ID, Relaxed);
                continue;
            };
            if !slot::enabled(slot, desc) {
                continue;
            }
            match self.give_id(index, slot, desc) {
                Ok(id) => {
                    enabled |= 1 << index;
                    only = if id == NO_ROOM { std::ptr::null_mut() } else { with_id(slot, id) };
                }
                Err(Busy) => enabled |= UNKNOWN,
            }
        }
        if listener::is_missing() {
            enabled |= POLLS;
        }
        // A mask with another bit than that of a slot has two.
        let only = if enabled.is_power_of_two() { only } else { std::ptr::null_mut() };
        self.only.store(only, Release);
        self.enabled.store(enabled, Release);
    }

    /// The id of the event in a slot, or [`NO_ROOM`].
    fn give_id(&self, index: usize, slot: &RecorderSlot, desc: &EventDesc) -> Result<u16, Busy> {
        let known = self.ids[index].load(Relaxed);
        if known != NO_ID {
            return Ok(known);
        }
        let registered = slot.session.regions.registry.register(slot.channel_id, slot.entry, desc)?;
        // Where the registry is full, there is none; equal descriptions have one id in all processes of a session.
        let id = registered.unwrap_or(NO_ROOM);
        self.ids[index].store(id, Release);
        Ok(id)
    }
}

/// [`Callsite::only`] of the slot; null where its address leaves no room for the id.
fn with_id(slot: &'static RecorderSlot, id: u16) -> *mut RecorderSlot {
    let slot = std::ptr::from_ref(slot).cast_mut();
    match slot.addr() & !ADDRESS {
        0 => slot.map_addr(|address| address | usize::from(id) << ADDRESS.count_ones()),
        _ => std::ptr::null_mut(),
    }
}

impl Default for Callsite {
    fn default() -> Self {
        Self::new()
    }
}

/// Judges every callsite anew: after a change of rules, channels or sessions.
pub(crate) fn refresh_all() {
    change(|| ());
}

/// Has the events of all callsites poll for changes, those that are not wanted too. Async-signal-safe.
pub(crate) fn watch_all() {
    for site in listed() {
        site.enabled.fetch_or(POLLS, Release);
        site.only.store(std::ptr::null_mut(), Release);
    }
}

/// The callsites that were reached.
fn listed() -> impl Iterator<Item = &'static Callsite> {
    // SAFETY: only `&'static Callsite`s are put on the list.
    let at = |site: *mut Callsite| unsafe { site.as_ref() };
    std::iter::successors(at(LIST.load(Acquire)), move |site: &&'static Callsite| at(site.next.load(Relaxed)))
}

/// Changes [`SLOTS`], then judges every callsite anew, and nobody else changes them in between: a slot that is emptied here
/// has no ids any more when it is filled again. False, and nothing is changed, if the lock was not had.
pub(crate) fn change(change: impl FnOnce()) -> bool {
    (listener::calls().before)();
    let Some(_guard) = Guard::take() else { return false };
    change();
    for site in listed() {
        // SAFETY: `desc` was stored from a `&'static EventDesc` before the callsite was put on the list.
        let desc = unsafe { &*site.desc.load(Relaxed) };
        site.refresh(desc);
    }
    (listener::calls().after)();
    true
}

/// Holds [`LOCK`], with signals blocked: a handler that reaches a new callsite cannot wait for the thread it interrupted.
pub(crate) struct Guard {
    /// None on the listener's thread, which no signal interrupts. A filter of the application may forbid it the system call.
    _signals: Option<SignalsBlocked>,
}

impl Guard {
    /// None when this thread holds it already (a crash handler inside a refresh), or nobody lets go for a second.
    pub(crate) fn take() -> Option<Self> {
        let me = identity::identity().word();
        let signals = (!listener::is_thread(me)).then(SignalsBlocked::now);
        for round in 0..20_000 {
            let owner = LOCK.load(Relaxed);
            // It is free, or its owner is a thread of the process that this one was forked from: it is not here.
            let is_free = owner >> 32 != me >> 32;
            if is_free && LOCK.compare_exchange(owner, me, AcqRel, Relaxed).is_ok() {
                return Some(Self { _signals: signals });
            }
            if owner == me {
                break;
            }
            pause(round);
        }
        None
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // The signals are let in after this: fields are dropped behind it.
        LOCK.store(0, Release);
    }
}

/// Records the values of a callsite; called by the macros when `enabled` is not 0.
#[inline(always)]
pub fn record<S: Site, V: Given<S>>(_: &S, site: &'static Callsite, values: V) {
    if site.known.load(Relaxed) == const { V::SIGNATURE }
        && let Some((slot, id)) = site.only()
    {
        record_to(slot, id, values.short());
    } else {
        record_cold::<S, V, _>(site, values.short());
    }
}

/// Makes a callsite known before it is reached: one that a signal handler reaches.
pub(crate) fn prime<S: Site, V: Given<S>>(site: &'static Callsite) {
    if site.known.load(Acquire) == 0 {
        site.register(V::DESC);
    }
}

/// Says whether an event of the site's name and level is recorded now; called by [`event_enabled!`](crate::event_enabled).
pub fn is_enabled<S: Site>(_: &S, site: &'static Callsite) -> bool {
    prime::<S, ()>(site);
    site.enabled() != 0
}

/// Several slots, or the first time.
#[cold]
#[inline(never)]
fn record_cold<S: Site, V: Given<S>, W: Values + Copy>(site: &'static Callsite, values: W) {
    let desc = V::DESC;
    match site.of_types(desc, const { V::SIGNATURE }) {
        Some(site) => site.each_slot(desc, &mut |slot, id| record_to(slot, id, values)),
        None => slot::count_unregistered(Some(desc), 0),
    }
}

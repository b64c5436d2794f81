//! Callsites: the static data of each `event!` and `mark!`, and the path from there into the rings.
//!
//! A disabled event is one load and one branch. A callsite registers itself when it is first
//! reached, whatever the state of the sessions, because only then the types of its values are
//! known. From then on it is in a list. Code that changes rules, sessions or channels calls
//! [`refresh_all`].

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicU16, AtomicU32, AtomicU64};

use lastwords_abi::stream::LOST_NO_ENTRY;
use lastwords_ring::errno::ErrnoKept;
use lastwords_ring::os::pause;
use lastwords_ring::signals::SignalsBlocked;

use crate::process::{identity, kept_memory};
use crate::record::dispatch::record_to;
use crate::record::encode::writer::ON_STACK;
use crate::record::encode::{Given, Pieces, Site, Values};
use crate::record::filter::{Ask, Bound, BoundCondition, Found, Question, SiteFilters};
use crate::record::hiding;
use crate::record::signature;
use crate::record::slot::{self, Flaws, MAX_SLOTS, RecorderSlot, SLOTS};
use crate::record::takes;
use crate::session::desc::{EventDesc, FieldDesc};
use crate::session::registry::{Busy, MOST_IDS};
use crate::session::rules::Verdict;
use crate::session::{calls, listener, listener_thread};

/// Value of [`Callsite::enabled`] while it is not known which channels take the event. The bit
/// belongs to no slot.
const UNKNOWN: u64 = 1 << MAX_SLOTS;
const _: () = assert!(MAX_SLOTS + 4 < u64::BITS as usize, "a slot for each bit below UNKNOWN");
/// Set in [`Callsite::enabled`] while only the events themselves look for changes of rules: see
/// [`listener::poll`].
const POLLS: u64 = UNKNOWN << 1;
/// Set in [`Callsite::enabled`] while conditions of a session look at the event although no channel
/// of the session takes it.
const WATCHED: u64 = POLLS << 1;
/// Set in [`Callsite::enabled`] while the rules send the event to a channel whose rings this
/// process has not mapped.
const MISSED: u64 = WATCHED << 1;
/// Set in [`Callsite::enabled`] if rules hide fields of the event: see [`hiding`].
const HIDES: u64 = MISSED << 1;
/// Entry of an id that was not assigned yet.
const NO_ID: u16 = u16::MAX;
/// Entry of an id that cannot be assigned, because the session's registry is full.
const NO_ROOM: u16 = u16::MAX - 1;
const _: () = assert!(MOST_IDS <= NO_ROOM as u32);
/// The bits of an address; the bits above can contain an id. Memory of a program is below 2^47
/// bytes on x86_64 and below 2^48 on aarch64, unless the program requests memory above. This does
/// not apply to programs of 32 bits.
const ADDRESS: usize = usize::MAX >> 16;

/// The static data of a callsite.
#[derive(Debug)]
#[repr(C)]
pub struct Callsite {
    /// A bit for each slot that takes the event, and [`UNKNOWN`] (the only one at first),
    /// [`POLLS`], [`WATCHED`] and [`MISSED`]. It is written under [`LOCK`].
    enabled: AtomicU64,
    /// The [`signature`] of its values once `desc` and `next` are valid, 0 before. It is written
    /// under [`LOCK`].
    pub(super) known: AtomicU32,
    /// 0 if the values are as the program gave them. Otherwise the number of the rules that have
    /// hidden values in them already, and no rule hides more.
    pub(super) hides: u32,
    /// If exactly one slot takes the event, and without a filter: the slot, with the event's id
    /// there in the bits above the address; null otherwise. One load from here leads to the slot:
    /// `rseq_fast.rs` in the crate `ring` explains why that matters. It is written under [`LOCK`],
    /// before `enabled`.
    only: AtomicPtr<RecorderSlot>,
    /// Id of the event in each slot. It is written under [`LOCK`], before the bit of `enabled`.
    ids: [AtomicU16; MAX_SLOTS],
    desc: AtomicPtr<EventDesc>,
    next: AtomicPtr<Callsite>,
    /// The callsite of the same place with values of other types: a generic function has one
    /// static for all its types.
    pub(super) other: AtomicPtr<Callsite>,
    /// The filters of its slots; null before the first. It is written under [`LOCK`].
    filters: AtomicPtr<SiteFilters>,
}

/// The callsites that were reached, newest first.
static LIST: AtomicPtr<Callsite> = AtomicPtr::new(std::ptr::null_mut());
/// Held while callsites change: `pid << 32 | tid`, or 0.
static LOCK: AtomicU64 = AtomicU64::new(0);

impl Callsite {
    /// Makes a callsite that was not reached yet.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            enabled: AtomicU64::new(UNKNOWN),
            known: AtomicU32::new(0),
            hides: 0,
            only: AtomicPtr::new(std::ptr::null_mut()),
            ids: [const { AtomicU16::new(NO_ID) }; MAX_SLOTS],
            desc: AtomicPtr::new(std::ptr::null_mut()),
            next: AtomicPtr::new(std::ptr::null_mut()),
            other: AtomicPtr::new(std::ptr::null_mut()),
            filters: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    /// Makes a callsite in whose values those are hidden already that rules hide: the first rules,
    /// `hides` of them, which are not 0.
    pub(crate) const fn hidden(hides: u32) -> Self {
        Self { hides, ..Self::new() }
    }

    /// Returns true if rules hide fields of the event, so that [`hiding::record`] records it.
    pub(super) fn hides_fields(&'static self, desc: &'static EventDesc) -> bool {
        self.judged(desc) & HIDES != 0
    }

    /// Returns a value other than 0 if the event must be recorded, or was never reached.
    #[inline(always)]
    pub fn enabled(&self) -> u64 {
        self.enabled.load(Acquire)
    }

    /// Returns the slot and the event's id there, if exactly one slot takes the event.
    #[inline(always)]
    pub(crate) fn only(&self) -> Option<(&'static RecorderSlot, u16)> {
        let only = self.only.load(Acquire);
        let slot = only.map_addr(|address| address & ADDRESS);
        if slot.is_null() {
            return None;
        }
        // SAFETY: slots are complete when they are published and are never freed, and `refresh`
        // stored this one's address below the id.
        Some((unsafe { &*slot }, (only.addr() >> ADDRESS.count_ones()) as u16))
    }

    /// Returns the slot and the event's id there, if the slot takes the event.
    fn slot(&self, index: usize) -> Option<(&'static RecorderSlot, u16)> {
        let slot = slot::at(index)?;
        let id = self.ids[index].load(Acquire);
        // Another slot may have taken this place meanwhile. Then the id belongs to that slot.
        let is_same = std::ptr::eq(slot, SLOTS[index].load(Relaxed));
        (id != NO_ID && is_same).then_some((slot, id))
    }

    /// Returns the filter of a slot.
    fn filter(&self, index: usize) -> Option<&'static Bound> {
        // SAFETY: only pointers to values that live for ever are stored.
        unsafe { self.filters.load(Acquire).as_ref::<'static>() }?.at(index)
    }

    /// Returns the conditions of the session of a slot that takes the event, or of one that does
    /// not.
    fn conditions(&self, index: usize, is_taken: bool) -> Option<&'static BoundCondition> {
        // SAFETY: only pointers to values that live for ever are stored.
        unsafe { self.filters.load(Acquire).as_ref::<'static>() }?.conditions(index, is_taken)
    }

    /// Sets the conditions that triggers of the slot's session have on the event. Returns whether
    /// there are any; none if there is no memory. The caller holds [`LOCK`].
    fn set_conditions(
        &self,
        index: usize,
        slot: &'static RecorderSlot,
        desc: &EventDesc,
        is_taken: bool,
    ) -> Option<bool> {
        // SAFETY: only pointers to values that live for ever are stored.
        let filters = unsafe { self.filters.load(Relaxed).as_ref::<'static>() };
        let places = takes::conditions(slot, desc, is_taken);
        if places != 0 || filters.is_some() {
            let kept = filters.or_else(SiteFilters::keep)?;
            kept.set_conditions(index, slot, desc, places, is_taken)?;
            self.filters.store(std::ptr::from_ref(kept).cast_mut(), Release);
        }
        Some(places != 0)
    }

    /// Sets the filter of a slot, or removes it. Returns none if there is no memory. The caller
    /// holds [`LOCK`].
    fn set_filter(
        &self,
        index: usize,
        slot: &'static RecorderSlot,
        desc: &EventDesc,
        found: Option<Found>,
    ) -> Option<()> {
        // SAFETY: only pointers to values that live for ever are stored.
        let filters = unsafe { self.filters.load(Relaxed).as_ref::<'static>() };
        let Some(found) = found else {
            filters.into_iter().for_each(|filters| filters.clear(index));
            return Some(());
        };
        let kept = filters.or_else(SiteFilters::keep)?;
        kept.set(index, slot, desc, found)?;
        self.filters.store(std::ptr::from_ref(kept).cast_mut(), Release);
        Some(())
    }

    /// Returns the event's description, once the callsite is known.
    pub(crate) fn desc(&self) -> Option<&'static EventDesc> {
        let is_known = self.known.load(Acquire) != 0;
        // SAFETY: `desc` was stored from a `&'static EventDesc` before `known`.
        is_known.then(|| unsafe { &*self.desc.load(Relaxed) })
    }

    /// Returns the callsite for values of these types: this one, or, if values of other types came
    /// here first, one that is chained to it. The callsite is known from now on. Returns `None` if
    /// the lock could not be taken or there is no memory. Then the event is lost, and the next one
    /// tries again.
    #[cold]
    fn of_types(&'static self, desc: &'static EventDesc, signature: u32) -> Option<&'static Self> {
        let mut site = self;
        loop {
            if site.known.load(Acquire) == 0 {
                site.register(desc);
            }
            match site.known.load(Acquire) {
                0 => return None,
                known if known == signature && site.hides == 0 => return Some(site),
                _ => site = site.other()?,
            }
        }
    }

    /// Returns the callsite for values of this description that are followed by others, and its
    /// description, like [`Callsite::of_types`]. `signature` is that of both together.
    pub(super) fn followed_by(
        &'static self,
        after: &'static [FieldDesc],
        desc: &'static EventDesc,
        signature: u32,
    ) -> Option<(&'static Self, &'static EventDesc)> {
        // SAFETY: pointers stored there are to values that live for ever.
        let next = |site: &&'static Self| unsafe { site.other.load(Acquire).as_ref() };
        let known = std::iter::successors(Some(self), next)
            .find(|site| site.known.load(Acquire) == signature && site.hides == 0);
        if let Some(known) = known {
            return Some((known, known.desc()?));
        }
        // This callsite stays that of the values alone, which take the fast path here.
        self.of_types(desc, signature::from_fields(desc.fields))?;
        let (own, count) = (desc.fields, desc.fields.len() + after.len());
        let field = |at: usize| own.get(at).or_else(|| after.get(at - own.len())).copied();
        let fields = kept_memory::keep_all((0..count).map(field))?;
        let desc = kept_memory::keep(EventDesc { fields, ..*desc })?;
        Some((self.of_types(desc, signature)?, desc))
    }

    /// Returns the next callsite of the chain, and makes it if there is none; `None` if there is no
    /// memory for it.
    fn other(&self) -> Option<&'static Self> {
        let found = self.other.load(Acquire);
        if !found.is_null() {
            // SAFETY: pointers stored there are to values that live for ever.
            return Some(unsafe { &*found });
        }
        let new = kept_memory::keep(Self::new())?;
        match self.other.compare_exchange(
            found,
            std::ptr::from_ref(new).cast_mut(),
            AcqRel,
            Acquire,
        ) {
            Ok(_) => Some(new),
            // SAFETY: another thread was faster; its pointer is also to a value that lives for
            // ever.
            Err(faster) => Some(unsafe { &*faster }),
        }
    }

    /// Registers the callsite, then calls `record` for each slot that takes the event. A slot whose
    /// registry could not be locked counts the event as lost. If a slot has a filter or conditions,
    /// `ask` returns what their expressions say of the event.
    #[cold]
    #[inline(never)]
    pub(crate) fn each_slot(
        &'static self,
        desc: &'static EventDesc,
        ask: Ask<'_>,
        record: &mut dyn FnMut(&'static RecorderSlot, u16),
    ) {
        if listener::is_missing() {
            listener::poll();
        }
        let epoch = slot::epoch();
        let mask = self.judged(desc);
        if mask & HIDES != 0 {
            // The rule was added after the caller had looked for it.
            return takes::count_unregistered(Some(desc), 0);
        }
        let mut rest = mask & !(UNKNOWN | POLLS | WATCHED | MISSED);
        while rest != 0 {
            let index = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            let Some((slot, id)) = self.slot(index) else { continue };
            // The filter is loaded behind the id: whoever puts another slot into this place stores
            // its filter before.
            match self.filter(index) {
                Some(filter) if !ask(Question::Filter(filter), slot).passes() => (),
                _ if id == NO_ROOM => slot.count(LOST_NO_ENTRY),
                _ => record(slot, id),
            }
            if let Some(conditions) = self.conditions(index, true) {
                conditions.check(slot, ask);
            }
        }
        if mask & WATCHED != 0 {
            self.watch(mask, ask);
        }
        if mask & UNKNOWN != 0 {
            takes::count_unregistered(Some(desc), mask);
        } else if mask & MISSED != 0 {
            takes::count_missed(Some(desc), mask, epoch);
        }
    }

    /// Shows the event to the conditions of the slots that do not take it. `mask` has a bit for
    /// each slot that does.
    fn watch(&self, mask: u64, ask: Ask<'_>) {
        for index in (0..MAX_SLOTS).filter(|index| mask >> index & 1 == 0) {
            if let Some((slot, conditions)) = slot::at(index).zip(self.conditions(index, false)) {
                conditions.check(slot, ask);
            }
        }
    }

    /// Returns a mask of the slots that take the event, and evaluates the slots first if necessary.
    /// [`UNKNOWN`] stays in the mask if a lock could not be taken: other slots may also want the
    /// event, and the next event tries again.
    pub(crate) fn judged(&'static self, desc: &'static EventDesc) -> u64 {
        let mask = self.enabled.load(Acquire);
        if mask & UNKNOWN == 0 {
            return mask;
        }
        self.register(desc);
        self.enabled.load(Acquire)
    }

    /// Puts the callsite on the list and evaluates it, if that was not done yet. Does nothing if
    /// the lock cannot be taken.
    pub(super) fn register(&'static self, desc: &'static EventDesc) {
        let _errno = ErrnoKept::now();
        let Some(_guard) = Guard::take() else { return };
        if self.known.load(Acquire) == 0 {
            self.desc.store(std::ptr::from_ref(desc).cast_mut(), Relaxed);
            // The callsite is put on the list before it gets its first id: code that empties a slot
            // later removes the ids of all callsites on the list.
            self.next.store(LIST.load(Relaxed), Relaxed);
            LIST.store(std::ptr::from_ref(self).cast_mut(), Release);
            self.known.store(signature::from_fields(desc.fields), Release);
        }
        if self.enabled.load(Acquire) & UNKNOWN != 0 {
            self.refresh(desc);
        }
    }

    /// Evaluates each slot again; the caller holds [`LOCK`]. If the lock of a session's registry
    /// cannot be taken, the mask keeps [`UNKNOWN`] beside the slots whose ids are known, and the
    /// next event tries again.
    fn refresh(&self, desc: &EventDesc) {
        if self.hides == 0 && hiding::applies(desc) {
            // What becomes of the event is decided where its hidden form is recorded.
            self.only.store(std::ptr::null_mut(), Release);
            let is_wanted = listener::is_missing() || takes::any_takes(desc);
            return self.enabled.store(if is_wanted { HIDES } else { 0 }, Release);
        }
        let mut enabled = 0u64;
        let mut only = std::ptr::null_mut();
        for index in 0..MAX_SLOTS {
            let Some(slot) = slot::at(index) else {
                self.ids[index].store(NO_ID, Relaxed);
                continue;
            };
            let filter = match takes::judge(slot, desc) {
                Verdict::Refused => {
                    enabled |= match self.set_conditions(index, slot, desc, false) {
                        Some(true) => WATCHED,
                        Some(false) => 0,
                        None => UNKNOWN,
                    };
                    continue;
                }
                Verdict::Taken => None,
                Verdict::Filtered(found) => Some(found),
            };
            // A missing memory for the filter is a busy registry: the next event tries again.
            let given = self.set_filter(index, slot, desc, filter);
            let given =
                given.and_then(|()| self.set_conditions(index, slot, desc, true)).ok_or(Busy);
            match given.and_then(|has_any| Ok((self.give_id(index, slot, desc)?, has_any))) {
                Ok((id, has_conditions)) => {
                    enabled |= 1 << index;
                    let is_plain = id != NO_ROOM && filter.is_none() && !has_conditions;
                    only = if is_plain { with_id(slot, id) } else { std::ptr::null_mut() };
                }
                Err(Busy) => enabled |= UNKNOWN,
            }
        }
        if takes::is_missed(desc) {
            enabled |= MISSED;
        }
        if listener::is_missing() {
            enabled |= POLLS;
        }
        // A mask that also has a bit which belongs to no slot has two bits.
        let only = if enabled.is_power_of_two() { only } else { std::ptr::null_mut() };
        self.only.store(only, Release);
        self.enabled.store(enabled, Release);
    }

    /// Returns the id of the event in a slot, or [`NO_ROOM`].
    fn give_id(&self, index: usize, slot: &RecorderSlot, desc: &EventDesc) -> Result<u16, Busy> {
        let known = self.ids[index].load(Relaxed);
        if known != NO_ID {
            return Ok(known);
        }
        let registered =
            slot.session.regions.registry.register(slot.channel_id, slot.entry, desc)?;
        // If the registry is full, the event has no id. Equal descriptions have one id in all
        // processes of a session.
        let id = registered.unwrap_or(NO_ROOM);
        self.ids[index].store(id, Release);
        Ok(id)
    }
}

/// Returns the value of [`Callsite::only`] for the slot; null if its address leaves no room for the
/// id.
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

/// Evaluates every callsite again, after a change of rules, channels or sessions.
pub(crate) fn refresh_all() {
    change(|| ());
}

/// Makes the events of all callsites poll for changes, also those that are not wanted.
/// Async-signal-safe.
pub(crate) fn watch_all() {
    for site in listed() {
        site.enabled.fetch_or(POLLS, Release);
        site.only.store(std::ptr::null_mut(), Release);
    }
}

/// Iterates over the callsites that were reached.
fn listed() -> impl Iterator<Item = &'static Callsite> {
    // SAFETY: only `&'static Callsite`s are put on the list.
    let at = |site: *mut Callsite| unsafe { site.as_ref() };
    std::iter::successors(at(LIST.load(Acquire)), move |site: &&'static Callsite| {
        at(site.next.load(Relaxed))
    })
}

/// Changes [`SLOTS`], then evaluates every callsite again. Nobody else changes them in between, so
/// a slot that is emptied here has no ids when it is filled again. Returns false, and changes
/// nothing, if the lock could not be taken.
pub(crate) fn change(change: impl FnOnce()) -> bool {
    (calls::calls().before)();
    let Some(_guard) = Guard::take() else { return false };
    change();
    for site in listed() {
        // SAFETY: `desc` was stored from a `&'static EventDesc` before the callsite was put on the
        // list.
        let desc = unsafe { &*site.desc.load(Relaxed) };
        site.refresh(desc);
    }
    slot::all_evaluated();
    (calls::calls().after)();
    true
}

/// Holds [`LOCK`], with signals blocked, because a handler that reaches a new callsite cannot wait
/// for the thread that it interrupted.
pub(crate) struct Guard {
    /// None on the listener's thread, which no signal interrupts. A filter of the application may
    /// forbid that thread the system call.
    _signals: Option<SignalsBlocked>,
}

impl Guard {
    /// Takes the lock. Returns none if this thread holds it already (a crash handler inside a
    /// refresh), or if the owner keeps it for a second.
    pub(crate) fn take() -> Option<Self> {
        let me = identity::identity().word();
        let signals = (!listener_thread::is_thread(me)).then(SignalsBlocked::now);
        for round in 0..20_000 {
            let owner = LOCK.load(Relaxed);
            // The lock is free, or its owner is a thread of the process that was forked. That
            // thread does not exist here.
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
        // Signals are unblocked after this store, because fields are dropped after `drop` returns.
        LOCK.store(0, Release);
    }
}

/// Records the values of a callsite, of which `enabled` is not 0.
#[inline(always)]
pub(crate) fn record<S: Site, V: Given<S>>(_: &S, site: &'static Callsite, values: V) {
    if site.known.load(Relaxed) == const { V::SIGNATURE }
        && let Some((slot, id)) = site.only()
    {
        let values = values.short();
        let cut = values.cut();
        record_to(slot, id, values);
        if cut > 0 {
            slot.session.regions.registry.count_cut(cut);
        }
    } else {
        record_cold::<S, V, _>(site, values.short());
    }
}

/// Registers a callsite before it is reached, if a signal handler will reach it.
pub(crate) fn prime<S: Site, V: Given<S>>(site: &'static Callsite) {
    if site.known.load(Acquire) == 0 {
        site.register(V::DESC);
    }
}

/// Returns true if an event of the site's name and level is recorded now.
/// [`event_enabled!`](crate::event_enabled) calls it.
pub fn is_enabled<S: Site>(_: &S, site: &'static Callsite) -> bool {
    prime::<S, ()>(site);
    site.enabled() != 0
}

/// Records in several slots, or for the first time.
#[cold]
#[inline(never)]
pub(super) fn record_cold<S: Site, V: Given<S>, W: Values + Copy>(
    site: &'static Callsite,
    values: W,
) {
    let desc = V::DESC;
    match site.of_types(desc, const { V::SIGNATURE }) {
        Some(site) if site.hides_fields(desc) => {
            let mut buffer = [0; ON_STACK];
            let mut pieces = Pieces::new(&mut buffer);
            values.pieces(&mut pieces);
            let flaws = Flaws { cut: values.cut(), changed: pieces.changed() };
            match pieces.finish() {
                Some(parts) => hiding::record(site, desc, parts, flaws),
                None => takes::count_unregistered(Some(desc), 0),
            }
        }
        Some(site) => {
            let ask =
                &mut |question: Question<'_>, slot: &RecorderSlot| question.answer(slot, &values);
            // The texts that are changed are counted where they are written.
            let mut count = Flaws { cut: values.cut(), changed: 0 }.count();
            site.each_slot(desc, ask, &mut |slot, id| {
                record_to(slot, id, values);
                count(slot);
            });
        }
        None => takes::count_unregistered(Some(desc), 0),
    }
}

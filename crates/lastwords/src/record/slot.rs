//! Recorder slots: the channels of this process's sessions, where callsites record.
//!
//! A channel that is created while the session records has no slot in this process before
//! [`attach`] has mapped its rings. A callsite whose event goes there by the rules has a bit for
//! that ([`is_missed`]), and counts its events as lost ([`count_missed`]). [`EPOCH`] distinguishes
//! a channel that got its slot after a callsite's mask was loaded from one that does not take the
//! event.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicU64 as Counter};

use lastwords_abi::session::{CHANNEL_ADDED, Channel as ChannelEntry};
use lastwords_abi::stream::LOST_LOCK;
use lastwords_abi::sync::AtomicU64;
use lastwords_ring::{Channel, ClockKind, Persist};

use crate::process::keep_loaded;
use crate::record::callsite;
use crate::record::context::{self, UserContext};
use crate::record::filter::{self, Found};
use crate::session::condition;
use crate::session::registry::EventDesc;
use crate::session::rules::{self, Named, Verdict};
use crate::session::session_region::text;
use crate::session::shared::{self, SessionShared};
use crate::session::{Error, regions};

/// Largest number of recorder slots at a time.
pub(crate) const MAX_SLOTS: usize = 32;

/// The slots. They are written when sessions begin and end, and every recorder reads them. A slot
/// stays valid until no thread uses it any more, and its address until the process ends.
pub(crate) static SLOTS: [AtomicPtr<RecorderSlot>; MAX_SLOTS] =
    [const { AtomicPtr::new(core::ptr::null_mut()) }; MAX_SLOTS];

/// Number of times that all callsites were evaluated again. Written under the callsites' lock after
/// the last callsite (Release): who loads a number with Acquire, and a callsite's mask behind it,
/// finds the mask of that evaluation or a later one.
static EPOCH: Counter = Counter::new(0);

/// A channel of a session.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct RecorderSlot {
    /// The handle that records in the channel's rings.
    pub(crate) channel: Channel,
    /// Id of the channel in its session.
    pub(crate) channel_id: u16,
    /// Bits of [`lastwords_abi::session::context`] that precede each payload.
    pub(crate) contexts: u32,
    /// Bytes of the contexts.
    pub(crate) contexts_len: usize,
    /// The application's own contexts.
    pub(crate) user_contexts: Vec<UserContext>,
    pub(crate) entry: &'static ChannelEntry,
    /// The session.
    pub(crate) session: &'static SessionShared,
    /// [`EPOCH`] from which the masks of all callsites know the slot. Written before the slot is
    /// published.
    known_from: Counter,
}

impl RecorderSlot {
    /// Makes a recorder for the channel of this id.
    fn new(
        session: &'static SessionShared,
        id: u32,
        entry: &'static ChannelEntry,
        user: &[UserContext],
    ) -> Result<Self, Error> {
        let view = session.view();
        let own = session.regions.streams.of(entry).unwrap_or_default();
        let streams: Vec<_> = own.iter().map(|region| region.stream.clone()).collect();
        if streams.is_empty() {
            return Err(Error::region(view.name(), 0, format!("channel {id} has no streams")));
        }
        let code = view.clock().kind.load(Relaxed);
        let kind = ClockKind::from_code(code).ok_or_else(|| {
            let why = format!("the session's clock has code {code}, which cannot be read here");
            Error::unsupported("clock", why, "start a session of another name")
        })?;
        let mut channel = Channel::new(view.parts(), streams, kind, entry.flags);
        channel.refresh = Some(regions::clock_refresh(view.info.backend));
        channel.persist = Persist::from_code(view.control().persist.load(Relaxed));
        let contexts = entry.contexts;
        let contexts_len = context::len(contexts, user);
        let channel_id = id as u16;
        let user_contexts = user.to_vec();
        let known_from = Counter::new(0);
        Ok(Self {
            channel,
            channel_id,
            contexts,
            contexts_len,
            user_contexts,
            entry,
            session,
            known_from,
        })
    }

    /// Counts a lost event by its cause, a `LOST_` constant of [`lastwords_abi::stream`].
    #[cold]
    pub(crate) fn count(&self, cause: usize) {
        if let Some(stream) = self.channel.streams().first() {
            stream.control().lost[cause].fetch_add(1, Relaxed);
        }
    }

    /// Returns true if channel and session record now.
    fn is_recording(&self) -> bool {
        let control = self.session.view().control();
        control.recording.load(Acquire) == 1 && self.entry.recording.load(Acquire) == 1
    }
}

/// Returns a function that counts `values` that were cut or left out, once in each session. It is
/// called for each slot that takes the event; those of a session follow each other.
pub(crate) fn once_a_session(values: u32) -> impl FnMut(&'static RecorderSlot) {
    let mut last: Option<&'static SessionShared> = None;
    move |slot| {
        let is_counted = last.is_some_and(|last| std::ptr::eq(last, slot.session));
        if values > 0 && !is_counted {
            slot.session.regions.registry.count_cut(values);
        }
        last = Some(slot.session);
    }
}

/// Returns the slot at this place, if there is one.
pub(crate) fn at(place: usize) -> Option<&'static RecorderSlot> {
    // SAFETY: slots are complete when they are published, and are never freed.
    unsafe { SLOTS[place].load(Acquire).as_ref() }
}

/// Makes a slot for every channel of the session whose rings are mapped. `contexts` returns the
/// application's own contexts of a channel.
pub(crate) fn install(
    session: &'static SessionShared,
    contexts: impl Fn(&str) -> Vec<UserContext>,
) -> Result<(), Error> {
    // From now on there are fork and signal handlers, a listening thread, and callsites on a list.
    keep_loaded::library_of(core::ptr::from_ref(&SLOTS).cast());
    let is_mapped = |(_, entry): &(u32, &'static ChannelEntry)| {
        entry.flags & CHANNEL_ADDED == 0 || session.regions.streams.of(entry).is_some()
    };
    let new = |(id, entry): (u32, &'static ChannelEntry)| {
        let slot = RecorderSlot::new(session, id, entry, &contexts(&text(&entry.name)))?;
        Ok(Box::into_raw(Box::new(slot)))
    };
    // All memory is allocated before: a handler that interrupted `malloc` may be waiting for the
    // callsites' lock.
    let slots =
        session.view().channels().filter(is_mapped).map(new).collect::<Result<Vec<_>, Error>>()?;
    let mut is_whole = false;
    callsite::change(|| {
        is_whole = slots.iter().all(|slot| publish(*slot));
        session.records.store(true, Release);
    });
    if is_whole { Ok(()) } else { Err(full()) }
}

fn full() -> Error {
    let remedy = "close a session of this process, or give it fewer channels";
    Error::Full { what: "slot (channel of a session)", limit: MAX_SLOTS, remedy }
}

/// Refuses another channel if no slot is free.
pub(crate) fn check_free() -> Result<(), Error> {
    if (0..MAX_SLOTS).any(|place| at(place).is_none()) { Ok(()) } else { Err(full()) }
}

/// Puts a slot into the first free place behind those of its session, if there is one, so that a
/// session's channels record an event in their order; a reader takes later events for copies. A
/// published slot is never freed. Nobody else changes the places meanwhile.
fn publish(slot: *mut RecorderSlot) -> bool {
    // SAFETY: the slot is complete.
    let new = unsafe { &*slot };
    let is_own =
        |place: &usize| at(*place).is_some_and(|slot| std::ptr::eq(slot.session, new.session));
    let behind = (0..MAX_SLOTS).rev().find(is_own).map_or(0, |last| last + 1);
    let is_free = |place: &usize| SLOTS[*place].load(Relaxed).is_null();
    let Some(place) = (behind..MAX_SLOTS).chain(0..behind).find(is_free) else { return false };
    // The holder of the callsites' lock, which is the caller, increases the number once it has
    // evaluated all callsites.
    new.known_from.store(EPOCH.load(Relaxed) + 1, Relaxed);
    SLOTS[place].store(slot, Release);
    true
}

/// Maps the channels that were created since, and makes callsites record there. Does nothing in a
/// session in which callsites do not record.
///
/// # Errors
/// The rings of a channel cannot be mapped, or there is no free slot. Then the events that the
/// rules send there are counted.
pub(crate) fn attach(session: &'static SessionShared) -> Result<(), Error> {
    if !session.records.load(Acquire) || unattached(session).next().is_none() {
        return Ok(());
    }
    // A channel is mapped before the first one that cannot be.
    let attached = session.regions.attach(session.folder.as_ref());
    let is_mapped =
        |(_, entry): &(u32, &'static ChannelEntry)| session.regions.streams.of(entry).is_some();
    let new = |(id, entry)| Ok(Box::new(RecorderSlot::new(session, id, entry, &[])?));
    let mut slots =
        unattached(session).filter(is_mapped).map(new).collect::<Result<Vec<_>, Error>>()?;
    let mut unused = Vec::with_capacity(slots.len());
    let mut is_whole = true;
    let is_changed = callsite::change(|| {
        for slot in slots.drain(..) {
            // Another thread may have done the same, or ended the session.
            let is_new =
                session.records.load(Relaxed) && slot_of(session, slot.channel_id).is_none();
            let slot = Box::into_raw(slot);
            let is_published = is_new && publish(slot);
            is_whole &= is_published || !is_new;
            if !is_published {
                unused.push(slot);
            }
        }
    });
    // SAFETY: these came from boxes, and were not published. They are freed behind the lock,
    // because a handler that waits for it may have interrupted `malloc`.
    unused.into_iter().for_each(|slot| drop(unsafe { Box::from_raw(slot) }));
    attached?;
    match is_changed {
        true if is_whole => Ok(()),
        true => Err(full()),
        false => Err(Error::Busy { what: "the list of callsites", owner: std::process::id() }),
    }
}

/// Maps the new channels of all sessions. Those that cannot be mapped now are tried again at the
/// next call.
pub(crate) fn attach_all() {
    shared::all().for_each(|session| drop(attach(session)));
}

/// Notes that all callsites were evaluated again. The caller holds their lock.
pub(crate) fn all_evaluated() {
    EPOCH.fetch_add(1, Release);
}

/// Returns the number of evaluations of all callsites. A caller loads a mask behind it.
pub(crate) fn epoch() -> u64 {
    EPOCH.load(Acquire)
}

/// Returns the slot of a channel.
fn slot_of(session: &SessionShared, channel: u16) -> Option<(usize, &'static RecorderSlot)> {
    let mut slots = (0..MAX_SLOTS).filter_map(|place| Some((place, at(place)?)));
    slots.find(|(_, slot)| std::ptr::eq(slot.session, session) && slot.channel_id == channel)
}

/// Iterates over the channels of a session that have no slot. Async-signal-safe.
fn unattached(
    session: &'static SessionShared,
) -> impl Iterator<Item = (u32, &'static ChannelEntry)> {
    session.view().channels().filter(|(id, _)| slot_of(session, *id as u16).is_none())
}

/// Returns true if the rules send events of this description to a channel that has no slot.
pub(crate) fn is_missed(desc: &EventDesc) -> bool {
    let takes = |session: &'static SessionShared| {
        unattached(session).any(|of| sends(session, of, Some(desc)))
    };
    shared::all().filter(|session| session.records.load(Acquire)).any(takes)
}

/// Returns true if channel and session record, and the rules send the event to the channel, perhaps
/// by a filter. Without a description, they do.
fn sends(
    session: &SessionShared,
    (id, entry): (u32, &ChannelEntry),
    desc: Option<&EventDesc>,
) -> bool {
    let view = session.view();
    let takes =
        |desc| rules::judge(view.rules(), id, Named::from_desc(desc), |_| ()) != Verdict::Refused;
    view.control().recording.load(Acquire) == 1
        && entry.recording.load(Acquire) == 1
        && desc.is_none_or(takes)
}

/// Counts an event as lost in each channel that the rules send it to, but that had no slot when the
/// callsite's mask was loaded. `epoch` was loaded before that mask. A channel with a filter counts
/// it too, because the filter has no place to be bound.
#[cold]
pub(crate) fn count_missed(desc: Option<&EventDesc>, mask: u64, epoch: u64) {
    for session in shared::all().filter(|session| session.records.load(Acquire)) {
        let is_missed = |(id, _): &(u32, &ChannelEntry)| match slot_of(session, *id as u16) {
            Some((place, slot)) => mask & 1 << place == 0 && slot.known_from.load(Relaxed) > epoch,
            None => true,
        };
        let missed =
            session.view().channels().filter(is_missed).filter(|of| sends(session, *of, desc));
        missed.for_each(|(_, entry)| _ = entry.unattached.fetch_add(1, Relaxed));
    }
}

/// Takes the session's slots away from all callsites, and returns them; none if the lock of the
/// callsites could not be taken.
pub(crate) fn remove(session: &'static SessionShared) -> Option<Vec<&'static RecorderSlot>> {
    let mut removed = Vec::with_capacity(MAX_SLOTS);
    let is_changed = callsite::change(|| {
        session.records.store(false, Release);
        for place in &SLOTS {
            // SAFETY: slots that are listed were not freed.
            let slot = unsafe { place.load(Relaxed).as_ref::<'static>() };
            if let Some(slot) = slot.filter(|slot| std::ptr::eq(slot.session, session)) {
                place.store(core::ptr::null_mut(), Release);
                removed.push(slot);
            }
        }
    });
    removed.shrink_to_fit();
    is_changed.then_some(removed)
}

/// Frees what a slot that was removed has on the heap. The slot itself is kept: filters and
/// callsites compare its address, which must not become that of another one.
///
/// # Safety
/// Nobody uses the slot, now or later, and this is the only call for it.
pub(crate) unsafe fn free(slot: &'static RecorderSlot) {
    let slot = core::ptr::from_ref(slot).cast_mut();
    // SAFETY: slots come from boxes, and the caller guarantees that this is the last use.
    unsafe {
        core::ptr::drop_in_place(&raw mut (*slot).channel);
        core::ptr::drop_in_place(&raw mut (*slot).user_contexts);
    }
}

/// Returns whether the slot takes the event: it records, and its rules allow the event, perhaps by
/// a filter.
pub(crate) fn judge(slot: &RecorderSlot, desc: &EventDesc) -> Verdict<Found> {
    judge_by(slot, desc, filter::find)
}

/// Returns the places of the conditions that triggers have on the event, for one slot of each
/// session: the first that takes the event. If none does, the first slot has the conditions that
/// look at events which are not recorded.
pub(crate) fn conditions(slot: &RecorderSlot, desc: &EventDesc, is_taken: bool) -> u64 {
    let of_session = |other: &&RecorderSlot| std::ptr::eq(other.session, slot.session);
    let slots = || (0..MAX_SLOTS).filter_map(at).filter(of_session);
    let mut before = slots().take_while(|other| !std::ptr::eq(*other, slot));
    let is_first = match is_taken {
        true => !before.any(|other| enabled(other, desc)),
        false => before.next().is_none(),
    };
    let places = if is_first { condition::places(slot.session.view(), desc, is_taken) } else { 0 };
    if places != 0 && !is_taken && slots().any(|other| enabled(other, desc)) { 0 } else { places }
}

/// Returns true if the slot takes the event, or some events of the callsite.
fn enabled(slot: &RecorderSlot, desc: &EventDesc) -> bool {
    judge_by(slot, desc, |_| ()) != Verdict::Refused
}

fn judge_by<F>(
    slot: &RecorderSlot,
    desc: &EventDesc,
    filter: impl Fn(&[AtomicU64]) -> F,
) -> Verdict<F> {
    match slot.is_recording() {
        true => rules::judge(
            slot.session.view().rules(),
            u32::from(slot.channel_id),
            Named::from_desc(desc),
            filter,
        ),
        false => Verdict::Refused,
    }
}

/// Counts an event without an id, which it cannot get now, in each slot that takes it except those
/// of the mask `but`. A slot with a filter counts it too, because its filter is not known yet.
/// An event without a description counts in every slot that records.
#[cold]
pub(crate) fn count_unregistered(desc: Option<&EventDesc>, but: u64) {
    // The number is the newest: a channel that has got its slot since counts below.
    count_missed(desc, but, u64::MAX);
    for place in (0..MAX_SLOTS).filter(|place| but & 1 << place == 0) {
        let wants = |slot: &&RecorderSlot| {
            desc.map_or_else(|| slot.is_recording(), |desc| enabled(slot, desc))
        };
        if let Some(slot) = at(place).filter(wants) {
            slot.count(LOST_LOCK);
        }
    }
}

/// Returns true if a channel of the session takes the event.
#[cfg(feature = "tracing")]
pub(crate) fn is_taken_in(session: &SessionShared, desc: &EventDesc) -> bool {
    (0..MAX_SLOTS)
        .filter_map(at)
        .any(|slot| std::ptr::eq(slot.session, session) && enabled(slot, desc))
}

/// Returns true if any slot takes the event, a condition looks at it, or a channel that has no slot
/// takes it.
#[cfg(feature = "tracing")]
pub(crate) fn any_takes(desc: &EventDesc) -> bool {
    let takes = |slot| enabled(slot, desc) || conditions(slot, desc, false) != 0;
    (0..MAX_SLOTS).filter_map(at).any(takes) || is_missed(desc)
}

//! Recorder slots: the channels of this process's sessions, where callsites record.

use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use lastwords_abi::session::Channel as ChannelEntry;
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
use crate::session::shared::SessionShared;
use crate::session::{Error, regions};

/// Largest number of recorder slots at a time.
pub(crate) const MAX_SLOTS: usize = 32;

/// The slots. They are written when sessions begin and end, and every recorder reads them. A slot stays valid for the
/// life of the process.
pub(crate) static SLOTS: [AtomicPtr<RecorderSlot>; MAX_SLOTS] =
    [const { AtomicPtr::new(core::ptr::null_mut()) }; MAX_SLOTS];

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
        let first = entry.first_stream as usize;
        let own = session.regions.streams.get(first..first + entry.streams as usize).unwrap_or_default();
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
        Ok(Self { channel, channel_id, contexts, contexts_len, user_contexts: user.to_vec(), entry, session })
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

/// Returns the slot at this place, if there is one.
pub(crate) fn at(place: usize) -> Option<&'static RecorderSlot> {
    // SAFETY: slots are complete when they are published, and are never freed.
    unsafe { SLOTS[place].load(Acquire).as_ref() }
}

/// Makes a slot for every channel of the session. `contexts` returns the application's own contexts of a channel.
pub(crate) fn install(
    session: &'static SessionShared,
    contexts: impl Fn(&str) -> Vec<UserContext>,
) -> Result<(), Error> {
    // From now on there are fork and signal handlers, a listening thread, and callsites on a list.
    keep_loaded::library_of(core::ptr::from_ref(&SLOTS).cast());
    let new = |(id, entry): (u32, &'static ChannelEntry)| {
        let slot =
            RecorderSlot::new(session, id, entry, &contexts(&crate::session::session_region::text(&entry.name)))?;
        Ok(Box::into_raw(Box::new(slot)))
    };
    // All memory is allocated before: a handler that interrupted `malloc` may be waiting for the callsites' lock.
    let slots = session.view().channels().map(new).collect::<Result<Vec<_>, Error>>()?;
    let mut places = Vec::with_capacity(slots.len());
    callsite::change(|| places.extend(slots.iter().map_while(|slot| publish(*slot))));
    let is_whole = places.len() == slots.len();
    // The value is set once, because a session is installed once.
    let _ = session.slots.set(places);
    let remedy = "close a session of this process, or give it fewer channels";
    let full = Error::Full { what: "slot (channel of a session)", limit: MAX_SLOTS, remedy };
    if is_whole { Ok(()) } else { Err(full) }
}

/// Puts a slot into the first free place, so that a session's channels record an event in their order; a reader takes
/// later events for copies. A slot is never freed. Nobody else changes the places meanwhile.
fn publish(slot: *mut RecorderSlot) -> Option<usize> {
    let place = SLOTS.iter().position(|place| place.load(Relaxed).is_null())?;
    SLOTS[place].store(slot, Release);
    Some(place)
}

/// Takes the session's slots away from all callsites.
pub(crate) fn remove(session: &'static SessionShared) {
    let places = session.slots.get().into_iter().flatten();
    callsite::change(|| places.for_each(|place| SLOTS[*place].store(core::ptr::null_mut(), Release)));
}

/// Returns whether the slot takes the event: it records, and its rules allow the event, perhaps by a filter.
pub(crate) fn judge(slot: &RecorderSlot, desc: &EventDesc) -> Verdict<Found> {
    judge_by(slot, desc, filter::find)
}

/// Returns the places of the conditions that triggers have on the event, for one slot of each session: the first that
/// takes the event. If none does, the first slot has the conditions that look at events which are not recorded.
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

fn judge_by<F>(slot: &RecorderSlot, desc: &EventDesc, filter: impl Fn(&[AtomicU64]) -> F) -> Verdict<F> {
    match slot.is_recording() {
        true => rules::judge(slot.session.view().rules(), u32::from(slot.channel_id), Named::of(desc), filter),
        false => Verdict::Refused,
    }
}

/// Counts an event without an id, which it cannot get now, in each slot that takes it except those of the mask `but`.
/// A slot with a filter counts it too, because its filter is not known yet.
/// An event without a description counts in every slot that records.
#[cold]
pub(crate) fn count_unregistered(desc: Option<&EventDesc>, but: u64) {
    for place in (0..MAX_SLOTS).filter(|place| but & 1 << place == 0) {
        let wants = |slot: &&RecorderSlot| desc.map_or_else(|| slot.is_recording(), |desc| enabled(slot, desc));
        if let Some(slot) = at(place).filter(wants) {
            slot.count(LOST_LOCK);
        }
    }
}

/// Returns true if any slot takes the event, or a condition looks at it.
#[cfg(feature = "tracing")]
pub(crate) fn any_takes(desc: &EventDesc) -> bool {
    (0..MAX_SLOTS).filter_map(at).any(|slot| enabled(slot, desc) || conditions(slot, desc, false) != 0)
}

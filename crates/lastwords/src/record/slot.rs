//! Recorder slots: the channels of this process's sessions, where callsites record.
//!
//! A channel that is created while the session records has no slot in this process before
//! [`attach`](super::attach) has mapped its rings. A callsite whose event goes there by the rules has a bit for
//! that ([`is_missed`](super::takes::is_missed)), and counts its events as lost ([`count_missed`](super::takes::count_missed)). [`EPOCH`] distinguishes
//! a channel that got its slot after a callsite's mask was loaded from one that does not take the
//! event.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicU64 as Counter};

use lastwords_abi::session::Channel as ChannelEntry;
use lastwords_ring::{Channel, ClockKind, Persist};

use crate::record::context::{self, UserContext};
use crate::session::shared::SessionShared;
use crate::session::{Error, backends};

/// Largest number of recorder slots at a time.
pub(crate) const MAX_SLOTS: usize = 32;

/// The slots. They are written when sessions begin and end, and every recorder reads them. A slot
/// stays valid until no thread uses it any more, and its address until the process ends.
pub(crate) static SLOTS: [AtomicPtr<RecorderSlot>; MAX_SLOTS] =
    [const { AtomicPtr::new(core::ptr::null_mut()) }; MAX_SLOTS];

/// Number of times that all callsites were evaluated again. Written under the callsites' lock after
/// the last callsite (Release): who loads a number with Acquire, and a callsite's mask behind it,
/// finds the mask of that evaluation or a later one.
pub(super) static EPOCH: Counter = Counter::new(0);

/// A channel of a session.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct RecorderSlot {
    /// The handle that records in the channel's rings.
    pub(crate) channel: Channel,
    /// Id of the channel in its session.
    pub(crate) channel_id: u16,
    /// Bits of [`lastwords_abi::context`] that precede each payload.
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
    pub(super) known_from: Counter,
}

impl RecorderSlot {
    /// Makes a recorder for the channel of this id.
    pub(super) fn new(
        session: &'static SessionShared,
        id: u32,
        entry: &'static ChannelEntry,
        user: &[UserContext],
    ) -> Result<Self, Error> {
        let view = session.view();
        let own = session.regions.streams.of_channel(entry).unwrap_or_default();
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
        channel.refresh = Some(backends::clock_refresh(view.info.backend));
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
    pub(super) fn is_recording(&self) -> bool {
        let control = self.session.view().control();
        control.recording.load(Acquire) == 1 && self.entry.recording.load(Acquire) == 1
    }
}

/// How many values of an event are not recorded as they were given.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Flaws {
    /// Values that were cut or left out.
    pub(crate) cut: u32,
    /// Texts in which NULs were replaced.
    pub(crate) changed: u32,
}

impl Flaws {
    /// Returns a function that counts them once in each session. It is called for each slot that
    /// takes the event; those of a session follow each other.
    pub(crate) fn count(self) -> impl FnMut(&'static RecorderSlot) {
        let mut last: Option<&'static SessionShared> = None;
        move |slot| {
            let is_counted = last.is_some_and(|last| std::ptr::eq(last, slot.session));
            let registry = &slot.session.regions.registry;
            if self.cut > 0 && !is_counted {
                registry.count_cut(self.cut);
            }
            if self.changed > 0 && !is_counted {
                registry.count_changed(self.changed);
            }
            last = Some(slot.session);
        }
    }
}

/// Returns the slot at this place, if there is one.
pub(crate) fn at(place: usize) -> Option<&'static RecorderSlot> {
    // SAFETY: slots are complete when they are published, and are never freed.
    unsafe { SLOTS[place].load(Acquire).as_ref() }
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
pub(super) fn slot_of(
    session: &SessionShared,
    channel: u16,
) -> Option<(usize, &'static RecorderSlot)> {
    let mut slots = (0..MAX_SLOTS).filter_map(|place| Some((place, at(place)?)));
    slots.find(|(_, slot)| std::ptr::eq(slot.session, session) && slot.channel_id == channel)
}

/// Iterates over the channels of a session that have no slot. Async-signal-safe.
pub(super) fn unattached(
    session: &'static SessionShared,
) -> impl Iterator<Item = (u32, &'static ChannelEntry)> {
    session.view().channels().filter(|(id, _)| slot_of(session, *id as u16).is_none())
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

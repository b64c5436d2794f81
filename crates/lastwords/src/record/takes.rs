//! Which slots take an event, and the channels without a slot that would.

use std::sync::atomic::Ordering::{Acquire, Relaxed};

use lastwords_abi::session::Channel as ChannelEntry;
use lastwords_abi::stream::LOST_LOCK;
use lastwords_abi::sync::AtomicU64;

use crate::record::filter::{self, Found};
use crate::record::slot::{MAX_SLOTS, RecorderSlot, at, slot_of, unattached};
use crate::session::condition;
use crate::session::desc::EventDesc;
use crate::session::rules::{self, Named, Verdict};
use crate::session::shared::{self, SessionShared};

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
pub(crate) fn any_takes(desc: &EventDesc) -> bool {
    let takes = |slot| enabled(slot, desc) || conditions(slot, desc, false) != 0;
    (0..MAX_SLOTS).filter_map(at).any(takes) || is_missed(desc)
}

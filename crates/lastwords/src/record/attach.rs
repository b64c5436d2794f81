//! Gives the channels of this process's sessions their slots, and takes the slots away.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use lastwords_abi::session::{CHANNEL_ADDED, Channel as ChannelEntry};

use crate::process::keep_loaded;
use crate::record::callsite;
use crate::record::context::UserContext;
use crate::record::metrics;
use crate::record::slot::{EPOCH, MAX_SLOTS, RecorderSlot, SLOTS, at, slot_of, unattached};
use crate::session::Error;
use crate::session::shared::{self, SessionShared};
use crate::session::text::text;

/// Makes a slot for every channel of the session whose rings are mapped. `contexts` returns the
/// application's own contexts of a channel.
pub(crate) fn install(
    session: &'static SessionShared,
    contexts: impl Fn(&str) -> Vec<UserContext>,
) -> Result<(), Error> {
    // From now on there are fork and signal handlers, a listening thread, and callsites on a list.
    keep_loaded::library_of(core::ptr::from_ref(&SLOTS).cast());
    let is_mapped = |(_, entry): &(u32, &'static ChannelEntry)| {
        entry.flags & CHANNEL_ADDED == 0 || session.regions.streams.of_channel(entry).is_some()
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
        metrics::forget();
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
    let is_mapped = |(_, entry): &(u32, &'static ChannelEntry)| {
        session.regions.streams.of_channel(entry).is_some()
    };
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

/// Takes the session's slots away from all callsites, and returns them; none if the lock of the
/// callsites could not be taken.
pub(crate) fn remove(session: &'static SessionShared) -> Option<Vec<&'static RecorderSlot>> {
    let mut removed = Vec::with_capacity(MAX_SLOTS);
    let is_changed = callsite::change(|| {
        session.records.store(false, Release);
        metrics::forget();
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

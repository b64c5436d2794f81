//! The sessions of this process. A session's memory and its handle live as long as the process; closing it takes its
//! slots away and puts private memory in the place of the files.

use std::sync::OnceLock;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicUsize};

use super::error::Error;
use super::regions::Regions;
use super::session_region::SessionRegion;
use crate::session::dirs::Folder;

/// Most sessions of a process at a time.
pub(crate) const MAX_SESSIONS: usize = 32;

/// Read by the listener, by fork handlers and by callsites; written by whoever starts or closes a session.
static SESSIONS: [AtomicPtr<SessionShared>; MAX_SESSIONS] =
    [const { AtomicPtr::new(core::ptr::null_mut()) }; MAX_SESSIONS];

/// [`SessionShared::removal`]: it stays.
pub(crate) const STAYS: u8 = 0;
/// [`SessionShared::removal`]: it goes where it ends in good order and no panic was noted in it.
pub(crate) const GOES: u8 = 1;
/// [`SessionShared::removal`]: it goes.
pub(crate) const GOES_AT_ONCE: u8 = 2;

/// Slots of [`SESSIONS`] that were ever used: those behind are not looked at.
static USED: AtomicUsize = AtomicUsize::new(0);

/// A session of this process.
#[derive(Debug)]
pub(crate) struct SessionShared {
    pub(crate) regions: Regions,
    /// Its folder; none for a heap session where no folder could be made.
    pub(crate) folder: Option<Folder>,
    /// Handles of this process; at 0 it is being closed.
    pub(crate) handles: AtomicUsize,
    /// Whether something is left of it when it is closed: one of [`STAYS`], [`GOES`], [`GOES_AT_ONCE`]. Only ever grows.
    pub(crate) removal: AtomicU8,
    /// Places of its recorder slots.
    pub(crate) slots: OnceLock<Vec<usize>>,
}

impl SessionShared {
    /// A session that this process made or joined, with one handle.
    pub(crate) fn new(regions: Regions, folder: Option<Folder>) -> Self {
        let (handles, removal) = (AtomicUsize::new(1), AtomicU8::new(STAYS));
        Self { regions, folder, handles, removal, slots: OnceLock::new() }
    }

    /// The session region.
    pub(crate) fn view(&self) -> &SessionRegion {
        &self.regions.view
    }

    /// Counts one handle more, unless the session is being closed.
    pub(crate) fn add_handle(&self) -> bool {
        self.handles.fetch_update(AcqRel, Relaxed, |handles| (handles > 0).then_some(handles + 1)).is_ok()
    }
}

/// The session in a slot.
pub(crate) fn at(slot: usize) -> Option<&'static SessionShared> {
    // SAFETY: only leaked boxes are stored; they are never freed.
    unsafe { SESSIONS.get(slot)?.load(Acquire).as_ref() }
}

/// The sessions of this process. Async-signal-safe.
pub(crate) fn all() -> impl Iterator<Item = &'static SessionShared> {
    (0..USED.load(Acquire)).filter_map(at)
}

/// Keeps the session for the life of the process and lists it, where the list is not full.
pub(crate) fn publish(session: SessionShared) -> &'static SessionShared {
    let session = Box::leak(Box::new(session));
    let raw = core::ptr::from_mut(session);
    let take = |(at, slot): (usize, &AtomicPtr<_>)| {
        // Before the session is there: whoever looks for sessions looks at its slot from then on.
        USED.fetch_max(at + 1, AcqRel);
        slot.compare_exchange(core::ptr::null_mut(), raw, AcqRel, Acquire).is_ok()
    };
    // Where there was no room, `check_listed` says so.
    SESSIONS.iter().enumerate().any(take);
    session
}

/// Refuses a session that found no room in the list.
pub(crate) fn check_listed(session: &SessionShared) -> Result<(), Error> {
    let is_listed = all().any(|listed| core::ptr::eq(listed, session));
    let remedy = "close a session of this process";
    if is_listed { Ok(()) } else { Err(Error::Full { what: "session", limit: MAX_SESSIONS, remedy }) }
}

/// Takes the session off the list.
pub(crate) fn withdraw(session: &'static SessionShared) {
    let raw = core::ptr::from_ref(session).cast_mut();
    for slot in &SESSIONS {
        // A slot of another session stays.
        let _ = slot.compare_exchange(raw, core::ptr::null_mut(), AcqRel, Acquire);
    }
}

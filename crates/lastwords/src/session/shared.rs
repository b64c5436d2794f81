//! The sessions of this process. Closing a session removes its slots and replaces the files by
//! private memory. Its memory and its handle are freed when no thread can be using them any more
//! (`retired.rs`).

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize};

#[cfg(feature = "tracing")]
use lastwords_abi::spans::{CONTROL_OFF, SPANS_OFF, Span, SpansControl};
#[cfg(feature = "tracing")]
use lastwords_ring::backend::Mapping;

use super::error::Error;
use super::metrics::MetricsTable;
use super::regions::Regions;
use super::session_region::SessionRegion;
use crate::session::dirs::Folder;

/// Largest number of sessions of a process at a time.
pub(crate) const MAX_SESSIONS: usize = 32;

/// The list of sessions. The listener, fork handlers and callsites read it; code that starts or
/// closes a session writes it.
static SESSIONS: [AtomicPtr<SessionShared>; MAX_SESSIONS] =
    [const { AtomicPtr::new(core::ptr::null_mut()) }; MAX_SESSIONS];

/// Value of [`SessionShared::removal`]: the session stays.
pub(crate) const STAYS: u8 = 0;
/// Value of [`SessionShared::removal`]: the session is removed if it ends in good order and no
/// panic was noted in it.
pub(crate) const GOES: u8 = 1;
/// Value of [`SessionShared::removal`]: the session is removed.
pub(crate) const GOES_AT_ONCE: u8 = 2;

/// Number of slots of [`SESSIONS`] that were ever used. Later slots are not examined.
static USED: AtomicUsize = AtomicUsize::new(0);

/// A session of this process.
#[derive(Debug)]
pub struct SessionShared {
    /// Its memory.
    pub regions: Regions,
    /// A number that no other session of this process has had. Addresses are used again.
    pub(crate) number: u64,
    /// Folder of the session; none for a heap session whose folder could not be created.
    pub(crate) folder: Option<Folder>,
    /// Number of handles of this process. At 0 the session is being closed.
    pub(crate) handles: AtomicUsize,
    /// The treatment of the files when the session is closed: [`STAYS`], [`GOES`] or
    /// [`GOES_AT_ONCE`]. The value only grows.
    pub(crate) removal: AtomicU8,
    /// Callsites record in the session. Written by the holder of the callsites' lock (Release):
    /// who loads true with Acquire finds the slots of the channels that the session had then.
    pub(crate) records: AtomicBool,
    /// One more than the index of this process in the session's table of processes; 0 = it is not
    /// in the table. Written when the process enters the table, also in a forked child, and read
    /// by its threads (Relaxed: the index says nothing else).
    entry: AtomicU32,
    /// The tables of counters and histograms, if the session has any.
    pub(crate) metrics: Option<MetricsTable>,
    /// The table of open spans, if the session has one.
    #[cfg(feature = "tracing")]
    pub(crate) spans: Option<SpansTable>,
}

/// A session's table of open spans.
#[cfg(feature = "tracing")]
#[derive(Debug, Clone, Copy)]
pub(crate) struct SpansTable {
    pub(crate) control: &'static SpansControl,
    pub(crate) entries: &'static [Span],
}

#[cfg(feature = "tracing")]
impl SpansTable {
    /// Finds the table in its region, which was checked and initialised, and stays mapped as long
    /// as the session is listed.
    fn from_region(region: &Mapping) -> Option<Self> {
        let most = (region.len() as usize).checked_sub(SPANS_OFF)? / size_of::<Span>();
        // SAFETY: the region was checked when it was mapped, and is mapped read-write until nobody
        // uses the session any more. Control and entries are inside it, aligned as the region is.
        // `capacity` was written before; all other fields are atomics.
        unsafe {
            let control = &*region.as_ptr().add(CONTROL_OFF).cast::<SpansControl>();
            let len = most.min(control.capacity as usize);
            Some(Self {
                control,
                entries: std::slice::from_raw_parts(
                    region.as_ptr().add(SPANS_OFF).cast::<Span>(),
                    len,
                ),
            })
        }
    }
}

impl SessionShared {
    /// Makes the entry of a session that this process created or joined, with one handle.
    pub(crate) fn new(regions: Regions, folder: Option<Folder>) -> Self {
        let (handles, removal) = (AtomicUsize::new(1), AtomicU8::new(STAYS));
        // Relaxed: only the number counts.
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        let number = NUMBERS.fetch_add(1, Relaxed);
        let (records, entry) = (AtomicBool::new(false), AtomicU32::new(0));
        #[cfg(feature = "tracing")]
        let spans = regions.spans.as_ref().and_then(SpansTable::from_region);
        let metrics = regions.counters.as_ref().and_then(MetricsTable::from_region);
        let session = Self {
            metrics,
            regions,
            number,
            folder,
            handles,
            removal,
            records,
            entry,
            #[cfg(feature = "tracing")]
            spans,
        };
        session.enter(session.view().table().own());
        session
    }

    /// Notes the index of this process in the session's table of processes. Async-signal-safe.
    pub(crate) fn enter(&self, index: Option<usize>) {
        self.entry.store(index.map_or(0, |index| index as u32 + 1), Relaxed);
    }

    /// Returns the index of this process in the session's table of processes.
    pub(crate) fn entry(&self) -> Option<usize> {
        (self.entry.load(Relaxed) as usize).checked_sub(1)
    }

    /// Returns the session region.
    pub(crate) fn view(&self) -> &SessionRegion {
        &self.regions.view
    }

    /// Adds a handle, unless the session is being closed.
    pub(crate) fn add_handle(&self) -> bool {
        self.handles
            .fetch_update(AcqRel, Relaxed, |handles| (handles > 0).then_some(handles + 1))
            .is_ok()
    }
}

/// Returns the session in a slot.
pub(crate) fn at(slot: usize) -> Option<&'static SessionShared> {
    session_in(SESSIONS.get(slot)?)
}

#[inline]
fn session_in(slot: &AtomicPtr<SessionShared>) -> Option<&'static SessionShared> {
    // SAFETY: only leaked boxes are stored. They are freed when no thread that has loaded the
    // pointer uses it any more.
    unsafe { slot.load(Acquire).as_ref() }
}

/// Iterates over the sessions of this process. Async-signal-safe.
pub(crate) fn all() -> impl Iterator<Item = &'static SessionShared> {
    SESSIONS[..USED.load(Acquire).min(MAX_SESSIONS)].iter().filter_map(session_in)
}

/// Keeps the session until it is [`free`]d, and lists it, if the list is not full.
pub(crate) fn publish(session: SessionShared) -> &'static SessionShared {
    let session = Box::leak(Box::new(session));
    let raw = core::ptr::from_mut(session);
    let take = |(at, slot): (usize, &AtomicPtr<_>)| {
        // This is stored before the session, so that every reader that looks for sessions examines
        // its slot from then on.
        USED.fetch_max(at + 1, AcqRel);
        slot.compare_exchange(core::ptr::null_mut(), raw, AcqRel, Acquire).is_ok()
    };
    // If there was no room, `check_listed` reports it.
    SESSIONS.iter().enumerate().any(take);
    session
}

/// Refuses a session that found no room in the list.
pub(crate) fn check_listed(session: &SessionShared) -> Result<(), Error> {
    let is_listed = all().any(|listed| core::ptr::eq(listed, session));
    let remedy = "close a session of this process";
    if is_listed {
        Ok(())
    } else {
        Err(Error::Full { what: "session", limit: MAX_SESSIONS, remedy })
    }
}

/// Removes the session from the list.
pub(crate) fn withdraw(session: &'static SessionShared) {
    let raw = core::ptr::from_ref(session).cast_mut();
    for slot in &SESSIONS {
        // A slot of another session stays.
        let _ = slot.compare_exchange(raw, core::ptr::null_mut(), AcqRel, Acquire);
    }
}

/// Frees a session, and unmaps its memory.
///
/// # Safety
/// The session came from [`publish`], is not listed, and nobody uses it or its memory, now or
/// later.
pub(crate) unsafe fn free(session: &'static SessionShared) {
    lastwords_ring::note_unmapped();
    // SAFETY: `publish` leaked the box, and the caller guarantees that this is its last user.
    drop(unsafe { Box::from_raw(core::ptr::from_ref(session).cast_mut()) });
}

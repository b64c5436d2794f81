//! What a trigger does with a session: a limit, a snapshot, and the order to save it.
//!
//! A trigger that fires outside of signal handlers swaps the rings itself, so that what was recorded before is in the
//! snapshot. The listener's thread saves the snapshot in a folder of its own (`save.rs`) and frees its rings. A
//! trigger that fires before that is done waits ([`Triggers::waiting`]): the listener takes its snapshot when the one
//! before is saved. Without a listener the snapshot stays in the session, where `--snapshot` reads it.

use std::path::PathBuf;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::time::Duration;

use lastwords_abi::session::{SNAPSHOT_OFF, SNAPSHOT_READY, Triggers};
use lastwords_ring::ClockKind;

use super::save::{self, Saved};
use super::session_region::{SessionRegion, locked, until_nul};
use super::shared::SessionShared;
use super::snapshot::Rings;
use super::{Error, listener};
use crate::process::identity::identity;
use crate::process::{cut, signals};
use crate::session::regions::Regions;

/// Largest size of a trigger's name, in bytes.
pub const NAME_LEN: usize = 64;

/// How many snapshots the triggers of a session may take, and whether these are saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) most: u32,
    pub(crate) period: Duration,
    pub(crate) saves: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self { most: 4, period: Duration::from_secs(60), saves: true }
    }
}

/// What a trigger leads to in a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// A snapshot.
    Snapshot,
    /// A snapshot that the session's thread takes, as soon as the one before is saved.
    Waits,
    /// Nothing: too many fired in a short time.
    Limited,
    /// Nothing: snapshots are not enabled, or the session is of version 1.0.
    NoSnapshots,
    /// Recording stops.
    Stop,
}

impl Outcome {
    /// Returns the word that the trigger's event has.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Snapshot => "snapshot",
            Self::Waits => "snapshot by the session's thread",
            Self::Limited => "limited",
            Self::NoSnapshots => "snapshots are not enabled",
            Self::Stop => "recording stops",
        }
    }
}

/// The decision on a trigger in a session.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Decision {
    pub(crate) session: &'static SessionShared,
    pub(crate) outcome: Outcome,
    /// Triggers since the last that was not limited, which the limit left without a snapshot.
    pub(crate) limited: u32,
}

/// Writes the limits of a new session.
pub(crate) fn init(view: &SessionRegion, limits: Limits) {
    if let Some(triggers) = view.triggers() {
        triggers.most.store(limits.most.max(1), Relaxed);
        triggers.period.store(limits.period.as_nanos().try_into().unwrap_or(u64::MAX), Relaxed);
        triggers.saves.store(u32::from(limits.saves), Relaxed);
    }
}

/// Where a trigger fires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// In a call, perhaps in a signal handler. The snapshot is taken there if that is safe.
    Call,
    /// In a thread that records an event. The session's thread takes the snapshot.
    Event,
}

/// Counts a trigger that stops recording.
pub(crate) fn stop(session: &'static SessionShared) -> Decision {
    if let Some(triggers) = session.view().triggers() {
        triggers.fired.fetch_add(1, Relaxed);
    }
    Decision { session, outcome: Outcome::Stop, limited: 0 }
}

/// Counts a trigger and decides what it leads to. Async-signal-safe.
pub(crate) fn decide(session: &'static SessionShared, place: Place) -> Decision {
    let control = session.view().control();
    let decision = |outcome, limited| Decision { session, outcome, limited };
    let Some(triggers) = session.view().triggers() else { return decision(Outcome::NoSnapshots, 0) };
    triggers.fired.fetch_add(1, Relaxed);
    if control.snapshot.load(Acquire) == SNAPSHOT_OFF {
        return decision(Outcome::NoSnapshots, 0);
    }
    if !is_within_limit(triggers, ClockKind::Monotonic.now()) {
        triggers.limited.fetch_add(1, Relaxed);
        return decision(Outcome::Limited, 0);
    }
    let limited = triggers.limited.load(Relaxed);
    let limited = limited.wrapping_sub(triggers.told.swap(limited, Relaxed));
    let is_free = control.snapshot.load(Acquire) == SNAPSHOT_READY && triggers.waiting.load(Relaxed) == 0;
    let is_safe = || listener::is_thread(identity().word()) || signals::is_outside_handlers();
    let may_take = || place == Place::Call && is_safe();
    decision(if is_free && may_take() { Outcome::Snapshot } else { Outcome::Waits }, limited)
}

/// Takes one of `most` places in a period, if there is one.
fn is_within_limit(triggers: &Triggers, now: u64) -> bool {
    let (period, most) = (triggers.period.load(Relaxed), u64::from(triggers.most.load(Relaxed).max(1)));
    let each = period / most;
    let next = |due: u64| {
        // A time that is too far ahead is that of another boot.
        let due = if due > now.saturating_add(period) { now } else { due.max(now) };
        let next = due.saturating_add(each);
        (next - now <= period).then_some(next)
    };
    triggers.due.fetch_update(AcqRel, Acquire, next).is_ok()
}

/// Does what was decided, after the trigger's event was recorded.
pub(crate) fn act(decision: Decision) {
    let Some(triggers) = decision.session.view().triggers() else { return };
    match decision.outcome {
        Outcome::Limited | Outcome::NoSnapshots => return,
        // This notifies the processes, too.
        Outcome::Stop => return decision.session.regions.set_recording(None, false),
        Outcome::Snapshot if take(&decision.session.regions, triggers) => (),
        Outcome::Snapshot | Outcome::Waits => _ = triggers.waiting.fetch_add(1, AcqRel),
    }
    decision.session.view().announce();
}

/// Takes a snapshot, unless there is one already. Returns false if none could be taken now.
fn take(regions: &Regions, triggers: &Triggers) -> bool {
    match regions.snapshot_if_free(Rings::All) {
        Ok(taken) => {
            triggers.unsaved.store(taken.number, Release);
            true
        }
        Err(_) => false,
    }
}

/// The outcome of the listener's work, for the event that reports it.
#[derive(Debug)]
pub(crate) enum Done {
    Saved { folder: PathBuf, snapshot: u32, removed: u32 },
    Failed { snapshot: u32, error: Error },
}

/// The process that saves a snapshot, or 0. The end of a session waits for that. A forked child does not wait for a thread
/// of its parent.
static SAVING: AtomicU32 = AtomicU32::new(0);
/// How often [`saving`] looks, once a millisecond.
const SAVING_LOOKS: u32 = 10_000;

/// Held while a snapshot is saved.
#[derive(Debug)]
pub(crate) struct Saving(());

impl Drop for Saving {
    fn drop(&mut self) {
        SAVING.store(0, Release);
    }
}

/// Waits, for a bounded time, until no other thread saves a snapshot, and prevents that one does. Returns none if one
/// still does.
pub(crate) fn saving() -> Option<Saving> {
    let me = std::process::id();
    for _ in 0..SAVING_LOOKS {
        let owner = SAVING.load(Acquire);
        if owner != me && SAVING.compare_exchange(owner, me, AcqRel, Relaxed).is_ok() {
            return Some(Saving(()));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    None
}

/// Returns true if there is work for [`work`] or [`request`].
fn is_wanted(triggers: &Triggers) -> bool {
    triggers.unsaved.load(Acquire) != 0 || triggers.waiting.load(Acquire) != 0
}

/// Saves the snapshot that is to be saved, then takes and saves the snapshot of triggers that wait. `report` gets
/// what was done.
pub(crate) fn work(session: &'static SessionShared, report: &mut dyn FnMut(Done)) {
    let Some(triggers) = session.view().triggers() else { return };
    // A trigger that waits, then the snapshot of those that came meanwhile, and no more in one round.
    for _ in 0..3 {
        if !is_wanted(triggers) {
            return;
        }
        let state = session.view().control().snapshot.load(Acquire);
        let has_waiting = triggers.waiting.load(Acquire) != 0;
        if state == SNAPSHOT_OFF {
            triggers.waiting.store(0, Release);
            triggers.unsaved.store(0, Release);
            return;
        }
        if state == SNAPSHOT_READY {
            // Nothing is left to save: somebody has read and released the snapshot.
            triggers.unsaved.store(0, Release);
            if !has_waiting {
                return;
            }
            let waiting = triggers.waiting.swap(0, AcqRel);
            if waiting != 0 && !take(&session.regions, triggers) {
                triggers.waiting.fetch_add(waiting, AcqRel);
                return;
            }
        }
        let unsaved = triggers.unsaved.swap(0, AcqRel);
        if triggers.saves.load(Relaxed) == 0 {
            return;
        }
        if !try_save(session, triggers, unsaved, report) {
            return;
        }
    }
}

/// Saves the snapshot that is there. Returns false if it stays.
fn try_save(session: &'static SessionShared, triggers: &Triggers, unsaved: u32, report: &mut dyn FnMut(Done)) -> bool {
    let snapshot = session.view().control().snapshots.load(Acquire);
    let none = || Error::unsupported("saving of a snapshot", "the session has no folder", "read it in a core");
    let saved = session.folder.as_ref().ok_or_else(none).and_then(|folder| save::save(&session.regions, folder));
    match saved {
        Ok(Saved { folder, removed }) => {
            triggers.saved.fetch_add(1, Relaxed);
            report(Done::Saved { folder, snapshot, removed });
            true
        }
        // Another process saves it, or a reader has it.
        Err(Error::Busy { .. }) => {
            triggers.unsaved.store(unsaved.max(1), Release);
            false
        }
        Err(error) => {
            // It is tried again only for triggers that wait, and reported once for each of their snapshots.
            if unsaved != 0 {
                triggers.failed.fetch_add(1, Relaxed);
                report(Done::Failed { snapshot, error });
            }
            false
        }
    }
}

/// Returns the name of a request of another process that nobody has answered, once.
pub(crate) fn request(session: &'static SessionShared) -> Option<([u8; NAME_LEN], usize)> {
    let triggers = session.view().triggers()?;
    let (asked, answered) = (triggers.asked.load(Acquire), triggers.answered.load(Acquire));
    if asked == answered {
        return None;
    }
    let mut name = [0; NAME_LEN];
    for (bytes, word) in name.as_chunks_mut().0.iter_mut().zip(&triggers.name) {
        *bytes = word.load(Relaxed).to_ne_bytes();
    }
    triggers.answered.compare_exchange(answered, asked, AcqRel, Relaxed).ok()?;
    let len = until_nul(&name).len();
    Some((name, len))
}

impl Regions {
    /// Fires a trigger in a process of the session, as [`crate::trigger`] does there. The name is cut at
    /// [`NAME_LEN`] bytes.
    ///
    /// # Errors
    /// The session is of version 1.0; no process of the session answers within two seconds.
    pub fn fire(&self, name: &str) -> Result<(), Error> {
        let unsupported = || Error::unsupported("trigger", "the session is of version 1.0", "take a snapshot");
        let triggers = self.view.triggers().ok_or_else(unsupported)?;
        let asked = locked(&triggers.lock, &self.view.control().namespaces, || {
            let mut bytes = cut(name, NAME_LEN).bytes();
            for word in &triggers.name {
                word.store(u64::from_ne_bytes(std::array::from_fn(|_| bytes.next().unwrap_or(0))), Relaxed);
            }
            triggers.asked.fetch_add(1, AcqRel).wrapping_add(1)
        });
        let asked = asked.map_err(|owner| Error::Busy { what: "the session's triggers", owner })?;
        self.view.announce();
        for _ in 0..1000 {
            // Another process may have asked behind this one, and been answered.
            if (triggers.answered.load(Acquire).wrapping_sub(asked) as i32) >= 0 {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        // Nobody is to fire it later, when it is not expected any more.
        let _ = triggers.answered.compare_exchange(asked.wrapping_sub(1), asked, AcqRel, Relaxed);
        Err(Error::unsupported("trigger", "no process of the session answers", "use `lastwords snapshot take`"))
    }

    /// Returns what triggers of the session did; none if the session is of version 1.0.
    #[must_use]
    pub fn triggered(&self) -> Option<Triggered> {
        self.view.triggered()
    }
}

/// What triggers of a session did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Triggered {
    /// Triggers that fired.
    pub fired: u32,
    /// Of these, the ones that the limit left without a snapshot.
    pub limited: u32,
    /// Triggers whose snapshot is not taken yet.
    pub waiting: u32,
    /// Snapshots that were saved.
    pub saved: u32,
    /// Snapshots that could not be saved.
    pub failed: u32,
}

impl SessionRegion {
    /// Returns what triggers of the session did; none if the session is of version 1.0.
    pub(crate) fn triggered(&self) -> Option<Triggered> {
        let triggers = self.triggers()?;
        Some(Triggered {
            fired: triggers.fired.load(Relaxed),
            limited: triggers.limited.load(Relaxed),
            waiting: triggers.waiting.load(Relaxed),
            saved: triggers.saved.load(Relaxed),
            failed: triggers.failed.load(Relaxed),
        })
    }
}

/// Carries out the requests of other processes and the work of all sessions. The listener's thread calls it.
pub(crate) fn round() {
    for session in super::shared::all() {
        if let Some((name, len)) = request(session) {
            (listener::calls().fire)(session, &name[..len]);
        }
        if session.view().triggers().is_some_and(is_wanted) {
            let Some(_one) = saving() else { return };
            work(session, &mut |done| (listener::calls().saved)(session, done));
        }
    }
}

//! Effects of a trigger on a session: limits, the snapshot, the order to save it.
//!
//! A trigger that is called outside of signal handlers swaps the rings itself, so that what was
//! recorded before is in the snapshot. Conditions on events leave the swap to the listener's
//! thread. The listener's thread saves the snapshot in a folder of its own (`save.rs`) and frees
//! its rings. A trigger that fires before that is done waits ([`Triggers::waiting`]): the listener
//! takes its snapshot when the one before is saved. Without a listener the snapshot stays in the
//! session, where `--snapshot` reads it.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::time::Duration;

use lastwords_abi::session::{SNAPSHOT_OFF, SNAPSHOT_READY};
use lastwords_abi::sync::AtomicU32;
use lastwords_abi::triggers::Triggers;
use lastwords_ring::ClockKind;

use super::extra::{Fired, store_all, words_of};
use super::limits::{is_within_limit, limit};
use super::outcome::{Done, Outcome};
use super::save::{self, Saved};
use super::session_region::{SessionRegion, locked};
use super::shared::SessionShared;
use super::text::until_nul;
use super::window::{self, Cut, Moment};
use super::{Error, calls, listener_thread, orders};
use crate::process::identity::identity;
use crate::process::{cut, signals};
use crate::session::regions::Regions;

/// Largest size of a trigger's name, in bytes.
pub const NAME_LEN: usize = 64;

/// The decision on a trigger in a session.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Decision {
    pub(crate) session: &'static SessionShared,
    pub(crate) outcome: Outcome,
    /// Triggers since the last that was not limited, which the limit left without a snapshot.
    pub(crate) limited: u32,
    moment: Moment,
}

/// Where a trigger fires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// In a call, perhaps in a signal handler. The snapshot is taken there if that is safe.
    Call,
    /// In a thread that records an event which fulfils a condition. The session's thread takes the
    /// snapshot.
    Event(Fired),
}

/// Counts a trigger that takes no snapshot.
pub(crate) fn plain(session: &'static SessionShared, outcome: Outcome) -> Decision {
    session.view().triggers().fired.fetch_add(1, Relaxed);
    Decision { session, outcome, limited: 0, moment: Moment::default() }
}

/// Counts a trigger and decides what it leads to. Async-signal-safe.
pub(crate) fn decide(session: &'static SessionShared, place: Place) -> Decision {
    let (view, control) = (session.view(), session.view().control());
    let decision =
        |outcome, limited| Decision { session, outcome, limited, moment: Moment::default() };
    let triggers = view.triggers();
    triggers.fired.fetch_add(1, Relaxed);
    if control.snapshot.load(Acquire) == SNAPSHOT_OFF {
        return decision(Outcome::NoSnapshots, 0);
    }
    let default = (triggers.before.load(Relaxed), triggers.after.load(Relaxed));
    let moment = match place {
        Place::Call => Moment::now(view, default, 0),
        Place::Event(fired) => Moment::now(view, fired.window.unwrap_or(default), fired.target()),
    };
    let is_free = control.snapshot.load(Acquire) == SNAPSHOT_READY
        && triggers.waiting.load(Relaxed) == 0
        && window::count(triggers) == 0;
    let is_safe =
        || listener_thread::is_thread(identity().word()) || signals::is_outside_handlers();
    let outcome = match place {
        _ if moment.after != 0 => Outcome::Later,
        Place::Call if is_free && is_safe() => Outcome::Snapshot,
        _ => Outcome::Waits,
    };
    if !is_wanted_now(view, triggers, place, outcome) {
        triggers.limited.fetch_add(1, Relaxed);
        return decision(Outcome::Limited, 0);
    }
    let limited = triggers.limited.load(Relaxed);
    let limited = limited.wrapping_sub(triggers.told.swap(limited, Relaxed));
    Decision { moment, ..decision(outcome, limited) }
}

/// Returns true if neither the limit of the condition nor that of the session keeps the trigger
/// from a snapshot. The session's limit counts snapshots: a trigger that shares one takes no place.
fn is_wanted_now(
    view: &SessionRegion,
    triggers: &Triggers,
    place: Place,
    outcome: Outcome,
) -> bool {
    let now = ClockKind::Monotonic.now();
    let own = match place {
        Place::Event(fired) => fired.is_within_limit(view, now),
        Place::Call => true,
    };
    let shares = outcome != Outcome::Snapshot;
    if !own || (shares && triggers.booked.load(Acquire) != 0) {
        return own;
    }
    let is_within = is_within_limit(limit(triggers), &triggers.due, now);
    if is_within && shares {
        triggers.booked.store(1, Release);
    }
    is_within
}

/// Does what was decided, after the trigger's event was recorded.
pub(crate) fn act(decision: Decision) {
    let Decision { session, outcome, moment, .. } = decision;
    let triggers = session.view().triggers();
    match outcome {
        Outcome::Limited | Outcome::NoSnapshots | Outcome::NoRules => return,
        // The session's thread has done it.
        Outcome::Start | Outcome::Enable | Outcome::Disable => return,
        // This notifies the processes, too.
        Outcome::Stop => return session.regions.set_recording(None, false),
        Outcome::Snapshot if take(&session.regions, triggers, &moment.at_once()) => (),
        Outcome::Snapshot => {
            // Its place is that of the snapshot for which it waits.
            triggers.booked.store(1, Release);
            moment.wait(session.view(), triggers);
        }
        Outcome::Waits | Outcome::Later => moment.wait(session.view(), triggers),
    }
    session.view().announce();
}

/// Takes a snapshot, unless there is one already. Returns false if none could be taken now.
fn take(regions: &Regions, triggers: &Triggers, cut: &Cut) -> bool {
    match regions.snapshot_if_free(cut) {
        Ok(taken) => {
            triggers.unsaved.store(taken.number, Release);
            true
        }
        Err(_) => false,
    }
}

/// The process that saves a snapshot, or 0. The end of a session waits for that. A forked child
/// does not wait for a thread of its parent.
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

/// Waits, for a bounded time, until no other thread saves a snapshot, and prevents that one does.
/// Returns none if one still does.
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

/// Returns true if there is work for [`work`]. `at_end`: the session ends, and with it all windows.
fn is_wanted(view: &SessionRegion, triggers: &Triggers, at_end: bool) -> bool {
    triggers.unsaved.load(Acquire) != 0 || is_due(view, triggers, at_end)
}

/// Returns true if triggers wait whose snapshot is due: the last of their windows has ended.
fn is_due(view: &SessionRegion, triggers: &Triggers, at_end: bool) -> bool {
    match window::remaining(view, triggers) {
        Some(remaining) => remaining == 0 || at_end,
        None => triggers.waiting.load(Acquire) != 0,
    }
}

/// Saves the snapshot that is to be saved, then takes and saves the snapshot of triggers that wait.
/// `report` gets what was done. `at_end`: the session ends, and with it all windows.
pub(crate) fn work(session: &'static SessionShared, at_end: bool, report: &mut dyn FnMut(Done)) {
    let view = session.view();
    let triggers = view.triggers();
    // A trigger that waits, then the snapshot of those that came meanwhile, and no more in one
    // round.
    for _ in 0..3 {
        if !is_wanted(view, triggers, at_end) {
            return;
        }
        // This is loaded before the state: a snapshot that is taken after that is not forgotten.
        let noted = triggers.unsaved.load(Acquire);
        match view.control().snapshot.load(Acquire) {
            SNAPSHOT_OFF => {
                triggers.booked.store(0, Release);
                triggers.waiting.store(0, Release);
                triggers.unsaved.store(0, Release);
                return window::Taking::all(triggers).end(true);
            }
            SNAPSHOT_READY => {
                // Nothing is left to save: somebody has read and released the snapshot.
                let _ = triggers.unsaved.compare_exchange(noted, 0, AcqRel, Relaxed);
                if !is_due(view, triggers, at_end) || !take_waiting(session, triggers) {
                    return;
                }
            }
            _ => (),
        }
        let unsaved = triggers.unsaved.swap(0, AcqRel);
        if triggers.saves.load(Relaxed) == 0 || !try_save(session, triggers, unsaved, report) {
            return;
        }
    }
}

/// Takes the snapshot of the triggers that wait. Returns false if none could be taken now; then
/// they go on waiting.
fn take_waiting(session: &SessionShared, triggers: &Triggers) -> bool {
    // A trigger that shares a snapshot waits after it has seen `booked`, perhaps after this. Then
    // its snapshot has no place yet.
    let booked = triggers.booked.swap(0, AcqRel);
    let waiting = triggers.waiting.swap(0, AcqRel);
    let taking = window::Taking::all(triggers);
    let is_nothing = waiting == 0 && taking.is_empty();
    // If nothing waits, another process of the session was faster.
    let is_taken = is_nothing || take(&session.regions, triggers, &taking.cut(waiting != 0));
    taking.end(is_taken);
    if is_taken && booked == 0 && !is_nothing {
        // If no place is left, this snapshot is one too many, which happens for a trigger that is
        // due while another's is taken.
        let _ = is_within_limit(limit(triggers), &triggers.due, ClockKind::Monotonic.now());
    }
    if !is_taken {
        triggers.booked.fetch_or(booked, AcqRel);
        triggers.waiting.fetch_add(waiting, AcqRel);
    }
    is_taken
}

/// Saves the snapshot that is there. Returns false if it stays.
fn try_save(
    session: &'static SessionShared,
    triggers: &Triggers,
    unsaved: u32,
    report: &mut dyn FnMut(Done),
) -> bool {
    let snapshot = session.view().control().snapshots.load(Acquire);
    let none = || {
        Error::unsupported("saving of a snapshot", "the session has no folder", "read it in a core")
    };
    let saved = session
        .folder
        .as_ref()
        .ok_or_else(none)
        .and_then(|folder| save::save(&session.regions, folder));
    match saved {
        Ok((saved, failed)) => {
            triggers.saved.fetch_add(1, Relaxed);
            for error in failed {
                report(Done::Failed { snapshot, error });
            }
            for Saved { folder, removed } in saved {
                report(Done::Saved { folder, snapshot, removed });
            }
            true
        }
        // Another process saves it, or a reader has it.
        Err(Error::Busy { .. }) => {
            triggers.unsaved.store(unsaved.max(1), Release);
            false
        }
        Err(error) => {
            // It is tried again only for triggers that wait, and reported once for each of their
            // snapshots.
            if unsaved != 0 {
                triggers.failed.fetch_add(1, Relaxed);
                report(Done::Failed { snapshot, error });
            }
            false
        }
    }
}

/// A trigger for which another process asks.
pub(crate) struct Request {
    number: u32,
    name: [u8; NAME_LEN],
}

impl Request {
    /// Returns the name of the trigger.
    pub(crate) fn name(&self) -> &[u8] {
        until_nul(&self.name)
    }

    /// Returns the word of [`Triggers::outcome`] of a request.
    fn outcome(number: u32, is_limited: bool) -> u32 {
        number << 8 | u32::from(is_limited)
    }
}

/// Returns a request of another process that nobody has answered, once.
pub(crate) fn request(session: &'static SessionShared) -> Option<Request> {
    let triggers = session.view().triggers();
    let (asked, answered) = (triggers.asked.load(Acquire), triggers.answered.load(Acquire));
    if asked == answered {
        return None;
    }
    let mut name = [0; NAME_LEN];
    for (bytes, word) in name.as_chunks_mut().0.iter_mut().zip(&triggers.name) {
        *bytes = word.load(Relaxed).to_ne_bytes();
    }
    triggers.answered.compare_exchange(answered, asked, AcqRel, Relaxed).ok()?;
    Some(Request { number: asked, name })
}

impl Regions {
    /// Fires a trigger in a process of the session, as [`crate::trigger`] does there. The name is
    /// cut at [`NAME_LEN`] bytes.
    ///
    /// # Errors
    /// No process of the session answers within two seconds; the limit of the session leaves the
    /// trigger without a snapshot ([`Error::Limited`]), so that its event is all that there is.
    pub fn fire(&self, name: &str) -> Result<(), Error> {
        let triggers = self.view.triggers();
        let asked = locked(&triggers.lock, &self.view.control().namespaces, || {
            store_all(
                &triggers.name,
                &words_of::<{ NAME_LEN / 8 }>(cut(name, NAME_LEN).as_bytes()),
            );
            triggers.asked.fetch_add(1, AcqRel).wrapping_add(1)
        });
        let asked = asked.map_err(|owner| Error::Busy { what: "the session's triggers", owner })?;
        self.view.announce();
        for _ in 0..1000 {
            // Another process may have asked behind this one, and been answered.
            if (triggers.answered.load(Acquire).wrapping_sub(asked) as i32) >= 0 {
                return self.outcome(triggers, asked);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        // Nobody is to fire it later, when it is not expected any more.
        let _ = triggers.answered.compare_exchange(asked.wrapping_sub(1), asked, AcqRel, Relaxed);
        Err(Error::unsupported(
            "trigger",
            "no process of the session answers",
            "use `lastwords snapshot take`",
        ))
    }

    /// Waits until a request that is answered was carried out, and returns an error if that led to
    /// nothing.
    fn outcome(&self, triggers: &Triggers, asked: u32) -> Result<(), Error> {
        for _ in 0..250 {
            let outcome = triggers.outcome.load(Acquire);
            // The difference of 24 bits: this request, or one behind it that was carried out in its
            // place.
            if ((outcome >> 8).wrapping_sub(asked) << 8) as i32 >= 0 {
                if outcome & 0xff == 0 {
                    return Ok(());
                }
                let (most, period) = limit(triggers);
                let ahead = triggers.due.load(Relaxed).saturating_sub(ClockKind::Monotonic.now());
                let each = period / u64::from(most.max(1));
                let free_in = ahead.saturating_add(each).saturating_sub(period);
                let [period, free_in] = [period, free_in].map(Duration::from_nanos);
                return Err(Error::Limited { most, period, free_in });
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        // A program with an earlier version of the library does not say.
        Ok(())
    }

    /// Returns what triggers of the session did.
    #[must_use]
    pub fn triggered(&self) -> Triggered {
        self.view.triggered()
    }
}

/// Counts of the triggers of a session.
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
    /// Starts of latencies that were replaced before their end came, because too many waited. They
    /// fired nothing.
    pub replaced: u32,
}

impl SessionRegion {
    /// Returns what triggers of the session did.
    pub fn triggered(&self) -> Triggered {
        let triggers = self.triggers();
        Triggered {
            fired: triggers.fired.load(Relaxed),
            limited: triggers.limited.load(Relaxed),
            waiting: triggers.waiting.load(Relaxed).saturating_add(window::count(triggers)),
            saved: triggers.saved.load(Relaxed),
            failed: triggers.failed.load(Relaxed),
            replaced: triggers.replaced.load(Relaxed),
        }
    }
}

/// Carries out the requests of other processes and the work of all sessions. The listener's thread
/// calls it.
pub(crate) fn round() {
    for session in super::shared::all() {
        let triggers = session.view().triggers();
        if let Some(request) = request(session) {
            let is_limited = (calls::calls().fire)(session, request.name());
            triggers.outcome.store(Request::outcome(request.number, is_limited), Release);
        }
        orders::carry_out(session, &mut |pattern, outcome| {
            (calls::calls().ordered)(session, pattern, outcome)
        });
        if is_wanted(session.view(), triggers, false) {
            let Some(_one) = saving() else { return };
            work(session, false, &mut |done| (calls::calls().saved)(session, done));
        }
    }
}

/// Returns the nanoseconds until the next window of a trigger ends; none if no trigger waits for
/// that.
pub(crate) fn until_next() -> Option<u64> {
    let of = |session: &'static SessionShared| {
        window::remaining(session.view(), session.view().triggers())
    };
    super::shared::all().filter_map(of).min()
}

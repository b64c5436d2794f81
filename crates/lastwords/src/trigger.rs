//! Triggers: what an application calls where something went wrong, so that the moments before are
//! kept.

use std::sync::atomic::Ordering::Relaxed;

use crate::process::{cut, cut_len};
use crate::record::callsite;
use crate::record::dispatch::record_to;
use crate::record::encode::Values as _;
use crate::record::filter::Answer;
use crate::session::action::Action;
use crate::session::extra::Fired;
use crate::session::orders;
use crate::session::outcome::{Done, Outcome};
use crate::session::shared::{self, MAX_SESSIONS, SessionShared};
use crate::session::trigger::{Decision, NAME_LEN, Place, act, decide, plain};

crate::__site!(
    ("lastwords"),
    "trigger",
    "",
    WARN,
    ["name", "cause", "leads_to", "snapshot", "limited"]
);

/// Name, cause, what it leads to, the number of the snapshot, and triggers that were limited since
/// the last event.
type Payload<'a> = (&'a str, &'a str, &'a str, u32, u32);

/// Fires a trigger in all sessions of this process: takes a snapshot of each that has snapshots
/// enabled ([`Builder::snapshot`](crate::Builder::snapshot)). What was recorded before the call is
/// kept, and recording goes on.
///
/// ```
/// fn answer(took: std::time::Duration) {
///     if took > std::time::Duration::from_secs(1) {
///         lastwords::trigger("slow request");
///     }
/// }
/// # answer(std::time::Duration::ZERO);
/// ```
///
/// Each call records an event `lastwords:trigger` of level WARN, with the name (at most 64 bytes of
/// it), the cause `call`, what it leads to, and the number of the snapshot. It is the last event
/// before the swap. The session's thread saves the snapshot as a session of its own,
/// `NAME.snapshot-N-UUID` in the same folder, and frees its rings for the next one. It
/// records `lastwords:saved`, or `lastwords:not_saved` with the error. A trigger that fires before
/// the last snapshot is saved waits: its snapshot is taken as soon as that is done, and has all
/// that the rings still have then.
///
/// Snapshots are limited ([`Builder::trigger_limit`](crate::Builder::trigger_limit)); triggers that
/// share one count once. A trigger above the limit takes none; its event says `limited`, and the
/// next event that is not limited has the number of those.
///
/// May be called from every thread. It takes the session's snapshot lock and calls the system, for
/// some tens of microseconds to milliseconds. In a signal handler, or where signals are blocked, it
/// only records the event and wakes the session's thread, which takes the snapshot: that is
/// async-signal-safe. Without that thread ([`Builder::listen`](crate::Builder::listen)) such a
/// trigger takes none, and no snapshot is saved.
pub fn trigger(name: &str) {
    let mut decisions = [const { None }; MAX_SESSIONS];
    for (place, session) in decisions.iter_mut().zip(shared::all()) {
        *place = Some(decide(session, Place::Call));
    }
    fire(&decisions, name, "call");
}

/// Records the event of a trigger in the sessions for which it was decided, and does what was
/// decided.
fn fire(decisions: &[Option<Decision>], name: &str, cause: &str) {
    let name = cut(name, NAME_LEN);
    let decision = |session: &SessionShared| {
        decisions.iter().flatten().find(|decision| std::ptr::eq(decision.session, session))
    };
    let payload = |session| -> Option<Payload<'_>> {
        let Decision { session, outcome, limited, .. } = decision(session)?;
        let taken = session.view().control().snapshots.load(Relaxed);
        let snapshot = if *outcome == Outcome::Snapshot { taken.wrapping_add(1) } else { 0 };
        Some((name, cause, outcome.word(), snapshot, *limited))
    };
    callsite::prime::<__LwSite, Payload<'_>>(&__LW_CALLSITE);
    if let Some(desc) = __LW_CALLSITE.desc() {
        __LW_CALLSITE.each_slot(
            desc,
            &mut |question, slot| match payload(slot.session) {
                Some(payload) => question.answer(slot, &payload),
                None => Answer::Passes(false),
            },
            &mut |slot, id| {
                if let Some(payload) = payload(slot.session) {
                    record_to(slot, id, payload.again());
                }
            },
        );
    }
    decisions.iter().flatten().copied().for_each(act);
}

/// Fires a trigger that another process asks for in one session. Returns true if the limit leaves
/// it without a snapshot.
pub(crate) fn fire_for_another(session: &'static SessionShared, name: &[u8]) -> bool {
    let name = str::from_utf8(name).unwrap_or("a name that is not UTF-8");
    let decision = decide(session, Place::Call);
    fire(&[Some(decision)], name, "command");
    decision.outcome == Outcome::Limited
}

/// Fires a trigger for an event that fulfils a condition of its session. The trigger has the name
/// of the event.
pub(crate) fn fire_for_event(session: &'static SessionShared, event: &'static [u8], fired: Fired) {
    let decision = match fired.action {
        action if action.is_order() => return orders::ask(session.view(), &fired),
        _ if !fired.take(session.view()) => return,
        Action::Stop => plain(session, Outcome::Stop),
        _ => decide(session, Place::Event(fired)),
    };
    let len = cut_len(event, NAME_LEN);
    fire(&[Some(decision)], str::from_utf8(&event[..len]).unwrap_or_default(), "event");
}

/// Records that the session's thread carried out the action of a condition. The trigger has the
/// condition's glob for a name.
pub(crate) fn report_order(session: &'static SessionShared, pattern: &str, outcome: Outcome) {
    fire(&[Some(plain(session, outcome))], pattern, "event");
}

/// Records what became of the snapshot of a trigger.
pub(crate) fn report(_: &'static SessionShared, done: Done) {
    match done {
        Done::Saved { folder, snapshot, removed } => {
            crate::event!(lastwords, "saved", snapshot, folder, removed);
        }
        Done::Failed { snapshot, error } => {
            crate::event!(lastwords, "not_saved", level: ERROR, snapshot, error = %error);
        }
    }
}

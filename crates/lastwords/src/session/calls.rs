//! The functions of the layers above that sessions call.

use std::sync::OnceLock;

use crate::session::extra::Fired;
use crate::session::outcome::{Done, Outcome};
use crate::session::shared::SessionShared;

/// The functions of the layers above that sessions call.
#[derive(Debug)]
pub(crate) struct Calls {
    /// Called before the callsites are evaluated again, without a lock.
    pub(crate) before: fn(),
    /// Called before that by the listener's thread, and each second, to map channels that were
    /// created.
    pub(crate) attach: fn(),
    /// Called after a change of rules, channels or sessions, to evaluate the callsites again.
    pub(crate) changed: fn(),
    /// Called after the callsites were evaluated again, under their lock.
    pub(crate) after: fn(),
    /// Called in each round of the thread, once a second at least.
    pub(crate) each_round: fn(),
    /// Called for a trigger that another process asks for, with its name. Returns true if the
    /// limit leaves it without a snapshot.
    pub(crate) fire: fn(&'static SessionShared, &[u8]) -> bool,
    /// Called in the recording thread for an event that fulfils a condition, with the event's
    /// name. Async-signal-safe.
    pub(crate) fulfilled: fn(&'static SessionShared, &'static [u8], Fired),
    /// Called when the thread has carried out the action of a condition, with its glob.
    pub(crate) ordered: fn(&'static SessionShared, &str, Outcome),
    /// Called when the snapshot of a trigger was saved, or could not be saved.
    pub(crate) saved: fn(&'static SessionShared, Done),
    /// Called if there is no thread, also in forked children: every event must call [`poll`](super::listener::poll) from
    /// now on.
    pub(crate) watch: fn(),
}

/// The functions. They are written at the start of the first session, before any is called.
static CALLS: OnceLock<Calls> = OnceLock::new();

const NO_CALLS: Calls = Calls {
    before: || (),
    attach: || (),
    changed: || (),
    after: || (),
    each_round: || (),
    fire: |_, _| false,
    fulfilled: |_, _, _| (),
    ordered: |_, _, _| (),
    saved: |_, _| (),
    watch: || (),
};

/// Sets the functions. The first ones stay; each start of a session sets the same.
pub(crate) fn set_calls(calls: Calls) {
    let _ = CALLS.set(calls);
}

/// Returns the functions, which do nothing before the first session.
pub(crate) fn calls() -> &'static Calls {
    CALLS.get().unwrap_or(&NO_CALLS)
}

//! The application's handle on a session: it controls the session, and dropping it ends the session.

use std::path::Path;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use lastwords_abi::session::{BACKEND_HEAP, BACKEND_MEMFD, ENDING_ERROR, SCOPE_USER};

use crate::record::{callsite, slot};
use crate::session::dirs::Base;
use crate::session::rules::RuleSpec;
use crate::session::shared::{self, GOES, GOES_AT_ONCE, STAYS, SessionShared};
use crate::session::snapshot::{self, Rings, SnapshotReader};
use crate::session::{Builder, Ending, Error, ending, give_back, listener, processes, remove};

/// A session that this process records in.
///
/// Dropping it ends it; where this process has joined the same session of its user more than once, dropping the last. What was
/// recorded stays, marked with how and when it ended, until [`Retention`](crate::Retention) removes it in favour of newer
/// sessions, or [`Session::remove`] or `lastwords destroy` does at once. The memory of a heap or memfd session goes with its
/// end. While others record in the session, forked children or other processes of a user, it goes on for them.
#[derive(Debug)]
#[must_use = "a session that is dropped ends"]
pub struct Session {
    /// What it records in; or its name, and why it records nothing.
    session: Result<&'static SessionShared, Box<(String, Error)>>,
    pub(crate) note: String,
}

impl Session {
    /// Configures a session of that name: 1 to 47 letters, digits, `.`, `_`, `-`.
    pub fn builder(name: impl Into<String>) -> Builder {
        Builder::new(name.into())
    }

    pub(crate) fn of(session: &'static SessionShared, remove_at_end: bool) -> Self {
        session.removal.fetch_max(if remove_at_end { GOES } else { STAYS }, Relaxed);
        Self { session: Ok(session), note: String::new() }
    }

    /// One that records nothing, for this reason.
    pub(crate) fn disabled(name: String, problem: Error) -> Self {
        let note = format!("disabled: {problem}");
        Self { session: Err(Box::new((name, problem))), note }
    }

    /// Why it records nothing, where [`Builder::start_or_disabled`] could not start it.
    #[must_use]
    pub fn problem(&self) -> Option<&Error> {
        self.session.as_ref().err().map(|disabled| &disabled.1)
    }

    /// The session; refused where it is disabled.
    fn shared(&self) -> Result<&'static SessionShared, Error> {
        let remedy = "remove the reason why it did not start";
        let refused = |why: &Error| Error::unsupported("a session that is disabled", why.to_string(), remedy);
        self.session.as_ref().copied().map_err(|disabled| refused(&disabled.1))
    }

    /// Name of the session.
    #[must_use]
    pub fn name(&self) -> String {
        self.session.as_ref().map_or_else(|disabled| disabled.0.clone(), |session| session.view().name())
    }

    /// Its folder, which `lastwords recover` takes. `None` for a heap session where no folder could be made, and for a disabled
    /// session.
    #[must_use]
    pub fn folder(&self) -> Option<&Path> {
        self.session.as_ref().ok()?.folder.as_ref().map(|folder| folder.path.as_path())
    }

    /// UUID of the session, which is that of its traces; zeroes for a disabled session.
    #[must_use]
    pub fn uuid(&self) -> [u8; 16] {
        self.session.as_ref().map_or([0; 16], |session| session.view().uuid)
    }

    /// How space is reserved, one of [`lastwords_abi::session`]'s `RESERVATION_`; 0 for a disabled session.
    #[must_use]
    pub fn reservation(&self) -> u32 {
        self.session.as_ref().map_or(0, |session| session.view().info.reservation)
    }

    /// What people should know of the session: what its memory is, what retention removed, how a session that was joined differs
    /// from what was asked for, why it is disabled.
    #[must_use]
    pub fn note(&self) -> &str {
        &self.note
    }

    /// Id of the channel of that name.
    #[must_use]
    pub fn channel(&self, name: &str) -> Option<u32> {
        self.session.as_ref().ok()?.regions.channel(name)
    }

    /// Enables events by a glob over `provider:name`, in all processes of the session.
    ///
    /// # Errors
    /// The list of rules is full or held.
    pub fn enable(&self, glob: &str) -> Result<(), Error> {
        self.rule(&RuleSpec::enable(glob))
    }

    /// Disables events by a glob over `provider:name`, in all processes of the session.
    ///
    /// # Errors
    /// The list of rules is full or held.
    pub fn disable(&self, glob: &str) -> Result<(), Error> {
        self.rule(&RuleSpec::disable(glob))
    }

    /// Adds a rule; the last that matches an event decides. Does nothing in a disabled session.
    ///
    /// # Errors
    /// The list of rules is full or held.
    pub fn rule(&self, rule: &RuleSpec) -> Result<(), Error> {
        let Ok(session) = &self.session else { return Ok(()) };
        session.regions.rule(rule)?;
        callsite::refresh_all();
        Ok(())
    }

    /// Stops recording, in all processes of the session.
    pub fn stop(&self) {
        self.set_recording(false);
    }

    /// Goes on recording.
    pub fn resume(&self) {
        self.set_recording(true);
    }

    fn set_recording(&self, on: bool) {
        let Ok(session) = &self.session else { return };
        session.regions.set_recording(None, on);
        callsite::refresh_all();
    }

    /// Makes a reader pass over all that was recorded until now.
    ///
    /// # Errors
    /// Someone else is changing snapshots; the session is disabled.
    pub fn clear(&self) -> Result<(), Error> {
        self.shared()?.regions.clear()
    }

    /// Allocates the spare of every ring, so that snapshots can be taken.
    ///
    /// # Errors
    /// No memory, or someone else is changing snapshots; the session is disabled.
    pub fn enable_snapshots(&self) -> Result<(), Error> {
        self.shared()?.regions.enable_snapshots()
    }

    /// Frees the spares, and the snapshot in them.
    ///
    /// # Errors
    /// The snapshot is being read, or a thread is still recording in a spare; the session is disabled.
    pub fn disable_snapshots(&self) -> Result<(), Error> {
        self.shared()?.regions.disable_snapshots()
    }

    /// Takes a snapshot of those rings: swaps live and spare while recording goes on.
    ///
    /// # Errors
    /// There are no such rings; snapshots are not enabled, or one is being read; the session is disabled.
    pub fn snapshot(&self, rings: Rings) -> Result<snapshot::Taken, Error> {
        self.shared()?.regions.snapshot(rings)
    }

    /// Marks the snapshot as being read, so that none replaces it meanwhile.
    ///
    /// # Errors
    /// There is no snapshot, or another process reads it; the session is disabled.
    pub fn read_snapshot(&self) -> Result<SnapshotReader<'_>, Error> {
        self.shared()?.regions.read_snapshot()
    }

    /// Ends the session now, as dropping it does.
    pub fn close(self) {
        drop(self);
    }

    /// Ends the session with the result of what it recorded, and passes the result on: an error is marked as how the session
    /// ended. For a `main` that returns the result.
    ///
    /// # Errors
    /// The error that it was given.
    pub fn finish<T, E>(self, result: Result<T, E>) -> Result<T, E> {
        if let (Err(_), Ok(session)) = (&result, &self.session) {
            ending::mark(session.view(), Ending::Error);
        }
        result
    }

    /// Ends the session and removes all that it recorded, unless another process records in it or died in it.
    pub fn remove(self) {
        if let Ok(session) = &self.session {
            session.removal.store(GOES_AT_ONCE, Relaxed);
        }
    }
}

impl Drop for Session {
    /// Ends the session for this process: with what is known of its end, and with all its files where they are not to stay.
    fn drop(&mut self) {
        let Ok(session) = self.session else { return };
        let control = session.view().control();
        // The error of another process is not the end of this one.
        let is_error = control.ending.load(Acquire) & 0xff == ENDING_ERROR;
        let failed = is_error && control.ended_by.load(Relaxed) == std::process::id();
        let how = match std::thread::panicking() {
            true => Ending::Panic,
            false if failed => Ending::Error,
            false => Ending::Closed(None),
        };
        let in_good_order = how == Ending::Closed(None) && control.panics.load(Acquire) == 0;
        let goes_from = if in_good_order { GOES } else { GOES_AT_ONCE };
        close(session, how, session.removal.load(Relaxed) >= goes_from);
    }
}

/// Takes the session away from this process; where no other has it, it has ended.
fn close(session: &'static SessionShared, how: Ending, unwanted: bool) {
    let view = session.view();
    // Nobody joins between the look at the tables and the removal.
    let shared = session.folder.as_ref().filter(|_| view.info.scope == SCOPE_USER);
    let lock = shared.and_then(|folder| Base::open(folder.path.parent()?).ok()?.lock().ok());
    if session.handles.fetch_sub(1, AcqRel) > 1 {
        return;
    }
    slot::remove(session);
    processes::leave(view.processes());
    let is_left = processes::is_left(view);
    if is_left || ending::is_ours(view) {
        ending::mark(view, how);
    }
    if is_left {
        let control = view.control();
        // One that a panic ended is joined again where it is a user's, and goes on recording.
        if how != Ending::Panic {
            control.recording.store(0, Release);
            control.finished.store(1, Release);
            view.announce();
        }
        let is_lost = matches!(view.info.backend, BACKEND_HEAP | BACKEND_MEMFD) && how != Ending::Panic;
        match unwanted || is_lost {
            true => remove(session),
            false => ending::remember(session),
        }
    }
    drop(lock);
    // Listed until its files are no longer mapped: the handler of lost memory looks for the session there.
    give_back(session);
    shared::withdraw(session);
    listener::tell();
}

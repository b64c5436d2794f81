//! The application's handle on a session: it controls the session, and dropping it ends the
//! session.

use std::path::Path;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use lastwords_abi::session::{BACKEND_HEAP, BACKEND_MEMFD, ENDING_ERROR, SCOPE_USER};

use crate::record::{attach, callsite, slot};
use crate::session::dirs::Base;
use crate::session::rules::RuleSpec;
use crate::session::shared::{self, GOES, GOES_AT_ONCE, STAYS, SessionShared};
use crate::session::snapshot::{self, Rings, SnapshotReader};
use crate::session::trigger;
use crate::session::{
    Builder, ChannelConfig, Ending, Error, ending, give_back, guard, listener, processes, remove,
    retired,
};

/// A session that this process records in.
///
/// Dropping it ends the session. If this process has joined the same session of its user more than
/// once, dropping the last handle does. The recording stays, with how and when it ended, until
/// [`Retention`](crate::Retention) removes it in favour of newer sessions, or [`Session::remove`]
/// or `lastwords destroy` removes it at once. The memory of a heap or memfd session is freed when
/// the session ends. While others record in the session, forked children or other processes of a
/// user, the session continues for them.
#[derive(Debug)]
#[must_use = "a session that is dropped ends"]
pub struct Session {
    /// The session; or its name and the reason why it records nothing.
    session: Result<&'static SessionShared, Box<(String, Error)>>,
    pub(crate) note: String,
}

impl Session {
    /// Configures a session of this name: 1 to 47 letters, digits, `.`, `_`, `-`.
    pub fn builder(name: impl Into<String>) -> Builder {
        Builder::new(name.into())
    }

    pub(crate) fn new(session: &'static SessionShared, remove_at_end: bool) -> Self {
        session.removal.fetch_max(if remove_at_end { GOES } else { STAYS }, Relaxed);
        Self { session: Ok(session), note: String::new() }
    }

    /// Makes a session that records nothing, for this reason.
    pub(crate) fn disabled(name: String, problem: Error) -> Self {
        let note = format!("disabled: {problem}");
        Self { session: Err(Box::new((name, problem))), note }
    }

    /// Returns why the session records nothing, if [`Builder::start_or_disabled`] could not start
    /// it.
    #[must_use]
    pub fn problem(&self) -> Option<&Error> {
        self.session.as_ref().err().map(|disabled| &disabled.1)
    }

    /// Returns the session, or an error if it is disabled.
    fn shared(&self) -> Result<&'static SessionShared, Error> {
        let remedy = "remove the reason why it did not start";
        let refused =
            |why: &Error| Error::unsupported("a session that is disabled", why.to_string(), remedy);
        self.session.as_ref().copied().map_err(|disabled| refused(&disabled.1))
    }

    /// Returns the name of the session.
    #[must_use]
    pub fn name(&self) -> String {
        self.session
            .as_ref()
            .map_or_else(|disabled| disabled.0.clone(), |session| session.view().name())
    }

    /// Returns the folder of the session, which `lastwords recover` reads. Returns `None` for a
    /// heap session whose folder could not be created, and for a disabled session.
    #[must_use]
    pub fn folder(&self) -> Option<&Path> {
        self.session.as_ref().ok()?.folder.as_ref().map(|folder| folder.path.as_path())
    }

    /// Returns the UUID of the session, which is also that of its traces; zeroes for a disabled
    /// session.
    #[must_use]
    pub fn uuid(&self) -> [u8; 16] {
        self.session.as_ref().map_or([0; 16], |session| session.view().uuid)
    }

    /// Returns the reservation, a `RESERVATION_` constant of [`lastwords_abi::session`]; 0 for a
    /// disabled session.
    #[must_use]
    pub fn reservation(&self) -> u32 {
        self.session.as_ref().map_or(0, |session| session.view().info.reservation)
    }

    /// Returns notes about the session for people: what its memory is, what retention removed, how
    /// a session that was joined differs from the request, why it is disabled.
    #[must_use]
    pub fn note(&self) -> &str {
        &self.note
    }

    /// Returns the id of the channel of this name.
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

    /// Adds a rule. The last rule that matches an event decides. Does nothing in a disabled
    /// session.
    ///
    /// # Errors
    /// The list of rules is full or held.
    pub fn rule(&self, rule: &RuleSpec) -> Result<(), Error> {
        let Ok(session) = &self.session else { return Ok(()) };
        session.regions.rule(rule)?;
        callsite::refresh_all();
        Ok(())
    }

    /// Creates a channel while the session records, in all its processes, and returns the channel's
    /// id. Each process maps the channel within milliseconds; until then, it counts the events that
    /// the rules send there as lost.
    ///
    /// With a `filter`, the channel takes from now on all events for which the expression is true
    /// (docs/FILTER.md). With a level ([`ChannelConfig::max_level`]), it takes such events as the
    /// session's rules enable. With neither it takes nothing until a rule sends events there.
    ///
    /// ```
    /// use lastwords::{ChannelConfig, Session, rules::RuleSpec};
    ///
    /// let session = Session::builder("doc-create-channel").start()?;
    /// let slow = session.create_channel(&ChannelConfig::new("slow").sub_buffers(4, 64 << 10), None)?;
    /// session.rule(&RuleSpec::enable("shop:payment").in_channel(slow))?;
    /// # session.remove();
    /// # Ok::<(), lastwords::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Exists`] if the session has a channel of this name. [`Error::Unsupported`] if its
    /// memory is not shared-memory files, if a process of an older version records in it, if the
    /// channel has contexts of the application's own, or if the session is
    /// disabled. [`Error::Full`] if there are 32 channels, 64 rules, or 32 recorder slots of this
    /// process. [`Error::Backend`] if the file system has no room for the rings. Nothing has
    /// changed then.
    pub fn create_channel(
        &self,
        channel: &ChannelConfig,
        filter: Option<&str>,
    ) -> Result<u32, Error> {
        let session = self.shared()?;
        attach::check_free()?;
        let none = || {
            Error::unsupported(
                "a channel in a session that records",
                "it has no folder",
                "use shared memory",
            )
        };
        let folder = session.folder.as_ref().ok_or_else(none)?;
        let id = session.regions.create_channel(folder, channel, filter)?;
        attach::attach(session)?;
        Ok(id)
    }

    /// Stops recording, in all processes of the session.
    pub fn stop(&self) {
        self.set_recording(false);
    }

    /// Continues recording.
    pub fn resume(&self) {
        self.set_recording(true);
    }

    fn set_recording(&self, on: bool) {
        let Ok(session) = &self.session else { return };
        session.regions.set_recording(None, on);
        callsite::refresh_all();
    }

    /// Makes readers skip everything that was recorded until now.
    ///
    /// # Errors
    /// Another process or thread is changing snapshots, or the session is disabled.
    pub fn clear(&self) -> Result<(), Error> {
        self.shared()?.regions.clear()
    }

    /// Allocates the spare of every ring, so that snapshots can be taken.
    ///
    /// # Errors
    /// There is no memory, another process or thread is changing snapshots, or the session is
    /// disabled.
    pub fn enable_snapshots(&self) -> Result<(), Error> {
        self.shared()?.regions.enable_snapshots()
    }

    /// Frees the spares, and the snapshot in them.
    ///
    /// # Errors
    /// The snapshot is being read, a thread is still recording in a spare, or the session is
    /// disabled.
    pub fn disable_snapshots(&self) -> Result<(), Error> {
        self.shared()?.regions.disable_snapshots()
    }

    /// Takes a snapshot of the rings: swaps live and spare halves while recording continues.
    ///
    /// # Errors
    /// There are no such rings, snapshots are not enabled, a snapshot is being read, or the session
    /// is disabled.
    pub fn snapshot(&self, rings: Rings) -> Result<snapshot::Taken, Error> {
        self.shared()?.regions.snapshot(rings)
    }

    /// Marks the snapshot as being read, so that no other snapshot replaces it meanwhile.
    ///
    /// # Errors
    /// There is no snapshot, another process reads it, or the session is disabled.
    pub fn read_snapshot(&self) -> Result<SnapshotReader<'_>, Error> {
        self.shared()?.regions.read_snapshot()
    }

    /// Ends the session now, in the same way as dropping it.
    pub fn close(self) {
        drop(self);
    }

    /// Ends the session and returns `result`. If `result` is an error, the session is marked as
    /// ended by an error. This is for a `main` that returns the result.
    ///
    /// # Errors
    /// The error in `result`.
    pub fn finish<T, E>(self, result: Result<T, E>) -> Result<T, E> {
        if let (Err(_), Ok(session)) = (&result, &self.session) {
            ending::mark(session.view(), Ending::Error);
        }
        result
    }

    /// Ends the session and removes its recording, unless another process records in it or died in
    /// it.
    pub fn remove(self) {
        if let Ok(session) = &self.session {
            session.removal.store(GOES_AT_ONCE, Relaxed);
        }
    }
}

impl Drop for Session {
    /// Ends the session for this process. Writes what is known of the end, and removes the files if
    /// they are not to stay.
    fn drop(&mut self) {
        let Ok(session) = self.session else { return };
        let control = session.view().control();
        // An error that another process noted is not the end of this process.
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

/// Takes the session away from this process. If no other process has it, it has ended.
fn close(session: &'static SessionShared, how: Ending, unwanted: bool) {
    let view = session.view();
    // The lock keeps other processes from joining between the look at the tables and the removal.
    let shared = session.folder.as_ref().filter(|_| view.info.scope == SCOPE_USER);
    let lock = shared.and_then(|folder| Base::open(folder.path.parent()?).ok()?.lock().ok());
    if session.handles.fetch_sub(1, AcqRel) > 1 {
        return;
    }
    // The thread that saves snapshots is not waited for later.
    let saving = trigger::saving();
    if saving.is_some() {
        trigger::work(session, true, &mut |done| crate::trigger::report(session, done));
    }
    let slots = attach::remove(session);
    guard::release(session);
    processes::leave(session);
    let is_left = processes::is_left(view);
    if is_left || ending::is_ours(view) {
        ending::mark(view, how);
    }
    if is_left {
        let control = view.control();
        // A user's session that a panic ended can be joined again, so recording is not switched off
        // there.
        if how != Ending::Panic {
            control.recording.store(0, Release);
            control.finished.store(1, Release);
            view.announce();
        }
        let is_lost =
            matches!(view.info.backend, BACKEND_HEAP | BACKEND_MEMFD) && how != Ending::Panic;
        match unwanted || is_lost {
            true => remove(session),
            false => ending::remember(session),
        }
    }
    drop(lock);
    drop(saving);
    // The session stays listed until its files are no longer mapped, because the handler of lost
    // memory looks for it in the list.
    give_back(session);
    shared::withdraw(session);
    listener::tell();
    // A session whose slots are still listed is kept.
    if let Some(slots) = slots {
        // SAFETY: `retire` calls the function when no thread can use the session or its slots any
        // more.
        let free = move || slots.into_iter().for_each(|slot| unsafe { slot::free(slot) });
        retired::retire(session, Box::new(free));
    }
}

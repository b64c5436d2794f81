//! Starts a session: creates or joins it, and makes callsites record in it.

use std::sync::OnceLock;

use lastwords_abi::session::MAX_CHANNELS;
use lastwords_ring::{forks, grow};

use crate::crash;
use crate::handle::Session;
use crate::process::say;
use crate::record::{attach, callsite};
use crate::session::builder::Builder;
use crate::session::config::{ChannelConfig, Memory, Scope, check_name};
use crate::session::create::create;
use crate::session::dirs::{self, Base};
use crate::session::join::{check_contexts, find, join, note, ours};
use crate::session::shared::{self, SessionShared};
use crate::session::{
    Error, calls, ending, environment, hidden, listener, lost_memory, processes, room,
};

/// Counters and histograms for which a session of [`start`] has room.
const COUNTERS: u32 = 256;
const HISTOGRAMS: u32 = 16;

/// Records this program from now on until the process ends, however it ends. One call does what
/// most programs need:
///
/// - It starts a session of this name, as [`Builder::start_or_disabled`] does. If that fails, the
///   program goes on without recording, and a line on stderr says why.
/// - It records panics ([`crash::install_panic_hook`]) and the signals that kill
///   ([`crash::install_default_signal_handlers`]) with their backtraces. Hooks and handlers that
///   were installed before are called afterwards, and those that are installed later may call ours.
/// - It records the events and spans of `tracing`, if the program has no subscriber and no logger
///   when it reaches the first of them. A subscriber of the program is never replaced: give it
///   [`layer()`](fn@crate::layer), before or after this call. If it lacks the layer, a line on
///   stderr says so.
///
/// The session stays open until the process ends. What the function returns need not be kept. A
/// second call returns the first session.
///
/// ```no_run
/// # #[cfg(feature = "tracing")] {
/// use tracing_subscriber::{layer::SubscriberExt as _, util::SubscriberInitExt as _};
///
/// lastwords::start("shop");
/// tracing_subscriber::registry()
///     // .with(tracing_subscriber::fmt::layer()), as before
///     .with(lastwords::layer())
///     .init();
/// # }
/// ```
///
/// A program that uses [`event!`](crate::event) alone needs the first line only.
///
/// # Errors
/// There are none. [`Session::problem`] returns why nothing is recorded, if that is so.
pub fn start(name: impl Into<String>) -> &'static Session {
    static FIRST: OnceLock<Session> = OnceLock::new();
    FIRST.get_or_init(|| {
        let session = start_without_tracing(name.into());
        #[cfg(feature = "tracing")]
        if session.problem().is_none() {
            crate::layer::adopt();
        }
        session
    })
}

/// Does what [`start`] does, except for `tracing`. A library for C does not contain the layer,
/// which takes static thread-local storage. The caller keeps the session for ever.
#[doc(hidden)]
pub fn start_without_tracing(name: String) -> Session {
    let builder = Session::builder(name).counters(COUNTERS).histograms(HISTOGRAMS);
    let session = builder.start_or_disabled();
    if let Some(problem) = session.problem() {
        say(format_args!("{} is not recorded: {problem}", session.name()));
        return session;
    }
    crash::install_panic_hook();
    if let Err(error) = crash::install_default_signal_handlers() {
        say(format_args!("signals are not recorded: {error}"));
    }
    session
}

/// Makes all events look for changes, also those that no session wants, because no thread does.
fn watch() {
    callsite::watch_all();
    #[cfg(feature = "tracing")]
    crate::layer::watch();
}

/// Does what the listener's thread does for the layer in each of its rounds.
fn each_round() {
    #[cfg(feature = "tracing")]
    crate::record::spans::look_for_dead();
    #[cfg(feature = "tracing")]
    crate::layer::renew();
}

/// The functions of the layers above that sessions call.
const CALLS: calls::Calls = calls::Calls {
    before: crate::crash::note_modules,
    attach: attach::attach_all,
    changed: callsite::refresh_all,
    #[cfg(feature = "tracing")]
    after: crate::layer::refresh,
    #[cfg(not(feature = "tracing"))]
    after: || (),
    each_round,
    fire: crate::trigger::fire_for_another,
    fulfilled: crate::trigger::fire_for_event,
    ordered: crate::trigger::report_order,
    saved: crate::trigger::report,
    watch,
};

impl Builder {
    /// Starts the session as [`Builder::start`] does. If that fails, the application continues
    /// without a session: the returned session records nothing, events cost what disabled ones do,
    /// and [`Session::problem`] and [`Session::note`] give the reason.
    pub fn start_or_disabled(self) -> Session {
        let name = self.name.clone();
        self.start().unwrap_or_else(|error| Session::disabled(name, error))
    }

    /// Starts the session, or joins the session of the user if it exists already. A joined session
    /// keeps its configuration, except that snapshots are enabled if they are requested.
    /// [`Session::note`] lists the other differences.
    ///
    /// # Errors
    /// A name, geometry or size is not valid, a folder cannot be created or trusted, or there is
    /// not enough memory.
    pub fn start(mut self) -> Result<Session, Error> {
        calls::set_calls(CALLS);
        let problems = environment::apply(&mut self);
        check_name(&self.name)?;
        let channels = self.channels();
        if channels.len() > MAX_CHANNELS {
            return Err(Error::Full {
                what: "channel",
                limit: MAX_CHANNELS,
                remedy: "use fewer channels",
            });
        }
        let twice =
            |c: &&ChannelConfig| channels.iter().filter(|other| other.name == c.name).count() > 1;
        if let Some(channel) = channels.iter().find(twice) {
            return Err(Error::Name { name: channel.name.clone(), why: "two channels have it" });
        }
        if hidden::add(&self) {
            // Callsites hide the fields before the session gets events.
            callsite::refresh_all();
        }
        lost_memory::watch();
        forks::call_in_child(processes::in_child);
        ending::watch_exit();
        let (shared, is_new, made) = self.join_or_create()?;
        let is_made = made.is_some();
        let mut session = Session::new(shared, self.remove_at_end);
        match self.enter(shared, is_new, made) {
            Ok(note) => session.note = [vec![note], problems].concat().join("; "),
            Err(error) => {
                // If the session was joined, the recordings of others stay.
                if is_made {
                    session.remove();
                }
                return Err(error);
            }
        }
        Ok(session)
    }

    /// Makes callsites record in the session, if it is new to this process. Returns notes for
    /// people.
    fn enter(
        &self,
        session: &'static SessionShared,
        is_new: bool,
        made: Option<String>,
    ) -> Result<String, Error> {
        shared::check_listed(session)?;
        let regions = &session.regions;
        grow::watch_room(regions.view.mapping.free());
        let contexts = |channel: &str| {
            let configs = self.channels.iter().filter(|config| config.name == channel);
            configs.flat_map(|config| config.user_contexts.clone()).collect()
        };
        let note = made.map_or_else(|| note(self, regions), Ok)?;
        check_contexts(regions, contexts)?;
        if self.snapshot {
            regions.enable_snapshots()?;
        }
        if is_new {
            attach::install(session, contexts)?;
            // A channel may have been created since the session was mapped. The session's thread
            // tries again.
            drop(attach::attach(session));
        }
        if is_new && self.listen {
            listener::start();
        }
        Ok(note)
    }

    /// Returns the session for this process, and whether it is new to the process. If the process
    /// created the session now, it also returns notes for people.
    fn join_or_create(&mut self) -> Result<(&'static SessionShared, bool, Option<String>), Error> {
        let path = self.dir.clone().unwrap_or_else(dirs::base_path);
        let base = match Base::make(&path) {
            Ok(base) => Some(base),
            // A heap session needs the folder only to be listed.
            Err(_) if self.memory == Memory::Heap => None,
            Err(error) => return Err(error),
        };
        let shares = base.as_ref().filter(|_| self.scope == Scope::User);
        // The lock is held until the session is listed, because another thread of this process may
        // look for it, too.
        let _lock = shares.map(Base::lock).transpose()?;
        if let Some(folder) = shares.map(|base| find(base, &self.name)).transpose()?.flatten() {
            return match ours(&folder) {
                Some(session) => Ok((session, false, None)),
                None => {
                    room::look(None).join();
                    Ok((shared::publish(join(folder)?), true, None))
                }
            };
        }
        let (session, note) = create(self, base.as_ref(), shares.is_some())?;
        Ok((shared::publish(session), true, Some(note)))
    }
}

//! The start of a session: it is made or joined, and callsites begin to record in it.

use lastwords_abi::session::MAX_CHANNELS;
use lastwords_ring::os;

use crate::handle::{Session, close};
use crate::record::{callsite, slot};
use crate::session::builder::Builder;
use crate::session::config::{ChannelConfig, Memory, Scope, check_name};
use crate::session::create::create;
use crate::session::dirs::{self, Base};
use crate::session::join::{check_contexts, find, join, note, ours};
use crate::session::shared::{self, SessionShared};
use crate::session::user_context::UserContext;
use crate::session::{Ending, Error, ending, environment, listener, lost_memory, processes};

/// No thread looks for changes: events do it, also those of which nothing is wanted.
fn watch() {
    callsite::watch_all();
    #[cfg(feature = "tracing")]
    crate::layer::watch();
}

/// What the sessions call in the layers above them.
const CALLS: listener::Calls = listener::Calls {
    before: crate::crash::note_modules,
    changed: callsite::refresh_all,
    #[cfg(feature = "tracing")]
    after: crate::layer::refresh,
    #[cfg(feature = "tracing")]
    each_second: crate::record::spans::look_for_dead,
    #[cfg(not(feature = "tracing"))]
    after: || (),
    #[cfg(not(feature = "tracing"))]
    each_second: || (),
    watch,
};

impl Builder {
    /// Begins the session as [`Builder::start`] does. Where it cannot be begun, the application goes on without: the session that
    /// is returned records nothing, events cost what disabled ones do, and [`Session::problem`] and [`Session::note`] say why.
    pub fn start_or_disabled(self) -> Session {
        let name = self.name.clone();
        self.start().unwrap_or_else(|error| Session::disabled(name, error))
    }

    /// Begins the session, or joins it where one of a user is there already. One that is joined stays as it was made, but that it
    /// has snapshots where they are asked for; [`Session::note`] says what else was asked for.
    ///
    /// # Errors
    /// A name, geometry or size that cannot be; a folder that cannot be made or trusted; memory that is not there.
    pub fn start(mut self) -> Result<Session, Error> {
        let problems = environment::apply(&mut self);
        let mut session = self.begin()?;
        if !problems.is_empty() {
            let separator = if session.note.is_empty() { "" } else { "; " };
            session.note.extend([separator, &problems]);
        }
        Ok(session)
    }

    fn begin(self) -> Result<Session, Error> {
        check_name(&self.name)?;
        let channels = self.channels();
        if channels.len() > MAX_CHANNELS {
            return Err(Error::Full { what: "channel", limit: MAX_CHANNELS, remedy: "use fewer channels" });
        }
        let twice = |c: &&ChannelConfig| channels.iter().filter(|other| other.name == c.name).count() > 1;
        if let Some(channel) = channels.iter().find(twice) {
            return Err(Error::Name { name: channel.name.clone(), why: "two channels have it" });
        }
        lost_memory::watch();
        os::call_in_child(processes::in_child);
        listener::set_calls(CALLS);
        ending::watch_exit();
        let (session, is_new) = self.join_or_create()?;
        if !is_new {
            return self.again(session);
        }
        if let Err(error) = self.install(session) {
            // What others recorded in it stays.
            close(session, Ending::Closed(None), session.view().info.creator_pid == std::process::id());
            return Err(error);
        }
        if self.listen {
            listener::start();
        }
        Ok(Session::of(session, session.note.clone(), self.remove_at_end))
    }

    fn install(&self, session: &'static SessionShared) -> Result<(), Error> {
        let contexts = |name: &str| self.contexts_of(name);
        shared::check_listed(session)?;
        check_contexts(&session.regions, contexts)?;
        slot::install(session, contexts)
    }

    /// One more handle of a session that this process records in already.
    fn again(&self, session: &'static SessionShared) -> Result<Session, Error> {
        let regions = &session.regions;
        let mut session = Session::of(session, String::new(), self.remove_at_end);
        session.note = note(self, regions)?;
        check_contexts(regions, |name| self.contexts_of(name))?;
        if self.snapshot {
            regions.enable_snapshots()?;
        }
        Ok(session)
    }

    fn contexts_of(&self, channel: &str) -> Vec<UserContext> {
        let channel = self.channels.iter().find(|config| config.name == channel);
        channel.map(|config| config.user_contexts.clone()).unwrap_or_default()
    }

    /// The session that this process is to record in, and whether it is new to the process.
    fn join_or_create(&self) -> Result<(&'static SessionShared, bool), Error> {
        let path = self.dir.clone().unwrap_or_else(dirs::base_path);
        let base = match Base::make(&path) {
            Ok(base) => base,
            // On the heap the folder is only there to be listed.
            Err(_) if self.memory == Memory::Heap => return Ok((shared::publish(create(self, None, false)?), true)),
            Err(error) => return Err(error),
        };
        if self.scope == Scope::Process {
            return Ok((shared::publish(create(self, Some(&base), false)?), true));
        }
        let _lock = base.lock()?;
        let session = match find(&base, &self.name)? {
            Some(folder) => match ours(&folder) {
                Some(session) => return Ok((session, false)),
                None => join(self, folder)?,
            },
            None => create(self, Some(&base), true)?,
        };
        // Before another thread of this process looks for it.
        Ok((shared::publish(session), true))
    }
}

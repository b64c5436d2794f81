//! What a session is asked to be, and its start.

use std::path::PathBuf;

use lastwords_abi::session::{MAX_CHANNELS, RESERVATION_LOCKED};
use lastwords_ring::{ClockKind, rseq_available};

use super::config::{ChannelConfig, Memory, Reservation, Scope, check_name};
use super::create::create;
use super::error::Error;
use super::join::{check_contexts, find, join, note, ours};
use super::shared::{self, MAX_SESSIONS, SessionShared};
use super::{Ending, Session, close};
use crate::record::context::{self, UserContext};
use crate::record::slot;
use crate::session::dirs::{self, Base};
use crate::session::listener;
use crate::session::processes;
use crate::session::snapshot;

/// Configures a session. [`Builder::start`] begins it.
#[derive(Debug, Clone)]
#[must_use]
pub struct Builder {
    pub(crate) name: String,
    /// What was asked for by name; [`Builder::channels`] has the default.
    pub(crate) channels: Vec<ChannelConfig>,
    pub(crate) memory: Memory,
    pub(crate) reservation: Option<Reservation>,
    pub(crate) clock: Option<ClockKind>,
    pub(crate) scope: Scope,
    dir: Option<PathBuf>,
    pub(crate) size_limit: u64,
    pub(crate) snapshot: bool,
    listen: bool,
    pub(crate) events: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) registry_len: u64,
    pub(crate) spans: u32,
    keep: bool,
}

impl Builder {
    pub(crate) fn new(name: String) -> Self {
        Self {
            name,
            channels: Vec::new(),
            memory: Memory::default(),
            reservation: None,
            clock: None,
            scope: Scope::default(),
            dir: None,
            size_limit: u64::MAX,
            snapshot: false,
            listen: true,
            events: Vec::new(),
            env: Vec::new(),
            registry_len: 512 << 10,
            spans: 512,
            keep: false,
        }
    }

    /// Adds a channel. Without any, the session has two: `main`, and [`ChannelConfig::errors`] for warnings and errors besides.
    pub fn channel(mut self, channel: ChannelConfig) -> Self {
        self.channels.push(channel);
        self
    }

    /// Adds the channel [`ChannelConfig::errors`] to those that were added, or keeps it in the default.
    pub fn errors_channel(mut self) -> Self {
        self.channels = self.channels();
        if self.channels.iter().any(|channel| channel.name == "errors") {
            return self;
        }
        self.channel(ChannelConfig::errors())
    }

    /// Where the memory comes from. Default: shared-memory files.
    pub fn backend(mut self, memory: Memory) -> Self {
        self.memory = memory;
        self
    }

    /// How space is reserved. Default: the fastest that works; the lock in persistent memory.
    pub fn reservation(mut self, reservation: Reservation) -> Self {
        self.reservation = Some(reservation);
        self
    }

    /// The clock. Default: the CPU's counter where it is sound, else CLOCK_MONOTONIC.
    pub fn clock(mut self, clock: ClockKind) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Who records in it.
    pub fn scope(mut self, scope: Scope) -> Self {
        self.scope = scope;
        self
    }

    /// The folder of sessions. Default: [`dirs::base_path`].
    pub fn dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.dir = Some(dir.into());
        self
    }

    /// Most memory that the session may take, bytes. More is an error at the start.
    pub fn size_limit(mut self, bytes: u64) -> Self {
        self.size_limit = bytes;
        self
    }

    /// Allocates the spare for snapshots from the start.
    pub fn snapshot(mut self, on: bool) -> Self {
        self.snapshot = on;
        self
    }

    /// Whether a thread waits for changes by other processes, and once a second keeps the clock's calibration fresh. Default: yes.
    pub fn listen(mut self, on: bool) -> Self {
        self.listen = on;
        self
    }

    /// Enables events by a glob over `provider:name`; those of no glob are disabled. Without any, all are enabled.
    pub fn events(mut self, glob: impl Into<String>) -> Self {
        self.events.push(glob.into());
        self
    }

    /// A property of the trace, such as a version.
    pub fn env(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.push((key.into(), value.into()));
        self
    }

    /// Bytes for descriptions of events. Default: 512 KiB.
    pub fn registry_size(mut self, bytes: u64) -> Self {
        self.registry_len = bytes.clamp(4096, 1 << 30);
        self
    }

    /// Most spans that can be listed as open at a time; 0 for no table. Default: 512.
    pub fn spans(mut self, most: u32) -> Self {
        self.spans = most.min(1 << 20);
        self
    }

    /// Leaves the session's folder behind when the session is closed.
    pub fn keep(mut self, on: bool) -> Self {
        self.keep = on;
        self
    }

    pub(crate) fn channels(&self) -> Vec<ChannelConfig> {
        if self.channels.is_empty() {
            return vec![ChannelConfig::new("main"), ChannelConfig::errors()];
        }
        self.channels.clone()
    }

    /// The reservation's code; the default where none was asked for.
    pub(crate) fn reservation_code(&self, persistent: bool) -> Result<u32, Error> {
        match self.reservation {
            Some(Reservation::Rseq) if !rseq_available() => Err(Error::Unsupported {
                what: "reservation rseq",
                why: "restartable sequences are not registered for this thread".to_owned(),
                remedy: "use glibc 2.35 or newer without GLIBC_TUNABLES=glibc.pthread.rseq=0, or choose lockless",
            }),
            Some(Reservation::Rseq) if persistent => Err(Error::Unsupported {
                what: "reservation rseq",
                why: "it does not flush persistent memory".to_owned(),
                remedy: "choose locked or lockless",
            }),
            Some(chosen) => Ok(chosen.code()),
            None if persistent => Ok(RESERVATION_LOCKED),
            None if rseq_available() => Ok(Reservation::Rseq.code()),
            None => Ok(Reservation::Lockless.code()),
        }
    }

    /// Begins the session, or joins it where one of a user is there already. One that is joined stays as it was made, but that it
    /// has snapshots where they are asked for; [`Session::note`] says what else was asked for.
    ///
    /// # Errors
    /// A name, geometry or size that cannot be; a folder that cannot be made or trusted; memory that is not there.
    pub fn start(self) -> Result<Session, Error> {
        check_name(&self.name)?;
        let channels = self.channels();
        if channels.len() > MAX_CHANNELS {
            let remedy = "use fewer channels";
            return Err(Error::Full { what: "channel", limit: MAX_CHANNELS, remedy });
        }
        let twice = |c: &&ChannelConfig| channels.iter().filter(|other| other.name == c.name).count() > 1;
        if let Some(channel) = channels.iter().find(twice) {
            return Err(Error::Name { name: channel.name.clone(), why: "two channels have it" });
        }
        context::watch_forks();
        processes::prepare();
        let made = match self.join_or_create()? {
            Made::New(made) => *made,
            Made::Ours(session) => return self.again(session),
        };
        let session = shared::publish(made).map_err(|unpublished| {
            let created = unpublished.view().info.creator_pid == lastwords_ring::os::pid();
            processes::leave(unpublished.view().processes());
            if created && processes::joined(unpublished.view().processes()).is_empty() {
                super::remove(&unpublished);
            }
            super::give_back(&unpublished);
            let remedy = "close a session of this process";
            Error::Full { what: "session", limit: MAX_SESSIONS, remedy }
        })?;
        let contexts = |name: &str| self.contexts_of(name);
        if let Err(error) = check_contexts(&session.regions, contexts).and_then(|()| slot::install(session, contexts)) {
            close(session, Ending::Removed);
            return Err(error);
        }
        if self.listen {
            listener::ensure();
        }
        Ok(Session::of(session, session.note.clone(), self.keep))
    }

    /// One more handle of a session that this process records in already.
    fn again(&self, session: &'static SessionShared) -> Result<Session, Error> {
        let regions = &session.regions;
        let mut session = Session::of(session, String::new(), self.keep);
        session.note = note(self, regions)?;
        check_contexts(regions, |name| self.contexts_of(name))?;
        if self.snapshot {
            snapshot::enable(regions)?;
        }
        Ok(session)
    }

    fn contexts_of(&self, channel: &str) -> Vec<UserContext> {
        let channel = self.channels.iter().find(|config| config.name == channel);
        channel.map(|config| config.user_contexts.clone()).unwrap_or_default()
    }

    fn join_or_create(&self) -> Result<Made, Error> {
        let new = |made| Made::New(Box::new(made));
        let path = self.dir.clone().unwrap_or_else(dirs::base_path);
        let base = match Base::make(&path) {
            Ok(base) => base,
            // On the heap the folder is only there to be listed.
            Err(_) if self.memory == Memory::Heap => return create(self, None).map(new),
            Err(error) => return Err(error),
        };
        if self.scope == Scope::Process {
            return create(self, Some(&base)).map(new);
        }
        let _lock = base.lock()?;
        match find(&base, &self.name)? {
            Some(folder) => match ours(&folder) {
                Some(session) => Ok(Made::Ours(session)),
                None => join(self, folder).map(new),
            },
            None => create(self, Some(&base)).map(new),
        }
    }
}

/// What [`Builder::start`] records in.
enum Made {
    New(Box<SessionShared>),
    /// This process does so already.
    Ours(&'static SessionShared),
}

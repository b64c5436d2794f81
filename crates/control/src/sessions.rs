//! Lists, changes and removes sessions through their folders.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use lastwords_abi::session::{
    BACKEND_WORDS, CHANNEL_ADDED, Channel, MODE_OVERWRITE, RESERVATION_WORDS, SCOPE_USER, word_of,
};

use lastwords_folders::{SnapshotState, is_cut, name_of, unseen_end};
use lastwords_ring::os;

use crate::consume::Consumer;
use crate::follow::Follower;
use lastwords::internals::backends::is_persistent;
use lastwords::internals::dirs::{self, Base, Folder};
use lastwords::internals::liveness::{self, Identity};
pub use lastwords::internals::liveness::{Evidence, Life};
pub use lastwords::internals::regions::Regions;
use lastwords::internals::regions::look;
use lastwords::internals::rules::{self, RuleSpec};
use lastwords::internals::session_region::SessionRegion;
use lastwords::internals::text::text;
use lastwords::internals::trigger::Triggered;
use lastwords::internals::{ending, environment, retention, save, wipe};
use lastwords::{ChannelConfig, Ended, Ending, Error};

/// The state of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// At least one process of the session is alive.
    Live,
    /// The session's processes are gone, and none of them closed it.
    LeftOver,
    /// The session was closed.
    Finished,
    /// The session's processes are of another pid namespace, and their state is not known here.
    Unknown,
    /// The files are a copy of a session's files or a saved snapshot, or were received over a
    /// network. A process of the session may have recorded when they were copied, and nothing in
    /// them shows whether and how it ended. Nobody records in the copy.
    Copied,
}

/// A session in a folder.
#[derive(Debug, Clone)]
pub struct Summary {
    /// Path of the folder.
    pub folder: PathBuf,
    /// Name of the session.
    pub name: String,
    /// The details, or the reason why the session cannot be read: another version, or memory that
    /// was freed with its process.
    pub details: Result<Details, String>,
    /// The process whose end freed the session's memory. Only the folder is left.
    pub gone_with: Option<u32>,
    /// Notes for people: what the environment variable `LASTWORDS` of the process that made the
    /// session could not do.
    pub notes: Vec<String>,
}

/// Details from the session region.
#[derive(Debug, Clone)]
pub struct Details {
    /// UUID of the session.
    pub uuid: [u8; 16],
    /// State of the session.
    pub state: State,
    /// Recording is switched on.
    pub recording: bool,
    /// Process that created the session.
    pub creator: u32,
    /// Program that created the session.
    pub program: String,
    /// User that created the session.
    pub uid: u32,
    /// CLOCK_REALTIME at the creation, in nanoseconds.
    pub created: u64,
    /// How and when the session ended; none while a process records in it, or may.
    pub ended: Option<Ended>,
    /// Why the end of a session that was received over a network is not known; none if it is, or if
    /// the session was not received.
    pub unseen_end: Option<&'static str>,
    /// Number of panics in the session that a panic hook saw.
    pub panics: u32,
    /// Number of ended sessions that retention removed when this one began.
    pub removed: u32,
    /// Bytes of the rings.
    pub bytes: u64,
    /// All processes of the user share the session.
    pub is_users: bool,
    /// `heap`, `shm`, `memfd`, `huge`, `dax` or `physical`.
    pub backend: &'static str,
    /// `rseq`, `lockless` or `locked`.
    pub reservation: &'static str,
    /// The state of the snapshot.
    pub snapshot: SnapshotState,
    /// The processes that joined and did not leave.
    pub processes: Vec<ProcessSummary>,
    /// Channels of the session.
    pub channels: Vec<ChannelSummary>,
    /// Rules of the session.
    pub rules: Vec<RuleSpec>,
    /// Counters of the session's triggers.
    pub triggered: Triggered,
}

/// A process of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessSummary {
    /// Id of the process in its own pid namespace.
    pub pid: u32,
    /// Inode of its pid namespace; 0 when unknown.
    pub namespace: u64,
    /// The process is of the pid namespace of the caller, where it has that id, too.
    pub is_here: bool,
    /// Whether the process lives.
    pub life: Life,
    /// The evidence of that.
    pub evidence: Evidence,
}

/// A channel of a session.
#[derive(Debug, Clone)]
pub struct ChannelSummary {
    /// Id in the session.
    pub id: u32,
    /// Name of the channel.
    pub name: String,
    /// The channel was created while the session recorded ([`Handle::create_channel`]). Others are
    /// there since its start.
    pub is_added: bool,
    /// The channel records.
    pub recording: bool,
    /// New events overwrite old ones; otherwise they are discarded when the ring is full.
    pub overwrites: bool,
    /// Sub-buffers of each half of a stream.
    pub sub_buffers: u32,
    /// Bytes of a sub-buffer.
    pub sub_buffer_size: u64,
    /// Number of streams.
    pub streams: u32,
    /// Number of events that have an id.
    pub events: u32,
}

/// Lists the sessions of this user: in `dir`, or in all places where they can be.
///
/// # Errors
/// `dir` cannot be read or trusted. Without `dir`, places that cannot be read or trusted are
/// skipped, unless no place is left.
pub fn list(dir: Option<&Path>) -> Result<Vec<Summary>, Error> {
    // Two places may be the same folder.
    let mut seen = HashSet::new();
    let is_new = |base: &Base| {
        seen.insert(std::fs::canonicalize(&base.path).unwrap_or_else(|_| base.path.clone()))
    };
    let bases: Vec<Base> = match dir {
        Some(dir) => vec![Base::open(dir)?],
        None => usable()?.into_iter().filter(is_new).collect(),
    };
    let mut found = Vec::new();
    for base in bases {
        let folders = base.sessions()?;
        found.extend(
            folders.iter().filter_map(|name| base.folder(name).ok()).map(|folder| summary(&folder)),
        );
    }
    Ok(found)
}

/// Returns the places that exist and can be used.
///
/// # Errors
/// There are places, and none of them can be used.
fn usable() -> Result<Vec<Base>, Error> {
    let (mut bases, mut failed) = (Vec::new(), None);
    for path in dirs::candidates() {
        match Base::open(&path) {
            Ok(base) => bases.push(base),
            Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {}
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    match failed.filter(|_| bases.is_empty()) {
        Some(error) => Err(error),
        None => Ok(bases),
    }
}

fn summary(folder: &Folder) -> Summary {
    let name = name_of(&folder.name).to_owned();
    let details = look(folder, |view| details(view, is_cut(&folder.path)));
    let is_dead = |pid: &u32| !os::is_process_alive(*pid, 0);
    let gone_with = if details.is_err() { maker_of_memory(folder).filter(is_dead) } else { None };
    let details = details.map_err(|error| match gone_with {
        Some(pid) => format!("its memory went with process {pid}"),
        None => error.to_string(),
    });
    Summary {
        folder: folder.path.clone(),
        name,
        details,
        gone_with,
        notes: environment::notes(folder),
    }
}

/// Returns the process that has the session in its memory, if it is in no file.
fn maker_of_memory(folder: &Folder) -> Option<u32> {
    let places = folder.places().ok()??;
    let path = &places.first()?.path;
    let rest = path.strip_prefix("heap:").or_else(|| path.strip_prefix("/proc/"))?;
    rest.split([':', '/']).next()?.parse().ok()
}

/// Returns the state of a session, and its processes.
fn state(view: &SessionRegion) -> (State, Vec<ProcessSummary>) {
    let is_of_boot = !liveness::is_other_boot(&view.info.boot_id, &liveness::boot_id());
    let table = view.table();
    // A device of persistent memory may have another inode after a reboot, or in a container.
    let is_copy = table.is_copied() && !is_persistent(view.info.backend);
    let process = |(index, identity): (usize, Identity)| {
        let judged = match (is_copy, is_of_boot) {
            (true, _) => table.judge_in_copy(index, &identity),
            (false, true) => table.judge(index, &identity),
            (false, false) => (Life::Dead, Evidence::Boot),
        };
        let is_here = identity.pidns != 0 && identity.pidns == Identity::current().pidns;
        let Identity { pid, pidns, .. } = identity;
        ProcessSummary { pid, namespace: pidns, is_here, life: judged.0, evidence: judged.1 }
    };
    let processes: Vec<_> = table.joined().map(process).collect();
    let any = |wanted| processes.iter().any(|process| process.life == wanted);
    let state = match view.control().finished.load(Acquire) {
        1 if unseen_end(view.control().ending.load(Acquire), false).is_some() => State::Copied,
        1 => State::Finished,
        _ if any(Life::Alive) => State::Live,
        // A process that had marked its end was about to end.
        _ if is_copy && (!any(Life::Unknown) || ending::read(view).how != Ending::Killed) => {
            State::LeftOver
        }
        _ if is_copy => State::Copied,
        _ if any(Life::Unknown) => State::Unknown,
        _ => State::LeftOver,
    };
    (state, processes)
}

/// Returns the details of a session. `is_cut`: it was received in a stream that ended early.
pub(crate) fn details(view: &SessionRegion, is_cut: bool) -> Details {
    let (info, control) = (&view.info, view.control());
    let unseen_end = unseen_end(control.ending.load(Acquire), is_cut);
    let (state, processes) = state(view);
    let state = if is_cut { State::Copied } else { state };
    Details {
        uuid: view.uuid,
        state,
        recording: control.recording.load(Acquire) == 1,
        creator: info.creator_pid,
        program: text(&info.program),
        uid: info.uid,
        created: info.created_realtime,
        ended: matches!(state, State::Finished | State::LeftOver).then(|| ending::read(view)),
        unseen_end,
        panics: control.panics.load(Acquire),
        removed: control.removed.load(Relaxed),
        bytes: retention::bytes(view),
        is_users: info.scope == SCOPE_USER,
        backend: word_of(&BACKEND_WORDS, info.backend),
        reservation: word_of(&RESERVATION_WORDS, info.reservation),
        snapshot: SnapshotState::from_number(control.snapshot.load(Acquire)),
        processes,
        channels: view.channels().map(|(id, entry)| channel(id, entry)).collect(),
        rules: rules::read(view.rules()),
        triggered: view.triggered(),
    }
}

fn channel(id: u32, entry: &Channel) -> ChannelSummary {
    ChannelSummary {
        id,
        name: text(&entry.name),
        is_added: entry.flags & CHANNEL_ADDED != 0,
        recording: entry.recording.load(Acquire) == 1,
        overwrites: entry.mode == MODE_OVERWRITE,
        sub_buffers: entry.sub_buffers,
        sub_buffer_size: entry.sub_buffer_size,
        streams: entry.streams,
        events: entry.next_id.load(Acquire),
    }
}

/// A session of any process, reached through its folder.
#[derive(Debug)]
pub struct Handle {
    pub(crate) regions: Regions,
    pub(crate) folder: Folder,
}

impl Handle {
    /// Maps the session in a folder.
    ///
    /// # Errors
    /// The folder does not belong to this user, or contains no session of this version that can be
    /// mapped.
    pub fn open(folder: &Path) -> Result<Self, Error> {
        let folder = Folder::open(folder)?;
        Ok(Self { regions: Regions::open(&folder)?, folder })
    }

    /// Returns the name of the session.
    #[must_use]
    pub fn name(&self) -> String {
        self.regions.view.name()
    }

    /// Returns the details of the session.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let details = Ok(details(&self.regions.view, is_cut(&self.folder.path)));
        Summary {
            folder: self.folder.path.clone(),
            name: self.name(),
            details,
            gone_with: None,
            notes: environment::notes(&self.folder),
        }
    }

    /// Returns the state of the session, as [`Self::summary`] has it.
    pub(crate) fn state(&self) -> State {
        state(&self.regions.view).0
    }

    /// Returns the number of the snapshot that was taken last, and the folder beside the session in
    /// which a trigger saved it; none if it is not saved there.
    #[must_use]
    pub fn saved_snapshot(&self) -> Option<(u32, PathBuf)> {
        save::newest(&self.regions, &self.folder)
    }

    /// Creates a channel while the session records, as [`lastwords::Session::create_channel`] does.
    ///
    /// # Errors
    /// The same as for [`lastwords::Session::create_channel`], but for the slots of this process,
    /// which records nothing there.
    pub fn create_channel(
        &self,
        channel: &ChannelConfig,
        filter: Option<&str>,
    ) -> Result<u32, Error> {
        self.regions.create_channel(&self.folder, channel, filter)
    }

    /// Makes a consumer of the live rings, while recording continues. Only one process may do that
    /// at a time.
    ///
    /// # Errors
    /// Another process consumes them, or the folder cannot be locked.
    pub fn consume_live(&self) -> Result<Consumer<'_>, Error> {
        Consumer::new(&self.regions, &self.folder, None)
    }

    /// Makes a reader that follows the live rings and consumes nothing.
    #[must_use]
    pub fn follow(&self) -> Follower<'_> {
        Follower::new(&self.regions)
    }

    /// Makes a consumer of the snapshot.
    ///
    /// # Errors
    /// There is no snapshot, or another process reads it.
    pub fn consume_snapshot(&self) -> Result<Consumer<'_>, Error> {
        Consumer::new(&self.regions, &self.folder, Some(self.regions.read_snapshot()?))
    }
}

impl std::ops::Deref for Handle {
    type Target = Regions;

    fn deref(&self) -> &Regions {
        &self.regions
    }
}

/// Ends a session and removes its folder. Its processes stop recording. A session whose memory was
/// freed with its process, or that this version cannot read, is removed too.
///
/// # Errors
/// The folder does not belong to this user, or cannot be removed.
pub fn destroy(folder: &Path) -> Result<(), Error> {
    let folder = Folder::open(folder)?;
    if let Ok(regions) = Regions::open(&folder) {
        let control = regions.view.control();
        control.recording.store(0, Release);
        control.finished.store(1, Release);
        regions.view.announce();
        wipe(&regions);
    }
    folder.remove()
}

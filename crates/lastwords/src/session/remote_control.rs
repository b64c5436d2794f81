//! Sessions of other processes: listed, changed and removed through their folders. Nothing has to be alive for that.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use lastwords_abi::session::{
    BACKEND_WORDS, Channel, MODE_OVERWRITE, RESERVATION_WORDS, SCOPE_USER, SNAPSHOT_WORDS, word_of,
};

use crate::session::consume::Consumer;
use crate::session::dirs::{self, Base, Folder};
use crate::session::processes::{self, Identity, Life};
pub use crate::session::regions::Regions;
use crate::session::regions::look;
use crate::session::rules::{self, RuleSpec};
use crate::session::session_region::{SessionRegion, text};
use crate::session::{Ended, Error, ending, retention, wipe};

/// Whether someone records in a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// At least one process of it is alive.
    Live,
    /// Its processes are gone, and none of them closed it.
    LeftOver,
    /// It was closed.
    Finished,
    /// Its processes are of another pid namespace, and nothing here tells.
    Unknown,
}

/// A session in a folder.
#[derive(Debug, Clone)]
pub struct Summary {
    /// Its folder.
    pub folder: PathBuf,
    /// Name of the session.
    pub name: String,
    /// What it is, or why it cannot be read: another version, memory that went with its process.
    pub details: Result<Details, String>,
    /// The process that its memory went with: nothing is left of it but its folder.
    pub gone_with: Option<u32>,
}

/// What a session says of itself.
#[derive(Debug, Clone)]
pub struct Details {
    /// UUID of the session.
    pub uuid: [u8; 16],
    /// Whether someone records in it.
    pub state: State,
    /// Whether recording is switched on.
    pub recording: bool,
    /// Process that made it.
    pub creator: u32,
    /// Its program.
    pub program: String,
    /// User who made it.
    pub uid: u32,
    /// CLOCK_REALTIME when it was made, ns.
    pub created: u64,
    /// How and when it ended; none while somebody records in it, or may.
    pub ended: Option<Ended>,
    /// Panics in it that a panic hook saw.
    pub panics: u32,
    /// Ended sessions that retention removed when it began.
    pub removed: u32,
    /// Bytes of its rings.
    pub bytes: u64,
    /// Whether all processes of the user share it.
    pub is_users: bool,
    /// `heap`, `shm`, `memfd`, `huge`, `dax` or `physical`.
    pub backend: &'static str,
    /// `rseq`, `lockless` or `locked`.
    pub reservation: &'static str,
    /// `off`, `ready`, `swapping`, `taken` or `reading`.
    pub snapshot: &'static str,
    /// Ids, each in its own pid namespace, of the processes that joined and did not leave, and whether they live.
    pub processes: Vec<(u32, Life)>,
    /// Its channels.
    pub channels: Vec<ChannelSummary>,
    /// Its rules.
    pub rules: Vec<RuleSpec>,
}

/// A channel of a session.
#[derive(Debug, Clone)]
pub struct ChannelSummary {
    /// Id in the session.
    pub id: u32,
    /// Name of the channel.
    pub name: String,
    /// Whether it records.
    pub recording: bool,
    /// Overwrites, or discards.
    pub overwrites: bool,
    /// Sub-buffers of each half of a stream.
    pub sub_buffers: u32,
    /// Bytes of a sub-buffer.
    pub sub_buffer_size: u64,
    /// Streams.
    pub streams: u32,
    /// Events that were given an id.
    pub events: u32,
}

/// The sessions of this user: in `dir`, or in all places where they can be.
///
/// # Errors
/// `dir` cannot be read or trusted. Places that are only candidates are passed over.
pub fn list(dir: Option<&Path>) -> Result<Vec<Summary>, Error> {
    // Two places may be the same folder.
    let mut seen = HashSet::new();
    let is_new = |base: &Base| seen.insert(std::fs::canonicalize(&base.path).unwrap_or_else(|_| base.path.clone()));
    let bases: Vec<Base> = match dir {
        Some(dir) => vec![Base::open(dir)?],
        None => dirs::candidates().iter().filter_map(|path| Base::open(path).ok()).filter(is_new).collect(),
    };
    let mut found = Vec::new();
    for base in bases {
        let folders = base.sessions()?;
        found.extend(folders.iter().filter_map(|name| base.folder(name).ok()).map(|folder| summary(&folder)));
    }
    Ok(found)
}

fn summary(folder: &Folder) -> Summary {
    let name = dirs::name_of(&folder.name).to_owned();
    let details = look(folder, details);
    let is_dead = |pid: &u32| Identity { pid: *pid, start: 0, pidns: 0 }.life() == Life::Dead;
    let gone_with = if details.is_err() { maker_of_memory(folder).filter(is_dead) } else { None };
    let details = details.map_err(|error| match gone_with {
        Some(pid) => format!("its memory went with process {pid}"),
        None => error.to_string(),
    });
    Summary { folder: folder.path.clone(), name, details, gone_with }
}

/// The process in whose memory a session is, where it is in no file.
fn maker_of_memory(folder: &Folder) -> Option<u32> {
    let places = folder.places().ok()??;
    let path = &places.first()?.path;
    let rest = path.strip_prefix("heap:").or_else(|| path.strip_prefix("/proc/"))?;
    rest.split([':', '/']).next()?.parse().ok()
}

fn details(view: &SessionRegion) -> Details {
    let (info, control) = (&view.info, view.control());
    let same_boot = !processes::is_other_boot(&info.boot_id, &processes::boot_id());
    let life = |process: &Identity| if same_boot { process.life() } else { Life::Dead };
    let processes: Vec<_> = processes::joined(view.processes()).iter().map(|p| (p.pid, life(p))).collect();
    let any = |wanted| processes.iter().any(|(_, life)| *life == wanted);
    let state = match control.finished.load(Acquire) {
        1 => State::Finished,
        _ if any(Life::Alive) => State::Live,
        _ if any(Life::Unknown) => State::Unknown,
        _ => State::LeftOver,
    };
    Details {
        uuid: view.uuid,
        state,
        recording: control.recording.load(Acquire) == 1,
        creator: info.creator_pid,
        program: text(&info.program),
        uid: info.uid,
        created: info.created_realtime,
        ended: matches!(state, State::Finished | State::LeftOver).then(|| ending::read(view)),
        panics: control.panics.load(Acquire),
        removed: control.removed.load(Relaxed),
        bytes: retention::bytes(view),
        is_users: info.scope == SCOPE_USER,
        backend: word_of(&BACKEND_WORDS, info.backend),
        reservation: word_of(&RESERVATION_WORDS, info.reservation),
        snapshot: word_of(&SNAPSHOT_WORDS, control.snapshot.load(Acquire)),
        processes,
        channels: view.channels().map(|(id, entry)| channel(id, entry)).collect(),
        rules: rules::read(&control.rules),
    }
}

fn channel(id: u32, entry: &Channel) -> ChannelSummary {
    ChannelSummary {
        id,
        name: text(&entry.name),
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
    /// The folder is not this user's, or does not hold a session of this version that can be mapped.
    pub fn open(folder: &Path) -> Result<Self, Error> {
        let folder = Folder::open(folder)?;
        Ok(Self { regions: Regions::open(&folder)?, folder })
    }

    /// Name of the session.
    #[must_use]
    pub fn name(&self) -> String {
        self.regions.view.name()
    }

    /// What the session says of itself.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let details = Ok(details(&self.regions.view));
        Summary { folder: self.folder.path.clone(), name: self.name(), details, gone_with: None }
    }

    /// Reads the live rings to consume them, while recording goes on; no other may meanwhile.
    ///
    /// # Errors
    /// Another process does; the folder cannot be locked.
    pub fn consume_live(&self) -> Result<Consumer<'_>, Error> {
        Consumer::new(self, None)
    }

    /// Reads the snapshot to consume it.
    ///
    /// # Errors
    /// There is no snapshot, or another process reads it.
    pub fn consume_snapshot(&self) -> Result<Consumer<'_>, Error> {
        Consumer::new(self, Some(self.regions.read_snapshot()?))
    }
}

impl std::ops::Deref for Handle {
    type Target = Regions;

    fn deref(&self) -> &Regions {
        &self.regions
    }
}

/// What both a process of the session and any other process of its user can do with it.
impl Regions {
    /// Id of the channel of that name.
    #[must_use]
    pub fn channel(&self, name: &str) -> Option<u32> {
        self.view.channels().find(|(_, entry)| text(&entry.name) == name).map(|(id, _)| id)
    }

    /// Adds a rule: the processes of the session follow it within milliseconds.
    ///
    /// # Errors
    /// The list of rules is full or held.
    pub fn rule(&self, rule: &RuleSpec) -> Result<(), Error> {
        rules::add(&self.view, rule)
    }

    /// Switches recording on or off: of the session, or of one channel.
    pub fn set_recording(&self, channel: Option<u32>, on: bool) {
        let word = match channel {
            None => Some(&self.view.control().recording),
            Some(id) => self.view.channels().find(|(own, _)| *own == id).map(|(_, entry)| &entry.recording),
        };
        if let Some(word) = word {
            word.store(u32::from(on), Release);
            self.view.announce();
        }
    }
}

/// Ends a session and removes its folder. Its processes stop recording; one whose memory went with its process, or that this
/// version cannot read, is removed all the same.
///
/// # Errors
/// The folder is not this user's, or cannot be removed.
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

//! The sessions that a mount shows: one at the top level; in `instances`, the channels that were
//! added to it, and the other live sessions.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Acquire;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lastwords::ChannelConfig;
use lastwords::rules::RuleSpec;
use lastwords::snapshot::Rings;
use lastwords_control::{self, Summary};
use rustix::io::Errno;

use crate::buffer::Buffer;
use crate::errno::errno_of;
use crate::error_log::Refusal;
use crate::mutex::guard;
use crate::recorder::{Programs, Recorder};
use crate::view::{self, View};

/// Milliseconds in which a file that was closed is known to be closed.
const CLOSING: u32 = 100;
/// Bytes of the rings of a channel that `mkdir` adds, all CPUs together: those of `lastwords
/// channel create`.
const CHANNEL_SIZE: u64 = 4 << 20;

/// An instance: a session, by its folder, or a channel that was added to the session of the top
/// level.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Instance {
    Session(PathBuf),
    Channel(u32),
}

/// The sessions of this user.
#[derive(Debug)]
pub struct Sessions {
    dir: Option<PathBuf>,
    top: Arc<Buffer>,
    programs: Programs,
    /// The instances that were opened.
    opened: Mutex<HashMap<Instance, Arc<Buffer>>>,
    /// Added channels that `rmdir` took away. Their rings stay with the session; `mkdir` uses them
    /// again.
    removed: Mutex<HashSet<u32>>,
    /// The recorders of sessions that `mkdir` made, by name.
    made: Mutex<HashMap<String, Recorder>>,
}

impl Sessions {
    /// Shows the session in the folder `top` at the top level. `dir` is the folder of sessions;
    /// without it, sessions are looked for in all places where they can be.
    ///
    /// # Errors
    /// The session cannot be opened, or belongs to another user.
    pub fn new(
        dir: Option<PathBuf>,
        top: &Path,
        programs: Programs,
    ) -> Result<Self, lastwords::Error> {
        let top = Arc::new(Buffer::open(top)?);
        let (opened, removed, made) = (Mutex::default(), Mutex::default(), Mutex::default());
        Ok(Self { dir, top, programs, opened, removed, made })
    }

    pub(crate) fn top(&self) -> &Arc<Buffer> {
        &self.top
    }

    pub(crate) fn programs(&self) -> &Programs {
        &self.programs
    }

    /// Returns the number of events that reads of `trace_pipe` and the like have consumed and that
    /// no reader has had.
    pub(crate) fn waiting(&self) -> usize {
        let opened = guard(&self.opened);
        let waiting = |buffer: &Arc<Buffer>| {
            guard(&buffer.pipe).waiting() + guard(&buffer.snapshot_pipe).waiting()
        };
        opened.values().chain([&self.top]).map(waiting).sum()
    }

    fn live(&self) -> Vec<Summary> {
        let all = lastwords_control::list(self.dir.as_deref()).unwrap_or_default();
        all.into_iter().filter(lastwords_live::is_live_summary).collect()
    }

    /// Returns the channels that were added to the session of the top level, and those of them that
    /// `rmdir` took away.
    fn channels(&self, is_removed: bool) -> BTreeMap<String, u32> {
        let removed = guard(&self.removed);
        let Ok(details) = self.top.details() else { return BTreeMap::new() };
        let wanted = view::added(&details).filter(|(_, id)| removed.contains(id) == is_removed);
        wanted.map(|(name, id)| (name.to_owned(), id)).collect()
    }

    /// Returns the names in `instances`.
    pub(crate) fn names(&self) -> Vec<String> {
        self.instances().into_keys().collect()
    }

    /// Returns the instances by name: a channel's, a session's, or the name of the session's folder
    /// where several have that name.
    fn instances(&self) -> BTreeMap<String, Instance> {
        let others: Vec<Summary> =
            self.live().into_iter().filter(|live| live.folder != self.top.folder).collect();
        let channels = self.channels(false);
        let name = |of: &Summary| {
            let is_unique = others.iter().filter(|other| other.name == of.name).count() == 1;
            let is_unique = is_unique && !channels.contains_key(&of.name);
            let own = of.folder.file_name().map(|name| name.to_string_lossy().into_owned());
            own.filter(|_| !is_unique).unwrap_or_else(|| of.name.clone())
        };
        let sessions =
            others.iter().map(|live| (name(live), Instance::Session(live.folder.clone())));
        let mut found: BTreeMap<_, _> = sessions.collect();
        found.extend(channels.into_iter().map(|(name, id)| (name, Instance::Channel(id))));
        let mut opened = guard(&self.opened);
        opened.retain(|open, _| found.values().any(|live| live == open));
        found
    }

    /// Returns the instance of this name.
    ///
    /// # Errors
    /// `ENOENT` if there is none; else why it cannot be opened.
    pub(crate) fn instance(&self, name: &str) -> Result<Arc<Buffer>, Errno> {
        let instance = self.instances().remove(name).ok_or(Errno::NOENT)?;
        let mut opened = guard(&self.opened);
        if let Some(buffer) = opened.get(&instance) {
            return Ok(Arc::clone(buffer));
        }
        let buffer = Arc::new(match &instance {
            Instance::Session(folder) => Buffer::open(folder).map_err(|_| Errno::NOENT)?,
            Instance::Channel(id) => self.top.of_channel(*id),
        });
        opened.insert(instance, Arc::clone(&buffer));
        Ok(buffer)
    }

    /// Makes an instance with this name: where the session of the top level is an application's, a
    /// channel for its events; where it is the user's, another session of the user, which a process
    /// of the mount keeps alive and others may join.
    ///
    /// # Errors
    /// `EEXIST` if there is one with the name, `EOPNOTSUPP` if the session takes no more channels,
    /// `ENOSPC` if there is no room, `EINVAL` if it cannot be made.
    pub(crate) fn make(&self, name: &str) -> Result<(), Errno> {
        let mut made = guard(&self.made);
        if self.instances().contains_key(name) || self.live().iter().any(|live| live.name == name) {
            return Err(Errno::EXIST);
        }
        if !self.top.details()?.is_users {
            return self.make_channel(name);
        }
        let recorder = Recorder::start(&self.programs, self.dir.as_deref(), true, name)
            .map_err(|refusal| self.top.refuse(Errno::INVAL, name.as_bytes(), &refusal))?;
        made.insert(name.to_owned(), recorder);
        Ok(())
    }

    /// Adds a channel that takes no events until they are enabled in it.
    fn make_channel(&self, name: &str) -> Result<(), Errno> {
        let handle = &self.top.handle;
        if let Some(id) = self.channels(true).remove(name) {
            handle.set_recording(Some(id), true);
            guard(&self.removed).remove(&id);
            return Ok(());
        }
        let config = ChannelConfig::new(name).sized(CHANNEL_SIZE, None, handle.rings_of_channel());
        handle.create_channel(&config, None).map(drop).map_err(|error| {
            let errno = match error {
                lastwords::Error::Exists { .. } => Errno::EXIST,
                lastwords::Error::Unsupported { .. } => Errno::OPNOTSUPP,
                _ => errno_of(&error),
            };
            let why = error.to_string().replace('\n', " ");
            self.top.refuse(errno, name.as_bytes(), &Refusal::new("mkdir", why))
        })
    }

    /// Takes a channel away: it records nothing and is empty. No session gives the memory of a
    /// channel back while it records.
    fn remove_channel(&self, buffer: &Buffer, id: u32) -> Result<(), Errno> {
        let failed = |error| buffer.failed("rmdir", b"", &error);
        buffer.handle.set_recording(Some(id), false);
        let disable_all = |own: &mut Vec<RuleSpec>| {
            own.clear();
            own.push(RuleSpec::disable("*"));
        };
        buffer.change_rules(disable_all).map_err(failed)?;
        buffer.handle.clear_rings(Rings::All, &[id]).map_err(failed)?;
        guard(&self.removed).insert(id);
        Ok(())
    }

    /// Removes an instance that [`Sessions::make`] made. A session ends.
    ///
    /// # Errors
    /// `ENOENT` if there is none, `EBUSY` if a file of it is open or another process records in the
    /// session.
    pub(crate) fn remove(&self, name: &str) -> Result<(), Errno> {
        let mut made = guard(&self.made);
        let buffer = self.instance(name)?;
        // The system tells of a close only after the process that closed has gone on.
        let is_open = || buffer.open_files.load(Acquire) > 0;
        (0..CLOSING)
            .take_while(|_| is_open())
            .for_each(|_| std::thread::sleep(Duration::from_millis(1)));
        if let View::Added(id) = buffer.view {
            return if is_open() { Err(Errno::BUSY) } else { self.remove_channel(&buffer, id) };
        }
        let is_used = buffer.details()?.processes.len() > 1 || is_open();
        if is_used || !made.contains_key(name) {
            return Err(Errno::BUSY);
        }
        drop(made.remove(name));
        guard(&self.opened).remove(&Instance::Session(buffer.folder.clone()));
        match buffer.folder.exists() {
            true => lastwords_control::destroy(&buffer.folder).map_err(|error| errno_of(&error)),
            false => Ok(()),
        }
    }

    /// Returns the recorder that made a session for `mkdir`.
    fn maker<'r>(
        &self,
        buffer: &Buffer,
        made: &'r HashMap<String, Recorder>,
    ) -> Option<&'r Recorder> {
        // A user has one session of a name, so that the name tells which recorder is that of the
        // session.
        made.get(&buffer.handle.name()).filter(|_| buffer.folder != self.top.folder)
    }

    /// Records in rings of another size from now on, of at least `size` bytes a CPU.
    ///
    /// # Errors
    /// `EOPNOTSUPP` if [`Sessions::make`] did not make the session, or other programs record in it;
    /// `ENOSPC` if there is no room.
    pub(crate) fn resize(&self, buffer: &Buffer, size: u64, command: &[u8]) -> Result<(), Errno> {
        let made = guard(&self.made);
        let recorder =
            self.maker(buffer, &made).ok_or("the program that started the session chose the size");
        let is_alone = buffer.details()?.processes.len() == 1;
        let recorder = recorder
            .and_then(|one| is_alone.then_some(one).ok_or("other programs record in the session"));
        let refuse =
            |errno, why| Err(buffer.refuse(errno, command, &Refusal::new("buffer_size_kb", why)));
        match recorder.map(|recorder| recorder.resize(size)) {
            Err(why) => {
                let instead = "Builder::size, or LASTWORDS=size=64M at the start; or `lastwords channel create`";
                refuse(Errno::OPNOTSUPP, format!("{why}, and rings keep their size: {instead}"))
            }
            Ok(asked) => asked?.or_else(|why| refuse(Errno::NOSPC, why)),
        }
    }

    /// Records what was written into the `trace_marker` of a session. `joined` keeps the recorder
    /// of the open file.
    ///
    /// # Errors
    /// `EOPNOTSUPP` if the session is that of one process, which alone may record in it.
    pub(crate) fn mark(
        &self,
        buffer: &Buffer,
        joined: &mut Option<Recorder>,
        raw: bool,
        pid: u32,
        bytes: &[u8],
    ) -> Result<(), Errno> {
        let details = buffer.details()?;
        let name = buffer.handle.name();
        let refuse = |refusal| Err(buffer.refuse(Errno::OPNOTSUPP, bytes, &refusal));
        if !details.is_users {
            return refuse(Refusal::new(
                "trace_marker",
                "only the session's own process records in it; a session of the user (Scope::User) takes events of others",
            ));
        }
        if let Some(recorder) = self.maker(buffer, &guard(&self.made)) {
            return recorder.record(raw, pid, bytes);
        }
        if joined.is_none() {
            match Recorder::start(&self.programs, self.dir.as_deref(), false, &name) {
                Ok(recorder) => *joined = Some(recorder),
                Err(refusal) => return refuse(refusal),
            }
        }
        joined.as_ref().map_or(Err(Errno::NODEV), |recorder| recorder.record(raw, pid, bytes))
    }
}

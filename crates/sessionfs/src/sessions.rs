//! Which sessions a mount shows: one at the top level, the other live ones in `instances`.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Acquire;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lastwords::remote_control::{self, Summary};
use rustix::io::Errno;

use crate::buffer::{Buffer, errno_of, guard};
use crate::error_log::Refusal;
use crate::recorder::{Programs, Recorder};

/// Milliseconds in which a file that was closed is known to be closed.
const CLOSING: u32 = 100;

/// The sessions of this user.
#[derive(Debug)]
pub struct Sessions {
    dir: Option<PathBuf>,
    top: Arc<Buffer>,
    programs: Programs,
    /// Sessions that were opened, by their folders.
    opened: Mutex<HashMap<PathBuf, Arc<Buffer>>>,
    /// The recorders of sessions that `mkdir` made, by name.
    made: Mutex<HashMap<String, Recorder>>,
}

impl Sessions {
    /// Shows the session in the folder `top` at the top level. `dir` is the folder of sessions; without it, sessions are looked for
    /// in all places where they can be.
    ///
    /// # Errors
    /// The session cannot be opened, or belongs to another user.
    pub fn new(dir: Option<PathBuf>, top: &Path, programs: Programs) -> Result<Self, lastwords::Error> {
        let top = Arc::new(Buffer::open(top)?);
        Ok(Self { dir, top, programs, opened: Mutex::default(), made: Mutex::default() })
    }

    pub(crate) fn top(&self) -> &Arc<Buffer> {
        &self.top
    }

    pub(crate) fn programs(&self) -> &Programs {
        &self.programs
    }

    /// Returns the number of events that reads of `trace_pipe` and the like have consumed and that no reader has had.
    pub(crate) fn waiting(&self) -> usize {
        let opened = guard(&self.opened);
        let waiting = |buffer: &Arc<Buffer>| guard(&buffer.pipe).waiting() + guard(&buffer.snapshot_pipe).waiting();
        opened.values().chain([&self.top]).map(waiting).sum()
    }

    fn live(&self) -> Vec<Summary> {
        let all = remote_control::list(self.dir.as_deref()).unwrap_or_default();
        all.into_iter().filter(lastwords_open::is_live_summary).collect()
    }

    /// Returns the folders of the live sessions except the top level's, by name: the session's name, or the name of the folder
    /// where several have that name.
    pub(crate) fn instances(&self) -> BTreeMap<String, PathBuf> {
        let others: Vec<Summary> = self.live().into_iter().filter(|live| live.folder != self.top.folder).collect();
        let name = |of: &Summary| {
            let is_unique = others.iter().filter(|other| other.name == of.name).count() == 1;
            let own = of.folder.file_name().map(|name| name.to_string_lossy().into_owned());
            own.filter(|_| !is_unique).unwrap_or_else(|| of.name.clone())
        };
        let found: BTreeMap<_, _> = others.iter().map(|live| (name(live), live.folder.clone())).collect();
        let mut opened = guard(&self.opened);
        opened.retain(|folder, _| found.values().any(|live| live == folder));
        found
    }

    /// Returns the instance of this name.
    ///
    /// # Errors
    /// `ENOENT` if there is none; else why it cannot be opened.
    pub(crate) fn instance(&self, name: &str) -> Result<Arc<Buffer>, Errno> {
        let folder = self.instances().remove(name).ok_or(Errno::NOENT)?;
        let mut opened = guard(&self.opened);
        if let Some(buffer) = opened.get(&folder) {
            return Ok(Arc::clone(buffer));
        }
        let buffer = Arc::new(Buffer::open(&folder).map_err(|_| Errno::NOENT)?);
        opened.insert(folder, Arc::clone(&buffer));
        Ok(buffer)
    }

    /// Makes a session of the user with this name. A process of the mount keeps it alive; others may join it.
    ///
    /// # Errors
    /// `EEXIST` if a live session has the name, `EINVAL` if it cannot be made.
    pub(crate) fn make(&self, name: &str) -> Result<(), Errno> {
        let mut made = guard(&self.made);
        if self.live().iter().any(|live| live.name == name) {
            return Err(Errno::EXIST);
        }
        let recorder = Recorder::start(&self.programs, self.dir.as_deref(), true, name)
            .map_err(|refusal| self.top.refuse(Errno::INVAL, name.as_bytes(), &refusal))?;
        made.insert(name.to_owned(), recorder);
        Ok(())
    }

    /// Ends and removes a session that [`Sessions::make`] made.
    ///
    /// # Errors
    /// `ENOENT` if there is none, `EBUSY` if a file of it is open or another process records in it.
    pub(crate) fn remove(&self, name: &str) -> Result<(), Errno> {
        let mut made = guard(&self.made);
        let buffer = self.instance(name)?;
        // The system tells of a close only after the process that closed has gone on.
        let is_open = || buffer.open_files.load(Acquire) > 0;
        (0..CLOSING).take_while(|_| is_open()).for_each(|_| std::thread::sleep(Duration::from_millis(1)));
        let is_used = buffer.details()?.processes.len() > 1 || is_open();
        if is_used || !made.contains_key(name) {
            return Err(Errno::BUSY);
        }
        drop(made.remove(name));
        guard(&self.opened).remove(&buffer.folder);
        match buffer.folder.exists() {
            true => remote_control::destroy(&buffer.folder).map_err(|error| errno_of(&error)),
            false => Ok(()),
        }
    }

    /// Returns the recorder that made a session for `mkdir`.
    fn maker<'r>(&self, buffer: &Buffer, made: &'r HashMap<String, Recorder>) -> Option<&'r Recorder> {
        // A user has one session of a name, so that the name tells which recorder is that of the session.
        made.get(&buffer.handle.name()).filter(|_| buffer.folder != self.top.folder)
    }

    /// Records in rings of another size from now on, of at least `size` bytes a CPU.
    ///
    /// # Errors
    /// `EOPNOTSUPP` if [`Sessions::make`] did not make the session, or other programs record in it; `ENOSPC` if there is no room.
    pub(crate) fn resize(&self, buffer: &Buffer, size: u64, command: &[u8]) -> Result<(), Errno> {
        let made = guard(&self.made);
        let recorder = self.maker(buffer, &made).ok_or("the program that started the session chose the size");
        let is_alone = buffer.details()?.processes.len() == 1;
        let recorder = recorder.and_then(|one| is_alone.then_some(one).ok_or("other programs record in the session"));
        let refuse = |errno, why| Err(buffer.refuse(errno, command, &Refusal::new("buffer_size_kb", why)));
        match recorder.map(|recorder| recorder.resize(size)) {
            Err(why) => {
                let instead = "Builder::size, or LASTWORDS=size=64M at the start; or `lastwords channel create`";
                refuse(Errno::OPNOTSUPP, format!("{why}, and rings keep their size: {instead}"))
            }
            Ok(asked) => asked?.or_else(|why| refuse(Errno::NOSPC, why)),
        }
    }

    /// Records what was written into the `trace_marker` of a session. `joined` keeps the recorder of the open file.
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
                "only the session's own process records in it; a session of the user (Scope::User, or mkdir instances/NAME) \
                 takes events of others",
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

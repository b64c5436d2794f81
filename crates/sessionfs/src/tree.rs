//! The tree: which files and folders there are, and what opening, reading and writing one does.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::{Arc, Mutex};

use rustix::io::Errno;

use crate::buffer::Buffer;
use crate::file;
use crate::mutex::guard;
use crate::path::{File, Folder, Place, Subject, place};
use crate::pipe_reader::{self, Reader};
use crate::recorder::{MOST, Recorder};
use crate::sessions::Sessions;
use crate::text::TextStream;

/// The name of the folder of the other sessions.
const INSTANCES: &str = "instances";

/// The name of a file of the top level that no folder lists: the number of events that `trace_pipe`
/// and the like have consumed and that no reader has had, and the process that serves the mount.
/// `lastwords umount` reads it, because these events are lost with the mount, and waits for the end
/// of the process.
pub(crate) const UNREAD: &str = ".unread";

/// The sessions of this user as a tree of files. Paths have no slash at their beginning; the empty
/// path is the top level.
#[derive(Debug, Clone)]
pub struct Tree {
    sessions: Arc<Sessions>,
}

/// A file or folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// It is a folder.
    pub is_folder: bool,
    /// The permissions; those of a group and of others are never set.
    pub mode: u16,
}

/// How a file is opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Access {
    /// The file is read.
    pub read: bool,
    /// The file is written.
    pub write: bool,
    /// The file is truncated (`O_TRUNC`).
    pub truncate: bool,
}

/// An open file.
#[derive(Debug)]
pub struct OpenFile {
    sessions: Arc<Sessions>,
    buffer: Arc<Buffer>,
    file: File,
    of: Subject,
    state: State,
}

#[derive(Debug)]
enum State {
    /// The content when it was read from its begin.
    Text(Mutex<Vec<u8>>),
    /// The text of `trace`.
    Trace(Mutex<Option<TextStream>>),
    Pipe(Reader),
    /// The process that records what is written into `trace_marker`.
    Marker(Mutex<Option<Recorder>>),
}

/// The target of a path.
enum Target {
    Instances,
    In(Arc<Buffer>, Place),
}

impl Tree {
    /// Makes the tree of these sessions.
    #[must_use]
    pub fn new(sessions: Sessions) -> Self {
        Self { sessions: Arc::new(sessions) }
    }

    pub(crate) fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// Returns what is at a path.
    ///
    /// # Errors
    /// `ENOENT` if there is nothing; `ENODEV` if the session is gone.
    pub fn entry(&self, path: &str) -> Result<Entry, Errno> {
        Ok(match self.target(path)? {
            Target::Instances | Target::In(_, Place::Folder(_)) => Entry::folder(),
            Target::In(_, Place::File(file, _)) => Entry { is_folder: false, mode: file.mode() },
        })
    }

    /// Returns the names in a folder.
    ///
    /// # Errors
    /// The same as for [`Tree::entry`]; `ENOTDIR` for a file.
    pub fn list(&self, path: &str) -> Result<Vec<(String, Entry)>, Errno> {
        let folders = |names: Vec<String>| names.into_iter().map(|name| (name, Entry::folder()));
        let (buffer, folder) = match self.target(path)? {
            Target::Instances => return Ok(folders(self.sessions.names()).collect()),
            Target::In(_, Place::File(..)) => return Err(Errno::NOTDIR),
            Target::In(buffer, Place::Folder(folder)) => (buffer, folder),
        };
        let of_file = |(name, file): &(&str, File)| {
            ((*name).to_owned(), Entry { is_folder: false, mode: file.mode() })
        };
        let is_shown =
            |(_, file): &&(&str, File)| !Place::File(*file, folder.subject()).is_hidden();
        let mut found: Vec<(String, Entry)> =
            folder.files().iter().filter(is_shown).map(of_file).collect();
        let inner = match &folder {
            Folder::Session => {
                let fixed = ["events", "options", "per_cpu"].into_iter();
                fixed.chain(path.is_empty().then_some(INSTANCES)).map(str::to_owned).collect()
            }
            Folder::Events => buffer.catalog()?.providers.keys().cloned().collect(),
            Folder::Provider(provider) => buffer
                .catalog()?
                .providers
                .get(provider)
                .ok_or(Errno::NOENT)?
                .keys()
                .cloned()
                .collect(),
            Folder::PerCpu => {
                buffer.catalog()?.cpus.iter().map(|cpu| format!("cpu{cpu}")).collect()
            }
            Folder::Event(..) | Folder::Options | Folder::Cpu(_) => Vec::new(),
        };
        found.extend(folders(inner));
        Ok(found)
    }

    fn target(&self, path: &str) -> Result<Target, Errno> {
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let (buffer, parts) = match parts.as_slice() {
            [INSTANCES] => return Ok(Target::Instances),
            [UNREAD] => {
                return Ok(Target::In(
                    Arc::clone(self.sessions.top()),
                    Place::File(File::Unread, Subject::Session),
                ));
            }
            [INSTANCES, name, rest @ ..] => (self.sessions.instance(name)?, rest),
            rest => (Arc::clone(self.sessions.top()), rest),
        };
        let place = place(parts).filter(|place| !place.is_hidden()).ok_or(Errno::NOENT)?;
        let exists = match &place {
            Place::File(_, Subject::Session)
            | Place::Folder(Folder::Session | Folder::Options | Folder::PerCpu) => true,
            Place::Folder(Folder::Events) => true,
            Place::File(_, Subject::Cpu(cpu)) | Place::Folder(Folder::Cpu(cpu)) => {
                buffer.catalog()?.cpus.contains(cpu)
            }
            Place::File(_, Subject::Provider(provider))
            | Place::Folder(Folder::Provider(provider)) => {
                buffer.catalog()?.providers.contains_key(provider)
            }
            Place::File(_, Subject::Event(provider, name))
            | Place::Folder(Folder::Event(provider, name)) => {
                buffer.catalog()?.event(provider, name).is_some()
            }
        };
        if exists { Ok(Target::In(buffer, place)) } else { Err(Errno::NOENT) }
    }

    /// Opens a file.
    ///
    /// # Errors
    /// `EISDIR` for a folder, `EINVAL` if the file cannot be read or written so; else why
    /// truncation failed.
    pub fn open(&self, path: &str, access: Access) -> Result<OpenFile, Errno> {
        let Target::In(buffer, Place::File(file, of)) = self.target(path)? else {
            return Err(Errno::ISDIR);
        };
        let mode = file.mode();
        if access.read && mode & 0o400 == 0 || access.write && mode & 0o200 == 0 {
            return Err(Errno::INVAL);
        }
        if access.write && access.truncate {
            file::truncate(&buffer, file, &of)?;
        }
        let state = match file {
            File::Trace => State::Trace(Mutex::new(None)),
            File::TracePipe => State::Pipe(Reader::default()),
            File::SnapshotPipe => State::Pipe(Reader::of_snapshot()),
            File::TracePipeRaw => State::Pipe(Reader::of_pages(buffer.page_size.load(Relaxed))),
            File::TraceMarker | File::TraceMarkerRaw => State::Marker(Mutex::new(None)),
            _ => State::Text(Mutex::default()),
        };
        buffer.open_files.fetch_add(1, AcqRel);
        Ok(OpenFile { sessions: Arc::clone(&self.sessions), buffer, file, of, state })
    }

    /// Makes a channel or a session in `instances`.
    ///
    /// # Errors
    /// `EPERM` elsewhere, `EEXIST`, or why it cannot be made.
    pub fn make_folder(&self, path: &str) -> Result<(), Errno> {
        self.sessions.make(instance_of(path).ok_or(Errno::PERM)?)
    }

    /// Removes what [`Tree::make_folder`] made.
    ///
    /// # Errors
    /// `EPERM` elsewhere, `ENOENT`, or `EBUSY` if it is in use, or if it is a session that an
    /// application made.
    pub fn remove_folder(&self, path: &str) -> Result<(), Errno> {
        self.sessions.remove(instance_of(path).ok_or(Errno::PERM)?)
    }
}

/// Returns the name of an instance from the path of its folder.
fn instance_of(path: &str) -> Option<&str> {
    path.strip_prefix(INSTANCES)?
        .strip_prefix('/')
        .filter(|name| !name.contains('/') && !name.is_empty())
}

impl Entry {
    fn folder() -> Self {
        Self { is_folder: true, mode: 0o700 }
    }
}

impl OpenFile {
    /// Returns true if a read may wait for events.
    #[must_use]
    pub fn waits(&self) -> bool {
        matches!(self.state, State::Pipe(_))
    }

    /// Reads up to `size` bytes from `offset`; none at the end. `trace_pipe` has no offset, and
    /// waits for events unless `waits` is false, until `is_interrupted` returns true.
    ///
    /// # Errors
    /// `EAGAIN`, `EINTR`, `EBUSY` from `trace_pipe`; `EINVAL` for a file that is only written; else
    /// why the file cannot be made.
    pub fn read(
        &self,
        offset: u64,
        size: usize,
        waits: bool,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Vec<u8>, Errno> {
        match &self.state {
            State::Pipe(reader) => {
                reader.read(&self.buffer, self.cpu(), size, waits, is_interrupted)
            }
            State::Trace(stream) => self.read_trace(&mut guard(stream), offset, size),
            State::Text(text) => {
                let mut text = guard(text);
                if offset == 0 {
                    *text = match (self.file, self.cpu()) {
                        (File::Unread, _) => {
                            format!("{} {}\n", self.sessions.waiting(), std::process::id())
                                .into_bytes()
                        }
                        (File::SnapshotRaw, Some(cpu)) => {
                            pipe_reader::snapshot_pages(&self.buffer, cpu)?
                        }
                        _ => file::read(&self.buffer, self.file, &self.of)?.into_bytes(),
                    };
                }
                let rest =
                    usize::try_from(offset).ok().and_then(|at| text.get(at..)).unwrap_or_default();
                Ok(rest[..size.min(rest.len())].to_vec())
            }
            State::Marker(_) => Err(Errno::INVAL),
        }
    }

    fn read_trace(
        &self,
        stream: &mut Option<TextStream>,
        offset: u64,
        size: usize,
    ) -> Result<Vec<u8>, Errno> {
        if stream.as_ref().is_none_or(|stream| stream.position() != offset) {
            // The text is made again, because its begin is not kept.
            let mut again = TextStream::start(&self.buffer, self.cpu())?;
            while again.position() < offset {
                let skip =
                    usize::try_from(offset - again.position()).unwrap_or(usize::MAX).min(1 << 16);
                if again.read(skip).is_empty() {
                    return Ok(Vec::new());
                }
            }
            *stream = Some(again);
        }
        Ok(stream.as_mut().map_or_else(Vec::new, |stream| stream.read(size)))
    }

    fn cpu(&self) -> Option<u32> {
        if let Subject::Cpu(cpu) = self.of { Some(cpu) } else { None }
    }

    /// Follows a write of the process `pid`. Each call is a command of its own. Returns the number
    /// of bytes that were taken: all, except from a large write into `trace_marker`.
    ///
    /// # Errors
    /// The command is wrong or cannot be followed; `error_log` has the reason.
    pub fn write(&self, pid: u32, bytes: &[u8]) -> Result<usize, Errno> {
        let State::Marker(joined) = &self.state else {
            let done = match file::new_size(&self.buffer, self.file, &self.of, bytes)? {
                Some(size) => self.sessions.resize(&self.buffer, size, bytes),
                None => file::write(&self.buffer, self.file, &self.of, bytes),
            };
            return done.map(|()| bytes.len());
        };
        let is_raw = self.file == File::TraceMarkerRaw;
        if !self.buffer.markers.load(Relaxed) || is_raw && bytes.len() < 4 {
            return Err(Errno::INVAL);
        }
        if !self.buffer.is_recording()? {
            return Err(Errno::BADF);
        }
        let taken = &bytes[..bytes.len().min(MOST)];
        self.sessions.mark(&self.buffer, &mut guard(joined), is_raw, pid, taken)?;
        Ok(taken.len())
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        if self.file == File::FreeBuffer {
            file::free(&self.buffer);
        }
        let before = self.buffer.open_files.fetch_sub(1, AcqRel);
        debug_assert!(before > 0 && self.buffer.open_files.load(Acquire) < usize::MAX / 2);
    }
}

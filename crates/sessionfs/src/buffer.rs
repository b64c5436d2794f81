//! A session as the tree shows it: its mapping, its description, and what belongs to the mount.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lastwords_control::{Details, Handle, State};
use lastwords_open::{Options, Trace};
use rustix::io::Errno;

use crate::catalog::Catalog;
use crate::error_log::{ErrorLog, Refusal};
use crate::filter::Filters;
use crate::kinds::Kinds;
use crate::pipe::Pipe;
use crate::raw;
use crate::view::View;

/// A session.
#[derive(Debug)]
pub(crate) struct Buffer {
    /// The folder of the session.
    pub(crate) folder: PathBuf,
    pub(crate) handle: Arc<Handle>,
    /// The channels of the session that are shown.
    pub(crate) view: View,
    catalog: Mutex<Arc<Catalog>>,
    /// The numbers and names of the kinds of events, the same in all buffers of the session.
    pub(crate) kinds: Arc<Mutex<Kinds>>,
    /// Held while events of the session are consumed, because only one reader at a time can do
    /// that.
    pub(crate) consuming: Arc<Mutex<()>>,
    /// The size of a page of `trace_pipe_raw` and `snapshot_raw` in bytes. Writing
    /// `buffer_subbuf_size_kb` changes it; files that are opened afterwards have it. It orders
    /// nothing else.
    pub(crate) page_size: AtomicUsize,
    /// How full a ring must be for a reader of `trace_pipe_raw` who waits, in percent:
    /// `buffer_percent`. It orders nothing else.
    pub(crate) percent: AtomicU64,
    /// Events that were consumed and that no reader of `trace_pipe` has had yet.
    pub(crate) pipe: Mutex<Pipe>,
    /// The same of `snapshot_pipe`.
    pub(crate) snapshot_pipe: Mutex<Pipe>,
    pub(crate) errors: ErrorLog,
    pub(crate) filters: Filters,
    /// The option `markers`.
    pub(crate) markers: AtomicBool,
    /// The number of the saved snapshot that `snapshot` does not show any more, because it was
    /// cleared through the mount. It orders nothing else.
    pub(crate) cleared_snapshot: AtomicU32,
    /// Number of files of the session that are open through the mount.
    pub(crate) open_files: AtomicUsize,
}

impl Buffer {
    /// Opens the session in a folder, which must belong to this user.
    pub(crate) fn open(folder: &Path) -> Result<Self, lastwords::Error> {
        Ok(Self::new(folder, Arc::new(Handle::open(folder)?), View::Start))
    }

    /// Makes the buffer of a channel that was added to the session.
    pub(crate) fn of_channel(&self, id: u32) -> Self {
        let (kinds, consuming) = (Arc::clone(&self.kinds), Arc::clone(&self.consuming));
        Self {
            kinds,
            consuming,
            ..Self::new(&self.folder, Arc::clone(&self.handle), View::Added(id))
        }
    }

    fn new(folder: &Path, handle: Arc<Handle>, view: View) -> Self {
        Self {
            folder: folder.to_owned(),
            handle,
            view,
            catalog: Mutex::default(),
            kinds: Arc::default(),
            consuming: Arc::default(),
            page_size: AtomicUsize::new(raw::least_page_size()),
            percent: AtomicU64::new(0),
            pipe: Mutex::default(),
            snapshot_pipe: Mutex::new(Pipe::of_snapshot()),
            errors: ErrorLog::default(),
            filters: Filters::default(),
            markers: AtomicBool::new(true),
            cleared_snapshot: AtomicU32::new(0),
            open_files: AtomicUsize::new(0),
        }
    }

    /// Returns the session's details.
    pub(crate) fn details(&self) -> Result<Details, Errno> {
        self.handle.summary().details.map_err(|_| Errno::NODEV)
    }

    /// Returns true if no process records in the session any more.
    pub(crate) fn is_over(&self) -> bool {
        self.details().is_ok_and(|details| !matches!(details.state, State::Live | State::Unknown))
    }

    /// Returns the description of the session. It is read again only if the session has new events
    /// since.
    pub(crate) fn catalog(&self) -> Result<Arc<Catalog>, Errno> {
        let mut kept = guard(&self.catalog);
        let now: u64 =
            self.details()?.channels.iter().map(|channel| u64::from(channel.events)).sum();
        if kept.classes != now || kept.cpus.is_empty() {
            let described = |trace: &Trace| Catalog::new(trace, &mut guard(&self.kinds));
            *kept = Arc::new(self.with_trace(false, described)?);
        }
        Ok(Arc::clone(&kept))
    }

    /// Calls `read` with the session's trace: a copy of the live rings, or the snapshot.
    ///
    /// # Errors
    /// `ENODEV` if the session is gone, `EBUSY` if another process reads the snapshot, `ENODATA` if
    /// there is none.
    pub(crate) fn with_trace<T>(
        &self,
        snapshot: bool,
        read: impl FnOnce(&Trace) -> T,
    ) -> Result<T, Errno> {
        match (read_trace(&self.folder, snapshot, read), snapshot) {
            (Ok(Some(done)), _) => Ok(done),
            (Ok(None), true) => Err(Errno::NODATA),
            (Ok(None), false) => Err(Errno::NODEV),
            (Err(_), true) => Err(Errno::BUSY),
            (Err(error), false) => Err(error),
        }
    }

    /// Notes in `error_log` why a command is refused, and returns the error.
    pub(crate) fn refuse(&self, errno: Errno, command: &[u8], refusal: &Refusal) -> Errno {
        self.errors.add(&String::from_utf8_lossy(command), refusal);
        errno
    }

    /// Notes in `error_log` why the session's control failed, and returns the error.
    pub(crate) fn failed(&self, place: &str, command: &[u8], error: &lastwords::Error) -> Errno {
        self.refuse(
            errno_of(error),
            command,
            &Refusal::new(place, error.to_string().replace('\n', " ")),
        )
    }
}

/// Calls `read` with the trace of the session in a folder: its rings, or its snapshot. Returns none
/// if there is no trace.
///
/// # Errors
/// `EIO` if the folder cannot be read.
pub(crate) fn read_trace<T>(
    folder: &Path,
    snapshot: bool,
    read: impl FnOnce(&Trace) -> T,
) -> Result<Option<T>, Errno> {
    let options = Options { snapshot, ..Options::default() };
    let done = lastwords_live::read(&[folder.to_string_lossy()], &options, |opened| {
        opened.traces.first().map(read)
    });
    done.map_err(|_| Errno::IO)
}

/// Locks a mutex. What it protects stays consistent if a thread panics.
pub(crate) fn guard<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the error number that fits an error of the library.
pub(crate) fn errno_of(error: &lastwords::Error) -> Errno {
    use lastwords::Error;
    match error {
        Error::Io { source, .. } => {
            source.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error)
        }
        Error::Untrusted { .. } => Errno::PERM,
        Error::TooLarge { .. } => Errno::NOMEM,
        Error::Full { .. } => Errno::NOSPC,
        Error::Busy { .. } => Errno::BUSY,
        _ => Errno::INVAL,
    }
}

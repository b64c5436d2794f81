//! A session as the tree shows it: its mapping, its description, and what belongs to the mount.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex};

use lastwords::rules::RuleSpec;
use lastwords_control::{ChannelSummary, Details, Handle, State};
use lastwords_open::{Options, Trace};
use rustix::io::Errno;

use crate::catalog::Catalog;
use crate::errno::errno_of;
use crate::error_log::{ErrorLog, Refusal};
use crate::filters::Filters;
use crate::kinds::Kinds;
use crate::mutex::guard;
use crate::pipe::Pipe;
use crate::raw;
use crate::view::{Part, View, added_ids};

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

impl Buffer {
    /// Returns the channels that the folder shows.
    pub(crate) fn channels(&self) -> Result<Vec<ChannelSummary>, Errno> {
        let details = self.details()?;
        Ok(details
            .channels
            .iter()
            .filter(|channel| self.view.has(&details, channel))
            .cloned()
            .collect())
    }

    /// Returns the events that the folder shows, of a CPU or of all.
    pub(crate) fn part(&self, cpu: Option<u32>) -> Result<Part, Errno> {
        let details = self.details()?;
        let own: Vec<&ChannelSummary> =
            details.channels.iter().filter(|channel| self.view.has(&details, channel)).collect();
        if own.len() == details.channels.len() {
            return Ok(Part { cpu, ..Part::default() });
        }
        let names = own.iter().map(|channel| channel.name.clone()).collect();
        Ok(Part { cpu, channels: own.iter().map(|channel| channel.id).collect(), names })
    }

    /// Returns true if events are recorded that the folder shows.
    pub(crate) fn is_recording(&self) -> Result<bool, Errno> {
        Ok(self.details()?.recording && self.channels()?.iter().any(|channel| channel.recording))
    }

    /// Switches the recording of the events that the folder shows on or off.
    pub(crate) fn set_recording(&self, on: bool) -> Result<(), Errno> {
        let part = self.part(None)?;
        if part.channels.is_empty() || on && self.view == View::Start {
            self.handle.set_recording(None, on);
        }
        let own = self.channels()?;
        let is_due =
            |channel: &&ChannelSummary| on || !part.channels.is_empty() && channel.recording;
        own.iter()
            .filter(is_due)
            .for_each(|channel| self.handle.set_recording(Some(channel.id), on));
        Ok(())
    }

    /// Returns the rules for the events that the folder shows, as if the session had no other
    /// channels.
    pub(crate) fn rules(&self) -> Result<Vec<RuleSpec>, Errno> {
        let details = self.details()?;
        Ok(self.view.rules(&details.rules, &added_ids(&details)))
    }

    /// Changes these rules in one step.
    ///
    /// # Errors
    /// The list of rules is full or held, or a rule is not valid. Nothing has changed then.
    pub(crate) fn change_rules(
        &self,
        edit: impl FnOnce(&mut Vec<RuleSpec>),
    ) -> Result<(), lastwords::Error> {
        let added = self.details().map(|details| added_ids(&details)).unwrap_or_default();
        self.handle.change_rules(|rules| self.view.change_rules(rules, &added, edit))
    }
}

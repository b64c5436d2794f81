//! The journal of a recording: what it will add to the machine's tracing, written before anything
//! is added.
//!
//! A journal is a file of JSON, `.record-INSTANCE.json`, in the folder of the user's sessions. That
//! folder is in memory, so a journal does not outlive the boot, as tracefs does not.

use crate::adopted::Adopted;
use crate::definitions::Definition;
use crate::error::{Error, Result};
use crate::plan::Plan;
use crate::shared::Shared;
use crate::snapshot;
use crate::triggers;
use anyhow::{Context, bail, ensure};
use lastwords_ftrace::dat::Relation;
use lastwords_ring::os;
use serde::{Deserialize, Serialize};
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// The version of the form of journals.
const VERSION: u32 = 1;
const PREFIX: &str = ".record-";
const SUFFIX: &str = ".json";

/// Whether a recording goes on when its program has ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Stay {
    /// It ends with its program.
    #[default]
    No,
    /// It will, when it is set up.
    Planned,
    Yes,
}

/// The additions of a recording to the machine's tracing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Journal {
    version: u32,
    /// Process ID of the recorder.
    pub pid: u32,
    /// Start time of the recorder in clock ticks since boot; 0 if it is not known.
    start_time: u64,
    /// Inode of the recorder's pid namespace; 0 if it is not known.
    pid_namespace: u64,
    boot_id: String,
    /// The recording goes on when its program has ended.
    #[serde(default)]
    pub(crate) stay: Stay,
    /// Name of the instance.
    pub instance: String,
    /// Inode of the instance's folder, by which it is told from another of the same name; none
    /// until it is made.
    pub(crate) inode: Option<u64>,
    /// The former settings of the instance; none if the recording makes the instance.
    #[serde(default)]
    pub(crate) adopted: Option<Adopted>,
    /// The journals of more instances, whose events go into the same file.
    #[serde(default)]
    pub(crate) buffers: Vec<Journal>,
    /// Events that are defined for all instances.
    pub definitions: Vec<Definition>,
    /// Settings of the whole machine that are restored at the end.
    #[serde(default)]
    pub(crate) shared: Vec<Shared>,
    /// The clock of the instance.
    pub(crate) clock: String,
    /// The file that the trace is saved as.
    pub output: PathBuf,
    /// An existing file is replaced.
    pub(crate) force: bool,
    /// Events are moved to files, or to a receiver, while recording goes on.
    pub(crate) stream: bool,
    /// Address of the receiver that events are moved to; none for files. `output` is then for what
    /// cannot be sent.
    #[serde(default)]
    pub(crate) receiver: Option<String>,
    /// Triggers take snapshots, which are saved beside the output.
    #[serde(default)]
    pub(crate) snapshots: bool,
    /// The events of this instance with histograms, which are saved beside the output: systems and
    /// names.
    #[serde(default)]
    pub(crate) histograms: Vec<(String, String)>,
    /// Inode of the file with the histograms of all instances.
    #[serde(default)]
    pub(crate) histograms_saved: Option<u64>,
    /// The files of other machines that were recorded with this one.
    #[serde(default)]
    pub(crate) relation: Option<Relation>,
    /// A file of a CPU that is being made the output, and its bytes of events. Later bytes are of
    /// other CPUs.
    pub(crate) in_place: Option<(u32, u64)>,
    /// Inode of the finished file, which is about to take the name of the output.
    pub(crate) finished: Option<u64>,
}

/// The offset of the events in the files of a stream, so that the head of the output can be written
/// before them. It is a hole until then.
pub(crate) const RESERVED: u64 = 32 << 20;

/// The state of a recording, as other processes see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordingState {
    /// It goes on.
    Runs,
    /// It has ended, and all is saved.
    Ended,
    /// Its recorder ended without saving all; [`crate::restore`] does it.
    Killed,
}

/// Whether the recorder of a journal still runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    Alive,
    Dead,
    /// The machine was booted since.
    OfAnotherBoot,
}

impl Journal {
    /// Makes the journal of this process.
    pub(crate) fn new(
        plan: &Plan,
        instance: String,
        definitions: Vec<Definition>,
        output: PathBuf,
    ) -> Self {
        let pid = std::process::id();
        Self {
            version: VERSION,
            pid,
            start_time: os::start_time(pid),
            pid_namespace: os::pid_namespace(),
            boot_id: boot_id(),
            stay: if plan.stays { Stay::Planned } else { Stay::No },
            instance,
            inode: None,
            adopted: None,
            buffers: Vec::new(),
            definitions,
            shared: Vec::new(),
            clock: plan.clock().to_owned(),
            output,
            force: plan.force,
            stream: plan.stream || plan.receiver.is_some(),
            receiver: plan.receiver.as_ref().map(ToString::to_string),
            snapshots: triggers::has(&plan.events, "snapshot"),
            histograms: Vec::new(),
            histograms_saved: None,
            relation: None,
            in_place: None,
            finished: None,
        }
    }

    /// Returns the offset of the events in the files of CPUs.
    pub(crate) fn begin_of_parts(&self) -> u64 {
        if self.stream { RESERVED } else { 0 }
    }

    /// Returns true if the trace was saved, though what the recording added was not yet removed.
    pub(crate) fn is_saved(&self) -> bool {
        self.finished.is_some()
            && fs::metadata(&self.output).ok().map(|meta| meta.ino()) == self.finished
    }

    /// Returns the place of the journal in a folder.
    pub(crate) fn path(&self, folder: &Path) -> PathBuf {
        folder.join(format!("{PREFIX}{}{SUFFIX}", self.instance))
    }

    /// Writes the journal into a new file.
    ///
    /// # Errors
    /// The file exists: a recorder with the same instance runs, or was killed.
    pub(crate) fn write_new(&self, folder: &Path) -> anyhow::Result<()> {
        let path = self.path(folder);
        let new = self.write_beside(&path)?;
        // A link, in contrast to a rename, does not replace another recorder's journal.
        let linked = fs::hard_link(&new, &path);
        let _ = fs::remove_file(&new);
        match linked {
            Err(error)
                if error.kind() == ErrorKind::AlreadyExists
                    && read(&path).is_ok_and(|found| found.stay == Stay::Yes) =>
            {
                bail!(
                    "the instance {} is started already: `lastwords kernel reset {0}` ends that",
                    self.instance
                )
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => bail!(
                "{}: a recorder with the instance {} runs, or was killed; in the second case `lastwords restore` cleans up",
                path.display(),
                self.instance
            ),
            linked => linked.with_context(|| path.display().to_string()),
        }
    }

    /// Replaces the journal by one that is written completely before it takes the place.
    pub(crate) fn replace(&self, folder: &Path) -> anyhow::Result<()> {
        let path = self.path(folder);
        let new = self.write_beside(&path)?;
        fs::rename(&new, &path).with_context(|| path.display().to_string())
    }

    /// Writes the journal completely into a file of this process beside its place, and returns the
    /// path of that.
    fn write_beside(&self, path: &Path) -> anyhow::Result<PathBuf> {
        let new = self.unfinished(path);
        let text =
            serde_json::to_vec_pretty(self).with_context(|| self.output.display().to_string())?;
        let _ = fs::remove_file(&new);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new);
        file.and_then(|mut file| file.write_all(&text))
            .with_context(|| new.display().to_string())?;
        Ok(new)
    }

    /// Returns the place of a journal that is being written, beside its own.
    fn unfinished(&self, path: &Path) -> PathBuf {
        path.with_extension(format!("{}.new", self.pid))
    }

    /// Removes the journal, and what a program left that was killed while it wrote it.
    pub(crate) fn remove(&self, folder: &Path) -> anyhow::Result<()> {
        let path = self.path(folder);
        let _ = fs::remove_file(self.unfinished(&path));
        fs::remove_file(&path).with_context(|| format!("{}: cannot be removed", path.display()))
    }

    /// Returns the names of the instances whose triggers make histograms.
    pub fn with_histograms(&self) -> impl Iterator<Item = &str> {
        let all = [self].into_iter().chain(&self.buffers);
        all.filter(|own| !own.histograms.is_empty()).map(|own| own.instance.as_str())
    }

    /// Returns true if triggers of the recording take snapshots.
    #[must_use]
    pub fn takes_snapshots(&self) -> bool {
        self.snapshots
    }

    /// Returns the folders of the snapshots that are saved beside the output, oldest first.
    #[must_use]
    pub fn saved_snapshots(&self) -> Vec<PathBuf> {
        snapshot::existing(&self.output).into_iter().map(|(_, path)| path).collect()
    }

    /// Returns what is known of the recording, whose journal was in a folder.
    #[must_use]
    pub fn state(&self, folder: &Path) -> RecordingState {
        // A recorder removes its journal when all is saved.
        if !self.path(folder).exists() {
            return RecordingState::Ended;
        }
        match self.owner() {
            Owner::Alive => RecordingState::Runs,
            Owner::Dead if self.stay == Stay::Yes => RecordingState::Runs,
            Owner::Dead | Owner::OfAnotherBoot => RecordingState::Killed,
        }
    }

    /// Returns whether the recorder runs. One in another pid namespace cannot be seen, so it is
    /// taken for alive.
    pub(crate) fn owner(&self) -> Owner {
        if self.boot_id != boot_id() {
            return Owner::OfAnotherBoot;
        }
        let is_seen = self.pid_namespace == os::pid_namespace();
        // The function compares the low 32 bits of the start time.
        let start = u32::try_from(self.start_time & u64::from(u32::MAX)).unwrap_or(0);
        if !is_seen || os::is_process_alive(self.pid, start) { Owner::Alive } else { Owner::Dead }
    }
}

/// Reads all journals in a folder, by the names of their instances. A folder that does not exist
/// has none.
///
/// # Errors
/// The folder or a journal cannot be read.
pub fn list(folder: &Path) -> Result<Vec<Journal>> {
    read_all(folder).map_err(|why| Error::journal(folder, &why))
}

fn read_all(folder: &Path) -> anyhow::Result<Vec<Journal>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.with_context(|| folder.display().to_string())?,
    };
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| is_journal(name))
        .collect();
    names.sort();
    names.iter().map(|name| read(&folder.join(name))).collect()
}

fn is_journal(name: &str) -> bool {
    name.starts_with(PREFIX) && name.ends_with(SUFFIX)
}

fn read(path: &Path) -> anyhow::Result<Journal> {
    let named = || {
        format!(
            "{}: no journal of a recorder; look into /sys/kernel/tracing/instances, then remove it",
            path.display()
        )
    };
    let text = fs::read(path).with_context(|| path.display().to_string())?;
    let journal: Journal = serde_json::from_slice(&text).with_context(named)?;
    ensure!(
        journal.version == VERSION,
        "{}: a journal of version {}, of another lastwords",
        path.display(),
        journal.version
    );
    let all = [&journal].into_iter().chain(&journal.buffers);
    ensure!(all.into_iter().all(|journal| is_instance_name(&journal.instance)), named());
    Ok(journal)
}

/// Returns true if a text can be the name of an instance, a folder.
pub(crate) fn is_instance_name(name: &str) -> bool {
    !name.is_empty() && !name.contains('/') && !name.starts_with('.')
}

fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn journal(instance: &str) -> Journal {
        Journal::new(&Plan::default(), instance.to_owned(), Vec::new(), "/tmp/trace.dat".into())
    }

    #[test]
    fn a_journal_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let mut one = journal("one");
        one.write_new(folder.path()).unwrap();
        assert!(
            one.write_new(folder.path()).unwrap_err().to_string().contains("lastwords restore")
        );
        one.inode = Some(7);
        one.replace(folder.path()).unwrap();
        journal("another").write_new(folder.path()).unwrap();
        assert_eq!(list(folder.path()).unwrap(), [journal("another"), one.clone()]);
        assert_eq!(one.state(folder.path()), RecordingState::Runs);
        let killed = Journal { boot_id: "another".to_owned(), ..one.clone() };
        assert_eq!(killed.state(folder.path()), RecordingState::Killed);
        fs::write(one.unfinished(&one.path(folder.path())), "{").unwrap();
        one.remove(folder.path()).unwrap();
        assert!(!one.unfinished(&one.path(folder.path())).exists());
        assert_eq!(one.state(folder.path()), RecordingState::Ended);
        assert_eq!(list(folder.path()).unwrap(), [journal("another")]);
        assert!(list(&folder.path().join("none")).unwrap().is_empty());
    }

    #[test]
    fn the_owner_is_known_by_pid_start_time_and_boot() {
        let own = journal("a");
        assert_eq!(own.owner(), Owner::Alive);
        let reused = Journal { start_time: own.start_time + 1, ..own.clone() };
        assert_eq!(reused.owner(), Owner::Dead);
        assert_eq!(Journal { boot_id: "another".to_owned(), ..own }.owner(), Owner::OfAnotherBoot);
        assert_eq!(Journal { pid_namespace: 1, ..reused }.owner(), Owner::Alive);
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["", "..", "a/../.."] {
            let bytes = serde_json::to_vec(&journal(name)).unwrap();
            fs::write(folder.path().join(".record-x.json"), bytes).unwrap();
            assert!(list(folder.path()).is_err(), "{name:?}");
        }
    }
}

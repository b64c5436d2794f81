//! What is known besides the input: the boot of this machine, the kernel's log, pstore.

use super::KernelLine;
use super::kernel_log::PANIC;
use std::path::{Path, PathBuf};

/// What is known besides the input. By default nothing is.
#[derive(Debug, Clone, Default)]
pub struct Outside {
    /// The id of this machine's boot.
    pub boot_id: Option<[u8; 16]>,
    /// The name of this machine.
    pub hostname: String,
    /// The log of the running kernel, oldest line first. Its ids and times are of this boot.
    pub kernel_log: Vec<KernelLine>,
    /// Why the log of the running kernel cannot be read.
    pub no_kernel_log: Option<String>,
    /// A log that a user gave, of a boot that is not known.
    pub given_log: Vec<KernelLine>,
    /// What the kernel kept for the next boot.
    pub pstore: Vec<PstoreRecord>,
    /// The hardware watchdogs that say that they reset the machine before this boot.
    pub watchdogs: Vec<String>,
    /// The OOM kills in the control group that a user named.
    pub cgroup: Option<OomKills>,
    /// Where the control groups of this machine are mounted; none if they are not looked at.
    pub control_groups: Option<PathBuf>,
}

/// The OOM kills in a control group, as its counter has them. It does not say which processes they
/// were.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OomKills {
    /// The folder of the group.
    pub cgroup: String,
    /// Number of kills since the group was made.
    pub kills: u64,
}

impl OomKills {
    /// Reads the counter of the group of a folder; none if there is none.
    #[must_use]
    pub fn read(folder: &Path) -> Option<Self> {
        let kills = lastwords_folders::oom_kills(folder)?;
        Some(Self { cgroup: folder.display().to_string(), kills })
    }

    /// Returns what it shows, in words.
    pub(super) fn hint(&self) -> String {
        let cgroup = crate::escape(&self.cgroup);
        match self.kills {
            0 => format!(
                "{cgroup}: no process of this control group was killed because memory ran out"
            ),
            kills => {
                let (processes, were) =
                    if kills == 1 { ("process", "was") } else { ("processes", "were") };
                format!(
                    "{cgroup}: {kills} {processes} of this control group {were} killed because memory ran out; its counter does not say which"
                )
            }
        }
    }
}

/// A record in pstore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PstoreRecord {
    /// The name of its file.
    pub name: String,
    /// When the kernel wrote it, nanoseconds since the epoch; none if that is not known.
    pub written: Option<u64>,
    /// The text.
    pub text: String,
}

impl PstoreRecord {
    /// Parses the lines of the log in the record, oldest first.
    pub(super) fn lines(&self) -> Vec<KernelLine> {
        KernelLine::parse_all(&self.text)
    }

    /// Returns the line of the panic in the record, if there is one.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        self.text.lines().find_map(|line| line.find(PANIC).and_then(|at| line.get(at..)))
    }
}

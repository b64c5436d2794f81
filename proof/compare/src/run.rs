//! Running both programs on one input.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use rig::ended::{End, end};

/// Both programs, and the reader that counts events.
pub(super) struct Programs {
    lastwords: PathBuf,
    reader: PathBuf,
}

impl Programs {
    /// Builds ours, unless it is given.
    pub(super) fn new(program: Option<PathBuf>) -> Result<Self> {
        let reader = rig::bin().join("babeltrace2.1");
        if let Some(lastwords) = program {
            return Ok(Self { lastwords, reader });
        }
        Ok(Self { lastwords: rig::programs::lastwords()?, reader })
    }

    /// Recovers `from` into `to` with ours.
    pub(super) fn ours(&self, from: &Path, to: &Path) -> Result<End> {
        let mut command = Command::new(&self.lastwords);
        command.arg("recover").arg(from).arg("-o").arg(to);
        end(command)
    }

    /// Recovers `from` into `to` with the peer.
    pub(super) fn peer(&self, from: &Path, to: &Path) -> Result<End> {
        let mut command = Command::new("lttng-crash");
        command.arg("--extract").arg(to).arg(from);
        end(command)
    }

    /// Events that the reader prints of a folder, damaged or not.
    pub(super) fn events(&self, folder: &Path) -> Result<usize> {
        if !folder.is_dir() {
            return Ok(0);
        }
        let read = Command::new(&self.reader).arg(folder).stdin(Stdio::null()).output();
        let read =
            read.with_context(|| format!("{}; run `cargo xtask setup`", self.reader.display()))?;
        Ok(read.stdout.iter().filter(|byte| **byte == b'\n').count())
    }
}

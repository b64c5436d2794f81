//! Running both programs on one input.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// Longest that a program may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// By itself, with this status.
    Exit(i32),
    /// By a signal.
    Died,
    /// Not within [`PATIENCE`].
    Hung,
}

/// Both programs, and the reader that counts events.
pub(super) struct Programs {
    lastwords: PathBuf,
    reader: PathBuf,
}

impl Programs {
    /// Builds ours, unless it is given.
    pub(super) fn new(program: Option<PathBuf>) -> Result<Self> {
        let reader = crate::setup::bin().join("babeltrace2.1");
        if let Some(lastwords) = program {
            return Ok(Self { lastwords, reader });
        }
        let built = Command::new(crate::cargo())
            .current_dir(crate::root())
            .args(["build", "--release", "--quiet"])
            .status()
            .context("cargo build --release")?;
        anyhow::ensure!(built.success(), "cargo build --release: {built}");
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| crate::root().join("target"), PathBuf::from);
        Ok(Self { lastwords: target.join("release/lastwords"), reader })
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
        let read = read.with_context(|| format!("{}; run `cargo xtask setup`", self.reader.display()))?;
        Ok(read.stdout.iter().filter(|byte| **byte == b'\n').count())
    }
}

fn end(mut command: Command) -> Result<End> {
    use std::os::unix::process::ExitStatusExt;
    let name = command.get_program().to_owned();
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = quiet.spawn().with_context(|| name.display().to_string())?;
    let begun = Instant::now();
    let of =
        |status: ExitStatus| if status.signal().is_some() { End::Died } else { End::Exit(status.code().unwrap_or(0)) };
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(of(status));
        }
        if begun.elapsed() > PATIENCE {
            child.kill()?;
            child.wait()?;
            return Ok(End::Hung);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

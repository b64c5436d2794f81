//! Processes that a rig starts and ends.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

/// Longest wait for a child.
const PATIENCE: Duration = Duration::from_secs(30);

/// A child that does not outlive us.
#[derive(Debug)]
pub struct Killed(pub Child);

impl Killed {
    /// Sends SIGKILL, and waits for the end.
    ///
    /// # Errors
    /// The child cannot be killed or waited for.
    pub fn kill(&mut self) -> Result<()> {
        self.0.kill().context("kill")?;
        self.0.wait().context("wait")?;
        Ok(())
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

/// Waits until `is_so`, which is asked again after each `pause`.
///
/// # Errors
/// The child ends before, it takes longer than 30 s, or an error of `is_so`.
pub fn wait_until(
    child: &mut Child,
    pause: Duration,
    mut is_so: impl FnMut() -> Result<bool>,
) -> Result<()> {
    let begun = Instant::now();
    while !is_so()? {
        if let Some(status) = child.try_wait()? {
            bail!("the child ended by itself: {status}");
        }
        let passed = begun.elapsed();
        ensure!(passed < PATIENCE, "the child did not answer for {} s", PATIENCE.as_secs());
        std::thread::sleep(pause);
    }
    Ok(())
}

/// `lastwords mount` of a session; unmounted when dropped.
#[derive(Debug)]
pub struct Mount(Child);

impl Mount {
    /// Mounts a session in a folder. `lastwords` is the program, in its surroundings.
    ///
    /// # Errors
    /// The program cannot be started, or does not mount.
    pub fn start(lastwords: &mut Command, folder: &Path, session: &str) -> Result<Self> {
        lastwords.arg("mount").arg(folder).args([session, "--foreground"]).stdout(Stdio::piped());
        let mut child = lastwords.spawn().with_context(|| crate::shown(lastwords))?;
        let out = child.stdout.take().context("no stdout")?;
        let mount = Self(child);
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line)?;
        ensure!(!line.is_empty(), "the mount failed");
        Ok(mount)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

//! A session of LTTng-UST for the bench alone: its own daemon, home and sockets.
//!
//! The daemon ends with us: dropped, killed or crashed. Where we are root it has `/run/lttng` to
//! itself in a mount namespace, so that it neither meets nor disturbs a daemon of the machine.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use rig::run_quietly;
use rig::scratch::Scratch;

/// The user-space tracepoints that are recorded.
const EVENTS: &str = "lastwords_bench:a,lastwords_bench:b";
/// As the other contenders' rings: 4 sub-buffers of 64 KiB for each CPU; no timer wakes anybody.
const SNAPSHOT: &[&str] =
    &["--overwrite", "--subbuf-size=64k", "--num-subbuf=4", "--switch-timer=0", "--read-timer=0"];

/// A running daemon with a started session.
pub(super) struct Session {
    daemon: Child,
    home: Scratch,
    /// Whether the daemon lives in a mount namespace of its own.
    apart: bool,
}

impl Session {
    /// Starts the daemon, and a session for snapshots.
    pub(super) fn start() -> Result<Self> {
        let session = Self::daemon()?;
        let output = session.snapshots();
        session.create(&["--snapshot", &format!("--output={}", output.display())], SNAPSHOT)?;
        Ok(session)
    }

    /// Starts the daemon.
    pub(super) fn daemon() -> Result<Self> {
        let home = Scratch::create(&std::env::temp_dir(), "lastwords-bench-lttng")?;
        let apart = rig::is_root() && can_unshare();
        let daemon = daemon(home.path(), apart)?;
        let mut session = Self { daemon, home, apart };
        session.wait_until_ready()?;
        Ok(session)
    }

    /// The folder of the snapshots.
    pub(super) fn snapshots(&self) -> PathBuf {
        self.home.path().join("snapshot")
    }

    /// Makes a session and its channel with these options, and starts it.
    pub(super) fn create(&self, options: &[&str], channel: &[&str]) -> Result<()> {
        self.lttng(&[&["create", "bench"], options].concat())?;
        let always = ["enable-channel", "--userspace", "--buffers-uid", "--monitor-timer=0"];
        self.lttng(&[&always, channel, &["bench"]].concat())?;
        self.lttng(&["enable-event", "--userspace", "--channel=bench", EVENTS])?;
        self.lttng(&["start"]).map(drop)
    }

    /// Stops the session and removes it. Returns when all that was recorded is where it is to go.
    pub(super) fn destroy(&self) -> Result<()> {
        self.lttng(&["destroy", "--all"]).map(drop)
    }

    /// The process ids of the session daemon and of the daemons that it started, which read the
    /// rings.
    pub(super) fn daemons(&self) -> Result<Vec<u32>> {
        let id = self.daemon.id();
        let mut all = vec![id];
        for task in std::fs::read_dir(format!("/proc/{id}/task"))? {
            let text = std::fs::read_to_string(task?.path().join("children")).unwrap_or_default();
            all.extend(text.split_whitespace().filter_map(|word| word.parse::<u32>().ok()));
        }
        Ok(all)
    }

    /// A program that finds this daemon and no other, and waits until it is registered there.
    pub(super) fn command(&self, program: &Path) -> Command {
        let mut command = if self.apart {
            let mut inside = Command::new("nsenter");
            inside.arg(format!("--mount=/proc/{}/ns/mnt", self.daemon.id())).arg("--").arg(program);
            inside
        } else {
            Command::new(program)
        };
        command.env("LTTNG_HOME", self.home.path()).env("LTTNG_UST_REGISTER_TIMEOUT", "10000");
        command
    }

    /// An error unless the peer did record in earnest: a snapshot holds events.
    pub(super) fn check(&self) -> Result<()> {
        self.lttng(&["snapshot", "record"])?;
        if stream_bytes(&self.snapshots())? == 0 {
            bail!("LTTng-UST's snapshot is empty: its numbers mean nothing");
        }
        Ok(())
    }

    fn lttng(&self, arguments: &[&str]) -> Result<String> {
        run_quietly(self.command("lttng".as_ref()).arg("--no-sessiond").args(arguments))
            .with_context(|| format!("lttng {}", arguments.join(" ")))
    }

    fn wait_until_ready(&mut self) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            if let Some(status) = self.daemon.try_wait()? {
                bail!("lttng-sessiond ended at its start: {status}; does another one run?");
            }
            match self.lttng(&["list"]) {
                Ok(_) => return Ok(()),
                Err(error) if Instant::now() > deadline => {
                    return Err(error.context("lttng-sessiond does not answer"));
                }
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    /// Asks the daemon to end; true once it has.
    fn has_ended(&mut self) -> bool {
        let id = self.daemon.id().to_string();
        let _ = Command::new("sh")
            .args(["-c", "kill -TERM \"$1\"", "sh", &id])
            .stderr(Stdio::null())
            .status();
        let deadline = Instant::now() + Duration::from_secs(5);
        while Instant::now() < deadline {
            match self.daemon.try_wait() {
                Ok(None) => std::thread::sleep(Duration::from_millis(20)),
                Ok(Some(_)) => return true,
                Err(_) => return false,
            }
        }
        false
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.destroy();
        if !self.has_ended() {
            let _ = self.daemon.kill();
            let _ = self.daemon.wait();
        }
    }
}

/// Starts `lttng-sessiond` so that it is told to end when the thread that starts it, our only one,
/// ends.
fn daemon(home: &Path, apart: bool) -> Result<Child> {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "TERM"]);
    if apart {
        let script = "mkdir -p /run/lttng && mount -t tmpfs none /run/lttng && exec \"$@\"";
        command.args(["unshare", "--mount", "sh", "-c", script, "sh"]);
    }
    command.args(["lttng-sessiond", "--no-kernel", "--quiet"]).env("LTTNG_HOME", home);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().context("cannot run lttng-sessiond: package lttng-tools")
}

fn can_unshare() -> bool {
    run_quietly(Command::new("unshare").args(["--mount", "true"])).is_ok()
}

/// The size of all files below a folder, those called `metadata` and `index` left out.
pub(super) fn stream_bytes(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in
        std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?
    {
        let entry = entry?;
        let name = entry.file_name();
        if entry.file_type()?.is_dir() {
            bytes += if name == "index" { 0 } else { stream_bytes(&entry.path())? };
        } else if name != "metadata" {
            bytes += entry.metadata()?.len();
        }
    }
    Ok(bytes)
}

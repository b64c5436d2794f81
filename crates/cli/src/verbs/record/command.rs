//! Waits until a recording is over: its command has ended, or a signal came.

use crate::say;
use anyhow::Context;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};
use signal_hook::{flag, low_level::pipe};
use std::ffi::OsString;
use std::io::Read as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Longest time between two looks at whether the streams still work.
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 500_000_000 };
/// How long a command that was asked to end is waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// The signals that end a recording.
pub(super) struct Signals {
    /// One of them came.
    came: Arc<AtomicBool>,
    wakes: UnixStream,
}

impl Signals {
    /// Catches SIGINT, SIGTERM and SIGHUP from now on.
    pub(super) fn catch() -> anyhow::Result<Self> {
        let came = Arc::new(AtomicBool::new(false));
        let (wakes, wake) = UnixStream::pair().context("a pair of sockets")?;
        wakes.set_nonblocking(true)?;
        for signal in [SIGINT, SIGTERM, SIGHUP, SIGCHLD] {
            if signal != SIGCHLD {
                flag::register(signal, Arc::clone(&came)).context("a handler of signals")?;
            }
            pipe::register(signal, wake.try_clone()?).context("a handler of signals")?;
        }
        Ok(Self { came, wakes })
    }

    /// Returns true if a signal came that ends the recording.
    pub(super) fn came(&self) -> bool {
        self.came.load(Relaxed)
    }

    /// Waits for a signal or the end of a child, at most for [`TICK`].
    fn wait(&mut self) {
        // An interrupted wait is repeated by the caller.
        let _ = poll(&mut [PollFd::new(&self.wakes, PollFlags::IN)], Some(&TICK));
        let mut bytes = [0; 64];
        while self.wakes.read(&mut bytes).is_ok_and(|read| read > 0) {}
    }
}

/// Starts the command. `user` is the folder for the sessions of its applications.
pub(super) fn start(words: &[OsString], user: Option<&Path>) -> anyhow::Result<Option<Child>> {
    let Some((program, rest)) = words.split_first() else { return Ok(None) };
    let mut command = Command::new(program);
    command.args(rest);
    if let Some(folder) = user {
        command.env("LASTWORDS_DIR", folder);
    }
    command.spawn().map(Some).with_context(|| format!("{}: cannot be run", program.display()))
}

/// Waits until the command ends, a signal comes, or the recording is over. Returns the status of a
/// command that has ended.
pub(super) fn wait(
    signals: &mut Signals,
    child: &mut Option<Child>,
    is_over: &dyn Fn() -> bool,
) -> anyhow::Result<Option<ExitStatus>> {
    loop {
        // Ctrl-C on a terminal also ends the command. Then its status does not count.
        if signals.came() || is_over() {
            return Ok(None);
        }
        if let Some(child) = child
            && let Some(status) = child.try_wait().context("the command")?
        {
            return Ok(Some(status));
        }
        signals.wait();
    }
}

/// Ends a command that still runs after the recording has ended.
pub(super) fn end(signals: &mut Signals, mut child: Child) {
    let pid = Pid::from_child(&child);
    let begin = Instant::now();
    // The command is not reaped before `try_wait`, so its process ID is its own.
    if matches!(child.try_wait(), Ok(None)) && kill_process(pid, Signal::TERM).is_ok() {
        while matches!(child.try_wait(), Ok(None)) {
            if begin.elapsed() > PATIENCE {
                say::note(format_args!(
                    "the command, process {}, still runs: it was sent SIGTERM",
                    child.id()
                ));
                return;
            }
            signals.wait();
        }
    }
}

/// Returns the exit status that stands for the end of a command, as shells have it.
pub(super) fn code(status: ExitStatus) -> u8 {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    u8::try_from(code).unwrap_or(1)
}

//! Waits until a recording is over: its command has ended, or a signal came.

use crate::exit::Outcome;
use crate::say;
use anyhow::Context;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};
use signal_hook::{flag, low_level::pipe};
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Longest time between two looks at whether the streams still work.
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 500_000_000 };
/// How long a command that was asked to end is waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// The exit status of a command that cannot be run, as shells have it.
const NOT_FOUND: u8 = 127;

/// The signals that end a recording.
pub(super) struct Signals {
    /// One of them came.
    came: Arc<AtomicBool>,
    wakes: UnixStream,
    /// It has a byte for each signal that ends the recording, and that came since
    /// [`Signals::forget`].
    ends: UnixStream,
}

impl Signals {
    /// Catches SIGINT, SIGTERM and SIGHUP from now on.
    pub(super) fn catch() -> anyhow::Result<Self> {
        let came = Arc::new(AtomicBool::new(false));
        let (wakes, wake) = UnixStream::pair().context("a pair of sockets")?;
        let (ends, end) = UnixStream::pair().context("a pair of sockets")?;
        wakes.set_nonblocking(true)?;
        ends.set_nonblocking(true)?;
        for signal in [SIGINT, SIGTERM, SIGHUP, SIGCHLD] {
            if signal != SIGCHLD {
                flag::register(signal, Arc::clone(&came)).context("a handler of signals")?;
                pipe::register(signal, end.try_clone()?).context("a handler of signals")?;
            }
            pipe::register(signal, wake.try_clone()?).context("a handler of signals")?;
        }
        Ok(Self { came, wakes, ends })
    }

    /// Returns what can be read when a signal has come that ends the recording.
    pub(super) fn ended(&self) -> BorrowedFd<'_> {
        self.ends.as_fd()
    }

    /// Forgets the signals that have come for [`Signals::ended`], which is then readable at the next.
    pub(super) fn forget(&mut self) {
        drain(&mut self.ends);
    }

    /// Returns true if a signal came that ends the recording.
    pub(super) fn came(&self) -> bool {
        self.came.load(Relaxed)
    }

    /// Waits for a signal or the end of a child, at most for [`TICK`].
    fn wait(&mut self) {
        // An interrupted wait is repeated by the caller.
        let _ = poll(&mut [PollFd::new(&self.wakes, PollFlags::IN)], Some(&TICK));
        drain(&mut self.wakes);
    }
}

/// Reads all bytes that a socket has.
fn drain(socket: &mut UnixStream) {
    let mut bytes = [0; 64];
    while socket.read(&mut bytes).is_ok_and(|read| read > 0) {}
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

/// A command that has a process but does not run yet, so that the process can be chosen before.
pub(super) struct Waiting {
    child: Child,
    /// The process waits for a byte of this pipe.
    start: File,
    /// The process opens this end through `/proc`, perhaps after the byte was written.
    end: OwnedFd,
}

/// Starts a process that waits, and then becomes the command.
pub(super) fn start_waiting(
    words: &[OsString],
    user: Option<&Path>,
) -> anyhow::Result<Option<Waiting>> {
    let (end, start) = pipe_with(PipeFlags::CLOEXEC).context("a pipe for the command")?;
    let path = format!("/proc/{}/fd/{}", std::process::id(), end.as_raw_fd());
    let this = std::env::current_exe().context("the path of this program")?;
    let wrapped: Vec<OsString> =
        [this.into(), "record-command".into(), path.into(), "--".into()].into_iter().collect();
    let child = self::start(&[&wrapped, words].concat(), user)?;
    Ok(child.map(|child| Waiting { child, start: start.into(), end }))
}

impl Waiting {
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Lets the process become the command. The pipe must be kept until that has ended.
    pub(super) fn go(mut self) -> anyhow::Result<(Child, OwnedFd)> {
        self.start.write_all(b"x").context("the command")?;
        Ok((self.child, self.end))
    }
}

/// The arguments of the process that waits.
#[derive(Debug, clap::Args)]
pub(crate) struct CommandArgs {
    /// The pipe of the recorder
    pipe: PathBuf,

    /// The command
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// Waits for the recorder, and becomes the command. If the recorder ends before, so does this.
pub(crate) fn run_command(args: &CommandArgs) -> anyhow::Result<Outcome> {
    let mut byte = [0];
    if File::open(&args.pipe).and_then(|mut pipe| pipe.read_exact(&mut byte)).is_err() {
        return Ok(Outcome::Negative);
    }
    let Some((program, rest)) = args.command.split_first() else { return Ok(Outcome::Negative) };
    let error = Command::new(program).args(rest).exec();
    say::error(format_args!("{}: cannot be run: {error}", program.display()));
    Ok(Outcome::Command(NOT_FOUND))
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

//! Records what is written into `trace_marker`.
//!
//! Every event of a process goes to all its sessions. So that a write goes to one session alone, a
//! process of its own records it: the program itself, started again. It joins a session of the
//! user, or makes one for `mkdir`, and lives as long as its standard input is open.
//!
//! A request is a kind, the writer's process id, a length, and that many bytes. The answer is the
//! byte 1, or the byte 0 and a line with the reason of a refusal.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Mutex;

use lastwords::rules::RuleSpec;
use lastwords::{ChannelConfig, Scope, Session, event};
use lastwords_control::Handle;
use rustix::io::Errno;

use crate::catalog::MARKER;
use crate::error_log::Refusal;
use crate::mutex::guard;

/// How the program starts the processes that a mount needs. What is appended: for the recorder,
/// `make` or `join` and the session's name; for the guard, the folder of the mount.
#[derive(Debug, Clone)]
pub struct Programs {
    /// The program.
    pub program: PathBuf,
    /// The words by which the program calls [`record`].
    pub recorder: Vec<OsString>,
    /// The words by which the program calls [`crate::guard()`].
    pub guard: Vec<OsString>,
}

/// Largest size of a write into `trace_marker`, in bytes.
pub(crate) const MOST: usize = 16 << 10;
const TEXT: u8 = 0;
const RAW: u8 = 1;
const RESIZE: u8 = 2;
/// The name of the channel that takes all events, in a session that is started without channels of
/// its own.
const MAIN: &str = "main";
/// Sub-buffers of each ring of a channel that takes its place.
const SUB_BUFFERS: u32 = 8;
/// The sizes of these sub-buffers, in bytes.
const SUB_BUFFER_SIZES: std::ops::RangeInclusive<u64> = 4 << 10..=1 << 30;

/// A process that records.
#[derive(Debug)]
pub(crate) struct Recorder {
    child: Mutex<(Child, Option<Pipes>)>,
}

/// The standard input and output of a recorder.
type Pipes = (ChildStdin, BufReader<ChildStdout>);

impl Recorder {
    /// Starts a recorder that joins the session of this name, or makes it.
    pub(crate) fn start(
        programs: &Programs,
        dir: Option<&Path>,
        make: bool,
        name: &str,
    ) -> Result<Self, Refusal> {
        let refuse = |why: String| Refusal::new(if make { "mkdir" } else { "trace_marker" }, why);
        let mut command = Command::new(&programs.program);
        command.args(&programs.recorder).args([if make { "make" } else { "join" }, name]);
        command
            .env_remove("LASTWORDS")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        dir.map(|dir| command.env("LASTWORDS_DIR", dir));
        let started = command
            .spawn()
            .map_err(|error| refuse(format!("{}: {error}", programs.program.display())));
        let mut child = started?;
        let pipes = child.stdin.take().zip(child.stdout.take().map(BufReader::new));
        let recorder = Self { child: Mutex::new((child, pipes)) };
        let mut line = String::new();
        if let Some((_, answers)) = &mut guard(&recorder.child).1 {
            let _ = answers.read_line(&mut line);
        }
        match line.trim_end() {
            "ok" => Ok(recorder),
            "" => Err(refuse("the process that records ended".to_owned())),
            why => Err(refuse(why.to_owned())),
        }
    }

    /// Records a text, or with `raw` bytes that begin with an id. `pid` is the process that wrote
    /// them.
    pub(crate) fn record(&self, raw: bool, pid: u32, bytes: &[u8]) -> Result<(), Errno> {
        self.ask(if raw { RAW } else { TEXT }, pid, bytes).map(drop)
    }

    /// Records in rings of another size from now on, in bytes a CPU. Returns the reason if that
    /// cannot be done.
    pub(crate) fn resize(&self, size: u64) -> Result<Result<(), String>, Errno> {
        self.ask(RESIZE, 0, &size.to_le_bytes())
    }

    /// Makes a request. Returns the reason if it is refused.
    fn ask(&self, kind: u8, pid: u32, bytes: &[u8]) -> Result<Result<(), String>, Errno> {
        let mut child = guard(&self.child);
        let Some((requests, answers)) = &mut child.1 else { return Err(Errno::NODEV) };
        let mut request = vec![kind];
        request.extend(pid.to_le_bytes());
        request.extend((bytes.len() as u32).to_le_bytes());
        request.extend(bytes);
        let (mut answer, mut why) = ([0], String::new());
        let mut done = requests.write_all(&request).and_then(|()| answers.read_exact(&mut answer));
        if done.is_ok() && answer == [0] {
            done = answers.read_line(&mut why).map(drop);
        }
        done.map_err(|_| Errno::NODEV)?;
        Ok(if answer == [0] { Err(why.trim_end().to_owned()) } else { Ok(()) })
    }
}

impl Drop for Recorder {
    /// Closes the recorder's standard input, and waits until it has left the session.
    fn drop(&mut self) {
        let mut child = guard(&self.child);
        child.1 = None;
        let _ = child.0.wait();
    }
}

/// Records the requests on standard input in the session of this name, until the end of the input.
/// With `make`, makes the session, and removes it at the end unless others record in it.
///
/// # Errors
/// Standard input or output fails.
pub fn record(name: &str, make: bool) -> io::Result<()> {
    let (mut input, mut output) = (io::stdin().lock(), io::stdout().lock());
    let session = match Session::builder(name).scope(Scope::User).start() {
        Ok(session) => session,
        Err(error) => return writeln!(output, "{}", error.to_string().replace('\n', " ")),
    };
    writeln!(output, "ok")?;
    output.flush()?;
    let mut main = session.channel(MAIN).unwrap_or(0);
    let mut head = [0; 9];
    while input.read_exact(&mut head).is_ok() {
        let word =
            |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (pid, len) = (word(1), word(5) as usize);
        let mut bytes = vec![0; len.min(MOST)];
        input.read_exact(&mut bytes)?;
        match (head[0], bytes.first_chunk()) {
            (RESIZE, Some(size)) => match resize(&session, main, u64::from_le_bytes(*size)) {
                Ok(new) => {
                    main = new;
                    output.write_all(&[1])?;
                }
                Err(error) => writeln!(output, "\0{}", error.to_string().replace('\n', " "))?,
            },
            (kind, _) => {
                put(kind == RAW, pid, &bytes);
                output.write_all(&[1])?;
            }
        }
        output.flush()?;
    }
    if make {
        session.remove();
    }
    Ok(())
}

/// Makes a channel in place of the channel `before`, so that the session's rings have at least
/// `size` bytes a CPU together. The events of the channel before stay. Returns the id of the new
/// channel. This thread alone records in this process, and records nothing meanwhile. A program
/// that joins meanwhile finds at each moment a channel that records; an event that it records in
/// both is one event for readers.
fn resize(session: &Session, before: u32, size: u64) -> Result<u32, lastwords::Error> {
    let handle = Handle::open(session.folder().unwrap_or(Path::new("")))?;
    let channels = handle.summary().details.map(|details| details.channels).unwrap_or_default();
    let others = channels.iter().filter(|channel| channel.recording && channel.id != before);
    let of_others: u64 =
        others.map(|channel| u64::from(channel.sub_buffers) * channel.sub_buffer_size).sum();
    let sub_buffer = size.saturating_sub(of_others).div_ceil(u64::from(SUB_BUFFERS));
    let sub_buffer =
        sub_buffer.clamp(*SUB_BUFFER_SIZES.start(), *SUB_BUFFER_SIZES.end()).next_power_of_two();
    let name = format!("{MAIN}.{}", channels.len() + 1);
    let new = session
        .create_channel(&ChannelConfig::new(name).sub_buffers(SUB_BUFFERS, sub_buffer), None)?;
    handle.change_rules(|rules| {
        // Until here, a rule keeps all events from the new channel.
        rules.retain(|rule| rule.channel != Some(new));
        rules
            .iter_mut()
            .filter(|rule| rule.channel == Some(before))
            .for_each(|rule| rule.channel = Some(new));
    })?;
    handle.set_recording(Some(before), false);
    // This rule changes nothing: what is written into trace_marker is always recorded. It makes
    // this process follow at once.
    session.rule(&RuleSpec::enable(format!("{MARKER}:*")))?;
    Ok(new)
}

fn put(raw: bool, pid: u32, bytes: &[u8]) {
    let comm = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let comm = comm.trim_end();
    match bytes.split_first_chunk() {
        Some((id, rest)) if raw => {
            event!(
                ftrace,
                "raw_data",
                id = u32::from_ne_bytes(*id),
                buf = rest,
                pid = pid,
                comm = comm
            );
        }
        _ => {
            let text = String::from_utf8_lossy(bytes);
            event!(ftrace, "print", buf = text.trim_end_matches('\n'), pid = pid, comm = comm);
        }
    }
}

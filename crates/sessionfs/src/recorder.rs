//! Records what is written into `trace_marker`.
//!
//! Every event of a process goes to all its sessions. So that a write goes to one session alone, a process of its own records it:
//! the program itself, started again. It joins a session of the user, or makes one for `mkdir`, and lives as long as its
//! standard input is open.
//!
//! A request is a kind, the writer's process id, a length, and that many bytes; the answer is a byte.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Mutex;

use lastwords::{Scope, Session, event};
use rustix::io::Errno;

use crate::buffer::guard;
use crate::error_log::Refusal;

/// How the program starts the processes that a mount needs. What is appended: for the recorder, `make` or `join` and the session's
/// name; for the guard, the folder of the mount.
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

/// A process that records.
#[derive(Debug)]
pub(crate) struct Recorder {
    child: Mutex<(Child, Option<Pipes>)>,
}

/// The standard input and output of a recorder.
type Pipes = (ChildStdin, BufReader<ChildStdout>);

impl Recorder {
    /// Starts a recorder that joins the session of this name, or makes it.
    pub(crate) fn start(programs: &Programs, dir: Option<&Path>, make: bool, name: &str) -> Result<Self, Refusal> {
        let refuse = |why: String| Refusal::new(if make { "mkdir" } else { "trace_marker" }, why);
        let mut command = Command::new(&programs.program);
        command.args(&programs.recorder).args([if make { "make" } else { "join" }, name]);
        command.env_remove("LASTWORDS").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        dir.map(|dir| command.env("LASTWORDS_DIR", dir));
        let started = command.spawn().map_err(|error| refuse(format!("{}: {error}", programs.program.display())));
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

    /// Records a text, or with `raw` bytes that begin with an id. `pid` is the process that wrote them.
    pub(crate) fn record(&self, raw: bool, pid: u32, bytes: &[u8]) -> Result<(), Errno> {
        let mut child = guard(&self.child);
        let Some((requests, answers)) = &mut child.1 else { return Err(Errno::NODEV) };
        let mut request = vec![if raw { RAW } else { TEXT }];
        request.extend(pid.to_le_bytes());
        request.extend((bytes.len() as u32).to_le_bytes());
        request.extend(bytes);
        let mut answer = [0];
        let done = requests.write_all(&request).and_then(|()| answers.read_exact(&mut answer));
        done.map_err(|_| Errno::NODEV)
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

/// Records the requests on standard input in the session of this name, until the end of the input. With `make`, makes the session,
/// and removes it at the end unless others record in it.
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
    let mut head = [0; 9];
    while input.read_exact(&mut head).is_ok() {
        let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (pid, len) = (word(1), word(5) as usize);
        let mut bytes = vec![0; len.min(MOST)];
        input.read_exact(&mut bytes)?;
        put(head[0] == RAW, pid, &bytes);
        output.write_all(&[1])?;
        output.flush()?;
    }
    if make {
        session.remove();
    }
    Ok(())
}

fn put(raw: bool, pid: u32, bytes: &[u8]) {
    let comm = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let comm = comm.trim_end();
    match bytes.split_first_chunk() {
        Some((id, rest)) if raw => {
            event!(ftrace, "raw_data", id = u32::from_ne_bytes(*id), buf = rest, pid = pid, comm = comm);
        }
        _ => {
            let text = String::from_utf8_lossy(bytes);
            event!(ftrace, "print", buf = text.trim_end_matches('\n'), pid = pid, comm = comm);
        }
    }
}

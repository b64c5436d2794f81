//! Speaks QEMU's machine protocol (QMP): a JSON object on each line, answers to commands and events
//! in one stream. Source: QEMU's docs/interop/qmp-spec.

use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// Longest line that is read, bytes.
const LONGEST: u64 = 16 << 20;
/// Time in which QEMU answers a command.
const ANSWER: Duration = Duration::from_secs(30);
/// Time after which a read returns, so that signals are noticed.
const LOOK: Duration = Duration::from_millis(100);

/// A connection to QEMU.
pub(super) struct Qmp {
    stream: BufReader<UnixStream>,
    /// The line that has begun to arrive.
    line: Vec<u8>,
    /// Events that came while an answer was waited for.
    events: VecDeque<String>,
}

impl Qmp {
    /// Connects to the socket, and agrees on the protocol.
    ///
    /// # Errors
    /// Nobody listens, or not QEMU.
    pub(super) fn connect(socket: &Path) -> anyhow::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(LOOK))?;
        let mut qmp =
            Self { stream: BufReader::new(stream), line: Vec::new(), events: VecDeque::new() };
        let greeting = qmp.wait("a greeting").context(
            "QMP answers one client at a time: give QEMU a socket of its own for this (-qmp unix:PATH,server=on,wait=off)",
        )?;
        ensure!(greeting.get("QMP").is_some(), "not a socket of QMP");
        qmp.execute("qmp_capabilities", json!({}))?;
        Ok(qmp)
    }

    /// Returns the process that listens on the socket.
    pub(super) fn process(&self) -> anyhow::Result<u32> {
        let peer = rustix::net::sockopt::socket_peercred(self.stream.get_ref())?;
        Ok(peer.pid.as_raw_nonzero().get().cast_unsigned())
    }

    /// Runs a command, and returns its result.
    ///
    /// # Errors
    /// QEMU refuses it, does not answer, or is gone.
    pub(super) fn execute(&mut self, command: &str, arguments: Value) -> anyhow::Result<Value> {
        let request = json!({ "execute": command, "arguments": arguments });
        writeln!(self.stream.get_mut(), "{request}").with_context(|| format!("QMP {command}"))?;
        loop {
            let mut answer = self.wait("an answer").with_context(|| format!("QMP {command}"))?;
            if let Some(value) = answer.get_mut("return") {
                return Ok(value.take());
            }
            if let Some(error) = answer.get("error") {
                let why = error["desc"].as_str().unwrap_or("refused without a reason");
                bail!("QMP {command}: {why}");
            }
            self.events.extend(event(&answer));
        }
    }

    /// Runs a command of the monitor for people, and returns what it prints.
    ///
    /// # Errors
    /// Same as [`Qmp::execute`].
    pub(super) fn monitor(&mut self, command: &str) -> anyhow::Result<String> {
        let printed = self.execute("human-monitor-command", json!({ "command-line": command }))?;
        printed.as_str().map(str::to_owned).with_context(|| format!("QMP: no text of `{command}`"))
    }

    /// Waits a moment for an event, and returns its name.
    ///
    /// # Errors
    /// QEMU is gone.
    pub(super) fn event(&mut self) -> anyhow::Result<Option<String>> {
        if let Some(event) = self.events.pop_front() {
            return Ok(Some(event));
        }
        Ok(self.read()?.as_ref().and_then(event))
    }

    /// Waits for an object.
    fn wait(&mut self, what: &str) -> anyhow::Result<Value> {
        let begun = Instant::now();
        loop {
            if let Some(object) = self.read()? {
                return Ok(object);
            }
            ensure!(begun.elapsed() < ANSWER, "no {what} in {} s", ANSWER.as_secs());
        }
    }

    /// Reads a line; none if it has not arrived yet.
    fn read(&mut self) -> anyhow::Result<Option<Value>> {
        let room = LONGEST.saturating_sub(self.line.len() as u64);
        match self.stream.by_ref().take(room).read_until(b'\n', &mut self.line) {
            Ok(_) if self.line.ends_with(b"\n") => {
                let line = std::mem::take(&mut self.line);
                let object = serde_json::from_slice(&line);
                Ok(Some(object.context("QMP: a line that is not JSON")?))
            }
            Ok(_) if self.line.len() as u64 >= LONGEST => {
                bail!("QMP: a line of more than {LONGEST} bytes")
            }
            Ok(_) => bail!("QEMU has ended"),
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                Ok(None)
            }
            Err(error) => Err(error).context("QMP"),
        }
    }
}

/// Returns the name of the event that an object is.
fn event(object: &Value) -> Option<String> {
    object.get("event").and_then(Value::as_str).map(str::to_owned)
}

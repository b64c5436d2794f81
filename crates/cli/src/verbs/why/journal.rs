//! Writes explanations of ends to the system's journal, in fields, as systemd-coredump does.
//!
//! Source: "Native Journal Protocol" of systemd (https://systemd.io/JOURNAL_NATIVE_PROTOCOL). An
//! entry is a datagram; one that is too large for that is a sealed memfd, whose descriptor is sent.

use super::page::line_of;
use super::{Line, Why};
use crate::table::plain;
use anyhow::Context;
use lastwords_open::why::{Cause, signal_name};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::fs::File;
use std::io::{self, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

/// The socket of journald.
pub(super) const SOCKET: &str = "/run/systemd/journal/socket";
/// The id of these messages, as `MESSAGE_ID`. It stays the same for ever.
const MESSAGE_ID: &str = "3b1aefe0341b4733a808e6b1198efda2";
/// Number of last events of an entry.
pub(super) const EVENTS: u64 = 50;

/// Writes an entry for each explanation.
///
/// # Errors
/// Nobody listens at the socket, or the system refuses.
pub(super) fn write(all: &[Why], socket: &Path) -> anyhow::Result<()> {
    let named = || format!("{}: the journal takes no entry", socket.display());
    let out = UnixDatagram::unbound().with_context(named)?;
    out.connect(socket).with_context(named)?;
    all.iter().try_for_each(|why| send(&out, &entry(why)).with_context(named))
}

/// Sends an entry.
fn send(out: &UnixDatagram, entry: &[u8]) -> io::Result<()> {
    match out.send(entry) {
        Err(error)
            if [Errno::MSGSIZE, Errno::NOBUFS]
                .iter()
                .any(|too_large| error.raw_os_error() == Some(too_large.raw_os_error())) =>
        {
            send_file(out, entry)
        }
        sent => sent.map(|_| ()),
    }
}

/// Sends an entry as a memfd, which nobody can change any more.
fn send_file(out: &UnixDatagram, entry: &[u8]) -> io::Result<()> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut file = File::from(memfd_create("lastwords-journal", flags)?);
    file.write_all(entry)?;
    fcntl_add_seals(
        &file,
        SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL,
    )?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files = [file.as_fd()];
    if !control.push(SendAncillaryMessage::ScmRights(&files)) {
        return Err(io::Error::other("no room for a descriptor"));
    }
    sendmsg(out, &[], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Appends a field. A value of several lines is written with its length.
fn field(entry: &mut Vec<u8>, name: &str, value: &str) {
    entry.extend_from_slice(name.as_bytes());
    if value.contains('\n') {
        entry.push(b'\n');
        entry.extend_from_slice(&(value.len() as u64).to_le_bytes());
    } else {
        entry.push(b'=');
    }
    entry.extend_from_slice(value.as_bytes());
    entry.push(b'\n');
}

/// Returns the entry of an explanation. All that others named is one line: `plain` escapes the
/// control characters.
fn entry(why: &Why) -> Vec<u8> {
    let mut entry = Vec::new();
    let mut add = |name: &str, value: &str| field(&mut entry, name, value);
    let verdict = &why.verdict;
    let lines = |lines: &[Line]| lines.iter().map(line_of).collect::<Vec<_>>().join("\n");
    let (name, sentence) = (plain(&why.name), plain(&verdict.sentence));
    let events = lines(&why.last_events);
    let head = format!("{} {name}: {sentence}", why.what);
    add("MESSAGE", format!("{head}\n\n{events}").trim_end());
    add("MESSAGE_ID", MESSAGE_ID);
    add("PRIORITY", priority(verdict.cause));
    add("SYSLOG_IDENTIFIER", "lastwords");
    add("LASTWORDS_SESSION", &name);
    add("LASTWORDS_CAUSE", verdict.cause.word());
    add("LASTWORDS_SENTENCE", &sentence);
    add("LASTWORDS_INPUT", &plain(&why.from));
    for evidence in &verdict.evidence {
        add("LASTWORDS_EVIDENCE", &format!("{}: {}", evidence.from.words(), plain(&evidence.text)));
    }
    verdict.hints.iter().for_each(|hint| add("LASTWORDS_HINT", &plain(hint)));
    if let Some(crash) = verdict.crash.as_ref().filter(|crash| !crash.backtrace.is_empty()) {
        let frames: Vec<String> =
            crash.backtrace_lines().iter().map(|line| plain(line.trim())).collect();
        add("LASTWORDS_BACKTRACE", &frames.join("\n"));
    }
    if let Some(error) = &why.last_error {
        add("LASTWORDS_LAST_ERROR", &line_of(error));
    }
    add("LASTWORDS_LAST_EVENTS", &events);
    let spans: Vec<String> = why
        .open_spans
        .iter()
        .flatten()
        .map(|span| plain(&format!("{} {}", span.name, span.fields)))
        .collect();
    add("LASTWORDS_OPEN_SPANS", &spans.join("\n"));
    add("LASTWORDS_LOST", &why.lost);
    if let Some(at) = verdict.at {
        let name =
            if verdict.is_last_seen { "LASTWORDS_LAST_SEEN_USEC" } else { "COREDUMP_TIMESTAMP" };
        add(name, &(at / 1000).to_string());
    }
    if let Some(pid) = why.pid {
        add("COREDUMP_PID", &pid.to_string());
    }
    if let Some(uid) = why.uid {
        add("COREDUMP_UID", &uid.to_string());
    }
    if let Some(program) = &why.program {
        add("COREDUMP_COMM", &plain(program));
    }
    if let Some(host) = &why.hostname {
        add("COREDUMP_HOSTNAME", &plain(host));
    }
    if let Cause::Signal(Some(number)) = verdict.cause {
        add("COREDUMP_SIGNAL", &number.to_string());
        add("COREDUMP_SIGNAL_NAME", &signal_name(number));
    }
    entry
}

/// Returns the priority of syslog: critical for a crash, as systemd-coredump has it.
fn priority(cause: Cause) -> &'static str {
    match cause {
        Cause::Panic
        | Cause::Signal(_)
        | Cause::OutOfMemory
        | Cause::KernelPanic
        | Cause::KernelOops
        | Cause::Lockup => "2",
        Cause::Exit(_) | Cause::Error => "3",
        Cause::Unknown | Cause::Reboot => "4",
        Cause::Alive | Cause::GoodOrder => "6",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_several_lines_have_their_length() {
        let mut entry = Vec::new();
        field(&mut entry, "A", "one=1");
        field(&mut entry, "B", "x\ny");
        assert_eq!(entry, b"A=one=1\nB\n\x03\0\0\0\0\0\0\0x\ny\n");
    }
}

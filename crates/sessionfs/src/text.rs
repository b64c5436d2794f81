//! The text of `trace` and `snapshot`: the kernel's header, and the lines of the style `ftrace`.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use lastwords_ctf::Version;
use lastwords_ctf::read::unwatched;
use lastwords_open::{Trace, accounts_after_reading};
use lastwords_render::events;
use lastwords_render::evidence::Account;
use lastwords_render::text::{self, Style, Zone};
use lastwords_trace::evidence::{Cause, Gap};
use rustix::io::Errno;

use crate::buffer::Buffer;
use crate::kernel_line::{Lines, Names};
use crate::view::Part;

/// Lines about losses that a header has at most.
const LIMIT: usize = 20;

/// Writes a part of a trace as text: a header, the events, and what reading them found to be lost.
/// Returns the number of events.
pub(crate) fn write(
    trace: &Trace,
    part: &Part,
    cpus: usize,
    names: &Names,
    out: &mut dyn Write,
) -> io::Result<u64> {
    let other = |error: lastwords_ctf::Error| io::Error::other(error.to_string());
    let Some(packets) = trace.packets(Version::V2) else { return Ok(0) };
    let (packets, selection) = ([packets.map_err(other)?], part.selection());
    let mut count = 0u64;
    events::each(&packets, &selection, &unwatched, &mut |_, _| count += 1, &mut |_| {});
    let account = part.account(trace.account());
    header(&account, part, count, cpus, out)?;
    let (zone, mut reading) = (Zone::utc(), Vec::new());
    let mut note = |note| {
        if let events::Note::Read(trace, totals) = note {
            reading.push((trace, totals));
        }
    };
    let mut lines = Lines::new(out, names);
    let written =
        text::write(&packets, Style::Ftrace, &selection, &zone, &mut lines, &unwatched, &mut note);
    lines.flush()?;
    let totals = written.map_err(other)?;
    // The header has the losses that are known before reading.
    let after = accounts_after_reading(std::slice::from_ref(trace), &totals, &reading);
    let after: Vec<Account<'_>> = after.into_iter().map(|account| part.account(account)).collect();
    if after.iter().any(Account::has_losses) && !account.has_losses() {
        after.iter().try_for_each(|account| losses(account, out))?;
    }
    Ok(totals.events)
}

/// Returns the number of events of a part that are lost; none if that is not known, or if rings
/// have overwritten events.
pub(crate) fn lost(account: &Account<'_>, part: &Part) -> Option<u64> {
    let has = |stream: usize| account.streams.get(stream).is_some_and(|stream| part.has(stream));
    let is_own = |gap: &&Gap| gap.stream.is_none_or(has);
    let counts = account.evidence.gaps.iter().filter(is_own).map(|gap| match gap.cause {
        Cause::Overwritten | Cause::Unread => None,
        cause if cause.is_loss() => gap.events,
        _ => Some(0),
    });
    counts.sum()
}

/// Writes the header. How many events were recorded is not known (`?`) once rings have overwritten
/// some.
fn header(
    account: &Account<'_>,
    part: &Part,
    count: u64,
    cpus: usize,
    out: &mut dyn Write,
) -> io::Result<()> {
    let written = lost(account, part)
        .map_or_else(|| "?".to_owned(), |lost| count.saturating_add(lost).to_string());
    writeln!(
        out,
        "# tracer: nop\n#\n# entries-in-buffer/entries-written: {count}/{written}   #P:{cpus}\n#"
    )?;
    if account.has_losses() {
        losses(account, out)?;
    }
    writeln!(out, "#           TASK-PID     CPU#  LEVEL  TIMESTAMP  FUNCTION")?;
    writeln!(out, "#              | |         |     |        |         |")
}

/// Writes what is lost, each line as a comment.
fn losses(account: &Account<'_>, out: &mut dyn Write) -> io::Result<()> {
    let mut text = Vec::new();
    account.write(LIMIT, &mut text)?;
    String::from_utf8_lossy(&text).lines().try_for_each(|line| writeln!(out, "# {line}"))?;
    writeln!(out, "#")
}

/// The text of an empty snapshot, with the kernel's words. `is_allocated`: there are spare rings.
pub(crate) fn snapshot_help(is_allocated: bool, cpu: Option<u32>) -> String {
    let state = if is_allocated { "Snapshot is allocated" } else { "Snapshot is freed" };
    let (zero, one) = match cpu {
        None => (
            "Clears and frees snapshot buffer",
            "Allocates snapshot buffer, if not already allocated.",
        ),
        Some(_) => (
            "Must be used with main snapshot file.",
            "Must be used with main snapshot file to allocate.",
        ),
    };
    format!(
        "# tracer: nop\n#\n#\n# * {state} *\n#\n# Snapshot commands:\n\
         # echo 0 > snapshot : {zero}\n\
         # echo 1 > snapshot : {one}\n\
         #                      Takes a snapshot of the {} buffer.\n\
         # echo 2 > snapshot : Clears snapshot buffer (but does not allocate or free)\n\
         #                      (Doesn't have to be '2' works with any number that\n\
         #                       is not a '0' or '1')\n",
        if cpu.is_none() { "main" } else { "CPU's" }
    )
}

/// The text of `trace`, which a thread makes while it is read, so that the text of a large ring is
/// never in memory.
#[derive(Debug)]
pub(crate) struct TextStream {
    from: Receiver<Vec<u8>>,
    piece: Vec<u8>,
    at: usize,
    /// Bytes that were read.
    position: u64,
}

/// Pieces of text that wait for a reader.
const WAITING: usize = 2;

struct Pieces(SyncSender<Vec<u8>>);

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.send(bytes.to_vec()).map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl TextStream {
    /// Starts the text of a session's live rings.
    pub(crate) fn start(buffer: &Arc<Buffer>, cpu: Option<u32>) -> Result<Self, Errno> {
        let (cpus, names, part) =
            (buffer.catalog()?.cpus.len(), Names::read(buffer)?, buffer.part(cpu)?);
        let (to, from) = sync_channel(WAITING);
        let buffer = Arc::clone(buffer);
        let make = move || {
            let mut pieces = Pieces(to);
            let written =
                buffer.with_trace(false, |trace| write(trace, &part, cpus, &names, &mut pieces));
            let why = match written {
                Ok(Err(error)) if error.kind() != io::ErrorKind::BrokenPipe => error.to_string(),
                Err(error) => error.to_string(),
                _ => return,
            };
            // The reader may have gone.
            let _ = writeln!(pieces, "# the rest cannot be read: {why}");
        };
        std::thread::Builder::new().name("trace".into()).spawn(make).map_err(|_| Errno::AGAIN)?;
        Ok(Self { from, piece: Vec::new(), at: 0, position: 0 })
    }

    /// Returns the position of the next byte.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Returns the next bytes, `size` of them unless the text ends before.
    pub(crate) fn read(&mut self, size: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        while bytes.len() < size {
            if self.at >= self.piece.len() {
                let Ok(piece) = self.from.recv() else { break };
                (self.piece, self.at) = (piece, 0);
            }
            let end = (self.at + size - bytes.len()).min(self.piece.len());
            bytes.extend_from_slice(&self.piece[self.at..end]);
            self.at = end;
        }
        self.position += bytes.len() as u64;
        bytes
    }
}

//! The files `trace_pipe`, `trace_pipe_raw` and `snapshot_pipe`: consuming reads, which return each
//! event once. The recorder's consuming read takes the events of all CPUs at once.

use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use lastwords_ctf::Version;
use lastwords_folders::SnapshotState;
use lastwords_live::consume_session;
use lastwords_open::{Opened, Options, Trace};
use lastwords_render::evidence::Account;
use lastwords_render::text::{self, Style, Zone};
use rustix::io::Errno;

use crate::buffer::Buffer;
use crate::file;
use crate::kernel_line::Names;
use crate::mutex::guard;
use crate::pipe::{Item, MOST, Pipe};
use crate::raw;
use crate::view::Part;

/// Time between two looks at rings that had nothing new.
const WAIT: Duration = Duration::from_millis(20);

/// Number of looks after a change in which the rings are read although nothing changed: an event
/// may have been in flight.
const EAGER: u32 = 5;

/// Number of looks after which the rings are read in any case.
const LAZY: u32 = 50;

impl Pipe {
    /// Returns true if the records of a CPU that wait are as many as `buffer_percent` asks for,
    /// after a look at the rings.
    fn is_filled(&mut self, buffer: &Buffer, cpu: Option<u32>) -> Result<bool, Errno> {
        let percent = buffer.percent.load(Relaxed);
        if percent == 0 {
            return Ok(true);
        }
        self.fill(buffer)?;
        let level = file::ring_size(&buffer.channels()?) / 100 * percent;
        let records = self
            .queues
            .get(&cpu)
            .into_iter()
            .flat_map(|queue| &queue.items)
            .filter_map(|(_, item)| item.raw.as_ref().ok());
        // More than this is not kept for a reader.
        Ok(records.map(|record| record.bytes.len() as u64).sum::<u64>()
            >= level.min(MOST as u64 / 2))
    }

    /// Consumes what is in the rings, unless nothing has changed since the last time.
    fn fill(&mut self, buffer: &Buffer) -> Result<(), Errno> {
        if self.of_snapshot && buffer.details()?.snapshot != SnapshotState::Taken {
            return Ok(());
        }
        let produced = buffer.handle.produced();
        self.quiet = if self.produced == Some(produced) { self.quiet.saturating_add(1) } else { 0 };
        if !self.of_snapshot && self.quiet > EAGER && !self.quiet.is_multiple_of(LAZY) {
            return Ok(());
        }
        let (mut items, names, part) = (Vec::new(), Names::read(buffer)?, buffer.part(None)?);
        let options = Options { snapshot: self.of_snapshot, ..Options::default() };
        let _alone = guard(&buffer.consuming);
        let consumed = consume_session(&buffer.handle, &part.channels, &options, |opened| {
            let Opened { traces, failures, .. } = opened;
            let written = traces
                .iter()
                .all(|trace| items_of(buffer, &names, (trace, &part), &mut items).is_some());
            let is_whole = failures.is_empty() && written;
            (is_whole, traces, is_whole)
        });
        match consumed {
            Ok((true, consumed)) if consumed.failed.is_empty() => {
                self.produced = Some(produced);
                self.add(items);
                Ok(())
            }
            Ok((true, _)) => Err(Errno::BUSY),
            Ok((false, _)) if !buffer.folder.is_dir() => Err(Errno::NODEV),
            // Another consumer has the session.
            Ok((false, _)) => Err(Errno::BUSY),
            Err(_) => Err(Errno::IO),
        }
    }
}

/// Appends the events of a part of a trace, after an item for each ring that has lost some. Returns
/// none, and appends nothing, if they cannot be read.
fn items_of(
    buffer: &Buffer,
    names: &Names,
    (trace, part): (&Trace, &Part),
    items: &mut Vec<Item>,
) -> Option<()> {
    let packets = [trace.packets(Version::V2)?.ok()?];
    let mut found: Vec<Item> = lost(&part.account(trace.account()));
    let losses = found.len();
    raw::each(trace, part, &mut guard(&buffer.kinds), &mut |cpu, record| {
        found.push(Item { cpu, line: Vec::new(), raw: record.ok_or(Some(1)) });
    })?;
    let mut events = found.get_mut(losses..)?.iter_mut();
    // The lines are of the same events in the same order.
    let mut put = |_: i64, line: &[u8]| {
        events.next().map(|item| item.line = names.line(line).into_owned()).is_some()
    };
    text::each(&packets, Style::Ftrace, &part.selection(), &Zone::utc(), &mut put, &mut |_| {})
        .ok()?;
    let is_same = events.next().is_none();
    is_same.then(|| items.append(&mut found))
}

/// Returns an item for each loss, in the kernel's words where they fit.
fn lost(account: &Account<'_>) -> Vec<Item> {
    let item = |gap: &lastwords_trace::evidence::Gap| {
        let cpu = gap.stream.and_then(|stream| account.streams.get(stream)?.cpu);
        let who = cpu.map_or_else(|| "?".to_owned(), |cpu| cpu.to_string());
        let count = gap.events.map_or_else(|| "?".to_owned(), |events| events.to_string());
        let bytes = gap.bytes.map_or_else(String::new, |bytes| format!(", {bytes} bytes"));
        let channel = gap
            .stream
            .and_then(|stream| account.streams.get(stream))
            .map_or("", |stream| &stream.channel);
        let why = gap.cause.word();
        let line = format!("CPU:{who} [LOST {count} EVENTS] channel {channel}: {why}{bytes}\n")
            .into_bytes();
        Item { cpu, line, raw: Err(gap.events) }
    };
    account.evidence.gaps.iter().filter(|gap| gap.cause.is_loss()).map(item).collect()
}

/// Returns the pages of `snapshot_raw`: the events of a CPU in a snapshot, which are not consumed.
pub(crate) fn snapshot_pages(buffer: &Buffer, cpu: u32) -> Result<Vec<u8>, Errno> {
    if !buffer.details()?.snapshot.is_there() {
        return Ok(Vec::new());
    }
    let (mut items, names, part) = (Vec::new(), Names::read(buffer)?, buffer.part(None)?);
    buffer
        .with_trace(true, |trace| items_of(buffer, &names, (trace, &part), &mut items))?
        .ok_or(Errno::IO)?;
    let mut pipe = Pipe::default();
    items.into_iter().filter(|item| item.cpu == Some(cpu)).for_each(|item| pipe.push(item));
    let size = buffer.page_size.load(Relaxed);
    Ok(std::iter::from_fn(|| pipe.take_page(Some(cpu), size, true)).flatten().collect())
}

/// A reader of `trace_pipe`, `trace_pipe_raw` or `snapshot_pipe`.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    has_read: AtomicBool,
    of_snapshot: bool,
    pages: Option<Pages>,
}

/// The form of `trace_pipe_raw`.
#[derive(Debug)]
struct Pages {
    size: usize,
    /// The rest of the page that a read has begun.
    rest: Mutex<Vec<u8>>,
    /// The reader has had a page and not yet found that there is no more. Only readers of the file
    /// write and read it, under the lock of `rest`.
    drains: AtomicBool,
}

impl Reader {
    /// Makes a reader of pages of this size.
    pub(crate) fn of_pages(size: usize) -> Self {
        Self {
            pages: Some(Pages { size, rest: Mutex::default(), drains: AtomicBool::new(false) }),
            ..Self::default()
        }
    }

    /// Makes a reader of the snapshot.
    pub(crate) fn of_snapshot() -> Self {
        Self { of_snapshot: true, ..Self::default() }
    }

    /// Returns the next events as text, or as one page or a part of it; waits for them. An empty
    /// result is the end: this reader has had something, and recording is off or it reads the
    /// snapshot; or nobody records in the session any more.
    ///
    /// # Errors
    /// `EAGAIN` if there are none and the reader does not wait, `EINTR` if `is_interrupted` returns
    /// true, `EBUSY` if another program consumes the session.
    pub(crate) fn read(
        &self,
        buffer: &Buffer,
        cpu: Option<u32>,
        size: usize,
        waits: bool,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Vec<u8>, Errno> {
        loop {
            // Whoever looks at the state first, and then consumes, misses nothing that was recorded
            // before the end.
            let (is_over, is_on) = (buffer.is_over(), buffer.is_recording()?);
            let is_end = is_over || (!is_on || self.of_snapshot) && self.has_read.load(Relaxed);
            let bytes = self.next(buffer, cpu, size, (waits, is_end), is_interrupted)?;
            if !bytes.is_empty() {
                self.has_read.store(true, Relaxed);
            }
            if !bytes.is_empty() || is_end {
                return Ok(bytes);
            }
            if !waits {
                return Err(Errno::AGAIN);
            }
            std::thread::sleep(WAIT);
        }
    }

    fn next(
        &self,
        buffer: &Buffer,
        cpu: Option<u32>,
        size: usize,
        (waits, is_end): (bool, bool),
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Vec<u8>, Errno> {
        let mut pipe = guard(if self.of_snapshot { &buffer.snapshot_pipe } else { &buffer.pipe });
        let Some(pages) = &self.pages else {
            if pipe.next(cpu).is_none() {
                pipe.fill(buffer)?;
            }
            // A reader that is about to be killed would lose what it takes.
            return if is_interrupted() { Err(Errno::INTR) } else { Ok(pipe.take(cpu, size)) };
        };
        let mut rest = guard(&pages.rest);
        if rest.is_empty() {
            if is_interrupted() {
                return Err(Errno::INTR);
            }
            // A reader that has to wait waits until the ring is full enough, and then reads all
            // that is there.
            if waits && !is_end && !pages.drains.load(Relaxed) && !pipe.is_filled(buffer, cpu)? {
                return Ok(Vec::new());
            }
            let mut page = pipe.take_page(cpu, pages.size, false);
            if page.is_none() {
                pipe.fill(buffer)?;
                page = pipe.take_page(cpu, pages.size, is_end);
            }
            pages.drains.store(page.is_some(), Relaxed);
            *rest = page.unwrap_or_default();
        }
        let end = size.min(rest.len());
        Ok(rest.drain(..end).collect())
    }
}

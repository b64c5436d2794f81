//! The files `trace_pipe`: consuming reads, which return each event once.
//!
//! The recorder's consuming read takes the events of all CPUs at once. What a reader does not take at once stays here for the next
//! one, whether it reads the session's `trace_pipe` or that of a CPU.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use lastwords_ctf::Version;
use lastwords_formats::text::{self, Style, Zone};
use lastwords_open::{Opened, Options, Trace, consume_session};
use rustix::io::Errno;

use crate::buffer::{Buffer, guard};
use crate::text::selection;

/// Time between two looks at rings that had nothing new.
const WAIT: Duration = Duration::from_millis(20);
/// Number of looks after a change in which the rings are read although nothing changed: an event may have been in flight.
const EAGER: u32 = 5;
/// Number of looks after which the rings are read in any case.
const LAZY: u32 = 50;

/// Bytes of lines that wait for a reader. What comes above that is dropped, the oldest first, and counted: a reader of one CPU's file
/// leaves the events of the others here.
const MOST: usize = 64 << 20;

/// Events that were consumed, as lines, and that no reader has had.
#[derive(Debug, Default)]
pub(crate) struct Pipe {
    /// The lines of each CPU.
    queues: BTreeMap<Option<u32>, Queue>,
    /// Number of lines that came.
    count: u64,
    /// Bytes of the lines that wait.
    bytes: usize,
    /// What the rings had produced at the last consuming read.
    produced: Option<u64>,
    /// Looks since the last change.
    quiet: u32,
}

/// The lines of a CPU, each with its number among all lines.
#[derive(Debug, Default)]
struct Queue {
    lines: VecDeque<(u64, Vec<u8>)>,
    /// Lines that were dropped since the last reader.
    dropped: u64,
}

/// A line, and the CPU of its event.
type Line = (Option<u32>, Vec<u8>);

impl Pipe {
    fn has(&self, cpu: Option<u32>) -> bool {
        self.next(cpu).is_some()
    }

    /// Returns the CPU of the oldest line of a CPU, or of all.
    fn next(&self, cpu: Option<u32>) -> Option<Option<u32>> {
        let wanted = self.queues.iter().filter(|(of, _)| cpu.is_none() || **of == cpu);
        let fronts = wanted.filter_map(|(of, queue)| Some((queue.lines.front()?.0, *of)));
        fronts.min().map(|(_, of)| of)
    }

    fn add(&mut self, lines: Vec<Line>) {
        for (cpu, line) in lines {
            self.bytes += line.len();
            self.queues.entry(cpu).or_default().lines.push_back((self.count, line));
            self.count += 1;
        }
        while self.bytes > MOST
            && let Some(queue) = self.next(None).and_then(|cpu| self.queues.get_mut(&cpu))
            && let Some((_, line)) = queue.lines.pop_front()
        {
            self.bytes -= line.len();
            queue.dropped += 1;
        }
    }

    /// Removes whole lines of a CPU, or of all, up to `size` bytes. A line that is longer is split.
    fn take(&mut self, cpu: Option<u32>, size: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        while let Some(queue) = self.next(cpu).and_then(|cpu| self.queues.get_mut(&cpu))
            && let Some((_, line)) = queue.lines.front_mut()
        {
            if queue.dropped > 0 {
                let loss = format!("CPU:? [LOST {} EVENTS] nobody read them from the mount\n", queue.dropped);
                *line = [loss.as_bytes(), line].concat();
                self.bytes += loss.len();
                queue.dropped = 0;
            }
            if bytes.len() + line.len() <= size {
                self.bytes -= line.len();
                bytes.append(line);
                queue.lines.pop_front();
                continue;
            }
            if bytes.is_empty() {
                bytes.extend(line.drain(..size.min(line.len())));
                self.bytes -= bytes.len();
            }
            break;
        }
        bytes
    }

    /// Forgets the lines of a CPU, or all.
    pub(crate) fn clear(&mut self, cpu: Option<u32>) {
        self.queues.retain(|of, _| cpu.is_some() && *of != cpu);
        self.bytes = self.queues.values().flat_map(|queue| &queue.lines).map(|(_, line)| line.len()).sum();
    }

    /// Returns the number of events that wait or were dropped.
    pub(crate) fn waiting(&self) -> usize {
        self.queues.values().map(|queue| queue.lines.len() + usize::try_from(queue.dropped).unwrap_or(usize::MAX)).sum()
    }

    /// Consumes what is in the rings, unless nothing has changed since the last time.
    fn fill(&mut self, buffer: &Buffer) -> Result<(), Errno> {
        let produced = buffer.handle.produced();
        self.quiet = if self.produced == Some(produced) { self.quiet.saturating_add(1) } else { 0 };
        if self.quiet > EAGER && !self.quiet.is_multiple_of(LAZY) {
            return Ok(());
        }
        let mut lines = Vec::new();
        let consumed = consume_session(&buffer.handle, &Options::default(), |opened| {
            let Opened { traces, failures, .. } = opened;
            let written = traces.iter().all(|trace| lines_of(trace, &mut lines).is_some());
            let is_whole = failures.is_empty() && written;
            (is_whole, traces, is_whole)
        });
        match consumed {
            Ok((true, consumed)) if consumed.failed.is_empty() => {
                self.produced = Some(produced);
                self.add(lines);
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

/// Appends the events of a trace as lines, after a line for each ring that has lost some. Returns none, and appends nothing, if they
/// cannot be read.
fn lines_of(trace: &Trace, lines: &mut Vec<Line>) -> Option<()> {
    let packets = [trace.packets(Version::V2)?.ok()?];
    let mut found: Vec<Line> = lost(trace);
    let mut put = |_: i64, line: &[u8]| {
        found.push((cpu_of(line), line.to_vec()));
        true
    };
    text::each(&packets, Style::Ftrace, &selection(None), &Zone::utc(), &mut put, &mut |_| {}).ok()?;
    lines.extend(found);
    Some(())
}

/// Returns a line for each loss, in the kernel's words where they fit.
fn lost(trace: &Trace) -> Vec<Line> {
    let account = trace.account();
    let line = |gap: &lastwords_trace::evidence::Gap| {
        let cpu = gap.stream.and_then(|stream| account.streams.get(stream)?.cpu);
        let who = cpu.map_or_else(|| "?".to_owned(), |cpu| cpu.to_string());
        let count = gap.events.map_or_else(|| "?".to_owned(), |events| events.to_string());
        let bytes = gap.bytes.map_or_else(String::new, |bytes| format!(", {bytes} bytes"));
        let channel = gap.stream.and_then(|stream| account.streams.get(stream)).map_or("", |stream| &stream.channel);
        let why = gap.cause.word();
        (cpu, format!("CPU:{who} [LOST {count} EVENTS] channel {channel}: {why}{bytes}\n").into_bytes())
    };
    account.evidence.gaps.iter().filter(|gap| gap.cause.is_loss()).map(line).collect()
}

/// Returns the CPU in a line of the style `ftrace`: `comm-tid   [cpu] LEVEL`.
fn cpu_of(line: &[u8]) -> Option<u32> {
    let line = String::from_utf8_lossy(line);
    let column = line.match_indices(" [").find_map(|(at, _)| {
        let (cpu, rest) = line.get(at + 2..)?.split_once(']')?;
        let before = line.get(..at)?.trim_end();
        let is_column = rest.starts_with(' ') && before.ends_with(|c: char| c.is_ascii_digit() || c == '?');
        Some(cpu).filter(|_| is_column && cpu.len() >= 3)
    });
    // The column has `---` for a stream of no CPU.
    column?.parse().ok()
}

/// A reader of `trace_pipe`.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    has_read: AtomicBool,
}

impl Reader {
    /// Returns the next events as text; waits for them. An empty text is the end: recording is off and this reader has had
    /// something, or nobody records in the session any more.
    ///
    /// # Errors
    /// `EAGAIN` if there are none and the reader does not wait, `EINTR` if `is_interrupted` returns true, `EBUSY` if another
    /// program consumes the session.
    pub(crate) fn read(
        &self,
        buffer: &Buffer,
        cpu: Option<u32>,
        size: usize,
        waits: bool,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Vec<u8>, Errno> {
        loop {
            // Whoever looks at the state first, and then consumes, misses nothing that was recorded before the end.
            let (is_over, is_on) = (buffer.is_over(), buffer.details()?.recording);
            let bytes = self.next(buffer, cpu, size, is_interrupted)?;
            if !bytes.is_empty() {
                self.has_read.store(true, Relaxed);
                return Ok(bytes);
            }
            if is_over || !is_on && self.has_read.load(Relaxed) {
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
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Vec<u8>, Errno> {
        let mut pipe = guard(&buffer.pipe);
        if !pipe.has(cpu) {
            pipe.fill(buffer)?;
        }
        // A reader that is about to be killed would lose what it takes.
        if is_interrupted() {
            return Err(Errno::INTR);
        }
        Ok(pipe.take(cpu, size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pipe() -> Pipe {
        let line = |cpu, text: &str| (Some(cpu), text.as_bytes().to_vec());
        let mut pipe = Pipe::default();
        pipe.add(vec![line(0, "aa\n"), line(1, "bbbb\n"), line(0, "c\n")]);
        pipe
    }

    #[test]
    fn whole_lines_are_taken_in_order() {
        let mut pipe = pipe();
        assert_eq!(pipe.take(None, 8), b"aa\nbbbb\n");
        assert_eq!(pipe.take(None, 8), b"c\n");
        assert_eq!(pipe.take(None, 8), b"");
    }

    #[test]
    fn a_cpu_takes_its_own_lines_alone() {
        let mut pipe = pipe();
        assert_eq!(pipe.take(Some(0), 100), b"aa\nc\n");
        assert_eq!(pipe.take(None, 2), b"bb");
        assert_eq!(pipe.take(None, 100), b"bb\n");
    }

    #[test]
    fn what_nobody_reads_is_dropped_and_told() {
        let mut pipe = pipe();
        pipe.add(vec![(Some(1), vec![b'x'; MOST - 5])]);
        assert!(pipe.bytes <= MOST && pipe.waiting() == 4, "{}", pipe.waiting());
        assert_eq!(pipe.take(Some(0), 100), b"CPU:? [LOST 1 EVENTS] nobody read them from the mount\nc\n");
        assert!(pipe.take(None, 54).ends_with(b"[LOST 1 EVENTS] nobody read them from the mount\n"));
        pipe.clear(None);
        assert_eq!((pipe.bytes, pipe.waiting(), pipe.take(None, 9)), (0, 0, vec![]));
    }

    #[test]
    fn the_cpu_is_that_of_the_column() {
        for (line, cpu) in [
            ("             app-12      [003] INFO  1.000002: a:b: x=\" [009] \"\n", Some(3)),
            ("         a [x] b-12345678 [1024] -     1.000002: a:b:\n", Some(1024)),
            ("           <...>-?       [---] INFO  1.000002: a:b: t=5 [001] \n", None),
        ] {
            assert_eq!(cpu_of(line.as_bytes()), cpu, "{line}");
        }
    }
}

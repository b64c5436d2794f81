//! The kernel's log, merged with its trace into one timeline.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use crate::Array;
use lastwords_bytes::ByteOrder;
use lastwords_trace::class::TraceClass;
use lastwords_trace::evidence::{Evidence, Verdict};
use lastwords_trace::source::{PacketInfo, PacketReader, Packets};

use super::Choice;
use super::ctf;
use super::text::time_before;
use lastwords_ctf::Result;
use lastwords_ctf::read::Trace;
use lastwords_ctf::session::unsigned;
use lastwords_ctf::write::packets::{HEADER_LEN, Header, Last};

/// A record of the kernel's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// Time at which it was printed: nanoseconds since the boot by the clock of printk
    /// (`local_clock`).
    pub time: u64,
    /// Severity, from 0 (emergency) to 7 (debug).
    pub level: u8,
    /// Facility; 0 is the kernel.
    pub facility: u8,
    /// The text, without a newline at its end. It may have several lines.
    pub text: String,
}

/// Prefix of each line of the log, which distinguishes it from the lines of events.
const MARK: &[u8] = b"## dmesg: ";

/// The relation between the clock of a trace array and the clock of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relation {
    /// The clocks differ by a known number: the nanoseconds that the log's clock is ahead.
    Ahead(i64),
    /// Both clocks count nanoseconds since the boot, but their difference is not known.
    Near,
    /// The clocks cannot be compared.
    Apart,
}

impl Relation {
    /// Returns the relation for an array's clock. `offset` is the number that the kernel adds to
    /// `sched_clock` to get the clock of the log (`__sched_clock_offset`), if it is known.
    ///
    /// `local` is `sched_clock`, `perf` is `local_clock`, and `global` is `sched_clock_cpu` made
    /// monotonic (`kernel/trace/trace_clock.c`, `kernel/sched/clock.c` of Linux 5.10 to 7.2).
    #[must_use]
    pub fn new(array: &Array, offset: Option<i64>) -> Self {
        match array.clock_name() {
            "local" => offset.map_or(Self::Near, Self::Ahead),
            "global" | "perf" => Self::Ahead(0),
            "mono" | "mono_raw" | "boot" | "uptime" => Self::Near,
            _ => Self::Apart,
        }
    }

    /// Returns a remark on the timeline, if a reader must know something about it.
    #[must_use]
    pub fn remark(self, array: &Array) -> Option<String> {
        let clock = array.clock_name();
        match self {
            Self::Ahead(_) => None,
            Self::Near => Some(format!(
                "the trace's clock is {clock}, the log's is local_clock: both count from the boot, but their difference is \
                 not known; the log's lines are placed by their own times"
            )),
            Self::Apart => Some(format!(
                "the trace's clock is {clock}, which cannot be compared with the log's: the log follows the events"
            )),
        }
    }

    /// Returns the remark on a trace that contains only the log ([`trace`]).
    #[must_use]
    pub fn remark_of_trace(self, array: &Array) -> Option<String> {
        let clock = array.clock_name();
        match self {
            Self::Apart => Some(format!(
                "the trace's clock is {clock}, which cannot be compared with the log's: the log's records are placed \
                 by their own times"
            )),
            _ => self.remark(array),
        }
    }

    /// Returns the reading of the trace's clock at the time a line was printed.
    #[must_use]
    pub fn clock(self, line: &LogLine) -> u64 {
        match self {
            Self::Ahead(by) => line.time.saturating_add_signed(by.saturating_neg()),
            Self::Near => line.time,
            Self::Apart => u64::MAX,
        }
    }
}

/// An iterator over the log, from its oldest record on.
#[derive(Debug, Clone)]
pub struct Log<'a> {
    lines: std::iter::Peekable<std::slice::Iter<'a, LogLine>>,
    relation: Relation,
}

impl<'a> Log<'a> {
    /// Iterates over records, which must be in order.
    #[must_use]
    pub fn new(lines: &'a [LogLine], relation: Relation) -> Self {
        Self { lines: lines.iter().peekable(), relation }
    }

    /// Returns an empty log.
    #[must_use]
    pub fn none() -> Self {
        Self::new(&[], Relation::Near)
    }

    /// Returns true if no record is left.
    #[must_use]
    pub fn is_empty(&mut self) -> bool {
        self.lines.peek().is_none()
    }

    /// Returns true if the log's times can be compared with those of the trace.
    #[must_use]
    pub fn is_related(&self) -> bool {
        self.relation != Relation::Apart
    }

    /// Skips the records before a reading of the trace's clock.
    pub fn skip_to(&mut self, clock: u64) {
        while clock.checked_sub(1).is_some_and(|last| self.before(Some(last)).is_some()) {}
    }

    /// Returns the next record and the trace's clock at its time, if that is at or before `until`.
    /// With `None`, every record that is left is returned.
    #[inline]
    pub fn before(&mut self, until: Option<u64>) -> Option<(u64, &'a LogLine)> {
        let clock = self.relation.clock(self.lines.peek()?);
        if until.is_some_and(|until| clock > until) {
            return None;
        }
        Some((clock, self.lines.next()?))
    }
}

/// Appends a record as lines of a trace's text: `## dmesg: [    5.123456] text`. With `before`, the
/// time is that from the first of these readings of the trace's clock to the second: `## dmesg: [
/// -0.003200000] text`.
pub(crate) fn write_text(out: &mut Vec<u8>, line: &LogLine, before: Option<(u64, i64)>) {
    let (seconds, micros) = (line.time / 1_000_000_000, line.time % 1_000_000_000 / 1000);
    for text in line.text.split('\n') {
        out.extend_from_slice(MARK);
        match before {
            None => _ = write!(out, "[{seconds:5}.{micros:06}] "),
            Some((clock, before)) => {
                out.push(b'[');
                time_before(out, clock, before, true, 13);
                out.extend_from_slice(b"] ");
            }
        }
        out.extend(
            text.bytes()
                .map(|byte| if byte.is_ascii_control() && byte != b'\t' { b'?' } else { byte }),
        );
        out.push(b'\n');
    }
}

/// Presents the records as a trace of their own, whose clock is the log's clock. The trace has only
/// records that the selection for a trace array selects. `offset` is added to the readings of that
/// array's clock to get nanoseconds since the epoch, if it is known.
///
/// # Errors
/// Packets cannot be decoded by the class of the trace.
pub fn trace(
    path: &Path,
    mut lines: Vec<LogLine>,
    relation: Relation,
    choice: &Choice,
    offset: Option<i64>,
) -> Result<Trace> {
    lines.retain(|line| choice.wants_time(relation.clock(line)));
    let ahead = if let Relation::Ahead(by) = relation { by } else { 0 };
    let clock =
        ctf::clock("local_clock", offset.unwrap_or(0).saturating_sub(ahead), ctf::origin(offset));
    let number = || unsigned(1, ByteOrder::Little);
    let fields = [("level", number()), ("facility", number()), ("text", ctf::text())];
    let fields = fields.into_iter().map(|(name, class)| (name.to_owned(), class)).collect();
    let event = ctf::event_class(0, "kernel:log".to_owned(), fields);
    let class = ctf::framed(ByteOrder::Little, [0; 16], LOG, clock, None, vec![event]);
    let class = TraceClass { uuid: None, ..class };
    let bytes = lines.iter().map(|line| line.text.len() as u64).sum();
    let source: Arc<dyn Packets> = Arc::new(Records(lines));
    let stream = ctf::in_memory(&source, 0, 0, LOG.to_owned(), None, bytes);
    let mut trace = ctf::selected(path, class, vec![stream], Evidence::default())?;
    trace.is_beside = true;
    Ok(trace)
}

/// Name of the log's trace and of its stream.
pub(crate) const LOG: &str = "kernel log";
/// Most records of a packet.
const RECORDS: usize = 256;

/// Presents the records of the log as packets.
struct Records(Vec<LogLine>);

impl Packets for Records {
    fn packets_of(&self, _: usize) -> Box<dyn PacketReader + '_> {
        Box::new(Chunks(self.0.chunks(RECORDS).enumerate()))
    }
}

struct Chunks<'a>(std::iter::Enumerate<std::slice::Chunks<'a, LogLine>>);

impl PacketReader for Chunks<'_> {
    fn next_packet(&mut self, bytes: &mut Vec<u8>) -> Option<PacketInfo> {
        let (number, lines) = self.0.next()?;
        bytes.clear();
        bytes.resize(HEADER_LEN, 0);
        for line in lines {
            ctf::put_header(bytes, ByteOrder::Little, 0, line.time);
            bytes.extend_from_slice(&[line.level, line.facility]);
            ctf::put_text(bytes, line.text.as_bytes());
        }
        let times = || lines.iter().map(|line| line.time);
        let (begin, end) = (lines.first()?.time, times().max()?);
        let header = Header { big: false, uuid: [0; 16], stream_id: 0, instance: 0, cpu: u32::MAX };
        let last = Last { end, sequence: number as u64, discarded: 0 };
        ctf::packet(bytes, &header, begin, last, Verdict::Committed)
    }
}

//! The kernel's log, merged with its trace into one timeline.

mod trace;

pub use lastwords_kernel::log::Record as LogLine;
pub use trace::trace;

use crate::Array;
use crate::relative_time::time_before;
use std::io::Write;

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

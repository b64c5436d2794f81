//! The kernel's log beside its trace: one timeline of both.

use std::io::Write;

use lastwords_trace::ftrace::Array;

/// A record of the kernel's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// When it was printed, nanoseconds since the boot by the clock of printk (`local_clock`).
    pub time: u64,
    /// How grave it is: 0 (emergency) to 7 (debug).
    pub level: u8,
    /// Facility; 0 for the kernel.
    pub facility: u8,
    /// Its text, without a newline at its end; may have several lines.
    pub text: String,
}

/// What stands before each line of the log, so that it is not taken for an event's.
const MARK: &[u8] = b"## dmesg: ";

/// How the clock of a trace array and the one of the log relate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relation {
    /// The same, but for a difference that is known: nanoseconds that the log is ahead.
    Ahead(i64),
    /// Both count nanoseconds since the boot; how far apart they are is not known.
    Near,
    /// They cannot be compared.
    Apart,
}

impl Relation {
    /// Of an array's clock. `offset`: what the kernel adds to `sched_clock` to make the clock of the log of it
    /// (`__sched_clock_offset`); none where it is not known.
    ///
    /// `local` is `sched_clock`, `perf` is `local_clock`, and `global` is `sched_clock_cpu` made monotonic
    /// (`kernel/trace/trace_clock.c`, `kernel/sched/clock.c` of Linux 5.10 to 7.2).
    #[must_use]
    pub fn of(array: &Array, offset: Option<i64>) -> Self {
        match array.clock.as_str() {
            "local" => offset.map_or(Self::Near, Self::Ahead),
            "global" | "perf" => Self::Ahead(0),
            "mono" | "mono_raw" | "boot" | "uptime" => Self::Near,
            _ => Self::Apart,
        }
    }

    /// What a reader must know of the timeline; none where there is nothing to know.
    #[must_use]
    pub fn remark(self, array: &Array) -> Option<String> {
        let clock = &array.clock;
        match self {
            Self::Ahead(_) => None,
            Self::Near => Some(format!(
                "the trace's clock is {clock}, the log's is local_clock: both count from the boot, but their difference is \
                 not known; the log's lines stand where their own times put them"
            )),
            Self::Apart => Some(format!(
                "the trace's clock is {clock}, which cannot be compared with the log's: the log stands behind the events"
            )),
        }
    }

    /// The trace's clock when a line was printed.
    #[must_use]
    pub fn clock(self, line: &LogLine) -> u64 {
        match self {
            Self::Ahead(by) => line.time.saturating_add_signed(by.saturating_neg()),
            Self::Near => line.time,
            Self::Apart => u64::MAX,
        }
    }
}

/// The log, passed over from its oldest record on.
#[derive(Debug, Clone)]
pub struct Log<'a> {
    lines: std::iter::Peekable<std::slice::Iter<'a, LogLine>>,
    relation: Relation,
}

impl<'a> Log<'a> {
    /// Records in order.
    #[must_use]
    pub fn new(lines: &'a [LogLine], relation: Relation) -> Self {
        Self { lines: lines.iter().peekable(), relation }
    }

    /// Nothing to show.
    #[must_use]
    pub fn none() -> Self {
        Self::new(&[], Relation::Near)
    }

    /// There is no record left.
    #[must_use]
    pub fn is_empty(&mut self) -> bool {
        self.lines.peek().is_none()
    }

    /// Passes over the records before a reading of the trace's clock.
    pub fn skip_to(&mut self, clock: u64) {
        while clock.checked_sub(1).is_some_and(|last| self.before(Some(last)).is_some()) {}
    }

    /// The next record and the trace's clock at it, if that is at or before `until`; none asks for all that are left.
    #[inline]
    pub fn before(&mut self, until: Option<u64>) -> Option<(u64, &'a LogLine)> {
        let clock = self.relation.clock(self.lines.peek()?);
        if until.is_some_and(|until| clock > until) {
            return None;
        }
        Some((clock, self.lines.next()?))
    }
}

/// Appends a record as lines of a trace's text: `## dmesg: [    5.123456] text`.
pub(crate) fn write_text(out: &mut Vec<u8>, line: &LogLine) {
    let (seconds, micros) = (line.time / 1_000_000_000, line.time % 1_000_000_000 / 1000);
    for text in line.text.split('\n') {
        out.extend_from_slice(MARK);
        let _ = write!(out, "[{seconds:5}.{micros:06}] ");
        out.extend(text.bytes().map(|byte| if byte.is_ascii_control() && byte != b'\t' { b'?' } else { byte }));
        out.push(b'\n');
    }
}

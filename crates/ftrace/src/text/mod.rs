//! Writes the kernel's `trace` text, byte for byte (`kernel/trace/trace.c`, `trace_output.c`).
//!
//! Events of all CPUs are merged by time as in the kernel. Formats are compiled once, and memory
//! does not grow with the trace.

mod ahead;
mod arguments;
mod block;
mod context;
mod events;
mod fields;
mod flags;
mod graph;
mod head;
mod header;
mod in_bytes;
mod memory;
mod merge;
mod notes;
mod own;
mod own_text;
mod slot;
mod syscall;

pub(crate) use context::{Common, EventInfo};
pub(crate) use events::Printer;
pub(crate) use merge::Merge;
pub(crate) use slot::Slot;

use crate::choice::{Choice, selected_lanes};
use crate::log::{Log, write_text};
use crate::{Array, Ring, Tracing};
use ahead::Ahead;
use lastwords_ctf::{Error, Result};
use lastwords_trace::text::page::Page;
use merge::NextEvent;
use std::io::Write;

/// Bytes that are collected before they are written.
const CHUNK: usize = 128 << 10;
/// Most faults that a summary keeps.
const MOST_NOTES: usize = 100;

/// The form of an event's text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Style {
    /// The form that the array's options `raw`, `fields`, `hex` and `bin` select.
    #[default]
    AsSet,
    /// The text of the print format.
    Default,
    /// Only numbers (option `raw`).
    Raw,
    /// Every field with its name (option `fields`).
    Fields,
    /// The text of the print format after other columns: flags, time since the ring was reset
    /// (option `latency-format`).
    Latency,
}

/// Options of a writer.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Chooses the ring and its events. A choice of CPUs is as in `per_cpu/cpuN/trace`.
    pub choice: Choice,
    /// The form of an event's text.
    pub style: Style,
    /// Leaves the header out.
    pub no_header: bool,
    /// Shows times as those before this value of the clock: nanoseconds as `-0.003200000`.
    pub before: Option<i64>,
    /// Shows `%p` hashed or unchanged. `None` uses the array's option `hash-ptr`.
    pub hash_pointers: Option<bool>,
}

/// Counts and notes of what was written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// Number of events.
    pub events: u64,
    /// Number of bytes.
    pub bytes: u64,
    /// Number of sub-buffers that could not be decoded to their end.
    pub faults: u64,
    /// Formats that cannot be evaluated, and the first hundred faults, with one sentence for each.
    pub notes: Vec<String>,
}

/// Writes the text that `cat trace` (or `snapshot`, or that of a CPU) would have printed for array
/// `index`.
///
/// # Errors
/// The array or CPU does not exist, or the output cannot be written.
pub fn write_trace(
    out: &mut dyn Write,
    tracing: &Tracing,
    index: usize,
    options: &Options,
) -> Result<Summary> {
    write_with_log(out, tracing, index, options, Log::none())
}

/// Writes the same text with the kernel's log merged in. Each line of the log begins with `##
/// dmesg: `.
///
/// # Errors
/// The array or CPU does not exist, or the output cannot be written.
pub fn write_with_log(
    out: &mut dyn Write,
    tracing: &Tracing,
    index: usize,
    options: &Options,
    log: Log<'_>,
) -> Result<Summary> {
    write_to(Output::Whole(out), tracing, index, options, log)
}

/// Passes the text of each event, without the header, and the clock's reading to `each`. Lines of
/// the log are passed together with the text of the next event.
///
/// # Errors
/// The array or CPU does not exist, or `each` fails.
pub fn each(
    each: &mut dyn FnMut(u64, &[u8]) -> std::io::Result<()>,
    tracing: &Tracing,
    index: usize,
    options: &Options,
    log: Log<'_>,
) -> Result<Summary> {
    write_to(
        Output::Each(each),
        tracing,
        index,
        &Options { no_header: true, ..options.clone() },
        log,
    )
}

/// The destination of text.
enum Output<'o> {
    /// Takes many events at a time.
    Whole(&'o mut dyn Write),
    /// Takes each event with the clock's reading.
    Each(&'o mut dyn FnMut(u64, &[u8]) -> std::io::Result<()>),
}

impl Output<'_> {
    /// Returns true if text of this length must be written now.
    #[inline]
    fn is_full(&self, len: usize) -> bool {
        match self {
            Self::Whole(_) => len >= CHUNK,
            Self::Each(_) => len > 0,
        }
    }

    fn write(&mut self, time: u64, text: &[u8], summary: &mut Summary) -> Result<()> {
        match self {
            Self::Whole(out) => out.write_all(text),
            Self::Each(_) if text.is_empty() => Ok(()),
            Self::Each(each) => each(time, text),
        }
        .map_err(Error::Output)?;
        summary.bytes = summary.bytes.saturating_add(text.len() as u64);
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        match self {
            Self::Whole(out) => out.flush().map_err(Error::Output),
            Self::Each(_) => Ok(()),
        }
    }
}

fn write_to(
    mut out: Output<'_>,
    tracing: &Tracing,
    index: usize,
    options: &Options,
    mut log: Log<'_>,
) -> Result<Summary> {
    let array = tracing
        .arrays
        .get(index)
        .ok_or_else(|| Error::Schema(format!("trace array {index} does not exist")))?;
    let mut buffer = Vec::new();
    let mut summary = Summary::default();
    let Some(ring) = array.shown(options.choice.snapshot).map(|ring| &**ring) else {
        header::unused_snapshot(&mut buffer, array, !options.choice.cpus.is_empty(), false);
        out.write(0, &buffer, &mut summary)?;
        return Ok(summary);
    };
    let lanes = lanes(ring, &options.choice.cpus)?;
    let mut printer = Printer::new(tracing, array, ring, options);
    if !options.no_header {
        let is_empty = Merge::new(tracing, ring, &lanes).head().is_none();
        if options.choice.snapshot && is_empty {
            header::unused_snapshot(&mut buffer, array, !options.choice.cpus.is_empty(), true);
        } else {
            header::write(&mut buffer, tracing, array, ring, &printer.flags, is_empty);
        }
    }
    // Nothing is read ahead up to a time: sub-buffers that are not needed would be read, and their
    // faults be reported.
    let ahead_of = if options.choice.until.is_none() { lanes.as_slice() } else { &[] };
    ahead::with(ring, ahead_of, |ahead| {
        let shown = Shown { tracing, array, ring, lanes: &lanes, options, ahead };
        run(&mut out, &mut buffer, &shown, &mut printer, &mut log, &mut summary)
    })?;
    summary.notes.append(&mut printer.notes);
    Ok(summary)
}

/// Returns the positions in [`Ring::cpus`] of the CPUs to show.
fn lanes(ring: &dyn Ring, wanted: &[u32]) -> Result<Vec<usize>> {
    let lanes = selected_lanes(ring, wanted);
    match wanted.first().filter(|_| lanes.is_empty()) {
        Some(none) => {
            Err(Error::Schema(format!("CPU {none}, which the trace array does not have")))
        }
        None => Ok(lanes),
    }
}

/// The lanes of a ring that are shown.
struct Shown<'a> {
    tracing: &'a Tracing,
    array: &'a Array,
    ring: &'a dyn Ring,
    lanes: &'a [usize],
    options: &'a Options,
    ahead: Option<&'a Ahead<'a>>,
}

fn run(
    out: &mut Output<'_>,
    buffer: &mut Vec<u8>,
    shown: &Shown<'_>,
    printer: &mut Printer<'_>,
    log: &mut Log<'_>,
    summary: &mut Summary,
) -> Result<()> {
    let &Shown { tracing, array, ring, lanes, options, ahead } = shown;
    let skip = match options.choice.filter {
        None => count_to_skip(tracing, ring, lanes, printer, options),
        // A filter sees the names of tasks as far as they are known at each event, so that they are
        // learned twice.
        Some(_) => count_to_skip(
            tracing,
            ring,
            lanes,
            &mut Printer::new(tracing, array, ring, options),
            options,
        ),
    };
    log.skip_to(options.choice.since.unwrap_or(0));
    let mut merge = Merge::begin(tracing, ring, lanes, ahead);
    let mut pass = Pass::new(out, buffer, printer, options, log, merge.cpus(), skip);
    while merge.head().is_some() && pass.stop != Stop::End {
        pass.stop = Stop::Other;
        merge.skip_while(|front| pass.event(front));
        if pass.stop == Stop::Other {
            pass.other(&mut merge);
        }
        if out.is_full(pass.page.used()) {
            out.write(pass.time, pass.page.text(), summary)?;
            pass.page.clear();
        }
    }
    pass.rest_of_log();
    out.write(u64::MAX, pass.page.text(), summary)?;
    out.flush()?;
    summary.events = pass.events;
    summary.faults = merge.faults;
    merge.notes.truncate(MOST_NOTES);
    summary.notes.append(&mut merge.notes);
    Ok(())
}

/// The reason why a [`Pass`] returns to its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    /// The text must be written first, or the lane of the next event has changed.
    Pause,
    /// The next event needs more than its own fields.
    Other,
    /// No later event is shown.
    End,
}

/// The events of a run are passed one by one, and their text is collected.
struct Pass<'r, 'p, 'l> {
    page: Page,
    /// Most bytes of text before an event.
    room: usize,
    buffer: &'r mut Vec<u8>,
    printer: &'r mut Printer<'p>,
    options: &'r Options,
    log: &'r mut Log<'l>,
    /// The CPUs of the lanes.
    cpus: Vec<u32>,
    /// Number of matching events to skip.
    skip: u64,
    /// True if some events are not shown, or if lines of the log come between them.
    is_selective: bool,
    /// Time and number of the events whose text was made.
    time: u64,
    events: u64,
    stop: Stop,
}

impl<'r, 'p, 'l> Pass<'r, 'p, 'l> {
    fn new(
        out: &Output<'_>,
        buffer: &'r mut Vec<u8>,
        printer: &'r mut Printer<'p>,
        options: &'r Options,
        log: &'r mut Log<'l>,
        cpus: Vec<u32>,
        skip: u64,
    ) -> Self {
        let mut page = Page::default();
        page.append(buffer);
        let room = if out.is_full(1) { 1 } else { CHUNK };
        let Choice { since, until, ref events, ref filter, .. } = options.choice;
        let is_all =
            since.or(until).is_none() && events.is_empty() && filter.is_none() && skip == 0;
        let is_selective = !is_all || !log.is_empty();
        Self {
            page,
            room,
            buffer,
            printer,
            options,
            log,
            cpus,
            skip,
            is_selective,
            time: 0,
            events: 0,
            stop: Stop::Pause,
        }
    }

    /// Makes the text of an event, or skips it. Returns false if it did neither.
    #[inline(always)]
    fn event(&mut self, front: &NextEvent<'_>) -> bool {
        self.stop = Stop::Pause;
        if self.page.used() >= self.room {
            return false;
        }
        if self.is_selective && !self.is_shown(front) {
            return self.stop != Stop::End;
        }
        self.time = front.time;
        let is_line = self.printer.line(&mut self.page, front);
        self.events = self.events.wrapping_add(u64::from(is_line));
        if !is_line {
            self.stop = Stop::Other;
        }
        is_line
    }

    /// Returns true if an event is shown. The lines of the log before it are appended then.
    fn is_shown(&mut self, front: &NextEvent<'_>) -> bool {
        let Choice { since, until, .. } = self.options.choice;
        if until.is_some_and(|until| front.time > until)
            && since.is_none_or(|since| since <= front.time)
        {
            // Clocks of CPUs may disagree, but the merge is in order of time.
            self.stop = Stop::End;
            return false;
        }
        let cpu = self.cpus.get(front.lane).copied().unwrap_or(0);
        if !wanted(front.payload, cpu, front.time, self.printer, self.options) {
            self.printer.skip(front.payload);
            return false;
        }
        if self.skip > 0 {
            self.skip = self.skip.saturating_sub(1);
            self.printer.skip(front.payload);
            self.log.skip_to(front.time);
            return false;
        }
        self.log_before(Some(front.time));
        true
    }

    /// Appends the text of an event that needs more than its own fields, and skips it.
    fn other(&mut self, merge: &mut Merge<'_>) {
        self.buffer.clear();
        self.printer.event(self.buffer, merge);
        self.page.append(self.buffer);
        self.events = self.events.wrapping_add(1);
    }

    /// Appends the lines of the log after the events.
    fn rest_of_log(&mut self) {
        self.log_before(self.options.choice.until);
    }

    fn log_before(&mut self, clock: Option<u64>) {
        self.buffer.clear();
        while let Some((clock, line)) = self.log.before(clock) {
            // A log that cannot be compared with the events keeps its own times.
            let before =
                self.options.before.filter(|_| self.log.is_related()).map(|before| (clock, before));
            write_text(self.buffer, line, before);
        }
        self.page.append(self.buffer);
    }
}

fn wanted(
    payload: &[u8],
    cpu: u32,
    time: u64,
    printer: &mut Printer<'_>,
    options: &Options,
) -> bool {
    options.choice.since.is_none_or(|since| time >= since)
        && (options.choice.events.is_empty() || printer.is_selected(payload))
        && (options.choice.filter.is_none() || printer.matches(payload, cpu))
}

/// Returns the number of matching events before the last ones.
fn count_to_skip(
    tracing: &Tracing,
    ring: &dyn Ring,
    lanes: &[usize],
    printer: &mut Printer<'_>,
    options: &Options,
) -> u64 {
    let Some(last) = options.choice.last else { return 0 };
    let mut merge = Merge::new(tracing, ring, lanes);
    let mut count = 0u64;
    while let Some(time) = merge.head() {
        if options.choice.until.is_some_and(|until| time > until) {
            break;
        }
        count = count.saturating_add(u64::from(wanted(
            merge.payload(),
            merge.cpu(),
            time,
            printer,
            options,
        )));
        if options.choice.filter.is_some() {
            printer.skip(merge.payload());
        }
        merge.advance();
    }
    count.saturating_sub(last)
}

/// Returns the number of events to show and the number of written events, as the header of the text
/// has them (`get_total_entries_cpu`). They come from the ring's counters; if these are zero,
/// events are decoded and counted. If the first events of a CPU are hidden because they are older
/// than the reset of the ring, its overwritten events are not counted.
pub(crate) fn counts(tracing: &Tracing, ring: &dyn Ring) -> (u64, u64) {
    let all: Vec<usize> = (0..ring.cpus().len()).collect();
    let mut skipped: Vec<u64> = Vec::new();
    if ring.time_start() > 0 {
        skipped.extend(Merge::new(tracing, ring, &all).skipped());
    }
    let (mut entries, mut written) = (0u64, 0u64);
    for (at, cpu) in ring.cpus().iter().enumerate() {
        let hidden = skipped.get(at).copied().unwrap_or(0);
        let shown = cpu.stats.entries.saturating_sub(hidden);
        let overrun = if hidden > 0 { 0 } else { cpu.stats.overrun };
        entries = entries.saturating_add(shown);
        written = written.saturating_add(shown).saturating_add(overrun);
    }
    if entries == 0 {
        let mut merge = Merge::new(tracing, ring, &all);
        while merge.head().is_some() {
            entries = entries.saturating_add(1);
            merge.advance();
        }
        written = written.saturating_add(entries);
    }
    (entries, written)
}

/// Returns true if the version string contains a word.
pub(crate) fn is_built(tracing: &Tracing, word: &str) -> bool {
    tracing.uname.split_whitespace().any(|w| w == word)
}

pub(crate) fn is_real_time(tracing: &Tracing) -> bool {
    is_built(tracing, "PREEMPT_RT")
}

#[cfg(test)]
mod tests;

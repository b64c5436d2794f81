//! Writes Perfetto traces, which ui.perfetto.dev and trace_processor open.
//!
//! A file is a sequence of `TracePacket`s. The messages and the numbers of their fields come from
//! Perfetto's public schema (`protos/perfetto/trace/*.proto` of <https://github.com/google/perfetto> at ec5d16b14b, 2026-08-22).

mod annotations;
mod ftrace;
mod log;
mod losses;
mod proto;
mod spans;
mod table;
mod tracks;

use lastwords_ctf::read::{Due, Loss, Reader, Trace, Watch};
use lastwords_trace::class::{Clock, Origin};
use lastwords_trace::clock::{Converter, Rounding};
use lastwords_trace::schema::BOOT_ORIGIN;
pub use lastwords_trace::tracer::Process;
use lastwords_trace::tracer::Tracer;
use std::io::Write;

use crate::choose::Chosen;
use crate::events::{self, Line, Note, Out};
use crate::select::Selection;
use crate::spans::OpenSpan;
use crate::streams::StreamInfo;
use crate::{Error, Result, Totals};
use proto::Message;
use tracks::Tracks;

/// A task of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// Id of the task.
    pub pid: u32,
    /// Id of the task's thread group.
    pub tgid: u32,
    /// Name of the task.
    pub comm: String,
    /// Its process, if it is the first task of one and this is known.
    pub process: Option<Process>,
}

/// Facts about a trace array of a kernel that its trace does not contain.
#[derive(Clone, Copy)]
pub struct Kernel<'a> {
    /// Position of its trace among all traces. The context of its events must not have their text.
    pub trace: usize,
    /// All other traces are from the same kernel: its log.
    pub is_alone: bool,
    /// The kernel's tracer.
    pub tracer: &'a dyn Tracer,
    /// Name of the array's clock: `local`, `boot`, ….
    pub clock: &'a str,
    /// Nanoseconds that `CLOCK_BOOTTIME` is ahead of the array's clock, if this is known.
    pub boot: Option<i64>,
    /// The tasks that existed at the end of the trace.
    pub tasks: &'a [Task],
}

/// The clock of a file's times, and its origin.
struct Timeline {
    /// Number of a builtin clock of Perfetto.
    clock: u64,
    /// Nanoseconds from the origin of the traces' clocks to time 0 of the builtin clock.
    base: i64,
    /// Readings of builtin clocks at one moment: the number of each clock, and its reading.
    snapshot: Vec<(u64, u64)>,
    /// The relation of the kernel's clock to `CLOCK_BOOTTIME`. None: its readings are times since
    /// boot.
    ftrace: Option<FtraceClock>,
    /// A remark for the user.
    remark: Option<String>,
}

/// A kernel's clock that is not `CLOCK_BOOTTIME`.
#[derive(Debug, Clone, Copy)]
struct FtraceClock {
    /// `FtraceEventBundle.ftrace_clock`.
    word: u64,
    /// Nanoseconds that `CLOCK_BOOTTIME` is ahead.
    ahead: i64,
}

impl FtraceClock {
    /// Returns the relation of a kernel's clock, if that is known. Returns none with a remark if an
    /// event would have a time before the boot, which Perfetto drops: `sched_clock` runs before the
    /// timekeeper does.
    fn from_kernel(kernel: &Kernel<'_>) -> (Option<Self>, Option<String>) {
        let Some(ahead) = kernel.boot.filter(|ahead| *ahead != 0) else { return (None, None) };
        if i64::try_from(kernel.tracer.earliest())
            .is_ok_and(|first| first.saturating_add(ahead) < 0)
        {
            let remark = format!(
                "Perfetto has no times before the boot: times of the clock {} are written as times since the boot, from which they differ by \
                 {} ns",
                kernel.clock,
                ahead.unsigned_abs()
            );
            return (None, Some(remark));
        }
        // Perfetto has words for these two clocks only. It converts the readings of both by the
        // pair in the bundle.
        let word = if kernel.clock == "local" { FTRACE_LOCAL } else { FTRACE_GLOBAL };
        (Some(Self { word, ahead }), None)
    }

    /// Returns readings of this clock and of `CLOCK_BOOTTIME` at one moment. The trace processor
    /// ignores pairs whose first reading is 0.
    fn pair(self) -> (u64, u64) {
        let own = 1i64.max(1i64.saturating_sub(self.ahead));
        (own.unsigned_abs(), own.saturating_add(self.ahead).unsigned_abs())
    }
}

impl Timeline {
    /// Returns the timeline of these traces. Returns none if other traces accompany a kernel's
    /// trace whose clock cannot be related to real time.
    ///
    /// The times of a kernel's events are readings of the kernel's clock, which Perfetto converts
    /// to the time since boot. Perfetto has no negative times: if a clock begins before time 0, all
    /// times count from the beginning of that clock.
    ///
    /// If the times are since the epoch, Perfetto needs to know when the machine was booted: it
    /// does not accept a file that has nothing of `CLOCK_BOOTTIME`. A file that was opened beside
    /// this one is placed by it.
    fn new(traces: &[Trace], kernel: Option<&Kernel<'_>>) -> Option<Self> {
        let mut clocks = traces.iter().flat_map(|trace| &trace.class().clocks);
        // Readings are not negative, so a clock has no time before its beginning.
        let begins =
            |clock: &Clock| Converter::new(&clock.to_clock(), Rounding::Floor).nanoseconds(0);
        let base = clocks.clone().map(begins).min().unwrap_or(0).min(0);
        let Some(kernel) = kernel else {
            let is_absolute = base == 0 && clocks.all(|clock| clock.origin == Origin::UnixEpoch);
            if !is_absolute {
                return Some(Self {
                    clock: BOOTTIME,
                    base,
                    snapshot: Vec::new(),
                    ftrace: None,
                    remark: None,
                });
            }
            // Where the boot is not known, it stands at the epoch: then wall time is right, at
            // least.
            let boot = traces.iter().find_map(boot_origin).unwrap_or(0);
            let snapshot = since_boot(boot).into();
            return Some(Self { clock: REALTIME, base, snapshot, ftrace: None, remark: None });
        };
        let own = traces.get(kernel.trace)?.class().clocks.first()?;
        let clock = own.to_clock();
        let since = clock
            .offset_seconds
            .saturating_mul(1_000_000_000)
            .saturating_add_unsigned(clock.offset_ticks);
        let (ftrace, remark) = FtraceClock::from_kernel(kernel);
        let boot = since.saturating_sub(ftrace.map_or(0, |clock| clock.ahead));
        let related = Vec::from(since_boot(boot));
        let (clock, base, snapshot) = match (kernel.is_alone, own.origin == Origin::UnixEpoch) {
            (true, true) => (BOOTTIME, boot, related),
            (true, false) => (BOOTTIME, 0, Vec::new()),
            (false, true) if base == 0 => (REALTIME, 0, related),
            (false, _) => return None,
        };
        Some(Self { clock, base, snapshot, ftrace, remark })
    }

    /// Converts a time to this timeline. A time before the beginning becomes the beginning.
    fn time(&self, nanoseconds: Option<i64>) -> u64 {
        nanoseconds
            .and_then(|time| {
                u64::try_from(i128::from(time).saturating_sub(i128::from(self.base))).ok()
            })
            .unwrap_or(0)
    }

    /// Appends the snapshot of the clocks.
    fn put(&self, out: &mut Vec<u8>) {
        if self.snapshot.is_empty() {
            return;
        }
        let mut packet = Message::default();
        packet.nested(packet::CLOCK_SNAPSHOT, |snapshot| {
            for (clock, reading) in &self.snapshot {
                snapshot.nested(1, |one| {
                    one.number(1, *clock);
                    one.number(2, *reading);
                });
            }
            snapshot.number(2, self.clock);
        });
        put_packet(out, &mut packet);
    }
}

/// Returns readings of two clocks at the time of the boot, or at the epoch if that was later.
/// `boot` is the time of the boot, in nanoseconds since the epoch.
fn since_boot(boot: i64) -> [(u64, u64); 2] {
    [(BOOTTIME, boot.min(0).unsigned_abs()), (REALTIME, boot.max(0).unsigned_abs())]
}

/// Returns the time of the boot in nanoseconds since the epoch, if a trace has it: in its
/// properties, or because its clock counts from there.
fn boot_origin(trace: &Trace) -> Option<i64> {
    let class = trace.class();
    if let Some(origin) = class.number(BOOT_ORIGIN) {
        return Some(origin);
    }
    // LTTng's clock is CLOCK_MONOTONIC, which the time since boot is ahead of by the time that the
    // machine slept.
    let clock = class.clocks.iter().map(Clock::to_clock).find(|clock| clock.name == "monotonic")?;
    i64::try_from(clock.nanoseconds(0)).ok()
}

/// Returns true if one file can express the times of all traces.
#[must_use]
pub fn can_hold(traces: &[Trace], kernel: Option<&Kernel<'_>>) -> bool {
    Timeline::new(traces, kernel).is_some()
}

/// Writes the selected events of `traces`, merged by time. One of the traces may be a kernel's.
/// Spans that were open at the end are drawn from their opening on, also if the event of that was
/// overwritten. Errors of reading go to `notes`. `watch` receives the number of bytes
/// that were read.
///
/// # Errors
/// `out` cannot be written, or one file cannot express the times of all traces ([`can_hold`]).
pub fn write(
    (traces, kernel, open_spans): (&[Trace], Option<&Kernel<'_>>, &[OpenSpan]),
    selection: &Selection,
    out: &mut dyn Write,
    watch: Watch<'_>,
    notes: &mut dyn FnMut(Note),
) -> Result<Totals> {
    let timeline = Timeline::new(traces, kernel)
        .ok_or_else(|| Error::Schema("the clocks of the traces cannot be related".into()))?;
    timeline.remark.iter().for_each(|remark| notes(Note::Remark(remark.clone())));
    if kernel.is_none() && timeline.base < 0 {
        let before = timeline.base.unsigned_abs();
        notes(Note::Remark(format!(
            "Perfetto has no times before the epoch: all times count from the beginning of the earliest clock, {before} ns before the epoch"
        )));
    }
    let chosen = Chosen::counted(traces, selection, Rounding::Floor, watch);
    let of_kernel = kernel.and_then(|kernel| {
        Some(ftrace::Events::new(kernel, traces.get(kernel.trace)?, timeline.ftrace))
    });
    let facts = chosen.facts.clone();
    let log = log::Log::new(traces, &timeline);
    let is_wanted = |span: &&OpenSpan| selection.wants_name(&format!("span:new {}", span.name));
    let open_spans = open_spans.iter().filter(is_wanted).collect();
    let tracks = Tracks::new(traces, facts.clone(), &timeline, selection);
    let mut file = File { facts, kernel: of_kernel, tracks, open_spans, log };
    let mut head = Vec::new();
    file.kernel.iter_mut().for_each(|kernel| kernel.head(&mut head));
    timeline.put(&mut head);
    out.write_all(&head).map_err(Error::Output)?;
    let mut totals = events::write(chosen, &mut file, Out::File(out), notes)?;
    file.log
        .remark()
        .into_iter()
        .chain(file.tracks.remarks())
        .for_each(|remark| notes(Note::Remark(remark)));
    totals.bytes = totals.bytes.saturating_add(head.len() as u64);
    Ok(totals)
}

/// Converts events to packets.
struct File<'t> {
    /// Facts about each stream.
    facts: Vec<StreamInfo>,
    kernel: Option<ftrace::Events<'t>>,
    tracks: Tracks<'t>,
    /// Spans that were open when recording ended.
    open_spans: Vec<&'t OpenSpan>,
    log: log::Log<'t>,
}

impl Line for File<'_> {
    fn line(&mut self, stream: usize, reader: &mut Reader<'_>, event: &Due, out: &mut Vec<u8>) {
        if self.facts.get(stream).is_some_and(|facts| self.log.is_of(facts.trace)) {
            return self.log.line(reader, event);
        }
        self.log.event(event, out);
        match (&mut self.kernel, self.facts.get(stream)) {
            (Some(kernel), Some(StreamInfo { trace, cpu, .. })) if kernel.is_of(*trace) => {
                kernel.event(stream, cpu.unwrap_or(0), reader, event, out);
            }
            _ => self.tracks.line(stream, reader, event, out),
        }
    }

    fn packet(&mut self, stream: usize, reader: &mut Reader<'_>, out: &mut Vec<u8>) {
        let Some(facts) = self.facts.get(stream) else { return };
        // The kernel's own statistics have its losses.
        if !self.log.is_of(facts.trace)
            && !self.kernel.as_ref().is_some_and(|kernel| kernel.is_of(facts.trace))
        {
            self.tracks.packet(stream, reader, out);
        }
    }

    fn loss(&mut self, stream: usize, loss: Loss) {
        self.tracks.loss(stream, loss);
    }

    fn fault(&mut self, stream: usize) {
        self.tracks.fault(stream);
    }

    fn end(&mut self, out: &mut Vec<u8>) {
        self.log.end(out);
        self.tracks.end(out);
        std::mem::take(&mut self.open_spans)
            .into_iter()
            .for_each(|span| self.tracks.open(span, out));
        self.kernel.iter_mut().for_each(|kernel| kernel.end(out));
    }
}

/// `TracePacket.trusted_packet_sequence_id` of all packets.
const SEQUENCE: u64 = 1;

/// Fields of `TracePacket`.
mod packet {
    pub(super) const FTRACE_EVENTS: u32 = 1;
    pub(super) const PROCESS_TREE: u32 = 2;
    pub(super) const CLOCK_SNAPSHOT: u32 = 6;
    pub(super) const TIMESTAMP: u32 = 8;
    pub(super) const SEQUENCE_ID: u32 = 10;
    pub(super) const TRACK_EVENT: u32 = 11;
    pub(super) const INTERNED_DATA: u32 = 12;
    pub(super) const SEQUENCE_FLAGS: u32 = 13;
    pub(super) const FTRACE_STATS: u32 = 34;
    pub(super) const SYSTEM_INFO: u32 = 45;
    pub(super) const CLOCK_ID: u32 = 58;
    pub(super) const TRACK_DESCRIPTOR: u32 = 60;
    pub(super) const JOURNALD_EVENT: u32 = 132;
}

/// `SEQ_INCREMENTAL_STATE_CLEARED`: a reader must drop earlier interned data.
const STATE_CLEARED: u64 = 1;
/// `SEQ_NEEDS_INCREMENTAL_STATE`.
const NEEDS_STATE: u64 = 2;
/// `BUILTIN_CLOCK_REALTIME`.
const REALTIME: u64 = 1;
/// `BUILTIN_CLOCK_BOOTTIME`: the default clock of a kernel's events.
const BOOTTIME: u64 = 6;

/// `FTRACE_CLOCK_GLOBAL`.
const FTRACE_GLOBAL: u64 = 2;
/// `FTRACE_CLOCK_LOCAL`.
const FTRACE_LOCAL: u64 = 3;

/// Appends a packet: `Trace.packet`.
fn put_packet(out: &mut Vec<u8>, packet: &mut Message) {
    packet.number(packet::SEQUENCE_ID, SEQUENCE);
    proto::put_message(out, 1, packet.bytes());
    packet.clear();
}

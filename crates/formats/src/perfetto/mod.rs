//! Writes Perfetto traces, which ui.perfetto.dev and trace_processor open.
//!
//! A file is a sequence of `TracePacket`s. The messages and the numbers of their fields come from Perfetto's public
//! schema (`protos/perfetto/trace/*.proto` of <https://github.com/google/perfetto> at ec5d16b14b, 2026-08-22).

mod ftrace;
mod proto;
mod table;
mod tracks;

use lastwords_ctf::read::{Due, Reader, Trace, Watch};
use lastwords_trace::class::{Clock, Origin};
use lastwords_trace::clock::{Converter, Rounding};
use lastwords_trace::ftrace::{Ring, Tracing};
use std::io::Write;

use crate::events::{self, Chosen, Line, Note, Out, StreamInfo};
use crate::select::Selection;
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
}

/// Facts about a trace array of a kernel that its trace does not contain.
#[derive(Clone, Copy)]
pub struct Kernel<'a> {
    /// Position of its trace among all traces. [`crate::ftrace::ctf::trace`] must have made the trace in the form
    /// `Plain`.
    pub trace: usize,
    /// All other traces are from the same kernel: its log.
    pub is_alone: bool,
    /// The kernel's ftrace: formats, tasks and clocks.
    pub tracing: &'a Tracing,
    /// The ring buffer.
    pub ring: &'a dyn Ring,
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
}

impl Timeline {
    /// Returns the timeline of these traces. Returns none if other traces accompany a kernel's trace whose clock cannot
    /// be related to real time.
    ///
    /// The times of a kernel's events are readings of the kernel's clock. Perfetto interprets them as the time since
    /// boot. Perfetto has no negative times: if a clock begins before time 0, all times count from the beginning of
    /// that clock.
    fn of(traces: &[Trace], kernel: Option<&Kernel<'_>>) -> Option<Self> {
        let mut clocks = traces.iter().flat_map(|trace| &trace.class().clocks);
        // Readings are not negative, so a clock has no time before its beginning.
        let begins = |clock: &Clock| Converter::new(&clock.to_clock(), Rounding::Floor).nanoseconds(0);
        let base = clocks.clone().map(begins).min().unwrap_or(0).min(0);
        let Some(kernel) = kernel else {
            let is_absolute = base == 0 && clocks.all(|clock| clock.origin == Origin::UnixEpoch);
            let clock = if is_absolute { REALTIME } else { BOOTTIME };
            return Some(Self { clock, base, snapshot: vec![(clock, 0)] });
        };
        let own = traces.get(kernel.trace)?.class().clocks.first()?;
        let clock = own.to_clock();
        let since = clock.offset_seconds.saturating_mul(1_000_000_000).saturating_add_unsigned(clock.offset_ticks);
        let related = [(BOOTTIME, since.min(0).unsigned_abs()), (REALTIME, since.max(0).unsigned_abs())];
        match (kernel.is_alone, own.origin == Origin::UnixEpoch) {
            (true, true) => Some(Self { clock: BOOTTIME, base: since, snapshot: related.into() }),
            (true, false) => Some(Self { clock: BOOTTIME, base: 0, snapshot: Vec::new() }),
            (false, true) if base == 0 => Some(Self { clock: REALTIME, base: 0, snapshot: related.into() }),
            (false, _) => None,
        }
    }

    /// Converts a time to this timeline. A time before the beginning becomes the beginning.
    fn time(&self, nanoseconds: Option<i64>) -> u64 {
        nanoseconds
            .and_then(|time| u64::try_from(i128::from(time).saturating_sub(i128::from(self.base))).ok())
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

/// Returns true if one file can express the times of all traces.
#[must_use]
pub fn can_hold(traces: &[Trace], kernel: Option<&Kernel<'_>>) -> bool {
    Timeline::of(traces, kernel).is_some()
}

/// Writes the selected events of `traces`, merged by time. One of the traces may be a kernel's. Errors of reading go to
/// `notes`. `watch` receives the number of bytes that were read.
///
/// # Errors
/// `out` cannot be written, or one file cannot express the times of all traces ([`can_hold`]).
pub fn write(
    traces: &[Trace],
    kernel: Option<&Kernel<'_>>,
    selection: &Selection,
    out: &mut dyn Write,
    watch: Watch<'_>,
    notes: &mut dyn FnMut(Note),
) -> Result<Totals> {
    let timeline = Timeline::of(traces, kernel)
        .ok_or_else(|| Error::Schema("the clocks of the traces cannot be related".into()))?;
    if kernel.is_none() && timeline.base < 0 {
        let before = timeline.base.unsigned_abs();
        notes(Note::Remark(format!(
            "Perfetto has no times before the epoch: all times count from the beginning of the earliest clock, {before} ns before the epoch"
        )));
    }
    let chosen = Chosen::last(traces, selection, Rounding::Floor, watch);
    let of_kernel = kernel.and_then(|kernel| Some(ftrace::Events::new(kernel, traces.get(kernel.trace)?)));
    let facts = chosen.facts.clone();
    let mut file = File { facts: facts.clone(), kernel: of_kernel, tracks: Tracks::new(traces, facts, &timeline) };
    let mut head = Vec::new();
    file.kernel.iter_mut().for_each(|kernel| kernel.head(&mut head));
    timeline.put(&mut head);
    out.write_all(&head).map_err(Error::Output)?;
    let mut totals = events::write(chosen, &mut file, Out::File(out), notes)?;
    totals.bytes = totals.bytes.saturating_add(head.len() as u64);
    Ok(totals)
}

/// Converts events to packets.
struct File<'t> {
    /// Facts about each stream.
    facts: Vec<StreamInfo>,
    kernel: Option<ftrace::Events<'t>>,
    tracks: Tracks<'t>,
}

impl Line for File<'_> {
    fn line(&mut self, stream: usize, reader: &mut Reader<'_>, event: &Due, out: &mut Vec<u8>) {
        match (&mut self.kernel, self.facts.get(stream)) {
            (Some(kernel), Some(StreamInfo { trace, cpu, .. })) if kernel.is_of(*trace) => {
                kernel.event(stream, cpu.unwrap_or(0), reader, event, out);
            }
            _ => self.tracks.line(stream, reader, event, out),
        }
    }

    fn end(&mut self, out: &mut Vec<u8>) {
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
}

/// `SEQ_INCREMENTAL_STATE_CLEARED`: a reader must drop earlier interned data.
const STATE_CLEARED: u64 = 1;
/// `SEQ_NEEDS_INCREMENTAL_STATE`.
const NEEDS_STATE: u64 = 2;
/// `BUILTIN_CLOCK_REALTIME`.
const REALTIME: u64 = 1;
/// `BUILTIN_CLOCK_BOOTTIME`: the default clock of a kernel's events.
const BOOTTIME: u64 = 6;

/// Appends a packet: `Trace.packet`.
fn put_packet(out: &mut Vec<u8>, packet: &mut Message) {
    packet.number(packet::SEQUENCE_ID, SEQUENCE);
    proto::put_message(out, 1, packet.bytes());
    packet.clear();
}

//! Perfetto traces: what ui.perfetto.dev and trace_processor open.
//!
//! A file is a sequence of `TracePacket`s. Messages and numbers of fields are those of Perfetto's public schema
//! (`protos/perfetto/trace/*.proto` of <https://github.com/google/perfetto> at ec5d16b14b, 2026-08-22).

mod ftrace;
mod proto;
mod table;
mod tracks;

use lastwords_ctf::read::{Due, Reader, Trace, Watch};
use lastwords_trace::class::{Clock, Origin};
use lastwords_trace::clock::{Converter, Rounding};
use lastwords_trace::ftrace::{Ring, Tracing};
use std::io::Write;

use crate::events::{self, Chosen, Facts, Line, Note};
use crate::select::Selection;
use crate::{Error, Result, Totals};
use proto::Message;
use tracks::Tracks;

/// A task, as a kernel's list has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// Its number.
    pub pid: u32,
    /// Number of its thread group.
    pub tgid: u32,
    /// Its name.
    pub comm: String,
}

/// What is known of a trace array of a kernel beside its trace.
#[derive(Clone, Copy)]
pub struct Kernel<'a> {
    /// Position of its trace ([`crate::ftrace::ctf::trace`], of form `Plain`) among all.
    pub trace: usize,
    /// All other traces are of the kernel too: its log.
    pub is_alone: bool,
    /// All that its ftrace has.
    pub tracing: &'a Tracing,
    /// The ring.
    pub ring: &'a dyn Ring,
    /// Tasks that lived at the end.
    pub tasks: &'a [Task],
}

/// What the times of a file count from.
struct Timeline {
    /// A builtin clock of Perfetto's.
    clock: u64,
    /// Nanoseconds from the origin of the traces' clocks to that clock's 0.
    base: i64,
    /// Readings of clocks at one moment.
    snapshot: Vec<(u64, u64)>,
}

impl Timeline {
    /// Of these traces; none where the clock of a kernel's trace is not related to real time and others are to stand beside it.
    ///
    /// The times of a kernel's events are readings of its clock, which Perfetto takes for the time since the boot. Perfetto has no times
    /// before 0: where a clock begins before that, all times count from there.
    fn of(traces: &[Trace], kernel: Option<&Kernel<'_>>) -> Option<Self> {
        let mut clocks = traces.iter().flat_map(|trace| &trace.class().clocks);
        // No reading is negative: a clock that does not begin before 0 gives no time before it.
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

    /// A time on it; what is before its beginning is its beginning.
    fn time(&self, nanoseconds: Option<i64>) -> u64 {
        nanoseconds
            .and_then(|time| u64::try_from(i128::from(time).saturating_sub(i128::from(self.base))).ok())
            .unwrap_or(0)
    }

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

/// All times of the traces can stand in one file.
#[must_use]
pub fn can_hold(traces: &[Trace], kernel: Option<&Kernel<'_>>) -> bool {
    Timeline::of(traces, kernel).is_some()
}

/// Writes the selected events of `traces`, merged by time, of which one may be a kernel's. What cannot be read goes to `notes`, and how many
/// bytes were read to `watch`.
///
/// # Errors
/// `out` cannot be written; one file cannot hold the traces ([`can_hold`]).
pub fn write(
    traces: &[Trace],
    kernel: Option<&Kernel<'_>>,
    selection: &Selection,
    out: &mut dyn Write,
    watch: Watch<'_>,
    notes: &mut dyn FnMut(Note),
) -> Result<Totals> {
    let timeline = Timeline::of(traces, kernel).ok_or_else(|| Error::Schema("the clocks are not related".into()))?;
    if kernel.is_none() && timeline.base < 0 {
        let before = timeline.base.unsigned_abs();
        notes(Note::Remark(format!(
            "Perfetto has no times before the epoch: all times are later by {before} ns, those from the beginning of the earliest clock"
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
    let mut totals = events::write(chosen, &mut file, out, notes)?;
    totals.bytes = totals.bytes.saturating_add(head.len() as u64);
    Ok(totals)
}

/// What becomes of an event.
struct File<'t> {
    /// By stream.
    facts: Vec<Facts>,
    kernel: Option<ftrace::Events<'t>>,
    tracks: Tracks<'t>,
}

impl Line for File<'_> {
    fn line(&mut self, stream: usize, reader: &mut Reader<'_>, event: &Due, out: &mut Vec<u8>) {
        match (&mut self.kernel, self.facts.get(stream)) {
            (Some(kernel), Some(Facts { trace, cpu, .. })) if kernel.is_of(*trace) => {
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

/// `SEQ_INCREMENTAL_STATE_CLEARED`: interned data begins here.
const STATE_CLEARED: u64 = 1;
/// `SEQ_NEEDS_INCREMENTAL_STATE`.
const NEEDS_STATE: u64 = 2;
/// `BUILTIN_CLOCK_REALTIME`.
const REALTIME: u64 = 1;
/// `BUILTIN_CLOCK_BOOTTIME`: what the times of a kernel's events are in, where nothing else is said.
const BOOTTIME: u64 = 6;

/// Appends a packet: `Trace.packet`.
fn put_packet(out: &mut Vec<u8>, packet: &mut Message) {
    packet.number(packet::SEQUENCE_ID, SEQUENCE);
    proto::put_message(out, 1, packet.bytes());
    packet.clear();
}

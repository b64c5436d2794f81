//! Reports what is in a session of lastwords.

use super::activity::{Activity, Read};
use super::tally::{self, Tally};
use crate::why::{self, Outside, Verdict};
use crate::{Crash, EndedReport, Holds, Observed, RecoveredSession, Trace};
use lastwords_ctf::{Version, read};
use lastwords_folders::SnapshotState;
use lastwords_render::evidence::Account;
use lastwords_session::info::{
    ClockInfo, Info, Module, Process, RegionInfo, StreamInfo, mode_word, reservation_word,
};
use lastwords_trace::metrics::Metrics;
use lastwords_trace::schema::EnvValue;
use lastwords_trace::source::Source;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// One session.
#[derive(Debug, Clone, Serialize)]
pub struct Report<'a> {
    /// The name of the session; empty if it is lost.
    pub name: String,
    /// Its UUID, in hexadecimal.
    pub uuid: String,
    /// The path that was read.
    pub from: PathBuf,
    /// The kind of the input, in a few words.
    pub kind: &'static str,
    /// The process, if a core was read.
    pub process_core: Option<ProcessCore>,
    /// The program that made the session.
    pub program: String,
    /// The host it ran on.
    pub hostname: String,
    /// The process that made the session.
    pub creator: u32,
    /// The user of that process.
    pub uid: u32,
    /// The creation time in nanoseconds since the epoch.
    pub created_ns: String,
    /// The ID of the boot of the machine, in hexadecimal.
    pub boot_id: String,
    /// The session was recording.
    pub recording: bool,
    /// The session was ended in good order.
    pub finished: bool,
    /// The way and time of the session's end. It is null while a process records or may record,
    /// and if the session is not in its own folder.
    pub ended: Option<EndedReport>,
    /// Why it is not known whether the session has ended; left out if that is known, or if the
    /// session is in no folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown_end: Option<String>,
    /// The owner of the buffers: `process` or `user`.
    pub scope: &'static str,
    /// The way in which space is reserved.
    pub reservation: &'static str,
    /// The kind of memory that has the buffers.
    pub back_end: &'static str,
    /// The recorder's note on that memory, for example whether it is in huge pages, or outlives a
    /// loss of power.
    pub back_end_note: Option<String>,
    /// The state of the snapshot: `off`, `ready`, `swapping`, `taken`, `reading`.
    #[serde(serialize_with = "word")]
    pub snapshot: SnapshotState,
    /// The number of snapshots that were taken.
    pub snapshots_taken: u32,
    /// Its clock.
    pub clock: ClockInfo,
    /// The number of CPUs for which the rings were made.
    pub cpus: u32,
    /// The minor version of the format in memory.
    pub format_minor: u16,
    /// Descriptions of events for which there was no room.
    pub registry_dropped: u64,
    /// Open spans for which there was no room in their table.
    pub spans_dropped: u64,
    /// Its counters and histograms.
    pub metrics: &'a Metrics,
    /// Processes that have not left the session.
    pub processes: &'a [Process],
    /// Its channels.
    pub channels: Vec<Channel>,
    /// Its streams. A stream is the ring of one channel on one CPU.
    pub streams: Vec<Stream>,
    /// Modules that were mapped in its processes.
    pub modules: &'a [Module],
    /// Regions of its memory.
    pub regions: &'a [RegionInfo],
    /// Events that could be decoded.
    pub events: u64,
    /// The events by name and over time.
    pub activity: Option<Activity>,
    /// Packets that could not be decoded to their end, as messages.
    pub faults: Vec<String>,
    /// The cause of the end, as `why` has it.
    pub verdict: Verdict,
    /// Panics and signals that the program recorded.
    pub crashes: Vec<Crash>,
    /// The account.
    pub evidence: Account<'a>,
}

/// The facts about its process that a core has.
#[derive(Debug, Clone, Serialize)]
pub struct ProcessCore {
    /// The ID of the process.
    pub pid: Option<i32>,
    /// Its command.
    pub command: String,
    /// Its arguments.
    pub arguments: String,
    /// The signal that killed it.
    pub signal: Option<i32>,
    /// The `si_code` of that signal.
    pub code: Option<i32>,
    /// The address of the fault, in hexadecimal.
    pub address: Option<String>,
    /// The IDs of its threads; the thread that was killed comes first.
    pub threads: Vec<i32>,
}

/// A channel.
#[derive(Debug, Clone, Serialize)]
pub struct Channel {
    /// Its ID.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// `overwrite` or `discard`.
    pub mode: &'static str,
    /// The channel records events.
    pub recording: bool,
    /// The number of sub-buffers of each ring.
    pub sub_buffers: u32,
    /// The size of a sub-buffer in bytes.
    pub sub_buffer_size: u64,
    /// The seconds for which its rings hold events at the observed rate, or null if no ring shows
    /// a rate.
    pub holds_seconds: Option<f64>,
    /// The observed rate in events per second.
    pub events_per_second: Option<f64>,
    /// The names of its context fields.
    pub contexts: Vec<String>,
    /// The number of decoded events by `provider:name`. It is 0 if an event is described and none
    /// was recovered.
    pub events: BTreeMap<String, u64>,
}

/// A stream.
#[derive(Debug, Clone, Serialize)]
pub struct Stream {
    /// Its index in the session.
    pub index: u32,
    /// The ID of its channel.
    pub channel: u32,
    /// Its CPU, or null if it is not bound to a CPU.
    pub cpu: Option<u32>,
    /// The way in which space in it is reserved.
    pub reservation: &'static str,
    /// The bytes that were written since the ring was begun.
    pub produced: u64,
    /// Events that could be decoded.
    pub events: u64,
    /// The events that were lost in it.
    pub lost: Lost,
}

/// Events that a stream has lost since it was begun, by cause, and what was reclaimed or skipped.
#[derive(Debug, Clone, Serialize)]
pub struct Lost {
    /// Events for which there was no room.
    pub full: u64,
    /// Events that are larger than a sub-buffer.
    pub too_big: u64,
    /// Events of threads that had no entry in the table of threads.
    pub no_entry: u64,
    /// Events that found the ring busy.
    pub busy: u64,
    /// Events that could not get the lock.
    pub lock: u64,
    /// Reservations of dead threads that were abandoned.
    pub reclaimed: u64,
    /// Sub-buffers that were skipped.
    pub skipped: u64,
}

/// Counts of decoded events.
#[derive(Debug, Default)]
struct Counts {
    /// The counts of each stream.
    streams: Vec<Observed>,
    /// The number of events by channel and class.
    classes: Vec<Vec<u64>>,
}

/// Sums up what was counted in the streams of the packets.
fn counts(source: &dyn Source, read: &Read<'_>) -> Counts {
    let channels = &source.schema().channels;
    let mut counts = Counts {
        streams: vec![Observed::default(); source.streams().len()],
        classes: channels.iter().map(|c| vec![0; c.classes().count()]).collect(),
    };
    let streams = read.packets.into_iter().flatten().flat_map(|trace| &trace.streams);
    for (stream, Tally { counted, .. }) in streams.zip(&read.tallies) {
        let own = stream.memory.as_ref().and_then(|memory| counts.streams.get_mut(memory.stream));
        own.into_iter()
            .for_each(|own| *own = Observed { events: counted.events(), span: counted.span });
        let classes = counts.classes.get_mut(stream.class).into_iter().flatten();
        classes.zip(&counted.classes).for_each(|(sum, count)| *sum = sum.saturating_add(*count));
    }
    counts
}

/// Counts the events in each stream of a session of lastwords. Other traces have no such streams.
#[must_use]
pub fn observed(trace: &Trace) -> Vec<Observed> {
    let (Some(found), Some(packets)) = (trace.session(), trace.packets(Version::V2)) else {
        return Vec::new();
    };
    let tallies =
        packets.as_ref().map(|packets| tally::all(packets, &read::unwatched)).unwrap_or_default();
    counts(&*found.session, &Read { packets: Some(&packets), tallies, activity: None }).streams
}

/// Returns the report on a session of lastwords, or none for other traces.
pub(super) fn report<'a>(
    trace: &'a Trace,
    read: &Read<'_>,
    outside: &Outside,
) -> Option<Report<'a>> {
    let found = trace.session()?;
    let RecoveredSession { session, .. } = found;
    let (source, info, origin): (&dyn Source, _, _) = (&**session, session.info(), &trace.origin);
    let (counts, faults) = (counts(source, read), read.faults());
    let _ = trace.newest.set(counts.streams.iter().filter_map(|stream| Some(stream.span?.1)).max());
    let evidence = Account { faults: faults.len() as u64, ..trace.account() };
    let verdict = why::session(trace, outside)?;
    Some(Report {
        name: info.name.clone(),
        uuid: hexadecimal(&info.uuid),
        from: origin.path.clone(),
        kind: origin.kind.words(),
        process_core: origin.core.as_ref().map(process_core),
        program: info.program.clone(),
        hostname: info.hostname.clone(),
        creator: info.creator_pid,
        uid: info.uid,
        created_ns: info.created_realtime.to_string(),
        boot_id: hexadecimal(&info.boot_id),
        recording: info.recording,
        finished: info.finished,
        ended: trace.ended().map(EndedReport),
        unknown_end: found.unknown_end.clone(),
        scope: info.scope.word(),
        reservation: info.reservation_word(),
        back_end: info.backend_word(),
        back_end_note: back_end_note(source),
        snapshot: info.snapshot.state,
        snapshots_taken: info.snapshot.taken,
        clock: info.clock,
        cpus: info.cpus,
        format_minor: info.minor,
        registry_dropped: info.registry_dropped,
        spans_dropped: info.spans_dropped,
        metrics: &info.metrics,
        processes: &info.processes,
        channels: channels(source, info, &counts),
        streams: info
            .streams
            .iter()
            .enumerate()
            .map(|(i, s)| stream(s, counts.streams.get(i)))
            .collect(),
        modules: &info.modules,
        regions: &info.regions,
        events: counts.streams.iter().map(|stream| stream.events).fold(0, u64::saturating_add),
        activity: read.activity.clone(),
        faults,
        crashes: verdict.crashes(),
        verdict,
        evidence,
    })
}

fn word<S: Serializer>(state: &SnapshotState, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(state.word())
}

/// Returns the recorder's note on the memory. The registry has it under the name `backend`.
fn back_end_note(source: &dyn Source) -> Option<String> {
    match source.schema().env.get("backend")? {
        EnvValue::Text(note) => Some(note.clone()),
        EnvValue::Integer(_) => None,
    }
}

fn process_core(core: &lastwords_image::core::CoreInfo) -> ProcessCore {
    ProcessCore {
        pid: core.pid,
        command: core.comm.clone(),
        arguments: core.args.clone(),
        signal: core.signal,
        code: core.code,
        address: core.address.map(|a| format!("{a:#x}")),
        threads: core.threads.clone(),
    }
}

fn channels(source: &dyn Source, info: &Info, counts: &Counts) -> Vec<Channel> {
    let schema = source.schema();
    let of = |position: usize, channel: &lastwords_trace::schema::Channel| {
        let facts = info.channels.iter().find(|c| c.id == channel.id).cloned().unwrap_or_default();
        let mut events = BTreeMap::new();
        for (class, n) in channel.classes().zip(counts.classes.get(position).into_iter().flatten())
        {
            let count: &mut u64 = events.entry(class.name.clone()).or_default();
            *count = count.saturating_add(*n);
        }
        let holds = Holds::of_channel(info, channel.id, &counts.streams);
        Channel {
            id: channel.id,
            name: channel.name.clone(),
            holds_seconds: holds.map(|holds| holds.seconds),
            events_per_second: holds.map(|holds| holds.events_per_second),
            mode: mode_word(facts.mode),
            recording: facts.recording,
            sub_buffers: facts.sub_buffers,
            sub_buffer_size: facts.sub_buffer_size,
            contexts: channel.contexts.iter().map(|f| f.name.clone()).collect(),
            events,
        }
    };
    schema.channels.iter().enumerate().map(|(position, channel)| of(position, channel)).collect()
}

fn stream(info: &StreamInfo, observed: Option<&Observed>) -> Stream {
    let [full, too_big, no_entry, busy, lock, reclaimed, skipped] = info.lost;
    Stream {
        index: info.index,
        channel: info.channel,
        cpu: info.cpu,
        reservation: reservation_word(info.reservation),
        produced: info.produced,
        events: observed.map_or(0, |observed| observed.events),
        lost: Lost { full, too_big, no_entry, busy, lock, reclaimed, skipped },
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

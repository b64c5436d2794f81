//! What is in a session of ours.

use crate::{Crash, EndedReport, Holds, RecoveredSession, Trace};
use lastwords_ctf::Version;
use lastwords_ctf::read::{Due, Reader, Watch};
use lastwords_formats::events::{Note, each};
use lastwords_formats::evidence::Account;
use lastwords_formats::select::Selection;
use lastwords_trace::schema::EnvValue;
use lastwords_trace::source::Source;
use lastwords_walk::session::info::{Info, StreamInfo, mode_word, reservation_word};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// One session.
#[derive(Debug, Clone, Serialize)]
pub struct Report<'a> {
    /// Name of the session; empty where it is lost.
    pub name: String,
    /// Its UUID, in hexadecimal.
    pub uuid: String,
    /// What was read.
    pub from: PathBuf,
    /// What that is, a few words.
    pub kind: &'static str,
    /// The process, where a core was read.
    pub process_core: Option<ProcessCore>,
    /// The program that made the session.
    pub program: String,
    /// The host it ran on.
    pub hostname: String,
    /// The process that made the session.
    pub creator: u32,
    /// The user of that process.
    pub uid: u32,
    /// When it was made, in nanoseconds since the epoch.
    pub created_ns: String,
    /// Id of the boot of the machine, in hexadecimal.
    pub boot_id: String,
    /// Events were recorded, and not stopped.
    pub recording: bool,
    /// The session was ended in good order.
    pub finished: bool,
    /// How and when it ended; null while someone records or may, and where it is not in its own folder.
    pub ended: Option<EndedReport>,
    /// Whose buffers they are: `process` or `user`.
    pub scope: &'static str,
    /// How space is reserved.
    pub reservation: &'static str,
    /// Which memory has the buffers.
    pub back_end: &'static str,
    /// What the recorder had to say of that memory: whether it is in huge pages, whether it outlives a loss of power, ...
    pub back_end_note: Option<String>,
    /// State of the snapshot: `off`, `ready`, `swapping`, `taken`, `reading`.
    pub snapshot: &'static str,
    /// How many snapshots were taken.
    pub snapshots_taken: u32,
    /// Its clock.
    pub clock: Clock,
    /// How many CPUs the rings were made for.
    pub cpus: u32,
    /// Minor version of the format in memory.
    pub format_minor: u16,
    /// Descriptions of events that found no room.
    pub registry_dropped: u64,
    /// Open spans that found no room in their table.
    pub spans_dropped: u64,
    /// Processes that have not left the session.
    pub processes: Vec<Process>,
    /// Its channels.
    pub channels: Vec<Channel>,
    /// Its streams: a ring of one channel for one CPU.
    pub streams: Vec<Stream>,
    /// Modules that were mapped in its processes.
    pub modules: Vec<Module>,
    /// Regions of its memory.
    pub regions: Vec<Region>,
    /// Events that decode.
    pub events: u64,
    /// Packets that do not decode to their end.
    pub faults: Vec<String>,
    /// Causes of death that the program recorded.
    pub crashes: Vec<Crash>,
    /// The account.
    pub evidence: Account<'a>,
}

/// What a core says of its process.
#[derive(Debug, Clone, Serialize)]
pub struct ProcessCore {
    /// Id of the process.
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
    /// Ids of its threads, the one that was killed first.
    pub threads: Vec<i32>,
}

/// The clock of a session.
#[derive(Debug, Clone, Serialize)]
pub struct Clock {
    /// Name of the clock.
    pub name: &'static str,
    /// Ticks a second.
    pub frequency: u64,
    /// Uncertainty of the newest sample, ns.
    pub uncertainty_ns: u64,
    /// From the first sample to the newest, ns.
    pub sampled_over_ns: u64,
}

/// A process that recorded.
#[derive(Debug, Clone, Serialize)]
pub struct Process {
    /// Id of the process.
    pub pid: u32,
    /// When it was started, in clock ticks since the boot.
    pub start: u64,
    /// Inode of its namespace of process ids.
    pub pid_namespace: u64,
}

/// A channel.
#[derive(Debug, Clone, Serialize)]
pub struct Channel {
    /// Its id.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// `overwrite` or `discard`.
    pub mode: &'static str,
    /// Events are recorded in it.
    pub recording: bool,
    /// Sub-buffers of each ring.
    pub sub_buffers: u32,
    /// Bytes of each sub-buffer.
    pub sub_buffer_size: u64,
    /// How long its rings hold at the observed rate, seconds; null where nothing shows a rate.
    pub holds_seconds: Option<f64>,
    /// The observed rate.
    pub events_per_second: Option<f64>,
    /// Names of its context fields.
    pub contexts: Vec<String>,
    /// Events that decode, by `provider:name`; 0 where one is described and none is there.
    pub events: BTreeMap<String, u64>,
}

/// A stream.
#[derive(Debug, Clone, Serialize)]
pub struct Stream {
    /// Its index in the session.
    pub index: u32,
    /// Id of its channel.
    pub channel: u32,
    /// Its CPU; null where it is bound to none.
    pub cpu: Option<u32>,
    /// How space in it is reserved.
    pub reservation: &'static str,
    /// Bytes since the ring was begun.
    pub produced: u64,
    /// Events that decode.
    pub events: u64,
    /// What was lost in it.
    pub lost: Lost,
}

/// Events lost in the life of a stream, by cause, and what was reclaimed or passed over.
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
    /// Events whose lock could not be had.
    pub lock: u64,
    /// Reservations of dead threads that were given up.
    pub reclaimed: u64,
    /// Sub-buffers that were passed over.
    pub skipped: u64,
}

/// A mapped module.
#[derive(Debug, Clone, Serialize)]
pub struct Module {
    /// The process.
    pub pid: u32,
    /// Path of the file.
    pub path: String,
    /// Load bias, in hexadecimal.
    pub base: String,
    /// First address, in hexadecimal.
    pub start: String,
    /// Address behind the last, in hexadecimal.
    pub end: String,
    /// Build id, in hexadecimal; may be empty.
    pub build_id: String,
}

/// A region of memory.
#[derive(Debug, Clone, Serialize)]
pub struct Region {
    /// `session`, `registry`, `stream` or `spans`.
    pub kind: &'static str,
    /// Its index among those of its kind.
    pub index: u32,
    /// Where it was found.
    pub place: String,
    /// Its bytes.
    pub bytes: u64,
    /// Bytes that the image has, up to the last.
    pub held: u64,
}

/// Events that decode, and packets that do not.
#[derive(Debug, Default)]
struct Counts {
    events: u64,
    /// By stream.
    streams: Vec<u64>,
    /// By channel and class.
    classes: Vec<Vec<u64>>,
    faults: Vec<String>,
}

/// Decodes all events of a session to count them.
fn count(trace: &Trace, source: &dyn Source, watch: Watch<'_>) -> Counts {
    let channels = &source.schema().channels;
    let mut counts = Counts {
        streams: vec![0; source.streams().len()],
        classes: channels.iter().map(|c| vec![0; c.classes().count()]).collect(),
        ..Counts::default()
    };
    let traces = match trace.packets(Version::V2) {
        Some(Ok(trace)) => [trace],
        Some(Err(error)) => {
            counts.faults.push(error.to_string());
            return counts;
        }
        None => return counts,
    };
    let mut faults = Vec::new();
    let mut visit = |reader: &mut Reader<'_>, event: &Due| {
        let stream = reader.stream();
        let own = stream.memory.as_ref().and_then(|memory| counts.streams.get_mut(memory.stream));
        let class = counts.classes.get_mut(stream.class).and_then(|classes| classes.get_mut(event.class));
        for count in own.into_iter().chain(class).chain([&mut counts.events]) {
            *count = count.saturating_add(1);
        }
    };
    each(&traces, &Selection::default(), watch, &mut visit, &mut |note| {
        if let Note::Fault(fault) = note {
            faults.push(fault.to_string());
        }
    });
    counts.faults = faults;
    counts
}

/// What is in a session; none where the trace is none of ours.
pub(super) fn of<'a>(trace: &'a Trace, watch: Watch<'_>) -> Option<Report<'a>> {
    let found = trace.session()?;
    let RecoveredSession { session, ended } = found;
    let (source, info, origin): (&dyn Source, _, _) = (&**session, session.info(), &trace.origin);
    let counts = count(trace, source, watch);
    let evidence = Account { faults: counts.faults.len() as u64, ..trace.account() };
    Some(Report {
        name: info.name.clone(),
        uuid: hexadecimal(&info.uuid),
        from: origin.path.clone(),
        kind: origin.kind,
        process_core: origin.core.as_ref().map(process_core),
        program: info.program.clone(),
        hostname: info.hostname.clone(),
        creator: info.creator_pid,
        uid: info.uid,
        created_ns: info.created_realtime.to_string(),
        boot_id: hexadecimal(&info.boot_id),
        recording: info.recording,
        finished: info.finished,
        ended: ended.map(EndedReport::from),
        scope: info.scope_word(),
        reservation: info.reservation_word(),
        back_end: info.backend_word(),
        back_end_note: back_end_note(source),
        snapshot: info.snapshot.word(),
        snapshots_taken: info.snapshot.taken,
        clock: Clock {
            name: info.clock.word(),
            frequency: info.clock.frequency,
            uncertainty_ns: info.clock.width,
            sampled_over_ns: info.clock.span,
        },
        cpus: info.cpus,
        format_minor: info.minor,
        registry_dropped: info.registry_dropped,
        spans_dropped: info.spans_dropped,
        processes: processes(info),
        channels: channels(source, info, &counts),
        streams: info.streams.iter().enumerate().map(|(i, s)| stream(s, counts.streams.get(i))).collect(),
        modules: modules(info),
        regions: regions(info),
        events: counts.events,
        faults: counts.faults,
        crashes: found.crashes(),
        evidence,
    })
}

/// The recorder writes it into the registry, under this name.
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

fn processes(info: &Info) -> Vec<Process> {
    info.processes.iter().map(|p| Process { pid: p.pid, start: p.start, pid_namespace: p.pidns }).collect()
}

fn channels(source: &dyn Source, info: &Info, counts: &Counts) -> Vec<Channel> {
    let schema = source.schema();
    let of = |position: usize, channel: &lastwords_trace::schema::Channel| {
        let facts = info.channels.iter().find(|c| c.id == channel.id).cloned().unwrap_or_default();
        let mut events = BTreeMap::new();
        for (class, n) in channel.classes().zip(counts.classes.get(position).into_iter().flatten()) {
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

fn stream(info: &StreamInfo, events: Option<&u64>) -> Stream {
    let [full, too_big, no_entry, busy, lock, reclaimed, skipped] = info.lost;
    Stream {
        index: info.index,
        channel: info.channel,
        cpu: info.cpu,
        reservation: reservation_word(info.reservation),
        produced: info.produced,
        events: events.copied().unwrap_or(0),
        lost: Lost { full, too_big, no_entry, busy, lock, reclaimed, skipped },
    }
}

fn modules(info: &Info) -> Vec<Module> {
    let hex = |n: u64| format!("{n:#x}");
    let of = |m: &lastwords_walk::session::info::Module| Module {
        pid: m.pid,
        path: m.path.clone(),
        base: hex(m.base),
        start: hex(m.start),
        end: hex(m.end),
        build_id: hexadecimal(&m.build_id),
    };
    info.modules.iter().map(of).collect()
}

fn regions(info: &Info) -> Vec<Region> {
    let kind = |kind: u32| match kind {
        1 => "session",
        2 => "registry",
        3 => "stream",
        4 => "spans",
        _ => "unknown",
    };
    let of = |r: &lastwords_walk::session::info::RegionInfo| Region {
        kind: kind(r.kind),
        index: r.index,
        place: r.place.clone(),
        bytes: r.size,
        held: r.held,
    };
    info.regions.iter().map(of).collect()
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

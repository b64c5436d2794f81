//! The data of `inspect --json`, described in docs/JSON.md.

use crate::crash::{self, Cause};
use crate::holds::Holds;
use crate::input::Session as Input;
use crate::progress::Shared;
use crate::text::bytes;
use crate::verbs::list::ending_data;
use lastwords_ctf::Version;
use lastwords_ctf::read::{Due, Reader};
use lastwords_formats::events::{Note, each};
use lastwords_formats::evidence;
use lastwords_formats::select::Selection;
use lastwords_trace::schema::EnvValue;
use lastwords_trace::source::Source;
use lastwords_walk::session::info::{Info, StreamInfo, mode_word, reservation_word};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

#[derive(Serialize)]
pub(super) struct Report {
    pub(super) schema: &'static str,
    pub(super) sessions: Vec<Session>,
}

/// One session.
#[derive(Serialize)]
pub(super) struct Session {
    pub(super) name: String,
    pub(super) uuid: String,
    pub(super) from: PathBuf,
    /// What that is, a few words.
    pub(super) kind: &'static str,
    pub(super) process_core: Option<ProcessCore>,
    pub(super) program: String,
    pub(super) hostname: String,
    pub(super) creator: u32,
    pub(super) uid: u32,
    pub(super) created_ns: String,
    pub(super) boot_id: String,
    pub(super) recording: bool,
    pub(super) finished: bool,
    /// How and when it ended; null while someone records or may, and where it is not in its own folder.
    pub(super) ended: Option<serde_json::Value>,
    pub(super) scope: &'static str,
    pub(super) reservation: &'static str,
    pub(super) back_end: &'static str,
    /// What the recorder had to say of that memory: whether it is in huge pages, whether it outlives a loss of power, ...
    pub(super) back_end_note: Option<String>,
    pub(super) snapshot: &'static str,
    pub(super) snapshots_taken: u32,
    pub(super) clock: Clock,
    pub(super) cpus: u32,
    pub(super) format_minor: u16,
    pub(super) registry_dropped: u64,
    pub(super) spans_dropped: u64,
    pub(super) processes: Vec<Process>,
    pub(super) channels: Vec<Channel>,
    pub(super) streams: Vec<Stream>,
    pub(super) modules: Vec<Module>,
    pub(super) regions: Vec<Region>,
    /// Events that decode.
    pub(super) events: u64,
    /// Packets that do not decode to their end.
    pub(super) faults: Vec<String>,
    /// Causes of death that the program recorded.
    pub(super) crashes: Vec<Cause>,
    pub(super) evidence: evidence::Report,
}

/// What a core says of its process.
#[derive(Serialize)]
pub(super) struct ProcessCore {
    pub(super) pid: Option<i32>,
    pub(super) command: String,
    pub(super) arguments: String,
    pub(super) signal: Option<i32>,
    pub(super) code: Option<i32>,
    pub(super) address: Option<String>,
    pub(super) threads: Vec<i32>,
}

#[derive(Serialize)]
pub(super) struct Clock {
    pub(super) name: &'static str,
    pub(super) frequency: u64,
    /// Uncertainty of the newest sample, ns.
    pub(super) uncertainty_ns: u64,
    /// From the first sample to the newest, ns.
    pub(super) sampled_over_ns: u64,
}

#[derive(Serialize)]
pub(super) struct Process {
    pub(super) pid: u32,
    pub(super) start: u64,
    pub(super) pid_namespace: u64,
}

#[derive(Serialize)]
pub(super) struct Channel {
    pub(super) id: u32,
    pub(super) name: String,
    pub(super) mode: &'static str,
    pub(super) recording: bool,
    pub(super) sub_buffers: u32,
    pub(super) sub_buffer_size: u64,
    /// How long its rings hold at the observed rate, seconds; null where nothing shows a rate.
    pub(super) holds_seconds: Option<f64>,
    /// The observed rate.
    pub(super) events_per_second: Option<f64>,
    pub(super) contexts: Vec<String>,
    /// Events that decode, by `provider:name`; 0 where one is described and none is there.
    pub(super) events: BTreeMap<String, u64>,
}

#[derive(Serialize)]
pub(super) struct Stream {
    pub(super) index: u32,
    pub(super) channel: u32,
    pub(super) cpu: Option<u32>,
    pub(super) reservation: &'static str,
    /// Bytes since the ring was begun.
    pub(super) produced: u64,
    /// Events that decode.
    pub(super) events: u64,
    pub(super) lost: Lost,
}

/// Events lost in the life of a stream, by cause, and what was reclaimed or passed over.
#[derive(Serialize)]
pub(super) struct Lost {
    pub(super) full: u64,
    pub(super) too_big: u64,
    pub(super) no_entry: u64,
    pub(super) busy: u64,
    pub(super) lock: u64,
    pub(super) reclaimed: u64,
    pub(super) skipped: u64,
}

#[derive(Serialize)]
pub(super) struct Module {
    pub(super) pid: u32,
    pub(super) path: String,
    pub(super) base: String,
    pub(super) start: String,
    pub(super) end: String,
    pub(super) build_id: String,
}

#[derive(Serialize)]
pub(super) struct Region {
    pub(super) kind: &'static str,
    pub(super) index: u32,
    pub(super) place: String,
    pub(super) bytes: u64,
    /// Bytes that the image has, up to the last.
    pub(super) held: u64,
}

/// Events that decode, and packets that do not.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) events: u64,
    /// By stream.
    pub(super) streams: Vec<u64>,
    /// By channel and class.
    pub(super) classes: Vec<Vec<u64>>,
    pub(super) faults: Vec<String>,
}

/// Decodes all events of a session to count them.
pub(super) fn count(input: &Input) -> Counts {
    let source = input.source();
    let channels = &source.schema().channels;
    let mut counts = Counts {
        streams: vec![0; source.streams().len()],
        classes: channels.iter().map(|c| vec![0; c.classes().count()]).collect(),
        ..Counts::default()
    };
    let traces = match input.trace(Version::V2) {
        Ok(trace) => [trace],
        Err(error) => {
            counts.faults.push(error.to_string());
            return counts;
        }
    };
    let bar = Shared::new(&source.schema().name, bytes(&traces));
    let mut faults = Vec::new();
    let mut visit = |reader: &mut Reader<'_>, event: &Due| {
        counts.events += 1;
        let stream = reader.stream();
        let own = stream.memory.as_ref().and_then(|memory| counts.streams.get_mut(memory.stream));
        own.into_iter().for_each(|count| *count += 1);
        let class = counts.classes.get_mut(stream.class).and_then(|classes| classes.get_mut(event.class));
        class.into_iter().for_each(|count| *count += 1);
    };
    each(&traces, &Selection::default(), &|bytes| bar.add(bytes), &mut visit, &mut |note| {
        if let Note::Fault(fault) = note {
            faults.push(fault.to_string());
        }
    });
    counts.faults = faults;
    counts
}

/// The data of one session.
pub(super) fn of(input: &Input) -> Session {
    let (source, info) = (input.source(), input.session().info());
    let counts = count(input);
    Session {
        name: info.name.clone(),
        uuid: hexadecimal(&info.uuid),
        from: input.origin.path.clone(),
        kind: input.origin.kind,
        process_core: input.origin.core.as_ref().map(process_core),
        program: info.program.clone(),
        hostname: info.hostname.clone(),
        creator: info.creator_pid,
        uid: info.uid,
        created_ns: info.created_realtime.to_string(),
        boot_id: hexadecimal(&info.boot_id),
        recording: info.recording,
        finished: info.finished,
        ended: input.found.ended.map(ending_data),
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
        crashes: crash::causes(input.session()),
        evidence: evidence::Account::of(source).report(),
    }
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
        for (class, n) in channel.classes().zip(&counts.classes[position]) {
            *events.entry(class.name.clone()).or_insert(0) += n;
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

//! `inspect` of folders of CTF: each event is decoded.

use crate::account::{self, LIMIT};
use crate::progress::Shared;
use crate::table::plain;
use crate::text::bytes;
use lastwords_ctf::read::{self, Next, Reader, Trace, Watch};
use lastwords_formats::Totals;
use lastwords_trace::parallel;
use serde::Serialize;
use std::io::{self, Write};
use std::path::PathBuf;

#[derive(Serialize)]
pub(super) struct Report {
    pub(super) schema: &'static str,
    pub(super) traces: Vec<TraceSummary>,
    /// What cannot be read of the inputs.
    pub(super) faults: Vec<String>,
}

#[derive(Serialize)]
pub(super) struct TraceSummary {
    path: PathBuf,
    version: &'static str,
    uid: Option<String>,
    env: serde_json::Map<String, serde_json::Value>,
    clocks: Vec<String>,
    streams: Vec<StreamSummary>,
}

#[derive(Serialize)]
struct StreamSummary {
    class: u64,
    id: Option<u64>,
    files: Vec<PathBuf>,
    packets: u64,
    events: u64,
    discarded_events: u64,
    discarded_packets: u64,
    /// Nanoseconds from the clock's origin.
    begin: Option<i64>,
    end: Option<i64>,
    faults: Vec<String>,
}

impl TraceSummary {
    /// Something of it cannot be read.
    pub(super) fn is_faulty(&self) -> bool {
        self.streams.iter().any(|stream| !stream.faults.is_empty())
    }
}

/// What is in the traces.
pub(super) fn of(traces: &[Trace]) -> Vec<TraceSummary> {
    let bar = Shared::new("inspect", bytes(traces));
    traces.iter().map(|trace| summary(trace, &|bytes| bar.add(bytes))).collect()
}

fn summary(trace: &Trace, watch: Watch<'_>) -> TraceSummary {
    use lastwords_trace::schema::EnvValue;
    let class = trace.class();
    let value = |value: &EnvValue| match value {
        EnvValue::Text(text) => serde_json::json!(text),
        EnvValue::Integer(number) => serde_json::json!(number),
    };
    TraceSummary {
        path: trace.path.clone(),
        version: if class.version == 1 { "1.8" } else { "2" },
        uid: class.identity.uid.clone(),
        env: class.env.iter().map(|(key, entry)| (key.clone(), value(entry))).collect(),
        clocks: class.clocks.iter().map(|clock| format!("{}: {} Hz", clock.id, clock.frequency)).collect(),
        streams: parallel::map(&trace.streams, parallel::cpus(), |_, stream| stream_summary(trace, stream, watch)),
    }
}

fn stream_summary(trace: &Trace, stream: &read::Stream, watch: Watch<'_>) -> StreamSummary {
    let mut reader = Reader::new(trace, stream).watched(watch);
    let mut summary = StreamSummary {
        class: trace.class().streams.get(stream.class).map_or(0, |class| class.id),
        id: stream.id,
        files: stream.files.clone(),
        packets: 0,
        events: 0,
        discarded_events: 0,
        discarded_packets: 0,
        begin: None,
        end: None,
        faults: Vec::new(),
    };
    let (mut first, mut last) = (None, None);
    loop {
        match reader.advance() {
            Next::Event(event) => {
                summary.events += 1 + reader.pass();
                first = first.or(Some(event.clock));
                last = Some(reader.clock());
            }
            Next::Packet => summary.packets += 1,
            Next::Loss(loss) if loss.packets => summary.discarded_packets += loss.count,
            Next::Loss(loss) => summary.discarded_events += loss.count,
            Next::Fault(fault) => summary.faults.push(fault.to_string()),
            Next::End => break,
        }
    }
    summary.begin = first.and_then(|clock| reader.nanoseconds(clock));
    summary.end = last.and_then(|clock| reader.nanoseconds(clock));
    summary
}

/// Writes it for people.
pub(super) fn write(trace: &Trace, summary: &TraceSummary, text: &mut dyn Write) -> io::Result<()> {
    let (of, trace) = (trace, summary);
    writeln!(text, "{}: CTF {}", plain(&trace.path.display().to_string()), trace.version)?;
    for (key, value) in &trace.env {
        writeln!(text, "  {}: {}", plain(key), plain(&value.to_string()))?;
    }
    for clock in &trace.clocks {
        writeln!(text, "  clock {}", plain(clock))?;
    }
    for stream in &trace.streams {
        let file = stream.files.first().and_then(|file| file.file_name()).unwrap_or_default();
        write!(
            text,
            "  {}: class {}, {} packets, {} events",
            plain(&file.to_string_lossy()),
            stream.class,
            stream.packets,
            stream.events
        )?;
        if stream.discarded_events + stream.discarded_packets > 0 {
            write!(text, ", discarded {} events, {} packets", stream.discarded_events, stream.discarded_packets)?;
        }
        if let (Some(begin), Some(end)) = (stream.begin, stream.end) {
            let second = |ns: i64| format!("{}.{:09}", ns.div_euclid(1_000_000_000), ns.rem_euclid(1_000_000_000));
            write!(text, ", {} to {}", second(begin), second(end))?;
        }
        writeln!(text)?;
        for fault in &stream.faults {
            writeln!(text, "    fault: {}", plain(fault))?;
        }
    }
    let lost = |count: fn(&StreamSummary) -> u64| trace.streams.iter().map(count).fold(0, u64::saturating_add);
    let (lost_events, lost_packets) = (lost(|s| s.discarded_events), lost(|s| s.discarded_packets));
    let totals = Totals { lost_events, lost_packets, ..Totals::default() };
    let faults = trace.streams.iter().map(|stream| stream.faults.len() as u64).sum();
    account::of_ctf(std::slice::from_ref(of), &totals, faults).write(LIMIT, text)
}

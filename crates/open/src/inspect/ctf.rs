//! Reports what is in a trace in a folder of CTF.

use super::activity::{Activity, Read};
use super::tally::Tally;
use crate::Trace;
use lastwords_ctf::read;
use lastwords_render::Totals;
use lastwords_render::evidence::Account;
use lastwords_trace::schema::EnvValue;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A trace in a folder of CTF.
#[derive(Debug, Clone, Serialize)]
pub struct Report<'a> {
    /// Its folder.
    pub path: PathBuf,
    /// `1.8` or `2`.
    pub version: &'static str,
    /// Its unique ID, or null if it has none.
    pub uid: Option<String>,
    /// The environment.
    pub env: BTreeMap<&'a str, Value<'a>>,
    /// Names and frequencies of its clocks.
    pub clocks: Vec<String>,
    /// Its streams.
    pub streams: Vec<Stream>,
    /// The events by name and over time.
    pub activity: Option<Activity>,
    /// The account.
    pub evidence: Account<'a>,
}

/// A stream.
#[derive(Debug, Clone, Serialize)]
pub struct Stream {
    /// The ID of its class.
    pub class: u64,
    /// Its ID, or null if its packets have none.
    pub id: Option<u64>,
    /// Its files.
    pub files: Vec<PathBuf>,
    /// Its CPU, or null if it is not bound to a CPU.
    pub cpu: Option<u32>,
    /// The size of its packets in bytes.
    pub bytes: u64,
    /// Packets that were read.
    pub packets: u64,
    /// Events that were decoded.
    pub events: u64,
    /// Events that were discarded, as the packets count them.
    pub discarded_events: u64,
    /// Packets that are missing between others.
    pub discarded_packets: u64,
    /// Nanoseconds of the first event from the clock's origin.
    pub begin: Option<i64>,
    /// Nanoseconds of the last event from the clock's origin.
    pub end: Option<i64>,
    /// The messages about parts of the trace that cannot be read.
    pub faults: Vec<String>,
}

/// A value of the environment.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub enum Value<'a> {
    /// A text.
    Text(&'a str),
    /// A number.
    Integer(i64),
}

impl Report<'_> {
    /// Returns true if something in the trace cannot be read.
    #[must_use]
    pub fn is_faulty(&self) -> bool {
        self.streams.iter().any(|stream| !stream.faults.is_empty())
    }
}

/// Returns the report on a trace in a folder of CTF, or none for other traces.
pub(super) fn report<'a>(trace: &'a Trace, read: &Read<'_>) -> Option<Report<'a>> {
    let (own, mut evidence) = (trace.ctf()?, trace.account());
    let class = own.class();
    let value = |value: &'a EnvValue| match value {
        EnvValue::Text(text) => Value::Text(text),
        EnvValue::Integer(number) => Value::Integer(*number),
    };
    let streams: Vec<Stream> = own
        .streams
        .iter()
        .zip(&read.tallies)
        .map(|(stream, tally)| stream_report(own, stream, tally))
        .collect();
    evidence.add_reading(&totals(&streams));
    Some(Report {
        path: own.path.clone(),
        version: if class.version == 1 { "1.8" } else { "2" },
        uid: class.identity.uid.clone(),
        env: class.env.iter().map(|(key, entry)| (key.as_str(), value(entry))).collect(),
        clocks: class
            .clocks
            .iter()
            .map(|clock| format!("{}: {} Hz", clock.id, clock.frequency))
            .collect(),
        streams,
        activity: read.activity.clone(),
        evidence,
    })
}

/// Returns the sum of the losses and faults of streams.
fn totals(streams: &[Stream]) -> Totals {
    let sum = |count: fn(&Stream) -> u64| streams.iter().map(count).fold(0, u64::saturating_add);
    Totals {
        lost_events: sum(|stream| stream.discarded_events),
        lost_packets: sum(|stream| stream.discarded_packets),
        faults: sum(|stream| stream.faults.len() as u64),
        ..Totals::default()
    }
}

fn stream_report(trace: &read::Trace, stream: &read::Stream, tally: &Tally) -> Stream {
    Stream {
        class: trace.class().streams.get(stream.class).map_or(0, |class| class.id),
        id: stream.id,
        files: stream.files.clone(),
        cpu: read::cpu(trace, stream),
        bytes: stream.bytes(),
        packets: tally.packets,
        events: tally.counted.events(),
        discarded_events: tally.discarded_events,
        discarded_packets: tally.discarded_packets,
        begin: tally.counted.span.map(|(begin, _)| begin),
        end: tally.counted.span.map(|(_, end)| end),
        faults: tally.faults.clone(),
    }
}

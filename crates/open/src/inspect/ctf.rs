//! Reports what is in a trace in a folder of CTF.

use crate::Trace;
use lastwords_ctf::read::{self, Next, Reader, Watch};
use lastwords_formats::Totals;
use lastwords_formats::evidence::Account;
use lastwords_trace::parallel;
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

/// Returns the report on a trace in a folder of CTF, or none for other traces. It decodes each event.
pub(super) fn of<'a>(trace: &'a Trace, watch: Watch<'_>) -> Option<Report<'a>> {
    let (own, mut evidence) = (trace.ctf()?, trace.account());
    let class = own.class();
    let value = |value: &'a EnvValue| match value {
        EnvValue::Text(text) => Value::Text(text),
        EnvValue::Integer(number) => Value::Integer(*number),
    };
    // Several streams are read in parallel, one on each CPU.
    let streams = parallel::map(&own.streams, parallel::cpus(), |_, stream| stream_report(own, stream, watch));
    evidence.add_reading(&totals(&streams));
    Some(Report {
        path: own.path.clone(),
        version: if class.version == 1 { "1.8" } else { "2" },
        uid: class.identity.uid.clone(),
        env: class.env.iter().map(|(key, entry)| (key.as_str(), value(entry))).collect(),
        clocks: class.clocks.iter().map(|clock| format!("{}: {} Hz", clock.id, clock.frequency)).collect(),
        streams,
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

fn stream_report(trace: &read::Trace, stream: &read::Stream, watch: Watch<'_>) -> Stream {
    let mut reader = Reader::new(trace, stream).watched(watch);
    let mut report = Stream {
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
                add(&mut report.events, reader.pass().saturating_add(1));
                first = first.or(Some(event.clock));
                last = Some(reader.clock());
            }
            Next::Packet => add(&mut report.packets, 1),
            Next::Loss(loss) if loss.packets => add(&mut report.discarded_packets, loss.count),
            Next::Loss(loss) => add(&mut report.discarded_events, loss.count),
            Next::Fault(fault) => report.faults.push(fault.to_string()),
            Next::End => break,
        }
    }
    report.begin = first.and_then(|clock| reader.nanoseconds(clock));
    report.end = last.and_then(|clock| reader.nanoseconds(clock));
    report
}

fn add(sum: &mut u64, count: u64) {
    *sum = sum.saturating_add(count);
}

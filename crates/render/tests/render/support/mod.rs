//! Random traces, encoded by code that shares nothing with the code of the crates.
#![allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    reason = "test support; each test file uses a part"
)]

pub mod ctf;
pub mod random;
pub mod tools;

use lastwords_bytes::ByteOrder;
use lastwords_ctf::Version;
use lastwords_ctf::read::{Trace, unwatched};
use lastwords_render::select::Selection;
use lastwords_render::text::{self, Style, Zone};
use lastwords_trace::clock::Clock;
use lastwords_trace::evidence::{Evidence, Verdict};
use lastwords_trace::schema::{Channel, EventClass, Field, FieldClass, Schema};
use lastwords_trace::source::{Foretold, OpenSpan, PacketInfo, PacketReader, Source, Stream};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// A trace in memory.
#[derive(Clone)]
pub struct Memory {
    pub schema: Schema,
    pub streams: Vec<Stream>,
    /// The packets of each stream.
    pub packets: Vec<Vec<(PacketInfo, Vec<u8>)>>,
    pub evidence: Evidence,
    /// The spans that were open at the end.
    pub open_spans: Vec<OpenSpan>,
}

impl Source for Memory {
    fn schema(&self) -> &Schema {
        &self.schema
    }
    fn streams(&self) -> &[Stream] {
        &self.streams
    }
    fn packets(&self, stream: usize) -> Box<dyn PacketReader + '_> {
        Box::new(Reader { memory: self, stream, at: 0 })
    }
    fn evidence(&self) -> &Evidence {
        &self.evidence
    }
    fn open_spans(&self) -> &[OpenSpan] {
        &self.open_spans
    }
}

impl Memory {
    /// A little-endian trace without packets, whose clock counts nanoseconds from `offset_seconds`
    /// on. Each stream is of a channel and a CPU.
    pub fn new(offset_seconds: i64, channels: Vec<Channel>, streams: &[(usize, u32)]) -> Self {
        let clock = Clock {
            name: "monotonic".to_owned(),
            frequency: 1_000_000_000,
            offset_seconds,
            absolute: true,
            ..Clock::default()
        };
        let schema = Schema {
            uuid: *b"0123456789abcdef",
            name: "session".to_owned(),
            byte_order: ByteOrder::Little,
            env: BTreeMap::new(),
            clock,
            channels,
        };
        let of = |(channel, cpu): &(usize, u32)| Stream {
            channel: *channel,
            instance: (*cpu).into(),
            cpu: Some(*cpu),
        };
        let (streams, packets) =
            (streams.iter().map(of).collect(), vec![Vec::new(); streams.len()]);
        let (evidence, open_spans) = (Evidence::default(), Vec::new());
        Self { schema, streams, packets, evidence, open_spans }
    }
}

pub fn field(name: &str, class: FieldClass) -> Field {
    Field { name: name.to_owned(), class }
}

/// A number of so many bytes.
pub fn unsigned(name: &str, size: u8) -> Field {
    field(name, FieldClass::Integer { size, signed: false, base: 10 })
}

pub fn signed(name: &str, size: u8) -> Field {
    field(name, FieldClass::Integer { size, signed: true, base: 10 })
}

pub fn class(id: u64, name: &str, fields: Vec<Field>) -> EventClass {
    let (name, location) = (name.to_owned(), "demo.rs:7".to_owned());
    EventClass { id, name, level: 1, format: String::new(), location, fields }
}

pub fn channel(id: u32, name: &str, contexts: Vec<Field>, events: Vec<EventClass>) -> Channel {
    Channel { id, name: name.to_owned(), contexts, events }
}

struct Reader<'a> {
    memory: &'a Memory,
    stream: usize,
    at: usize,
}

impl Reader<'_> {
    /// Writes packet header and context as docs/ABI.md describes them.
    fn header(&self, info: &PacketInfo, bytes: &mut [u8]) {
        let (schema, stream) = (&self.memory.schema, &self.memory.streams[self.stream]);
        let big = schema.byte_order == ByteOrder::Big;
        let four = |n: u32| if big { n.to_be_bytes() } else { n.to_le_bytes() };
        let eight = |n: u64| if big { n.to_be_bytes() } else { n.to_le_bytes() };
        let bits = 8 * bytes.len() as u64;
        let channel = schema.channels.get(stream.channel).map_or(0, |channel| channel.id);
        let mut header = four(0xC1FC_1FC1).to_vec();
        header.extend(schema.uuid);
        header.extend(four(channel));
        header.extend(eight(stream.instance));
        for word in [info.begin, info.end, bits, bits, info.sequence, info.discarded] {
            header.extend(eight(word));
        }
        header.extend(four(stream.cpu.unwrap_or(u32::MAX)));
        if let Some(place) = bytes.get_mut(..HEADER) {
            place.copy_from_slice(&header);
        }
    }
}

/// Returns the trace from which text, JSON and Perfetto are written. Names are those in metadata of
/// the given version.
pub fn read(memory: &Memory, version: Version) -> Vec<Trace> {
    vec![
        lastwords_ctf::session::trace(&Arc::new(memory.clone()), Path::new("memory"), version)
            .expect("a trace"),
    ]
}

/// Returns the text of traces.
pub fn text_of(traces: &[Trace], style: Style, selection: &Selection) -> String {
    let mut out = Vec::new();
    text::write(traces, style, selection, &Zone::utc(), &mut out, &unwatched, &mut |_| {})
        .expect("text");
    String::from_utf8(out).expect("UTF-8")
}

/// Appends an event header with an id, no size and all bits of the clock.
pub fn full_header(bytes: &mut Vec<u8>, id: u16, clock: u64) {
    bytes.extend(((clock as u32) << 5 | 29).to_le_bytes());
    bytes.extend(id.to_le_bytes());
    bytes.extend(u32::MAX.to_le_bytes());
    bytes.extend(clock.to_le_bytes());
}

impl PacketReader for Reader<'_> {
    fn next_packet(&mut self, bytes: &mut Vec<u8>) -> Option<PacketInfo> {
        let (info, content) = self.memory.packets[self.stream].get(self.at)?;
        self.at += 1;
        bytes.clear();
        bytes.extend_from_slice(content);
        self.header(info, bytes);
        Some(info.clone())
    }

    fn foretell(&self) -> Option<Vec<Foretold>> {
        let foretold = |(info, content): &(PacketInfo, Vec<u8>)| {
            let PacketInfo { sequence, begin, end, .. } = *info;
            Foretold { sequence, begin, end, size: content.len() as u64 }
        };
        Some(self.memory.packets[self.stream][self.at..].iter().map(foretold).collect())
    }

    fn pass_over(&mut self, packets: usize) {
        self.at += packets;
    }
}

/// Returns the facts of a committed packet.
pub fn committed(sequence: u64, begin: u64, end: u64, content: usize) -> PacketInfo {
    PacketInfo {
        sequence,
        begin,
        end,
        discarded: 0,
        verdict: Verdict::Committed,
        events_at: HEADER,
        packet_len: (content as u64).next_multiple_of(4096),
    }
}

/// Size in bytes of the header and context of the packets.
pub const HEADER: usize = 84;

//! Compares the merge with a sort.
#![allow(missing_docs, reason = "a test")]

use lastwords_bytes::ByteOrder;
use lastwords_ctf::Version;
use lastwords_ctf::read::{Due, Error, Loss, Reader, Sink, readers, run};
use lastwords_ctf::session;
use lastwords_testkit::random::Random;
use lastwords_trace::clock::{Clock, Rounding};
use lastwords_trace::evidence::{Evidence, Verdict};
use lastwords_trace::schema::{Channel, EventClass, Schema};
use lastwords_trace::source::{PacketInfo, PacketReader, Source, Stream};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Bytes of packet header and context.
const HEADER: usize = 84;

struct Memory {
    schema: Schema,
    streams: Vec<Stream>,
    packets: Vec<Vec<(PacketInfo, Vec<u8>)>>,
    evidence: Evidence,
}

impl Source for Memory {
    fn schema(&self) -> &Schema {
        &self.schema
    }
    fn streams(&self) -> &[Stream] {
        &self.streams
    }
    fn packets(&self, stream: usize) -> Box<dyn PacketReader + '_> {
        Box::new(Packets(self.packets[stream].iter()))
    }
    fn evidence(&self) -> &Evidence {
        &self.evidence
    }
}

struct Packets<'a>(std::slice::Iter<'a, (PacketInfo, Vec<u8>)>);

impl PacketReader for Packets<'_> {
    fn next_packet(&mut self, bytes: &mut Vec<u8>) -> Option<PacketInfo> {
        let (info, content) = self.0.next()?;
        bytes.clear();
        bytes.extend_from_slice(content);
        Some(info.clone())
    }
}

/// Returns streams of events, and the expected clocks of each. An event's id is its position among
/// the expected clocks.
fn source(r: &mut Random, uuid: u8) -> (Memory, Vec<Vec<u64>>) {
    let events = (0..4)
        .map(|id| EventClass {
            id,
            name: "test:e".to_owned(),
            fields: Vec::new(),
            ..EventClass::default()
        })
        .collect();
    let frequency = [1_000_000_000, 2_400_000_000, 1_000_000][r.below(3) as usize];
    let schema = Schema {
        uuid: [uuid; 16],
        name: "test".to_owned(),
        byte_order: ByteOrder::Little,
        env: BTreeMap::new(),
        clock: Clock {
            frequency,
            offset_seconds: 100,
            offset_ticks: r.below(frequency),
            absolute: true,
            ..Clock::default()
        },
        channels: vec![Channel { id: 0, name: String::new(), contexts: Vec::new(), events }],
    };
    let count = r.below(6);
    let streams = (0..count)
        .map(|i| Stream { channel: 0, instance: count - i, cpu: Some(i as u32) })
        .collect();
    let mut packets = Vec::new();
    let mut truth = Vec::new();
    for _ in 0..count {
        let (p, t) = stream(r, frequency, uuid);
        packets.push(p);
        truth.push(t);
    }
    (Memory { schema, streams, packets, evidence: Evidence::default() }, truth)
}

fn stream(r: &mut Random, frequency: u64, uuid: u8) -> (Vec<(PacketInfo, Vec<u8>)>, Vec<u64>) {
    let mut now = r.below(frequency);
    let mut packets = Vec::new();
    let mut truth = Vec::new();
    for sequence in 0..r.below(4) {
        let mut bytes = vec![0; HEADER];
        let begin = now;
        for _ in 0..r.below(20) {
            now += [0, 0, 1, 2, 50, 1 << 20][r.below(6) as usize];
            bytes.extend(((now as u32) << 5).to_le_bytes());
            truth.push(now);
        }
        if r.below(10) == 0 {
            bytes.push(0);
        }
        let bits = 8 * bytes.len() as u64;
        let mut header = 0xC1FC_1FC1u32.to_le_bytes().to_vec();
        header.extend([uuid; 16]);
        header.extend(0u32.to_le_bytes());
        [0, begin, now, bits, bits, sequence, 0]
            .iter()
            .for_each(|word| header.extend(word.to_le_bytes()));
        bytes[..header.len()].copy_from_slice(&header);
        let verdict = Verdict::Committed;
        let info = PacketInfo {
            sequence,
            begin,
            end: now,
            discarded: 0,
            verdict,
            events_at: HEADER,
            packet_len: 4096,
        };
        packets.push((info, bytes));
    }
    (packets, truth)
}

/// An event that the merge returned: time, ticks, trace, stream of the source.
#[derive(Default)]
struct Seen {
    traces: Vec<usize>,
    events: Vec<(i64, u64, usize, usize)>,
    packets: usize,
    faults: usize,
}

impl Sink for Seen {
    fn event(&mut self, stream: usize, reader: &mut Reader<'_>, event: &Due) -> bool {
        let memory = reader.stream().memory.as_ref().expect("it is in memory");
        let nanoseconds = event.nanoseconds.expect("the stream has a clock");
        self.events.push((nanoseconds, event.clock, self.traces[stream], memory.stream));
        true
    }
    fn packet(&mut self, _: usize, _: &mut Reader<'_>) {
        self.packets += 1;
    }
    fn loss(&mut self, _: usize, _: &mut Reader<'_>, loss: Loss) {
        panic!("{loss:?}, but the account tells of losses");
    }
    fn fault(&mut self, _: usize, _: Error) {
        self.faults += 1;
    }
}

#[test]
fn the_merge_is_a_stable_sort() {
    for seed in 0..400 {
        let mut r = Random(seed);
        let made = [source(&mut r, 2), source(&mut r, 1)];
        let clocks = made.each_ref().map(|(memory, _)| memory.schema.clock.clone());
        let used = made.iter().filter(|(memory, _)| !memory.streams.is_empty()).count();
        let by_ticks = used < 2 || clocks[0] == clocks[1];
        let mut expected = Vec::new();
        for (position, (memory, truth)) in made.iter().enumerate() {
            for (stream, clocks) in truth.iter().enumerate() {
                for ticks in clocks {
                    let nanoseconds = memory.schema.clock.nanoseconds(*ticks);
                    let place = if by_ticks { i128::from(*ticks) } else { nanoseconds };
                    let key = (place, memory.schema.uuid, memory.streams[stream].instance);
                    expected.push((key, (nanoseconds as i64, *ticks, position, stream)));
                }
            }
        }
        expected.sort_by_key(|(key, _)| *key);
        let expected: Vec<_> = expected.into_iter().map(|(_, event)| event).collect();
        let packets = || made.iter().flat_map(|(memory, _)| memory.packets.iter().flatten());
        let odd = packets().filter(|(_, bytes)| !(bytes.len() - HEADER).is_multiple_of(4)).count();
        let count = packets().count();
        let traces = made.map(|(memory, _)| {
            session::trace(&Arc::new(memory), Path::new("m"), Version::V2).expect("a trace")
        });
        let mut readers: Vec<_> = readers(&traces)
            .into_iter()
            .map(|(trace, reader)| (trace, reader.rounded(Rounding::Floor)))
            .collect();
        let mut seen =
            Seen { traces: readers.iter().map(|(trace, _)| *trace).collect(), ..Seen::default() };
        run(&mut readers, &mut seen);
        assert_eq!(seen.events, expected, "seed {seed}");
        assert_eq!((seen.packets, seen.faults), (count, odd), "seed {seed}");
    }
}

//! The merge against a sort, and the conversion of ticks against exact division.
#![allow(missing_docs, reason = "a test")]

use lastwords_bytes::ByteOrder;
use lastwords_trace::clock::{Clock, Converter, Rounding};
use lastwords_trace::evidence::{Evidence, Verdict};
use lastwords_trace::merge::Merge;
use lastwords_trace::schema::{Channel, EventClass, Schema};
use lastwords_trace::source::{PacketInfo, PacketReader, Source, Stream};
use std::collections::BTreeMap;

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 20) % n
    }
}

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
        Box::new(Reader(self.packets[stream].iter()))
    }
    fn evidence(&self) -> &Evidence {
        &self.evidence
    }
}

struct Reader<'a>(std::slice::Iter<'a, (PacketInfo, Vec<u8>)>);

impl PacketReader for Reader<'_> {
    fn next_packet(&mut self, bytes: &mut Vec<u8>) -> Option<PacketInfo> {
        let (info, content) = self.0.next()?;
        bytes.clear();
        bytes.extend_from_slice(content);
        Some(info.clone())
    }
}

fn clock(frequency: u64, offset_seconds: i64, offset_ticks: u64) -> Clock {
    Clock {
        name: "test".to_owned(),
        description: String::new(),
        frequency,
        offset_seconds,
        offset_ticks,
        absolute: true,
    }
}

/// Streams of events whose id is their place in the stream's truth, and that truth: clocks.
fn source(r: &mut Random, uuid: u8) -> (Memory, Vec<Vec<u64>>) {
    let events = (0..4)
        .map(|id| EventClass {
            id,
            name: "test:e".to_owned(),
            level: 0,
            format: String::new(),
            location: String::new(),
            fields: Vec::new(),
        })
        .collect();
    let frequency = [1_000_000_000, 2_400_000_000, 1_000_000][r.below(3) as usize];
    let schema = Schema {
        uuid: [uuid; 16],
        name: "test".to_owned(),
        byte_order: ByteOrder::Little,
        env: BTreeMap::new(),
        clock: clock(frequency, 100, r.below(frequency)),
        channels: vec![Channel { id: 0, name: String::new(), contexts: Vec::new(), events }],
    };
    let count = r.below(6);
    let streams = (0..count).map(|i| Stream { channel: 0, instance: count - i, cpu: Some(i as u32) }).collect();
    let mut packets = Vec::new();
    let mut truth = Vec::new();
    for _ in 0..count {
        let (p, t) = stream(r, frequency);
        packets.push(p);
        truth.push(t);
    }
    (Memory { schema, streams, packets, evidence: Evidence::default() }, truth)
}

fn stream(r: &mut Random, frequency: u64) -> (Vec<(PacketInfo, Vec<u8>)>, Vec<u64>) {
    let mut now = r.below(frequency);
    let mut packets = Vec::new();
    let mut truth = Vec::new();
    for sequence in 0..r.below(4) {
        let mut bytes = Vec::new();
        let begin = now;
        for _ in 0..r.below(20) {
            now += [0, 0, 1, 2, 50, 1 << 20][r.below(6) as usize];
            bytes.extend(((now as u32) << 5).to_le_bytes());
            truth.push(now);
        }
        if r.below(10) == 0 {
            bytes.push(0);
        }
        let verdict = Verdict::Committed;
        let info = PacketInfo { sequence, begin, end: now, discarded: 0, verdict, events_at: 0, packet_len: 4096 };
        packets.push((info, bytes));
    }
    (packets, truth)
}

#[test]
fn the_merge_is_a_stable_sort() {
    for seed in 0..400 {
        let mut r = Random(seed);
        let (a, truth_a) = source(&mut r, 2);
        let (b, truth_b) = source(&mut r, 1);
        let sources: [&dyn Source; 2] = [&a, &b];
        let mut expected = Vec::new();
        for (position, (memory, truth)) in [(&a, truth_a), (&b, truth_b)].into_iter().enumerate() {
            for (stream, clocks) in truth.into_iter().enumerate() {
                for ticks in clocks {
                    let instance = memory.streams[stream].instance;
                    let key = (memory.schema.clock.nanoseconds(ticks), ticks, memory.schema.uuid, instance);
                    expected.push((key, position, stream));
                }
            }
        }
        expected.sort_by_key(|(key, ..)| *key);
        let mut merge = Merge::new(&sources, Rounding::Floor, |_, _| true);
        let mut found = Vec::new();
        while let Some(event) = merge.next() {
            found.push((i128::from(event.nanoseconds), event.raw.clock, event.source, event.stream));
        }
        let expected: Vec<_> = expected.into_iter().map(|((ns, ticks, ..), p, s)| (ns, ticks, p, s)).collect();
        assert_eq!(found, expected, "seed {seed}");
        let packets: usize = a.packets.iter().chain(&b.packets).map(Vec::len).sum();
        assert_eq!(merge.progress().packets, packets as u64, "seed {seed}");
        let odd = a.packets.iter().chain(&b.packets).flatten().filter(|(_, bytes)| bytes.len() % 4 != 0).count();
        assert_eq!(merge.fault_count(), odd as u64, "seed {seed}");
    }
}

#[test]
fn unwanted_streams_are_not_read() {
    let mut r = Random(3);
    let (a, truth) = (0..).map(|_| source(&mut r, 0)).find(|(a, _)| a.streams.len() > 2).expect("a source");
    let mut merge = Merge::new(&[&a], Rounding::Floor, |_, stream| stream == 1);
    let mut count = 0;
    while let Some(event) = merge.next() {
        assert_eq!(event.stream, 1);
        count += 1;
    }
    assert_eq!(count, truth[1].len());
}

#[test]
fn ticks_convert_exactly() {
    let frequencies =
        [1, 3, 1000, 24_000_000, 999_999_999, 1_000_000_000, 2_394_374_123, 5_000_000_001, 1 << 61, u64::MAX];
    for frequency in frequencies {
        for (offset_seconds, offset_ticks) in [(0, 0), (1_795_000_000, frequency / 3), (-5, frequency - 1)] {
            let clock = clock(frequency, offset_seconds, offset_ticks);
            let mut converter = Converter::new(&clock, Rounding::Floor);
            let mut r = Random(frequency);
            let mut ticks = 0u64;
            for round in 0..20_000u32 {
                let exact = clock.nanoseconds(ticks);
                let limited = exact.clamp(i128::from(i64::MIN), i128::from(i64::MAX));
                assert_eq!(i128::from(converter.nanoseconds(ticks)), limited, "{ticks} of {clock:?}");
                let step = [1, 7, 1 << 20, (1 << 33) - 1, 1 << 33, 1 << 45][r.below(6) as usize];
                ticks = if round % 100 == 99 { r.below(1 << 44) } else { ticks.wrapping_add(step) };
            }
        }
    }
}

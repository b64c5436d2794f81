//! Compares the merge with a sort.
#![allow(missing_docs, reason = "a test")]

use crate::support::{HEADER, Memory, channel, class, committed};
use lastwords_ctf::Version;
use lastwords_ctf::read::{Due, Error, Loss, Reader, Sink, readers, run};
use lastwords_ctf::session;
use lastwords_testkit::random::Random;
use lastwords_trace::clock::Rounding;
use lastwords_trace::source::{PacketInfo, Stream};
use std::path::Path;
use std::sync::Arc;

/// Returns streams of events, and the expected clocks of each. An event's id is its position among
/// the expected clocks.
fn source(r: &mut Random, uuid: u8) -> (Memory, Vec<Vec<u64>>) {
    let events = (0..4).map(|id| class(id, "test:e", Vec::new())).collect();
    let mut memory = Memory::new(100, vec![channel(0, "", Vec::new(), events)], &[]);
    let frequency = [1_000_000_000, 2_400_000_000, 1_000_000][r.below(3) as usize];
    memory.schema.uuid = [uuid; 16];
    memory.schema.clock.frequency = frequency;
    memory.schema.clock.offset_ticks = r.below(frequency);
    let count = r.below(6);
    memory.streams = (0..count)
        .map(|i| Stream { channel: 0, instance: count - i, cpu: Some(i as u32) })
        .collect();
    let mut truth = Vec::new();
    for _ in 0..count {
        let (packets, clocks) = stream(r, frequency);
        memory.packets.push(packets);
        truth.push(clocks);
    }
    (memory, truth)
}

fn stream(r: &mut Random, frequency: u64) -> (Vec<(PacketInfo, Vec<u8>)>, Vec<u64>) {
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
        packets.push((committed(sequence, begin, now, bytes.len()), bytes));
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

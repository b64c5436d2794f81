//! Slices of made traces are compared with what ran. The traces have an account as sessions have:
//! the total of the last packet contains later losses, and sub-buffers are damaged. Other traces
//! have packets that cannot be decoded, or that have no times.

use crate::losses_tests::{collected, collected_of, count_true};
use lastwords_ctf::read::{Memory, Stream, Trace, open};
use lastwords_testkit::ctf::Stream as Made;
use lastwords_testkit::put::{Order, Packed};
use lastwords_testkit::random::Random;
use lastwords_testkit::scheduling::write;
use lastwords_trace::evidence::{Evidence, SubBuffer, Verdict};
use lastwords_trace::source::{PacketInfo, PacketReader, Packets};
use std::path::Path;
use std::sync::Arc;

/// Place of the size of the content, of the total of discarded events, of the CPU and of the events
/// in a packet.
const CONTENT: usize = 24;
const DISCARDED: usize = 48;
const CPU: usize = 56;
const HEAD: usize = 60;

/// The packets of each stream, each with its number.
struct Kept(Vec<Vec<(u64, Vec<u8>)>>);

struct Reading<'a>(std::slice::Iter<'a, (u64, Vec<u8>)>);

impl Packets for Kept {
    fn packets_of(&self, stream: usize) -> Box<dyn PacketReader + '_> {
        Box::new(Reading(self.0[stream].iter()))
    }
}

impl PacketReader for Reading<'_> {
    fn next_packet(&mut self, bytes: &mut Vec<u8>) -> Option<PacketInfo> {
        let (sequence, packet) = self.0.next()?;
        bytes.clone_from(packet);
        Some(PacketInfo { sequence: *sequence, ..PacketInfo::none() })
    }
}

/// Reads a folder as a trace in memory with an account. `damage` changes the packets and the rows
/// of each stream.
pub(crate) fn with_account(
    folder: &Path,
    mut damage: impl FnMut(&mut Vec<(u64, Vec<u8>)>, &mut Vec<Verdict>),
) -> Trace {
    let traces = open(folder, &Arc::default()).unwrap().traces;
    let (mut kept, mut cpus, mut evidence) = (Vec::new(), Vec::new(), Evidence::default());
    for (at, stream) in traces[0].streams.iter().enumerate() {
        let file = std::fs::read(&stream.files[0]).unwrap();
        let packet = |entry: &lastwords_ctf::read::Entry| {
            file[entry.offset as usize..][..entry.size as usize].to_vec()
        };
        let mut packets: Vec<_> = stream
            .packets
            .iter()
            .map(|(_, entry)| (entry.sequence.unwrap(), packet(entry)))
            .collect();
        let first = packets.first().map_or(0, |packet| packet.0);
        let last = packets.last().map_or(0, |packet| packet.0);
        let is_kept = |sequence: u64| packets.iter().any(|packet| packet.0 == sequence);
        let verdict =
            |sequence| if is_kept(sequence) { Verdict::Committed } else { Verdict::Missing };
        let mut rows: Vec<Verdict> = (first..=last).map(verdict).collect();
        damage(&mut packets, &mut rows);
        let row = |(sequence, verdict)| SubBuffer {
            stream: at,
            sequence,
            verdict,
            content: 0,
            why: String::new(),
        };
        evidence.sub_buffers.extend((first..).zip(rows).map(row));
        cpus.push(Some(u32::from_le_bytes(file[CPU..][..4].try_into().unwrap())));
        kept.push(packets);
    }
    let source: Arc<dyn Packets> = Arc::new(Kept(kept));
    let memory = |(at, stream): (usize, &Stream)| {
        let name = format!("s{at}");
        let memory =
            Memory { source: Arc::clone(&source), stream: at, name, cpu: cpus[at], bytes: 1 };
        Stream { memory: Some(memory), files: Vec::new(), packets: Vec::new(), ..stream.clone() }
    };
    let streams = traces[0].streams.iter().enumerate().map(memory).collect();
    Trace::in_memory(folder.to_owned(), traces[0].class().clone(), streams, Arc::new(evidence))
        .unwrap()
}

/// Removes packets from the end, so that nothing but their rows is left.
fn lose_last(random: &mut Random, packets: &mut Vec<(u64, Vec<u8>)>, rows: &mut [Verdict]) {
    let left = packets.len() - random.below(packets.len() as u64 / 2) as usize;
    let lost = packets.split_off(left);
    for row in
        rows.iter_mut().rev().take(lost.last().map_or(0, |last| last.0 + 1 - lost[0].0) as usize)
    {
        *row = Verdict::Invalid;
    }
}

/// Removes packets from the end; the total of the last one has their events. The ring was full.
fn fill(random: &mut Random, packets: &mut Vec<(u64, Vec<u8>)>, rows: &mut Vec<Verdict>) {
    let first = packets[0].0;
    packets.truncate(packets.len() - random.below(packets.len() as u64 / 2) as usize);
    let Some((last, packet)) = packets.last_mut() else { return };
    rows.truncate((*last - first + 1) as usize);
    packet[DISCARDED..][..8].copy_from_slice(&1000u64.to_le_bytes());
}

/// Returns the place of an event near the half of a packet. A switch has 22 bytes, other events
/// have 18.
fn half(packet: &[u8]) -> usize {
    let size = |at: usize| if packet[at..][..2] == [0, 0] { 22 } else { 18 };
    let mut at = HEAD;
    while at + size(at) <= packet.len().midpoint(HEAD) {
        at += size(at);
    }
    at
}

/// Cuts the events of a packet at its half.
fn cut(random: &mut Random, packets: &mut [(u64, Vec<u8>)], rows: &mut [Verdict]) {
    let (first, at) = (packets[0].0, random.below(packets.len() as u64) as usize);
    let (sequence, packet) = &mut packets[at];
    rows[(*sequence - first) as usize] = Verdict::Invalid;
    let end = half(packet);
    packet.truncate(end);
    let bits = end as u64 * 8;
    (0..2).for_each(|word| packet[CONTENT + 8 * word..][..8].copy_from_slice(&bits.to_le_bytes()));
}

fn damaged(
    seed: u64,
    damage: impl Fn(&mut Random, usize, &mut Vec<(u64, Vec<u8>)>, &mut Vec<Verdict>),
) -> usize {
    let folder = tempfile::tempdir().unwrap();
    let random = &mut Random(seed);
    let (lasted, _) = write(folder.path(), random, !seed.is_multiple_of(3));
    let mut at = 0;
    let trace = with_account(folder.path(), |packets, rows| {
        damage(random, at, packets, rows);
        at += 1;
    });
    count_true(&collected_of(&[trace]), &lasted, seed)
}

#[test]
fn losses_after_the_last_packet_are_known() {
    let of_second = |damage: fn(&mut Random, &mut Vec<_>, &mut Vec<Verdict>)| -> usize {
        let damage = |random: &mut Random, at, packets: &mut Vec<_>, rows: &mut Vec<Verdict>| {
            if at == 1 {
                damage(random, packets, rows);
            }
        };
        (0..30).map(|seed| damaged(seed, damage)).sum()
    };
    let certain =
        [of_second(|random, packets, rows| lose_last(random, packets, rows)), of_second(fill)];
    assert!(certain.iter().all(|count| *count > 3000), "{certain:?}");
}

#[test]
fn losses_in_a_damaged_sub_buffer_are_known() {
    let certain: usize = (0..30).map(|seed| damaged(seed, |r, _, p, rows| cut(r, p, rows))).sum();
    assert!(certain > 3000, "{certain}");
}

#[test]
fn a_stream_without_packets_is_a_loss() {
    for seed in 0..10 {
        damaged(seed, |_, at, packets, rows| {
            if at == 1 {
                packets.clear();
                rows.fill(Verdict::Invalid);
            }
        });
    }
}

/// The rest of a packet from an event on that nothing describes cannot be decoded.
#[test]
fn what_cannot_be_decoded_is_a_loss() {
    let garble = |packet: &mut [u8]| {
        let at = half(packet);
        packet[at..][..2].copy_from_slice(&[0xff; 2]);
    };
    let mut certain = 0;
    for seed in 0..30 {
        certain += damaged(seed, |random, _, packets, _| {
            let at = random.below(packets.len() as u64) as usize;
            garble(&mut packets[at].1);
        });
        let folder = tempfile::tempdir().unwrap();
        let random = &mut Random(seed);
        let (lasted, _) = write(folder.path(), random, !seed.is_multiple_of(3));
        for stream in &open(folder.path(), &Arc::default()).unwrap().traces[0].streams {
            let mut file = std::fs::read(&stream.files[0]).unwrap();
            let (_, entry) = stream.packets[random.below(stream.packets.len() as u64) as usize];
            garble(&mut file[entry.offset as usize..][..entry.size as usize]);
            std::fs::write(&stream.files[0], file).unwrap();
        }
        certain += count_true(&collected(&[folder.path()]), &lasted, seed);
    }
    assert!(certain > 6000, "{certain}");
}

/// Packets need not say when they begin and end.
#[test]
fn losses_between_packets_without_times_are_known() {
    for (fields, least) in [
        (&["timestamp_end"][..], 2000),
        (&["timestamp_begin"], 2000),
        (&["timestamp_begin", "timestamp_end"], 0),
    ] {
        let mut certain = 0;
        for seed in 0..30 {
            let folder = tempfile::tempdir().unwrap();
            let (lasted, _) = write(folder.path(), &mut Random(seed), !seed.is_multiple_of(3));
            let path = folder.path().join("metadata");
            let mut metadata = std::fs::read_to_string(&path).unwrap();
            for field in fields {
                metadata = metadata.replace(&format!("stamp {field}"), &format!("u64 no_{field}"));
            }
            std::fs::write(&path, metadata).unwrap();
            certain += count_true(&collected(&[folder.path()]), &lasted, seed);
        }
        assert!(certain > least, "{fields:?}: {certain}");
    }
}

/// Begin, end and words of each gap of a stream with four packets, of 10, 20, 30 and 40, whose
/// packets and rows are changed.
fn gaps(
    change: impl Fn(&mut Vec<(u64, Vec<u8>)>, &mut Vec<Verdict>),
) -> Vec<(Option<i64>, Option<i64>, String)> {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &mut Random(0), false);
    let mut stream = Made::default();
    for time in [10, 20, 30, 40] {
        stream.put(time, &Packed::new(Order::Little).u16(3).u64(time).u32(1).u32(0).done());
        stream.close(0);
    }
    std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).for_each(|path| {
        if !path.ends_with("metadata") {
            std::fs::remove_file(path).unwrap();
        }
    });
    std::fs::write(folder.path().join("s00"), &stream.file).unwrap();
    let collected = collected_of(&[with_account(folder.path(), change)]);
    collected.gaps.iter().map(|gap| (gap.begin, gap.end, gap.what.clone())).collect()
}

#[test]
fn gaps_reach_from_what_is_known_to_what_is_known() {
    let gap = |begin, end, what: &str| (begin, end, what.to_owned());
    assert_eq!(gaps(|_, _| ()), []);
    let lost = gaps(|packets, rows| {
        packets.truncate(2);
        rows[2..].fill(Verdict::Invalid);
    });
    assert_eq!(lost, [gap(Some(20), None, "2 sub-buffers missing: invalid")]);
    let full = gaps(|packets, _| packets[3].1[DISCARDED] = 5);
    assert_eq!(
        full,
        [
            gap(Some(30), Some(40), "5 events missing"),
            gap(Some(40), None, "up to 5 events missing")
        ]
    );
    let damaged = gaps(|_, rows| rows[1] = Verdict::Invalid);
    assert_eq!(damaged, [gap(Some(10), Some(20), "events missing: invalid")]);
    let first = gaps(|packets, _| packets.iter_mut().for_each(|(_, packet)| packet[DISCARDED] = 3));
    assert_eq!(first, [gap(None, Some(10), "3 events missing")]);
    let older = gaps(|packets, rows| {
        packets.remove(0);
        rows[0] = Verdict::Invalid;
    });
    assert_eq!(older, [gap(None, Some(20), "older events missing")]);
}

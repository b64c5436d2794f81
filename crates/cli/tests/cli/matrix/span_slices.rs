//! Slices of threads in Perfetto's traces are compared with the spans that the threads were in. The
//! traces of CTF are made by the specification: exits in any order, threads that move between CPUs,
//! packets in which events are missing, and missing packets.

use super::kernel::processor::{self, Slice};
use super::perfetto;
use crate::support::Place;
use lastwords_testkit::ctf::{PACKET_CONTEXT, Stream, TYPES};
use lastwords_testkit::put::{Order, Packed};
use lastwords_testkit::random::Random;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The metadata, behind the types and with the context of packets in `stream`.
const METADATA: [&str; 2] = [
    r#"
clock { name = monotonic; freq = 1000000000; offset_s = 1700000000; };
stream {
    id = 0;
    "#,
    r#"
    event.header := struct { u16 id; stamp timestamp; };
    event.context := struct { i32 vpid; i32 vtid; };
};
event { name = "span:enter shop::even"; id = 0; stream_id = 0; fields := struct { u64 span_id; }; };
event { name = "span:exit shop::even"; id = 1; stream_id = 0; fields := struct { u64 span_id; }; };
event { name = "span:enter shop::odd"; id = 2; stream_id = 0; fields := struct { u64 span_id; }; };
event { name = "span:exit shop::odd"; id = 3; stream_id = 0; fields := struct { u64 span_id; }; };
"#,
];
const BEGIN: u64 = 1_700_000_000_000_000_000;
const CPUS: usize = 2;
/// Each CPU has two streams.
const STREAMS: usize = 4;
const THREADS: u64 = 3;
const SPANS: u64 = 5;

/// A stream of a CPU.
#[derive(Default)]
struct Made {
    stream: Stream,
    is_lossy: bool,
}

/// Times in which a thread was in a span: thread, span, begin; the end if it has left.
type Inside = BTreeMap<(u64, u64, u64), Option<u64>>;

/// Writes a trace. Returns what threads were in, the number of events that are missing, and the
/// times in which they are.
fn write(folder: &Path, random: &mut Random, is_lossy: bool) -> (Inside, u64, Vec<(u64, u64)>) {
    std::fs::create_dir_all(folder).unwrap();
    std::fs::write(
        folder.join("metadata"),
        [TYPES, METADATA[0], PACKET_CONTEXT, METADATA[1]].concat(),
    )
    .unwrap();
    let mut streams: [Made; STREAMS] = Default::default();
    let (mut inside, mut missing, mut time) = (Inside::new(), 0, 0);
    let mut entered: BTreeMap<(u64, u64), u64> = BTreeMap::new();
    for step in 0..1500 {
        time += 1 + random.below(50);
        let (thread, span, at) =
            (random.below(THREADS), random.below(SPANS), random.below(STREAMS as u64) as usize);
        let is_exit = entered.contains_key(&(thread, span));
        match entered.remove(&(thread, span)) {
            Some(begin) => drop(inside.insert((thread, span, begin), Some(time))),
            None => {
                entered.insert((thread, span), time);
                inside.insert((thread, span, time), None);
            }
        }
        let made = &mut streams[at];
        if made.is_lossy && random.one_in(3) {
            made.stream.discard(time);
            missing += 1;
        } else {
            let id = span as u16 % 2 * 2 + u16::from(is_exit);
            let event = Packed::new(Order::Little)
                .u16(id)
                .u64(time)
                .u32(10)
                .u32(20 + thread as u32)
                .u64(span);
            made.stream.put(time, &event.done());
        }
        if random.one_in(12) {
            if is_lossy && random.one_in(40) {
                missing += made.stream.events.len() as u64 / 26;
                made.stream.lose();
            } else {
                made.stream.close((at % CPUS) as u32);
            }
            made.is_lossy = is_lossy && random.one_in(60);
        }
        if is_lossy && step == 200 {
            streams[STREAMS - 1].stream.overwrite();
        }
    }
    for (at, made) in streams.iter_mut().enumerate() {
        made.stream.close((at % CPUS) as u32);
        std::fs::write(folder.join(format!("stream_{at}")), &made.stream.file).unwrap();
    }
    let all = streams.iter().flat_map(|made| made.stream.missing.clone()).collect();
    (inside, missing, all)
}

/// Compares a slice with what its thread was in. Returns the part of that which the slice shows as
/// a whole.
fn judge(slice: &Slice, inside: &Inside) -> Option<(u64, u64, u64)> {
    let Slice { tid, span, name, begin, end, begin_note, end_note } = slice;
    let (thread, begin) = (tid - 20, begin - BEGIN);
    assert_eq!(name, ["shop::even", "shop::odd"][*span as usize % 2], "{slice:?}");
    let (key, left) =
        inside.range(..=(thread, *span, begin)).next_back().unwrap_or_else(|| panic!("{slice:?}"));
    assert_eq!((key.0, key.1), (thread, *span), "{slice:?}: {key:?}");
    let is_own_begin = begin_note.is_empty();
    if is_own_begin {
        assert_eq!(key.2, begin, "{slice:?}");
    } else {
        assert!(begin_note.starts_with("goes on from"), "{slice:?}");
    }
    let end = end.map(|end| end - BEGIN);
    match end_note.split(':').next().unwrap() {
        "" if end.is_none() => None,
        "" => {
            assert_eq!(end, *left, "{slice:?}");
            is_own_begin.then_some(*key)
        }
        "goes on in the next slice of this name" => {
            assert!(left.is_none_or(|left| end.unwrap() <= left), "{slice:?}: {left:?}");
            None
        }
        "may be that of another slice" => {
            let ends: BTreeSet<_> = inside
                .iter()
                .filter(|(key, _)| (key.0, key.1) == (thread, *span))
                .map(|(_, end)| *end)
                .collect();
            assert!(ends.contains(&end), "{slice:?}");
            None
        }
        "not recorded" => None,
        _ => panic!("{slice:?}"),
    }
}

/// Each slice lasts as long as its thread was in the span, or says what is not known.
#[test]
fn what_threads_are_in_is_what_they_were_in() {
    let place = Place::new();
    let mut notes = BTreeSet::new();
    for seed in 0..24 {
        let is_lossy = seed % 3 > 0;
        let (inside, missing, lossy) =
            write(&place.at(&format!("t{seed}")), &mut Random(seed), is_lossy);
        let file = format!("{seed}.pftrace");
        place.run(&["convert", &format!("./t{seed}"), "--to", "perfetto", "-o", &file]);
        let file = place.at(&file);
        let slices = perfetto::thread_slices(&std::fs::read(&file).unwrap());
        let whole: BTreeSet<_> = slices.iter().filter_map(|slice| judge(slice, &inside)).collect();
        notes.extend(
            slices.iter().flat_map(|slice| [slice.begin_note.clone(), slice.end_note.clone()]),
        );
        if !is_lossy {
            // The pieces of what went on in several slices are as long as the whole.
            let mut sums: BTreeMap<(u64, u64), u64> = BTreeMap::new();
            let lengths = slices.iter().filter_map(|slice| Some((slice, slice.end? - slice.begin)));
            lengths.for_each(|(slice, length)| {
                *sums.entry((slice.tid - 20, slice.span)).or_default() += length
            });
            let left = |(key, end): (&(u64, u64, u64), &Option<u64>)| {
                Some(((key.0, key.1), (*end)? - key.2))
            };
            let mut expected: BTreeMap<(u64, u64), u64> = BTreeMap::new();
            inside
                .iter()
                .filter_map(left)
                .for_each(|(key, length)| *expected.entry(key).or_default() += length);
            // A span that is still open at the end may have pieces that have ended before: it is
            // left out.
            let open: BTreeSet<_> = inside
                .iter()
                .filter(|(_, end)| end.is_none())
                .map(|(key, _)| (key.0, key.1))
                .collect();
            sums.retain(|key, _| !open.contains(key));
            expected.retain(|key, _| !open.contains(key));
            assert_eq!((sums, missing), (expected, 0), "seed {seed}");
        }
        assert!(
            whole.len() > inside.len() / 5,
            "seed {seed}: {} of {} are whole",
            whole.len(),
            inside.len()
        );
        // Where no events are missing, the end of a slice is known.
        let is_known = |(begin, end): (u64, u64)| {
            lossy.iter().all(|(from, until)| *until < begin || end < *from)
        };
        for slice in slices.iter().filter(|slice| slice.begin_note.is_empty()) {
            let begin = slice.begin - BEGIN;
            let Some(Some(end)) = inside.get(&(slice.tid - 20, slice.span, begin)) else {
                continue;
            };
            let is_end_known = !slice.end_note.starts_with("not recorded")
                && !slice.end_note.starts_with("may be");
            assert!(is_end_known || !is_known((begin, *end)), "seed {seed}: {slice:?}");
        }
        if let Some(program) = std::env::var_os("LASTWORDS_TRACE_PROCESSOR") {
            let mut theirs = processor::thread_slices(Path::new(&program), &file).unwrap();
            let mut ours = slices;
            [&mut theirs, &mut ours].into_iter().for_each(|slices| slices.sort());
            assert_eq!(theirs, ours, "seed {seed}");
        }
    }
    assert_eq!(notes.len(), 5, "{notes:?}");
}

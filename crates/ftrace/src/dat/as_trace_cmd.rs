//! Compares the text of a trace.dat file with the output of `trace-cmd report`.

use std::path::Path;
use std::process::Command;

use crate::{Choice, Stats, Tracing};

use super::tests::open;
use super::{InPlace, WriteOptions, write, write_head};
use crate::samples::*;
use crate::text::{Options, write_trace};
use lastwords_testkit::random::Random;

/// Returns the output of `trace-cmd report` for a file.
pub(super) fn by_trace_cmd(path: &Path) -> String {
    let shown = Command::new("trace-cmd").args(["report", "-i"]).arg(path).output();
    String::from_utf8_lossy(&shown.expect("trace-cmd is needed: cargo xtask setup").stdout)
        .into_owned()
}

/// Returns the text that this library prints for the first array of a file.
fn by_us(path: &Path, options: &Options) -> String {
    let mut out = Vec::new();
    let options = Options { no_header: true, ..options.clone() };
    write_trace(&mut out, &open(path).unwrap(), 0, &options).unwrap();
    String::from_utf8(out).unwrap()
}

/// Returns a machine with one CPU that has these events, one microsecond apart.
fn machine(payloads: Vec<Vec<u8>>) -> Tracing {
    let events: Vec<_> = (1_000_000u64..).step_by(1000).zip(payloads).collect();
    let pages = events.chunks(40).map(|events| page(events, None)).collect();
    let stats = Stats { entries: events.len() as u64, ..Stats::default() };
    alone(vec![pages], stats)
}

/// Writes a new file of the machine and returns its path.
fn file(folder: &tempfile::TempDir, machine: &Tracing) -> std::path::PathBuf {
    let path = folder.path().join("trace.dat");
    let _ = std::fs::remove_file(&path);
    write(&path, machine, &WriteOptions::default()).unwrap();
    path
}

const SWITCH: u16 = 310;
const WAKEUP: u16 = 311;
const NEW: u16 = 312;
const WAKING: u16 = 313;

/// Returns a machine with random switches and wake-ups of a few tasks whose names change.
fn scheduling(seed: u64) -> Tracing {
    let mut random = Random(seed);
    let mut random = |below: u32| random.below(below.into()) as u32;
    let name = |number: u32| format!("{:\0<16}", format!("task {number}")).into_bytes();
    let mut payloads = Vec::new();
    for _ in 0..300 {
        let [current, other] = [random(12), random(12)];
        let [a, b] = [name(random(50)), name(random(50))];
        payloads.push(match random(4) {
            0 => payload(
                SWITCH,
                1,
                0,
                current,
                &[a, current.to_le_bytes().into(), b, other.to_le_bytes().into()].concat(),
            ),
            kind => payload(
                [0, WAKEUP, NEW, WAKING][kind as usize],
                1,
                0,
                current,
                &[a, other.to_le_bytes().into()].concat(),
            ),
        });
    }
    let mut machine = machine(payloads);
    let pair = "char comm[16]:8:16:0, pid_t pid:24:4:1";
    let pairs = "char prev_comm[16]:8:16:0, pid_t prev_pid:24:4:1, char next_comm[16]:28:16:0, \
                 pid_t next_pid:44:4:1";
    let print = "\"comm=%s pid=%d\", REC->comm, REC->pid";
    let switch = "\"prev_comm=%s prev_pid=%d ==> next_comm=%s next_pid=%d\", REC->prev_comm, REC->prev_pid, REC->next_comm, REC->next_pid";
    machine.formats.extend([
        format("sched", SWITCH, "sched_switch", pairs, switch),
        format("sched", WAKEUP, "sched_wakeup", pair, print),
        format("sched", NEW, "sched_wakeup_new", pair, print),
        format("sched", WAKING, "sched_waking", pair, print),
    ]);
    machine
}

/// Returns the task and pid at the beginning of each line.
fn heads(text: &str) -> Vec<String> {
    text.lines().filter_map(|line| Some(line.split_once(" [")?.0.trim().to_owned())).collect()
}

#[test]
fn names_are_learned_from_the_scheduler() {
    let folder = tempfile::tempdir().unwrap();
    for seed in 0..10 {
        let machine = scheduling(seed);
        let path = file(&folder, &machine);
        let whole = by_us(&path, &Options::default());
        let (ours, theirs) = (heads(&whole), heads(&by_trace_cmd(&path)));
        assert_eq!((ours.len(), &ours), (300, &theirs), "seed {seed}");
        let unknown = ours.iter().filter(|head| head.starts_with("<...>")).count();
        assert!((1..100).contains(&unknown), "seed {seed}: {unknown}");
        // A selection prints the same lines as the whole trace.
        let chosen = [
            Choice { events: vec!["sched_waking".into()], ..Choice::default() },
            Choice { last: Some(20), ..Choice::default() },
            Choice { since: Some(1_100_000), ..Choice::default() },
        ];
        for choice in chosen {
            let some = by_us(&path, &Options { choice, ..Options::default() });
            let is_there = |line: &str| whole.lines().any(|whole| whole == line);
            assert!(!some.is_empty() && some.lines().all(is_there), "seed {seed}: {some}");
        }
        // A kernel's memory has the names that the kernel knows.
        let mut out = Vec::new();
        write_trace(&mut out, &machine, 0, &Options { no_header: true, ..Options::default() })
            .unwrap();
        let kept = heads(std::str::from_utf8(&out).unwrap());
        let named = ["<idle>-0", "worker-7", "a long name here-9"];
        assert!(
            kept.iter().all(|head| head.starts_with("<...>-") || named.contains(&head.as_str())),
            "{kept:?}"
        );
    }
}

const WORK: u64 = 0xffff_ffff_8100_0100;
const START: u64 = 0xffff_ffff_8100_0000;

fn entry(function: u64, depth: u32) -> Vec<u8> {
    payload(ENTRY, 0, 0, 7, &[&words(&[function])[..], &depth.to_le_bytes(), &[0; 4]].concat())
}

fn exit(function: u64, depth: u32, duration: u64) -> Vec<u8> {
    let rest =
        [&words(&[function])[..], &depth.to_le_bytes(), &[0; 4], &words(&[1000, 1000 + duration])]
            .concat();
    payload(EXIT, 0, 0, 7, &rest)
}

/// Returns from functions have a duration, whether or not the file has the function's entry.
#[test]
fn functions_that_return_have_durations() {
    let mut payloads =
        vec![exit(WORK, 2, 5_249_123), exit(START, 1, 1_233_567), entry(START, 0), entry(WORK, 1)];
    payloads.extend([exit(WORK, 1, 999), exit(START, 0, 12_456), entry(WORK, 3), wake(7)]);
    for digits in 0..19 {
        let power = 10u64.pow(digits);
        payloads.extend([
            exit(WORK, digits, power),
            entry(WORK, 0),
            exit(WORK, 0, power + 1),
            exit(START, 0, 2 * power),
        ]);
    }
    let folder = tempfile::tempdir().unwrap();
    let path = file(&folder, &machine(payloads));
    let (ours, theirs) = (by_us(&path, &Options::default()), by_trace_cmd(&path));
    // trace-cmd puts the name of the event before the graph.
    let graph = |line: &str| {
        let behind = line.split_once("funcgraph_").map_or(line, |(_, rest)| rest);
        let (duration, call) = behind.split_once(": ")?.1.split_once('|')?;
        Some((duration.trim_matches(|c: char| !c.is_ascii_digit()).to_owned(), call.to_owned()))
    };
    let ours: Vec<_> = ours.lines().filter_map(graph).collect();
    let theirs: Vec<_> = theirs.lines().filter_map(graph).collect();
    assert_eq!((ours.len(), theirs.len()), (63, 63));
    for (ours, theirs) in ours.iter().zip(&theirs) {
        // The kernel prints at most seven digits; trace-cmd prints three digits after the point.
        let digits = theirs.0.len().min(if theirs.0.contains('.') { 8 } else { usize::MAX });
        assert_eq!((ours.0.as_str(), &ours.1), (&theirs.0[..digits], &theirs.1));
    }
    assert_eq!((ours[0].0.as_str(), ours[0].1.as_str()), ("5249.123", "      }"));
}

/// The header counts the events of its own buffer.
#[test]
fn headers_count_the_events_of_their_buffer() {
    let stats = |entries, overrun| Stats { entries, overrun, ..Stats::default() };
    let pages = |count: u64| {
        vec![page(&(0..count).map(|at| (1_000_000 + at, wake(7))).collect::<Vec<_>>(), None)]
    };
    let machine =
        tracing(ring(vec![pages(7), pages(7)], stats(7, 2)), ring(vec![pages(3)], stats(3, 50)));
    let folder = tempfile::tempdir().unwrap();
    for version in [6, 7] {
        let path = folder.path().join(version.to_string());
        write(&path, &machine, &WriteOptions { version: Some(version), ..WriteOptions::default() })
            .unwrap();
        let read = open(&path).unwrap();
        for (array, counts) in [(0, "14/18 "), (1, "3/53 ")] {
            let mut out = Vec::new();
            write_trace(&mut out, &read, array, &Options::default()).unwrap();
            let text = String::from_utf8(out).unwrap();
            assert!(
                text.contains(&format!("entries-in-buffer/entries-written: {counts}")),
                "version {version}: {text}"
            );
        }
        // These are the counters of a ring that trace-cmd has drained and into which one event was
        // written afterwards.
        let mut bytes = std::fs::read(&path).unwrap();
        for (ours, drained) in [
            ("entries: 7\n", "entries: 1\n"),
            ("read events: 0\n", "read events: 7\n"),
            ("lastwords ", "trace-cmd "),
        ] {
            while let Some(at) =
                bytes.windows(ours.len()).position(|window| window == ours.as_bytes())
            {
                bytes[at..at + ours.len()].copy_from_slice(drained.as_bytes());
            }
        }
        std::fs::write(&path, bytes).unwrap();
        let stats = open(&path).unwrap().arrays[0].live.cpus()[0].stats;
        assert_eq!((stats.entries, stats.overrun, stats.read), (7, 2, 0), "version {version}");
    }
}

/// Writes a file of the machine with these options in place of the option that holds the machine's
/// name.
fn file_with(
    folder: &tempfile::TempDir,
    machine: &Tracing,
    version: u8,
    options: &[(u16, Vec<u8>)],
) -> std::path::PathBuf {
    let one = |(id, data): &(u16, Vec<u8>)| {
        [&id.to_le_bytes()[..], &(data.len() as u32).to_le_bytes(), data].concat()
    };
    let all: Vec<u8> = options.iter().flat_map(one).collect();
    // The name's option has its id and length before the name and a NUL after it.
    let machine = Tracing { uname: "u".repeat(all.len() - 7), ..machine.clone() };
    let path = folder.path().join("trace.dat");
    let _ = std::fs::remove_file(&path);
    write(&path, &machine, &WriteOptions { version: Some(version), ..WriteOptions::default() })
        .unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    let at =
        bytes.windows(all.len() - 7).position(|window| window == machine.uname.as_bytes()).unwrap()
            - 6;
    bytes[at..at + all.len()].copy_from_slice(&all);
    std::fs::write(&path, bytes).unwrap();
    path
}

/// Returns a TIME_SHIFT option for one CPU: the time, offset, factor and number of fraction bits of
/// each sample.
fn shift(flags: u32, samples: &[[i64; 4]]) -> (u16, Vec<u8>) {
    let mut out =
        [&7u64.to_le_bytes()[..], &[flags, 1, samples.len() as u32].map(u32::to_le_bytes).concat()]
            .concat();
    (0..4)
        .for_each(|part| samples.iter().for_each(|sample| out.extend(sample[part].to_le_bytes())));
    (super::id::TIME_SHIFT, out)
}

/// Options that change the times of events.
#[test]
fn times_are_corrected() {
    use super::id::{OFFSET, TSC2NSEC};
    let events = (0..60).map(|_| wake(7)).collect();
    let mut machine = machine(events);
    let nanoseconds = |factor: u32, bits: u32| {
        (TSC2NSEC, [&factor.to_le_bytes()[..], &bits.to_le_bytes(), &5u64.to_le_bytes()].concat())
    };
    // The events lie at 1,000,000 to 1,059,000.
    let line = [
        [990_000, 5_000_000, 1, 0],
        [1_020_500, 5_300_000, 1, 0],
        [1_041_000, 5_300_777, 1, 0],
        [1_055_000, 7_000_000, 1, 0],
    ];
    let steps = line.map(|[time, offset, ..]| [time, offset, 3, 1]);
    let back = [[0, 9_000_000, 1, 0], [1_020_500, -500_000, 1, 0], [1_050_000, -400_000, 1, 0]];
    let cases = [
        ("one sample", vec![shift(0, &[[5, -900_000, 7, 0]])], true),
        ("two samples", vec![shift(1, &line[..2])], true),
        ("steps", vec![shift(0, &line)], true),
        ("line", vec![shift(1, &line)], true),
        ("scaled steps", vec![shift(0, &steps)], true),
        ("counter", vec![nanoseconds(0x5555_5555, 32)], true),
        (
            "all",
            vec![shift(1, &line), nanoseconds(1_500_000_000, 30), (OFFSET, b"-1234567\0".to_vec())],
            true,
        ),
        ("offset", vec![(OFFSET, b"0x123456789\0".to_vec())], true),
        ("back", vec![shift(0, &back)], false),
    ];
    let folder = tempfile::tempdir().unwrap();
    for (name, options, is_exact) in &cases {
        for version in [6, 7] {
            let has_counter = options.iter().any(|(id, _)| *id == TSC2NSEC);
            machine.clocks = if has_counter { "local [x86-tsc]" } else { "[local] x86-tsc" }.into();
            machine.arrays[0].clock = super::clock(if has_counter { "x86-tsc" } else { "local" });
            let path = file_with(&folder, &machine, version, options);
            let times = |text: &str| -> Vec<String> {
                text.lines()
                    .filter_map(|line| {
                        Some(line.split_once(": ")?.0.rsplit_once(' ')?.1.to_owned())
                    })
                    .collect()
            };
            let (ours, theirs) =
                (times(&by_us(&path, &Options::default())), times(&by_trace_cmd(&path)));
            assert_eq!(ours.len(), 60, "{name}");
            assert_eq!(ours == theirs, *is_exact, "{name}, version {version}: {ours:?} {theirs:?}");
            let notes = open(&path).unwrap().arrays[0].live.checked().notes;
            assert_eq!(notes.is_empty(), *is_exact, "{name}: {notes:?}");
        }
    }
}

/// A file whose head is written around the sub-buffers of one CPU, or before all, reads as the file
/// that is written at once.
#[test]
fn a_head_around_sub_buffers_is_read_as_a_whole_file() {
    use std::os::unix::fs::FileExt as _;
    let lane = |begin: u64| {
        let events: Vec<_> =
            (begin..).step_by(1500).map(|time| (time, wake(7))).take(600).collect();
        events.chunks(40).map(|events| page(events, None)).collect::<Vec<_>>()
    };
    let stats = Stats { entries: 600, ..Stats::default() };
    let machine = alone(vec![lane(1_000_000), lane(1_000_700)], stats);
    let folder = tempfile::tempdir().unwrap();
    for version in [6, 7] {
        let options = WriteOptions { version: Some(version), ..WriteOptions::default() };
        let whole = folder.path().join(format!("whole{version}"));
        write(&whole, &machine, &options).unwrap();
        let text = by_trace_cmd(&whole);
        assert_eq!(text.matches(" wake: ").count(), 1200, "{text}");
        let pages = open(&whole).unwrap();
        let ring = &pages.arrays[0].live;
        for kept in [None, Some(0), Some(1)] {
            let path = folder.path().join(format!("{version}-{kept:?}"));
            let out = std::fs::File::create_new(&path).unwrap();
            let put = |lane: usize, mut offset: u64| {
                let mut bytes = Vec::new();
                for index in 0..ring.cpus()[lane].sub_buffers {
                    ring.sub_buffer(lane, index, &mut bytes);
                    out.write_all_at(&bytes, offset).unwrap();
                    offset += bytes.len() as u64;
                }
            };
            let in_place = kept.map(|lane| InPlace { lane, offset: 1 << 20 });
            in_place.into_iter().for_each(|place| put(place.lane, place.offset));
            // A head that does not fit is not begun.
            if let Some(place) = in_place {
                let tight = Some(InPlace { offset: 4096, ..place });
                assert_eq!(write_head(&out, &path, &machine, &options, tight).unwrap(), None);
            }
            let data =
                write_head(&out, &path, &machine, &options, in_place).unwrap().expect("it fits");
            assert_eq!(data.iter().map(|data| data.lane).collect::<Vec<_>>(), [0, 1]);
            for data in data.iter().filter(|data| Some(data.lane) != kept) {
                assert!(data.size == 15 * 4096 && data.offset % 4096 == 0, "{data:?}");
                put(data.lane, data.offset);
            }
            assert_eq!(by_trace_cmd(&path), text, "{version} {kept:?}");
            assert_eq!(by_us(&path, &Options::default()), by_us(&whole, &Options::default()));
        }
    }
}

//! Tests the writers on handmade traces: losses, damage, refusals, selections, escapes.
#![allow(missing_docs, reason = "a test")]

mod data;

use crate::support::tools::{babeltrace, babeltrace20, babeltrace21};
use crate::support::{
    HEADER, Memory, channel, class, committed, field, full_header, read, signed, text_of, unsigned,
};
use lastwords_ctf::Version;
use lastwords_ctf::read::unwatched;
use lastwords_ctf::write as ctf;
use lastwords_render::evidence;
use lastwords_render::json;
use lastwords_render::perfetto;
use lastwords_render::select::Selection;
use lastwords_render::text::Style;
use lastwords_render::{Error, Totals};
use lastwords_testkit::random::Random;
use lastwords_trace::evidence::{Cause, Gap, SubBuffer, Verdict};
use lastwords_trace::schema::{EnvValue, EventClass, FieldClass};
use std::os::unix::fs::PermissionsExt;
use tempfile::TempDir;

/// Returns a trace with one channel, streams of CPUs 0 and 1, and an event class with a number and
/// a text.
fn memory() -> Memory {
    let one = |id, name: &str, format: &str| EventClass {
        level: 2,
        format: format.to_owned(),
        ..class(id, name, vec![unsigned("n", 4), field("text", FieldClass::String)])
    };
    let thread = vec![field("procname", FieldClass::Text { size: 8 }), signed("vtid", 4)];
    let events = vec![one(0, "app:one", ""), one(1, "app:mark", "number {} is {{{}}}")];
    let main = channel(0, "main", thread, events);
    let mut memory = Memory::new(1_795_000_000, vec![main], &[(0, 0), (0, 1)]);
    memory.schema.clock.description = "CLOCK_MONOTONIC".to_owned();
    memory.schema.env = [("hostname".to_owned(), EnvValue::Text("box".to_owned()))].into();
    memory
}

/// Appends an event with a full header.
fn event(bytes: &mut Vec<u8>, id: u16, clock: u64, n: u32, text: &[u8]) {
    full_header(bytes, id, clock);
    bytes.extend(b"worker\0\0");
    bytes.extend(77i32.to_le_bytes());
    bytes.extend(n.to_le_bytes());
    bytes.extend(text);
    bytes.push(0);
}

/// Returns a packet of events at the given clock readings. The number in each event is its clock
/// reading.
fn packet(memory: &mut Memory, stream: usize, sequence: u64, clocks: &[u64]) {
    let mut bytes = vec![0; HEADER];
    clocks.iter().for_each(|clock| event(&mut bytes, 0, *clock, *clock as u32, b"x"));
    let (begin, end) = (clocks[0], clocks[clocks.len() - 1]);
    memory.packets[stream].push((committed(sequence, begin, end, bytes.len()), bytes));
}

fn styled(memory: &Memory, style: Style, selection: &Selection) -> String {
    let version = if style == Style::Babeltrace { Version::V1_8 } else { Version::V2 };
    text_of(&read(memory, version), style, selection)
}

fn write(memory: &Memory, folder: &TempDir, version: Version) -> Totals {
    ctf::write(memory, &folder.path().join("t"), version, &unwatched).expect("CTF")
}

#[test]
fn losses_are_discarded_events_and_packets() {
    let mut memory = memory();
    packet(&mut memory, 0, 4, &[100, 200]);
    packet(&mut memory, 0, 5, &[300, 400]);
    packet(&mut memory, 0, 9, &[500, 600]);
    memory.packets[0][1].0.discarded = 17;
    memory.packets[0][2].0.discarded = 17;
    for (program, version) in [(babeltrace20(), Version::V1_8), (babeltrace21(), Version::V2)] {
        let folder = tempfile::tempdir().expect("a folder");
        write(&memory, &folder, version);
        let printed = babeltrace(&program, &folder.path().join("t"));
        assert!(printed.success, "{}", printed.err);
        assert_eq!(printed.out.iter().filter(|b| **b == b'\n').count(), 6);
        assert!(printed.err.contains("Tracer discarded 17 events between"), "{}", printed.err);
        assert!(printed.err.contains("Tracer discarded 3 packets between"), "{}", printed.err);
        assert_eq!(printed.err.matches("WARNING").count(), 2, "{}", printed.err);
    }
}

/// A loss behind the last packet of a stream has no end in a Perfetto trace.
#[test]
fn perfetto_says_what_is_missing_behind_the_last_packets() {
    let mut memory = memory();
    packet(&mut memory, 0, 0, &[100, 200]);
    packet(&mut memory, 1, 0, &[300, 400]);
    memory.packets[0][0].0.discarded = 17;
    let row = |(sequence, verdict)| SubBuffer {
        stream: 1,
        sequence,
        verdict,
        content: 100,
        why: String::new(),
    };
    memory.evidence.sub_buffers =
        [(0, Verdict::Committed), (1, Verdict::Invalid)].map(row).to_vec();
    let (mut out, traces, all) = (Vec::new(), read(&memory, Version::V2), Selection::default());
    perfetto::write((&traces, None, &[]), &all, &mut out, &unwatched, &mut |_| {})
        .expect("Perfetto");
    let out = String::from_utf8_lossy(&out);
    for (what, number) in [
        ("main, CPU 0: missing events", 1),
        ("main, CPU 1: missing events", 1),
        ("17 events missing", 2),
        ("up to 17 events missing", 1),
        ("1 sub-buffer missing: invalid", 1),
    ] {
        assert_eq!(out.matches(what).count(), number, "{what}");
    }
}

/// Processes that record in one session may use the same ids of spans.
#[test]
fn perfetto_draws_spans_of_each_process() {
    let mut memory = memory();
    memory.schema.channels[0].contexts = vec![unsigned("vpid", 4), unsigned("vtid", 4)];
    for (event, name) in memory.schema.channels[0]
        .events
        .iter_mut()
        .zip(["span:new svc::work", "span:close svc::work"])
    {
        event.name = name.into();
        event.fields = vec![unsigned("span_id", 8)];
    }
    let mut bytes = vec![0; HEADER];
    for (clock, id, pid) in [(100u64, 0u16, 7u32), (200, 0, 8), (300, 1, 8), (400, 1, 7)] {
        full_header(&mut bytes, id, clock);
        bytes.extend([pid.to_le_bytes(), pid.to_le_bytes()].concat());
        bytes.extend(1u64.to_le_bytes());
    }
    memory.packets[0].push((committed(0, 100, 400, bytes.len()), bytes));
    let (mut out, traces, all) = (Vec::new(), read(&memory, Version::V2), Selection::default());
    perfetto::write((&traces, None, &[]), &all, &mut out, &unwatched, &mut |_| {})
        .expect("Perfetto");
    // The name of the lane and of the slice, for each process; the instants have longer names.
    let named = out.windows(10).filter(|part| part == b"\x09svc::work").count();
    assert_eq!(named, 4);
}

#[test]
fn damaged_packets_are_truncated_and_clocks_that_go_back_are_corrected() {
    let mut memory = memory();
    packet(&mut memory, 0, 0, &[100, 200, 300]);
    packet(&mut memory, 0, 1, &[250, 400, 350, 500]);
    packet(&mut memory, 1, 0, &[100, 200, 300]);
    for (info, bytes) in memory.packets.iter_mut().flatten() {
        info.verdict = Verdict::Invalid;
        info.end = 0;
        bytes.extend([0xFF; 7]);
    }
    let folder = tempfile::tempdir().expect("a folder");
    let totals = write(&memory, &folder, Version::V1_8);
    assert_eq!((totals.events, totals.packets, totals.streams), (10, 3, 2));
    assert_eq!(totals.faults, 4, "three cut, one mended");
    let printed = babeltrace(&babeltrace20(), &folder.path().join("t"));
    assert!(printed.success && printed.err.is_empty(), "{}", printed.err);
    let out = String::from_utf8(printed.out).expect("UTF-8");
    let numbers: Vec<&str> =
        out.lines().filter_map(|l| l.split("n = ").nth(1)?.split(',').next()).collect();
    assert_eq!(numbers, ["100", "100", "200", "200", "300", "250", "300", "400", "350", "500"]);
    assert_eq!(
        out.lines().filter(|l| l.contains("00000400]")).count(),
        2,
        "400, and 350 not before it: {out}"
    );
}

/// The events of large packets are counted while they are written. Those that cannot be decoded are
/// removed again.
#[test]
fn a_large_damaged_packet_is_truncated_like_a_small_one() {
    for events in [10, 40_000] {
        let mut memory = memory();
        for sequence in 0..3 {
            let clocks: Vec<u64> = (0..events).map(|event| 1 + sequence * events + event).collect();
            packet(&mut memory, 0, sequence, &clocks);
        }
        let large = memory.packets[0][1].1.len() > 1 << 18;
        assert_eq!(large, events > 10);
        memory.packets[0][1].1.extend([0xFF; 7]);
        let folder = tempfile::tempdir().expect("a folder");
        let totals = write(&memory, &folder, Version::V1_8);
        assert_eq!((totals.events, totals.packets, totals.faults), (3 * events, 3, 1));
        let size =
            |name| std::fs::metadata(folder.path().join("t").join(name)).expect("it exists").len();
        assert_eq!(size("stream-0-0") + size("metadata"), totals.bytes);
        let printed = babeltrace(&babeltrace20(), &folder.path().join("t"));
        assert!(printed.success && printed.err.is_empty(), "{}", printed.err);
        let out = String::from_utf8(printed.out).expect("UTF-8");
        let numbers = out
            .lines()
            .filter_map(|l| l.split("n = ").nth(1)?.split(',').next()?.parse::<u64>().ok());
        assert!(numbers.eq(1..=3 * events), "each event once, in order");
    }
}

#[test]
fn a_trace_without_packets_or_events_is_a_trace() {
    let empty = memory();
    let mut one = memory();
    one.packets[1].push((committed(3, 10, 20, HEADER), vec![0; HEADER]));
    for memory in [empty, one] {
        for (program, version) in [(babeltrace20(), Version::V1_8), (babeltrace21(), Version::V2)] {
            let folder = tempfile::tempdir().expect("a folder");
            write(&memory, &folder, version);
            let printed = babeltrace(&program, &folder.path().join("t"));
            assert!(
                printed.success && printed.err.is_empty() && printed.out.is_empty(),
                "{}",
                printed.err
            );
        }
    }
}

#[test]
fn files_are_private_and_nothing_is_overwritten() {
    let mut memory = memory();
    packet(&mut memory, 0, 0, &[1]);
    let folder = tempfile::tempdir().expect("a folder");
    write(&memory, &folder, Version::V1_8);
    let path = folder.path().join("t");
    let mode =
        |p: &std::path::Path| std::fs::metadata(p).expect("it exists").permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o700);
    assert_eq!(mode(&path.join("metadata")), 0o600);
    assert_eq!(mode(&path.join("stream-0-0")), 0o600);
    assert!(!path.join("stream-0-1").exists(), "no file for a stream without packets");
    let again = ctf::write(&memory, &path, Version::V1_8, &unwatched);
    assert!(
        matches!(&again, Err(e @ Error::Io { .. }) if e.to_string().contains("exists already")),
        "{again:?}"
    );
    let link = folder.path().join("link");
    std::os::unix::fs::symlink("/nonexistent/target", &link).expect("a link");
    assert!(lastwords_render::create_file(&link).is_err());
    assert!(ctf::write(&memory, &link, Version::V1_8, &unwatched).is_err());
}

#[test]
fn a_class_that_ctf_cannot_express_is_an_error() {
    let mut memory = memory();
    let texts = FieldClass::Sequence(Box::new(FieldClass::String));
    memory.schema.channels[0].events[0].fields.push(field("bad", texts));
    let folder = tempfile::tempdir().expect("a folder");
    for version in [Version::V1_8, Version::V2] {
        let error = ctf::write(&memory, &folder.path().join("t"), version, &unwatched);
        assert_eq!(
            error.expect_err("an error").to_string(),
            "the format cannot express channel 0, event \"app:one\", field \"bad\""
        );
        assert!(!folder.path().join("t").exists(), "nothing remains");
    }
}

#[test]
fn styles() {
    let mut memory = memory();
    let mut bytes = vec![0; HEADER];
    event(&mut bytes, 0, 1_000_000_001, 5, "two words".as_bytes());
    event(&mut bytes, 1, 1_000_002_001, 6, "\u{1b}[31m\u{202e}".as_bytes());
    memory.packets[1].push((committed(7, 1_000_000_000, 1_000_002_001, bytes.len()), bytes));
    let all = Selection::default();
    let lines = |style| styled(&memory, style, &all);
    assert_eq!(
        lines(Style::Ftrace),
        "          worker-77      [001] WARN  1795000001.000000: app:one: n=5 text=\"two words\"\n          \
         worker-77      [001] WARN  1795000001.000002: app:mark: number 6 is {\\e[31m\\xe2\\x80\\xae}\n"
    );
    assert_eq!(
        lines(Style::Fields),
        "11:06:41.000000001 WARN  [001] worker-77 app:one: n=5 text=\"two words\"\n\
         11:06:41.000002001 WARN  [001] worker-77 app:mark: number 6 is {\\e[31m\\xe2\\x80\\xae}\n"
    );
    assert_eq!(
        lines(Style::Babeltrace).lines().next(),
        Some(
            "[11:06:41.000000001] (+?.?????????) box app:one: { cpu_id = 1 }, { procname = \"worker\", vtid = 77 }, \
             { n = 5, text = \"two words\" }"
        )
    );
    assert_eq!(
        lines(Style::Raw).lines().next(),
        Some(
            "1000000001 0/1/7+84 0 app:one: 77 6f 72 6b 65 72 00 00 4d 00 00 00 | 05 00 00 00 74 77 6f 20 77 6f 72 64 73 00"
        )
    );
    // A clock that is not related to the time of day shows no time of day.
    (memory.schema.clock.absolute, memory.schema.clock.offset_seconds) = (false, 0);
    let line = styled(&memory, Style::Fields, &all);
    assert!(line.starts_with("1.000000001 WARN  [001] worker-77 app:one:"), "{line}");
}

/// Tests events of many threads on five CPUs, of classes with several levels. Some threads have a
/// name in the trace's properties. The test builds the expected lines field by field.
#[test]
fn each_line_shows_its_own_thread_cpu_and_level() {
    let levels =
        [(0, "-    "), (1, "ERROR"), (2, "WARN "), (3, "INFO "), (4, "DEBUG"), (5, "TRACE")];
    for seed in 1..=20u64 {
        let mut rng = Random(seed);
        let mut memory = memory();
        let channel = &mut memory.schema.channels[0];
        channel.contexts.remove(0);
        let class = channel.events[0].clone();
        channel.events = (0..80)
            .map(|id| EventClass {
                id,
                name: format!("app:e{id}"),
                level: levels[id as usize % 6].0,
                ..class.clone()
            })
            .collect();
        let cpus = [0, 1, 2, 3, 4].map(|cpu| (0, cpu));
        Memory { streams: memory.streams, packets: memory.packets, .. } =
            Memory::new(0, Vec::new(), &cpus);
        let threads: Vec<i32> = (0..20).map(|_| rng.bits() as i32 >> rng.below(32)).collect();
        let mut names = std::collections::BTreeMap::new();
        for thread in threads.iter().filter(|thread| **thread % 3 != 0) {
            let name = "n".repeat(rng.below(80) as usize + 1);
            memory.schema.env.insert(format!("thread_{thread}"), EnvValue::Text(name.clone()));
            names.insert(*thread, name);
        }
        let mut expected: [Vec<(u64, String)>; 2] = Default::default();
        let (mut all, mut clock) = (vec![vec![0; HEADER]; 5], 1_000_000_000);
        for n in 0..3000u32 {
            clock += 1 + rng.below(50_000_000);
            let (stream, thread, id) =
                (rng.below(5) as usize, *rng.pick(&threads), rng.below(80) as usize);
            let bytes = &mut all[stream];
            bytes.extend(29u32.to_le_bytes());
            bytes.extend((id as u16).to_le_bytes());
            bytes.extend(u32::MAX.to_le_bytes());
            bytes.extend(clock.to_le_bytes());
            bytes.extend(thread.to_le_bytes());
            bytes.extend(n.to_le_bytes());
            bytes.extend(b"x\0");
            let (seconds, nanoseconds) = (clock / 1_000_000_000, clock % 1_000_000_000);
            let second = 11 * 3600 + 6 * 60 + 40 + seconds;
            let time = format!("{:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60);
            let (level, event) = (levels[id % 6].1, format!("app:e{id}: n={n} text=x"));
            let named = names.get(&thread).map_or(String::new(), |name| format!("{name}-"));
            let own =
                format!("{time}.{nanoseconds:09} {level} [00{stream}] {named}{thread} {event}");
            let name = names.get(&thread).map_or("<...>", String::as_str);
            let (whole, micros) = (1_795_000_000 + seconds, nanoseconds / 1000);
            let kernel =
                format!("{name:>16}-{thread:<7} [00{stream}] {level} {whole}.{micros:06}: {event}");
            expected[0].push((clock, own));
            expected[1].push((clock, kernel));
        }
        for (stream, bytes) in all.into_iter().enumerate() {
            memory.packets[stream].push((committed(0, 1_000_000_000, clock, bytes.len()), bytes));
        }
        for (style, expected) in [Style::Fields, Style::Ftrace].into_iter().zip(expected) {
            let printed = styled(&memory, style, &Selection::default());
            let expected: String = expected.into_iter().map(|(_, line)| line + "\n").collect();
            assert!(
                printed == expected,
                "seed {seed}: {style:?}: {:?}",
                printed.lines().zip(expected.lines()).find(|(got, wanted)| got != wanted)
            );
        }
    }
}

#[test]
fn messages_are_filled_by_position_and_by_name() {
    for (format, expected) in [
        ("{} and {}", " 7 and a b"),
        ("{text} then {}", " a b then 7"),
        ("{text}, {text}, {n:#x}", " a b, a b, 0x7"),
        ("only {n:?}", " only 7 text=\"a b\""),
        ("none", " none n=7 text=\"a b\""),
        ("{} {} {}", " 7 a b {}"),
        ("{{{}}} } { {", " {7} } { { text=\"a b\""),
        ("{1} before {0:#x}", " a b before 0x7"),
        ("{} behind {arg1}", " 7 behind a b"),
    ] {
        let mut memory = memory();
        let class = &mut memory.schema.channels[0].events[1];
        if format.contains('1') {
            (class.fields[0].name, class.fields[1].name) = ("arg0".to_owned(), "arg1".to_owned());
        }
        class.format = format.to_owned();
        class.name = format!("marker:{format}");
        let mut bytes = vec![0; HEADER];
        event(&mut bytes, 1, 5, 7, b"a b");
        memory.packets[0].push((committed(0, 5, 5, bytes.len()), bytes));
        let text = styled(&memory, Style::Fields, &Selection::default());
        assert_eq!(
            text,
            format!("11:06:40.000000005 WARN  [000] worker-77 marker:{expected}\n"),
            "{format:?}"
        );
    }
}

#[test]
fn no_text_controls_a_terminal() {
    let mut memory = memory();
    memory.schema.channels[0].events[0].name = "app:\u{1b}]0;x\u{7}\u{9b}".to_owned();
    memory.schema.channels[0].events[0].fields[1].name = "a\nb\u{202e}".to_owned();
    memory.schema.env.insert("hostname".to_owned(), EnvValue::Text("\u{1b}c".to_owned()));
    memory.evidence.notes.push("\u{9b}31m\u{7f}".to_owned());
    let mut bytes = vec![0; HEADER];
    let every: Vec<u8> = (1..=255).collect();
    event(&mut bytes, 0, 5, 0, &every);
    event(&mut bytes, 1, 6, 0, "\u{85}\u{9b}\u{202e}\u{2066}\u{7f}\u{61c}".as_bytes());
    memory.packets[0].push((committed(0, 5, 6, bytes.len()), bytes));
    let mut json_out = Vec::new();
    let traces = read(&memory, Version::V2);
    json::write(&traces, &Selection::default(), &mut json_out, &unwatched, &mut |_| {})
        .expect("JSON");
    let mut texts = vec![String::from_utf8(json_out).expect("UTF-8")];
    for style in [Style::Babeltrace, Style::Ftrace, Style::Fields, Style::Raw] {
        texts.push(styled(&memory, style, &Selection::default()));
    }
    texts.push(json::safe(
        &serde_json::to_string(&evidence::Account::new(&memory).report()).expect("JSON"),
    ));
    for text in texts {
        let bad = text.chars().find(|c| {
            (c.is_control() && *c != '\n')
                || matches!(c, '\u{61c}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        });
        assert_eq!(bad, None, "{text:?}");
        assert!(text.lines().count() <= 3, "{text:?}");
    }
}

#[test]
fn selections() {
    let mut memory = memory();
    packet(&mut memory, 0, 0, &[100, 300, 500]);
    packet(&mut memory, 1, 0, &[200, 400, 600]);
    let mut bytes = vec![0; HEADER];
    event(&mut bytes, 1, 700, 700, b"m");
    memory.packets[1].push((committed(1, 700, 700, bytes.len()), bytes));
    let second = 1_795_000_000_000_000_000;
    let numbers = |selection: Selection| -> Vec<u32> {
        let text = styled(&memory, Style::Babeltrace, &selection);
        text.lines()
            .map(|l| {
                l.split("n = ").nth(1).and_then(|r| r.split(',').next()?.parse().ok()).expect("n")
            })
            .collect()
    };
    let all = Selection::default();
    assert_eq!(numbers(all.clone()), [100, 200, 300, 400, 500, 600, 700]);
    assert_eq!(numbers(Selection { cpus: vec![0], ..all.clone() }), [100, 300, 500]);
    assert_eq!(numbers(Selection { channels: vec!["m*".into()], ..all.clone() }).len(), 7);
    assert!(numbers(Selection { channels: vec!["none".into()], ..all.clone() }).is_empty());
    assert_eq!(numbers(Selection { last: Some(2), ..all.clone() }), [600, 700]);
    assert!(numbers(Selection { last: Some(0), ..all.clone() }).is_empty());
    assert_eq!(numbers(Selection { events: vec!["*:mark".to_owned()], ..all.clone() }), [700]);
    assert_eq!(
        numbers(Selection { since: Some(second + 300), until: Some(second + 500), ..all.clone() }),
        [300, 400, 500]
    );
    let one = Selection { events: vec!["app:o?e".to_owned()], last: Some(1), cpus: vec![1], ..all };
    assert_eq!(numbers(one), [600]);
}

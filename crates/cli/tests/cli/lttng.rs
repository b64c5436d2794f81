//! Streams of LTTng's user-space tracer, made here from `frontend_types.h` of lttng-ust.

use crate::matrix::perfetto;
use crate::support::{Place, small};
use lastwords_testkit::text::Text as _;
use std::path::{Path, PathBuf};

const COUNT: usize = 4;
const SIZE: usize = 512;
const SLOTS: usize = 0x480;
const SETS: usize = 0x500;
const PAGES: usize = 0x600;
const DATA: usize = 0x1000;
/// Bytes before the first event of a packet.
const HEAD: usize = 84;

/// Events have no time of their own: that of their packet's beginning is theirs.
const METADATA: &str = "/* CTF 1.8 */\n\
    typealias integer { size = 8; align = 8; signed = false; } := uint8_t;\n\
    typealias integer { size = 32; align = 8; signed = false; } := uint32_t;\n\
    typealias integer { size = 64; align = 8; signed = false; } := uint64_t;\n\
    trace { major = 1; minor = 8; uuid = \"00010203-0405-0607-0000-000000000000\"; byte_order = le;\n\
    packet.header := struct { uint32_t magic; uint8_t uuid[16]; uint32_t stream_id; uint64_t stream_instance_id; }; };\n\
    stream { id = 3; packet.context := struct { uint64_t timestamp_begin; uint64_t timestamp_end; uint64_t content_size;\n\
    uint64_t packet_size; uint64_t packet_seq_num; uint64_t events_discarded; uint32_t cpu_id; };\n\
    event.header := struct { uint32_t id; }; };\n\
    event { name = \"steps:step\"; id = 0; stream_id = 3; fields := struct { uint32_t n; }; };\n";

/// As [`METADATA`]; each event has its time, and no id.
const TIMED_METADATA: &str = "/* CTF 1.8 */\n\
    typealias integer { size = 8; align = 8; signed = false; } := uint8_t;\n\
    typealias integer { size = 32; align = 8; signed = false; } := uint32_t;\n\
    typealias integer { size = 64; align = 8; signed = false; } := uint64_t;\n\
    trace { major = 1; minor = 8; uuid = \"00010203-0405-0607-0000-000000000000\"; byte_order = le;\n\
    packet.header := struct { uint32_t magic; uint8_t uuid[16]; uint32_t stream_id; uint64_t stream_instance_id; }; };\n\
    clock { name = \"monotonic\"; freq = 1000000000; offset_s = 1700000000; };\n\
    typealias integer { size = 32; align = 8; signed = false; map = clock.monotonic.value; } := stamp32_t;\n\
    typealias integer { size = 64; align = 8; signed = false; map = clock.monotonic.value; } := stamp64_t;\n\
    stream { id = 3; packet.context := struct { stamp64_t timestamp_begin; stamp64_t timestamp_end; uint64_t content_size;\n\
    uint64_t packet_size; uint64_t packet_seq_num; uint64_t events_discarded; uint32_t cpu_id; };\n\
    event.header := struct { stamp32_t timestamp; }; };\n\
    event { name = \"steps:step\"; id = 0; stream_id = 3; fields := struct { uint32_t n; }; };\n";

/// Events of each packet, and those that the tracer discarded before its end, counted from the
/// beginning.
const EVENTS: [(usize, usize); COUNT] = [(3, 0), (0, 0), (5, 7), (1, 9)];

/// The time of an event of [`TIMED_METADATA`], in nanoseconds.
fn time(slot: usize, event: usize, cpu: usize) -> usize {
    1000 * slot + 10 * event + cpu
}

/// A ring of four sub-buffers, all of them delivered. The n-th event of all has the number n.
fn stream(packets: [(usize, usize); COUNT], cpu: usize, is_timed: bool) -> Vec<u8> {
    let mut bytes = vec![0; DATA + (COUNT + 1) * SIZE];
    let length = bytes.len() as u64;
    let mut put = |at: usize, len: usize, value: u64| {
        bytes[at..at + len].copy_from_slice(&value.to_le_bytes()[..len])
    };
    for (n, byte) in [0x17u64, 0x7b, 0xf1, 0x77, 0xbf].iter().cycle().take(16).enumerate() {
        put(n, 1, *byte);
    }
    put(16, 8, length);
    put(24, 2, 0x1234);
    put(30, 1, 8);
    let offsets = [0x80, 0x98, 0x280, 8, SLOTS, 0, SETS, 8, 40, 48, 56];
    offsets.iter().enumerate().for_each(|(n, at)| put(32 + 4 * n, 4, *at as u64));
    (0..8).for_each(|n| put(76 + n, 1, 8));
    [128, 8, 16].iter().enumerate().for_each(|(n, stride)| put(84 + 4 * n, 4, *stride));
    [COUNT * SIZE, SIZE, COUNT, 1]
        .iter()
        .enumerate()
        .for_each(|(n, word)| put(96 + 8 * n, 8, *word as u64));
    put(0x80, 8, (COUNT * SIZE) as u64);
    let mut number = 0;
    for (slot, (events, discarded)) in packets.into_iter().enumerate() {
        put(0x280 + 128 * slot + 8, 8, SIZE as u64);
        put(SLOTS + 8 * slot, 8, slot as u64);
        let at = DATA + slot * SIZE;
        put(at, 4, 0xc1fc_1fc1);
        put(at + 4, 8, 0x0706_0504_0302_0100);
        put(at + 20, 4, 3);
        put(at + 24, 8, cpu as u64);
        let content = 8 * (HEAD + 8 * events);
        let context = [1000 * slot, 1000 * slot + 900, content, 8 * SIZE, slot, discarded, cpu];
        context
            .iter()
            .enumerate()
            .for_each(|(n, word)| put(at + 32 + 8 * n, if n == 6 { 4 } else { 8 }, *word as u64));
        for event in 0..events {
            put(at + HEAD + 8 * event, 4, if is_timed { time(slot, event, cpu) as u64 } else { 0 });
            put(at + HEAD + 8 * event + 4, 4, number);
            number += 1;
        }
    }
    for set in 0..=COUNT {
        put(SETS + 16 * set + 8, 8, (PAGES + 0x40 * set) as u64);
        put(PAGES + 0x40 * set + 40, 8, (DATA + SIZE * set) as u64);
    }
    bytes
}

#[test]
fn report_and_recover_call_the_same_a_loss() {
    let place = Place::new();
    std::fs::create_dir(place.at("shm")).unwrap();
    std::fs::write(place.at("shm/metadata"), METADATA).unwrap();
    for (damaged, expected) in [(false, 0), (true, 3)] {
        let mut bytes = stream([(0, 0); COUNT], 1, false);
        if damaged {
            bytes[DATA + SIZE] ^= 0xff;
        }
        std::fs::write(place.at("shm/steps_0"), bytes).unwrap();
        let out = format!("out-{damaged}");
        for args in
            [&["recover", "shm", "--strict", "-o", &out][..], &["report", "shm", "--strict"]]
        {
            let ran = place.run(args);
            ran.has_status(expected);
            assert_eq!(ran.err.contains("sub-buffer 1: invalid"), damaged, "{args:?}: {}", ran.err);
        }
        place.run(&["report", "shm"]).has_status(0);
    }
}

/// A folder of shared memory with two rings, with or without the description of their events.
fn shm(place: &Place, described: bool) {
    std::fs::create_dir(place.at("shm")).unwrap();
    if described {
        std::fs::write(place.at("shm/metadata"), METADATA).unwrap();
    }
    for cpu in 0..2 {
        std::fs::write(place.at("shm").join(format!("steps_{cpu}")), stream(EVENTS, cpu, false))
            .unwrap();
    }
}

/// Writes a folder of shared memory whose events have times. Clock, CPU and number of each event,
/// and how many events were lost.
pub(crate) fn timed_shm(folder: &Path, is_lossy: bool) -> (Vec<(u64, u32, u64)>, u64) {
    std::fs::create_dir(folder).unwrap();
    std::fs::write(folder.join("metadata"), TIMED_METADATA).unwrap();
    let packets = EVENTS.map(|(events, lost)| (events, if is_lossy { lost } else { 0 }));
    let mut all = Vec::new();
    for cpu in 0..2u32 {
        std::fs::write(folder.join(format!("steps_{cpu}")), stream(packets, cpu as usize, true))
            .unwrap();
        let places = packets
            .iter()
            .enumerate()
            .flat_map(|(slot, (events, _))| (0..*events).map(move |event| (slot, event)));
        all.extend(
            places
                .zip(0..)
                .map(|((slot, event), n)| (time(slot, event, cpu as usize) as u64, cpu, n)),
        );
    }
    (all, 2 * packets.iter().map(|(_, lost)| *lost as u64).max().unwrap())
}

/// Files below a folder, or the file itself, without the streams' indices; sorted.
pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return folder.is_file().then(|| folder.to_owned()).into_iter().collect();
    };
    let mut found: Vec<PathBuf> = entries.flat_map(|entry| files(&entry.unwrap().path())).collect();
    found.retain(|path| path.extension().is_none_or(|suffix| suffix != "idx"));
    found.sort();
    found
}

/// The numbers that stand behind this text, sorted.
fn numbers(text: &str, before: &str) -> Vec<usize> {
    let numbers = text
        .split(before)
        .skip(1)
        .map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse());
    let mut numbers: Vec<usize> = numbers.collect::<Result<_, _>>().unwrap();
    numbers.sort_unstable();
    numbers
}

#[test]
fn a_session_is_written_in_each_format_or_refused() {
    let place = Place::new();
    shm(&place, true);
    let events: usize = EVENTS.iter().map(|(events, _)| events).sum();
    let lost = 2 * EVENTS.iter().map(|(_, discarded)| discarded).max().unwrap();
    let expected: Vec<usize> = (0..events).flat_map(|n| [n, n]).collect();
    for verb in ["recover", "convert"] {
        for (format, before) in [("json", "\"n\":"), ("text", "{ n = "), ("ctf", ""), ("ctf2", "")]
        {
            let out = format!("{verb}-{format}");
            let ran = place.run(&[verb, "shm", "--to", format, "-o", &out, "--strict"]);
            let line = format!(": {} events, 2 streams, {lost} events lost\n", expected.len());
            ran.has_status(3).prints(&line).prints_lines(1);
            let text = if before.is_empty() {
                // `report` reads the trace that was written.
                place.ok(&["report", &out])
            } else {
                let written = files(&place.at(&out));
                assert_eq!(written.len(), 1, "{written:?}");
                std::fs::read_to_string(&written[0]).unwrap()
            };
            let before = if before.is_empty() { "{ n = " } else { before };
            assert_eq!(numbers(&text, before), expected, "{out}: {text}");
        }
        let out = format!("{verb}-perfetto");
        place.run(&[verb, "shm", "--to", "perfetto", "-o", &out, "--strict"]).has_status(3);
        let written = files(&place.at(&out));
        assert_eq!(
            perfetto::events(&std::fs::read(&written[0]).unwrap()).len(),
            expected.len(),
            "{out}"
        );
        let out = format!("{verb}-trace-dat");
        place.ok(&[verb, "shm", "--to", "trace-dat", "-o", &out]);
        // The file says what is missing.
        let ran = place.run(&["report", &out, "--strict"]);
        ran.has_status(3).says("events lost");
        assert_eq!(numbers(&ran.out, "n="), expected, "{out}: {}", ran.out);
    }
}

#[test]
fn events_without_a_description_are_told_and_kept() {
    let place = Place::new();
    shm(&place, false);
    std::fs::write(place.at("description"), METADATA).unwrap();
    let unread = "8 packets that nothing can read: the description of their events is missing";
    for args in [
        &["report", "shm"][..],
        &["recover", "shm", "-o", "r", "--to", "json"],
        &["convert", "shm", "-o", "c", "--to", "json"],
        &["convert", "shm", "-o", "d", "--to", "ctf"],
    ] {
        let ran = place.run(args);
        ran.has_status(1).prints_nothing().says(unread).says("--metadata gives it");
    }
    assert_eq!(
        [files(&place.at("r")), files(&place.at("c")), files(&place.at("d"))],
        [[], [], []].map(Vec::<PathBuf>::from)
    );
    // The packets are kept, for whoever finds the description.
    place
        .run(&["recover", "shm", "-o", "kept"])
        .has_status(1)
        .says(unread)
        .prints("events not counted, 2 streams, at least 18 events lost");
    assert_eq!(files(&place.at("kept")).len(), 2);
    for args in [&["report", "shm"][..], &["convert", "shm", "--to", "text", "-o", "-"]] {
        let text = place.ok(&[args, &["--metadata", "description"]].concat());
        assert_eq!(numbers(&text, "{ n = ").len(), 18, "{args:?}: {text}");
    }
}

/// The account says that packets without a description are a loss, with place and size, where
/// nothing else is lost.
#[test]
fn events_without_a_description_are_a_loss_of_the_account() {
    let place = Place::new();
    std::fs::create_dir(place.at("shm")).unwrap();
    std::fs::write(place.at("shm/steps_0"), stream([(2, 0); COUNT], 0, false)).unwrap();
    small(&place, "session", 0);
    for args in [&["report", "shm", "session"][..], &["recover", "shm", "-o", "out"]] {
        let ran = place.run(args);
        ran.has_status(1);
        let heading = ran
            .err
            .lines()
            .find(|line| line.contains("sub-buffers: 4 committed"))
            .expect("an account");
        assert!(heading.ends_with("; with losses"), "{args:?}: {heading}");
        ran.says("CPU 0, 4 packets: undescribed (400 bytes");
    }
    let report = place.json(&["inspect", "--json", "shm"]);
    let evidence = &report["inputs"][0]["sessions"][0]["evidence"];
    assert_eq!(evidence["losses"], true, "{evidence}");
    assert_eq!(evidence["streams"][0]["gaps"][0]["cause"], "undescribed", "{evidence}");
}

#[test]
fn what_the_tracer_discarded_is_told_when_a_folder_is_converted() {
    let place = Place::new();
    shm(&place, true);
    place.run(&["recover", "shm", "-o", "out"]);
    for format in ["ctf", "ctf2", "json", "text"] {
        let to = format!("to-{format}");
        for (strict, status) in [(&[][..], 0), (&["--strict"], 3)] {
            let ran =
                place.run(&[&["convert", "out", "--to", format, "-o", &to][..], strict].concat());
            ran.has_status(status).out.ends(": 18 events, 2 streams, 18 events lost\n");
            let made = place.at(&to);
            if made.is_dir() {
                std::fs::remove_dir_all(made).unwrap()
            } else {
                std::fs::remove_file(made).unwrap()
            }
        }
    }
}

//! Copies of traces whose streams have a clock and whose packets have no time at which they begin.
//! babeltrace2 2.1 aborts on such traces, so that copies get the time. Both versions of babeltrace2
//! must print the events of a copy as they are in the trace.

use crate::support::ctf::{folder, report, sequence};
use crate::support::tools::{babeltrace, babeltrace20, babeltrace21};
use lastwords_ctf::{Version, read};
use lastwords_testkit::random::Random;
use serde_json::{Value, json};
use std::sync::Arc;

/// Members of packet contexts: name, role, size in bytes.
const MEMBERS: [(&str, &str, usize); 6] = [
    ("packet_size", "packet-total-length", 4),
    ("content_size", "packet-content-length", 8),
    ("timestamp_end", "packet-end-default-clock-timestamp", 8),
    ("events_discarded", "discarded-event-record-counter-snapshot", 2),
    ("packet_seq_num", "packet-sequence-number", 1),
    ("cpu_id", "", 4),
];

fn integer(size: usize, big: bool, align: u64, role: &str) -> Value {
    let order = if big { "big-endian" } else { "little-endian" };
    let mut class = json!({ "type": "fixed-length-unsigned-integer", "length": size * 8, "alignment": align, "byte-order": order });
    if !role.is_empty() {
        class["roles"] = json!([role]);
    }
    class
}

fn put(out: &mut Vec<u8>, size: usize, big: bool, value: u64) {
    let bytes = value.to_le_bytes();
    let bytes = bytes.iter().take(size).copied();
    if big { out.extend(bytes.rev()) } else { out.extend(bytes) }
}

/// Makes metadata and a stream. The packets have no time at which they begin.
fn made(seed: u64) -> (Vec<u8>, Vec<u8>) {
    let r = &mut Random(seed);
    let big = r.one_in(2);
    let align = *r.pick(&[8, 8, 32, 64]);
    let clock = *r.pick(&[4, 8]);
    let several = r.one_in(3);
    let mut members: Vec<_> = MEMBERS
        .iter()
        .filter(|(_, role, _)| (role.ends_with("length") && !several) || r.one_in(2))
        .copied()
        .collect();
    if several {
        members.retain(|(_, role, _)| !role.ends_with("length"));
    }
    let one = |name: &str, class: Value| json!({ "name": name, "field-class": class });
    let structure = |members: Vec<Value>| json!({ "type": "structure", "member-classes": members });
    let mut stream = json!({ "type": "data-stream-class", "id": 0, "default-clock-class-id": "c",
        "event-record-header-field-class": structure(vec![one("t", integer(clock, big, 8, "default-clock-timestamp"))]) });
    if !members.is_empty() {
        let members =
            members.iter().map(|(name, role, size)| one(name, integer(*size, big, 8, role)));
        stream["packet-context-field-class"] = structure(members.collect());
    }
    let fragments = [
        json!({ "type": "preamble", "version": 2 }),
        json!({ "type": "trace-class",
            "packet-header-field-class": structure(vec![one("magic", integer(4, big, 8, "packet-magic-number"))]) }),
        json!({ "type": "clock-class", "id": "c", "frequency": 1_000_000_000, "origin": "unix-epoch" }),
        stream,
        json!({ "type": "event-record-class", "id": 0, "name": "e",
            "payload-field-class": structure(vec![one("x", integer(1, big, 8, "")), one("y", integer(4, big, align, ""))]) }),
    ];
    let metadata = sequence(&fragments);
    let (mut file, mut time) = (Vec::new(), 1000);
    for packet in 0..if several { 1 } else { 1 + r.below(4) } {
        let events = if r.one_in(4) { 0 } else { r.below(5) };
        let head = 4 + members.iter().map(|(_, _, size)| size).sum::<usize>();
        let mut body = Vec::new();
        for _ in 0..events {
            time += r.below(1000);
            put(&mut body, clock, big, time);
            // The payload and its second member are aligned.
            for x in [true, false] {
                let at = (head + body.len()).next_multiple_of(align as usize / 8);
                body.resize(at - head, 0);
                body.extend(x.then_some(r.below(256) as u8));
            }
            put(&mut body, 4, big, r.below(1 << 32));
        }
        let content = (head + body.len()) as u64 * 8;
        let padding = if several { 0 } else { r.below(3) as usize };
        put(&mut file, 4, big, 0xc1fc_1fc1);
        for (name, _, size) in &members {
            let value = match *name {
                "packet_size" => content + padding as u64 * 8,
                "content_size" => content,
                "timestamp_end" => time,
                "events_discarded" => 0,
                "packet_seq_num" => packet,
                _ => 3,
            };
            put(&mut file, *size, big, value);
        }
        file.extend(body);
        file.extend(vec![0xee; padding]);
    }
    (metadata, file)
}

#[test]
fn packets_of_copies_have_times() {
    let mut events = 0;
    for seed in 1..=60 {
        let (metadata, file) = made(seed);
        let from = folder(&metadata, &[("s", &file)]);
        let (expected, remarks) = report(from.path());
        assert_eq!(remarks, Vec::<String>::new(), "seed {seed}");
        events += expected.lines().count();
        let found = read::open(from.path(), &Arc::default()).expect("opened");
        for version in [Version::V1_8, Version::V2] {
            let to = tempfile::tempdir().expect("a folder");
            let out = to.path().join("out");
            let copied = read::copy(&found.traces, version, &out, &read::unwatched, &mut |note| {
                panic!("{note:?}")
            });
            copied.expect("copied");
            let (text, remarks) = report(&out);
            assert_eq!((text.as_str(), remarks), (expected.as_str(), Vec::new()), "seed {seed}");
            let readers = if version == Version::V2 {
                vec![babeltrace21()]
            } else {
                vec![babeltrace20(), babeltrace21()]
            };
            for program in readers {
                let printed = babeltrace(&program, &out);
                assert!(printed.success, "seed {seed}: {}", printed.err);
                assert_eq!(String::from_utf8_lossy(&printed.out), expected, "seed {seed}");
            }
        }
    }
    assert!(events > 100, "{events} events");
}

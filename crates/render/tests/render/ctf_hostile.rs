//! Damages every part of a CTF trace. The reader must not panic, must report every loss of
//! undamaged data, and must not invent events.

use crate::support::ctf::{
    TSDL, ctf2_metadata, ctf2_stream, folder, metadata_packets, report, sequence, stream,
};
use lastwords_testkit::random::Random;
use std::sync::Arc;

#[test]
fn mutants_do_not_panic() {
    let mut random = Random(1);
    let mut next = move |bound: usize| random.below(bound as u64) as usize;
    let metadata = TSDL.replace("ORDER", "le").into_bytes();
    for round in 0..600 {
        let two = round % 2 == 0;
        let mut parts =
            if two { [ctf2_metadata(), ctf2_stream()] } else { [metadata.clone(), stream(false)] };
        let which = &mut parts[usize::from(round % 3 != 0)];
        for _ in 0..=next(3) {
            let at = next(which.len());
            match next(4) {
                0 => which.truncate(at.max(1)),
                1 => which[at] = next(256) as u8,
                2 => which[at] ^= 1 << next(8),
                _ => which[at] = b"0987{}[];=<>.\"\xff"[next(15)],
            }
        }
        let folder = folder(&parts[0], &[("s", &parts[1])]);
        let (text, remarks) = report(folder.path());
        assert!(text.len() < 1 << 20 && remarks.len() < 1 << 10);
    }
}

/// Returns the lines of a stream's events without the time since the previous event, and true if
/// there are remarks.
fn lines(metadata: &str, stream: &[u8]) -> (Vec<String>, bool) {
    let folder = folder(metadata.as_bytes(), &[("s", stream)]);
    let (text, remarks) = report(folder.path());
    let without = |line: &str| {
        let (time, rest) = line.split_once(" (").unwrap_or((line, ""));
        format!("{time}{}", rest.split_once(')').map_or("", |rest| rest.1))
    };
    (text.lines().map(without).collect(), !remarks.is_empty())
}

/// Returns the size in bytes of the first packet of [`stream`].
fn first_len(stream: &[u8]) -> usize {
    stream.windows(4).skip(4).position(|w| w == &stream[..4]).expect("a second packet") + 4
}

/// Size in bytes of a packet's header and context.
const HEAD: usize = 52;

/// A stream's path that is not a regular file is a fault. The reader must not wait for a writer of
/// a FIFO.
#[test]
fn a_file_that_is_not_regular_is_reported() {
    let metadata = TSDL.replace("ORDER", "le");
    let folder = folder(metadata.as_bytes(), &[("s_0", &stream(false))]);
    let path = |name: &str| folder.path().join(name);
    for fifo in ["s_1", "index/s_0.idx"] {
        std::fs::create_dir_all(path(fifo).parent().expect("a folder")).expect("made");
        let made = std::process::Command::new("mkfifo").arg(path(fifo)).status();
        assert!(made.expect("mkfifo").success());
    }
    std::fs::create_dir(path("s_2")).expect("made");
    std::os::unix::fs::symlink("nowhere", path("s_3")).expect("linked");
    let found = lastwords_ctf::read::open(folder.path(), &Arc::default()).expect("a trace");
    let mut faults: Vec<String> = found.faults.iter().map(ToString::to_string).collect();
    faults.sort();
    let ends = [
        "s_1: a FIFO, no regular file",
        "s_2: a folder, no regular file",
        "s_3: No such file or directory (os error 2)",
    ];
    assert!(
        faults.len() == 3 && faults.iter().zip(ends).all(|(fault, end)| fault.ends_with(end)),
        "{faults:?}"
    );
    assert_eq!(found.traces[0].streams.len(), 1);
}

#[test]
fn streams_cut_anywhere() {
    for big in [false, true] {
        let metadata = TSDL.replace("ORDER", if big { "be" } else { "le" });
        let stream = stream(big);
        let (whole, _) = lines(&metadata, &stream);
        let mut before = 0;
        for len in 0..stream.len() {
            let (found, remarked) = lines(&metadata, &stream[..len]);
            assert!(found.len() >= before && whole.starts_with(&found), "{len} bytes");
            assert!(
                found == whole || remarked || len == 0 || len == first_len(&stream),
                "{len} bytes: nothing is reported"
            );
            before = found.len();
        }
    }
}

#[test]
fn each_bit_costs_its_packet_at_most() {
    for big in [false, true] {
        let metadata = TSDL.replace("ORDER", if big { "be" } else { "le" });
        let stream = stream(big);
        let first = first_len(&stream);
        let (whole, _) = lines(&metadata, &stream);
        for bit in 0..stream.len() * 8 {
            let mut bad = stream.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let (found, _) = lines(&metadata, &bad);
            if bit / 8 >= first {
                assert_eq!(found.get(..3), whole.get(..3), "bit {bit}: the packet before");
            } else if bit / 8 >= HEAD {
                assert_eq!(found.last(), whole.last(), "bit {bit}: the next packet");
            }
        }
    }
}

#[test]
fn no_field_of_a_packet_causes_a_panic() {
    for big in [false, true] {
        let metadata = TSDL.replace("ORDER", if big { "be" } else { "le" });
        let stream = stream(big);
        let (whole, _) = lines(&metadata, &stream);
        let edges = |now: u64| {
            let top = u64::MAX;
            [0, 1, 7, 8, now - 1, now + 1, now / 2, now * 2, 1 << 31, (1 << 32) - 1, top - 7, top]
        };
        for packet in [0, first_len(&stream)] {
            for (at, len) in [(0, 4), (4, 4), (8, 8), (16, 8), (24, 8), (32, 8), (40, 8), (48, 4)] {
                let field = packet + at..packet + at + len;
                let mut now = [0u8; 8];
                now[..len].copy_from_slice(&stream[field.clone()]);
                let now = if big {
                    u64::from_be_bytes(now) >> (64 - 8 * len)
                } else {
                    u64::from_le_bytes(now)
                };
                for edge in edges(now.max(1)) {
                    let mut bad = stream.clone();
                    let raw = if big {
                        (edge << (64 - 8 * len)).to_be_bytes()
                    } else {
                        edge.to_le_bytes()
                    };
                    bad[field.clone()].copy_from_slice(&raw[..len]);
                    let (found, _) = lines(&metadata, &bad);
                    assert!(found.len() <= whole.len() + 64, "offset {at}, {edge:#x}");
                    assert!(
                        packet == 0 || found.get(..3) == whole.get(..3),
                        "offset {at}, {edge:#x}"
                    );
                }
            }
        }
    }
}

/// Returns metadata and stream of three traces. The metadata are text of CTF 1.8, packets of CTF
/// 1.8, and CTF 2.
fn traces() -> [(&'static str, Vec<u8>, Vec<u8>); 3] {
    let text = TSDL.replace("ORDER", "le").into_bytes();
    let packets = metadata_packets(&text, false);
    [
        ("text", text, stream(false)),
        ("packets", packets, stream(false)),
        ("CTF 2", ctf2_metadata(), ctf2_stream()),
    ]
}

/// Returns the lines of the events, without the time since the previous event, and the remarks.
fn read(metadata: &[u8], stream: &[u8]) -> (Vec<String>, Vec<String>) {
    let folder = folder(metadata, &[("s", stream)]);
    let (text, remarks) = report(folder.path());
    (
        text.lines()
            .map(|line| line.split_once(") ").map_or(line, |rest| rest.1).to_owned())
            .collect(),
        remarks,
    )
}

#[test]
fn metadata_cut_anywhere() {
    for (name, metadata, stream) in traces() {
        let (whole, said) = read(&metadata, &stream);
        for len in 0..metadata.len() {
            let (found, remarks) = read(&metadata[..len], &stream);
            assert!(
                found.iter().all(|line| whole.contains(line)),
                "{name}: {len} bytes: {found:#?}"
            );
            assert!(
                found == whole || remarks.len() > said.len() || remarks != said,
                "{name}: {len} bytes: nothing is reported"
            );
        }
    }
}

/// A flipped bit may make another valid description. It must not cost more than the trace. Tests
/// one bit in 7, or all bits if `LASTWORDS_ALL_BITS` is set.
#[test]
fn each_bit_of_metadata() {
    let step = if std::env::var_os("LASTWORDS_ALL_BITS").is_some() { 1 } else { 7 };
    for (name, metadata, stream) in traces() {
        for bit in (0..metadata.len() * 8).step_by(step) {
            let mut bad = metadata.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let (found, remarks) = read(&bad, &stream);
            assert!(found.len() < 1 << 12 && remarks.len() < 1 << 8, "{name}: bit {bit}");
        }
    }
}

#[test]
fn no_number_of_metadata_causes_a_panic() {
    const EDGES: [&str; 12] = [
        "0",
        "1",
        "-1",
        "7",
        "63",
        "65",
        "127",
        "2147483647",
        "4294967296",
        "9223372036854775807",
        "18446744073709551615",
        "99999999999999999999999",
    ];
    for (name, metadata, stream) in traces().into_iter().filter(|(name, ..)| *name != "packets") {
        let mut at = 0;
        while let Some(begin) = metadata[at..].iter().position(u8::is_ascii_digit).map(|n| at + n) {
            at = metadata[begin..]
                .iter()
                .position(|b| !b.is_ascii_digit())
                .map_or(metadata.len(), |n| begin + n);
            for edge in EDGES {
                let bad = [&metadata[..begin], edge.as_bytes(), &metadata[at..]].concat();
                let (found, remarks) = read(&bad, &stream);
                assert!(
                    found.len() < 1 << 12 && remarks.len() < 1 << 8,
                    "{name}: {edge} at {begin}"
                );
            }
        }
    }
}

/// Returns LTTng's index, version 1.1, of a file of two packets. Source: LTTng-tools 2.13,
/// src/common/index/ctf-index.h.
fn index_of(stream: &[u8]) -> Vec<u8> {
    let mut bytes: Vec<u8> =
        [0xc1f1_dcc1u32, 1, 1, 80].into_iter().flat_map(u32::to_be_bytes).collect();
    let first = first_len(stream);
    for (sequence, (offset, len)) in
        [(0, first), (first, stream.len() - first)].into_iter().enumerate()
    {
        let field =
            |at: usize| u64::from_le_bytes(stream[offset + at..][..8].try_into().expect("eight"));
        let entry = [
            offset as u64,
            8 * len as u64,
            field(24),
            field(8),
            field(16),
            field(40),
            0,
            3,
            0,
            sequence as u64,
        ];
        bytes.extend(entry.into_iter().flat_map(u64::to_be_bytes));
    }
    bytes
}

/// Returns the lines of a trace with an index file, and the remarks.
fn indexed(index: &[u8]) -> (Vec<String>, Vec<String>) {
    let folder = folder(TSDL.replace("ORDER", "le").as_bytes(), &[("s", &stream(false))]);
    std::fs::create_dir(folder.path().join("index")).expect("a folder");
    std::fs::write(folder.path().join("index/s.idx"), index).expect("written");
    let (text, remarks) = report(folder.path());
    (text.lines().map(str::to_owned).collect(), remarks)
}

/// Packets of two stream classes in one file are errors. Each message names the id that was found
/// and the id that was expected.
#[test]
fn a_packet_of_another_stream_class_is_reported_with_its_id() {
    let u8 = r#""type":"fixed-length-unsigned-integer","length":8,"byte-order":"little-endian""#;
    let member = |name: &str, role: &str| {
        format!(r#"{{"name":"{name}","field-class":{{{u8},"roles":["{role}"]}}}}"#)
    };
    let header = member("class", "data-stream-class-id");
    let context = member("size", "packet-total-length");
    let class = |id: u8| {
        format!(
            r#"{{"type":"data-stream-class","id":{id},"packet-context-field-class":{{"type":"structure","member-classes":[{context}]}}}}"#
        )
    };
    let event = |id: u8| {
        let field = format!(r#"{{"name":"n","field-class":{{{u8}}}}}"#);
        format!(
            r#"{{"type":"event-record-class","data-stream-class-id":{id},"payload-field-class":{{"type":"structure","member-classes":[{field}]}}}}"#
        )
    };
    let trace = format!(
        r#"{{"type":"trace-class","packet-header-field-class":{{"type":"structure","member-classes":[{header}]}}}}"#
    );
    let preamble = r#"{"type":"preamble","version":2}"#.to_owned();
    let fragments = [preamble, trace, class(3), class(7), event(3), event(7)];
    let folder = folder(&sequence(&fragments), &[("s", &[3, 24, 1, 7, 24, 2, 5, 24, 3])]);
    let (text, remarks) = report(folder.path());
    assert_eq!(text.lines().count(), 1, "{text}");
    assert_eq!(remarks.len(), 2, "{remarks:?}");
    let has = |end: &str| remarks.iter().any(|remark| remark.ends_with(end));
    assert!(has("stream class id 7, expected 3 as in the stream's other packets"), "{remarks:?}");
    assert!(has("stream class id 5, expected one that the trace has"), "{remarks:?}");
}

/// A wrong index must not change the events, unless it is reported.
#[test]
fn a_wrong_index() {
    let index = index_of(&stream(false));
    let (whole, said) = indexed(&index);
    assert_eq!((whole.len(), said.len()), (4, 1), "{said:?}");
    let check = |bad: &[u8], what: &str| {
        let (found, remarks) = indexed(bad);
        assert!(found == whole || remarks != said, "{what}: {found:#?}");
        assert!(
            found.iter().all(|line| whole.contains(line)) || remarks != said,
            "{what}: {found:#?}"
        );
    };
    for len in 0..index.len() {
        check(&index[..len], &format!("{len} bytes"));
    }
    for bit in 0..index.len() * 8 {
        let mut bad = index.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        check(&bad, &format!("bit {bit}"));
    }
    for at in (16..index.len()).step_by(8) {
        let now = u64::from_be_bytes(index[at..at + 8].try_into().expect("eight"));
        for edge in [
            0,
            1,
            7,
            8,
            now ^ 8,
            now.wrapping_add(8),
            now / 2,
            now.wrapping_mul(2),
            1 << 31,
            1 << 63,
            u64::MAX - 7,
            u64::MAX,
        ] {
            let mut bad = index.clone();
            bad[at..at + 8].copy_from_slice(&edge.to_be_bytes());
            check(&bad, &format!("{edge:#x} at {at}"));
        }
    }
}

//! The CTF reader on traces made here: what it prints is what babeltrace2 2.1.1 prints of them; what lies is refused with its
//! place, and nothing that is read wrongly makes it panic.

use lastwords_formats::ctf::{Version, read};
use lastwords_formats::select::Selection;
use lastwords_formats::text::Zone;
use lastwords_formats::text::ctf::{Note, print};
use std::path::Path;

/// Text, and remarks.
fn report(folder: &Path) -> (String, Vec<String>) {
    let mut remarks = Vec::new();
    let found = match read::open(folder) {
        Ok(found) => found,
        Err(e) => return (String::new(), vec![e.to_string()]),
    };
    remarks.extend(found.faults.iter().map(ToString::to_string));
    let mut readers = read::readers(&found.traces);
    let (selection, mut out) = (Selection::default(), Vec::new());
    let mut notes = |note: Note| match note {
        Note::Loss(text) => remarks.push(text),
        Note::Fault(fault) => remarks.push(fault.to_string()),
    };
    let printed = print(&found.traces, &mut readers, &selection, &Zone::utc(), &mut out, &mut notes);
    assert!(printed.failed.is_none(), "{:?}", printed.failed);
    assert_eq!(printed.events, out.iter().filter(|b| **b == b'\n').count() as u64, "a line for each event");
    (String::from_utf8_lossy(&out).into_owned(), remarks)
}

fn folder(metadata: &[u8], streams: &[(&str, &[u8])]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("metadata"), metadata).expect("written");
    for (name, bytes) in streams {
        std::fs::write(folder.path().join(name), bytes).expect("written");
    }
    folder
}

/// LTTng's shape: compact headers, a packet context, text, a sequence, an enumeration, a variant.
const TSDL: &str = r#"/* CTF 1.8 */
typealias integer { size = 8; align = 8; signed = false; } := uint8_t;
typealias integer { size = 16; align = 8; signed = false; } := uint16_t;
typealias integer { size = 32; align = 8; signed = false; } := uint32_t;
typealias integer { size = 64; align = 8; signed = false; } := uint64_t;
typealias integer { size = 5; align = 1; signed = false; } := uint5_t;
trace {
	major = 1; minor = 8; byte_order = ORDER;
	packet.header := struct { uint32_t magic; uint32_t stream_id; };
};
env { hostname = "box"; tracer_name = "own"; };
clock { name = mono; freq = 1000000000; offset_s = 1700000000; absolute = true; };
typealias integer { size = 27; align = 1; signed = false; map = clock.mono.value; } := uint27_clock_t;
typealias integer { size = 64; align = 8; signed = false; map = clock.mono.value; } := uint64_clock_t;
struct event_header {
	enum : uint5_t { compact = 0 ... 30, extended = 31 } id;
	variant <id> {
		struct { uint27_clock_t timestamp; } compact;
		struct { uint32_t id; uint64_clock_t timestamp; } extended;
	} v;
} align(8);
stream {
	id = 0;
	event.header := struct event_header;
	packet.context := struct {
		uint64_clock_t timestamp_begin; uint64_clock_t timestamp_end;
		uint64_t content_size; uint64_t packet_size; uint64_t events_discarded; uint32_t cpu_id;
	};
	event.context := struct { integer { size = 32; align = 8; signed = true; } _vtid; };
};
event { name = "a:ints"; id = 0; stream_id = 0; loglevel = 6;
	fields := struct {
		integer { size = 16; align = 8; signed = true; base = hex; } _h;
		integer { size = 8; align = 8; base = oct; } _o;
		integer { size = 4; align = 1; base = 2; } _b;
		integer { size = 12; align = 1; signed = true; } _odd;
		floating_point { exp_dig = 8; mant_dig = 24; align = 8; } _f;
	};
};
event { name = "a:text"; id = 1; stream_id = 0;
	fields := struct {
		string _s;
		uint16_t __n; integer { size = 8; align = 8; encoding = UTF8; } _t[ __n ];
		uint8_t _raw[2];
		enum : uint8_t { "one" = 1, low = 0 ... 3, far = 200 } _e;
		enum : uint8_t { num = 0, str = 1 } _tag;
		variant <_tag> { uint16_t num; string str; } _v;
	};
};
"#;

fn packet(order: bool, begin: u64, end: u64, discarded: u64, events: &[Vec<u8>], padding: usize) -> Vec<u8> {
    let u32b = |v: u32| if order { v.to_be_bytes() } else { v.to_le_bytes() };
    let u64b = |v: u64| if order { v.to_be_bytes() } else { v.to_le_bytes() };
    let content: usize = 52 + events.iter().map(Vec::len).sum::<usize>();
    let mut bytes = Vec::new();
    bytes.extend(u32b(0xc1fc_1fc1));
    bytes.extend(u32b(0));
    for value in [begin, end, 8 * content as u64, 8 * (content + padding) as u64, discarded] {
        bytes.extend(u64b(value));
    }
    bytes.extend(u32b(3));
    bytes.extend(events.iter().flatten());
    bytes.resize(content + padding, 0);
    bytes
}

fn compact(big: bool, id: u32, clock: u32) -> Vec<u8> {
    if big { (id << 27 | clock).to_be_bytes().to_vec() } else { (clock << 5 | id).to_le_bytes().to_vec() }
}

fn ints(big: bool, header: Vec<u8>) -> Vec<u8> {
    let mut event = header;
    let two = |v: i16| if big { v.to_be_bytes() } else { v.to_le_bytes() };
    event.extend(if big { 77i32.to_be_bytes() } else { 77i32.to_le_bytes() });
    event.extend(two(-2));
    event.push(8);
    // 4 bits of 0b0101, then 12 of -5.
    let odd = (-5i16).cast_unsigned() & 0xfff;
    event.extend(if big { (0b0101 << 12 | odd).to_be_bytes() } else { (odd << 4 | 0b0101).to_le_bytes() });
    event.extend(if big { 1.5f32.to_be_bytes() } else { 1.5f32.to_le_bytes() });
    event
}

fn text(big: bool, header: Vec<u8>, value: u8, tag: u8) -> Vec<u8> {
    let mut event = header;
    event.extend(if big { 7u32.to_be_bytes() } else { 7u32.to_le_bytes() });
    event.extend(b"say \"hi\"\n\0");
    event.extend(if big { 3u16.to_be_bytes() } else { 3u16.to_le_bytes() });
    event.extend(b"abc");
    event.extend([1, 255, value, tag]);
    if tag == 0 {
        event.extend(if big { 500u16.to_be_bytes() } else { 500u16.to_le_bytes() });
    } else {
        event.extend(b"opt\0");
    }
    event
}

fn extended(big: bool, id: u32, clock: u64) -> Vec<u8> {
    let mut header = vec![if big { 31 << 3 } else { 31 }];
    header.extend(if big { id.to_be_bytes() } else { id.to_le_bytes() });
    header.extend(if big { clock.to_be_bytes() } else { clock.to_le_bytes() });
    header
}

fn stream(big: bool) -> Vec<u8> {
    let wrapped = (1u64 << 27) + 5;
    let first = [
        ints(big, compact(big, 0, 100)),
        text(big, compact(big, 1, 5), 1, 0),
        text(big, extended(big, 1, wrapped + 1000), 9, 1),
    ];
    let mut bytes = packet(big, 90, wrapped + 2000, 0, &first, 12);
    bytes.extend(packet(big, wrapped + 3000, wrapped + 4000, 4, &[text(big, compact(big, 1, 3105), 200, 0)], 0));
    bytes
}

const SHOWN: &str = r#"[22:13:20.000000100] (+?.?????????) box a:ints: { cpu_id = 3 }, { vtid = 77 }, { h = 0xFFFE, o = 010, b = 0b0101, odd = -5, f = 1.5 }
[22:13:20.134217733] (+0.134217633) box a:text: { cpu_id = 3 }, { vtid = 7 }, { s = "say \"hi\"\n", _n = 3, t = "abc", raw = [ [0] = 1, [1] = 255 ], e = ( { "low", "one" } : container = 1 ), tag = ( "num" : container = 0 ), v = { 500 } }
[22:13:20.134218733] (+0.000001000) box a:text: { cpu_id = 3 }, { vtid = 7 }, { s = "say \"hi\"\n", _n = 3, t = "abc", raw = [ [0] = 1, [1] = 255 ], e = ( <unknown> : container = 9 ), tag = ( "str" : container = 1 ), v = { "opt" } }
[22:13:20.134220833] (+0.000002100) box a:text: { cpu_id = 3 }, { vtid = 7 }, { s = "say \"hi\"\n", _n = 3, t = "abc", raw = [ [0] = 1, [1] = 255 ], e = ( "far" : container = 200 ), tag = ( "num" : container = 0 ), v = { 500 } }
"#;

#[test]
fn tsdl_in_both_byte_orders() {
    for (big, order) in [(false, "le"), (true, "be")] {
        let metadata = TSDL.replace("ORDER", order);
        let folder = folder(metadata.as_bytes(), &[("chan_3", &stream(big))]);
        if let Some(keep) = std::env::var_os("LASTWORDS_KEEP_TRACES") {
            let to = Path::new(&keep).join(order);
            std::fs::create_dir_all(&to).expect("a folder");
            for file in ["metadata", "chan_3"] {
                std::fs::copy(folder.path().join(file), to.join(file)).expect("copied");
            }
        }
        let (text, remarks) = report(folder.path());
        assert_eq!(text, SHOWN, "{order}: {remarks:?}");
        assert!(
            matches!(remarks.as_slice(), [one] if one.starts_with("Tracer discarded 4 events between")),
            "{remarks:?}"
        );
    }
}

#[test]
fn metadata_in_packets() {
    let text = TSDL.replace("ORDER", "le");
    for big in [false, true] {
        let mut bytes = Vec::new();
        for part in text.as_bytes().chunks(1000) {
            let word = |v: u32| if big { v.to_be_bytes() } else { v.to_le_bytes() };
            bytes.extend(word(0x75d1_1d57));
            bytes.extend([9; 16]);
            bytes.extend(word(0));
            bytes.extend(word(8 * (37 + part.len() as u32)));
            bytes.extend(word(8 * 1100));
            bytes.extend([0, 0, 0, 1, 8]);
            bytes.extend(part);
            bytes.resize(bytes.len().next_multiple_of(1100), 0);
        }
        let folder = folder(&bytes, &[("chan_3", &stream(false))]);
        assert_eq!(report(folder.path()).0, SHOWN);
    }
}

#[test]
fn what_lies_is_refused_with_its_place() {
    let metadata = TSDL.replace("ORDER", "le");
    let mut bytes = stream(false);
    // The third event's variant has no option for a tag of 9.
    let at = bytes.windows(5).position(|w| w == b"\x01opt\0").expect("there");
    bytes[at] = 9;
    let folder_of = folder(metadata.as_bytes(), &[("chan_3", &bytes)]);
    let (text, remarks) = report(folder_of.path());
    let expected: String = SHOWN.lines().enumerate().filter(|(i, _)| *i != 2).map(|(_, l)| format!("{l}\n")).collect();
    // The delta is to the event that was printed before.
    let (wanted, got): (Vec<&str>, Vec<&str>) = (expected.lines().collect(), text.lines().collect());
    assert_eq!(got[..2], wanted[..2]);
    assert_eq!(got.len(), 3, "the next packet is read");
    let fault = remarks.iter().find(|r| r.contains("selector 9")).expect("a fault");
    assert!(fault.contains("chan_3: packet at offset 0x0: byte 0x"), "{fault}");
    for (wrong, says) in [
        ("size = 5;", "size = 65;"),
        ("struct event_header;", "struct nothing;"),
        ("_t[ __n ]", "_t[ __none ]"),
        ("variant <_tag>", "variant <_o>"),
        ("clock.mono.value", "clock.poly.value"),
        ("minor = 8;", "minor = 9;"),
        ("};\nenv", "env"),
    ] {
        let folder = folder(metadata.replace(wrong, says).as_bytes(), &[("chan_3", &stream(false))]);
        let (text, remarks) = report(folder.path());
        assert!(text.is_empty() && remarks.iter().any(|r| r.contains("metadata: line ")), "{says}: {text}{remarks:?}");
    }
}

/// Optional, boolean, BLOB, variable-length integers, UTF-16, a bit map, a dynamic array, with relative and absolute places.
const CTF2: &[&str] = &[
    r#"{"type":"preamble","version":2}"#,
    r#"{"type":"field-class-alias","name":"u8","field-class":{"type":"fixed-length-unsigned-integer","length":8,"byte-order":"little-endian","alignment":8}}"#,
    r#"{"type":"trace-class","environment":{"hostname":"box"}}"#,
    r#"{"type":"clock-class","id":"c","frequency":1000,"origin":"unix-epoch","offset-from-origin":{"seconds":10,"cycles":500}}"#,
    r#"{"type":"data-stream-class","id":0,"default-clock-class-id":"c","packet-context-field-class":{"type":"structure","member-classes":[{"name":"begin","field-class":{"type":"fixed-length-unsigned-integer","length":64,"byte-order":"big-endian","alignment":8,"roles":["default-clock-timestamp"]}}]},"event-record-header-field-class":{"type":"structure","member-classes":[{"name":"t","field-class":{"type":"variable-length-unsigned-integer","roles":["default-clock-timestamp"]}}]}}"#,
    r#"{"type":"event-record-class","id":0,"data-stream-class-id":0,"name":"e","payload-field-class":{"type":"structure","member-classes":[
        {"name":"there","field-class":{"type":"fixed-length-boolean","length":8,"byte-order":"little-endian","alignment":8}},
        {"name":"o","field-class":{"type":"optional","selector-field-location":{"path":["there"]},"field-class":"u8"}},
        {"name":"n","field-class":{"type":"variable-length-signed-integer"}},
        {"name":"len","field-class":"u8"},
        {"name":"b","field-class":{"type":"dynamic-length-blob","length-field-location":{"origin":"event-record-payload","path":["len"]}}},
        {"name":"w","field-class":{"type":"null-terminated-string","encoding":"utf-16le"}},
        {"name":"m","field-class":{"type":"fixed-length-bit-map","length":8,"byte-order":"big-endian","alignment":8,"flags":{"B":[[1,1]],"A":[[0,0],[4,7]]}}},
        {"name":"in","field-class":{"type":"structure","member-classes":[
            {"name":"k","field-class":{"type":"fixed-length-unsigned-integer","length":8,"byte-order":"little-endian","alignment":8,"mappings":{"z":[[2,9]],"a":[[0,1]]}}},
            {"name":"d","field-class":{"type":"dynamic-length-array","length-field-location":{"path":["k"]},"element-field-class":"u8"}},
            {"name":"v","field-class":{"type":"variant","selector-field-location":{"path":[null,"len"]},"options":[
                {"selector-field-ranges":[[0,1]],"field-class":"u8"},
                {"selector-field-ranges":[[2,2]],"field-class":{"type":"structure"}}]}}]}}
    ]}}"#,
];

fn ctf2_metadata() -> Vec<u8> {
    CTF2.iter().flat_map(|fragment| format!("\x1e{fragment}\n").into_bytes()).collect()
}

fn ctf2_stream() -> Vec<u8> {
    let mut bytes = 0u64.to_be_bytes().to_vec();
    bytes.extend([0xe8, 0x07]); // 1000
    bytes.extend([1, 42, 0x7b, 2, 0xca, 0xfe]); // there, o, n = -5, two bytes
    bytes.extend("é!".encode_utf16().chain([0]).flat_map(u16::to_le_bytes));
    bytes.extend([0b10_0010, 2, 6, 7]); // bits 1 and 5; k = 2, d = [6, 7], v of len 2: empty
    bytes.extend([0xe9, 0x07, 0, 0x80, 0x01, 0]); // 1001, not there, n = 128, no bytes
    bytes.extend([0, 0, 0, 0, 9]); // w, m, k = 0, v of len 0: 9
    bytes
}

const CTF2_SHOWN: &str = r#"[00:00:11.500000000] (+?.?????????) box e: { there = true, o = { 42 }, n = -5, len = 2, b = { ca fe }, w = "é!", m = 0x22 { "A", "B" }, in = { k = ( "z" : container = 2 ), d = [ [0] = 6, [1] = 7 ], v = { { } } } }
[00:00:11.501000000] (+0.001000000) box e: { there = false, o = <none>, n = 128, len = 0, b = { }, w = "", m = 0x0, in = { k = ( "a" : container = 0 ), d = [ ], v = { 9 } } }
"#;

#[test]
fn ctf2() {
    let folder = folder(&ctf2_metadata(), &[("s", &ctf2_stream())]);
    if let Some(keep) = std::env::var_os("LASTWORDS_KEEP_TRACES") {
        let to = Path::new(&keep).join("two");
        std::fs::create_dir_all(&to).expect("a folder");
        for file in ["metadata", "s"] {
            std::fs::copy(folder.path().join(file), to.join(file)).expect("copied");
        }
    }
    let (text, remarks) = report(folder.path());
    assert_eq!(text, CTF2_SHOWN, "{remarks:?}");
    assert!(remarks.is_empty(), "{remarks:?}");
}

#[test]
fn a_copy_is_the_same() {
    let metadata = TSDL.replace("ORDER", "le");
    let from = folder(metadata.as_bytes(), &[("chan_3", &stream(false))]);
    let found = read::open(from.path()).expect("opened");
    let to = tempfile::tempdir().expect("a folder");
    let out = to.path().join("out");
    let totals = read::copy(&found.traces, Version::V1_8, &out, &mut |fault| panic!("{fault}")).expect("copied");
    assert_eq!((totals.packets, totals.events, totals.faults), (2, 4, 0));
    for file in ["metadata", "chan_3"] {
        let read = |folder: &Path| std::fs::read(folder.join(file)).expect("read");
        assert_eq!(read(from.path()), read(&out), "{file}");
    }
    let two = to.path().join("two");
    read::copy(&found.traces, Version::V2, &two, &mut |fault| panic!("{fault}")).expect("copied");
    assert_eq!(report(&two).0, report(from.path()).0, "the other version says the same");
}

/// One word of metadata or one byte of a stream is another.
/// An event class whose fields stand on byte boundaries, and one whose text has its length in the packet's context.
const MORE: &str = r#"
event { name = "c:flat"; id = 2; stream_id = 0; fields := struct {
	uint64_t _n; string _s; integer { size = 16; align = 8; signed = true; base = hex; } _h;
	integer { size = 8; align = 8; encoding = UTF8; } _comm[6];
}; };
event { name = "c:far"; id = 3; stream_id = 0; fields := struct {
	integer { size = 8; align = 8; encoding = UTF8; } _far[ stream.packet.context.cpu_id ];
}; };
"#;

/// More than one thread's worth, of three streams, in packets larger than a window.
#[test]
fn large_traces_are_printed_in_order() {
    for big in [false, true] {
        let order = if big { "be" } else { "le" };
        let metadata = TSDL.replace("ORDER", order) + MORE;
        let (mut streams, mut wanted) = ([const { Vec::new() }; 3], String::new());
        for number in 0..40_000u64 {
            let (stream, clock) = ((number * number % 7 % 3) as usize, 1000 + number);
            let mut event = compact(big, 2 + (number % 5 == 0) as u32, clock as u32);
            event.extend(if big { 9u32.to_be_bytes() } else { 9u32.to_le_bytes() });
            let time = format!("[22:13:20.{clock:09}]");
            let delta = if number == 0 { "?.?????????" } else { "0.000000001" };
            let text = format!("number {number}");
            let fields = if number % 5 == 0 {
                event.extend(b"far");
                "far = \"far\"".to_owned()
            } else {
                event.extend(if big { number.to_be_bytes() } else { number.to_le_bytes() });
                event.extend(text.bytes().chain([0]));
                event.extend([0xff, 0xff]);
                event.extend(b"ab\0cde");
                format!("n = {number}, s = \"{text}\", h = 0xFFFF, comm = \"ab\"")
            };
            let name = if number % 5 == 0 { "far" } else { "flat" };
            wanted += &format!("{time} (+{delta}) box c:{name}: {{ cpu_id = 3 }}, {{ vtid = 9 }}, {{ {fields} }}\n");
            streams[stream].push((clock, event));
        }
        let files = streams.map(|events| {
            let (begin, end) = (events[0].0, events[events.len() - 1].0);
            packet(big, begin, end, 0, &events.into_iter().map(|(_, event)| event).collect::<Vec<_>>(), 0)
        });
        assert!(files.iter().map(Vec::len).sum::<usize>() > 1 << 20, "large enough for threads");
        let folder = folder(metadata.as_bytes(), &[("a", &files[0]), ("b", &files[1]), ("c", &files[2])]);
        let (shown, remarks) = report(folder.path());
        assert_eq!(remarks, [""; 0], "{order}");
        for (shown, wanted) in shown.lines().zip(wanted.lines()) {
            assert_eq!(shown, wanted, "{order}");
        }
        assert_eq!(shown.len(), wanted.len(), "{order}");
    }
}

#[test]
fn mutants_cost_no_panic() {
    let mut seed = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = move |bound: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % bound
    };
    let metadata = TSDL.replace("ORDER", "le").into_bytes();
    for round in 0..600 {
        let two = round % 2 == 0;
        let mut parts = if two { [ctf2_metadata(), ctf2_stream()] } else { [metadata.clone(), stream(false)] };
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

/// The lines of a stream's events without the time since the one before, and whether something is remarked.
fn lines(metadata: &str, stream: &[u8]) -> (Vec<String>, bool) {
    let folder = folder(metadata.as_bytes(), &[("s", stream)]);
    let (text, remarks) = report(folder.path());
    let without = |line: &str| {
        let (time, rest) = line.split_once(" (").unwrap_or((line, ""));
        format!("{time}{}", rest.split_once(')').map_or("", |rest| rest.1))
    };
    (text.lines().map(without).collect(), !remarks.is_empty())
}

/// Bytes of the first packet of [`stream`], and of a packet's header and context.
fn first_len(stream: &[u8]) -> usize {
    stream.windows(4).skip(4).position(|w| w == &stream[..4]).expect("a second packet") + 4
}
const HEAD: usize = 52;

#[test]
fn cut_anywhere() {
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
                "{len} bytes: nothing is said"
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
                assert_eq!(found.last(), whole.last(), "bit {bit}: the packet behind");
            }
        }
    }
}

#[test]
fn no_field_of_a_packet_kills() {
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
                let now = if big { u64::from_be_bytes(now) >> (64 - 8 * len) } else { u64::from_le_bytes(now) };
                for edge in edges(now.max(1)) {
                    let mut bad = stream.clone();
                    let raw = if big { (edge << (64 - 8 * len)).to_be_bytes() } else { edge.to_le_bytes() };
                    bad[field.clone()].copy_from_slice(&raw[..len]);
                    let (found, _) = lines(&metadata, &bad);
                    assert!(found.len() <= whole.len() + 64, "offset {at}, {edge:#x}");
                    assert!(packet == 0 || found.get(..3) == whole.get(..3), "offset {at}, {edge:#x}");
                }
            }
        }
    }
}

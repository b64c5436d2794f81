//! Handmade CTF traces, and functions that read them.

use lastwords_ctf::read;
use lastwords_render::events::Note;
use lastwords_render::select::Selection;
use lastwords_render::text::{self, Style, Zone};
use std::path::Path;
use std::sync::Arc;

/// Returns the text and the remarks of the traces in a folder.
pub fn report(folder: &Path) -> (String, Vec<String>) {
    let mut remarks = Vec::new();
    let found = match read::open(folder, &Arc::default()) {
        Ok(found) => found,
        Err(e) => return (String::new(), vec![e.to_string()]),
    };
    remarks.extend(found.faults.iter().map(ToString::to_string));
    let (selection, mut out) = (Selection::default(), Vec::new());
    let mut notes = |note: Note| match note {
        Note::Loss(_, text) => remarks.push(text),
        Note::Fault(fault) => remarks.push(fault.to_string()),
        Note::Remark(text) => remarks.push(text),
        Note::Read(..) => {}
    };
    let (zone, watch) = (Zone::utc(), &read::unwatched);
    let written = text::write(
        &found.traces,
        Style::Babeltrace,
        &selection,
        &zone,
        &mut out,
        watch,
        &mut notes,
    );
    assert_eq!(
        written.expect("text").events,
        out.iter().filter(|b| **b == b'\n').count() as u64,
        "a line for each event"
    );
    (String::from_utf8_lossy(&out).into_owned(), remarks)
}

pub fn folder(metadata: &[u8], streams: &[(&str, &[u8])]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("metadata"), metadata).expect("written");
    for (name, bytes) in streams {
        std::fs::write(folder.path().join(name), bytes).expect("written");
    }
    folder
}

/// A trace like LTTng's: compact headers, a packet context, text, a sequence, an enumeration, a
/// variant.
pub const TSDL: &str = r#"/* CTF 1.8 */
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

pub fn packet(
    order: bool,
    begin: u64,
    end: u64,
    discarded: u64,
    events: &[Vec<u8>],
    padding: usize,
) -> Vec<u8> {
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

pub fn compact(big: bool, id: u32, clock: u32) -> Vec<u8> {
    if big {
        (id << 27 | clock).to_be_bytes().to_vec()
    } else {
        (clock << 5 | id).to_le_bytes().to_vec()
    }
}

pub fn ints(big: bool, header: Vec<u8>) -> Vec<u8> {
    let mut event = header;
    let two = |v: i16| if big { v.to_be_bytes() } else { v.to_le_bytes() };
    event.extend(if big { 77i32.to_be_bytes() } else { 77i32.to_le_bytes() });
    event.extend(two(-2));
    event.push(8);
    // 4 bits with 0b0101, then 12 bits with -5.
    let odd = (-5i16).cast_unsigned() & 0xfff;
    event.extend(if big {
        (0b0101 << 12 | odd).to_be_bytes()
    } else {
        (odd << 4 | 0b0101).to_le_bytes()
    });
    event.extend(if big { 1.5f32.to_be_bytes() } else { 1.5f32.to_le_bytes() });
    event
}

pub fn text(big: bool, header: Vec<u8>, value: u8, tag: u8) -> Vec<u8> {
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

pub fn extended(big: bool, id: u32, clock: u64) -> Vec<u8> {
    let mut header = vec![if big { 31 << 3 } else { 31 }];
    header.extend(if big { id.to_be_bytes() } else { id.to_le_bytes() });
    header.extend(if big { clock.to_be_bytes() } else { clock.to_le_bytes() });
    header
}

pub fn stream(big: bool) -> Vec<u8> {
    let wrapped = (1u64 << 27) + 5;
    let first = [
        ints(big, compact(big, 0, 100)),
        text(big, compact(big, 1, 5), 1, 0),
        text(big, extended(big, 1, wrapped + 1000), 9, 1),
    ];
    let mut bytes = packet(big, 90, wrapped + 2000, 0, &first, 12);
    bytes.extend(packet(
        big,
        wrapped + 3000,
        wrapped + 4000,
        4,
        &[text(big, compact(big, 1, 3105), 200, 0)],
        0,
    ));
    bytes
}

/// Returns metadata of CTF 1.8 in packets.
pub fn metadata_packets(text: &[u8], big: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    for part in text.chunks(1000) {
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
    bytes
}

/// Optional, boolean, BLOB, variable-length integers, UTF-16, a bit map and a dynamic array, at
/// relative and absolute positions.
pub const CTF2: &[&str] = &[
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

pub fn ctf2_metadata() -> Vec<u8> {
    sequence(CTF2)
}

/// Returns metadata of CTF 2 with these fragments.
pub fn sequence(fragments: &[impl std::fmt::Display]) -> Vec<u8> {
    fragments.iter().flat_map(|fragment| format!("\x1e{fragment}\n").into_bytes()).collect()
}

pub fn ctf2_stream() -> Vec<u8> {
    let mut bytes = 0u64.to_be_bytes().to_vec();
    bytes.extend([0xe8, 0x07]); // 1000
    bytes.extend([1, 42, 0x7b, 2, 0xca, 0xfe]); // there, o, n = -5, two bytes
    bytes.extend("é!".encode_utf16().chain([0]).flat_map(u16::to_le_bytes));
    bytes.extend([0b10_0010, 2, 6, 7]); // bits 1 and 5; k = 2, d = [6, 7], v of len 2: empty
    bytes.extend([0xe9, 0x07, 0, 0x80, 0x01, 0]); // 1001, not there, n = 128, no bytes
    bytes.extend([0, 0, 0, 0, 9]); // w, m, k = 0, v of len 0: 9
    bytes
}

//! A CTF trace that is written here, by the specifications of CTF 1.8.3 and CTF 2.0, and the events
//! in it.

use super::event::{Event, Value, named};
use std::path::Path;

/// The clock's origin, in seconds from 1970.
pub(super) const ORIGIN: i128 = 1_700_000_000;
/// CPUs, each with a stream.
const CPUS: u32 = 2;
/// Packets of a stream.
const PACKETS: u64 = 3;
/// Events of a packet.
const EVENTS: u64 = 7;

const TSDL: &str = r#"/* CTF 1.8 */
typealias integer { size = 8; align = 8; signed = false; } := uint8_t;
typealias integer { size = 16; align = 8; signed = false; } := uint16_t;
typealias integer { size = 32; align = 8; signed = false; } := uint32_t;
typealias integer { size = 64; align = 8; signed = false; } := uint64_t;
typealias integer { size = 16; align = 8; signed = true; } := int16_t;
typealias integer { size = 32; align = 8; signed = true; } := int32_t;
typealias integer { size = 16; align = 8; signed = false; base = 16; } := hex_t;
typealias floating_point { exp_dig = 11; mant_dig = 53; align = 8; } := double_t;
trace { major = 1; minor = 8; byte_order = le; packet.header := struct { uint32_t magic; uint32_t stream_id; }; };
clock { name = made; freq = 1000000000; offset_s = 1700000000; absolute = true; };
typealias integer { size = 64; align = 8; signed = false; map = clock.made.value; } := stamp_t;
stream {
    id = 0;
    packet.context := struct {
        stamp_t timestamp_begin; stamp_t timestamp_end; uint64_t content_size; uint64_t packet_size;
        uint64_t events_discarded; uint32_t cpu_id;
    };
    event.header := struct { uint16_t id; stamp_t timestamp; };
    event.context := struct { int32_t queue; };
};
event {
    name = "made:mixed"; id = 0; stream_id = 0;
    fields := struct {
        int16_t small; double_t ratio; enum : uint8_t { idle, running = 3, other = 4 ... 9 } state; string text;
        uint16_t count; hex_t list[count]; uint8_t three[3]; struct { int32_t x; int32_t y; } point;
    };
};
event { name = "made:number"; id = 1; stream_id = 0; fields := struct { uint64_t n; }; };
"#;

/// The fragments of CTF 2. `u8` and the like stand for field classes.
const FRAGMENTS: &[&str] = &[
    r#"{"type":"preamble","version":2}"#,
    r#"{"type":"trace-class","packet-header-field-class":{"type":"structure","member-classes":[
        {"name":"magic","field-class":"u32:packet-magic-number"},{"name":"stream_id","field-class":"u32:data-stream-class-id"}]}}"#,
    r#"{"type":"clock-class","id":"made","name":"made","frequency":1000000000,"origin":"unix-epoch",
        "offset-from-origin":{"seconds":1700000000}}"#,
    r#"{"type":"data-stream-class","id":0,"default-clock-class-id":"made",
        "packet-context-field-class":{"type":"structure","member-classes":[
            {"name":"timestamp_begin","field-class":"u64:default-clock-timestamp"},
            {"name":"timestamp_end","field-class":"u64:packet-end-default-clock-timestamp"},
            {"name":"content_size","field-class":"u64:packet-content-length"},
            {"name":"packet_size","field-class":"u64:packet-total-length"},
            {"name":"events_discarded","field-class":"u64:discarded-event-record-counter-snapshot"},
            {"name":"cpu_id","field-class":"u32"}]},
        "event-record-header-field-class":{"type":"structure","member-classes":[
            {"name":"id","field-class":"u16:event-record-class-id"},
            {"name":"timestamp","field-class":"u64:default-clock-timestamp"}]},
        "event-record-common-context-field-class":{"type":"structure","member-classes":[{"name":"queue","field-class":"i32"}]}}"#,
    r#"{"type":"event-record-class","id":0,"data-stream-class-id":0,"name":"made:mixed",
        "payload-field-class":{"type":"structure","member-classes":[
            {"name":"small","field-class":"i16"},
            {"name":"ratio","field-class":{"type":"fixed-length-floating-point-number","length":64,"byte-order":"little-endian","alignment":8}},
            {"name":"state","field-class":{"type":"fixed-length-unsigned-integer","length":8,"byte-order":"little-endian","alignment":8,
                "mappings":{"idle":[[0,0]],"running":[[3,3]],"other":[[4,9]]}}},
            {"name":"text","field-class":{"type":"null-terminated-string"}},
            {"name":"count","field-class":"u16"},
            {"name":"list","field-class":{"type":"dynamic-length-array",
                "length-field-location":{"origin":"event-record-payload","path":["count"]},
                "element-field-class":{"type":"fixed-length-unsigned-integer","length":16,"byte-order":"little-endian","alignment":8,
                    "preferred-display-base":16}}},
            {"name":"three","field-class":{"type":"static-length-array","length":3,"element-field-class":"u8"}},
            {"name":"point","field-class":{"type":"structure","member-classes":[
                {"name":"x","field-class":"i32"},{"name":"y","field-class":"i32"}]}}]}}"#,
    r#"{"type":"event-record-class","id":1,"data-stream-class-id":0,"name":"made:number",
        "payload-field-class":{"type":"structure","member-classes":[{"name":"n","field-class":"u64"}]}}"#,
];

/// The metadata of CTF 2: each fragment behind a record separator, field classes in place of their
/// short words.
fn fragments() -> String {
    let mut text: String = FRAGMENTS.iter().map(|fragment| format!("\u{1e}{fragment}\n")).collect();
    for (letter, word) in [("u", "unsigned"), ("i", "signed")] {
        for size in [8, 16, 32, 64] {
            let class = format!(
                r#"{{"type":"fixed-length-{word}-integer","length":{size},"byte-order":"little-endian","alignment":8"#
            );
            text = text.replace(&format!("\"{letter}{size}\""), &format!("{class}}}"));
            while let Some((before, behind)) = text.split_once(&format!("\"{letter}{size}:")) {
                let (role, behind) = behind.split_once('"').expect("a role");
                text = format!(r#"{before}{class},"roles":["{role}"]}}{behind}"#);
            }
        }
    }
    text
}

/// Writes the trace into a new folder; its events. `lost`: events that the packets say were
/// discarded, on each CPU.
pub(crate) fn write(folder: &Path, version: u8, lost: u64) -> Vec<Event> {
    std::fs::create_dir(folder).unwrap();
    let metadata = if version == 1 { TSDL.to_owned() } else { fragments() };
    std::fs::write(folder.join("metadata"), metadata).unwrap();
    let mut events = Vec::new();
    for cpu in 0..CPUS {
        let mut stream = Vec::new();
        for packet in 0..PACKETS {
            let mut content = Vec::new();
            let first = packet * 100;
            for number in first..first + EVENTS {
                // Events of the two CPUs alternate.
                let clock = 1_000_000 + number * 1_000 + u64::from(cpu) * 300;
                events.push(event(&mut content, number, clock, cpu));
            }
            let (begin, end) = (1_000_000 + first * 1_000, 1_000_000 + (first + EVENTS) * 1_000);
            let length = 8 * (52 + content.len() as u64);
            let size = length + 64;
            let discarded = if packet == 0 { 0 } else { lost };
            stream.extend([0xc1fc_1fc1_u32.to_le_bytes(), 0u32.to_le_bytes()].concat());
            stream.extend([begin, end, length, size, discarded].map(u64::to_le_bytes).concat());
            stream.extend(cpu.to_le_bytes());
            stream.extend(content);
            stream.extend([0; 8]);
        }
        std::fs::write(folder.join(format!("stream_{cpu}")), stream).unwrap();
    }
    events
}

fn event(to: &mut Vec<u8>, number: u64, clock: u64, cpu: u32) -> Event {
    let is_mixed = number.is_multiple_of(3);
    let queue = i32::try_from(1000 + u64::from(cpu)).unwrap();
    to.extend(u16::from(!is_mixed).to_le_bytes());
    to.extend(clock.to_le_bytes());
    to.extend(queue.to_le_bytes());
    let event = |name: &str, fields| Event {
        ns: ORIGIN * 1_000_000_000 + i128::from(clock),
        cpu: Some(cpu),
        name: name.to_owned(),
        contexts: vec![named("queue", Value::Number(queue.into()))],
        fields,
    };
    if !is_mixed {
        to.extend(number.to_le_bytes());
        return event("made:number", vec![named("n", Value::Number(number.into()))]);
    }
    let short = u16::try_from(number).unwrap();
    let small = -i16::try_from(number).unwrap();
    let ratio = f64::from(short) / 4.0;
    let state = [0u8, 3, 7, 99][usize::from(short / 3 % 4)];
    let label = [Some("idle"), Some("running"), Some("other"), None][usize::from(short / 3 % 4)];
    let text = ["plain", "two words", "", "a \"quoted\" \\ text"][usize::from(short / 3 % 4)];
    let list: Vec<u16> = (0..short % 4).map(|n| n * 1000 + short).collect();
    let three = [1u8, 2, u8::try_from(short % 256).unwrap()];
    let point = [i32::from(short), -i32::from(short)];
    to.extend(small.to_le_bytes());
    to.extend(ratio.to_le_bytes());
    to.push(state);
    to.extend(text.bytes().chain([0]));
    to.extend(u16::try_from(list.len()).unwrap().to_le_bytes());
    list.iter().for_each(|n| to.extend(n.to_le_bytes()));
    to.extend(three);
    point.iter().for_each(|n| to.extend(n.to_le_bytes()));
    let point =
        [named("x", Value::Number(point[0].into())), named("y", Value::Number(point[1].into()))];
    event(
        "made:mixed",
        vec![
            named("small", Value::Number(small.into())),
            named("ratio", Value::Real(ratio)),
            named("state", Value::Label(label.map(str::to_owned), state.into())),
            named("text", Value::Text(text.to_owned())),
            named("count", Value::Number(list.len() as i128)),
            named("list", Value::List(list.iter().map(|n| Value::Number((*n).into())).collect())),
            named("three", Value::List(three.iter().map(|n| Value::Number((*n).into())).collect())),
            named("point", Value::Record(point.to_vec())),
        ],
    )
}

//! Parts of one CTF trace that are named one by one: snapshots that overlap.

use crate::support::Place;
use std::path::Path;

/// Events of a whole packet.
const EVENTS: u64 = 10;
const CPUS: u32 = 2;

/// An unsigned field.
fn field(bits: u32, name: &str) -> String {
    format!("integer {{ size = {bits}; align = 8; }} {name};")
}

/// A snapshot: of each packet its number and how many of its events were written. Event `n` has the
/// value `n` on CPU 0.
fn snapshot(folder: &Path, packets: &[(u64, u64)], numbered: bool) {
    std::fs::create_dir_all(folder).unwrap();
    let header = [field(32, "magic"), field(64, "stream_instance_id")].concat();
    let time = "integer { size = 64; align = 8; map = clock.c.value; }";
    let mut context = [field(64, "packet_size"), field(64, "content_size")].concat();
    context += &format!("{time} timestamp_begin; {time} timestamp_end;");
    context += &if numbered { field(64, "packet_seq_num") } else { String::new() };
    let metadata = format!(
        "/* CTF 1.8 */ trace {{ major = 1; minor = 8; byte_order = le; uuid = \"01234567-89ab-cdef-0123-456789abcdef\";
            packet.header := struct {{ {header} }}; }};
        clock {{ name = c; freq = 1000000000; absolute = TRUE; }};
        stream {{ packet.context := struct {{ {context} }}; event.header := struct {{ {time} timestamp; }}; }};
        event {{ name = e; fields := struct {{ {} }}; }};",
        field(64, "value")
    );
    std::fs::write(folder.join("metadata"), metadata).unwrap();
    for cpu in 0..u64::from(CPUS) {
        let mut bytes = Vec::new();
        for &(number, events) in packets {
            let values = (number * EVENTS..number * EVENTS + events)
                .map(|value| value * u64::from(CPUS) + cpu);
            let values: Vec<u64> = values.collect();
            let size =
                (4 + 8 + 4 * 8 + if numbered { 8 } else { 0 } + values.len() as u64 * 16) * 8;
            bytes.extend(0xc1fc_1fc1_u32.to_le_bytes());
            let mut words =
                vec![cpu, size, size, values[0] * 1000, values[values.len() - 1] * 1000];
            words.extend(numbered.then_some(number));
            words.extend(values.iter().flat_map(|value| [value * 1000, *value]));
            bytes.extend(words.into_iter().flat_map(u64::to_le_bytes));
        }
        std::fs::write(folder.join(format!("stream_{cpu}")), bytes).unwrap();
    }
}

/// The values in the lines of a text.
fn values(text: &str) -> Vec<u64> {
    let value = |line: &str| line.split_once("value = ")?.1.split_whitespace().next()?.parse().ok();
    text.lines().map(|line| value(line).unwrap_or_else(|| panic!("{line}"))).collect()
}

#[test]
fn snapshots_that_overlap_have_each_event_once() {
    for numbered in [false, true] {
        let place = Place::new();
        let whole = |numbers: std::ops::Range<u64>| {
            numbers.map(|number| (number, EVENTS)).collect::<Vec<_>>()
        };
        // The first ends in a packet that is not full yet, which the second has whole; the third
        // shares two with the second.
        let parts = [[whole(0..4), vec![(4, 3)]].concat(), whole(3..8), whole(6..9)];
        let folders = ["one/snapshot", "elsewhere/two/deeper", "three"];
        for (folder, packets) in folders.iter().zip(&parts) {
            snapshot(&place.at(folder), packets, numbered);
        }
        let all: Vec<u64> = (0..9 * EVENTS * u64::from(CPUS)).collect();
        for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2]].map(|order| order.map(|at| folders[at])) {
            let ran = place.run(&[&["report", "--strict"], &order[..]].concat());
            assert_eq!((ran.status, values(&ran.out)), (0, all.clone()), "{order:?}: {}", ran.err);
            assert_eq!(ran.err.matches(" is a part of the trace in ").count(), 2, "{}", ran.err);
            let report = place.json(&[&["inspect", "--json"], &order[..]].concat());
            assert_eq!(report["traces"].as_array().unwrap().len(), 1, "{report}");
            let _ = std::fs::remove_dir_all(place.at("out"));
            place.ok(&[&["convert", "-o", "out"], &order[..]].concat());
            assert_eq!(values(&place.ok(&["report", "out"])), all, "{order:?}");
        }
        // A folder and one in it, a snapshot twice.
        for words in [["one", "one/snapshot"], ["one/snapshot", "elsewhere/../one/snapshot"]] {
            let text = place.ok(&[&["report"], &words[..]].concat());
            assert_eq!(values(&text).len() as u64, (4 * EVENTS + 3) * u64::from(CPUS), "{words:?}");
        }
    }
}

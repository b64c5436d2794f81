//! Tests traces in several folders that have one UUID. They are parts of one trace, or the tracer
//! gives all traces the same UUID.

use crate::support::ctf::report;
use lastwords_ctf::read;
use lastwords_testkit::random::Random;
use std::sync::Arc;

/// Returns metadata with a fixed UUID whose events have fields of the given sizes in bytes, a
/// stream of these events, and the lines that must be shown.
fn trace(shapes: &[Vec<u64>], frequency: u64, rng: &mut Random) -> (String, Vec<u8>, Vec<String>) {
    let mut metadata = format!(
        "/* CTF 1.8 */ trace {{ major = 1; minor = 8; byte_order = le; uuid = \"01234567-89ab-cdef-0123-456789abcdef\"; }};
        clock {{ name = c; freq = {frequency}; }};
        stream {{ event.header := struct {{ integer {{ size = 8; align = 8; }} id;
            integer {{ size = 64; align = 8; map = clock.c.value; }} t; }}; }};"
    );
    for (id, shape) in shapes.iter().enumerate() {
        let fields: Vec<String> = (0..shape.len())
            .map(|n| format!("integer {{ size = {}; align = 8; }} _f{n};", 8 * shape[n]))
            .collect();
        metadata += &format!(
            "event {{ name = \"e{id}\"; id = {id}; fields := struct {{ {} }}; }};",
            fields.concat()
        );
    }
    let (mut bytes, mut shown) = (Vec::new(), Vec::new());
    for _ in 0..20 {
        let id = rng.below(shapes.len() as u64) as usize;
        let ticks = rng.below(1 << 20);
        bytes.push(id as u8);
        bytes.extend(ticks.to_le_bytes());
        let mut fields = Vec::new();
        for (n, size) in shapes[id].iter().enumerate() {
            let value = rng.bits() >> (64 - 8 * size);
            bytes.extend(&value.to_le_bytes()[..*size as usize]);
            fields.push(format!("f{n} = {value}"));
        }
        let nanoseconds = ticks as f64 * (1e9 / frequency as f64);
        let fields = if fields.is_empty() {
            "{ }".to_owned()
        } else {
            format!("{{ {} }}", fields.join(", "))
        };
        shown.push(format!("[00:00:{:012.9}] e{id}: {fields}", nanoseconds / 1e9));
    }
    (metadata, bytes, shown)
}

/// The folders have event classes that grow, or that differ in a field or in the clock. Each event
/// must be decoded with the metadata of its folder.
#[test]
fn traces_of_one_uuid_are_decoded_by_their_own_metadata() {
    for seed in 0..60 {
        let mut rng = Random(seed);
        let shapes: Vec<Vec<u64>> =
            (0..3).map(|_| (0..rng.below(4)).map(|_| *rng.pick(&[1, 2, 4, 8])).collect()).collect();
        let mut others = shapes.clone();
        let (mut frequency, mut is_part) = (1_000_000_000, true);
        match seed % 4 {
            0 => others.push(vec![1]),
            1 => {
                others[1].push(2);
                is_part = false;
            }
            2 => {
                others.push(vec![2]);
                others[0].push(1);
                is_part = false;
            }
            _ => {
                frequency = 1_000_000;
                is_part = false;
            }
        }
        let folder = tempfile::tempdir().expect("a folder");
        let mut wanted = Vec::new();
        let parts = [trace(&shapes, 1_000_000_000, &mut rng), trace(&others, frequency, &mut rng)];
        for (name, (metadata, stream, shown)) in ["one", "two"].iter().zip(parts) {
            let path = folder.path().join(name);
            std::fs::create_dir(&path).expect("made");
            std::fs::write(path.join("metadata"), metadata).expect("written");
            std::fs::write(path.join("stream"), stream).expect("written");
            wanted.extend(shown);
        }
        let traces = read::open(folder.path(), &Arc::default()).expect("opened").traces.len();
        assert_eq!(traces, if is_part { 1 } else { 2 }, "seed {seed}");
        let (text, remarks) = report(folder.path());
        assert_eq!(remarks, [""; 0], "seed {seed}");
        let line = |line: &str| {
            let (time, rest) = line.split_once(" (").expect("a time");
            let event =
                rest.split_once(": ").map_or("", |(head, _)| head.rsplit(' ').next().unwrap_or(""));
            format!("{time} {event}: {}", rest.split_once(": ").expect("fields").1)
        };
        let mut shown: Vec<String> = text.lines().map(line).collect();
        shown.sort();
        wanted.sort();
        assert_eq!(shown, wanted, "seed {seed}");
    }
}

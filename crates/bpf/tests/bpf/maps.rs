//! Programs, links, arrays and hash tables.

use crate::made::{Made, PER_CPU};
use lastwords_bpf::{Bpf, Content, Value};
use lastwords_testkit::btf::Writer;
use lastwords_testkit::random::Random;
use lastwords_testkit::text::Text as _;
use lastwords_trace::evidence::{Cause, Gap};

/// Returns the lines of all maps and programs, and the gaps.
fn text(made: &Made) -> (String, Vec<Gap>) {
    let kernel = made.clone().open();
    let mut bpf = Bpf::read(&kernel);
    let mut text = Vec::new();
    bpf.write(&str::to_owned, &mut text).unwrap();
    (String::from_utf8(text).unwrap(), bpf.evidence.gaps)
}

/// The types of a program: a structure with a bit field, an enumerator, text and a nested array.
fn types() -> (Vec<u8>, u32, u32) {
    let mut w = Writer::default();
    let [int, long] = [w.int("int", 4, true), w.int("unsigned long", 8, false)];
    let char = w.int("char", 1, true);
    let (name, pair) = (w.array(char, 8), w.array(int, 2));
    let state = w.enumeration("state", &[("IDLE", 0), ("BUSY", 2)]);
    let row = [
        ("count", long, 0),
        ("low", int, 64 | 3 << 24),
        ("state", state, 96),
        ("name", name, 128),
        ("pair", pair, 192),
    ];
    let row = w.composite(4, "row", 32, &row);
    let key = w.typedef("key_t", int);
    let row = w.typedef("row_t", row);
    (w.finish(&[]), key, row)
}

fn row(count: u64, low: u8, state: u32, name: &str, pair: [i32; 2]) -> Vec<u8> {
    let mut bytes = count.to_le_bytes().to_vec();
    bytes.extend([low, 0, 0, 0]);
    bytes.extend(state.to_le_bytes());
    let mut text = name.as_bytes().to_vec();
    text.resize(8, 0);
    bytes.extend(text);
    pair.iter().for_each(|number| bytes.extend(number.to_le_bytes()));
    bytes
}

#[test]
fn programs_with_their_maps_and_links() {
    let mut made = Made::default();
    let (_, map) = made.map(3, "jumps", [4, 4, 8], 128);
    let program = made.program(5, "on_switch", &[map]);
    made.program(99, "", &[]);
    made.link(7, program);
    let (text, gaps) = text(&made.finished());
    let expected = "program 1: tracepoint on_switch, tag a1b2c3d405060708, linked by perf_event, map 1\n\
                    program 2: 99, tag a1b2c3d405060708\n\
                    map 1: prog_array jumps, keys of 4 bytes, values of 4, at most 8\n  \
                    maps of this kind are not read\n";
    assert_eq!((text.as_str(), gaps.len()), (expected, 0), "{gaps:?}");
}

#[test]
fn arrays_by_their_types() {
    let mut made = Made::default();
    let (_, map) = made.map(2, "rows", [4, 32, 6], 80 + 6 * 32);
    made.memory.put_u32(map + 64, 32);
    made.memory.put(map + 80, &row(9, 0b101, 2, "first", [-1, 7]));
    made.memory.put(map + 80 + 5 * 32, &row(1, 0b011, 1, "\u{1}", [0, 0]));
    let (blob, key, value) = types();
    made.give_types(map, &blob, key, value);
    let (text, gaps) = text(&made.finished());
    let expected = "map 1: array rows, keys of 4 bytes, values of 32, at most 6\n  \
                    0: {count=9, low=-3, state=BUSY, name=\"first\", pair=[-1, 7]}\n  \
                    1 to 4: zero\n  \
                    5: {count=1, low=3, state=1, name=[1, 0, 0, 0, 0, 0, 0, 0], pair=[0, 0]}\n";
    assert_eq!((text.as_str(), gaps.len()), (expected, 0), "{gaps:?}");
}

/// The global variables of a program are an array with one element, a section.
#[test]
fn variables_of_a_program() {
    let mut w = Writer::default();
    let int = w.int("int", 4, true);
    let (one, two) = (w.kind(14, 0, "one", int, &[1]), w.kind(14, 0, "two", int, &[1]));
    let section = w.kind(15, 2, ".bss", 0, &[one, 0, 4, two, 4, 4]);
    let mut made = Made::default();
    let (_, map) = made.map(2, "prog.bss", [4, 8, 1], 88);
    made.memory.put_u32(map + 64, 8);
    made.memory.put(map + 80, &[5, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]);
    made.give_types(map, &w.finish(&[]), 0, section);
    text(&made.finished()).0.ends("  0: {one=5, two=-1}\n");
}

#[test]
fn values_of_each_cpu() {
    let mut made = Made::default();
    let (_, map) = made.map(6, "counts", [4, 8, 3], 80 + 3 * 8);
    for index in 0..3 {
        made.memory.put_u64(map + 80 + 8 * index, 0x100 + 8 * index);
        for (cpu, base) in (0..).zip(PER_CPU) {
            made.memory.put_u64(base + 0x100 + 8 * index, if index == 1 { 10 + cpu } else { 0 });
        }
    }
    let (text, gaps) = text(&made.finished());
    assert!(gaps.is_empty(), "{gaps:?}");
    let expected = "  0: 0000000000000000\n  1 CPU 0: 0a00000000000000\n  1 CPU 1: 0b00000000000000\n  2: 0000000000000000\n";
    text.ends(expected);
}

/// A table of four buckets: (bucket, key, value).
fn table(rows: &[(u64, u32, u64)]) -> (Made, Vec<u64>, u64) {
    let mut made = Made::default();
    let (_, map) = made.map(1, "flows", [4, 8, 100], 128);
    let buckets = made.room(64);
    made.memory.put_u64(map + 64, buckets);
    made.memory.put_u32(map + 72, 4);
    let mut last = [0, 1, 2, 3].map(|bucket| buckets + 16 * bucket);
    last.iter().zip(0..).for_each(|(at, n)| made.memory.put_u64(*at, n << 1 | 1));
    let mut entries = Vec::new();
    for (bucket, key, value) in rows {
        let entry = made.room(64);
        made.memory.put_u32(entry + 48, *key);
        made.memory.put_u64(entry + 56, *value);
        made.memory.put_u64(entry + 8, bucket << 1 | 1);
        made.memory.put_u64(last[*bucket as usize], entry + 8);
        last[*bucket as usize] = entry + 8;
        entries.push(entry);
    }
    (made.finished(), entries, buckets)
}

/// Returns the values of the only map.
fn values(made: &Made) -> (Vec<u64>, Vec<Gap>) {
    let kernel = made.clone().open();
    let mut bpf = Bpf::read(&kernel);
    let (map, mut values) = (bpf.maps[0].clone(), Vec::new());
    let take = &mut |content| {
        let Content::Entry(entry) = content else { panic!("{content:?}") };
        let Value::Bytes(bytes) = entry.value else { panic!("{entry:?}") };
        values.push(u64::from_le_bytes(bytes.try_into().unwrap()));
        Ok(())
    };
    assert!(bpf.content(&map, take).unwrap());
    (values, bpf.evidence.gaps)
}

#[test]
fn hash_tables_and_their_damage() {
    let (made, entries, buckets) =
        table(&[(0, 7, 70), (2, 8, 80), (2, 9, 90), (2, 10, 100), (3, 11, 110)]);
    assert_eq!(values(&made), (vec![70, 80, 90, 100, 110], Vec::new()));
    // A hole in a list costs the entries behind it, and nothing else.
    let mut holed = made.clone();
    holed.memory.drop(entries[2]);
    let (found, gaps) = values(&holed);
    assert_eq!(found, [70, 80, 110]);
    assert!(gaps.iter().all(|gap| gap.cause == Cause::Missing) && gaps.len() == 2, "{gaps:?}");
    assert!(gaps[1].place.contains(&format!("bucket 2 at {:#x}", buckets + 32)), "{gaps:?}");
    let mut looped = made;
    looped.memory.put_u64(entries[3] + 8, entries[1] + 8);
    let (found, gaps) = values(&looped);
    assert_eq!(found, [70, 80, 90, 100, 110]);
    assert!(gaps.len() == 1 && gaps[0].place.contains("loops at"), "{gaps:?}");
}

/// A kernel with one of each, and the address of an array with 300 elements.
fn all_kinds() -> (Made, u64) {
    let (mut made, ..) = table(&[(0, 7, 70), (2, 8, 80)]);
    let (_, rows) = made.map(2, "rows", [4, 32, 300], 80 + 300 * 32);
    made.memory.put_u32(rows + 64, 32);
    (0..300).for_each(|n| made.memory.put(rows + 80 + n * 32, &row(n + 1, 1, 0, "x", [1, 2])));
    let (blob, key, value) = types();
    made.give_types(rows, &blob, key, value);
    let (_, ring) = made.ring("ring", 4096);
    made.memory.put_u64(ring + 0x2000, 16);
    made.memory.put_u32(ring + 0x3000, 8);
    made.memory.put_u32(ring + 0x3004, 3);
    let program = made.program(5, "p", &[rows]);
    made.link(7, program);
    (made.finished(), rows)
}

/// Whatever page is missing or reads as zero, a loss is told or the text is the same. Of elements of
/// an array, nothing tells that they are not zero.
#[test]
fn every_page_may_be_missing() {
    let (made, rows) = all_kinds();
    let (whole, gaps) = text(&made);
    assert!(gaps.is_empty() && whole.contains("count=300,"), "{gaps:?}{whole}");
    let (mut costly, heap) = (0, 0xffff_8880_0000_0000..0xffff_8880_1000_0000u64);
    for page in made.memory.all().into_iter().filter(|page| heap.contains(page)) {
        let mut damaged = made.clone();
        damaged.memory.drop(page);
        let (text, gaps) = text(&damaged);
        assert!(text == whole || !gaps.is_empty(), "{page:#x}: {text}");
        costly += usize::from(text != whole);
        damaged.memory.put(page, &[0; 4096]);
        let (text, gaps) = super::maps::text(&damaged);
        let is_array = (rows..rows + 80 + 300 * 32).contains(&page);
        assert!(text == whole || !gaps.is_empty() || is_array, "{page:#x}: {text}");
    }
    assert!(costly > 10, "{costly}");
}

/// Numbers and addresses of an attacker: nothing fails, and the work ends.
#[test]
fn forged_numbers_do_no_harm() {
    let (made, _) = all_kinds();
    let pages = made.memory.all();
    let mut random = Random(1);
    for _ in 0..200 {
        let mut forged = made.clone();
        for _ in 0..=random.below(20) {
            let mut place = || *random.pick(&pages) + random.below(512) * 8;
            let (at, other) = (place(), place());
            let value = match random.below(4) {
                0 => u64::MAX,
                1 => 1 << random.below(64),
                2 => other + 2,
                _ => other,
            };
            forged.memory.put_u64(at, value);
        }
        let _ = text(&forged);
    }
}

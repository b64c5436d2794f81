//! Files that are made or damaged so that reading them would cost much.

use super::*;
use crate::Choice;
use crate::text::{Options, write_trace};
use lastwords_bytes::{Budget, Limits};
use lastwords_testkit::trace_dat::version_7;
use proptest::prelude::*;

/// Returns a file of version 7 with arbitrary sub-buffer sizes and CPU positions. It is flagged as
/// compressed unless it has no compression.
fn hostile_file(
    algorithm: &str,
    page_size: u32,
    buffers: &[Vec<(u64, u64)>],
    body: &[u8],
) -> Vec<u8> {
    version_7(algorithm, page_size, buffers, algorithm != "none", body)
}

/// Returns the bytes that the sub-buffers of a file take, the bytes that are written from them, and
/// the file's length.
fn cost(file: &[u8]) -> (u64, u64, u64) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("made-up.dat");
    std::fs::write(&path, file).unwrap();
    let Ok(read) = open(&path) else { return (0, 0, file.len() as u64) };
    assert!(read.evidence.notes.len() <= 1001);
    let cpus = read.arrays.iter().flat_map(|array| array.live.cpus());
    let bytes = cpus.map(|cpu| cpu.sub_buffers as u64 * u64::from(cpu.sub_buffer_size)).sum();
    let written = write(&folder.path().join("again.dat"), &read, &WriteOptions::default()).unwrap();
    (bytes, sum(&written).bytes, file.len() as u64)
}

#[test]
fn a_small_file_does_not_make_much_of_itself() {
    // These chunks have no bytes, but claim to expand to 16 MiB each.
    let pieces = [&1000u32.to_le_bytes()[..], &[0, 0, 0, 0, 0, 0, 0, 1].repeat(1000)].concat();
    let at = hostile_file("zstd", 4096, &[vec![(0, 0)]], &[]).len() as u64;
    for algorithm in ["zstd", "zlib"] {
        let (bytes, written, length) =
            cost(&hostile_file(algorithm, 4096, &[vec![(at, pieces.len() as u64)]], &pieces));
        assert!(bytes == 0 && written < 64 * length, "{bytes}, {written} of {length}");
    }
    // The cases are many CPUs and buffers that share one position, large sub-buffers, and both with
    // a byte for each.
    for (page_size, buffers, cpus, size) in [
        (4096, 1, 2000, 1 << 16),
        (u32::MAX, 1, 300, 1),
        (1 << 26, 40, 40, 1 << 12),
        (64, 3, 10, 1 << 16),
    ] {
        let places = vec![vec![(64, size); cpus]; buffers];
        let (bytes, written, length) =
            cost(&hostile_file("none", page_size, &places, &[7; 1 << 16]));
        assert!(bytes <= length, "{page_size}: {bytes} of {length}");
        assert!(
            written < if page_size == 64 { 4 } else { 128 } * length,
            "{page_size}: {written} of {length}"
        );
    }
}

/// Chunks that contain only zeros expand to a thousand times the size of the file.
#[test]
fn chunks_of_zeros_are_not_all_uncompressed() {
    let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
    std::io::Write::write_all(&mut zlib, &vec![0; 1 << 20]).unwrap();
    let packed = zlib.finish().unwrap();
    let piece =
        [&(packed.len() as u32).to_le_bytes()[..], &(1u32 << 20).to_le_bytes(), &packed].concat();
    let pieces = [&200u32.to_le_bytes()[..], &piece.repeat(200)].concat();
    let at = hostile_file("zlib", 4096, &[vec![(0, 0)]], &[]).len() as u64;
    let (bytes, written, length) =
        cost(&hostile_file("zlib", 4096, &[vec![(at, pieces.len() as u64)]], &pieces));
    let most = 64 * length + (64 << 20);
    assert!(
        bytes > most / 2 && bytes <= most && written <= most + length,
        "{bytes}, {written} of {length}"
    );
}

/// Returns a file of version 6 with this number of CPUs, options, and buffers that share a table
/// `behind` bytes after the options of the buffers. It ends with `end`.
fn version_6(cpus: u32, options: &[u8], buffers: u64, behind: u64, end: &[u8]) -> Vec<u8> {
    let head = b"6\0\0\x08\0\x10\0\0header_page\0";
    let mut file = [&MAGIC[..], head, &[0; 8], b"header_event\0", &[0; 8 + 4 * 4 + 8]].concat();
    file.extend([&cpus.to_le_bytes()[..], b"options  \0", options].concat());
    let table = (file.len() as u64 + buffers * 16 + behind).to_le_bytes();
    let option = [&id::BUFFER.to_le_bytes()[..], &10u32.to_le_bytes(), &table, b"x\0"].concat();
    (0..buffers).for_each(|_| file.extend(&option));
    file.extend([&id::DONE.to_le_bytes()[..], b"flyrecord\0", end].concat());
    file
}

/// A file of version 6 that has many CPUs, and many buffers without CPUs.
#[test]
fn buffers_without_cpus_are_not_counted_without_end() {
    let count =
        [&id::CPU_COUNT.to_le_bytes()[..], &4u32.to_le_bytes(), &u32::MAX.to_le_bytes()].concat();
    let end = [&[0; 16 + 4][..], b"flyrecord\0"].concat();
    let (_, written, length) = cost(&version_6(1, &count, 1000, 2 + 10 + 16, &end));
    assert!(written < 64 * length, "{written} of {length}");
}

/// A file of version 6 whose buffers share one table of CPUs.
#[test]
fn shared_tables_are_not_counted_without_end() {
    const CPUS: u32 = 1 << 16;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("many.dat");
    let refused = |buffers: u64, budget: Budget| {
        let table = vec![0; 16 * CPUS as usize];
        std::fs::write(&path, version_6(CPUS, &[], buffers, 2, &table)).unwrap();
        crate::dat::open(&path, &budget.into()).err().map(|error| error.to_string())
    };
    let many =
        |error: Option<String>| error.unwrap().contains("65536 more steps would exceed the limit");
    assert!(many(refused(1000, Budget::default())));
    // The caller's factor (`--budget`) and the caller's own limits are applied.
    assert!(many(refused(2, Budget::default())));
    assert_eq!(refused(2, Budget::default().times(3)), None);
    let small = Budget::new(Limits { bytes: 1 << 20, ..Limits::default() });
    assert!(refused(2, small).unwrap().contains("more bytes would exceed the limit"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn no_file_makes_much_of_itself(
        algorithm in prop::sample::select(vec!["none", "zstd", "zlib"]),
        page_size in prop_oneof![Just(0), Just(4096), any::<u32>()],
        buffers in prop::collection::vec(prop::collection::vec((0u64..1 << 15, 0u64..1 << 16), 0..40), 0..4),
        body in prop::collection::vec(prop_oneof![Just(0u8), Just(1), any::<u8>()], 0..1 << 14),
    ) {
        let file = hostile_file(algorithm, page_size, &buffers, &body);
        let (bytes, written, length) = cost(&file);
        let most = if algorithm == "none" { 1 } else { 1 << 15 };
        prop_assert!(bytes <= most * length, "{bytes} of {length}");
        // An empty CPU may begin at the next page.
        let cpus: u64 = buffers.iter().map(|places| places.len() as u64 + 1).sum();
        prop_assert!(written <= 64 * bytes + 128 * length + cpus * (1 << 20), "{written} of {length}");
    }

    #[test]
    fn damaged_files_neither_panic_nor_hang(version in 6u8..8, at in any::<prop::sample::Index>(), with in proptest::collection::vec(any::<u8>(), 1..16)) {
        let (folder, path) = written(version);
        let mut bytes = std::fs::read(&path).unwrap();
        // Descriptions precede the data; damage to them matters most.
        let at = at.index(bytes.len().min(8192));
        let end = (at + with.len()).min(bytes.len());
        bytes[at..end].copy_from_slice(&with[..end - at]);
        let damaged = folder.path().join("damaged.dat");
        std::fs::write(&damaged, &bytes).unwrap();
        if let Ok(read) = open(&damaged) {
            for array in 0..read.arrays.len() {
                let choice = Choice { last: Some(10), ..Choice::default() };
                let _ = write_trace(&mut Vec::new(), &read, array, &Options { choice, ..Options::default() });
            }
        }
    }
}

//! Tests of the reader of trace.dat with hostile files, cut files and flipped bits. The files are
//! the corpus of the fuzz target of that name: `whole-7` has 64 KiB.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::common::{Watchdog, parallel};
use lastwords_ftrace::dat;
use lastwords_ftrace::text::{Options, write_trace};
use lastwords_testkit::mutate::{EDGES, Field, Role};

/// Longest that one file may take.
const LIMIT: Duration = Duration::from_secs(10);
/// Bytes of a sub-buffer of the files.
const PAGE: usize = 4096;
/// Sub-buffers of the large files, at their ends.
const PAGES: usize = 13;
/// In CI one bit of so many is flipped; all with `LASTWORDS_ALL_BITS`.
const BITS_BETWEEN: usize = 67;

fn corpus(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/trace_dat");
    std::fs::read(folder.join(name)).expect("a file of the corpus")
}

/// A place for the files of one thread.
fn scratch() -> PathBuf {
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() };
    folder.join(format!("lastwords-dat-{}-{:?}", std::process::id(), std::thread::current().id()))
}

/// Lines of all events; none where the file is refused.
fn lines(bytes: &[u8]) -> Option<Vec<String>> {
    let path = scratch();
    std::fs::write(&path, bytes).expect("a scratch file");
    let opened = dat::open(&path, &Arc::default());
    let mut all = Vec::new();
    if let Ok(tracing) = &opened {
        for array in 0..tracing.arrays.len() {
            let mut out = Vec::new();
            let options = Options { no_header: true, ..Options::default() };
            write_trace(&mut out, tracing, array, &options).expect("text");
            all.extend(String::from_utf8_lossy(&out).lines().map(|line| format!("{array} {line}")));
        }
    }
    std::fs::remove_file(&path).expect("the scratch file");
    opened.is_ok().then_some(all)
}

#[test]
fn cut_at_every_length() {
    let watchdog = Watchdog::new("cut: trace.dat", LIMIT);
    for name in ["small-6", "small-7"] {
        let whole = corpus(name);
        let found = parallel(whole.len() as u64 + 1, |length| {
            watchdog.case(length);
            lines(&whole[..length as usize]).map_or(0, |lines| lines.len())
        });
        assert!(found.is_sorted_by_key(|(_, lines)| *lines), "{name}: fewer events of more bytes");
        let ends = [found.first(), found.last()].map(|found| found.copied());
        assert_eq!(ends, [Some((0, 0)), Some((whole.len() as u64, 6))], "{name}");
    }
}

#[test]
fn every_place_has_every_edge() {
    let watchdog = Watchdog::new("edges: trace.dat", LIMIT);
    let mut done = 0;
    for name in ["small-6", "small-7"] {
        let whole = corpus(name);
        // Descriptions, and the first bytes of each sub-buffer: headers, and the first events.
        let data = whole.len() - 4 * PAGE;
        let places: Vec<usize> =
            (0..whole.len() - 8).filter(|at| *at < data || at % PAGE < 64).collect();
        let mutants = places.len() as u64 * 3;
        parallel(mutants, |n| {
            watchdog.case(n);
            let at = places[(n / 3) as usize];
            let size = [1, 2, 4, 8][(at + n as usize) % 4];
            let mut bytes = whole.clone();
            let field =
                Field { name: String::new(), at, width: size, role: Role::Other, region: 0 };
            let mut now = [0; 8];
            now[..size].copy_from_slice(&whole[at..at + size]);
            let value =
                field.edge((at + n as usize) % EDGES, u64::from_le_bytes(now), whole.len() as u64);
            bytes[at..at + size].copy_from_slice(&value.to_le_bytes()[..size]);
            // Every other with a second wound: lengths and offsets lie together.
            if n % 2 == 1 {
                bytes[at + size..at + 8].fill(0xff);
            }
            lines(&bytes);
        });
        done += mutants;
    }
    assert!(done >= 20_000, "{done} mutants");
}

#[test]
fn each_bit_is_flipped() {
    let watchdog = Watchdog::new("bits: trace.dat", LIMIT);
    let whole = corpus("whole-7");
    assert_eq!(whole.len(), 64 << 10);
    let sound = lines(&whole).expect("a sound file");
    let data = whole.len() - PAGES * PAGE;
    // What each sub-buffer holds: the lines that are not there without it.
    let of_page: Vec<BTreeSet<String>> = (0..PAGES)
        .map(|page| {
            let mut without = whole.clone();
            without[data + page * PAGE..][..PAGE].fill(0xff);
            let left: BTreeSet<String> = lines(&without).expect("the others").into_iter().collect();
            sound.iter().filter(|line| !left.contains(*line)).cloned().collect()
        })
        .collect();
    assert!(of_page.iter().all(|lines| !lines.is_empty()), "a sub-buffer has no events");
    let step = if std::env::var_os("LASTWORDS_ALL_BITS").is_some() { 1 } else { BITS_BETWEEN };
    let bits: Vec<usize> = (0..whole.len() * 8).step_by(step).collect();
    parallel(bits.len() as u64, |n| {
        watchdog.case(n);
        let (at, bit) = (bits[n as usize] / 8, bits[n as usize] % 8);
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << bit;
        let found = lines(&bytes);
        if let Some(page) = at.checked_sub(data).map(|at| at / PAGE) {
            let found: BTreeSet<String> =
                found.expect("its descriptions are whole").into_iter().collect();
            // A message whose line feed rotted runs into the event behind it, in the kernel's text
            // too.
            let is_there = |line: &str| {
                found.contains(line) || found.iter().any(|whole| whole.ends_with(&line[2..]))
            };
            let lost = sound.iter().find(|line| !of_page[page].contains(*line) && !is_there(line));
            assert_eq!(lost, None, "bit {bit} of byte {at:#x} cost another sub-buffer's event");
        }
    });
}

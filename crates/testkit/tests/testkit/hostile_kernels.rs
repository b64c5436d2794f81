//! Tests of the readers of kernel memory with damaged and cut inputs: dumps of every container,
//! VMCOREINFO, page tables, kallsyms, BTF, the kernel's structures, print formats, ring pages. Each
//! reader is a fuzz target. The tests cut the files of its corpus, set words to edge values, and
//! flip bits. No reader may panic, hang, or allocate more than 256 MiB. With `LASTWORDS_ALL_BITS`,
//! every place gets every edge value, and every bit is flipped.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::common::{self, Watchdog};
use crate::targets;
use lastwords_testkit::mutate::{EDGES, Field, Role};

/// Longest that one input may take.
const LIMIT: Duration = Duration::from_secs(10);
/// The targets.
const NAMES: [&str; 6] = ["vmcore", "kernel_memory", "kernel", "btf", "print_format", "ring_page"];
/// Cuts of a file that has more bytes, and in CI.
const CUTS: usize = 4096;
const CUTS_IN_CI: usize = 1024;
/// In CI one bit of so many is flipped.
const BITS_BETWEEN: usize = 127;

/// An input of the corpus: where it stands, its target, its bytes.
struct Input {
    path: PathBuf,
    target: fn(&[u8]),
    bytes: Vec<u8>,
}

fn inputs() -> Vec<Input> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let mut all = Vec::new();
    for (name, target) in targets::ALL.iter().filter(|(name, _)| NAMES.contains(name)) {
        let entries = std::fs::read_dir(corpus.join(name)).expect("a corpus");
        let paths = entries.map(|entry| entry.expect("an entry").path());
        all.extend(paths.map(|path| Input {
            target: *target,
            bytes: std::fs::read(&path).expect("an input"),
            path,
        }));
    }
    all.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(all.len() >= 30, "{} inputs", all.len());
    all
}

fn is_long() -> bool {
    std::env::var_os("LASTWORDS_ALL_BITS").is_some()
}

/// Runs all cases: an input's index, and what is done to its bytes.
fn run<C: Sync>(
    name: &'static str,
    inputs: &[Input],
    cases: &[(usize, C)],
    change: impl Fn(&mut Vec<u8>, &C) + Sync,
) {
    let watchdog = Watchdog::new(name, LIMIT);
    common::parallel(cases.len() as u64, |n| {
        watchdog.case(n);
        let (index, case) = &cases[n as usize];
        let input = &inputs[*index];
        let mut bytes = input.bytes.clone();
        change(&mut bytes, case);
        let done = std::panic::catch_unwind(|| (input.target)(&bytes));
        assert!(done.is_ok(), "{name}: {} panics in case {n}", input.path.display());
    });
}

#[test]
fn cut() {
    let inputs = inputs();
    let mut cases = Vec::new();
    for (n, input) in inputs.iter().enumerate() {
        let step = input.bytes.len().div_ceil(if is_long() { CUTS } else { CUTS_IN_CI }).max(1);
        cases.extend((0..input.bytes.len()).step_by(step).map(|length| (n, length)));
    }
    assert!(cases.len() >= 4 * CUTS, "{} cuts", cases.len());
    run("cut: kernels", &inputs, &cases, |bytes, length| bytes.truncate(*length));
}

#[test]
fn every_place_has_every_edge() {
    let inputs = inputs();
    // Place, width, edge, and whether the bytes behind it are wounded too: lengths and offsets lie
    // together.
    let mut cases: Vec<(usize, (usize, usize, usize, bool))> = Vec::new();
    for (n, input) in inputs.iter().enumerate() {
        let mut count = 0;
        for at in 0..input.bytes.len().saturating_sub(16) {
            // Runs of one byte are no headers.
            if input.bytes[at..at + 8].windows(2).all(|pair| pair[0] == pair[1]) {
                continue;
            }
            let edges = if is_long() { EDGES } else { 1 };
            for edge in 0..edges {
                let width = [1, 2, 4, 8][count % 4];
                cases.push((n, (at, width, (count + edge) % EDGES, count % 3 == 0)));
                count += 1;
            }
        }
    }
    assert!(cases.len() >= 20_000, "{} mutants", cases.len());
    run("edges: kernels", &inputs, &cases, |bytes, (at, width, edge, second)| {
        let field =
            Field { name: String::new(), at: *at, width: *width, role: Role::Other, region: 0 };
        let mut now = [0; 8];
        now[..*width].copy_from_slice(&bytes[*at..*at + *width]);
        let value = field.edge(*edge, u64::from_le_bytes(now), bytes.len() as u64);
        bytes[*at..*at + *width].copy_from_slice(&value.to_le_bytes()[..*width]);
        if *second {
            bytes[*at + *width..*at + *width + 4].fill(0xff);
        }
    });
}

#[test]
fn bits_are_flipped() {
    let inputs = inputs();
    let step = if is_long() { 1 } else { BITS_BETWEEN };
    let mut cases = Vec::new();
    for (n, input) in inputs.iter().enumerate() {
        cases.extend((n % step..input.bytes.len() * 8).step_by(step).map(|bit| (n, bit)));
    }
    assert!(cases.len() * step >= 524_288, "{} bits", cases.len());
    run("bits: kernels", &inputs, &cases, |bytes, bit| bytes[bit / 8] ^= 1 << (bit % 8));
}

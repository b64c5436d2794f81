//! Tests what threads share with the process around them: the memory for their variables, and the
//! memory of a parent.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use super::{PREFIX, compile, program, run};

/// Largest size of the library's thread-local variables, in bytes. A library that is loaded late gets
/// them from 1,664 bytes that all late libraries share, in multiples of its alignment. The alignment
/// is 64, that of an area for restartable sequences on newer kernels, and the area has 64 bytes.
/// About 100 bytes are Rust's, 100 our own.
const MOST_TLS: u64 = 320;

/// The library leaves room for another one that is loaded late.
#[test]
fn loaded_late_beside_another_library() {
    let other =
        compile("cc", &["-std=c11", "-O2", "-shared", "-fPIC", "-DOTHER"], "tests/capi/c/beside.c");
    let host = compile("cc", &["-std=c11", "-Wl,--as-needed"], "tests/capi/c/beside.c");
    let ours = PREFIX.join("lib/liblastwords.so.0");
    let folder = tempfile::tempdir().expect("a folder");
    for libraries in [[&other, &ours], [&ours, &other]] {
        run(program(folder.path(), &host).args(libraries));
    }
    let segments = run(Command::new("readelf").arg("-lW").arg(&ours)).stdout;
    let segments = String::from_utf8_lossy(&segments).into_owned();
    let line = segments
        .lines()
        .find(|line| line.trim_start().starts_with("TLS"))
        .expect("a segment of threads");
    let size = line
        .split_whitespace()
        .nth(5)
        .and_then(|size| size.strip_prefix("0x"))
        .expect("its size in memory");
    let size = u64::from_str_radix(size, 16).expect("a number");
    assert!(size <= MOST_TLS, "{size} bytes");
}

/// The linker removes each function that is not used, with its thread-local variables, so that the
/// library of a release fits too: the parts of a restartable section share no ELF section with
/// those of another function, which would keep it. A descriptor has 32 bytes.
#[test]
fn descriptors_do_not_keep_other_functions() {
    let library = PREFIX.join("lib/liblastwords.a");
    let sections = run(Command::new("readelf").arg("-SW").arg(&library)).stdout;
    let sections = String::from_utf8_lossy(&sections).into_owned();
    let columns = sections.lines().filter_map(|line| line.split_once(" __rseq_cs "));
    let sizes: Vec<&str> =
        columns.filter_map(|(_, columns)| columns.split_whitespace().nth(3)).collect();
    assert!(sizes.len() > 1 && sizes.iter().all(|size| *size == "000020"), "{sizes:?}");
}

/// Returns the numbers that each recorder's events have, in the order of their clocks, and how many
/// events each recorded.
fn recorded(way: &str) -> (BTreeMap<u64, Vec<u64>>, [u64; 4]) {
    let folder = tempfile::tempdir().expect("a folder");
    let compiled = compile("cc", &["-std=c11", "-O2"], "tests/capi/c/vfork.c");
    let out = program(folder.path(), &compiled).arg(way).output().expect("it runs");
    let said = String::from_utf8(out.stdout).expect("text");
    let (session, counts) =
        said.split_once('\n').unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&out.stderr)));
    let counts: Vec<u64> =
        counts.split_whitespace().map(|count| count.parse().expect("a count")).collect();
    let session = &lastwords_testkit::naive::read(Path::new(session)).expect("readable")[0];
    let mut events = session.events();
    events.sort_by_key(|(_, event)| event.clock);
    let mut found = BTreeMap::<u64, Vec<u64>>::new();
    for (_, event) in events {
        // The thread's id is in front of the two numbers.
        let numbers = event.body.last_chunk::<16>().expect("two numbers").as_chunks::<8>().0;
        found
            .entry(u64::from_ne_bytes(numbers[0]))
            .or_default()
            .push(u64::from_ne_bytes(numbers[1]));
    }
    (found, counts.try_into().expect("four counts"))
}

/// The child of `vfork` runs in its parent's memory, where the kernel restarts none of its
/// sections.
#[test]
fn children_of_vfork() {
    for way in ["fork", "vfork"] {
        let (found, [first, second, children, main]) = recorded(way);
        for (who, count) in [(0, first), (1, second), (9, main), (100, children)] {
            let mut numbers = found.get(&who).cloned().unwrap_or_default();
            if who == 100 {
                // A child's clock is that of its CPU.
                numbers.sort_unstable();
            }
            let wrong = numbers.iter().zip(0..).position(|(number, n)| *number != n);
            assert_eq!((numbers.len() as u64, wrong), (count, None), "{way}, recorder {who}");
        }
    }
}

//! Runs a careless program in C and C++: wrong arguments, errno, signals, forks, threads that
//! record while sessions end, exceptions.

use std::collections::BTreeMap;
use std::path::Path;

use super::{compile, program, reported, run};

/// Compiles `hostile.c` as C, checked for undefined behaviour, and as C++, with optimisation of the
/// whole program.
fn programs() -> [std::path::PathBuf; 2] {
    let checked = ["-std=c11", "-O1", "-fsanitize=undefined", "-fno-sanitize-recover=all"];
    let whole = ["-x", "c++", "-std=c++11", "-O3", "-flto"];
    [("cc", &checked[..]), ("c++", &whole)]
        .map(|(compiler, flags)| compile(compiler, flags, "tests/capi/c/hostile.c"))
}

/// Returns how many events of each name a killed program left, and what it printed after its
/// folder.
fn left(compiled: &Path, what: &str) -> (BTreeMap<String, usize>, String) {
    let sessions = tempfile::tempdir().expect("a folder");
    let out = program(sessions.path(), compiled).arg(what).output().expect("it runs");
    let (said, complaint) =
        (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    let (folder, rest) = said.split_once('\n').unwrap_or_else(|| panic!("no folder: {complaint}"));
    let mut counts = BTreeMap::new();
    for line in reported(&[folder]) {
        let (name, _) = line.strip_prefix("h:").and_then(|rest| rest.split_once(':')).expect(&line);
        *counts.entry(name.to_owned()).or_default() += 1;
    }
    (counts, rest.trim().to_owned())
}

/// Wrong arguments are refused, choices are taken or refused, errno stays, and sessions end while
/// threads record.
#[test]
fn careless_programs_run() {
    for what in ["nulls", "choices", "errno", "ends"] {
        let sessions = tempfile::tempdir().expect("a folder");
        for compiled in programs() {
            run(program(sessions.path(), &compiled).arg(what));
        }
    }
}

#[test]
fn handlers_interrupt_and_children_record() {
    for compiled in programs() {
        let (counts, said) = left(&compiled, "interrupted");
        let (ticks, steps) = said.split_once(' ').expect("two numbers");
        let count = |name: &str| counts.get(name).copied().unwrap_or(0).to_string();
        assert_eq!((count("tick").as_str(), count("step").as_str()), (ticks, steps));
        assert_eq!(
            (count("child"), count("parent"), count("after the end")),
            ("10".into(), "1".into(), "0".into())
        );
        // An impossible length is never replaced by another one.
        assert_eq!(
            ["parts", "wrong", "far too long"].map(count),
            ["1", "0", "0"].map(str::to_owned)
        );
    }
}

#[test]
fn before_main_and_past_exceptions() {
    let (counts, _) = left(&programs()[1], "exceptions");
    let expected = [("caught".to_owned(), 3), ("constructor".to_owned(), 1)];
    assert_eq!(counts, BTreeMap::from(expected));
}

//! P12: what we write, as babeltrace2 reads it, event by event, against our own text.

mod support;

use lastwords_formats::ctf::{self, Version};
use lastwords_formats::select::Selection;
use lastwords_formats::text::{self, Style, Zone};
use std::path::{Path, PathBuf};
use support::Memory;
use support::random::{Limits, trace};
use support::tools::{Folder, babeltrace, babeltrace20, babeltrace21};

/// Random traces of each version: `LASTWORDS_TRACES`, else a number for every day.
fn traces() -> u64 {
    std::env::var("LASTWORDS_TRACES").ok().and_then(|n| n.parse().ok()).unwrap_or(150)
}

fn seeds() -> std::ops::Range<u64> {
    let first = std::env::var("LASTWORDS_SEED").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    first..first + traces()
}

fn our_text(source: &Memory, style: Style) -> Vec<u8> {
    let mut out = Vec::new();
    text::write(&[source], style, &Selection::default(), &Zone::utc(), &mut out, &mut |_| {}).expect("text");
    out
}

fn check(source: &Memory, folder: &Path, version: Version, program: &Path, what: &str) {
    let options = ctf::Options { version, count_events: false };
    ctf::write(source, folder, options, &mut |_| {}).unwrap_or_else(|e| panic!("{what}: {e}"));
    let printed = babeltrace(program, folder);
    assert!(printed.success, "{what}: babeltrace2 failed:\n{}", printed.err);
    assert_eq!(printed.err, "", "{what}: babeltrace2 complains");
    let style = if version == Version::V1_8 { Style::Babeltrace } else { Style::Babeltrace2 };
    let ours = our_text(source, style);
    if ours != printed.out {
        let (ours, theirs) = (String::from_utf8_lossy(&ours), String::from_utf8_lossy(&printed.out));
        let differs = ours.lines().zip(theirs.lines()).find(|(a, b)| a != b);
        let counts = (ours.lines().count(), theirs.lines().count());
        panic!("{what}: texts differ; lines {counts:?}; first ours and theirs:\n{differs:#?}");
    }
}

fn check_all(version: Version, program: PathBuf, limits: Limits) {
    for seed in seeds() {
        let folder = Folder::new();
        let source = trace(seed, limits);
        check(&source, &folder.0.join("trace"), version, &program, &format!("seed {seed}"));
    }
}

#[test]
fn ctf_1_8_prints_the_same() {
    let limits = Limits { unknown_labels: true, empty_text: false, several_labels: true };
    check_all(Version::V1_8, babeltrace20(), limits);
}

#[test]
fn ctf_1_8_prints_the_same_in_2_1() {
    let limits = Limits { unknown_labels: true, empty_text: true, several_labels: false };
    check_all(Version::V1_8, babeltrace21(), limits);
}

#[test]
fn ctf_2_prints_the_same() {
    let limits = Limits { unknown_labels: true, empty_text: true, several_labels: true };
    check_all(Version::V2, babeltrace21(), limits);
}

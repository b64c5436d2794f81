//! Compares our text with the text that babeltrace2 prints of the traces that we write, event by
//! event.

use crate::support::random::{Limits, trace};
use crate::support::tools::{babeltrace, babeltrace20, babeltrace21};
use crate::support::{Memory, read};
use lastwords_ctf::read::unwatched;
use lastwords_ctf::{Version, write as ctf};
use lastwords_render::Totals;
use lastwords_render::json;
use lastwords_render::perfetto;
use lastwords_render::select::Selection;
use lastwords_render::text::{self, Style, Zone};
use lastwords_testkit::random::{Random, setting};
use lastwords_trace::evidence::Verdict;
use std::path::{Path, PathBuf};

/// Returns the seeds of the random traces of each version.
fn seeds() -> std::ops::Range<u64> {
    let first = setting("LASTWORDS_SEED", 1);
    first..first + setting("LASTWORDS_TRACES", 300)
}

fn our_text(source: &Memory, style: Style, version: Version) -> (Vec<u8>, Totals) {
    let (mut out, traces) = (Vec::new(), read(source, version));
    let all = Selection::default();
    let written =
        text::write(&traces, style, &all, &Zone::utc(), &mut out, &unwatched, &mut |_| {});
    (out, written.expect("text"))
}

/// Sorts the labels of each value and removes the braces around them. babeltrace2 2.0 prints the
/// labels in the order of the metadata and without braces; 2.1 prints them in the order of a hash
/// table.
fn ordered(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let mut out = String::new();
    let mut rest = &*text;
    while let Some((before, behind)) = rest.split_once(" : container = ") {
        let (head, labels) = before.rsplit_once("( ").expect("labels");
        let labels = labels
            .strip_prefix("{ ")
            .and_then(|labels| labels.strip_suffix(" }"))
            .unwrap_or(labels);
        let mut labels: Vec<&str> = labels.split(", ").collect();
        labels.sort_unstable();
        out.push_str(&format!("{head}( {} : container = ", labels.join(", ")));
        rest = behind;
    }
    out + rest
}

fn check(source: &Memory, folder: &Path, version: Version, program: &Path, what: &str) {
    let written = ctf::write(source, folder, version, &unwatched)
        .unwrap_or_else(|e| panic!("{what}: {e}"))
        .events;
    let printed = babeltrace(program, folder);
    assert!(printed.success, "{what}: babeltrace2 failed:\n{}", printed.err);
    assert_eq!(printed.err, "", "{what}: babeltrace2 complains");
    let (ours, totals) = our_text(source, Style::Babeltrace, version);
    assert_eq!(totals.faults, 0, "{what}: the trace is whole");
    assert_eq!(written, totals.events, "{what}: events counted, and printed");
    let (ours, theirs) = (ordered(&ours), ordered(&printed.out));
    if ours != theirs {
        let differs = ours.lines().zip(theirs.lines()).find(|(a, b)| a != b);
        let counts = (ours.lines().count(), theirs.lines().count());
        panic!("{what}: texts differ; lines {counts:?}; first ours and theirs:\n{differs:#?}");
    }
}

fn check_all(version: Version, program: PathBuf, limits: Limits) {
    for seed in seeds() {
        let folder = tempfile::tempdir().expect("a folder");
        let source = trace(seed, Limits { big: seed % 3 == 0, ..limits });
        check(&source, &folder.path().join("trace"), version, &program, &format!("seed {seed}"));
    }
}

#[test]
fn ctf_1_8_prints_the_same() {
    let limits =
        Limits { unknown_labels: true, empty_text: false, several_labels: true, big: false };
    check_all(Version::V1_8, babeltrace20(), limits);
}

#[test]
fn ctf_1_8_prints_the_same_in_2_1() {
    let limits =
        Limits { unknown_labels: true, empty_text: true, several_labels: false, big: false };
    check_all(Version::V1_8, babeltrace21(), limits);
}

#[test]
fn ctf_2_prints_the_same() {
    let limits =
        Limits { unknown_labels: true, empty_text: true, several_labels: false, big: false };
    check_all(Version::V2, babeltrace21(), limits);
}

/// Damages bytes, facts and lengths of packets of a trace.
fn damage(source: &mut Memory, r: &mut Random) {
    for (info, bytes) in source.packets.iter_mut().flatten() {
        info.verdict = Verdict::Invalid;
        for _ in 0..r.below(6) {
            let at = r.below(bytes.len() as u64) as usize;
            bytes[at] = *r.pick(&[0, 0xFF, 0x7F, 0x80, 1, 29, 30, 31]);
        }
        if r.one_in(4) {
            bytes.truncate(r.below(bytes.len() as u64) as usize);
        }
        let edges = [0, 1, u64::MAX, i64::MAX as u64, 1 << 63, info.begin, info.end];
        match r.below(12) {
            0 => info.begin = *r.pick(&edges),
            1 => info.end = *r.pick(&edges),
            2 => info.sequence = *r.pick(&edges),
            3 => info.discarded = *r.pick(&edges),
            4 => info.events_at = *r.pick(&edges) as usize,
            _ => {}
        }
    }
}

/// Whatever the packets contain, the writer must write a trace that can be read without errors and
/// has all counted events.
#[test]
fn damaged_packets_make_a_whole_trace() {
    let limits =
        Limits { unknown_labels: true, empty_text: true, several_labels: true, big: false };
    for seed in seeds() {
        let mut source = trace(seed, Limits { big: seed % 3 == 0, ..limits });
        damage(&mut source, &mut Random(!seed));
        for (version, program) in [(Version::V1_8, babeltrace20()), (Version::V2, babeltrace21())] {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("trace");
            let totals = ctf::write(&source, &path, version, &unwatched).expect("CTF");
            let printed = babeltrace(&program, &path);
            assert!(printed.success, "seed {seed}: babeltrace2 failed:\n{}", printed.err);
            let complaint = printed.err.lines().find(|line| !line.contains("WARNING: Tracer "));
            assert_eq!(complaint, None, "seed {seed}");
            let lines = printed.out.iter().filter(|b| **b == b'\n').count() as u64;
            assert_eq!(lines, totals.events, "seed {seed}");
        }
        for version in [Version::V1_8, Version::V2] {
            for style in [Style::Babeltrace, Style::Ftrace, Style::Fields, Style::Raw] {
                our_text(&source, style, version);
            }
        }
        let (all, traces) = (Selection::default(), read(&source, Version::V2));
        json::write(&traces, &all, &mut std::io::sink(), &unwatched, &mut |_| {}).expect("JSON");
        perfetto::write((&traces, None, &[]), &all, &mut std::io::sink(), &unwatched, &mut |_| {})
            .expect("Perfetto");
    }
}

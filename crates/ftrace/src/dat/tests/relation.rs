//! Files of a host and its guest, and those of `trace-cmd report` for both.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::dat::tests::open;
use crate::dat::{Guest, Relation, Shift, ShiftSample, WriteOptions, write};
use crate::samples::*;
use crate::text::{Options, write_trace};
use crate::{Stats, Tracing};

const HOST: u64 = 0x1122_3344_5566_7788;
const GUEST: u64 = 0x99aa_bbcc_ddee_ff00;

/// Returns the file and the time of each line that `trace-cmd report` prints for these files.
fn by_trace_cmd(files: &[&Path]) -> Vec<(String, String)> {
    let mut command = Command::new("trace-cmd");
    command.arg("report");
    files.iter().for_each(|file| _ = command.arg("-i").arg(file));
    let shown = command.output().expect("trace-cmd is needed: cargo xtask setup");
    let text = String::from_utf8_lossy(&shown.stdout).into_owned();
    let line = |line: &str| {
        let (file, rest) = line.split_once(": ").filter(|(file, _)| file.contains(".dat"))?;
        Some((file.trim().to_owned(), time(rest)?))
    };
    text.lines().filter_map(line).collect()
}

fn time(line: &str) -> Option<String> {
    Some(line.split_once(": ")?.0.rsplit_once(' ')?.1.to_owned())
}

/// Returns the times that this library prints for a file.
fn by_us(file: &Path) -> Vec<String> {
    let mut out = Vec::new();
    let options = Options { no_header: true, ..Options::default() };
    write_trace(&mut out, &open(file).unwrap(), 0, &options).unwrap();
    String::from_utf8(out).unwrap().lines().filter_map(time).collect()
}

/// Returns a machine with two CPUs that have an event each microsecond in turn.
fn machine(begin: u64) -> Tracing {
    let lane = |begin: u64| {
        let events: Vec<_> = (begin..).step_by(2000).map(|time| (time, wake(7))).take(50).collect();
        events.chunks(40).map(|events| page(events, None)).collect::<Vec<_>>()
    };
    let stats = Stats { entries: 50, ..Stats::default() };
    alone(vec![lane(begin), lane(begin + 1000)], stats)
}

fn save(path: PathBuf, machine: &Tracing, version: u8, relation: Relation) -> PathBuf {
    let relation = Some(relation);
    let options = WriteOptions { version: Some(version), relation, ..WriteOptions::default() };
    write(&path, machine, &options).unwrap();
    path
}

/// Guests that booted before and after their host, and whose clock has one measurement or several.
#[test]
fn a_guest_is_shown_by_the_clock_of_its_host() {
    const BEGIN: u64 = 5_000_000_000_000;
    let folder = tempfile::tempdir().unwrap();
    let sample = |time: u64, offset: i64| ShiftSample { time, offset };
    let offset = |own: u64| BEGIN.cast_signed() - own.cast_signed() + 500;
    for (number, own) in [1_000_000u64, 9_999_000_000_000].into_iter().enumerate() {
        let (first, last) =
            (sample(own - 10, offset(own)), sample(own + 101_000, offset(own) + 100));
        for samples in [vec![first], vec![first, last]] {
            for version in [6, 7] {
                let name = |of: &str| {
                    folder.path().join(format!("{of}-{number}-{}-{version}.dat", samples.len()))
                };
                let guests = vec![Guest { name: "web".into(), trace_id: GUEST }];
                let of_host = Relation { trace_id: HOST, guests, ..Relation::default() };
                let host = save(name("host"), &machine(BEGIN), version, of_host);
                let shift = Some(Shift { host: HOST, samples: samples.clone() });
                let of_guest = Relation { trace_id: GUEST, shift, ..Relation::default() };
                let guest = save(name("guest"), &machine(own), version, of_guest);
                for file in [&host, &guest] {
                    assert_eq!(open(file).unwrap().times_of, Some(HOST));
                }
                let theirs = by_trace_cmd(&[&host, &guest]);
                assert_eq!(theirs.len(), 200, "{theirs:?}");
                // The events of the two lie half a microsecond apart.
                let of = |file: &Path| -> Vec<String> {
                    let file = file.file_name().unwrap().to_str().unwrap();
                    let own = theirs.iter().filter(|(from, _)| from.ends_with(file));
                    own.map(|(_, time)| time.clone()).collect()
                };
                assert!(
                    theirs.chunks(2).all(|pair| pair[0].0 != pair[1].0),
                    "{version}: {theirs:?}"
                );
                assert_eq!([by_us(&host), by_us(&guest)], [of(&host), of(&guest)]);
            }
        }
    }
}

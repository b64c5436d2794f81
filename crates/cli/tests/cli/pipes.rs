//! Readers who have gone away, and outputs that cannot be written: the work is done, and the exit
//! status is that of the work.

use crate::child::start;
use crate::support::{Place, entries, folders, ran, small};
use std::fs::File;
use std::process::Stdio;

/// A pipe whose reader has left.
fn closed() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

/// A file that is always full.
fn full() -> Stdio {
    File::options().write(true).open("/dev/full").unwrap().into()
}

/// Three sessions, the second of which has lost its data.
fn three() -> Place {
    let place = Place::new();
    for (number, name) in ["a", "b", "c"].iter().enumerate() {
        small(&place, &format!("sessions/{name}-0001020304050607"), number as u8);
    }
    let stream = place.at("sessions/b-0001020304050607/stream-0");
    File::options().write(true).open(stream).unwrap().set_len(4096).unwrap();
    place
}

fn status(place: &Place, args: &[&str], out: Stdio, err: Stdio) -> i32 {
    let output = place.command().args(args).stdout(out).stderr(err).output().unwrap();
    ran(output).status
}

#[test]
fn all_is_written_though_nobody_reads_of_it() {
    let place = three();
    for (out, stdout, expected) in [("1", closed(), 0), ("2", full(), 1)] {
        assert_eq!(
            status(&place, &["recover", "sessions", "-o", out], stdout, Stdio::null()),
            expected
        );
        assert_eq!(entries(&place.at(out)).len(), 3, "{out}");
    }
    for (out, streams) in [
        ("3", [closed(), Stdio::null()]),
        ("4", [Stdio::null(), closed()]),
        ("5", [closed(), full()]),
    ] {
        let [stdout, stderr] = streams;
        let args = ["recover", "--strict", "sessions", "-o", out];
        assert_eq!(status(&place, &args, stdout, stderr), 3, "{out}");
        assert_eq!(entries(&place.at(out)).len(), 3, "{out}");
    }
}

#[test]
fn a_help_that_is_not_written_is_an_error() {
    let place = Place::new();
    for args in [&["--help"][..], &["--version"], &["help", "report"], &["list", "-h"]] {
        assert_eq!(status(&place, args, full(), Stdio::null()), 1, "{args:?}");
        assert_eq!(status(&place, args, closed(), Stdio::null()), 0, "{args:?}");
        assert_eq!(status(&place, args, Stdio::null(), Stdio::null()), 0, "{args:?}");
    }
    assert_eq!(status(&place, &["no-verb"], full(), Stdio::null()), 2);
}

#[test]
fn all_are_destroyed_though_nobody_reads_of_it() {
    let place = Place::new();
    for _ in 0..2 {
        start(&place, "shm", "wait").kill();
        std::fs::remove_file(place.at("ready")).unwrap();
    }
    // By their folders: what else is left over on the machine is not this test's.
    let all = folders(&place.sessions());
    let named: Vec<String> = all.iter().map(|path| path.to_str().unwrap().to_owned()).collect();
    assert_eq!(named.len(), 2);
    assert_eq!(status(&place, &["destroy", &named[0], &named[1]], closed(), Stdio::null()), 0);
    assert!(folders(&place.sessions()).is_empty());
}

#[test]
fn the_status_of_a_report_stands() {
    let place = three();
    let lossy = "sessions/b-0001020304050607";
    for (out, err) in [
        (Stdio::null(), closed()),
        (Stdio::null(), full()),
        (closed(), Stdio::null()),
        (closed(), closed()),
    ] {
        assert_eq!(status(&place, &["report", "--strict", lossy], out, err), 3);
    }
    assert_eq!(status(&place, &["report", lossy], Stdio::null(), full()), 0);
    assert_eq!(status(&place, &["report", "nofile"], Stdio::null(), full()), 1);
    assert_eq!(status(&place, &["report", "nofile"], Stdio::null(), closed()), 1);
    for verb in [&["inspect", lossy][..], &["report", lossy], &["list"], &["doctor", "--json"]] {
        assert_eq!(status(&place, verb, full(), Stdio::null()), 1, "{verb:?} on a full stdout");
    }
}

//! Clocks that nothing relates to real time, in a merge and under a filter by time.

use crate::support::{Place, small, trace_dat};
use std::path::Path;

/// A folder of CTF with ten events, one a second from `from` on, by a clock of such members.
fn ctf(folder: &Path, clock: &str, from: u64) {
    std::fs::create_dir_all(folder).unwrap();
    let metadata = format!(
        "/* CTF 1.8 */ trace {{ major = 1; minor = 8; byte_order = le; }};
        clock {{ name = mono; freq = 1000000000; {clock} }};
        stream {{ event.header := struct {{ integer {{ size = 64; align = 8; map = clock.mono.value; }} timestamp; }}; }};
        event {{ name = e; fields := struct {{ }}; }};"
    );
    std::fs::write(folder.join("metadata"), metadata).unwrap();
    let times = (from..from + 10).flat_map(|second| (second * 1_000_000_000).to_le_bytes());
    std::fs::write(folder.join("stream"), times.collect::<Vec<u8>>()).unwrap();
}

#[test]
fn a_merge_by_a_clock_of_unknown_origin_is_told() {
    let place = Place::new();
    small(&place, "a", 0);
    ctf(&place.at("unknown"), "", 100);
    ctf(&place.at("shared"), "uuid = \"01234567-89ab-cdef-0123-456789abcdef\";", 100);
    ctf(&place.at("same"), "uuid = \"01234567-89ab-cdef-0123-456789abcdef\";", 105);
    ctf(&place.at("offset"), "offset_s = 1700000000;", 100);
    ctf(&place.at("epoch"), "absolute = TRUE;", 1_700_000_000);
    let told = |args: &[&str]| {
        let ran = place.run(args);
        ran.has_status(0);
        ran.err.matches("the relation of its clock mono to real time is not known").count()
    };
    for inputs in [["unknown", "a"], ["epoch", "unknown"], ["shared", "offset"]] {
        assert_eq!(told(&["report", inputs[0], inputs[1]]), 1, "{inputs:?}");
        assert_eq!(
            told(&["convert", inputs[0], inputs[1], "-o", "-", "--to", "json"]),
            1,
            "{inputs:?}"
        );
    }
    // Both count from the same, or from the epoch, or there is one.
    for inputs in [&["shared", "same"][..], &["offset", "a"], &["epoch", "a"], &["unknown"]] {
        assert_eq!(told(&[&["report"], inputs].concat()), 0, "{inputs:?}");
    }
}

#[test]
fn a_date_is_refused_where_a_clock_is_not_related_to_it() {
    let place = Place::new();
    small(&place, "a", 0);
    std::fs::copy(trace_dat("small-7"), place.at("k.dat")).unwrap();
    ctf(&place.at("unknown"), "", 100);
    ctf(&place.at("epoch"), "absolute = TRUE;", 1_700_000_000);
    for input in [&["unknown"][..], &["k.dat"], &["a", "k.dat"], &["unknown", "a"]] {
        for moment in ["2023-11-14T22:13:25Z", "2023-11-14 22:13:25", "22:13:25"] {
            for option in ["--since", "--until"] {
                let ran = place.run(&[&["report"], input, &[option, moment]].concat());
                ran.has_status(1).prints_nothing();
                ran.says("to real time, so that a date").says("-2s");
            }
        }
    }
    let lines = |args: &[&str]| place.ok(&[&["report"], args].concat()).lines().count();
    assert_eq!(lines(&["epoch", "--since", "2023-11-14T22:13:25Z"]), 5);
    // Seconds as they are printed are accepted, and so are seconds before the newest event if there
    // is only one clock.
    assert_eq!(lines(&["unknown", "--since", "105"]), 5);
    assert_eq!(lines(&["unknown", "--since", "-2s"]), 3);
    let ran = place.run(&["report", "unknown", "a", "--since", "-2s"]);
    ran.has_status(1).says("the newest event of all is not known: name it alone");
}

/// Lines of a kernel and of an application on one timeline begin with times of one form: the time
/// of day. What follows is the kernel's own text.
#[test]
fn a_merge_has_times_of_one_form() {
    let place = Place::new();
    small(&place, "a", 0);
    let mut kernel = std::fs::read(trace_dat("small-7")).unwrap();
    // In place of the option with the writer's version, one with the time at which the kernel's
    // clock was zero: 1,700,000,000 s, in microseconds.
    let (version, date) =
        (b"\x09\0\x10\0\0\0lastwords 0.1.0\0", b"\x01\0\x10\0\0\x000x60a24181e4000\0");
    let at = kernel.windows(version.len()).position(|part| part == version).expect("the option");
    kernel[at..at + date.len()].copy_from_slice(date);
    std::fs::write(place.at("k.dat"), kernel).unwrap();
    let alone = place.ok(&["report", "k.dat"]);
    let merged = place.ok(&["report", "a", "k.dat", "--utc"]);
    let events: Vec<&str> = alone.lines().filter(|line| !line.starts_with('#')).collect();
    assert!(!events.is_empty());
    for line in events {
        let head = line.split(": ").next().and_then(|head| head.rsplit(' ').next()).expect(line);
        let Some((seconds, micros)) = head.split_once('.') else {
            // The number of lost events has no time of its own.
            assert!(merged.lines().any(|found| found.get(19..) == Some(line)), "{line}\n{merged}");
            continue;
        };
        let of_day = 1_700_000_000 % 86_400 + seconds.parse::<u64>().expect(line);
        let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
        let time = format!("{hour:02}:{minute:02}:{second:02}.{micros}");
        let is_it = |found: &str| found.starts_with(&time) && found.get(19..) == Some(line);
        assert!(merged.lines().any(is_it), "{time} {line}\n{merged}");
    }
    let is_of_day = |line: &str| line.get(2..3) == Some(":") && line.get(8..9) == Some(".");
    assert!(merged.lines().all(is_of_day), "{merged}");
}

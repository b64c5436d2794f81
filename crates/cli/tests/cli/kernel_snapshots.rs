//! The folder of a snapshot that a trigger of the kernel took. That the kernel takes them is a part
//! of `cargo xtask lab --scenario record`.

use crate::record::{self, kills, wait_for_instance};
use crate::stream::{KILL, numbered};
use crate::support::tool;
use rustix::process::Signal;
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;
use std::fs;

/// A reading of the clock `mono`.
fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[test]
fn the_events_of_the_window_are_shown_and_all_with_whole() {
    let Some((_alone, place)) = record::tracing() else { return };
    let args = ["--size", "8M", "--instance", "lastwords_test", "-o", "k.dat"];
    let mut recorder = record::start(&place, &[&KILL[..], &args].concat());
    wait_for_instance("lastwords_test");
    let mut times = vec![0];
    for third in 0..3 {
        tool("bash", &["-c", &numbered(third * 500, 500)]);
        times.push(now());
    }
    assert_eq!(recorder.end(Signal::INT).status, 0);
    let folder = place.at("k.dat.snapshot-1");
    fs::create_dir(&folder).unwrap();
    fs::rename(place.at("k.dat"), folder.join("trace.dat")).unwrap();
    assert_eq!(
        kills(&folder.join("trace.dat")),
        (0..1500).collect::<Vec<_>>(),
        "trace-cmd reads all of it"
    );
    let shown = |options: &[&str]| -> Vec<u64> {
        let text = place.ok(&[&["report", folder.to_str().unwrap()], options].concat());
        let number = |line: &str| {
            let text = line.split("pid: ").nth(1)?.split(',').next()?;
            u64::from_str_radix(text.trim_start_matches("0x"), 16).ok()
        };
        text.lines().filter_map(number).map(|number| number - 1_000_000).collect()
    };
    for (begin, end, expected) in [
        (None, None, 0..1500),
        (Some(times[1]), None, 500..1500),
        (None, Some(times[2]), 0..1000),
        (Some(times[1]), Some(times[2]), 500..1000),
    ] {
        let account = json!({
            "schema": "lastwords.kernel-snapshot.v1", "number": 1, "events": ["syscalls:sys_enter_kill"],
            "at": times[3], "begin": begin, "end": end, "unset": 2_500_000_000u64, "limited": 1_000_000_000u64,
        });
        fs::write(folder.join("snapshot.json"), account.to_string()).unwrap();
        assert_eq!(shown(&[]), expected.collect::<Vec<_>>(), "{begin:?} {end:?}");
        assert_eq!(shown(&["--whole"]), (0..1500).collect::<Vec<_>>(), "{begin:?} {end:?}");
        let told = place.run(&["report", folder.to_str().unwrap()]).err;
        assert!(told.contains("snapshot 1, which syscalls:sys_enter_kill took"), "{told}");
        assert!(
            told.contains("no trigger was set for 2.500 s before it, 1.000 s of it for the limit"),
            "{told}"
        );
        assert_eq!(told.contains("only the window"), begin.is_some() || end.is_some(), "{told}");
    }
    fs::write(folder.join("snapshot.json"), "{}").unwrap();
    place.run(&["report", folder.to_str().unwrap()]).has_status(1).says("snapshot.json: ");
}

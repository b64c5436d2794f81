//! Sessions of living programs: list, enable, disable, stop, start, snapshot, clear, destroy.

use crate::child::start;
use crate::support::{Place, wait_until};
use lastwords_testkit::text::Text as _;
use std::time::Duration;

fn pause() {
    std::thread::sleep(Duration::from_millis(150));
}

fn count(place: &Place, args: &[&str]) -> usize {
    place.ok(&[&["report", "app"], args].concat()).lines().count()
}

#[test]
fn live_then_left_over_then_gone() {
    let place = Place::new();
    place.ok(&["list"]).starts("no sessions in ");
    let mut child = start(&place, "shm", "tick");
    let list = place.json(&["list", "--json"]);
    assert_eq!(list["schema"], "lastwords.list.v1");
    assert_eq!(list["sessions"][0]["state"], "live");
    assert_eq!(list["sessions"][0]["processes"][0]["pid"], child.pid());
    assert_eq!(list["sessions"][0]["processes"][0]["known_by"], "guard");
    place.ok(&["list", "app"]).has("test:tick").has("main");
    place.run(&["destroy", "app"]).has_status(1).says("--force");
    child.kill();
    place.ok(&["list"]).has("killed");
    place.ok(&["destroy", "--left-over"]).has("app-");
    place.ok(&["list"]).starts("no sessions in ");
    place.run(&["report", "app"]).has_status(1);
}

#[test]
fn a_live_session_is_read_without_being_stopped() {
    let place = Place::new();
    let _child = start(&place, "shm", "tick");
    let first = count(&place, &[]);
    pause();
    let second = count(&place, &[]);
    assert!(second > first, "{first} events, then {second}");
}

#[test]
fn disable_and_enable_from_outside() {
    let place = Place::new();
    let _child = start(&place, "shm", "tick");
    place.ok(&["disable", "test:tick"]);
    pause();
    let (ticks, tocks) = (count(&place, &["-e", "test:tick"]), count(&place, &["-e", "test:tock"]));
    pause();
    assert_eq!(count(&place, &["-e", "test:tick"]), ticks, "ticks while disabled");
    assert!(count(&place, &["-e", "test:tock"]) > tocks);
    place.ok(&["list", "app"]).has("rule: disable test:tick");
    place.ok(&["enable", "test:*", "-s", "app", "-c", "main"]);
    pause();
    assert!(count(&place, &["-e", "test:tick"]) > ticks);
    place.run(&["enable", "x", "-c", "none"]).has_status(1).says("no channel none").says("main");
}

#[test]
fn names_of_events_need_no_provider() {
    let place = Place::new();
    let _child = start(&place, "shm", "tick");
    let rules = |place: &Place| {
        let text = place.ok(&["list", "app"]);
        text.lines()
            .filter_map(|line| line.trim().strip_prefix("rule: "))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let before = rules(&place);
    place.ok(&["disable", "tick"]);
    assert_eq!(rules(&place)[before.len()..], ["disable *:tick"]);
    pause();
    let (ticks, tocks) = (count(&place, &["-e", "tick"]), count(&place, &["-e", "tock"]));
    pause();
    assert_eq!(count(&place, &["-e", "tick"]), ticks, "ticks while disabled");
    assert!(count(&place, &["-e", "tock"]) > tocks);
    // A glob without a provider is one over the whole name and one over the last part.
    place.ok(&["enable", "ti*"]);
    assert_eq!(rules(&place)[before.len()..], ["disable *:tick", "enable ti*", "enable *:ti*"]);
    pause();
    assert!(count(&place, &["-e", "tick"]) > ticks);
    // The order of lttng: a session, then the events.
    for words in [["app", "*"], ["test:*", "app"]] {
        let ran = place.run(&[&["disable"], &words[..]].concat());
        ran.has_status(1).says("app is the name of a session. Write: lastwords disable '");
    }
    assert_eq!(rules(&place).len(), before.len() + 3);
    place.ok(&["trigger", "add", "tock"]);
    assert_eq!(place.ok(&["trigger", "list"]), "*:tock\n");
    place.ok(&["trigger", "remove", "tock"]);
    assert_eq!(place.ok(&["trigger", "list"]), "");
    // Only the snapshot is missing.
    place.run(&["report", "app", "--snapshot"]).has_status(1).says_times("error: ", 1);
}

#[test]
fn stop_start_clear() {
    let place = Place::new();
    let _child = start(&place, "shm", "tick");
    place.ok(&["stop"]);
    pause();
    let stopped = count(&place, &[]);
    pause();
    assert_eq!(count(&place, &[]), stopped);
    place.ok(&["clear", "app"]);
    assert_eq!(count(&place, &[]), 0);
    place.ok(&["start", "app"]);
    pause();
    assert!(count(&place, &[]) > 0);
    place.ok(&["destroy", "app", "--force"]);
    place.ok(&["list"]).starts("no sessions in ");
}

/// The session of a killed process is cleared only with `--force`.
#[test]
fn a_dead_session_is_not_cleared_by_mistake() {
    let place = Place::new();
    start(&place, "shm", "tick").kill();
    let left = count(&place, &[]);
    assert!(left > 0);
    place.run(&["clear", "app"]).has_status(1).says("the session has ended").says("--force");
    assert_eq!(count(&place, &[]), left);
    place.ok(&["clear", "app", "--force"]);
    assert_eq!(count(&place, &[]), 0);
}

/// Nanoseconds since midnight, of `hh:mm:ss.nnnnnnnnn`.
fn time(text: &str) -> u64 {
    let (whole, nanoseconds) = text.split_once('.').expect("nine digits");
    let seconds =
        whole.split(':').fold(0, |sum, part| sum * 60 + part.parse::<u64>().expect("a number"));
    seconds * 1_000_000_000 + nanoseconds.parse::<u64>().expect("a number")
}

#[test]
fn a_snapshot_stays_while_recording_goes_on() {
    let place = Place::new();
    let _child = start(&place, "shm", "tick");
    place.run(&["snapshot", "take"]).has_status(1).says("enable snapshots first");
    place.ok(&["snapshot", "enable"]);
    assert_eq!(place.ok(&["snapshot", "take", "app"]), "snapshot 1\n");
    let first = place.ok(&["report", "app", "--snapshot"]);
    pause();
    let again = place.ok(&["report", "app", "--snapshot"]);
    // The clock of a live session is compared with the wall's now and then, which moves a time by a
    // nanosecond or so.
    for (was, is) in first.lines().zip(again.lines()) {
        let [was, is] = [was, is].map(|line| line.split_once(' ').expect("a time, and the rest"));
        assert!(
            was.1 == is.1 && time(was.0).abs_diff(time(is.0)) < 1000,
            "the snapshot changed: {was:?} {is:?}"
        );
    }
    assert_eq!(again.lines().count(), first.lines().count(), "the snapshot changed");
    assert!(first.lines().count() > 0);
    assert!(count(&place, &[]) > 0, "nothing was recorded behind the snapshot");
    place
        .run(&["snapshot", "record", "-o", "out"])
        .says("snapshot 1 is replaced, of which nobody had consumed ")
        .says("snapshots before it that nobody consumed: dropped")
        .prints("of snapshots dropped unread, nothing else lost");
    // The recorder is on one CPU or another: all that is not in the one's snapshot is live.
    let inspected = place.json(&["inspect", "app", "--json"]);
    let streams = inspected["sessions"][0]["streams"].as_array().unwrap();
    let cpus: std::collections::BTreeSet<u64> =
        streams.iter().filter_map(|stream| stream["cpu"].as_u64()).collect();
    let all: usize = cpus
        .into_iter()
        .map(|cpu| {
            place.ok(&["snapshot", "take", "app", "--cpu", &cpu.to_string()]);
            place.ok(&["report", "app", "--snapshot"]).lines().count()
        })
        .sum();
    assert!(all > 0);
    for wrong in [&["--cpu", "70000"][..], &["--stream", "70000"]] {
        let ran = place.run(&[&["snapshot", "take", "app"], wrong].concat());
        ran.has_status(1).says("no ring of the session");
    }
    place.ok(&["snapshot", "disable"]);
    place.run(&["report", "app", "--snapshot"]).has_status(1).says("snapshot");
}

#[test]
fn a_quiet_session_keeps_its_clock_fresh() {
    for memory in ["shm", "heap"] {
        let place = Place::new();
        let _child = start(&place, memory, "wait");
        let sampled_over = || {
            place.json(&["inspect", "app", "--json"])["sessions"][0]["clock"]["sampled_over_ns"]
                .as_u64()
        };
        wait_until(memory, || sampled_over().is_some_and(|time| time >= 500_000_000));
    }
}

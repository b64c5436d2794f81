//! `record --session -o ADDRESS` of a program that counts: `counters` of what the receiver has shows
//! what was counted, whoever is killed, and says as of when.

use crate::child::Running;
use crate::counters::{assert_counted, assert_numbers, start};
use crate::prometheus::as_of_for_prometheus;
use crate::record::names;
use crate::stream::{Receiver, path};
use crate::support::{Place, ran, wait_until};
use crate::user_stream::{ended, start_sender};
use rustix::process::Signal;
use serde_json::Value;
use std::process::Child;

/// The received session, as an argument.
fn folder(place: &Place, saved: &Value) -> String {
    path(place, saved).to_str().expect("a name").to_owned()
}

/// Waits until the receiver has a copy of a stream that is under way.
fn wait_for_copy(place: &Place) {
    let is_of = |name: &String| name.ends_with(".rings");
    let has_copy = |name: &String| place.at("in").join(name).join("counters").exists();
    wait_until("a copy has come", || {
        names(&place.at("in")).iter().filter(|name| is_of(name)).any(has_copy)
    });
}

/// Fails unless a session whose stream ended early has the numbers, and says that later ones are
/// unknown.
fn assert_as_of(place: &Place, folder: &str) {
    let session = assert_numbers(place, folder);
    let now = std::time::UNIX_EPOCH.elapsed().expect("a time").as_nanos() as u64;
    let as_of = session["as_of"].as_u64().expect("a time");
    assert!(as_of <= now && now - as_of < 3_600_000_000_000, "{session}");
    for verb in ["counters", "report"] {
        place
            .run(&[verb, folder, "--strict"])
            .has_status(3)
            .says("the stream ended early")
            .says("what was counted after the last copy of the counters is unknown");
    }
    place.run(&["counters", folder]).prints("  as of 20");
    let shown = as_of_for_prometheus(place, folder).expect("a time");
    assert!((shown - as_of as f64 / 1e9).abs() < 1e-5, "{shown}");
    place.run(&["report", folder]).says("2 counters and 1 histogram: ").says("  as of 20");
    place.run(&["inspect", folder]).prints("  as of 20").prints("latency_ns");
    let why = place.json(&["why", folder, "--json"]);
    assert_eq!(why["inputs"][0]["metrics"]["as_of"], as_of, "{why}");
    // The sender knew of no end of the session, which the program's death is.
    assert_end_unknown(place, folder, "its stream ended early");
    place.run(&["top", folder]).prints("\nas of 20");
}

/// Fails unless every verb says that the end of a received session is unknown, and why.
fn assert_end_unknown(place: &Place, folder: &str, why: &str) {
    let json = place.json(&["why", folder, "--json"]);
    assert_eq!(json["inputs"][0]["verdict"]["cause"], "unknown", "{json}");
    let line = format!("end unknown: {why}");
    place
        .run(&["why", folder])
        .prints(&line)
        .prints("\n  not known: there is no table of open spans\n");
    assert_eq!(json["inputs"][0]["open_spans"], Value::Null, "{json}");
    place.run(&["report", folder]).says(&line);
    place.run(&["inspect", folder]).prints(&format!("({line})"));
    place.run(&["top", folder]).prints(&format!("app: {line}; "));
    place.run(&["list", folder]).prints("(end unknown)").prints(&line);
    for (verb, member) in [("list", "/sessions/0"), ("inspect", "/sessions/0"), ("top", "")] {
        let json = place.json(&[verb, folder, "--json"]);
        let session = json.pointer(member).unwrap_or_else(|| panic!("{verb}: {json}"));
        assert_eq!(session["unknown_end"], why, "{verb}: {session}");
        assert_eq!(session["ended"], Value::Null, "{verb}: {session}");
    }
    place.ok(&["convert", folder, "--to", "otlp", "-o", "otlp.json"]);
    let otlp = std::fs::read_to_string(place.at("otlp.json")).expect("it is there");
    let verdict = format!("app: its end is not known: {why}");
    assert!(otlp.contains(&verdict) && !otlp.contains("lastwords.ended"), "{otlp}");
    place.ok(&["view", folder, "-o", "page.html"]);
    let page = std::fs::read_to_string(place.at("page.html")).expect("it is there");
    assert!(page.contains(&format!("\"app: {line}")), "{page}");
    let mut list = place.command();
    let list = list.arg("list").env("LASTWORDS_DIR", place.at("in")).output().expect("it runs");
    ran(list).prints("\nend unknown  ");
}

/// Starts a receiver, a program that counts and waits, and a sender of its session. Returns when
/// the receiver has a copy of the counters.
fn streamed() -> (Place, Receiver, Running, Child) {
    let place = Place::new();
    let receiver = Receiver::at(&place);
    let program = start(&place, "shm", "wait");
    let sender = start_sender(&place, &receiver.address);
    wait_for_copy(&place);
    (place, receiver, program, sender)
}

#[test]
fn a_killed_program_leaves_its_counters_at_the_receiver() {
    let (place, mut receiver, mut program, sender) = streamed();
    program.kill();
    ended(sender).has_status(0).says("nothing lost");
    let saved = receiver.next("saved-session");
    let folder = folder(&place, &saved);
    assert_counted(&place, &folder);
    place.run(&["counters", &folder]).prints("  as of 20").does_not_say("unknown");
    // The sender saw its end.
    place.run(&["list", &folder]).prints("(killed)").does_not_print("end unknown");
    place.run(&["report", &folder]).says("last seen alive").does_not_say("end unknown");
    // The numbers of the session itself are as of no time.
    assert_eq!(assert_numbers(&place, "app")["as_of"], Value::Null);
    assert_eq!(as_of_for_prometheus(&place, "app"), None);
    assert_eq!(receiver.end(Signal::INT), Some(0));
}

#[test]
fn a_killed_sender_leaves_its_last_copy_at_the_receiver() {
    let (place, mut receiver, mut program, mut sender) = streamed();
    sender.kill().expect("it lives");
    sender.wait().expect("it ends");
    let saved = receiver.next("saved-session");
    assert_as_of(&place, &folder(&place, &saved));
    program.kill();
    assert_eq!(receiver.end(Signal::INT), Some(0));
}

#[test]
fn a_killed_receiver_leaves_its_last_copy_to_the_next() {
    let (place, mut receiver, mut program, sender) = streamed();
    receiver.child.kill();
    ended(sender).has_status(1);
    program.kill();
    let args = ["--dir", "in", "--listen", "tcp:127.0.0.1:0"];
    let mut next = Receiver::start_until(place.command(), &args, "saved-session");
    assert_as_of(&place, &folder(&place, &next.first));
    next.next("listening");
    assert_eq!(next.end(Signal::INT), Some(0));
}

/// The end of a session is known to a receiver only if its sender saw that end.
#[test]
fn a_stopped_sender_leaves_the_end_of_the_session_unknown() {
    let (place, mut receiver, mut program, sender) = streamed();
    let pid = rustix::process::Pid::from_child(&sender);
    rustix::process::kill_process(pid, Signal::INT).expect("it lives");
    ended(sender).has_status(0).says("nothing lost");
    let saved = receiver.next("saved-session");
    assert_eq!(saved["ended_early"], Value::Null, "{saved}");
    let folder = folder(&place, &saved);
    assert_counted(&place, &folder);
    assert_end_unknown(&place, &folder, "this copy was made before the session was seen to end");
    program.kill();
    assert_eq!(receiver.end(Signal::INT), Some(0));
}

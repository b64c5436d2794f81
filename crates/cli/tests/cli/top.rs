//! `top`: its counts are those of the recorded program, and its screen survives whatever happens to
//! terminal and session.

use crate::child::{self, Running, run, task, wait_for};
use crate::consume::{EVENTS, Recorder, THREADS};
use crate::support::{Place, assert_members, json_events, ran};
use crate::terminal::Terminal;
use lastwords::{ChannelConfig, Session, event};
use lastwords_testkit::text::Text as _;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::time::Duration;

/// Events of both names before the first reading, and behind it.
const FIRST: [u64; 2] = [1000, 500];
const LATER: [u64; 2] = [300, 70];
/// Events of a burst.
const BURST: u64 = 100_000;

/// The recorded program.
#[test]
fn recorder() {
    let Some(mode) = task() else { return };
    let channel = match &*mode {
        "small" => ChannelConfig::new("main").sub_buffers(4, 4096),
        "discard" => ChannelConfig::new("main").sub_buffers(4, 4096).discard(),
        _ => ChannelConfig::new("main").sub_buffers(16, 1 << 16),
    };
    let session = Session::builder("app").channel(channel).start().expect("a session");
    if mode == "span" {
        lastwords::layer::init().expect("a subscriber");
        let span = tracing::info_span!("payment", id = 7);
        let entered = span.enter();
        std::fs::write("ready", "").expect("a file");
        wait_for("go".as_ref());
        drop(entered);
        drop(span);
        std::fs::write("done", "").expect("a file");
        wait_for("end".as_ref());
    }
    if mode == "names" {
        event!(test, "c\u{1}", number = 1u64);
        event!(test, "c\u{1b}", number = 2u64);
    }
    record(FIRST);
    std::fs::write("ready", "").expect("a file");
    wait_for("go".as_ref());
    match &*mode {
        "plain" => record(LATER),
        _ => record([BURST, 0]),
    }
    std::fs::write("done", "").expect("a file");
    wait_for("end".as_ref());
    drop(session);
}

fn record([a, b]: [u64; 2]) {
    (0..a).for_each(|sequence| event!(test, "a", sequence = sequence));
    (0..b).for_each(|sequence| event!(test, "b", sequence = sequence, text = "twelve bytes"));
}

fn start(place: &Place, mode: &str) -> Running {
    let running = run(place, "top::recorder", mode);
    wait_for(&place.at("ready"));
    running
}

fn touch(place: &Place, name: &str) {
    std::fs::write(place.at(name), "").expect("a file");
}

/// A count of an event in a reading.
fn count(reading: &Value, event: &str, of: &str) -> u64 {
    let rows = reading["events"].as_array().expect("rows").iter();
    let named: Vec<u64> = rows
        .filter(|row| row["event"] == event)
        .map(|row| row[of]["events"].as_u64().expect("a number"))
        .collect();
    named.iter().sum()
}

/// The numbers of the row of an event on a screen: events per second, bytes per second, events,
/// bytes.
fn row(screen: &str, event: &str) -> Option<Vec<f64>> {
    let line = screen.lines().find(|line| line.split_whitespace().last() == Some(event))?;
    Some(line.split_whitespace().take(4).map(|number| number.parse().expect("a number")).collect())
}

fn sum(reading: &Value, rows: &str, of: &str) -> u64 {
    reading[rows]
        .as_array()
        .expect("rows")
        .iter()
        .map(|row| row[of].as_u64().expect("a number"))
        .sum()
}

/// Each event has the time when it was recorded: those of the interval are counted by these times.
#[test]
fn rates_are_those_that_the_times_of_events_show() {
    let place = Place::new();
    let mut child = child::start(&place, "shm", "tick");
    let reading = place.json(&["top", "app", "--json", "--interval", "1s"]);
    let at: i64 = reading["at_ns"].as_str().expect("text").parse().expect("a number");
    let interval =
        i64::try_from(reading["interval_ns"].as_u64().expect("a number")).expect("it fits");
    child.kill();
    // From what the first reading had to what the second has: on a busy machine, one of them is late.
    assert!(reading["exact"] == true && (1..30_000_000_000).contains(&interval), "{reading}");
    const DAY: i64 = 86_400_000_000_000;
    let of_day = |time: &str| {
        let parts: Vec<&str> = time.trim_end_matches('Z').split(['T', ':', '.']).skip(1).collect();
        let [hours, minutes, seconds, nanoseconds] = parts.as_slice() else { panic!("{time}") };
        let number = |text: &str| text.parse::<i64>().expect("a number");
        ((number(hours) * 60 + number(minutes)) * 60 + number(seconds)) * 1_000_000_000
            + number(nanoseconds)
    };
    let lines = place.run(&["convert", "app", "--to", "json", "-o", "-"]).out;
    for event in ["test:tick", "test:tock"] {
        let times = json_events(&lines).into_iter().filter(|json| json["event"] == event);
        // How long before the reading the event was recorded.
        let before =
            |json: Value| (at - of_day(json["time"].as_str().expect("a time"))).rem_euclid(DAY);
        let before: Vec<i64> = times.map(before).filter(|before| *before < DAY / 2).collect();
        let within = before.iter().filter(|before| **before < interval).count() as u64;
        let [new, all] = ["interval", "total"].map(|of| count(&reading, event, of));
        assert!(
            new > 20 && new.abs_diff(within) <= 3,
            "{event}: {new} counted, {within} by their times"
        );
        assert!(
            all.abs_diff(before.len() as u64) <= 3,
            "{event}: {all} counted, {} by their times",
            before.len()
        );
        let row = reading["events"]
            .as_array()
            .expect("rows")
            .iter()
            .find(|row| row["event"] == event)
            .expect("a row");
        let rate = row["events_per_second"].as_f64().expect("a number");
        assert!(
            (rate * interval as f64 / 1e9 - new as f64).abs() < 1e-6,
            "{rate} {new} {interval}"
        );
    }
}

#[test]
fn counts_on_the_screen_are_those_of_the_program() {
    let place = Place::new();
    let _child = start(&place, "plain");
    let mut top =
        Terminal::start(&place, &["top", "app", "--interval", "500ms", "--sort", "name"], 24, 100);
    let are = |screen: &str, counts: [u64; 2]| {
        ["test:a", "test:b"]
            .iter()
            .zip(counts)
            .all(|(event, count)| row(screen, event).is_some_and(|row| row[2] == count as f64))
    };
    let screen = top.wait("the first counts", |screen| are(screen, FIRST));
    screen.has("app: live; in ").has("nothing lost").lacks("at least");
    // Nothing is recorded: the rates become 0, and the totals stay.
    top.wait("no rate", |screen| {
        are(screen, FIRST)
            && row(screen, "test:a").is_some_and(|row| row[0] == 0.0 && row[1] == 0.0)
    });
    touch(&place, "go");
    wait_for(&place.at("done"));
    let all = [FIRST[0] + LATER[0], FIRST[1] + LATER[1]];
    let screen = top.wait("the later counts", |screen| are(screen, all));
    let [a, b] = ["test:a", "test:b"].map(|event| row(&screen, event).expect("a row"));
    // A reading that has both bursts has the rates of both; a later one has none.
    let rates = [a[0], b[0]];
    assert!(
        rates[0] <= 600.0 && (rates[0] == 0.0 || rates[0] > 50.0),
        "300 events in at least half a second: {rates:?}"
    );
    screen.has(&format!("{} events, ", all[0] + all[1]));
    top.keys("?");
    top.wait("the help", |screen| screen.contains("Ctrl-C") && !screen.contains("test:a"));
    top.keys("\u{1b}");
    top.wait("the reading", |screen| are(screen, all));
    top.keys("q");
    let left = top.end();
    assert_eq!((left.status, left.err.as_str()), (Some(0), ""));
    assert!(left.is_restored);
    // Nothing was consumed.
    assert_eq!(place.ok(&["report", "app"]).lines().count() as u64, all[0] + all[1]);
}

#[test]
fn one_reading_as_text_and_as_data() {
    let place = Place::new();
    let mut child = start(&place, "plain");
    let text = place.ok(&["top", "app", "--once", "-i", "200ms"]);
    let numbers = row(&text, "test:a").expect("a row");
    assert!(
        numbers[2] == FIRST[0] as f64
            && text.contains("app: live; in ")
            && text.contains("nothing lost"),
        "{text}"
    );
    // Without a terminal there is one reading, of the newest live session.
    let text = place.ok(&["top", "-i", "200ms"]);
    assert_eq!(row(&text, "test:b").expect("a row")[2], FIRST[1] as f64, "{text}");
    let reading = place.json(&["top", "-s", "app", "--json", "-i", "200ms"]);
    assert_eq!([count(&reading, "test:a", "total"), count(&reading, "test:b", "total")], FIRST);
    assert_members(
        &reading,
        &json!({ "schema": "lastwords.top.v1", "state": "live", "exact": true }),
    );
    // A ring holds its events and the 84 bytes of the header of each sub-buffer; all fit in one,
    // but for the bytes at its end.
    let bytes: u64 = reading["events"]
        .as_array()
        .expect("rows")
        .iter()
        .map(|row| row["total"]["bytes"].as_u64().expect("bytes"))
        .sum();
    let used = reading["rings"]
        .as_array()
        .expect("rings")
        .iter()
        .filter(|ring| ring["held"].as_u64() > Some(0))
        .count() as u64;
    let held = sum(&reading, "rings", "held");
    assert!(
        held >= bytes + 84 * used && held < bytes + (84 + 64) * used,
        "{held} held, {bytes} of events, {used} rings"
    );
    child.kill();
    // The same of a session that was killed, whose newest interval ends with its newest event.
    let reading = place.json(&["top", "app", "--json", "-i", "1h"]);
    assert_eq!((&reading["state"], &reading["ended"]["how"]), (&"ended".into(), &"killed".into()));
    for of in ["interval", "total"] {
        assert_eq!([count(&reading, "test:a", of), count(&reading, "test:b", of)], FIRST, "{of}");
    }
    place.ok(&["top", "app"]).has("last seen alive").has("before its newest event");
}

/// Two names that differ in a control character are two events, and their names are exact as data.
#[test]
fn names_are_exact_as_data() {
    let place = Place::new();
    let _child = start(&place, "names");
    let reading = place.json(&["top", "app", "--json", "-i", "200ms"]);
    assert_eq!(
        ["test:c\u{1}", "test:c\u{1b}"].map(|name| count(&reading, name, "total")),
        [1, 1],
        "{reading}"
    );
    place.ok(&["top", "app", "--once", "-i", "200ms"]).has("test:c\\u{1b}").lacks("\u{1b}");
}

#[test]
fn spans_are_shown_as_long_as_they_are_open() {
    let place = Place::new();
    let _child = start(&place, "span");
    let top = Terminal::start(&place, &["top", "app", "-i", "200ms"], 24, 100);
    top.wait("the span", |screen| screen.contains("OPEN FOR") && screen.contains("payment{id=7}"));
    let reading = place.json(&["top", "app", "--json", "-i", "200ms"]);
    let span = &reading["open_spans"][0];
    let number = |value: &Value| value.as_str().expect("text").parse::<i64>().expect("a number");
    assert!(
        span["name"] == "payment" && number(&span["opened_ns"]) < number(&reading["at_ns"]),
        "{reading}"
    );
    touch(&place, "go");
    wait_for(&place.at("done"));
    top.wait("no span", |screen| screen.contains("app: live") && !screen.contains("OPEN FOR"));
    let reading = place.json(&["top", "app", "--json", "-i", "200ms"]);
    assert_eq!(reading["open_spans"], Value::Array(Vec::new()));
}

/// Events that cannot be counted are reported in bytes, and are part of the bytes that the ring has
/// written.
#[test]
fn events_that_are_overwritten_before_they_are_counted_are_told() {
    let place = Place::new();
    let _child = start(&place, "small");
    let produced = || {
        let inspected = place.json(&["inspect", "app", "--json"]);
        let streams = inspected["sessions"][0]["streams"].as_array().expect("streams").clone();
        streams.iter().map(|stream| stream["produced"].as_u64().expect("a number")).sum::<u64>()
    };
    let before = produced();
    let top = Terminal::start(&place, &["top", "app", "--interval", "100ms"], 24, 100);
    top.wait("the first reading", |screen| screen.contains("test:a"));
    touch(&place, "go");
    wait_for(&place.at("done"));
    let screen = top.wait("what was not counted", |screen| screen.contains("not counted: "));
    screen.has("; at least ");
    let counted = row(&screen, "test:a").expect("a row")[2];
    assert!(counted < (FIRST[0] + BURST) as f64, "{screen}");
    assert!(produced() > before + BURST * 8);
}

/// Snapshots swap the halves of the rings while events are counted: each event is counted once, or
/// it is told that some were not.
#[test]
fn snapshots_take_nothing_from_the_counts_in_silence() {
    for reservation in ["rseq", "lockless"] {
        let place = Place::new();
        let recorder = Recorder::start(&place, reservation, "snapshot");
        let top = Terminal::start(&place, &["top", "app", "--interval", "200ms"], 24, 100);
        top.wait("the first reading", |screen| row(screen, "test:tick").is_some());
        while !recorder.is_done() {
            place.ok(&["snapshot", "take", "app"]);
            std::thread::sleep(Duration::from_millis(350));
        }
        let all = (THREADS * EVENTS) as f64;
        let screen = top.wait("all events", |screen| {
            let counted = row(screen, "test:tick").map_or(0.0, |row| row[2]);
            counted == all || (counted < all && screen.contains("; at least "))
        });
        assert!(screen.contains("nothing lost"), "{reservation}\n{screen}");
        std::thread::sleep(Duration::from_millis(500));
        assert!(
            row(&top.screen(), "test:tick").is_some_and(|row| row[2] <= all),
            "{reservation}\n{}",
            top.screen()
        );
    }
}

#[test]
fn what_a_ring_discards_is_a_loss() {
    let place = Place::new();
    let _child = start(&place, "discard");
    touch(&place, "go");
    wait_for(&place.at("done"));
    let reading = place.json(&["top", "app", "--json", "-i", "100ms"]);
    let recorded = place.ok(&["report", "app"]).lines().count() as u64;
    assert_eq!(
        sum(&reading, "losses", "count") + recorded,
        FIRST[0] + FIRST[1] + BURST,
        "{reading}"
    );
    assert_eq!(reading["losses"][0]["cause"], "discarded: the ring was full");
    let text = place.ok(&["top", "app", "--once", "-i", "100ms"]);
    text.has("lost: channel main: ").lacks("nothing lost");
}

#[test]
fn a_terminal_of_any_size_is_drawn_and_restored() {
    let place = Place::new();
    let _child = child::start(&place, "shm", "tick");
    let mut top = Terminal::start(&place, &["top", "app", "-i", "100ms"], 1, 1);
    for (rows, columns) in [(1, 1), (2, 3), (1, 200), (60, 1), (24, 80), (3, 20), (1, 1), (50, 160)]
    {
        top.resize(rows, columns);
        let before = top.written();
        top.keys("jjk?\u{1b}\t");
        top.wait(&format!("{rows}x{columns} is drawn"), |_| top.written() > before);
        std::thread::sleep(Duration::from_millis(100));
    }
    top.wait("a whole screen", |screen| screen.contains("test:tick") && screen.contains("BYTES/S"));
    top.keys("\u{3}");
    let left = top.end();
    assert!(left.status == Some(0) && left.is_restored, "Ctrl-C: {:?} {}", left.status, left.err);
    let top = Terminal::start(&place, &["top", "app"], 24, 80);
    top.wait("a reading", |screen| screen.contains("test:tick"));
    top.child.signal(Signal::TERM);
    let left = top.end();
    assert!(left.status == Some(0) && left.is_restored, "SIGTERM: {:?} {}", left.status, left.err);
}

#[test]
fn a_session_ends_or_is_removed_while_it_is_shown() {
    let place = Place::new();
    let mut child = start(&place, "plain");
    let mut top = Terminal::start(&place, &["top", "app", "-i", "200ms"], 24, 100);
    top.wait("a reading", |screen| screen.contains("test:a"));
    child.kill();
    let screen = top.wait("the end", |screen| screen.contains("the session has ended; q quits"));
    assert!(
        screen.contains("last seen alive")
            && row(&screen, "test:a").expect("a row")[2] == FIRST[0] as f64,
        "{screen}"
    );
    top.keys("q");
    let left = top.end();
    assert!(left.status == Some(0) && left.is_restored && left.err.is_empty(), "{}", left.err);
    place.ok(&["destroy", "app"]);

    ["ready", "go", "done"].iter().for_each(|name| drop(std::fs::remove_file(place.at(name))));
    let _child = start(&place, "plain");
    let mut top = Terminal::start(&place, &["top", "app", "-i", "200ms"], 24, 100);
    top.wait("a reading", |screen| screen.contains("test:a"));
    place.ok(&["destroy", "app", "--force"]);
    let screen =
        top.wait("the removal", |screen| screen.contains("the session was removed; q quits"));
    assert_eq!(row(&screen, "test:a").expect("a row")[2], FIRST[0] as f64, "{screen}");
    top.keys("q");
    let left = top.end();
    left.err.has("was removed while it was shown");
    assert!(left.status == Some(0) && left.is_restored, "{}", left.err);
}

/// Runs a program on a terminal that goes when the program has drawn, and prints whether the
/// program ends in 20 seconds.
const HANG_UP: &str = r#"
import os, pty, sys, time
child, terminal = pty.fork()
if child == 0:
    os.execv(sys.argv[1], sys.argv[1:])
begin = time.monotonic()
while time.monotonic() < begin + 1:
    os.read(terminal, 65536)
os.close(terminal)
for _ in range(200):
    ended, status = os.waitpid(child, os.WNOHANG)
    if ended:
        sys.exit(f"exit status {os.waitstatus_to_exitcode(status)}")
    time.sleep(0.1)
os.kill(child, 9)
os.waitpid(child, 0)
sys.exit("it goes on without a terminal")
"#;

#[test]
fn it_ends_with_its_terminal() {
    let place = Place::new();
    let _child = child::start(&place, "shm", "tick");
    let own = place.command();
    let mut python = std::process::Command::new("python3");
    python
        .arg("-c")
        .arg(HANG_UP)
        .arg(own.get_program())
        .args(["top", "app", "-i", "200ms"])
        .env("TERM", "xterm");
    let ran = ran(python
        .env("LASTWORDS_DIR", place.sessions())
        .output()
        .expect("python3: cargo xtask setup"));
    assert_eq!(ran.err.trim(), "exit status 1");
}

#[test]
fn without_a_session_there_is_a_list() {
    let place = Place::new();
    let ran = place.run(&["top"]);
    assert!(ran.status == 1 && ran.out.starts_with("no sessions in "), "{}{}", ran.out, ran.err);
    place.run(&["top", "nobody"]).has_status(1).says("nobody: no session of that name");
    place.run(&["top", "/dev/null"]).has_status(1).says("lastwords inspect");
    for wrong in [
        &["top", "--interval", "1ms"][..],
        &["top", "--interval", "soon"],
        &["top", "a", "-s", "a"],
        &["top", "--sort", "size"],
    ] {
        place.run(wrong).has_status(2);
    }
    let mut child = start(&place, "plain");
    child.kill();
    place.run(&["top"]).has_status(1).prints("killed").says("no session is live");
}

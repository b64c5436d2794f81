//! Windows of triggers: a saved snapshot has the events from a time ahead of the trigger to a time
//! behind it, and no other.

use crate::child::{run, task, wait_for};
use crate::support::{Place, entries, json_events, wait_until};
use crate::triggers::wait_for_session;
use lastwords::{ChannelConfig, ClockKind, Session, Window, event};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

const BEFORE: Duration = Duration::from_millis(60);
const AFTER: Duration = Duration::from_millis(40);

/// An event that the child has recorded: its thread, its number, and the time before and behind the
/// call.
#[derive(Debug, Clone, Copy)]
struct Told {
    thread: u64,
    number: u64,
    from: u64,
    to: u64,
}

fn now() -> u64 {
    ClockKind::Monotonic.now()
}

/// Records events of several threads, and triggers among them, and writes down when it did each.
#[test]
fn child() {
    let Some(what) = task() else { return };
    let what = &*what;
    let ring =
        ChannelConfig::new("main").sub_buffers(if what == "small" { 2 } else { 64 }, 16 << 10);
    let window = match what {
        "small" => Window { before: Some(Duration::from_secs(100)), after: Duration::ZERO },
        "end" => Window::new(BEFORE, Duration::from_secs(100)),
        _ => Window::new(BEFORE, AFTER),
    };
    let builder = Session::builder("win").channel(ring).clock(ClockKind::Monotonic).snapshot(true);
    let session = builder.trigger_window(window).start().expect("a session");
    let begun = Instant::now();
    let mut told = String::new();
    let mut tell = |kind: &str, (thread, number, from, to): (u64, u64, u64, u64)| {
        writeln!(told, "{kind} {thread} {number} {from} {to}").expect("written");
    };
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (1..3)
            .map(|thread| {
                scope.spawn({
                    let stop = &stop;
                    move || ticks(thread, || stop.load(std::sync::atomic::Ordering::Relaxed))
                })
            })
            .collect();
        if what == "small" {
            // More than rings of some CPUs have.
            (0..20_000u64).for_each(|number| event!(win, "flood", number));
        }
        let first = ticks(0, || begun.elapsed() > BEFORE * 2);
        let from = now();
        lastwords::trigger("slow request");
        tell("trigger", (0, 0, from, now()));
        let sessions = std::env::var("LASTWORDS_DIR").expect("set");
        let saved = || entries(sessions.as_ref()).len() > 1;
        let ends = match what {
            "end" => Some(Instant::now() + AFTER),
            _ => None,
        };
        let second = ticks(1 << 32, || ends.map_or_else(saved, |end| Instant::now() > end));
        // Events behind the window.
        let third = ticks(2 << 32, || begun.elapsed() > BEFORE * 4);
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        let others = threads.into_iter().flat_map(|thread| thread.join().expect("it ends"));
        [first, second, third].concat().into_iter().chain(others).for_each(
            |Told { thread, number, from, to }| {
                tell("event", (thread, number, from, to));
            },
        );
    });
    std::fs::write("told.new", &told).expect("written");
    session.close();
    std::fs::rename("told.new", "told").expect("renamed");
}

/// Records events until `is_over` is true. The numbers begin at the upper half of `thread`.
fn ticks(thread: u64, is_over: impl Fn() -> bool) -> Vec<Told> {
    let mut told = Vec::new();
    for number in (thread >> 32 << 32).. {
        if is_over() {
            break;
        }
        let (thread, from) = (thread as u32 as u64, now());
        event!(win, "tick", thread, number, text = "some text of the event");
        told.push(Told { thread, number, from, to: now() });
        std::thread::sleep(Duration::from_micros(300));
    }
    told
}

/// Runs the child. Returns the times before and behind its trigger, and its events.
fn record(place: &Place, what: &str) -> (Told, Vec<Told>) {
    let child = run(place, "windows::child", what);
    wait_for(&place.at("told"));
    drop(child);
    let text = std::fs::read_to_string(place.at("told")).expect("readable");
    let told = |line: &str| {
        let numbers: Vec<u64> =
            line.split(' ').skip(1).map(|word| word.parse().expect("a number")).collect();
        let [thread, number, from, to] = numbers[..] else { panic!("{line}") };
        Told { thread, number, from, to }
    };
    let of = |kind: &str| {
        text.lines().filter(|line| line.starts_with(kind)).map(told).collect::<Vec<_>>()
    };
    (of("trigger")[0], of("event"))
}

/// Returns the threads and numbers of the events in a session.
fn found(place: &Place, args: &[&str]) -> BTreeSet<(u64, u64)> {
    let args = [&["convert"], args, &["--to", "json", "-o", "-", "--event", "win:tick"]].concat();
    let of = |event: &serde_json::Value| {
        let field = |name: &str| event["fields"][name].as_u64();
        Some((field("thread")?, field("number")?))
    };
    let all: Vec<_> = json_events(&place.ok(&args)).iter().filter_map(of).collect();
    let found: BTreeSet<_> = all.iter().copied().collect();
    assert_eq!(found.len(), all.len(), "each event once");
    found
}

/// Compares a saved snapshot, event by event, with what the child said of its events. The window
/// begins between `begins[0]` and `begins[1]`, and ends between `ends[0]` and `ends[1]`.
fn compare(found: &BTreeSet<(u64, u64)>, events: &[Told], begins: [u64; 2], ends: [u64; 2]) {
    for told in events {
        let is_inside = told.from >= begins[1] && told.to <= ends[0];
        let is_outside = told.to < begins[0] || told.from > ends[1];
        let is_found = found.contains(&(told.thread, told.number));
        assert!(!is_inside || is_found, "{told:?} is missing, {begins:?} to {ends:?}");
        assert!(!is_outside || !is_found, "{told:?} is outside, {begins:?} to {ends:?}");
    }
}

fn nanos(time: Duration) -> u64 {
    time.as_nanos() as u64
}

#[test]
fn a_snapshot_has_the_events_of_its_window_and_no_other() {
    let place = Place::new();
    let (trigger, events) = record(&place, "both");
    let begins = [trigger.from, trigger.to].map(|at| at - nanos(BEFORE));
    let ends = [trigger.from, trigger.to].map(|at| at + nanos(AFTER));
    let cut = found(&place, &["win.snapshot-1"]);
    compare(&cut, &events, begins, ends);
    // The folder has all that was recorded up to the swap, which follows the window.
    let whole = found(&place, &["win.snapshot-1", "--whole"]);
    compare(&whole, &events, [0, 0], [ends[0], u64::MAX]);
    let is_before = |told: &&Told| told.to < begins[0];
    assert!(events.iter().any(|told| is_before(&told)) && cut.len() < whole.len());
    assert!(
        events.iter().filter(is_before).all(|told| whole.contains(&(told.thread, told.number)))
    );
    // What follows the window is in the session.
    let rest = found(&place, &["win"]);
    assert!(events.iter().all(|told| rest.contains(&(told.thread, told.number))
        != whole.contains(&(told.thread, told.number))));
    let ran = place.run(&["report", "win.snapshot-1", "--strict"]);
    ran.has_status(0).says("only the window of the trigger is shown");
    // The trigger's event is inside.
    ran.prints("snapshot at the end of the window");
    // Packets of CTF are cut, too.
    place.ok(&["recover", "win.snapshot-1", "-o", "ctf"]);
    assert_eq!(found(&place, &["ctf"]), cut);
}

#[test]
fn the_end_of_the_session_ends_the_window() {
    let place = Place::new();
    let (trigger, events) = record(&place, "end");
    let begins = [trigger.from, trigger.to].map(|at| at - nanos(BEFORE));
    compare(&found(&place, &["win.snapshot-1"]), &events, begins, [u64::MAX, u64::MAX]);
}

#[test]
fn what_the_ring_no_longer_had_of_the_window_is_a_loss() {
    let place = Place::new();
    record(&place, "small");
    let ran = place.run(&["report", "win.snapshot-1", "--strict"]);
    ran.has_status(3).says("the window of the trigger may begin in them");
}

#[test]
fn what_the_snapshot_before_has_of_the_window_is_told() {
    let place = Place::new();
    let window = Window { before: Some(Duration::from_secs(100)), after: Duration::ZERO };
    let builder =
        Session::builder("twice").dir(place.sessions()).snapshot(true).trigger_window(window);
    let session = builder.start().expect("it starts");
    for number in 1..3u64 {
        event!(win, "step", number);
        lastwords::trigger("step");
        wait_for_session(&place, &format!("twice.snapshot-{number}"));
    }
    let told =
        |number: u64| place.run(&["report", &format!("twice.snapshot-{number}"), "--strict"]);
    let (first, second) = (told(1), told(2));
    let there = "up to the snapshot before, which has them";
    first.has_status(0).does_not_say(there);
    second.has_status(0).says(there);
    session.remove();
}

#[test]
fn conditions_are_listed_as_they_are_added() {
    let place = Place::new();
    std::fs::create_dir(place.at("kept")).expect("a folder");
    let session = Session::builder("listed").dir(place.sessions()).start().expect("a session");
    let kept = std::fs::canonicalize(place.at("kept")).expect("a path");
    let save = format!("save:{}", kept.display());
    for args in [
        vec!["a:b"],
        vec!["a:b", "--before", "10s", "--after", "1500ms"],
        vec!["a:b", "--after", "7ns", "--limit", "1/10s"],
        vec![
            "a:*", "--level", "warn", "--filter", "'x > 1'", "--then", "c:d", "--above", "5ms",
            "--on", "'id'", "--count", "3",
        ],
        vec!["a:b", "--do", "stop"],
    ] {
        let plain: Vec<&str> = args.iter().map(|word| word.trim_matches('\'')).collect();
        place.ok(&[&["trigger", "add", "-s", "listed"], &plain[..]].concat());
        let listed = place.ok(&["trigger", "list", "listed"]);
        let words: BTreeSet<&str> = listed.split_whitespace().collect();
        let expected: BTreeSet<&str> = args.iter().flat_map(|word| word.split(' ')).collect();
        assert!(expected.is_subset(&words), "{args:?}: {listed}");
        place.ok(&["trigger", "remove", "--all", "-s", "listed"]);
    }
    place.ok(&["trigger", "add", "a:b", "-s", "listed", "--do", &save]);
    assert_eq!(place.ok(&["trigger", "list", "listed"]), format!("a:b --do '{save}'\n"));
    for (args, said) in [
        (vec!["--do", "exec:reboot"], "trigger watch"),
        (vec!["--do", "save:/no/such/folder"], "No such file"),
        (vec!["--then", "c:d"], "--above"),
        (vec!["--on", "x"], "--then"),
        (vec!["--limit", "0/10s"], "lets nothing pass"),
        (vec!["--before", "ten"], "number and a unit"),
    ] {
        let ran = place.run(&[&["trigger", "add", "a:b", "-s", "listed"], &args[..]].concat());
        ran.has_status(2).says(said);
    }
    for args in [
        vec!["--do", "stop", "--before", "1s"],
        vec!["--then", "c:d", "--above", "1s", "--on", "x + 1"],
        vec!["--then", "c:d", "--above", "1s", "--on", "x == 1"],
    ] {
        place.run(&[&["trigger", "add", "a:b", "-s", "listed"], &args[..]].concat()).has_status(1);
    }
    session.remove();
}

#[test]
fn a_watcher_runs_its_command_for_each_snapshot() {
    let place = Place::new();
    std::fs::create_dir(place.at("kept")).expect("a folder");
    let session = Session::builder("watched")
        .dir(place.sessions())
        .snapshot(true)
        .start()
        .expect("a session");
    let save = format!("save:{}", place.at("kept").display());
    place.ok(&["trigger", "add", "watched:bad", "-s", "watched", "--do", &save]);
    let command = "echo \"$LASTWORDS_SESSION $LASTWORDS_SNAPSHOT\" >> ran; ls \"$LASTWORDS_SNAPSHOT\" > /dev/null";
    let err = std::fs::File::create(place.at("err")).expect("a file");
    let watch = place
        .command()
        .args(["trigger", "watch", "watched", "--count", "2", "--exec", command])
        .stdout(std::process::Stdio::piped())
        .stderr(err)
        .spawn()
        .expect("it starts");
    let has = |file: &str, text: &str| {
        std::fs::read_to_string(place.at(file)).is_ok_and(|found| found.contains(text))
    };
    wait_until("it watches", || has("err", "watching"));
    event!(watched, "bad", n = 1u8);
    wait_until("the command has run", || has("ran", "\n"));
    place.ok(&["trigger", "fire", "by hand", "-s", "watched"]);
    let output = watch.wait_with_output().expect("it ends");
    assert!(output.status.success());
    let ran = std::fs::read_to_string(place.at("ran")).expect("readable");
    let folders: Vec<&str> =
        ran.lines().map(|line| line.strip_prefix("watched ").expect(line)).collect();
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().collect::<Vec<_>>(), folders);
    let is_in = |folder: &str, base: std::path::PathBuf| {
        std::path::Path::new(folder).parent() == Some(&*base)
    };
    assert!(
        is_in(folders[0], std::fs::canonicalize(place.at("kept")).expect("a path")),
        "{folders:?}"
    );
    assert!(is_in(folders[1], place.sessions()), "{folders:?}");
    place.run(&["report", folders[0]]).prints("watched:bad").does_not_say("window");
    session.remove();
}

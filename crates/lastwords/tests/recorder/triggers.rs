//! Tests triggers: what is kept of the moments before each, while recording goes on.
#![allow(missing_docs, reason = "a test")]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::common;
use crate::common::{
    StopAtEnd, child_dir, end_of, every, folder, plain, record, triggered, wait_for_saved,
    with_main,
};
use lastwords::condition::Condition;
use lastwords::{Builder, Reservation, Triggered, Window};
use lastwords_control::Handle;
use lastwords_testkit::naive;

/// Configures a session with a second channel for the events of the recorder itself.
fn builder(dir: &Path) -> Builder {
    use lastwords::rules::RuleSpec;
    let own = |enable| RuleSpec { enable, ..RuleSpec::enable("lastwords:*") };
    with_main("shop", dir)
        .channel(plain("own"))
        .snapshot(true)
        .rule(own(false).in_channel(0))
        .rule(RuleSpec::disable("test:*").in_channel(1))
}

/// Returns the folders of saved snapshots, in the order of their numbers.
fn saved(dir: &Path) -> Vec<PathBuf> {
    let entries =
        std::fs::read_dir(dir).expect("readable").map(|entry| entry.expect("an entry").path());
    let number = |path: &PathBuf| {
        let (_, rest) = path.to_str()?.split_once("shop.snapshot-")?;
        rest.split_once('-')?.0.parse::<u32>().ok()
    };
    let mut found: Vec<(u32, PathBuf)> =
        entries.filter_map(|path| Some((number(&path)?, path))).collect();
    found.sort();
    found.into_iter().map(|(_, path)| path).collect()
}

fn number(body: &[u8]) -> u64 {
    u64::from_ne_bytes(body.try_into().expect("8 bytes"))
}

/// Returns the numbers of the channel `main`.
fn numbers(folder: &Path) -> Vec<u64> {
    common::bodies_of(folder, 0, naive::Session::events).iter().map(|body| number(body)).collect()
}

/// Returns the texts of the channel `own`: those of triggers' events.
fn texts(folder: &Path) -> Vec<Vec<String>> {
    let of = |body: Vec<u8>| {
        body.split(|byte| *byte == 0)
            .map(|text| String::from_utf8_lossy(text).into_owned())
            .collect()
    };
    common::bodies_of(folder, 1, naive::Session::events).into_iter().map(of).collect()
}

#[test]
fn each_of_two_errors_leaves_its_own_snapshot() {
    alone!();
    for reservation in [Reservation::Rseq, Reservation::Lockless, Reservation::Locked] {
        if reservation == Reservation::Rseq && !lastwords::rseq_available() {
            continue;
        }
        let dir = tempfile::tempdir().expect("a folder");
        let session = builder(dir.path()).reservation(reservation).start().expect("it starts");
        record(0..1000);
        lastwords::trigger("first");
        record(1000..2000);
        // The first snapshot may not be saved yet.
        lastwords::trigger("second");
        record(2000..2500);
        wait_for_saved(&session, 2);
        let folders = saved(dir.path());
        assert_eq!(folders.len(), 2);
        assert_eq!(numbers(&folders[0]), every(0..1000), "before the first");
        let second = numbers(&folders[1]);
        assert_eq!(second[..1000], every(1000..2000), "between them");
        let live = numbers(&folder(&session));
        assert_eq!([second, live].concat(), every(1000..2500), "recording goes on");
        assert_eq!(texts(&folders[0])[0][..3], ["first", "call", "snapshot"]);
        let events = [texts(&folders[1]), texts(&folder(&session))].concat();
        assert!(
            events.iter().any(|event| event[0] == "second" && event[1] == "call"),
            "{events:?}"
        );
        assert_eq!(triggered(&session), Triggered { fired: 2, saved: 2, ..Triggered::default() });
        for copy in &folders {
            assert_eq!(common::details(copy).state, lastwords_control::State::Copied);
            assert_eq!(common::lost(copy), 0);
            lastwords_control::destroy(copy).expect("removed like any session");
        }
        session.remove();
    }
}

#[test]
fn an_error_waits_for_a_snapshot_that_is_being_read() {
    alone!(in dir);
    let session = builder(dir.path()).start().expect("it starts");
    record(0..10);
    session.snapshot(lastwords::snapshot::Rings::All).expect("taken");
    let reader = session.read_snapshot().expect("read");
    record(10..20);
    lastwords::trigger("while another is read");
    record(20..30);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(triggered(&session), Triggered { fired: 1, waiting: 1, ..Triggered::default() });
    reader.release();
    // The session's thread looks once a second.
    wait_for_saved(&session, 1);
    assert_eq!(numbers(&saved(dir.path())[0]), every(10..30));
    session.remove();
}

#[test]
fn a_snapshot_that_nobody_read_is_saved_before_the_next() {
    alone!(in dir);
    let session = builder(dir.path()).start().expect("it starts");
    record(0..10);
    session.snapshot(lastwords::snapshot::Rings::All).expect("taken");
    record(10..20);
    lastwords::trigger("after a snapshot by hand");
    wait_for_saved(&session, 2);
    let folders = saved(dir.path());
    assert_eq!(numbers(&folders[0]), every(0..10));
    assert_eq!(numbers(&folders[1]), every(10..20));
    session.remove();
}

#[test]
fn triggers_above_the_limit_are_counted_and_told() {
    alone!(in dir);
    let session = builder(dir.path())
        .trigger_limit(2, Duration::from_millis(1500))
        .start()
        .expect("it starts");
    for saved in [1, 2, 2, 2, 2] {
        lastwords::trigger("storm");
        wait_for_saved(&session, saved);
    }
    let handle = Handle::open(&folder(&session)).expect("it opens");
    let error = handle.fire("asked for").expect_err("it is limited").to_string();
    assert!(error.contains("took no snapshot: 2 in 1.5s are the most"), "{error}");
    assert_eq!(
        triggered(&session),
        Triggered { fired: 6, limited: 4, saved: 2, ..Triggered::default() }
    );
    std::thread::sleep(Duration::from_millis(1600));
    lastwords::trigger("later");
    wait_for_saved(&session, 3);
    let folders = saved(dir.path());
    let all: Vec<_> = folders.iter().flat_map(|folder| texts(folder)).collect();
    let of = |name: &str, word: &str| {
        all.iter().filter(|event| event[0] == name && event[2] == word).count()
    };
    assert_eq!(of("storm", "limited"), 3, "{all:?}");
    let last = all.iter().find(|event| event[0] == "later").expect("its event");
    // The number of the snapshot (3), then that of the limited triggers.
    assert_eq!(last[2..4], ["snapshot", "\u{3}"], "{last:?}");
    assert!(last.iter().any(|word| *word == "\u{4}"), "{last:?}");
    session.remove();
}

#[test]
fn triggers_that_share_a_snapshot_count_once() {
    alone!(in dir);
    let minute = Duration::from_secs(60);
    let window = Window::new(minute, Duration::from_millis(300));
    let condition = Condition::on("t:share").with_window(window);
    let session = builder(dir.path())
        .trigger_limit(2, minute)
        .trigger_on(condition)
        .start()
        .expect("it starts");
    for _ in 0..6 {
        lastwords::event!(t, "share", n = 1u8);
    }
    wait_for_saved(&session, 1);
    lastwords::trigger("a real error");
    wait_for_saved(&session, 2);
    assert_eq!(triggered(&session), Triggered { fired: 7, saved: 2, ..Triggered::default() });
    let second = texts(&saved(dir.path())[1]);
    assert!(
        second.iter().any(|event| event[..3] == ["a real error", "call", "snapshot"]),
        "{second:?}"
    );
    session.remove();
}

#[test]
fn a_session_without_snapshots_has_the_event_alone() {
    alone!(in dir);
    let session = builder(dir.path()).snapshot(false).start().expect("it starts");
    lastwords::trigger("only told");
    let events = texts(&folder(&session));
    assert_eq!(events[0][..3], ["only told", "call", "snapshots are not enabled"]);
    assert!(saved(dir.path()).is_empty());
    session.remove();
}

extern "C" fn in_handler(_signal: libc::c_int) {
    lastwords::trigger("signal");
}

#[test]
fn a_trigger_in_a_signal_handler_is_left_to_the_thread() {
    alone!(in dir);
    let session = builder(dir.path()).start().expect("it starts");
    record(0..100);
    // SAFETY: the handler only calls what may be called in handlers.
    unsafe {
        let handler: extern "C" fn(libc::c_int) = in_handler;
        libc::signal(libc::SIGUSR1, handler as libc::sighandler_t);
        libc::raise(libc::SIGUSR1);
    }
    wait_for_saved(&session, 1);
    let folders = saved(dir.path());
    assert_eq!(numbers(&folders[0]), every(0..100));
    assert_eq!(texts(&folders[0])[0][..3], ["signal", "call", "snapshot by the session's thread"]);
    session.remove();
}

#[test]
fn another_process_fires() {
    alone!(in dir);
    let session = builder(dir.path()).start().expect("it starts");
    record(0..100);
    let handle = Handle::open(&folder(&session)).expect("it opens");
    handle.fire(&"x".repeat(100)).expect("answered");
    wait_for_saved(&session, 1);
    let folders = saved(dir.path());
    assert_eq!(numbers(&folders[0]), every(0..100));
    assert_eq!(texts(&folders[0])[0][..3], [&"x".repeat(64), "command", "snapshot"]);
    let kept = folder(&session);
    session.close();
    let error = Handle::open(&kept).expect("it opens").fire("late").expect_err("nobody answers");
    assert!(error.to_string().contains("no process of the session answers"), "{error}");
}

#[test]
fn the_end_of_a_session_saves_what_waits() {
    alone!(in dir);
    let session = builder(dir.path()).start().expect("it starts");
    record(0..50);
    lastwords::trigger("one");
    record(50..60);
    lastwords::trigger("two");
    session.close();
    let folders = saved(dir.path());
    let found: Vec<u64> = folders.iter().flat_map(|folder| numbers(folder)).collect();
    assert_eq!(found, every(0..60), "{folders:?}");
}

/// Fires while threads record. All that a thread had recorded before the call is in the snapshot,
/// each snapshot begins where the one before ends, and none has a gap.
#[test]
fn nothing_that_was_recorded_before_is_missing_under_load() {
    alone!(in dir);
    let limited = builder(dir.path()).trigger_limit(100, Duration::from_secs(1));
    // Large enough for all events.
    let session = limited.size(64 << 20).start().expect("it starts");
    let (stop, recorded) = (AtomicBool::new(false), [const { AtomicU64::new(0) }; 2]);
    let mut before = Vec::new();
    std::thread::scope(|scope| {
        let _stop = StopAtEnd(&stop);
        for (thread, recorded) in (0u64..).zip(&recorded) {
            let stop = &stop;
            scope.spawn(move || {
                for n in 1u64.. {
                    lastwords::event!(test, "loaded", number = thread << 56 | n);
                    recorded.store(n, Ordering::SeqCst);
                    match stop.load(Ordering::Relaxed) {
                        true => break,
                        false if n % 500 == 0 => std::thread::sleep(Duration::from_millis(1)),
                        false => {}
                    }
                }
            });
        }
        for fired in 0..5 {
            std::thread::sleep(Duration::from_millis(20));
            before.push(recorded.each_ref().map(|n| n.load(Ordering::SeqCst)));
            lastwords::trigger("under load");
            wait_for_saved(&session, fired + 1);
        }
    });
    let mut ends = [0, 0];
    for (copy, before) in saved(dir.path()).iter().zip(before) {
        let found = numbers(copy);
        for (thread, end) in (0..).zip(&mut ends) {
            let mut own: Vec<u64> =
                found.iter().filter(|n| **n >> 56 == thread).map(|n| n & ((1 << 56) - 1)).collect();
            own.sort_unstable();
            assert!(
                own.iter().zip(*end + 1..).all(|(n, expected)| *n == expected),
                "{}: a gap",
                copy.display()
            );
            *end += own.len() as u64;
            let had = before[thread as usize];
            assert!(
                *end >= had,
                "{}: {end} events of thread {thread}, {had} were recorded",
                copy.display()
            );
        }
    }
    session.remove();
}

#[path = "../../examples/errors.rs"]
mod example;

#[test]
fn child_is_the_example() {
    if child_dir().is_some() {
        example::main().expect("it runs");
    }
}

/// The program in `examples/errors.rs`: two errors, one during the snapshot of the other, while
/// recording goes on.
#[test]
fn the_example_keeps_the_moments_before_both_errors() {
    alone!(in dir);
    let variables = [("LASTWORDS_DIR", dir.path().to_str().expect("a path"))];
    assert!(end_of("child_is_the_example", dir.path(), &variables).success());
    let entries =
        std::fs::read_dir(dir.path()).expect("readable").flatten().map(|entry| entry.path());
    let (mut folders, live): (Vec<PathBuf>, Vec<PathBuf>) = entries
        .filter(|path| path.is_dir())
        .partition(|path| path.to_string_lossy().contains(".snapshot-"));
    folders.sort();
    // If the session's thread did not run between the two, they share a snapshot.
    assert!([1, 2].contains(&folders.len()) && live.len() == 1, "{folders:?}");
    let live = &live[0];
    // Each channel has the thread's id in front. The first event of each class has the id 0 of
    // `shop:request`.
    let requests = |folder: &Path| -> Vec<u64> {
        let of = |body: Vec<u8>| {
            Some(u64::from_ne_bytes(*body.get(4..)?.first_chunk::<8>()?))
                .filter(|_| body.len() == 12)
        };
        common::bodies_of(folder, 0, naive::Session::events).into_iter().filter_map(of).collect()
    };
    let mut parts: Vec<_> = folders.iter().map(|folder| requests(folder)).collect();
    assert!(
        parts[0].len() > 1000 && parts[0][..=1000].iter().copied().eq(0..=1000),
        "before the first error"
    );
    assert!(parts.last().and_then(|part| part.last()) >= Some(&1001), "before the second error");
    parts.push(requests(live));
    assert!(parts.concat().into_iter().eq(0..3000), "recording went on, and nothing is missing");
    // What is copied into the channel for warnings and errors comes behind the thread's id, too.
    let told = |folder: &PathBuf| common::bodies_of(folder, 1, naive::Session::events);
    let told: Vec<Vec<u8>> = folders.iter().flat_map(told).collect();
    for name in [&b"shop:payment\0event\0"[..], b"slow request\0call\0"] {
        assert!(
            told.iter().any(|body| body.get(4..).is_some_and(|body| body.starts_with(name))),
            "{told:?}"
        );
    }
}

/// Fires and is killed at once, before the snapshot can be saved.
#[test]
fn child_that_fires_and_dies() {
    let Some(dir) = child_dir() else { return };
    let session = builder(&dir).listen(false).start().expect("it starts");
    std::fs::write(dir.join("folder"), folder(&session).to_str().expect("a path"))
        .expect("written");
    record(0..100);
    lastwords::trigger("the last");
    record(100..150);
    common::kill_self();
}

#[test]
fn a_snapshot_that_nobody_saved_is_in_the_session() {
    alone!(in dir);
    assert!(!end_of("child_that_fires_and_dies", dir.path(), &[]).success());
    let session = std::fs::read_to_string(dir.path().join("folder")).expect("a path");
    let snapshot = common::bodies_of(Path::new(&session), 0, naive::Session::snapshot_events);
    assert_eq!(snapshot.iter().map(|body| number(body)).collect::<Vec<_>>(), every(0..100));
    assert_eq!(numbers(Path::new(&session)), every(100..150));
}

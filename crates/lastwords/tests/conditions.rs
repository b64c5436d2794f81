//! Tests conditions on events that fire triggers.
#![allow(missing_docs, reason = "a test")]

mod common;

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use common::{folder, lost, plain, wait_for};
use lastwords::condition::{Action, Condition};
use lastwords::remote_control::Handle;
use lastwords::{Builder, Level, Session, Triggered, event};
use lastwords_testkit::naive;

/// Held while a test has its session, because the sessions of all tests take the events of each.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn builder(dir: &Path) -> Builder {
    // Two channels take each event: a condition is evaluated once.
    let builder = Session::builder("cond").dir(dir).channel(plain("main")).channel(plain("other"));
    builder.snapshot(true).trigger_limit(100, Duration::from_secs(1))
}

fn triggered(session: &Session) -> Triggered {
    Handle::open(&folder(session)).expect("it opens").triggered().expect("of this version")
}

fn wait_for_saved(session: &Session, count: u32) {
    wait_for("saved snapshots", || triggered(session).saved == count);
}

/// Returns the payloads of the channel `main` in the saved snapshot of a number.
fn saved(dir: &Path, number: u32) -> Vec<Vec<u8>> {
    let entries = std::fs::read_dir(dir).expect("readable").map(|entry| entry.expect("an entry"));
    let prefix = format!("cond.snapshot-{number}-");
    let found = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix)).last();
    let session = naive::read(&found.expect("the snapshot").path()).expect("readable").swap_remove(0);
    let main = session.streams.iter().filter(|stream| stream.channel == 0);
    let mut events: Vec<_> = main.flat_map(|stream| &stream.live).flat_map(|sub| &sub.events).collect();
    events.sort_by_key(|(_, event)| event.clock);
    events.into_iter().map(|(_, event)| event.body.clone()).collect()
}

fn number(n: u64) -> Vec<u8> {
    n.to_ne_bytes().to_vec()
}

#[test]
fn a_condition_keeps_the_moments_before_its_event() {
    let _alone = alone();
    let dir = tempfile::tempdir().expect("a folder");
    let failed = Condition::on("shop:failed").with_filter("code == 7 || reason ~ \"no *\"");
    let session = builder(dir.path()).trigger_on(failed).start().expect("it starts");
    let fail = |code: u64, reason: &str| event!(shop, "failed", code, reason);
    (0..100u64).for_each(|n| event!(shop, "number", n));
    fail(3, "slow");
    assert_eq!(triggered(&session).fired, 0, "its filter is false");
    fail(7, "slow");
    wait_for_saved(&session, 1);
    let first = saved(dir.path(), 1);
    assert_eq!(first[..100], (0..100).map(number).collect::<Vec<_>>());
    assert!(first[101].starts_with(&7u64.to_ne_bytes()), "the event itself is in the snapshot");
    assert!(first[102].starts_with(b"shop:failed\0event\0snapshot by the session's thread\0"), "{:?}", first.get(102));
    (100..110u64).for_each(|n| event!(shop, "number", n));
    fail(0, "no memory");
    wait_for_saved(&session, 2);
    assert!(saved(dir.path(), 2).contains(&number(109)));
    assert_eq!(triggered(&session), Triggered { fired: 2, saved: 2, ..Triggered::default() });
    assert_eq!(lost(&folder(&session)), 0);
    session.remove();
}

#[test]
fn each_third_event_and_events_of_a_level() {
    let _alone = alone();
    let dir = tempfile::tempdir().expect("a folder");
    let session = builder(dir.path())
        .trigger_on(Condition::on("shop:third").each(3))
        .trigger_on(Condition::on("*").up_to(Level::Error))
        .start()
        .expect("it starts");
    for fired in [0, 0, 1, 1, 1, 2, 2] {
        event!(shop, "third", n = 1u8);
        assert_eq!(triggered(&session).fired, fired);
    }
    event!(shop, "warning", level: WARN, n = 1u8);
    assert_eq!(triggered(&session).fired, 2);
    event!(shop, "error", level: ERROR, n = 1u8);
    assert_eq!(triggered(&session).fired, 3);
    session.remove();
}

#[test]
fn recording_stops_behind_the_event() {
    let _alone = alone();
    let dir = tempfile::tempdir().expect("a folder");
    let session = builder(dir.path()).trigger_on(Condition::on("shop:last").and_stop()).start().expect("it starts");
    let recorded = || naive::read(&folder(&session)).expect("readable")[0].events().len();
    event!(shop, "first", n = 1u8);
    event!(shop, "last", n = 2u8);
    wait_for("the stop", || {
        let before = recorded();
        event!(shop, "first", n = 3u8);
        recorded() == before
    });
    session.resume();
    let before = recorded();
    event!(shop, "first", n = 4u8);
    assert_eq!(recorded(), before + 2, "both channels");
    session.remove();
}

#[test]
fn conditions_change_at_run_time() {
    let _alone = alone();
    let dir = tempfile::tempdir().expect("a folder");
    let session = builder(dir.path()).start().expect("it starts");
    let handle = Handle::open(&folder(&session)).expect("it opens");
    let fail = || event!(shop, "changing", level: ERROR, code = 5u8);
    fail();
    let condition = Condition::on("shop:chang*").up_to(Level::Warn).with_filter("code == 5").each(2);
    handle.add_condition(&condition).expect("added");
    handle.add_condition(&Condition { action: Action::Stop, ..Condition::on("none:*") }).expect("added");
    assert_eq!(handle.conditions(), [condition.clone(), Condition::on("none:*").and_stop()]);
    wait_for("the application to follow", || {
        fail();
        triggered(&session).fired > 0
    });
    // The same condition again replaces the first, and the count begins anew.
    handle.add_condition(&condition.clone().each(1)).expect("added");
    assert_eq!(handle.conditions(), [Condition::on("none:*").and_stop(), condition.each(1)]);
    assert_eq!(handle.remove_conditions(Some("shop:chang*")).expect("removed"), 1);
    assert_eq!(handle.remove_conditions(Some("shop:chang*")).expect("none is left"), 0);
    wait_for("the application to follow", || {
        let before = triggered(&session).fired;
        (0..4).for_each(|_| fail());
        triggered(&session).fired == before
    });
    assert_eq!(handle.remove_conditions(None).expect("removed"), 1);
    for wrong in ["", "lastwords:trigger", &"x".repeat(113)] {
        assert!(handle.add_condition(&Condition::on(wrong)).is_err(), "{wrong:?}");
    }
    assert!(handle.add_condition(&Condition::on("a").with_filter("b =")).is_err());
    for n in 0..lastwords::condition::MOST {
        handle.add_condition(&Condition::on(format!("a:{n}"))).expect("added");
    }
    assert!(handle.add_condition(&Condition::on("one:more")).expect_err("full").to_string().contains("16"));
    session.remove();
}

#[test]
fn a_panic_is_an_event_that_fires() {
    let _alone = alone();
    let dir = tempfile::tempdir().expect("a folder");
    let session = builder(dir.path()).trigger_on(Condition::on("crash:panic")).start().expect("it starts");
    lastwords::crash::install_panic_hook();
    (0..10u64).for_each(|n| event!(shop, "number", n));
    std::thread::spawn(|| panic!("a thread gave up")).join().expect_err("it panics");
    wait_for_saved(&session, 1);
    assert_eq!(saved(dir.path(), 1)[..10], (0..10).map(number).collect::<Vec<_>>());
    session.remove();
}

/// One error among a million other events, which lap the ring many times. The moments before the error are in its
/// snapshot.
#[test]
fn one_error_among_many_events_survives() {
    let _alone = alone();
    let dir = tempfile::tempdir().expect("a folder");
    let session = builder(dir.path()).trigger_on(Condition::on("shop:rare")).start().expect("it starts");
    for n in 0..1_000_000u64 {
        event!(shop, "many", n);
        if n == 700_000 {
            event!(shop, "rare", n);
            // A recorder that never rests may lap the ring before the session's thread runs.
            wait_for("the snapshot", || triggered(&session).saved + triggered(&session).failed > 0);
        }
    }
    let kept = saved(dir.path(), 1);
    let many: Vec<u64> = (600_000..=700_000).filter(|n| kept.contains(&number(*n))).collect();
    assert!(many.len() > 1000, "{} events before the error", many.len());
    assert_eq!(*many.last().expect("events"), 700_000);
    assert!(many.windows(2).all(|pair| pair[0] + 1 == pair[1]), "a gap");
    session.remove();
}

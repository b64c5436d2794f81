//! Tests conditions on events that fire triggers.
#![allow(missing_docs, reason = "a test")]

use lastwords_testkit::text::Text as _;
use std::path::Path;
use std::time::Duration;

use crate::common;
use crate::common::{
    folder, lost, plain, stay_on_one_cpu, triggered, wait_for, wait_for_saved, with_main,
};
use lastwords::condition::{Action, Condition};
use lastwords::{Builder, Level, Triggered, Window, event};
use lastwords_control::Handle;
use lastwords_testkit::naive;
use lastwords_testkit::random::{Random, setting};

fn builder(dir: &Path) -> Builder {
    // Two channels take each event: a condition is evaluated once.
    with_main("cond", dir)
        .channel(plain("other"))
        .snapshot(true)
        .trigger_limit(100, Duration::from_secs(1))
}

/// Returns the payloads of the channel `main` in the saved snapshot of a number.
fn saved(dir: &Path, number: u32) -> Vec<Vec<u8>> {
    of_channel(dir, number, 0)
}

fn of_channel(dir: &Path, number: u32, channel: u32) -> Vec<Vec<u8>> {
    let entries = std::fs::read_dir(dir).expect("readable").map(|entry| entry.expect("an entry"));
    let prefix = format!("cond.snapshot-{number}-");
    let found =
        entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix)).last();
    let live = naive::Session::events;
    common::bodies_of(&found.expect("the snapshot").path(), channel, live)
}

fn number(n: u64) -> Vec<u8> {
    n.to_ne_bytes().to_vec()
}

#[test]
fn a_condition_keeps_the_moments_before_its_event() {
    alone!(in dir);
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
    assert!(
        first[102].starts_with(b"shop:failed\0event\0snapshot by the session's thread\0"),
        "{:?}",
        first.get(102)
    );
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
    alone!(in dir);
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
    alone!(in dir);
    let session = builder(dir.path())
        .trigger_on(Condition::on("shop:last").and_stop())
        .start()
        .expect("it starts");
    let recorded = || common::events(&folder(&session)).len();
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
    alone!(in dir);
    let session = builder(dir.path()).start().expect("it starts");
    let handle = Handle::open(&folder(&session)).expect("it opens");
    let fail = || event!(shop, "changing", level: ERROR, code = 5u8);
    fail();
    let condition =
        Condition::on("shop:chang*").up_to(Level::Warn).with_filter("code == 5").each(2);
    handle.add_condition(&condition).expect("added");
    handle
        .add_condition(&Condition { action: Action::Stop, ..Condition::on("none:*") })
        .expect("added");
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
    handle.add_condition(&Condition::on("one:more")).expect_err("full").to_string().has("16");
    session.remove();
}

#[test]
fn a_panic_is_an_event_that_fires() {
    alone!(in dir);
    let session =
        builder(dir.path()).trigger_on(Condition::on("crash:panic")).start().expect("it starts");
    lastwords::crash::install_panic_hook();
    (0..10u64).for_each(|n| event!(shop, "number", n));
    std::thread::spawn(|| panic!("a thread gave up")).join().expect_err("it panics");
    wait_for_saved(&session, 1);
    assert_eq!(saved(dir.path(), 1)[..10], (0..10).map(number).collect::<Vec<_>>());
    session.remove();
}

/// One error among a million other events, which lap the ring many times. The moments before the
/// error are in its snapshot, and the error itself is in the channel for errors, in which no other
/// event laps it. `LASTWORDS_EVENTS=10000000` tries more events.
#[test]
fn one_error_among_many_events_survives() {
    alone!(in dir);
    let rare = Condition::on("shop:rare");
    let session = builder(dir.path()).errors_channel().trigger_on(rare).start().expect("it starts");
    // Each CPU's ring keeps its own newest events, so that those of a thread that moves have gaps.
    stay_on_one_cpu();
    let events = setting("LASTWORDS_EVENTS", 1_000_000);
    for n in 0..events {
        event!(shop, "many", n);
        if n == 100 {
            event!(shop, "early", level: ERROR, n);
        }
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
    // The error of the very start: the snapshot, which was taken long after it, has it in the
    // channel for errors alone.
    let has_early = |bodies: &[Vec<u8>]| bodies.iter().any(|body| body.ends_with(&number(100)));
    assert!(has_early(&of_channel(dir.path(), 1, 2)) && !has_early(&kept));
    session.remove();
}

/// The model of latencies: the starts by key, and whether an end with the same key follows one.
#[derive(Default)]
struct Model {
    starts: std::collections::BTreeSet<u64>,
    fired: u32,
}

impl Model {
    fn start(&mut self, key: u64) {
        self.starts.insert(key);
    }

    fn end(&mut self, key: u64) {
        self.fired += u32::from(self.starts.remove(&key));
    }
}

#[test]
fn latencies_match_the_events_that_a_model_matches() {
    alone!(in dir);
    // Every latency is above nothing, and none is above a day.
    let day = Duration::from_secs(86400);
    let session = builder(dir.path())
        .trigger_limit(1_000_000, Duration::from_secs(1))
        .save_snapshots(false)
        .trigger_on(
            Condition::on("shop:begin").then_above("shop:end", Duration::ZERO).on_equal("id"),
        )
        .trigger_on(Condition::on("shop:begin").then_above("shop:end", day))
        .start()
        .expect("it starts");
    let handle = Handle::open(&folder(&session)).expect("it opens");
    let (mut model, mut random) = (Model::default(), Random(1));
    for _ in 0..3000 {
        let id = random.below(10);
        match random.below(4) {
            0 | 1 => {
                model.start(id);
                event!(shop, "begin", other = random.bits(), id);
            }
            2 => {
                model.end(id);
                event!(shop, "end", id, text = "some text");
            }
            _ => event!(shop, "end", other = id),
        }
        let fired = handle.triggered().fired;
        assert_eq!(fired, model.fired, "without the field an event ends nothing");
    }
    assert!(model.fired > 200);
    // Texts are matched, too, and a threshold holds.
    handle.remove_conditions(None).expect("removed");
    let slow = Condition::on("shop:begin").with_filter("kind == \"slow\"");
    handle
        .add_condition(&slow.then_above("shop:end", Duration::from_millis(20)).on_equal("name"))
        .expect("added");
    let request = |kind: &str, name: &str| {
        event!(shop, "begin", kind, name);
        std::thread::sleep(Duration::from_millis(25));
        event!(shop, "end", name);
    };
    let before = triggered(&session).fired;
    wait_for("the conditions", || {
        request("slow", "first");
        triggered(&session).fired > before
    });
    let before = triggered(&session).fired;
    request("quick", "second");
    assert_eq!(triggered(&session).fired, before, "the filter is that of the start");
    assert_eq!(triggered(&session).replaced, 0);
    session.remove();
}

#[test]
fn latencies_match_threads_by_default() {
    alone!(in dir);
    let latency = Condition::on("shop:begin").then_above("shop:end", Duration::ZERO);
    let session =
        builder(dir.path()).save_snapshots(false).trigger_on(latency).start().expect("it starts");
    event!(shop, "begin", n = 1u8);
    std::thread::spawn(|| event!(shop, "end", n = 1u8)).join().expect("it ends");
    assert_eq!(triggered(&session).fired, 0, "the end of another thread");
    event!(shop, "end", n = 1u8);
    assert_eq!(triggered(&session).fired, 1);
    event!(shop, "end", n = 1u8);
    assert_eq!(triggered(&session).fired, 1, "each start has one end");
    // More starts than the table has room for are counted.
    (0..200).for_each(|_| {
        std::thread::spawn(|| event!(shop, "begin", n = 1u8)).join().expect("it ends")
    });
    assert!(triggered(&session).replaced >= 72, "{:?}", triggered(&session));
    event!(shop, "begin", n = 1u8);
    event!(shop, "end", n = 1u8);
    assert_eq!(triggered(&session).fired, 2, "the newest start is there");
    session.remove();
}

#[test]
fn a_condition_has_a_limit_and_a_folder_of_its_own() {
    alone!(in dir);
    let kept = tempfile::tempdir().expect("another folder");
    let hour = Duration::from_secs(3600);
    let session = builder(dir.path())
        .trigger_on(Condition::on("shop:storm").with_limit(2, hour).save_in(kept.path()))
        .trigger_on(Condition::on("shop:other"))
        .start()
        .expect("it starts");
    let count = |dir: &Path| std::fs::read_dir(dir).expect("readable").count();
    for saved in [1, 2, 2, 2] {
        event!(shop, "storm", n = 1u8);
        wait_for_saved(&session, saved);
    }
    assert_eq!((triggered(&session).limited, count(kept.path()), count(dir.path())), (2, 2, 1));
    event!(shop, "other", n = 1u8);
    wait_for_saved(&session, 3);
    assert_eq!((triggered(&session).limited, count(kept.path()), count(dir.path())), (2, 2, 2));
    let handle = Handle::open(&folder(&session)).expect("it opens");
    // A change of the conditions begins the counts anew. A folder that is gone does not lose the
    // snapshot.
    let gone = handle.conditions().swap_remove(0);
    assert_eq!(gone.limit, Some((2, hour)));
    handle.remove_conditions(None).expect("removed");
    handle.add_condition(&gone).expect("added");
    drop(kept);
    let before = triggered(&session).fired;
    wait_for("the condition", || {
        event!(shop, "storm", n = 1u8);
        triggered(&session).fired > before
    });
    wait_for("the snapshot", || count(dir.path()) == 3);
    for wrong in [
        Condition::on("a:b").save_in("relative"),
        Condition::on("a:b").save_in(gone.folder.expect("a folder")),
        Condition::on("a:b").with_limit(0, hour),
        Condition::on("a:b").and_stop().with_window(Window::new(hour, hour)),
        Condition::on("a:b").then_above("c:d", hour).on_equal("a + b"),
        Condition::on("a:b").then_above("", hour),
        Condition::on("a:b").then_above("c:d", hour).on_equal("long".repeat(60)),
    ] {
        assert!(handle.add_condition(&wrong).is_err(), "{wrong:?}");
    }
    session.remove();
}

#[test]
fn triggers_during_a_window_share_its_snapshot() {
    alone!(in dir);
    let kept = tempfile::tempdir().expect("another folder");
    let after = Duration::from_millis(100);
    let (first, second) =
        (Window::new(Duration::from_secs(9), after), Window { before: None, after });
    let session = builder(dir.path())
        .trigger_on(Condition::on("shop:first").with_window(first))
        .trigger_on(Condition::on("shop:second").with_window(second).save_in(kept.path()))
        .start()
        .expect("it starts");
    event!(shop, "number", n = 0u64);
    event!(shop, "first", n = 1u64);
    event!(shop, "second", n = 2u64);
    let waited = triggered(&session);
    wait_for("the snapshot", || triggered(&session).saved > 0);
    // On a slow machine, the first window may have ended before the second event.
    if waited.waiting == 2 {
        wait_for_saved(&session, 1);
        let first = saved(dir.path(), 1);
        assert!([0, 1, 2].into_iter().all(|n| first.contains(&number(n))), "{first:?}");
        assert_eq!(
            std::fs::read_dir(kept.path()).expect("readable").count(),
            1,
            "it is saved in both folders"
        );
    }
    assert_eq!(lost(&folder(&session)), 0);
    session.remove();
}

#[test]
fn conditions_fire_as_often_as_they_may() {
    alone!(in dir);
    let (few, many) = (Condition::on("shop:few").times(2), Condition::on("shop:many").times(100));
    let session = builder(dir.path()).trigger_on(few).trigger_on(many).start().expect("it starts");
    let handle = Handle::open(&folder(&session)).expect("it opens");
    for fired in [1, 2, 2, 2] {
        event!(shop, "few", n = 1u8);
        assert_eq!(triggered(&session).fired, fired);
    }
    // Threads that record at the same time share the firings.
    std::thread::scope(|scope| {
        (0..4).for_each(|_| {
            drop(scope.spawn(|| (0..500).for_each(|n| event!(shop, "many", n = n as u64))))
        });
    });
    assert_eq!(triggered(&session).fired, 102);
    // Other conditions come and go, also those ahead in the list, and the firings stay used.
    let left = || handle.conditions().iter().map(|one| one.times).collect::<Vec<_>>();
    for times in [1, 3] {
        handle.add_condition(&Condition::on("shop:new").times(times)).expect("added");
        assert_eq!(left(), [Some(0), Some(0), Some(times)]);
        wait_for("the new condition", || {
            event!(shop, "few", n = 1u8);
            event!(shop, "many", n = 1u64);
            event!(shop, "new", n = 1u8);
            handle.conditions()[2].times == Some(0)
        });
        handle.remove_conditions(Some("shop:new")).expect("removed");
    }
    handle.remove_conditions(Some("shop:few")).expect("removed");
    assert_eq!(left(), [Some(0)]);
    assert_eq!(triggered(&session).fired, 106);
    assert!(handle.add_condition(&Condition::on("a:b").times(u64::MAX)).is_err());
    session.remove();
}

/// Four events start and stop recording, and enable and disable a fifth one. A model says what each
/// leads to.
#[test]
fn actions_fire_where_they_change_something() {
    alone!(in dir);
    let conditions = [
        Condition::on("switch:start").and_start().times(4),
        Condition::on("switch:stop").and_stop().always(),
        Condition::on("switch:enable").and_enable("shop:target"),
        Condition::on("switch:disable").and_disable("shop:target").times(5),
    ];
    let mut builder = builder(dir.path()).events("shop:*");
    builder =
        conditions.into_iter().fold(builder, |builder, condition| builder.trigger_on(condition));
    let session = builder.start().expect("it starts");
    let handle = Handle::open(&folder(&session)).expect("it opens");
    let recorded = || common::events(&folder(&session)).len();
    let (mut recording, mut enabled, mut fired, mut left) =
        (true, true, 0, [Some(4), None, None, Some(5)]);
    let mut random = Random(11);
    for step in 0..60 {
        let which = random.index(4);
        match which {
            0 => event!(switch, "start", n = 1u8),
            1 => event!(switch, "stop", n = 1u8),
            2 => event!(switch, "enable", n = 1u8),
            _ => event!(switch, "disable", n = 1u8),
        }
        let (state, wanted) =
            if which < 2 { (&mut recording, which == 0) } else { (&mut enabled, which == 2) };
        if *state != wanted && left[which] != Some(0) {
            *state = wanted;
            fired += 1;
            left[which] = left[which].map(|left| left - 1);
        }
        let is = || {
            let details = handle.summary().details.expect("readable");
            (details.recording, handle.takes(0, "shop", "target", 3), triggered(&session).fired)
        };
        wait_for("the action", || is() == (recording, enabled, fired));
        assert_eq!(
            handle.conditions().iter().map(|one| one.times).collect::<Vec<_>>(),
            left,
            "step {step}"
        );
        wait_for("the application to follow", || {
            let before = recorded();
            (0..3).for_each(|n| event!(shop, "target", n = n as u8));
            // Two channels.
            recorded() - before == if recording && enabled { 6 } else { 0 }
        });
        assert_eq!(is(), (recording, enabled, fired), "step {step}");
    }
    assert!(fired > 10 && left[0] == Some(0) && left[3] == Some(0), "{fired} {left:?}");
    let rules = handle.summary().details.expect("readable").rules;
    assert!(rules.len() <= 3, "switching leaves nothing behind: {rules:?}");
    session.remove();
}

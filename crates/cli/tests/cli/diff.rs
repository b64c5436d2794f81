//! `diff`: sessions that are recorded with and without a planted divergence, which is found, and
//! nothing else is.

use crate::child::{run, task};
use crate::support::{Place, assert_members};
use lastwords::{Session, event};
use lastwords_testkit::random::Random;
use lastwords_testkit::text::Text as _;
use serde_json::{Value, json};

/// Seeds of each kind of divergence.
const SEEDS: u64 = 4;
/// Threads and steps of each.
const THREADS: u64 = 3;
const STEPS: u64 = 200;

/// The recorded program. Its task has a name for the session, a seed, a divergence, the thread and
/// step that have it, and the kibibytes of the rings.
#[test]
fn recorder() {
    let Some(how) = task() else { return };
    let words: Vec<&str> = how.split(' ').collect();
    let [name, seed, planted, thread, step, kibibytes] = words.as_slice() else { panic!("{how}") };
    let number = |word: &str| word.parse::<u64>().expect("a number");
    let builder = Session::builder(*name);
    let builder = match number(kibibytes) {
        0 => builder,
        kibibytes => builder.size(kibibytes << 10),
    };
    let _session = builder.start().expect("a session");
    let (seed, at) = (number(seed), (number(thread), number(step)));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let rounds = if *planted == "long" { 100 } else { 1 };
            scope.spawn(move || (0..rounds).for_each(|_| act(seed, thread, planted, at)));
        }
    });
    std::process::abort();
}

/// Records the events of a thread: the same for each seed, apart from the planted divergence.
fn act(seed: u64, thread: u64, planted: &str, at: (u64, u64)) {
    let mut random = Random(seed * 100 + thread);
    for step in 0..STEPS {
        let is_here = at == (thread, step);
        let span = thread * STEPS + step + 1;
        match (planted, is_here) {
            ("stops", true) => return,
            ("changed", true) => {
                event!(app, "declined", step);
                random.below(5);
                continue;
            }
            ("extra", true) => event!(app, "retried", step),
            ("often", true) => (0..STEPS).for_each(|n| event!(app, "rare", n)),
            ("open", true) => event!(span, "new app::charge", span_id = span + 100_000),
            _ => {}
        }
        match random.below(5) {
            0 => event!(app, "order", step),
            1 => event!(app, "paid", step),
            2 => event!(app, "sent", step),
            3 if step % 5 == 0 && planted != "gone" => event!(app, "rare", step),
            3 => event!(app, "counted", step),
            _ => {
                event!(span, "new app::load", span_id = span);
                if planted == "all-slow" {
                    std::thread::sleep(std::time::Duration::from_millis(5));
                }
                event!(span, "close app::load", span_id = span);
            }
        }
    }
}

/// Records a run of a place.
fn record(place: &Place, name: &str, seed: u64, planted: &str, at: (u64, u64), kibibytes: u64) {
    let how = format!("{name} {seed} {planted} {} {} {kibibytes}", at.0, at.1);
    run(place, "diff::recorder", &how).ended();
}

/// Returns the findings of a comparison in words.
fn findings(diff: &Value) -> Vec<String> {
    let rows = |of: &Value| of.as_array().expect("a list").clone();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let events = rows(&diff["events"]).into_iter().filter(|row| !row["finding"].is_null());
    let events = events.map(|row| format!("{} {}", text(&row["finding"]), text(&row["name"])));
    let threads = rows(&diff["threads"]["diverged"]).into_iter();
    let threads = threads.map(|own| format!("{} after {}", text(&own["how"]), own["same"]));
    let unmatched = rows(&diff["threads"]["unmatched"]).into_iter().map(|_| "unmatched".to_owned());
    let spans = rows(&diff["spans"]);
    let open = spans.iter().filter(|row| row["never_ended"] == true);
    let open = open.map(|row| format!("open {}", text(&row["name"])));
    events.chain(threads).chain(unmatched).chain(open).collect()
}

#[test]
fn planted_divergences_of_recorded_programs_are_found_and_nothing_else_is() {
    let place = Place::new();
    let mut table = Vec::new();
    for (planted, event) in [
        ("nothing", None),
        ("extra", Some("only-bad app:retried")),
        ("changed", Some("only-bad app:declined")),
        ("gone", Some("only-good app:rare")),
        ("often", Some("more-frequent app:rare")),
        ("open", Some("open app::charge")),
        ("stops", None),
    ] {
        let (mut found, mut false_alarms) = (0, 0);
        for seed in 0..SEEDS {
            let mut random = Random(seed);
            let at = (random.below(THREADS), 1 + random.below(STEPS - 2));
            let (good, bad) = (format!("good-{planted}-{seed}"), format!("bad-{planted}-{seed}"));
            record(&place, &good, seed, "nothing", at, 0);
            record(&place, &bad, seed, planted, at, 0);
            let diff = place.json(&["diff", &good, &bad, "--json"]);
            assert_members(&diff, &json!({ "schema": "lastwords.diff.v1", "range": "whole" }));
            let findings = findings(&diff);
            let is_there = event.is_none_or(|event| findings.iter().any(|own| own == event));
            let diverged: Vec<&String> =
                findings.iter().filter(|own| own.contains(" after ")).collect();
            let is_planted = match planted {
                "nothing" => diverged.is_empty(),
                "gone" => !diverged.is_empty(),
                "stops" => diverged.len() == 1 && diverged[0].starts_with("bad-ends"),
                _ => diverged.len() == 1 && diverged[0].starts_with("differs"),
            };
            // The event of a span that stays open is one that only the bad run has.
            let new = "only-bad span:new app::charge";
            let is_own = |own: &&String| {
                Some(own.as_str()) == event
                    || own.contains(" after ")
                    || planted == "open" && *own == new
            };
            let others = findings.iter().filter(|own| !is_own(own)).count();
            found += u64::from(is_there && is_planted);
            false_alarms += others;
            if others > 0 || !is_there || !is_planted {
                eprintln!("{planted}, seed {seed}, at {at:?}: {findings:?}");
            }
        }
        table.push(format!("{planted}: {found} of {SEEDS} found, {false_alarms} false alarms"));
    }
    let expected =
        |row: &String| row.ends_with(&format!(" {SEEDS} of {SEEDS} found, 0 false alarms"));
    assert!(table.iter().all(expected), "{table:#?}");
}

#[test]
fn spans_that_take_longer_are_found() {
    let place = Place::new();
    record(&place, "good", 1, "nothing", (0, 0), 0);
    record(&place, "again", 1, "nothing", (0, 0), 0);
    record(&place, "bad", 1, "all-slow", (0, 0), 0);
    let spans = |bad: &str| place.json(&["diff", "good", bad, "--json"])["spans"].clone();
    let slow = spans("bad");
    assert_eq!(
        (&slow[0]["name"], &slow[0]["slower"]),
        (&"app::load".into(), &"slower".into()),
        "{slow:#}"
    );
    assert_eq!(spans("again")[0]["slower"], Value::Null);
    let text = place.ok(&["diff", "good", "bad"]);
    text.has("spans that take another time (good, bad)\n").has("slower");
}

#[test]
fn a_text_for_people() {
    let place = Place::new();
    record(&place, "good", 1, "nothing", (1, 50), 0);
    record(&place, "again", 1, "nothing", (1, 50), 0);
    record(&place, "bad", 1, "extra", (1, 50), 0);
    let same = place.ok(&["diff", "good", "again"]);
    same.has("compared  both runs whole, from their beginning\nnothing differs clearly\n");
    let text = place.ok(&["diff", "good", "bad"]);
    text.has("only in bad").has("app:retried");
    text.has("2 of 3 that were matched have the same sequence, 3 of them by sequence");
    let line = text.lines().find(|line| line.contains(" diverges after ")).expect("a divergence");
    assert!(line.starts_with("  a thread without a name ("), "{text}");
    assert!(text.lines().any(|line| line.starts_with("    bad   app:retried, ")), "{text}");
    place.ok(&["diff", "good", "bad", "-e", "order"]).has("nothing differs clearly");
    place.run(&["diff", "good", "nobody"]).has_status(1).prints_nothing();
    place.run(&["diff", "good", "bad", "-e", "nothing"]).has_status(1).says("without events");
}

#[test]
fn rings_that_overwrote_their_beginning_are_compared_from_the_end() {
    let place = Place::new();
    record(&place, "good", 1, "nothing", (0, 0), 0);
    record(&place, "bad", 1, "long", (0, 0), 64);
    let diff = place.json(&["diff", "good", "bad", "--json"]);
    assert_eq!(diff["bad"]["from_beginning"], false, "the ring is too large: {diff:#}");
    assert!(diff["threads"]["not_compared"].as_str().unwrap().contains("the bad run"), "{diff:#}");
    assert!(diff["threads"]["diverged"].as_array().unwrap().is_empty());
    // Both have all kinds of events in the time that is compared, however short it is.
    assert!(diff["range"]["last_ns"].is_string(), "{diff:#}");
    let text = place.ok(&["diff", "good", "bad"]);
    text.has("compared  the last ").has("of both, which both have without a gap");
    text.has("  not compared: the beginning of the bad run is overwritten");
}

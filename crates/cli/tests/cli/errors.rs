//! Warnings and errors go to a small channel besides: floods do not evict them, and text has each
//! once.

use crate::child::{start_test, task};
use crate::support::Place;
use lastwords::{Session, event};
use lastwords_testkit::text::Text as _;
use std::sync::Barrier;
use std::time::Duration;

const THREADS: u64 = 2;
/// Warnings of each thread before and behind the flood.
const WARNINGS: u64 = 20;

/// The recorded program.
#[test]
fn child() {
    let Some(task) = task() else { return };
    let _session = Session::builder("app").start().expect("a session");
    lastwords::crash::install_panic_hook();
    let all = Barrier::new(THREADS as usize);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let all = &all;
            scope.spawn(move || warn(thread, all));
        }
    });
    let _ = std::thread::spawn(|| panic!("a thread gave up")).join();
    std::fs::write(task.trim(), "ready").expect("the ready file");
    std::thread::sleep(Duration::from_secs(60));
}

fn warn(thread: u64, all: &Barrier) {
    for sequence in 0..2 * WARNINGS {
        event!(test, "warned", level: WARN, thread = thread, sequence = sequence);
        // The same, word for word.
        event!(test, "again", level: ERROR, thread = thread);
        if sequence == WARNINGS - 1 {
            (0..200_000u64)
                .for_each(|number| event!(test, "flood", number = number, thread = thread));
            // No flood comes behind what follows.
            all.wait();
        }
    }
}

#[test]
fn no_flood_evicts_them_and_text_has_each_once() {
    let place = Place::new();
    start_test(&place, "errors::child", "").kill();
    let all = place.ok(&["report", "app"]);
    let count =
        |text: &str, what: &str| text.lines().filter(|line| line.contains(what)).count() as u64;
    assert_eq!(count(&all, "test:again"), THREADS * 2 * WARNINGS);
    assert_eq!(count(&all, "crash:panic"), 1);
    for thread in 0..THREADS {
        let of_it = all.lines().filter(|line| line.contains(&format!("thread={thread} sequence=")));
        let seen: Vec<&str> = of_it.filter_map(|line| line.split("sequence=").nth(1)).collect();
        assert_eq!(
            seen,
            (0..2 * WARNINGS).map(|number| number.to_string()).collect::<Vec<_>>(),
            "thread {thread}"
        );
    }
    place.ok(&["convert", "app", "--to", "text", "-o", "text"]);
    assert_eq!(std::fs::read_to_string(place.at("text")).expect("text"), all);
    let text = place.ok(&["convert", "app", "--to", "perfetto", "-o", "perfetto"]);
    text.has(&format!(" {} events", all.lines().count()));

    // The flood evicted those of before from the other channel; and what is for programs has what
    // each channel has.
    let of =
        |channel: &str| count(&place.ok(&["report", "app", "--channel", channel]), "test:again");
    assert_eq!((of("main"), of("errors")), (THREADS * WARNINGS, THREADS * 2 * WARNINGS));
    assert_eq!(of("*"), THREADS * 3 * WARNINGS);
    place.ok(&["convert", "app", "--to", "json", "-o", "json"]);
    let lines = std::fs::read_to_string(place.at("json")).expect("JSON");
    assert_eq!(count(&lines, "test:again"), THREADS * 3 * WARNINGS);
}

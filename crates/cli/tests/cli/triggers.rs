//! `lastwords trigger`, and what becomes of the snapshots: an application goes on after each of two
//! errors, and each leaves the moments before it.

use crate::child::{Running, run, task, wait_for};
use crate::support::{Place, entries, json_events, wait_for_some, wait_until, words};
use lastwords::{Session, event};
use lastwords_testkit::text::Text as _;
use std::time::Duration;

/// Serves requests. Some fail, which ends neither the program nor the recording.
#[test]
fn child() {
    if task().is_none() {
        return;
    }
    let _session = Session::builder("shop").snapshot(true).start().expect("a session");
    std::fs::write("begun", "").expect("written");
    for request in 0u64.. {
        event!(shop, "request", request);
        if std::fs::remove_file("fail").is_ok() {
            event!(shop, "failed", level: ERROR, request, status = 503u16);
            std::fs::write(format!("failed-{request}"), "").expect("written");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Starts the application, and waits until it records.
pub(crate) fn start(place: &Place) -> Running {
    let child = run(place, "triggers::child", "");
    wait_for(&place.at("begun"));
    child
}

/// Makes a request fail. Returns its number.
pub(crate) fn fail(place: &Place) -> u64 {
    std::fs::write(place.at("fail"), "").expect("written");
    wait_for_some("a request fails", || {
        let (path, request) = entries(place.path()).into_iter().find_map(|path| {
            let number = path.file_name()?.to_str()?.strip_prefix("failed-")?.parse().ok()?;
            Some((path, number))
        })?;
        std::fs::remove_file(path).expect("removed");
        Some(request)
    })
}

/// Waits until a snapshot is saved as a session.
pub(crate) fn wait_for_session(place: &Place, name: &str) {
    wait_until(name, || place.ok(&["list"]).contains(name));
}

/// Returns the requests in a session, in order.
pub(crate) fn requests(place: &Place, input: &str) -> Vec<u64> {
    let text = place
        .ok(&words(&format!("convert {input} --to json -o - --event shop:request --channel main")));
    json_events(&text).iter().filter_map(|event| event["fields"]["request"].as_u64()).collect()
}

#[test]
fn each_of_two_errors_leaves_its_moments_while_recording_goes_on() {
    let place = Place::new();
    let mut child = start(&place);
    assert_eq!(place.ok(&["trigger", "list"]), "");
    place.ok(&["trigger", "add", "shop:failed", "--level", "error", "--filter", "status >= 500"]);
    assert_eq!(
        place.ok(&["trigger", "list", "shop"]),
        "shop:failed --level error --filter 'status >= 500'\n"
    );
    std::thread::sleep(Duration::from_millis(150));
    let first = fail(&place);
    // Triggers whose snapshots are not taken yet share one.
    wait_until("the snapshot is taken", || {
        place.ok(&["list", "shop"]).contains("triggers fired: 1, 0 above the limit, 0 waiting")
    });
    let second = fail(&place);
    wait_for_session(&place, "shop.snapshot-2");
    place.ok(&["trigger", "fire", "by hand"]);
    wait_for_session(&place, "shop.snapshot-3");
    let [one, two, three] =
        [1, 2, 3].map(|number| requests(&place, &format!("shop.snapshot-{number}")));
    assert!(one.first() == Some(&0) && one.contains(&first), "{first} in {one:?}");
    assert!(two.contains(&second) || one.contains(&second), "{second} in {two:?}");
    let all = [one, two, three, requests(&place, "shop")].concat();
    assert!(all.iter().copied().eq(0..all.len() as u64), "no request is missing: {all:?}");
    let told = place.ok(&words(
        "report shop.snapshot-1 shop.snapshot-2 shop.snapshot-3 --event lastwords:trigger",
    ));
    assert!(told.contains("name = \"shop:failed\"") || told.contains("shop:failed"), "{told}");
    told.has("by hand");
    place.run(&["report", "shop.snapshot-1", "--strict"]).has_status(0);
    let listed = place.ok(&["list", "shop"]);
    listed.has("triggers fired: 3, 0 above the limit, 0 waiting; snapshots saved: 3; could not be saved: 0");
    let sessions = place.json(&["list", "--json"])["sessions"].take();
    let shop = sessions
        .as_array()
        .into_iter()
        .flatten()
        .find(|session| session["name"] == "shop")
        .expect("it is listed");
    assert_eq!(shop["triggers"]["saved"], 3, "{shop}");
    place.ok(&["trigger", "remove", "shop:failed"]);
    let ran = place.run(&["trigger", "remove", "shop:failed"]);
    ran.has_status(1).says("no condition is called shop:failed");
    // Of the session, which goes on, a snapshot has no end.
    let unseen = "end unknown: this copy was made before the session was seen to end";
    place.ok(&["why", "shop.snapshot-1"]).has(unseen);
    place.ok(&["list", "shop.snapshot-1"]).has(unseen);
    place.run(&["report", "shop.snapshot-1"]).says(unseen);
    // The copies outlive the program, and are removed like any ended session.
    child.kill();
    assert!(requests(&place, "shop.snapshot-2").contains(&second) || second < first + 50);
    place.ok(&["destroy", "shop.snapshot-1"]);
    place.run(&["report", "shop.snapshot-1"]).has_status(1);
    let removed = place.ok(&["destroy", "--left-over"]);
    assert!(
        removed.contains("shop.snapshot-2") && removed.contains("shop.snapshot-3"),
        "{removed}"
    );
}

#[test]
fn a_trigger_that_is_limited_says_so() {
    let place = Place::new();
    let mut child = start(&place);
    // Of 5 snapshots in a minute, one is too many.
    let refused = (0..500)
        .map(|_| place.run(&["trigger", "fire", "by hand", "-s", "shop"]))
        .find(|ran| ran.status != 0);
    let text = refused.expect("the limit of 4 snapshots");
    text.has_status(1).says("took no snapshot: 4 in 60s are the most");
    let ran = place.run(&["report", "shop", "--event", "lastwords:trigger"]);
    ran.prints("limited").says("1 trigger took no snapshot");
    child.kill();
}

/// An event that is disabled fires only what was added with `--always`.
#[test]
fn a_trigger_fires_at_a_disabled_event() {
    let place = Place::new();
    let mut child = start(&place);
    place.ok(&["disable", "shop:failed"]);
    let fired = |count: u32| {
        place.ok(&["list", "shop"]).contains(&format!("triggers fired: {count}, 0 above the limit"))
    };
    place.ok(&["trigger", "add", "shop:failed"]);
    fail(&place);
    assert!(!fired(1), "the event is not recorded");
    place.ok(&["trigger", "remove", "shop:failed"]);
    place.ok(&["trigger", "add", "shop:failed", "--always"]);
    assert_eq!(place.ok(&["trigger", "list"]), "shop:failed --always\n");
    let request = fail(&place);
    wait_for_session(&place, "shop.snapshot-1");
    assert!(fired(1), "{}", place.ok(&["list", "shop"]));
    let saved = place.run(&["report", "shop.snapshot-1", "--event", "shop:failed"]);
    saved.has_status(1).prints_nothing();
    assert!(requests(&place, "shop.snapshot-1").contains(&(request - 1)));
    child.kill();
}

#[test]
fn wrong_triggers_are_refused() {
    let place = Place::new();
    for (args, said) in [
        (vec!["trigger", "fire", ""], "empty"),
        (vec!["trigger", "add", "a:b", "--count", "0"], "0"),
        (vec!["trigger", "add", "a:b", "--filter", "a ="], "expected"),
        (vec!["trigger", "remove"], "<EVENT>"),
    ] {
        place.run(&args).has_status(2).says(said);
    }
}

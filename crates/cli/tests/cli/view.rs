//! The page of `view`: its counts are those of `report`, its account has the words of `report`.
//! `cargo xtask view` looks at such pages in a browser.

use crate::child::{EVENTS, THREADS, start};
use crate::support::{Place, assert_members, small};
use lastwords_testkit::text::Text as _;
use serde_json::json;
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;

/// The JSON of a page. It ends at the first `<`: whatever the texts of the trace are, none of them
/// ends it earlier.
pub(crate) fn head(page: &str) -> serde_json::Value {
    let (_, rest) = page
        .split_once("<script type=\"application/json\" id=\"head\">")
        .expect("the JSON of the page");
    let (json, rest) = rest.split_once('<').expect("its end");
    assert!(rest.starts_with("/script>"), "something else ends the JSON: {rest:.40}");
    serde_json::from_str(json).expect("JSON")
}

/// The page's numbers of events by name.
fn counts(head: &serde_json::Value) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    let kinds = head["kinds"]
        .as_array()
        .expect("kinds")
        .iter()
        .zip(head["counts"].as_array().expect("counts"));
    for (kind, count) in kinds {
        *counts.entry(kind["name"].as_str().unwrap().to_owned()).or_default() +=
            count.as_u64().unwrap();
    }
    counts
}

/// The names that `report` prints, with how often it prints each. Before the name are time, level,
/// CPU and thread.
fn reported(text: &str) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for line in text.lines() {
        let name = line.split_whitespace().nth(4).unwrap_or_default().trim_end_matches(':');
        *counts.entry(name.to_owned()).or_default() += 1;
    }
    counts
}

#[test]
fn a_page_has_the_events_of_the_report() {
    let place = Place::new();
    start(&place, "shm", "wait").kill();
    let reported_run = place.run(&["report", "app"]);
    place.run(&["view", "app", "-o", "page.html"]).has_status(0);
    let page = std::fs::read_to_string(place.at("page.html")).unwrap();
    let head = head(&page);
    let own = counts(&head);
    // A marker's name has blanks; the first word tells it from other events.
    let own: BTreeMap<String, u64> = own.iter().fold(BTreeMap::new(), |mut sums, (name, count)| {
        let word = name.split_whitespace().next().unwrap_or_default();
        *sums
            .entry(word.rsplit_once(':').map_or(word, |(provider, _)| provider).to_owned())
            .or_default() += count;
        sums
    });
    let there: BTreeMap<String, u64> =
        reported(&reported_run.out).iter().fold(BTreeMap::new(), |mut sums, (name, count)| {
            *sums
                .entry(
                    name.rsplit_once(':')
                        .map_or(name.as_str(), |(provider, _)| provider)
                        .to_owned(),
                )
                .or_default() += count;
            sums
        });
    assert_eq!(own, there);
    assert_eq!(head["counted"], THREADS * EVENTS);
    assert_eq!(head["read"], THREADS * EVENTS);
    let account = head["accounts"][0].as_str().expect("an account");
    assert!(reported_run.err.contains(account.trim_end()), "{account}\n{}", reported_run.err);
    assert!(head["deaths"][0]["why"].as_str().unwrap().contains("killed"), "{}", head["deaths"]);
    // Nothing is loaded from elsewhere.
    let other = page.matches("http://").count()
        + page.matches("https://").count()
        + page.matches(" src=").count();
    assert_eq!(other, 0, "the page names other places");
}

#[test]
fn names_are_counted_as_json_has_them() {
    let place = Place::new();
    small(&place, "small", 0);
    place.ok(&["convert", "small", "--channel", "*", "--to", "json", "-o", "events.jsonl"]);
    place.ok(&["view", "small", "--channel", "*", "-o", "page.html"]);
    let mut expected: BTreeMap<String, u64> = BTreeMap::new();
    for line in std::fs::read_to_string(place.at("events.jsonl")).unwrap().lines().skip(1) {
        let event: serde_json::Value = serde_json::from_str(line).unwrap();
        *expected.entry(event["event"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    assert!(expected.len() > 2, "{expected:?}");
    let page = std::fs::read_to_string(place.at("page.html")).unwrap();
    assert_eq!(counts(&head(&page)), expected);
}

#[test]
fn a_page_with_a_limit_says_so() {
    let place = Place::new();
    start(&place, "shm", "wait").kill();
    let ran = place.run(&["view", "app", "--limit", "100", "-o", "page.html"]);
    ran.has_status(0).says("the newest 100 of 1000 events");
    let head = head(&std::fs::read_to_string(place.at("page.html")).unwrap());
    assert_members(&head, &json!({ "counted": 100, "read": 1000, "rows": 100 }));
    let last = place.ok(&["report", "app", "--last", "100"]);
    assert_eq!(counts(&head).values().sum::<u64>(), last.lines().count() as u64);
}

#[test]
fn outputs_of_view() {
    let place = Place::new();
    start(&place, "shm", "wait").kill();
    let page = place.ok(&["view", "app", "-o", "-"]);
    assert!(page.starts_with("<!doctype html>") && page.trim_end().ends_with("</html>"));
    std::fs::write(place.at("there.html"), "x").unwrap();
    let ran = place.run(&["view", "app", "-o", "there.html"]);
    ran.has_status(1).says("there.html").says("--force");
    place.ok(&["view", "app", "-o", "there.html", "--force"]);
    std::fs::read_to_string(place.at("there.html")).unwrap().ends("</html>\n");
    let ran = place.run(&["view", "app", "-e", "no:such", "-o", "none.html"]);
    ran.has_status(1).says("no event is called no:such");
    assert!(place.run(&["view", "app", "--limit", "0", "-o", "x.html"]).status == 2);
}

/// A panic that the process survived is no death, and is on the page.
#[test]
fn a_page_has_the_panics_that_were_survived() {
    let place = Place::new();
    start(&place, "shm", "panic").ended();
    place.ok(&["view", "app", "-o", "page.html"]);
    let head = head(&std::fs::read_to_string(place.at("page.html")).unwrap());
    let survived = head["survived"].as_array().expect("a list");
    let [panic] = survived.as_slice() else { panic!("{survived:?}") };
    let why = panic["why"].as_str().unwrap();
    why.starts("app survived: panic in thread ");
    assert_eq!(panic["word"], "panic survived");
    assert!(!panic["details"].as_array().unwrap().is_empty(), "{panic}");
    let deaths = head["deaths"].as_array().expect("a list");
    assert!(deaths.iter().all(|death| !death["why"].to_string().contains("panic")), "{deaths:?}");
}

/// Without a file, the page is one that only its user can read, and xdg-open gets its path.
#[test]
fn without_a_file_a_browser_is_opened() {
    let place = Place::new();
    start(&place, "shm", "wait").kill();
    let (bin, told, temporary) = (place.at("bin"), place.at("told"), place.at("tmp"));
    std::fs::create_dir(&bin).unwrap();
    std::fs::create_dir(&temporary).unwrap();
    let script =
        format!("#!/bin/sh\nprintf %s \"$1\" > {0}.new && mv {0}.new {0}\n", told.display());
    std::fs::write(bin.join("xdg-open"), script).unwrap();
    std::fs::set_permissions(bin.join("xdg-open"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:/usr/bin:/bin", bin.display());
    let output = place
        .command()
        .args(["view", "app"])
        .env("PATH", path)
        .env("TMPDIR", &temporary)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    while !told.exists() {
        std::thread::yield_now();
    }
    let page = std::path::PathBuf::from(std::fs::read_to_string(&told).unwrap());
    assert!(page.starts_with(&temporary), "{}", page.display());
    std::fs::read_to_string(&page).unwrap().starts("<!doctype html>");
    let mode =
        |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&page), mode(page.parent().unwrap())), (0o600, 0o700));
    crate::support::ran(
        place
            .command()
            .args(["view", "app"])
            .env("PATH", "")
            .env("TMPDIR", &temporary)
            .output()
            .unwrap(),
    )
    .has_status(0)
    .says("xdg-open cannot be started");
}

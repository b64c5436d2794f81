//! `enable --filter`: the application records the events that `report --filter` selects of a
//! channel without a filter.

use crate::child::{run, task, wait_for};
use crate::support::{Place, json_events};
use lastwords::{ChannelConfig, Session, event};
use lastwords_testkit::text::Text as _;
use serde_json::Value;
use std::os::unix::fs::FileExt as _;
use std::time::Duration;

/// Expressions. Each selects some events of a round and refuses others.
const EXPRESSIONS: [&str; 8] = [
    "bytes > 4096 && comm ~ \"enabled*\"",
    "state == \"STOPPED\" || delta < -3",
    "!(path ~ \"/data/*\") && $ctx.vtid == tid",
    "(flags & 5) == 5 && level == \"info\"",
    "load[1] >= 0.5 && pid == vpid",
    "data[0] == 7",
    "only_some != 3",
    "event == \"shop:rare\" || code == 0x10 && channel ~ \"*a*\"",
];
const EVENTS: u64 = 200;

#[derive(Clone, Copy)]
enum State {
    Running,
    Stopped = 4,
}
lastwords::labels!(State as u8 { Running => "RUNNING", Stopped => "STOPPED" });

#[test]
fn child() {
    if task().is_none() {
        return;
    }
    let channel = |name| ChannelConfig::new(name).contexts(lastwords::Context::ALL);
    let session = Session::builder("app")
        .channel(channel("main"))
        .channel(channel("all"))
        .start()
        .expect("a session");
    std::fs::write("begun", "").expect("written");
    for round in 0..EXPRESSIONS.len() + 3 {
        wait_for(format!("go-{round}").as_ref());
        (0..EVENTS).for_each(|n| record(round, n));
        std::fs::write(format!("done-{round}"), "").expect("written");
    }
    std::thread::sleep(Duration::from_secs(60));
    drop(session);
}

fn record(round: usize, n: u64) {
    let (bytes, delta, load) = (n as u32 * 100, 5 - (n % 10) as i64, [0.25, n as f64 / 100.0]);
    let path = format!("/{}/{n}", if n.is_multiple_of(3) { "data" } else { "var" });
    let (state, flags, code) =
        (if n.is_multiple_of(7) { State::Stopped } else { State::Running }, n as u8, n as i16);
    let data: Vec<u8> = (0..n % 4).map(|at| (n + at) as u8 % 9).collect();
    event!(
        shop,
        "item",
        round,
        n,
        bytes,
        data = data.as_slice(),
        delta,
        load,
        state,
        flags,
        code,
        path
    );
    if n.is_multiple_of(5) {
        event!(shop, "rare", level: WARN, round, n, only_some = n % 4);
    }
}

/// Returns name and fields of the events of a round that are recorded in a channel, in order.
fn events(place: &Place, channel: &str, filter: &str) -> Vec<(String, Value)> {
    let args =
        ["convert", "app", "--to", "json", "-o", "-", "--channel", channel, "--filter", filter];
    let event = |mut json: Value| {
        (json["event"].as_str().unwrap_or_default().to_owned(), json["fields"].take())
    };
    json_events(&place.ok(&args)).into_iter().map(event).collect()
}

/// A channel that is created while the application records gets the events that are sent there, and
/// no others.
fn a_channel_is_created(place: &Place, round: usize, record: &dyn Fn(usize)) {
    let text =
        place.ok(&["channel", "create", "later", "-s", "app", "--size", "1M", "--mode", "discard"]);
    text.starts("channel later: ").has("8 sub-buffers");
    place.run(&["channel", "create", "later"]).has_status(1).says("already");
    for bad in
        [&["channel", "create", "/x"][..], &["channel", "create", "odd", "--subbuf-size", "5000"]]
    {
        place.run(bad).has_status(1);
    }
    place.ok(&["enable", "shop:rare", "--to", "later"]);
    record(round);
    let of_round = format!("round == {round}");
    let counts =
        ["main", "all", "later"].map(|channel| events(place, channel, &of_round).len() as u64);
    assert_eq!(counts, [EVENTS, EVENTS, EVENTS / 5]);
    place.ok(&["list", "app"]).has("later    discard");
    place.ok(&["inspect", "app"]).has("later");
    let report = ["report", "app", "--channel", "later", "--strict"];
    let ran = place.run(&report);
    ran.has_status(0).prints_lines(EVENTS as usize / 5);
    // A process counts the events that it could not record because it had not mapped the channel
    // (docs/ABI.md, section 3).
    let folder = lastwords_control::list(Some(&place.sessions())).expect("listed").remove(0).folder;
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(folder.join("session"))
        .expect("the session");
    let mut channels = [0; 4];
    file.read_exact_at(&mut channels, 128 + 64).expect("read");
    let entry = u64::from(u32::from_ne_bytes(channels)) + 2 * 128;
    file.write_all_at(&7u64.to_ne_bytes(), entry + 48).expect("written");
    let ran = place.run(&report);
    let is_told = ran
        .err
        .lines()
        .any(|line| line.contains("7 events") && line.contains("had not mapped its rings"));
    assert!(ran.status == 3 && is_told, "{}: {}", ran.status, ran.err);
    file.write_all_at(&0u64.to_ne_bytes(), entry + 48).expect("written");
}

#[test]
fn the_application_records_what_a_reader_selects() {
    let place = Place::new();
    let _child = run(&place, "enabled::child", "");
    wait_for(&place.at("begun"));
    let record = |round: usize| {
        // The application follows within milliseconds.
        std::thread::sleep(Duration::from_millis(150));
        std::fs::write(place.at(&format!("go-{round}")), "").expect("written");
        wait_for(&place.at(&format!("done-{round}")));
    };
    for (round, expression) in EXPRESSIONS.iter().enumerate() {
        place.ok(&["enable", "shop:*", "-c", "main", "--filter", expression]);
        place.ok(&["list", "app"]).has(&format!("rule: enable shop:* in main if {expression}"));
        record(round);
        let all = events(&place, "all", &format!("round == {round}"));
        assert_eq!(all.len() as u64, EVENTS + EVENTS / 5);
        let selected = events(&place, "all", &format!("({expression}) && round == {round}"));
        assert!(
            selected.len() > 5 && selected.len() < all.len(),
            "{expression} selects {}",
            selected.len()
        );
        assert_eq!(events(&place, "main", &format!("round == {round}")), selected, "{expression}");
    }
    // Events that a filter refuses are not losses.
    place.ok(&["report", "app", "--strict"]);
    place.ok(&["enable", "*"]);
    // Some events go to one channel in place of all others, then to a second besides.
    let counts = |round: usize| {
        ["main", "all"]
            .map(|channel| events(&place, channel, &format!("round == {round}")).len() as u64)
    };
    let round = EXPRESSIONS.len();
    place.ok(&["enable", "shop:rare", "--to", "all"]);
    record(round);
    assert_eq!(counts(round), [EVENTS, EVENTS + EVENTS / 5]);
    place.ok(&["enable", "shop:rare", "--also", "main", "--filter", "n < 50"]);
    record(round + 1);
    assert_eq!(counts(round + 1), [EVENTS + 10, EVENTS + EVENTS / 5]);
    a_channel_is_created(&place, round + 2, &record);
    place.run(&["enable", "a:b", "--to", "none"]).has_status(1);
    place.ok(&["enable", "shop:*", "-c", "main"]);
    assert!(
        place.ok(&["list", "app"]).contains("rule: enable shop:* in main\n"),
        "the filter is gone"
    );
    let ran = place.run(&["enable", "shop:*", "--filter", "bytes >"]);
    ran.has_status(2);
    assert!(ran.err.contains("an operand") || ran.err.contains("expected"), "{}", ran.err);
}

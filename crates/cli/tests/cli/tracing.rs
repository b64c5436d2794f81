//! Values of `tracing` as the program shows them: optional fields, which an event may lack, and
//! values that were cut.

use crate::child::{run, task};
use crate::support::{Place, json_events, tool};
use lastwords::Session;
use lastwords_testkit::text::Text as _;
use serde_json::{Map, Value, json};

/// Number of events: all combinations of the optional fields.
const EVENTS: u64 = 64;

/// The recorded program.
#[test]
fn recorder() {
    let Some(how) = task() else { return };
    let _session = Session::builder("app").start().expect("a session");
    lastwords::layer::init().expect("a subscriber");
    for bits in 0..EVENTS {
        let of = |bit: u64| (bits >> bit & 1 == 1).then_some(bit);
        let (d, e, f) = (of(3).map(|_| "text"), of(4).map(|_| 0.5), of(5).map(|_| true));
        tracing::info!(bits, a = of(0), b = of(1), c = of(2), d, e, f, "optional");
    }
    if how == "cut" {
        tracing::info!(body = "b".repeat(5000), user = "ada", "long");
    }
    if how == "changed" {
        tracing::info!(user = "a\0da", "nul");
    }
    std::process::abort();
}

fn recorded(how: &str) -> Place {
    let place = Place::new();
    run(&place, "tracing::recorder", how).ended();
    place
}

/// The fields of an event, from its number alone.
fn fields(bits: u64) -> Map<String, Value> {
    let values = [json!(0), json!(1), json!(2), json!("text"), json!(0.5), json!(true)];
    let optional = ["a", "b", "c", "d", "e", "f"].into_iter().zip(values).enumerate();
    let present = optional
        .filter(|(bit, _)| bits >> bit & 1 == 1)
        .map(|(_, (name, value))| (name.to_owned(), value));
    std::iter::once(("bits".to_owned(), json!(bits))).chain(present).collect()
}

/// The fields of the events of an input, as JSON.
fn found(place: &Place, args: &[&str]) -> Vec<Map<String, Value>> {
    let lines = place.run(&[&["convert"], args, &["--to", "json", "-o", "-"]].concat()).out;
    json_events(&lines)
        .iter()
        .filter_map(|event| event.get("fields")?.as_object().cloned())
        .collect()
}

#[test]
fn optional_fields_are_shown_if_the_event_has_them() {
    let place = recorded("whole");
    let all: Vec<_> = (0..EVENTS).map(fields).collect();
    assert_eq!(found(&place, &["app"]), all);
    let shown = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let line = |fields: &Map<String, Value>| -> String {
        // The callsite has `bits` first, and the others in the order of their names.
        let (first, rest): (Vec<_>, Vec<_>) = fields.iter().partition(|(name, _)| *name == "bits");
        first
            .into_iter()
            .chain(rest)
            .map(|(name, value)| format!(" {name}={}", shown(value)))
            .collect()
    };
    let text = place.ok(&["report", "app"]);
    let lines: Vec<&str> =
        text.lines().filter_map(|line| line.split_once("optional:")).map(|parts| parts.1).collect();
    let mut expected: Vec<String> = all.iter().map(line).collect();
    expected.iter_mut().for_each(|line| *line = line.trim_end().to_owned());
    assert_eq!(lines, expected);
    // A value that an event lacks is unknown.
    let filtered =
        found(&place, &["app", "--filter", "a == 0 && !(c == 2) || d == \"text\" && e < 1"]);
    let has = |bits: u64, bit: u64| bits >> bit & 1 == 1;
    let passes = |bits: &u64| has(*bits, 3) && has(*bits, 4);
    assert_eq!(filtered, (0..EVENTS).filter(passes).map(fields).collect::<Vec<_>>());
    // Copies as CTF have the same events, for us and for babeltrace2.
    for version in ["ctf", "ctf2"] {
        let copy = format!("copy-{version}");
        place.ok(&["convert", "app", "--to", version, "-o", &copy]);
        let booleans = |mut fields: Map<String, Value>| {
            // CTF 1.8 has no booleans.
            if version == "ctf" && fields.contains_key("f") {
                fields.insert("f".to_owned(), json!(1));
            }
            fields
        };
        assert_eq!(
            found(&place, &[&copy]),
            all.iter().cloned().map(booleans).collect::<Vec<_>>(),
            "{version}"
        );
        if version == "ctf" {
            let printed = tool("babeltrace2", &[place.at(&copy).to_str().expect("UTF-8")]).out;
            assert_eq!(
                printed.lines().filter(|line| line.contains("optional")).count(),
                EVENTS as usize
            );
        }
    }
}

#[test]
fn cut_values_are_reported() {
    let place = recorded("cut");
    let report = place.run(&["report", "app", "--strict"]);
    report.has_status(3).says("no event lost, 1 value cut");
    place.ok(&["inspect", "app"]).has("1 value cut, because the events had no room for all");
    let last = found(&place, &["app"]).pop().expect("an event");
    let body = last["body"].as_str().expect("a text");
    assert!(body.len() > 3000 && body.ends_with("b…") && last["user"] == "ada");
    place.run(&["report", "app", "--last", "1"]).has_status(0);
}

#[test]
fn texts_in_which_a_nul_became_another_byte_are_reported() {
    let place = recorded("changed");
    let report = place.run(&["report", "app", "--strict"]);
    report.has_status(3).says("no event lost, 1 text changed");
    report.says("values of events: changed (1 text: NUL became 0x1a)");
    place.ok(&["inspect", "app"]).has("1 text with NUL, each of which became 0x1a");
    assert_eq!(found(&place, &["app"]).pop().expect("an event")["user"], "a\u{1a}da");
}

//! `report` reads like the log of the program: spans, messages, severities, places, times of day.

use crate::child::{run, task};
use crate::support::{Place, small};
use lastwords::Session;
use lastwords_testkit::text::Text as _;

/// Number of orders.
const ORDERS: u64 = 4;

/// The recorded program.
#[test]
fn recorder() {
    let Some(how) = task() else { return };
    let _session = Session::builder("app").start().expect("a session");
    lastwords::layer::init().expect("a subscriber");
    if how == "panic" {
        lastwords::crash::install_panic_hook();
        let _ = std::panic::catch_unwind(|| deep(40));
    }
    for id in 200..200 + ORDERS {
        let order = tracing::info_span!("order", id).entered();
        let charge = tracing::info_span!("charge", order = id).entered();
        tracing::info!("charging");
        if id.is_multiple_of(2) {
            tracing::warn!(id, "order {id} is slow");
        }
        drop(charge);
        tracing::debug!(target: "store", rows = id, "stored");
        drop(order);
    }
    tracing::error!("no money");
    let _open = tracing::info_span!("request", path = "/last").entered();
    tracing::info!("received");
    std::process::abort();
}

/// Calls itself, and panics at the end.
#[inline(never)]
fn deep(more: u64) -> u64 {
    if more == 0 {
        panic!("too deep");
    }
    std::hint::black_box(deep(more - 1) + 1)
}

fn recorded(how: &str) -> Place {
    let place = Place::new();
    run(&place, "log_lines::recorder", how).ended();
    place
}

/// Received sessions have no table of open spans.
#[test]
fn without_their_table_open_spans_are_not_known() {
    let place = recorded("");
    place.run(&["report", "app"]).says(" open:").does_not_say("no table of open spans");
    std::fs::remove_file(place.session().join("spans")).expect("the table");
    let told = "there is no table of open spans: which spans were open is not known";
    place.run(&["report", "app"]).says(told);
    place.run(&["inspect", "app"]).prints(told);
    place.run(&["top", "app"]).prints("open spans: not known");
    place
        .run(&["why", "app"])
        .prints("spans at work\n  not known: there is no table of open spans\n");
    let why = place.json(&["why", "app", "--json"]);
    assert_eq!(why["inputs"][0]["open_spans"], serde_json::Value::Null, "{why}");
    let inspected = place.json(&["inspect", "app", "--json"]);
    let evidence = &inspected["sessions"][0]["evidence"];
    assert!(evidence["open_spans"].is_null() && evidence["notes"].to_string().contains(told));
    let top = place.json(&["top", "app", "--json"]);
    assert_eq!(top["open_spans"], serde_json::Value::Null, "{top}");
}

/// The lines behind the thread.
fn behind_thread(text: &str) -> Vec<String> {
    let behind =
        |line: &str| line.split_once("] ")?.1.split_once(' ').map(|parts| parts.1.to_owned());
    text.lines().map(|line| behind(line).unwrap_or_else(|| panic!("{line}"))).collect()
}

#[test]
fn spans_and_messages_as_in_the_log() {
    let place = recorded("");
    let lines = behind_thread(&place.ok(&["report", "app"]));
    let target = "cli::log_lines";
    let mut at = lines.iter();
    let mut next = || at.next().expect("a line").as_str();
    for id in 200..200 + ORDERS {
        let (order, both) =
            (format!("order{{id={id}}}:"), format!("order{{id={id}}}:charge{{order={id}}}:"));
        assert_eq!(next(), format!("{order} span:new"));
        assert_eq!(next(), format!("{both} span:new"));
        assert_eq!(next(), format!("{both} {target}:charging:"));
        if id.is_multiple_of(2) {
            assert_eq!(next(), format!("{both} {target}: order {id} is slow id={id}"));
        }
        let close = next();
        close.starts(&format!("{both} span:close after "));
        assert_eq!(next(), format!("{order} store:stored: rows={id}"));
        let close = next();
        close.starts(&format!("{order} span:close after "));
    }
    assert_eq!(next(), format!("{target}:no money:"));
    assert_eq!(next(), "request{path=/last}: span:new");
    assert_eq!(next(), format!("request{{path=/last}}: {target}:received:"));
    assert_eq!(at.next(), None);
    // Ids are there where they are asked for.
    let ids = place.ok(&["report", "app", "-v", "-e", "span:*"]);
    assert!(ids.lines().all(|line| line.contains(" span_id=")), "{ids}");
    ids.has(&format!(": span:new {target}::order: id=200 span_id="));
    let columns = place.ok(&["report", "app", "-F", "event,span_id", "-e", "store:*"]);
    assert!(columns.lines().all(|line| !line.ends_with('-')), "{columns}");
    // The last events have the same chains, though the spans were opened before them.
    let last = behind_thread(&place.ok(&["report", "app", "--last", "5"]));
    assert_eq!(last, lines[lines.len() - 5..]);
    // CTF that was written of the session reads in the same way.
    place.ok(&["convert", "app", "--to", "ctf2", "-o", "copy"]);
    assert_eq!(behind_thread(&place.ok(&["report", "copy", "--style", "fields"]))[..9], lines[..9]);
}

#[test]
fn severities_by_their_names() {
    let place = recorded("");
    let count =
        |args: &[&str]| place.ok(&[&["report", "app"], args].concat()).lines().count() as u64;
    let levels = place.ok(&["report", "app", "-F", "level"]);
    let of = |level: &str| levels.lines().filter(|line| *line == level).count() as u64;
    assert_eq!([of("error"), of("warn"), of("debug")], [1, ORDERS / 2, ORDERS]);
    assert_eq!(count(&["--level", "error"]), of("error"));
    assert_eq!(count(&["--level", "warn"]), of("error") + of("warn"));
    assert_eq!(count(&["--level", "trace"]), levels.lines().count() as u64);
    assert_eq!(count(&["--filter", "level == warn"]), of("warn"));
    assert_eq!(count(&["--filter", "level <= warn"]), of("error") + of("warn"));
    assert_eq!(count(&["--filter", "level > info"]), of("debug"));
    assert_eq!(count(&["--level", "warn", "--filter", "id == 200 || event == \"none\""]), 1);
    let ran = place.run(&["report", "app", "--level", "warn", "-e", "store:*"]);
    ran.has_status(1).says("no event is left by --event and --level");
    place.run(&["report", "app", "--filter", "level <= wran"]).has_status(1).says("such as warn");
    place.run(&["report", "app", "--level", "loud"]).has_status(2);
}

/// The places are those of this file's text.
#[test]
fn places_in_the_source() {
    let place = recorded("");
    let source = include_str!("log_lines.rs");
    let line_of = |text: &str| 1 + source.lines().position(|line| line.contains(text)).expect(text);
    let text =
        place.ok(&["report", "app", "-F", "file,line,event", "-e", "no money", "-e", "received"]);
    let expected = |what: &str| {
        let line = line_of(&format!("(\"{what}\");"));
        format!("crates/cli/tests/cli/log_lines.rs\t{line}\tcli::log_lines:{what}\n")
    };
    assert_eq!(text, expected("no money") + &expected("received"));
    place.run(&["report", "app", "-F", "lime"]).has_status(1).says("did you mean line");
}

#[test]
fn a_panic_that_was_survived_has_its_backtrace() {
    let place = recorded("panic");
    let ran = place.run(&["report", "app"]);
    let event = ran.out.lines().find(|line| line.contains("crash:panic")).expect("the panic");
    event.has(": too deep location=").has(" addresses}");
    event.lacks("0x");
    let err = ran.err;
    let survived = err.find("too deep").expect("the panic");
    let backtrace = err.find("backtrace of crash:panic, innermost first:").expect("its backtrace");
    assert!(survived < backtrace, "{err}");
    err.has("cli::log_lines::deep");
    let repeated = err
        .lines()
        .find_map(|line| line.trim().strip_prefix("... frame repeated ")?.strip_suffix(" times"));
    let repeated: u64 = repeated.unwrap_or_else(|| panic!("{err}")).parse().expect("a number");
    assert!((30..=41).contains(&repeated), "{err}");
}

/// `list NAME` takes the newest session of a name, as `report NAME` does, and says so. A name that
/// none has is met with the nearest.
#[test]
fn names_of_sessions() {
    let place = recorded("");
    run(&place, "log_lines::recorder", "").ended();
    let ran = place.run(&["list", "app"]);
    let said = "2 sessions are called app; this is the newest: ";
    ran.has_status(0).says(said);
    let newest = ran.err.trim_end().rsplit('/').next().expect("a folder");
    ran.prints(newest);
    let report = place.run(&["report", "app"]);
    report.says(&format!("/{newest} (all that are there"));
    for args in [&["list", "ap"][..], &["report", "apq"], &["stop", "appp"], &["top", "App"]] {
        place.run(args).has_status(1).says("; did you mean app?");
    }
    place.run(&["report", "other"]).has_status(1).does_not_say("did you mean");
}

/// `TZ` may name a zone of the system's zone data, for printing and for moments.
#[test]
fn time_zones_by_name() {
    let place = Place::new();
    small(&place, "small", 0);
    let in_zone = |zone: &str, args: &[&str]| {
        let ran = place.command().env("TZ", zone).args(args).output().expect("the program starts");
        crate::support::ran(ran)
    };
    let hour =
        |zone: &str| in_zone(zone, &["report", "./small", "--last", "1"]).out[..2].to_owned();
    assert!(
        std::path::Path::new("/usr/share/zoneinfo/Europe/Berlin").exists(),
        "cargo xtask setup"
    );
    // 22:41 UTC, in November.
    assert_eq!(
        ["UTC", "Europe/Berlin", "Asia/Tokyo", "CET-1CEST,M3.5.0,M10.5.0/3"].map(hour),
        ["22", "23", "07", "23"]
    );
    let all = in_zone("UTC", &["report", "./small", "--since", "2023-11-14 22:41:00"]).out;
    let since =
        in_zone("Europe/Berlin", &["report", "./small", "--since", "2023-11-14 23:41:00"]).out;
    assert!(!all.is_empty() && since.lines().count() == all.lines().count());
    let ran = in_zone("Nowhere/City", &["report", "./small", "--last", "1"]);
    ran.says("TZ: Nowhere/City is no time zone").out.starts("22:");
}

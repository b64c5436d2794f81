//! `inspect`: counts by event, spans of time and losses, against `report` and babeltrace2.

use crate::kinds::place;
use crate::lttng::timed_shm;
use crate::support::{Place, small, tool};
use lastwords_testkit::text::Text as _;
use serde_json::Value;

/// The activity of the only trace of an input.
fn activity(place: &Place, args: &[&str]) -> Value {
    let report = place.json(&[&["inspect", "--json"], args].concat());
    let of = ["/sessions/0", "/traces/0", "/kernels/0/instances/0"]
        .map(|at| report.pointer(at).map(|of| of["activity"].clone()).unwrap_or_default());
    of.into_iter().find(|activity| activity.is_object()).expect("an activity")
}

/// The events that `report` prints, each in a line: of a session also the copies that another
/// channel has.
fn printed(place: &Place, args: &[&str]) -> u64 {
    let style: &[&str] = if args[0] == "k.dat" { &[] } else { &["--style", "babeltrace"] };
    let text = place.run(&[&["report"], args, style].concat()).out;
    text.lines().filter(|line| !line.starts_with('#') && !line.contains(" [LOST ")).count() as u64
}

#[test]
fn counts_are_those_that_report_prints() {
    let place = place();
    for input in ["a", "ctf", "k.dat"] {
        let activity = activity(&place, &[input]);
        assert_eq!(activity["total"], printed(&place, &[input]), "{input}");
        assert_eq!(activity["selected"], false);
        let columns =
            activity["histogram"].as_array().unwrap().iter().map(|count| count.as_u64().unwrap());
        assert_eq!(activity["total"], columns.sum::<u64>(), "{input}");
        let events = activity["events"].as_array().unwrap();
        assert!(
            !events.is_empty()
                && events.is_sorted_by_key(|event| u64::MAX - event["count"].as_u64().unwrap())
        );
        for event in events {
            let name = event["name"].as_str().unwrap();
            let of_name = events
                .iter()
                .filter(|event| event["name"] == name)
                .map(|event| event["count"].as_u64().unwrap());
            assert_eq!(
                of_name.sum::<u64>(),
                printed(&place, &[input, "-e", name]),
                "{input}: {name}"
            );
        }
    }
    let babeltrace =
        tool("babeltrace2", &["--clock-seconds", "--no-delta", place.at("ctf").to_str().unwrap()])
            .out;
    let activity = activity(&place, &["ctf"]);
    assert_eq!(activity["total"], babeltrace.lines().count());
    let time =
        |line: Option<&str>| line.unwrap().split(['[', ']']).nth(1).unwrap().replace('.', "");
    assert_eq!(activity["begin_ns"], time(babeltrace.lines().next()));
    assert_eq!(activity["end_ns"], time(babeltrace.lines().last()));
}

#[test]
fn a_selection_is_counted_and_said() {
    let place = place();
    for (input, name) in [("a", "wide"), ("ctf", "testkit:varied"), ("k.dat", "sched:*")] {
        let whole = activity(&place, &[input]);
        for options in
            [&["-e", name][..], &["--cpu", "0"], &["--last", "9"], &["--filter", "cpu == 0"]]
        {
            let args = [&[input], options].concat();
            let selected = activity(&place, &args);
            assert_eq!(selected["selected"], true);
            assert_eq!(selected["total"], printed(&place, &args), "{args:?}");
            assert!(selected["total"].as_u64() <= whole["total"].as_u64(), "{args:?}");
            place
                .run(&[&["inspect"], &args[..]].concat())
                .prints("selected by the options; losses and rings are those of all");
        }
    }
    let of_channels = |args: &[&str]| {
        place.json(&[&["inspect", "a", "--json"], args].concat())["sessions"][0]["events"].clone()
    };
    assert_eq!(of_channels(&["-e", "wide"]), of_channels(&[]));
    place.run(&["inspect", "a", "-e", "nothing"]).has_status(1).says("no event is called nothing");
}

#[test]
fn text_has_span_rate_and_reasons_and_no_internals() {
    let place = place();
    for input in ["a", "ctf", "k.dat"] {
        let text = place.ok(&["inspect", input]);
        for words in [
            "  time       ",
            "  events     ",
            "  rate       ",
            "a column is ",
            "  losses     ",
            "COUNT  EVENT",
        ] {
            assert!(text.contains(words), "{input}: no {words} in\n{text}");
        }
        assert!(
            text.contains('█') && text.lines().all(|line| line.chars().count() <= 160),
            "{input}:\n{text}"
        );
        for words in ["positions ", "known to ", "reservation,", "0x"] {
            assert!(!text.contains(words), "{input}: {words} in\n{text}");
        }
    }
    place.ok(&["inspect", "a"]).has(
        "channel main, CPU 0: 4.00 KiB of older events overwritten, because the ring was full",
    );
    let verbose = place.ok(&["inspect", "a", "--verbose"]);
    for words in ["positions ", "known to ", "reservation,", "sub-buffers: ", "STREAM"] {
        assert!(verbose.contains(words), "no {words} in\n{verbose}");
    }
}

/// A kernel's trace whose clock counts events, as trace-cmd writes it: the machine's clock is that
/// of each buffer.
fn of_a_counter(place: &Place) {
    let mut bytes = std::fs::read(place.at("k.dat")).unwrap();
    for (was, is) in [
        (&b"[local] global counter"[..], &b"local global [counter]"[..]),
        (b"lastwords", b"trace-cmd"),
    ] {
        let at =
            bytes.windows(was.len()).position(|part| part == was).expect("the words of the file");
        bytes[at..at + was.len()].copy_from_slice(is);
    }
    std::fs::write(place.at("k.dat"), bytes).unwrap();
}

#[test]
fn a_clock_that_counts_no_nanoseconds_has_ticks() {
    let place = place();
    of_a_counter(&place);
    place.ok(&["convert", "k.dat", "-o", "made", "--to", "ctf2"]);
    for input in ["k.dat", "made"] {
        let of = activity(&place, &[input]);
        let (begin, end) = (of["begin_ns"].as_str().unwrap(), of["end_ns"].as_str().unwrap());
        let took = end.parse::<i64>().unwrap() - begin.parse::<i64>().unwrap();
        assert_eq!((&of["unit"], took > 0), (&"ticks".into(), true));
        let ran = place.run(&["inspect", input]);
        let time = format!("time       {begin} to {end} in ticks of the clock ({took} ticks)\n");
        let column = format!("a column is {} ticks; ", of["column_ns"]);
        ran.prints(&time).prints(&column);
        // The readings are those that the kernel's text has.
        place.run(&["report", "k.dat"]).out.has(&format!(" {begin}: ")).has(&format!(" {end}: "));
        ran.does_not_say("nanoseconds");
    }
    assert_eq!(activity(&place, &["a"])["unit"], "ns");
}

/// `--since` and `-F time` use the readings of such a clock that the kernel's text has.
#[test]
fn ticks_select_and_are_printed() {
    let place = place();
    of_a_counter(&place);
    let text = place.run(&["report", "k.dat"]).out;
    let tick = |line: &str| -> i64 {
        line.split(": ").next().unwrap().rsplit(' ').next().unwrap().parse().unwrap()
    };
    let ticks: Vec<i64> = text.lines().filter(|line| line.contains(" [00")).map(tick).collect();
    let column = |name: &str| place.ok(&["report", "k.dat", "-F", name]);
    let lines = |ticks: &[i64]| ticks.iter().map(|tick| format!("{tick}\n")).collect::<String>();
    assert_eq!(column("time"), lines(&ticks));
    let deltas: Vec<i64> = ticks.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(column("delta"), format!("-\n{}", lines(&deltas)));
    let middle = ticks[ticks.len() / 2];
    let later = ticks.iter().filter(|tick| **tick >= middle).count();
    let selected = place.ok(&["report", "k.dat", "--since", &middle.to_string(), "-F", "time"]);
    assert!(later < ticks.len() && selected.lines().count() == later, "{selected}");
    for moment in ["-2s", "1.5", "2026-11-21T09:08:31Z"] {
        let ran = place.run(&["report", "k.dat", "--until", moment]);
        ran.has_status(1).says("give --since and --until in ticks");
    }
}

#[test]
fn the_last_events_are_those_of_each_clock() {
    let place = place();
    let report = place.json(&["inspect", "a", "k.dat", "ctf", "--last", "3", "--json"]);
    let parts = report["reports"].as_array().expect("three kinds");
    let totals = |list: &str, at: &str| -> Vec<u64> {
        let of = parts.iter().filter_map(|part| part[list].as_array()).flatten();
        of.map(|one| one.pointer(at).and_then(Value::as_u64).expect("a number")).collect()
    };
    // The session and the CTF trace have related clocks.
    let [sessions, ctf] =
        ["sessions", "traces"].map(|list| totals(list, "/activity/total").iter().sum::<u64>());
    assert_eq!(
        (sessions + ctf, totals("kernels", "/instances/0/activity/total")),
        (3, vec![3]),
        "{report}"
    );
}

#[test]
fn times_beyond_64_bits_are_a_loss() {
    let place = place();
    let path = place.at("ctf/metadata");
    let metadata = std::fs::read_to_string(&path).unwrap();
    let freq = metadata
        .split("freq = ")
        .nth(1)
        .and_then(|rest| rest.split(';').next())
        .expect("a frequency");
    std::fs::write(&path, metadata.replace(&format!("freq = {freq};"), "freq = 1;")).unwrap();
    for verb in ["report", "inspect"] {
        let ran = place.run(&[verb, "ctf"]);
        (ran.has_status(1).out.clone() + &ran.err).has("with losses");
    }
    place
        .run(&["inspect", "ctf"])
        .prints("not decoded: ctf/")
        .prints(" outside of the times of 64 bits");
}

#[test]
fn a_trace_without_rings_is_an_error() {
    let place = place();
    let mut bytes = std::fs::read(place.at("k.dat")).unwrap();
    // The option before the clocks ends the list: the options of the buffers are behind it.
    let at = bytes.windows(7).position(|part| part == b"[local]").expect("the clocks") - 6;
    bytes[at..at + 6].fill(0);
    std::fs::write(place.at("k.dat"), bytes).unwrap();
    let said = "error: k.dat: no trace array of ftrace can be read";
    for verb in ["inspect", "report"] {
        place.run(&[verb, "k.dat"]).has_status(1).says(said);
    }
}

#[test]
fn one_event_is_one_and_has_no_rate() {
    let place = place();
    let text = place.ok(&["inspect", "k.dat", "--last", "1"]);
    let lines = || text.lines().map(str::trim);
    assert!(
        lines().any(|line| line.starts_with("time ") && line.ends_with(" s (one moment)")),
        "{text}"
    );
    assert!(lines().any(|line| line.starts_with("events     1, selected by")), "{text}");
    assert!(
        !lines().any(|line| line.starts_with("rate ") || line.starts_with("a column is")),
        "{text}"
    );
    small(&place, "small", 7);
    place
        .run(&["inspect", "./small", "--since", "2100-01-01"])
        .does_not_print("\nevents\n")
        .prints("\nchannels\n");
}

#[test]
fn lttng_has_what_report_prints_and_its_path_is_shown() {
    let place = Place::new();
    let folder = place.at("sh\u{1b}m");
    let (events, lost) = timed_shm(&folder, true);
    let path = folder.to_str().unwrap();
    let session = place.json(&["inspect", path, "--json"])["inputs"][0]["sessions"][0].take();
    assert_eq!(
        (&session["activity"]["total"], &session["evidence"]["lost_events"]),
        (&events.len().into(), &lost.into())
    );
    let text = place.ok(&["inspect", path]);
    text.has("sh\\u{1b}m: memory of LTTng's user-space tracer").lacks("\u{1b}");
    text.has(&format!("losses     {lost} events lost\n"));
}

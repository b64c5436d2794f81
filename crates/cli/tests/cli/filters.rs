//! `--filter`: what is selected are the lines of the unfiltered output that a check of their JSON
//! selects.

use crate::kinds::place;
use crate::support::{Place, tool};
use serde_json::Value;
use std::path::Path;

/// An expression, and the same condition on a line of JSON. Where a field is missing, it is false.
type Case = (&'static str, fn(&Value) -> Option<bool>);

/// The lines that describe events, each with its JSON. How many events are missing before one
/// depends on what is left out.
fn lines(text: &str) -> Vec<(String, Value)> {
    let of = |line: &str| {
        let json: Value = serde_json::from_str(line).unwrap();
        let line = match json["context"]["lost"].as_i64() {
            Some(lost) => line.replacen(&format!("\"lost\":{lost},"), "", 1),
            None => line.to_owned(),
        };
        (line, json)
    };
    text.lines().skip(1).map(of).collect()
}

fn texts(lines: &[(String, Value)]) -> Vec<&String> {
    lines.iter().map(|(line, _)| line).collect()
}

/// The JSON lines that `convert` writes.
fn json(place: &Place, input: &str, args: &[&str]) -> String {
    let ran = place.run(&[&["convert", input, "--to", "json", "-o", "-"], args].concat());
    assert!(matches!(ran.status, 0 | 1), "{args:?}: {}", ran.err);
    ran.out
}

/// Each case selects some events and leaves others out; `--last` counts behind the filter.
fn check(place: &Place, input: &str, cases: &[Case]) {
    let whole = json(place, input, &[]);
    let all = lines(&whole);
    for (text, is_wanted) in cases {
        let of = |line: &&(String, Value)| is_wanted(&line.1) == Some(true);
        let expected: Vec<&String> = all.iter().filter(of).map(|(line, _)| line).collect();
        let count = expected.len();
        assert!(count > 0 && count < all.len(), "{input}: {text} selects {count}");
        let found = json(place, input, &["--filter", text]);
        assert_eq!(found.lines().next(), whole.lines().next(), "{input}: {text}");
        assert_eq!(texts(&lines(&found)), expected, "{input}: {text}");
        let last = lines(&json(place, input, &["--filter", text, "--last", "3"]));
        let expected = &expected[expected.len().saturating_sub(3)..];
        assert_eq!(texts(&last), expected, "{input}: {text} --last");
    }
}

/// The lines of text are those of the same events. Each event has one line in this style.
fn check_text(place: &Place, input: &str, cases: &[Case]) {
    let all = lines(&json(place, input, &[]));
    let report = |args: &[&str]| {
        place.run(&[&["report", input, "--utc", "--style", "raw"], args].concat()).out
    };
    let of_events = |text: String| -> Vec<String> {
        text.lines()
            .filter(|line| !line.starts_with('#') && !line.contains(" EVENTS]"))
            .map(str::to_owned)
            .collect()
    };
    let whole = of_events(report(&[]));
    assert_eq!(whole.len(), all.len());
    for (text, is_wanted) in cases {
        let pairs = whole.iter().zip(&all).filter(|(_, (_, json))| is_wanted(json) == Some(true));
        let expected: Vec<String> = pairs.map(|(line, _)| line.clone()).collect();
        assert_eq!(of_events(report(&["--filter", text])), expected, "{input}: {text}");
        let last = of_events(report(&["--filter", text, "--last", "2"]));
        let expected = &expected[expected.len().saturating_sub(2)..];
        assert_eq!(last, expected, "{input}: {text}");
    }
}

fn n(json: &Value) -> Option<u64> {
    json["fields"]["n"].as_u64()
}

/// A number at a JSON pointer.
fn int(json: &Value, at: &str) -> Option<i64> {
    json.pointer(at)?.as_i64()
}

/// A text at a JSON pointer.
fn text<'j>(json: &'j Value, at: &str) -> Option<&'j str> {
    json.pointer(at)?.as_str()
}

/// For testkit's sample session, and the same as CTF.
const SESSION: &[Case] = &[
    ("n > 150 && n <= 0xb4", |json| Some(n(json)? > 150 && n(json)? <= 180)),
    ("n & 4", |json| Some(n(json)? & 4 != 0)),
    ("(n & 6) == 2 || n << 1 == 300", |json| Some(n(json)? & 6 == 2 || n(json)? == 150)),
    ("!(n == 150)", |json| Some(n(json)? != 150)),
    (r#"text ~ "x*" && text != "xxxxxxx""#, |json| {
        text(json, "/fields/text").map(|text| text.starts_with('x') && text != "xxxxxxx")
    }),
    (r#"kind == "below""#, |json| Some(text(json, "/fields/kind/label")? == "below")),
    ("kind == 7", |json| Some(int(json, "/fields/kind/value")? == 7)),
    ("kind < 0", |json| Some(int(json, "/fields/kind/value")? < 0)),
    ("ratio >= 199.5 && yes", |json| {
        let yes = &json["fields"]["yes"];
        Some(json["fields"]["ratio"].as_f64()? >= 199.5 && (*yes == true || *yes == 1))
    }),
    ("three[1] == -1 && n > 200", |json| {
        Some(int(json, "/fields/three/1")? == -1 && n(json)? > 200)
    }),
    ("list[0] < 500", |json| Some(int(json, "/fields/list/0")? < 500)),
    (r#"event == "testkit:wide""#, |json| Some(text(json, "/event")? == "testkit:wide")),
    (r#"event ~ "*:wide" || n < 146"#, |json| {
        Some(text(json, "/event")?.ends_with(":wide") || n(json).is_some_and(|n| n < 146))
    }),
    ("cpu == 0 && CPU < 1", |json| Some(int(json, "/cpu")? == 0)),
    ("shard == 7 && n > 160", |json| Some(int(json, "/context/shard")? == 7 && n(json)? > 160)),
    ("$ctx.shard && pid == 4242", |json| Some(int(json, "/context/shard")? != 0)),
    ("shard == 99 || n == 147", |json| Some(n(json)? == 147)),
];

/// For the sample of trace.dat.
const KERNEL: &[Case] = &[
    ("pid == 9", |json| Some(int(json, "/fields/pid").or(int(json, "/context/pid"))? == 9)),
    ("common_pid == 9", |json| Some(int(json, "/context/pid")? == 9)),
    ("$ctx.pid == 7", |json| Some(int(json, "/context/pid")? == 7)),
    (r#"comm == "init""#, |json| {
        Some(text(json, "/fields/comm").or(text(json, "/context/comm"))? == "init")
    }),
    (r#"COMM ~ "w*""#, |json| Some(text(json, "/context/comm")?.starts_with('w'))),
    (r#"event == "ftrace:print" && buf ~ "hel*""#, |json| {
        Some(text(json, "/event")? == "ftrace:print")
    }),
    (r#"msg == "hello\n""#, |json| Some(text(json, "/fields/msg")? == "hello\n")),
    ("cpu == 1", |json| Some(int(json, "/cpu")? == 1)),
    ("ip > 0xffffffff00000000", |json| {
        Some(json["fields"]["ip"].as_u64()? > 0xffff_ffff_0000_0000)
    }),
    ("common_flags & 1 && common_pid", |json| {
        Some(text(json, "/context/flags")?.starts_with('d') && int(json, "/context/pid")? != 0)
    }),
];

#[test]
fn sessions_are_filtered() {
    let place = place();
    check(&place, "a", SESSION);
    // CTF 1.8 has no names of channels.
    check(&place, "a", &[(r#"channel == "main""#, |json| Some(text(json, "/channel")? == "main"))]);
    check_text(&place, "a", SESSION);
}

#[test]
fn folders_of_ctf_are_filtered() {
    let place = place();
    check(&place, "ctf", SESSION);
    check_text(&place, "ctf", SESSION);
    // babeltrace2's style, in which names are those of CTF 1.8.
    let found = place.ok(&["report", "ctf", "--filter", r#"kind == "below" && three[1] == -1"#]);
    let expected = place.ok(&["report", "ctf", "-e", "varied"]);
    assert_eq!(
        found.lines().count(),
        expected.lines().filter(|line| line.contains("\"below\"")).count()
    );
}

#[test]
fn kernels_are_filtered() {
    let place = place();
    check(&place, "k.dat", KERNEL);
    let args = ["convert", "k.dat", "-o", "top", "--instance", "top", "--to", "ctf2", "--filter"];
    place.ok(&[&args[..], &["common_pid == 9"]].concat());
    assert_eq!(lines(&json(&place, "top", &[])).len(), 1);
    // The kernel's own text, with its header and the marks of losses.
    let text = place.ok(&["report", "k.dat", "--filter", "common_pid != 7"]);
    let events: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(
        events,
        [
            "a long name here-9       [001] d..11     0.003000: wake: comm=init pid=9",
            "CPU:0 [LOST 3 EVENTS]",
            "          <idle>-0       [000] d..11     0.009000: wake: comm=init pid=9"
        ]
    );
}

/// The dumps are beside the repository.
#[test]
fn matrix_of_filtered_dumps() {
    let Some(cases) = std::env::var_os("LASTWORDS_CASES") else { return };
    let place = Place::new();
    let packed = Path::new(&cases).join("ftrace-6.12-basic/memory.elf.zst");
    let dump = place.at("memory.elf");
    let (packed, dump) = (packed.to_str().unwrap(), dump.to_str().unwrap());
    tool("zstd", &["-q", "-d", "--long=27", packed, "-o", dump]);
    let cases: &[Case] = &[
        ("prev_pid == 0", |json| Some(int(json, "/fields/prev_pid")? == 0)),
        (r#"prev_comm ~ "rcu*" || next_comm ~ "k*""#, |json| {
            let fields = &json["fields"];
            Some(
                fields["prev_comm"].as_str()?.starts_with("rcu")
                    || fields["next_comm"].as_str()?.starts_with('k'),
            )
        }),
        ("ret < 0", |json| Some(int(json, "/fields/ret")? < 0)),
        ("args[0] == 1 && id == 1", |json| {
            Some(int(json, "/fields/args/0")? == 1 && json["fields"]["id"] == 1)
        }),
        ("vec == 1 || common_pid == 1", |json| {
            Some(json["fields"]["vec"] == 1 || int(json, "/context/pid")? == 1)
        }),
        (r#"COMM == "init" && CPU == 1"#, |json| {
            Some(json["context"]["comm"] == "init" && json["cpu"] == 1)
        }),
        (r#"name ~ "*filp*""#, |json| Some(text(json, "/fields/name")?.contains("filp"))),
        (r#"event ~ "kmem:*free*""#, |json| {
            text(json, "/event").map(|name| name.starts_with("kmem:") && name.contains("free"))
        }),
        ("gfp_flags & 0x100", |json| Some(json["fields"]["gfp_flags"].as_u64()? & 0x100 != 0)),
    ];
    check(&place, "memory.elf", cases);
}

#[test]
fn filters_join_other_selections() {
    let place = place();
    let all = lines(&json(&place, "a", &[]));
    let args = ["--filter", "n >= 100", "-e", "wide", "--channel", "main", "--last", "4"];
    let found = lines(&json(&place, "a", &args));
    let of = |json: &Value| {
        n(json).is_some_and(|n| n >= 100)
            && json["event"] == "testkit:wide"
            && json["channel"] == "main"
    };
    let expected: Vec<&String> =
        all.iter().filter(|(_, json)| of(json)).map(|(line, _)| line).collect();
    assert_eq!(texts(&found), expected[expected.len() - 4..]);
    // A session and CTF on one timeline: the last ones of both.
    let merged = place.ok(&["report", "a", "ctf", "--utc", "--filter", "n & 8"]);
    let last = place.ok(&["report", "a", "ctf", "--utc", "--filter", "n & 8", "--last", "5"]);
    assert!(merged.ends_with(&last) && last.lines().count() == 5);
    // An event that several channels have is shown once, but where the channel decides.
    let [once, errors] = ["n >= 0", r#"channel == "errors""#]
        .map(|text| place.ok(&["report", "a", "--filter", text]));
    assert_eq!(once, place.ok(&["report", "a"]));
    assert_eq!(errors, place.ok(&["report", "a", "--channel", "errors"]));
    // Files of a folder, and Perfetto.
    place.ok(&["recover", "a", "--to", "text", "-o", "texts", "--filter", "n == 147"]);
    assert_eq!(std::fs::read_to_string(place.at("texts/small.txt")).unwrap().lines().count(), 1);
    let either = "n == 147 || common_pid == 9";
    place.ok(&["recover", "a", "k.dat", "--to", "perfetto", "-o", "traces", "--filter", either]);
    let len = |path: &str| std::fs::metadata(place.at(path)).unwrap().len();
    place.ok(&["recover", "a", "--to", "perfetto", "-o", "whole"]);
    assert!(len("traces/small.perfetto-trace") < len("whole/small.perfetto-trace") / 10);
}

#[test]
fn filters_that_cannot_be_used() {
    let place = place();
    for (text, part) in [
        ("n =", "byte 2: found `=`; expected `==`: one `=` does not compare\n  n =\n    ^"),
        ("n & 4 == 4", "write `(flags & 4) == 4`"),
        ("", "byte 0: found the end"),
    ] {
        for verb in ["report", "recover", "convert"] {
            let args = [verb, "a", "--filter", text, "-o", "out"];
            let ran = place.run(if verb == "report" { &args[..4] } else { &args });
            ran.has_status(2).prints_nothing().says(part);
        }
    }
    let unknown =
        "byte 0: found the name `nn`; expected a field, a context that an event of the input has";
    for (input, text, part) in [
        ("a", "nn == 1", unknown),
        ("a", "n > 1 && shrad == 7", "such as shard\n  n > 1 && shrad == 7\n           ^"),
        ("a", "$ctx.n == 1", "found the name `$ctx.n`; expected a context"),
        ("a", "$ctx.shad == 1", "such as $ctx.shard"),
        ("a", "three == 1", "such as three[0]"),
        ("ctf", "n.x == 1", "found the name `n.x`"),
        ("k.dat", "common_pd == 1", "such as common_pid"),
        ("k.dat", "xyzzy == 1", "or one of cpu, CPU, comm"),
    ] {
        let ran = place.run(&["recover", input, "--to", "json", "-o", "out", "--filter", text]);
        ran.has_status(1).says(part);
        place.run(&["report", input, "--filter", text]).has_status(1).prints_nothing().says(part);
    }
    // Packets and pages are copied as they are.
    for (args, more) in [
        (["recover", "a", "--to", "ctf"], ""),
        (["convert", "ctf", "--to", "ctf2"], ""),
        (["recover", "k.dat", "--to", "trace-dat"], "ctf, ctf2, "),
    ] {
        let ran = place.run(&[&args[..], &["-o", "out", "--filter", "cpu == 0"]].concat());
        let formats = format!("text, json, perfetto, otlp, {more}parquet and arrow");
        ran.has_status(1).says(&format!("are for other formats: {formats}")).says("--filter");
    }
    assert!(!place.at("out").exists(), "nothing is written");
    let ran = place.run(&["report", "a", "--filter", "n == 1", "--consume"]);
    ran.has_status(2).says("cannot be used with");
    let ran = place.run(&["report", "a", "--filter", "n == 12345678"]);
    ran.has_status(1).says("no event is left by --filter\n");
    // A name that one of several inputs has is known.
    place.ok(&["report", "a", "k.dat", "--filter", "n == 147 || common_pid == 9"]);
}

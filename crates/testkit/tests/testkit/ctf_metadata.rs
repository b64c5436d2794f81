//! Tests of the work that short CTF metadata can cause. Each case is expensive for a reader that
//! searches from the beginning each time, or copies a declaration each time that it is used.
#![forbid(unsafe_code)]

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use crate::common::Watchdog;

/// Longest that metadata of a megabyte may take, in a program that is not optimised much.
const LIMIT: Duration = Duration::from_secs(10);

const HEAD: &str = "/* CTF 1.8 */\n\
    typealias integer { size = 8; align = 8; signed = false; } := u8;\n\
    trace { major = 1; minor = 8; byte_order = le; };\n";

/// TSDL with these declarations, and a stream class.
fn tsdl(declarations: &str) -> String {
    format!("{HEAD}{declarations}stream {{ event.header := struct {{ u8 id; }}; }};\n")
}

/// `one` of each number, one behind the other.
fn many(count: usize, one: impl Fn(usize) -> String) -> String {
    (0..count).map(one).collect()
}

/// An event of these fields.
fn event(id: usize, fields: &str) -> String {
    format!("event {{ id = {id}; name = \"e\"; fields := struct {{ {fields}}}; }};\n")
}

/// A structure of this name, of `count` fields.
fn structure(name: &str, count: usize) -> String {
    format!("struct {name} {{ {}}};\n", many(count, |n| format!("u8 f{n}; ")))
}

fn enumeration(count: usize) -> String {
    format!("enum e : u8 {{ {}}};\n", many(count, |n| format!("l{n} = {}, ", n % 256)))
}

/// A description, metadata, and the number of events of the model; none if it is refused.
type Case = (&'static str, String, Option<usize>);

/// Returns metadata that have much of one thing.
fn tsdl_of_many() -> Vec<Case> {
    vec![
        (
            "many events",
            tsdl(&many(100_000, |n| format!("event {{ id = {n}; name = \"e\"; }};\n"))),
            Some(100_000),
        ),
        (
            "many streams",
            format!("{HEAD}{}", many(30_000, |n| format!("stream {{ id = {n}; }};\n"))),
            Some(0),
        ),
        ("many fields", tsdl(&event(0, &many(100_000, |n| format!("u8 f{n}; ")))), Some(1)),
        (
            "many properties",
            tsdl(&format!("env {{ {}}};\n", many(100_000, |n| format!("a{n} = 1; ")))),
            Some(0),
        ),
        (
            "many plus signs",
            tsdl(&format!("env {{ a = {}1; }};\n", "+".repeat(1_000_000))),
            Some(0),
        ),
        ("many clocks", tsdl(&many(20_000, |n| format!("clock {{ name = c{n}; }};\n"))), None),
    ]
}

/// Returns metadata in which something large is used again and again.
fn tsdl_of_uses() -> Vec<Case> {
    let options = many(10_000, |n| format!("u8 l{n}; "));
    let variant = format!("{}variant v {{ {options}}};\n", enumeration(10_000));
    let long = "n".repeat(500_000);
    vec![
        (
            "a variant that is given a tag again and again",
            {
                let uses = many(20_000, |n| format!("typealias variant v <t> := w{n};\n"));
                tsdl(&format!("{variant}{uses}"))
            },
            Some(0),
        ),
        (
            "a variant of many options used again and again",
            {
                let uses = many(5_000, |n| event(n, "enum e t; variant v <t> v; "));
                tsdl(&format!("{variant}{uses}"))
            },
            None,
        ),
        (
            "an enumeration of many labels used again and again",
            {
                tsdl(&format!(
                    "{}{}",
                    enumeration(20_000),
                    many(10_000, |n| event(n, "enum e f; "))
                ))
            },
            None,
        ),
        (
            "a field of a long name used again and again",
            {
                tsdl(&format!(
                    "struct s {{ u8 {long}; }};\n{}",
                    many(10_000, |n| event(n, "struct s f; "))
                ))
            },
            None,
        ),
        (
            "fields inside one of a long name",
            {
                let fields = many(20_000, |n| format!("u8 f{n}; "));
                tsdl(&event(0, &format!("struct {{ {fields}}} {long}; ")))
            },
            None,
        ),
        (
            "lengths that are looked for among many fields",
            {
                let fields = many(20_000, |n| format!("u8 f{n}; "));
                let arrays = many(20_000, |n| format!("u8 a{n}[f19999]; "));
                tsdl(&event(0, &format!("{fields}{arrays}")))
            },
            None,
        ),
        (
            "structures of structures",
            {
                let levels = many(30, |n| {
                    format!("struct s{} {{ struct s{n} a; struct s{n} b; }};\n", n + 1)
                });
                tsdl(&format!("{}{levels}{}", structure("s0", 2), event(0, "struct s30 f; ")))
            },
            None,
        ),
    ]
}

fn tsdl_cases() -> Vec<Case> {
    [tsdl_of_many(), tsdl_of_uses()].concat()
}

/// CTF 2 with these fragments behind the preamble.
fn ctf2(fragments: &[String]) -> String {
    let preamble = r#"{"type":"preamble","version":2}"#.to_owned();
    std::iter::once(&preamble).chain(fragments).fold(String::new(), |mut text, fragment| {
        let _ = writeln!(text, "\u{1e}{fragment}");
        text
    })
}

fn alias(name: &str, class: &str) -> String {
    format!(r#"{{"type":"field-class-alias","name":"{name}","field-class":{class}}}"#)
}

fn record(id: usize, members: &[String]) -> String {
    let members = members.join(",");
    format!(
        r#"{{"type":"event-record-class","id":{id},"payload-field-class":{{"type":"structure","member-classes":[{members}]}}}}"#
    )
}

fn member(name: &str, class: &str) -> String {
    format!(r#"{{"name":"{name}","field-class":{class}}}"#)
}

fn ctf2_cases() -> Vec<Case> {
    let stream = r#"{"type":"data-stream-class"}"#.to_owned();
    let byte =
        r#"{"type":"fixed-length-unsigned-integer","length":8,"byte-order":"little-endian"}"#;
    let with = |fragments: Vec<String>| ctf2(&[vec![stream.clone()], fragments].concat());
    let integer = |more: &str| {
        format!(
            r#"{{"type":"fixed-length-unsigned-integer","length":8,"byte-order":"little-endian",{more}}}"#
        )
    };
    let long = "n".repeat(500_000);
    let labels: Vec<String> = (0..20_000).map(|n| format!(r#""l{n}":[[{n},{n}]]"#)).collect();
    let uses = |class: &str| -> Vec<String> {
        (0..5_000).map(|n| record(n, &[member("f", class)])).collect()
    };
    vec![
        ("many events", with((0..50_000).map(|n| record(n, &[])).collect()), Some(50_000)),
        (
            "many streams",
            ctf2(
                &(0..30_000)
                    .map(|n| format!(r#"{{"type":"data-stream-class","id":{n}}}"#))
                    .collect::<Vec<_>>(),
            ),
            Some(0),
        ),
        (
            "many fields",
            {
                let members: Vec<String> =
                    (0..50_000).map(|n| member(&format!("f{n}"), "\"u8\"")).collect();
                ctf2(&[alias("u8", byte), stream.clone(), record(0, &members)])
            },
            Some(1),
        ),
        (
            "an alias of many labels used again and again",
            {
                let class = integer(&format!(r#""mappings":{{{}}}"#, labels.join(",")));
                with([vec![alias("e", &class)], uses("\"e\"")].concat())
            },
            None,
        ),
        (
            "an alias with long attributes used again and again",
            {
                let class = integer(&format!(r#""attributes":{{"a":"{long}"}}"#));
                with([vec![alias("e", &class)], uses("\"e\"")].concat())
            },
            None,
        ),
        (
            "fields inside one of a long name",
            {
                let inner: Vec<String> =
                    (0..30_000).map(|n| member(&format!("f{n}"), "\"u8\"")).collect();
                let class =
                    format!(r#"{{"type":"structure","member-classes":[{}]}}"#, inner.join(","));
                ctf2(&[alias("u8", byte), stream.clone(), record(0, &[member(&long, &class)])])
            },
            None,
        ),
    ]
}

#[test]
fn short_metadata_costs_little() {
    let watchdog = Watchdog::new("edges: metadata", LIMIT);
    for (number, (what, text, events)) in tsdl_cases().into_iter().chain(ctf2_cases()).enumerate() {
        watchdog.case(number as u64);
        let read = lastwords_ctf::metadata::parse(Path::new("metadata"), text.as_bytes());
        let found = read
            .as_ref()
            .ok()
            .map(|class| class.streams.iter().map(|stream| stream.events.len()).sum::<usize>());
        let error = read.err().map(|error| error.to_string());
        assert_eq!(found, events, "{what}: {error:?}");
    }
}

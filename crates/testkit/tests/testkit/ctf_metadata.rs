//! Tests of the work that short CTF metadata can cause. Each case is expensive for a reader that
//! searches from the beginning each time, or copies a declaration each time that it is used.
#![forbid(unsafe_code)]

use std::path::Path;
use std::time::Duration;

use crate::common::Watchdog;

/// Longest that metadata of a megabyte may take, in a program that is not optimised much.
const LIMIT: Duration = Duration::from_secs(10);

const HEAD: &str = "/* CTF 1.8 */\n\
    typealias integer { size = 8; align = 8; signed = false; } := u8;\n\
    trace { major = 1; minor = 8; byte_order = le; };\n";

/// TSDL with these declarations, and a stream class.
fn tsdl(declarations: &[&str]) -> String {
    let stream = "stream { event.header := struct { u8 id; }; };\n";
    [HEAD, &declarations.concat(), stream].concat()
}

/// `count` of a text, one behind the other, each with its number in place of `#`.
fn many(count: usize, text: &str) -> String {
    (0..count).map(|n| text.replace('#', &n.to_string())).collect()
}

/// An event of these fields.
fn event(fields: &[&str]) -> String {
    [r#"event { id = #; name = "e"; fields := struct { "#, &fields.concat(), "}; };\n"].concat()
}

fn enumeration(count: usize) -> String {
    let labels = (0..count).map(|n| format!("l{n} = {}, ", n % 256)).collect::<String>();
    ["enum e : u8 { ", &labels, "};\n"].concat()
}

/// A description, metadata, and the number of events of the model; none if it is refused.
type Case = (&'static str, String, Option<usize>);

/// Returns metadata that have much of one thing.
fn tsdl_of_many() -> Vec<Case> {
    let events = many(100_000, "event { id = #; name = \"e\"; };\n");
    let streams = [HEAD, &many(30_000, "stream { id = #; };\n")].concat();
    let fields = many(1, &event(&[&many(100_000, "u8 f#; ")]));
    let properties = ["env { ", &many(100_000, "a# = 1; "), "};\n"].concat();
    let sum = ["env { a = ", &"+".repeat(1_000_000), "1; };\n"].concat();
    vec![
        ("many events", tsdl(&[&events]), Some(100_000)),
        ("many streams", streams, Some(0)),
        ("many fields", tsdl(&[&fields]), Some(1)),
        ("many properties", tsdl(&[&properties]), Some(0)),
        ("many plus signs", tsdl(&[&sum]), Some(0)),
        ("many clocks", tsdl(&[&many(20_000, "clock { name = c#; };\n")]), None),
    ]
}

/// Returns metadata in which something large is used again and again.
fn tsdl_of_uses() -> Vec<Case> {
    let options = many(10_000, "u8 l#; ");
    let variant = [&enumeration(10_000), "variant v { ", &options, "};\n"].concat();
    let tagged = many(20_000, "typealias variant v <t> := w#;\n");
    let variants = many(5_000, &event(&["enum e t; variant v <t> v; "]));
    let labels = [enumeration(20_000), many(10_000, &event(&["enum e f; "]))].concat();
    let long = "n".repeat(500_000);
    let named = ["struct s { u8 ", &long, "; };\n", &many(10_000, &event(&["struct s f; "]))];
    let fields = many(20_000, "u8 f#; ");
    let inside = event(&["struct { ", &fields, "} ", &long, "; "]).replace('#', "0");
    let lengths = event(&[&fields, &many(20_000, "u8 a#[f19999]; ")]).replace('#', "0");
    let level = |n: usize| format!("struct s{} {{ struct s{n} a; struct s{n} b; }};\n", n + 1);
    let levels: String = (0..30).map(level).collect();
    let deepest = event(&["struct s30 f; "]).replace('#', "0");
    vec![
        ("a variant that is given a tag again and again", tsdl(&[&variant, &tagged]), Some(0)),
        ("a variant of many options used again and again", tsdl(&[&variant, &variants]), None),
        ("an enumeration of many labels used again and again", tsdl(&[&labels]), None),
        ("a field of a long name used again and again", tsdl(&named), None),
        ("fields inside one of a long name", tsdl(&[&inside]), None),
        ("lengths that are looked for among many fields", tsdl(&[&lengths]), None),
        (
            "structures of structures",
            tsdl(&["struct s0 { u8 f0; u8 f1; };\n", &levels, &deepest]),
            None,
        ),
    ]
}

/// CTF 2 with these fragments behind the preamble.
fn ctf2(fragments: &[String]) -> String {
    let preamble = r#"{"type":"preamble","version":2}"#.to_owned();
    let fragments = std::iter::once(&preamble).chain(fragments);
    fragments.map(|fragment| format!("\u{1e}{fragment}\n")).collect()
}

fn alias(name: &str, class: &str) -> String {
    format!(r#"{{"type":"field-class-alias","name":"{name}","field-class":{class}}}"#)
}

fn structure(members: &[String]) -> String {
    format!(r#"{{"type":"structure","member-classes":[{}]}}"#, members.join(","))
}

fn record(id: usize, members: &[String]) -> String {
    let class = structure(members);
    format!(r#"{{"type":"event-record-class","id":{id},"payload-field-class":{class}}}"#)
}

fn member(name: &str, class: &str) -> String {
    format!(r#"{{"name":"{name}","field-class":{class}}}"#)
}

fn ctf2_cases() -> Vec<Case> {
    let stream = r#"{"type":"data-stream-class"}"#.to_owned();
    let integer =
        r#"{"type":"fixed-length-unsigned-integer","length":8,"byte-order":"little-endian"}"#;
    let with = |fragments: Vec<String>| ctf2(&[vec![stream.clone()], fragments].concat());
    // An alias of this integer with more properties, which 5000 events use.
    let uses = |more: &str| {
        let class = integer.replace('}', &format!(",{more}}}"));
        let records = (0..5_000).map(|n| record(n, &[member("f", "\"e\"")])).collect();
        with([vec![alias("e", &class)], records].concat())
    };
    let fields = |count: usize| -> Vec<String> {
        (0..count).map(|n| member(&format!("f{n}"), "\"u8\"")).collect()
    };
    // One event of these members.
    let event =
        |members: &[String]| ctf2(&[alias("u8", integer), stream.clone(), record(0, members)]);
    let streams: Vec<String> =
        (0..30_000).map(|n| format!(r#"{{"type":"data-stream-class","id":{n}}}"#)).collect();
    let long = "n".repeat(500_000);
    let labels: Vec<String> = (0..20_000).map(|n| format!(r#""l{n}":[[{n},{n}]]"#)).collect();
    let labels = uses(&format!(r#""mappings":{{{}}}"#, labels.join(",")));
    let attributes = uses(&format!(r#""attributes":{{"a":"{long}"}}"#));
    let inside = event(&[member(&long, &structure(&fields(30_000)))]);
    vec![
        ("many events", with((0..50_000).map(|n| record(n, &[])).collect()), Some(50_000)),
        ("many streams", ctf2(&streams), Some(0)),
        ("many fields", event(&fields(50_000)), Some(1)),
        ("an alias of many labels used again and again", labels, None),
        ("an alias with long attributes used again and again", attributes, None),
        ("fields inside one of a long name", inside, None),
    ]
}

#[test]
fn short_metadata_costs_little() {
    let watchdog = Watchdog::new("edges: metadata", LIMIT);
    let cases = [tsdl_of_many(), tsdl_of_uses(), ctf2_cases()].concat();
    for (number, (what, text, events)) in cases.into_iter().enumerate() {
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

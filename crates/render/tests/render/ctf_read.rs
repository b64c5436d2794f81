//! Tests the CTF reader on handmade traces. It must print what babeltrace2 2.1.1 prints, and must
//! refuse wrong data and name its place.

use crate::support;
use crate::support::ctf::{
    TSDL, compact, ctf2_metadata, ctf2_stream, folder, metadata_packets, packet, report, sequence,
    stream,
};
use lastwords_ctf::Version;
use lastwords_ctf::read;
use lastwords_render::events::Note;
use lastwords_render::json;
use lastwords_render::select::Selection;
use lastwords_render::text::{self, Style, Zone};
use proptest::prelude::*;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

const SHOWN: &str = r#"[22:13:20.000000100] (+?.?????????) box a:ints: { cpu_id = 3 }, { vtid = 77 }, { h = 0xFFFE, o = 010, b = 0b0101, odd = -5, f = 1.5 }
[22:13:20.134217733] (+0.134217633) box a:text: { cpu_id = 3 }, { vtid = 7 }, { s = "say \"hi\"\n", _n = 3, t = "abc", raw = [ [0] = 1, [1] = 255 ], e = ( { "low", "one" } : container = 1 ), tag = ( "num" : container = 0 ), v = { 500 } }
[22:13:20.134218733] (+0.000001000) box a:text: { cpu_id = 3 }, { vtid = 7 }, { s = "say \"hi\"\n", _n = 3, t = "abc", raw = [ [0] = 1, [1] = 255 ], e = ( <unknown> : container = 9 ), tag = ( "str" : container = 1 ), v = { "opt" } }
[22:13:20.134220833] (+0.000002100) box a:text: { cpu_id = 3 }, { vtid = 7 }, { s = "say \"hi\"\n", _n = 3, t = "abc", raw = [ [0] = 1, [1] = 255 ], e = ( "far" : container = 200 ), tag = ( "num" : container = 0 ), v = { 500 } }
"#;

#[test]
fn tsdl_in_both_byte_orders() {
    for (big, order) in [(false, "le"), (true, "be")] {
        let metadata = TSDL.replace("ORDER", order);
        let folder = folder(metadata.as_bytes(), &[("chan_3", &stream(big))]);
        let (text, remarks) = report(folder.path());
        assert_eq!(text, SHOWN, "{order}: {remarks:?}");
        assert!(
            matches!(remarks.as_slice(), [one] if one.starts_with("Tracer discarded 4 events between")),
            "{remarks:?}"
        );
    }
}

#[test]
fn metadata_in_packets() {
    let text = TSDL.replace("ORDER", "le");
    for big in [false, true] {
        let bytes = metadata_packets(text.as_bytes(), big);
        let folder = folder(&bytes, &[("chan_3", &stream(false))]);
        assert_eq!(report(folder.path()).0, SHOWN);
    }
}

#[test]
fn wrong_data_is_refused_with_its_place() {
    let metadata = TSDL.replace("ORDER", "le");
    let mut bytes = stream(false);
    // The third event's variant has no option for a tag of 9.
    let at = bytes.windows(5).position(|w| w == b"\x01opt\0").expect("there");
    bytes[at] = 9;
    let folder_of = folder(metadata.as_bytes(), &[("chan_3", &bytes)]);
    let (text, remarks) = report(folder_of.path());
    let expected: String =
        SHOWN.lines().enumerate().filter(|(i, _)| *i != 2).map(|(_, l)| format!("{l}\n")).collect();
    // The difference is to the event that was printed last.
    let (wanted, got): (Vec<&str>, Vec<&str>) =
        (expected.lines().collect(), text.lines().collect());
    assert_eq!(got[..2], wanted[..2]);
    assert_eq!(got.len(), 3, "the next packet is read");
    let fault = remarks.iter().find(|r| r.contains("selector 9")).expect("a fault");
    assert!(fault.contains("chan_3: packet at offset 0x0: byte 0x"), "{fault}");
    // The number of events that do not need what is wrong.
    for (wrong, says, left) in [
        ("size = 5;", "size = 65;", 0),
        ("struct event_header;", "struct nothing;", 0),
        ("_t[ __n ]", "_t[ __none ]", 1),
        ("variant <_tag>", "variant <_o>", 1),
        ("clock.mono.value", "clock.poly.value", 4),
        ("minor = 8;", "minor = 9;", 0),
        ("};\nenv", "env", 0),
    ] {
        let folder =
            folder(metadata.replace(wrong, says).as_bytes(), &[("chan_3", &stream(false))]);
        let (text, remarks) = report(folder.path());
        let is_told = remarks.iter().any(|remark| remark.contains("metadata: line "));
        assert!(text.lines().count() == left && is_told, "{says}: {text}{remarks:?}");
    }
}

const CTF2_SHOWN: &str = r#"[00:00:11.500000000] (+?.?????????) box e: { there = true, o = { 42 }, n = -5, len = 2, b = { ca fe }, w = "é!", m = 0x22 { "A", "B" }, in = { k = ( "z" : container = 2 ), d = [ [0] = 6, [1] = 7 ], v = { { } } } }
[00:00:11.501000000] (+0.001000000) box e: { there = false, o = <none>, n = 128, len = 0, b = { }, w = "", m = 0x0, in = { k = ( "a" : container = 0 ), d = [ ], v = { 9 } } }
"#;

#[test]
fn ctf2() {
    let folder = folder(&ctf2_metadata(), &[("s", &ctf2_stream())]);
    let (text, remarks) = report(folder.path());
    assert_eq!(text, CTF2_SHOWN, "{remarks:?}");
    assert!(remarks.is_empty(), "{remarks:?}");
}

#[test]
fn a_copy_is_the_same() {
    let metadata = TSDL.replace("ORDER", "le");
    let from = folder(metadata.as_bytes(), &[("chan_3", &stream(false))]);
    let found = read::open(from.path(), &Arc::default()).expect("opened");
    let to = tempfile::tempdir().expect("a folder");
    let out = to.path().join("out");
    let totals = read::copy(&found.traces, Version::V1_8, &out, &read::unwatched, &mut |note| {
        panic!("{note:?}")
    })
    .expect("copied");
    assert_eq!((totals[0].packets, totals[0].events, totals[0].faults), (2, 4, 0));
    for file in ["metadata", "chan_3"] {
        let read = |folder: &Path| std::fs::read(folder.join(file)).expect("read");
        assert_eq!(read(from.path()), read(&out), "{file}");
    }
    let two = to.path().join("two");
    read::copy(&found.traces, Version::V2, &two, &read::unwatched, &mut |note| panic!("{note:?}"))
        .expect("copied");
    assert_eq!(report(&two).0, report(from.path()).0, "the other version says the same");
}

/// An event can have a common context, a specific context, both or none. Each context can be empty.
#[test]
fn both_contexts_are_one_object_in_json() {
    let integer = "integer { size = 8; align = 8; }";
    let of = |name: &str| {
        [String::new(), "struct { }".to_owned(), format!("struct {{ {integer} {name}; }}")]
    };
    for (common, stream) in of("c").iter().enumerate() {
        for (own, event) in of("s").iter().enumerate() {
            let part = |key: &str, value: &str| {
                if value.is_empty() { String::new() } else { format!("{key} := {value};") }
            };
            let metadata = format!(
                "/* CTF 1.8 */ trace {{ major = 1; minor = 8; byte_order = le; }}; stream {{ {} }};
                event {{ name = e; {} fields := struct {{ {integer} f; }}; }};",
                part("event.context", stream),
                part("context", event)
            );
            let values = [(common == 2, 7), (own == 2, 8), (true, 9)];
            let bytes: Vec<u8> =
                values.iter().filter(|value| value.0).map(|value| value.1).collect();
            let from = folder(metadata.as_bytes(), &[("stream", &bytes)]);
            let found = read::open(from.path(), &Arc::default()).expect("opened");
            let mut out = Vec::new();
            let selection = Selection::default();
            json::write(&found.traces, &selection, &mut out, &read::unwatched, &mut |note| {
                panic!("{note:?}")
            })
            .expect("written");
            let line =
                String::from_utf8(out).expect("text").lines().nth(1).expect("an event").to_owned();
            let line: serde_json::Value =
                serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
            let mut context = serde_json::Map::new();
            context.extend((common == 2).then(|| ("c".to_owned(), 7.into())));
            context.extend((own == 2).then(|| ("s".to_owned(), 8.into())));
            let is_expected = common > 0 || own > 0;
            assert_eq!(line.get("context"), is_expected.then_some(&context.into()), "{line}");
            assert_eq!(line["fields"], serde_json::json!({ "f": 9 }), "{line}");
        }
    }
}

/// The callback for progress must receive every byte exactly once.
#[test]
fn all_bytes_that_are_read_are_reported() {
    let metadata = TSDL.replace("ORDER", "le");
    let from = folder(metadata.as_bytes(), &[("a", &stream(false)), ("b", &stream(false)[..100])]);
    let found = read::open(from.path(), &Arc::default()).expect("opened");
    let total: u64 = found.traces.iter().map(read::Trace::bytes).sum();
    assert!(total > 100, "{total}");
    let heard = |work: &mut dyn FnMut(read::Watch<'_>)| {
        let heard = AtomicU64::new(0);
        work(&|bytes| {
            heard.fetch_add(bytes, Relaxed);
        });
        heard.into_inner()
    };
    let to = tempfile::tempdir().expect("a folder");
    let selection = Selection::default();
    let copied = heard(&mut |watch| {
        read::copy(&found.traces, Version::V2, &to.path().join("out"), watch, &mut |_| {})
            .expect("copied");
    });
    assert_eq!(copied, total);
    let lines = heard(&mut |watch| {
        json::write(&found.traces, &selection, &mut Vec::new(), watch, &mut |_| {})
            .expect("written");
    });
    assert_eq!(lines, 2 * total, "once for losses, once for events");
    let text = heard(&mut |watch| {
        let (zone, style) = (Zone::utc(), text::Style::Babeltrace);
        text::write(&found.traces, style, &selection, &zone, &mut Vec::new(), watch, &mut |_| {})
            .expect("text");
    });
    assert_eq!(text, total);
}

/// Describes an event class whose fields are on byte boundaries, and a class with text whose length
/// is in the packet's context.
const MORE: &str = r#"
event { name = "c:flat"; id = 2; stream_id = 0; fields := struct {
	uint64_t _n; string _s; integer { size = 16; align = 8; signed = true; base = hex; } _h;
	integer { size = 8; align = 8; encoding = UTF8; } _comm[6];
}; };
event { name = "c:far"; id = 3; stream_id = 0; fields := struct {
	integer { size = 8; align = 8; encoding = UTF8; } _far[ stream.packet.context.cpu_id ];
}; };
"#;

/// Prints a trace of three streams that is large enough for threads, with packets larger than a
/// window.
#[test]
fn large_traces_are_printed_in_order() {
    for big in [false, true] {
        let order = if big { "be" } else { "le" };
        let metadata = TSDL.replace("ORDER", order) + MORE;
        let (mut streams, mut wanted) = ([const { Vec::new() }; 3], String::new());
        for number in 0..40_000u64 {
            let (stream, clock) = ((number * number % 7 % 3) as usize, 1000 + number);
            let mut event = compact(big, 2 + (number % 5 == 0) as u32, clock as u32);
            event.extend(if big { 9u32.to_be_bytes() } else { 9u32.to_le_bytes() });
            let time = format!("[22:13:20.{clock:09}]");
            let delta = if number == 0 { "?.?????????" } else { "0.000000001" };
            let text = format!("number {number}");
            let fields = if number % 5 == 0 {
                event.extend(b"far");
                "far = \"far\"".to_owned()
            } else {
                event.extend(if big { number.to_be_bytes() } else { number.to_le_bytes() });
                event.extend(text.bytes().chain([0]));
                event.extend([0xff, 0xff]);
                event.extend(b"ab\0cde");
                format!("n = {number}, s = \"{text}\", h = 0xFFFF, comm = \"ab\"")
            };
            let name = if number % 5 == 0 { "far" } else { "flat" };
            wanted += &format!(
                "{time} (+{delta}) box c:{name}: {{ cpu_id = 3 }}, {{ vtid = 9 }}, {{ {fields} }}\n"
            );
            streams[stream].push((clock, event));
        }
        let files = streams.map(|events| {
            let (begin, end) = (events[0].0, events[events.len() - 1].0);
            packet(
                big,
                begin,
                end,
                0,
                &events.into_iter().map(|(_, event)| event).collect::<Vec<_>>(),
                0,
            )
        });
        assert!(files.iter().map(Vec::len).sum::<usize>() > 1 << 20, "large enough for threads");
        let folder =
            folder(metadata.as_bytes(), &[("a", &files[0]), ("b", &files[1]), ("c", &files[2])]);
        let (shown, remarks) = report(folder.path());
        assert_eq!(remarks, [""; 0], "{order}");
        for (shown, wanted) in shown.lines().zip(wanted.lines()) {
            assert_eq!(shown, wanted, "{order}");
        }
        assert_eq!(shown.len(), wanted.len(), "{order}");
    }
}

/// Makes a trace whose events have only a time and a number of one byte.
fn timed(frequency: u64, seconds: i64, ticks: &[u64]) -> tempfile::TempDir {
    let integer = |bits: u8, more: &str| {
        format!(
            r#"{{"type":"fixed-length-unsigned-integer","length":{bits},"byte-order":"little-endian","alignment":8{more}}}"#
        )
    };
    let member = |name: &str, class: &str| {
        format!(
            r#"{{"type":"structure","member-classes":[{{"name":"{name}","field-class":{class}}}]}}"#
        )
    };
    let time = member("t", &integer(64, r#","roles":["default-clock-timestamp"]"#));
    let fragments = [
        r#"{"type":"preamble","version":2}"#.to_owned(),
        format!(
            r#"{{"type":"clock-class","id":"k","frequency":{frequency},"offset-from-origin":{{"seconds":{seconds},"cycles":0}},"origin":"unix-epoch"}}"#
        ),
        format!(
            r#"{{"type":"data-stream-class","default-clock-class-id":"k","event-record-header-field-class":{time}}}"#
        ),
        format!(
            r#"{{"type":"event-record-class","name":"e","payload-field-class":{}}}"#,
            member("n", &integer(8, ""))
        ),
    ];
    let event = |(n, ticks): (u8, &u64)| [&ticks.to_le_bytes()[..], &[n]].concat();
    let stream: Vec<u8> = (0..).zip(ticks).flat_map(event).collect();
    folder(&sequence(&fragments), &[("s", &stream)])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn an_event_without_a_valid_time_is_omitted_and_reported(
        frequency in prop_oneof![Just(1u64), Just(1000), Just(1_000_000_000), 1u64..1 << 40],
        seconds in prop_oneof![-10i64..10, -9_223_372_100i64..-9_223_371_900, 9_223_371_900i64..9_223_372_100],
        ticks in prop::collection::vec(prop_oneof![0u64..1000, 0u64..1 << 34, 0u64..=u64::MAX], 1..40),
    ) {
        let folder = timed(frequency, seconds, &ticks);
        let (text, remarks) = report(folder.path());
        let nanoseconds = |ticks: u64| i128::from(seconds) * 1_000_000_000 + i128::from(ticks) * 1_000_000_000 / i128::from(frequency);
        // Both results are correct if they differ only by the precision of a double.
        let near = |time: i128| [i128::from(i64::MIN), i128::from(i64::MAX)].iter().any(|end| (time - end).abs() < 1 << 20);
        let fits = |time: i128| i64::try_from(time).is_ok();
        for (n, ticks) in ticks.iter().enumerate() {
            let time = nanoseconds(*ticks);
            let shown = text.contains(&format!("{{ n = {n} }}"));
            prop_assert!(near(time) || shown == fits(time), "event {n}, {ticks} ticks: {time}: {text}");
        }
        let times: Vec<i128> = ticks.iter().map(|ticks| nanoseconds(*ticks)).collect();
        if !times.iter().any(|time| near(*time)) {
            let lost = times.iter().any(|time| !fits(*time));
            prop_assert_eq!(remarks.len(), usize::from(lost), "{:?}", remarks);
            prop_assert!(remarks.iter().all(|remark| remark.contains("expected a time in 64 bits of nanoseconds")));
        }
    }
}

/// If the byte order changes inside a byte, no event may be printed, not even in part. babeltrace2
/// prints none either.
#[test]
fn a_byte_order_that_changes_inside_a_byte_is_a_fault() {
    let little = |bits: u8| format!("integer {{ size = {bits}; align = 1; }}");
    let big = |bits: u8, align: u8| {
        format!("integer {{ size = {bits}; align = {align}; byte_order = be; }}")
    };
    let float = "floating_point { exp_dig = 8; mant_dig = 24; align = 4; byte_order = be; }";
    for (fields, is_right) in [
        (format!("{} a; {} b;", little(4), big(4, 1)), false),
        (format!("{} a; {} b; {} c;", little(3), big(5, 1), little(8)), false),
        (format!("{} a; {float} b;", little(4)), false),
        (format!("{} a[3]; {} b;", little(4), big(4, 1)), false),
        (format!("struct {{ {} a; {} b; }} c[2];", little(4), big(4, 1)), false),
        (format!("{} a; {} b;", little(8), big(8, 1)), true),
        (format!("{} a; {} b;", little(4), big(8, 8)), true),
        (format!("{} a[2]; {} b;", little(4), big(8, 1)), true),
    ] {
        let metadata = format!(
            "/* CTF 1.8 */ trace {{ major = 1; minor = 8; byte_order = le; }};
            event {{ name = e; fields := struct {{ {fields} }}; }};"
        );
        let folder = folder(metadata.as_bytes(), &[("s", &[0x12; 16])]);
        let (text, remarks) = report(folder.path());
        assert_eq!(
            (text.is_empty(), remarks.is_empty()),
            (!is_right, is_right),
            "{fields}: {text}{remarks:?}"
        );
        let theirs = support::tools::babeltrace(&support::tools::babeltrace20(), folder.path());
        assert_eq!(
            (theirs.success, text.as_bytes()),
            (is_right, &theirs.out[..]),
            "{fields}: {}",
            theirs.err
        );
    }
}

/// A length can be a number of the environment, wherever the environment's block is. babeltrace2
/// requires the block to be first.
#[test]
fn a_length_can_be_a_number_of_the_environment() {
    let env = "env { thelen = 3; host = \"x\"; less = -1; };";
    let event = |length: &str| {
        format!(
            "event {{ name = e; fields := struct {{ string a[{length}]; integer {{ size = 8; }} n; }}; }};"
        )
    };
    let head = "/* CTF 1.8 */ trace { major = 1; minor = 8; byte_order = le; };";
    let of = |parts: [&str; 3]| folder(parts.concat().as_bytes(), &[("s", b"one\0\0three\0\x07")]);
    let shown = "e: { a = [ [0] = \"one\", [1] = \"\", [2] = \"three\" ], n = 7 }\n";
    let traces = [of([head, env, &event("env.thelen")]), of([head, &event("env.thelen"), env])];
    for trace in &traces {
        let (text, remarks) = report(trace.path());
        assert_eq!((text.as_str(), remarks.as_slice()), (shown, &[][..]));
    }
    let theirs = support::tools::babeltrace(&support::tools::babeltrace20(), traces[0].path());
    assert_eq!(String::from_utf8_lossy(&theirs.out), shown, "{}", theirs.err);
    for wrong in ["env.none", "env.host", "env.less"] {
        let (text, remarks) = report(of([head, env, &event(wrong)]).path());
        assert!(text.is_empty() && remarks[0].contains(wrong), "{wrong}: {text}{remarks:?}");
    }
}

/// Messages must show values as people write them.
#[test]
fn no_message_has_a_value_of_rust() {
    let mut packets = metadata_packets(TSDL.replace("ORDER", "le").as_bytes(), false);
    packets[35..37].copy_from_slice(b"ty");
    let two = |fragment: &str| format!("\x1e{fragment}").into_bytes();
    let field = r#"{"type":"fixed-length-boolean","length":8}"#;
    for (metadata, says) in [
        (packets, "version 116.121, expected 1.8 or 2.0"),
        (two(r#"{"type":"preamble","version":"3"}"#), "version \"3\", expected 2"),
        (two(r#"{"type":"preamble"}"#), "expected a `version`"),
        (two(r#"{"type":"preamble","version":2,"extensions":{"my.ns":{},"other":1}}"#), "extensions my.ns, other: none is known"),
        (
            [two(r#"{"type":"preamble","version":2}"#), two(&format!(r#"{{"type":"trace-class","packet-header-field-class":{{"type":"structure","member-classes":[{{"name":"a","field-class":{field}}}]}}}}"#))].concat(),
            "a: expected a `byte-order`",
        ),
    ] {
        let folder = folder(&metadata, &[("s", &stream(false))]);
        let (_, remarks) = report(folder.path());
        assert!(remarks.len() == 1 && remarks[0].ends_with(says), "{says}: {remarks:?}");
    }
}

#[test]
fn faults_are_reported_with_their_trace() {
    let integer = "integer { size = 8; align = 8; }";
    let metadata = format!(
        "/* CTF 1.8 */ trace {{ major = 1; minor = 8; byte_order = le; }};
        stream {{ event.header := struct {{ {integer} id; }}; }};
        event {{ name = e; id = 0; fields := struct {{ {integer} x; }}; }};"
    );
    // No event has the id 9.
    let folders = [&[0, 1, 0, 2][..], &[0, 1, 9, 2]]
        .map(|bytes| folder(metadata.as_bytes(), &[("stream", bytes)]));
    let open = |folder: &tempfile::TempDir| {
        read::open(folder.path(), &Arc::default()).expect("opened").traces
    };
    let traces: Vec<read::Trace> = folders.iter().flat_map(open).collect();
    let (selection, zone) = (Selection::default(), Zone::utc());
    for writer in ["json", "babeltrace", "raw"] {
        let (mut out, mut reported) = (Vec::new(), Vec::new());
        let mut notes = |note: Note| {
            if let Note::Read(trace, totals) = note {
                reported.push((trace, totals.faults));
            }
        };
        let style = if writer == "raw" { Style::Raw } else { Style::Babeltrace };
        let written = match writer {
            "json" => json::write(&traces, &selection, &mut out, &read::unwatched, &mut notes),
            _ => text::write(
                &traces,
                style,
                &selection,
                &zone,
                &mut out,
                &read::unwatched,
                &mut notes,
            ),
        };
        assert_eq!((written.expect("written").faults, reported), (1, vec![(1, 1)]), "{writer}");
    }
}

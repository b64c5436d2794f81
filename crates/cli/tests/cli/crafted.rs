//! Inputs whose sizes, counts, repetitions and nesting were made to cost much: each verb ends in 10
//! seconds, with 1 GiB of address space, and by no signal. A twentieth of the sizes, or all where
//! `LASTWORDS_ALL_BITS` is set.

use crate::support::Place;
use lastwords_testkit::trace_dat::version_7;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The longest that a verb may take. Its CPU time is limited to 10 s, because other tests run
/// beside it; this is for a verb that waits.
const LONGEST: Duration = Duration::from_secs(60);

fn scale(count: usize) -> usize {
    if std::env::var_os("LASTWORDS_ALL_BITS").is_some() { count } else { count / 20 }
}

/// `count` of a text, each with its number in place of `#`.
fn all(count: usize, text: &str) -> String {
    (0..count).map(|n| text.replace('#', &n.to_string())).collect()
}

/// The same for a twentieth of the count.
fn many(count: usize, text: &str) -> String {
    all(scale(count), text)
}

/// Runs the verbs on an input in a child with limits; what of them went wrong.
pub(crate) fn run(place: &Place, what: &str, input: &Path) -> Vec<String> {
    run_within(place, what, input, 1 << 20)
}

/// Like [`run`], with so many KiB of address space.
pub(crate) fn run_within(place: &Place, what: &str, input: &Path, space: u64) -> Vec<String> {
    let out = place.at("out");
    let verbs: [&[&Path]; 4] = [
        &[Path::new("report"), input],
        &[Path::new("inspect"), input],
        &[Path::new("recover"), input, Path::new("-o"), &out],
        &[Path::new("view"), input, Path::new("-o"), &out],
    ];
    let limited = format!("ulimit -v {space}; ulimit -t 10; exec \"$0\" \"$@\"");
    let mut wrong = Vec::new();
    for words in verbs {
        let began = Instant::now();
        let mut child = Command::new("sh")
            .args(["-c", &limited, env!("CARGO_BIN_EXE_lastwords")])
            .args(words)
            .env("LASTWORDS_DIR", place.sessions())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program starts");
        let status = loop {
            match child.try_wait().expect("a child") {
                Some(status) => break Some(status),
                None if began.elapsed() > LONGEST => {
                    child.kill().expect("killed");
                    child.wait().expect("a child");
                    break None;
                }
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        // 101 is a panic.
        if status.is_none_or(|status| status.signal().is_some() || status.code() == Some(101)) {
            let (verb, took) = (words[0].display(), began.elapsed());
            wrong.push(format!("{what}, {verb}: {status:?} after {took:?}"));
        }
        let _ = std::fs::remove_dir_all(&out).or_else(|_| std::fs::remove_file(&out));
    }
    wrong
}

const BYTE: &str = "integer { size = 8; }";

/// A case: what is crafted, and the metadata, in which `u8` is [`BYTE`].
type Case = (&'static str, String);

/// An event class with these fields.
fn event(fields: &str) -> String {
    ["event { name = e; fields := struct { ", fields, " }; };\n"].concat()
}

/// A chain of so many types, each of the one before, which is in place of `@`.
fn chain(count: usize, text: &str) -> String {
    let of = |n: usize| if n == 0 { "u8".to_owned() } else { format!("t{}", n - 1) };
    (0..count).map(|n| text.replace('@', &of(n)).replace('#', &n.to_string())).collect()
}

/// Metadata of CTF 1.8.
fn tsdl() -> Vec<Case> {
    let deep = ["struct {".repeat(100_000), "u8 x;".into(), "} a;".repeat(100_000)].concat();
    let doubled = chain(40, "typedef struct { @ a; @ b; } t#;");
    let last = event(&format!("t{} x;", scale(50_000) - 1));
    let (options, labels) = (many(5_000, "u8 l#;"), many(5_000, "l#,"));
    let uses = many(5_000, "variant v <t> v#;");
    let tagged = ["enum : integer { size = 16; } { ", &labels, " } t; ", &uses].concat();
    let context = ["stream { packet.context := struct { ", &many(20_000, "u8 f#;"), " }; };"];
    let elsewhere = event(&many(20_000, "u8 a#[stream.packet.context.f#];"));
    let one = event("u8 f0;");
    let pieces = "\"x\" ".repeat(scale(300_000));
    let sum = ["integer { size = ", &"+".repeat(scale(1_000_000)), "8; } x;"].concat();
    let named = ["struct { ", &many(20_000, "u8 f#;"), " } ", &"n".repeat(scale(500_000)), ";"];
    vec![
        ("an array of 2^64 elements", event("u8 a[18446744073709551615];")),
        ("an array of arrays", event("u8 a[4294967295][4294967295];")),
        ("many elements of nothing", event("u8 n; struct { } a[4294967295];")),
        ("many arrays of nothing", event("u8 n; struct { struct { } b[65535]; } a[65535];")),
        ("structures in each other", event(&deep)),
        ("types that double", [doubled, event("t39 x;")].concat()),
        ("a chain of types", [chain(scale(50_000), "typealias @ := t#;"), last].concat()),
        ("many fields", event(&many(200_000, "u8 f#;"))),
        ("lengths far away", event(&["u8 n;", &many(50_000, "u8 f#; u8 a#[n];")].concat())),
        ("lengths close by", event(&many(30_000, "u8 f#; u8 a#[f#];"))),
        ("lengths in another scope", [context.concat(), elsewhere].concat()),
        ("a variant again and again", ["variant v { ", &options, " };", &event(&tagged)].concat()),
        ("a large environment", ["env { ", &many(200_000, "k# = #;"), " };", &one].concat()),
        ("a sum without end", event(&sum)),
        ("text in pieces", ["env { a = ", &pieces, "; };", &one].concat()),
        ("an alignment of 4 KiB", event("integer { size = 8; align = 32768; } x[65535];")),
        ("a long name around many", event(&named.concat())),
    ]
}

/// Metadata of CTF 1.8 whose events are small, and their text is not. None is made smaller: a part
/// of the stream's bytes is enough.
fn tsdl_of_much_text() -> Vec<Case> {
    let labels = |each: &str| event(&["enum : u8 { ", &all(100_000, each), " } a;"].concat());
    // A text around a long name.
    let around = |begin: &str, end: &str| [begin, &"n".repeat(1_000_000), end].concat();
    let one = event("u8 x;");
    let contexts = ["stream { event.context := struct { ", &all(3_000, "u8 c#;"), " }; "];
    let classes =
        ["event.header := struct { u8 id; }; };", &all(3_000, "event { name = e; id = #; };")];
    let host = around("env { hostname = \"", "\"; };");
    let packet = around("stream { packet.context := struct { u8 ", "; }; };");
    vec![
        ("many labels", labels("l#,")),
        ("many labels of one value", labels("l# = 1,")),
        ("arrays of no length", event(&[&all(20_000, "u8 a#[0];"), "u8 x;"].concat())),
        ("elements of no size in each event", event("u8 n; struct { struct { } s; } a[65000];")),
        ("a long name", event(&around("u8 ", ";"))),
        ("long names of elements", event(&around("u8 n; struct { u8 ", "; } a[n];"))),
        ("a long label", event(&around("enum : u8 { a, \"", "\" } x;"))),
        ("a long host name", [&host[..], &one].concat()),
        ("a long name in the packet's context", [&packet[..], &one].concat()),
        ("contexts of many events", [contexts.concat(), classes.concat()].concat()),
    ]
}

/// A class of numbers of CTF 2.
const U8: &str =
    r#"{"type":"fixed-length-unsigned-integer","length":8,"byte-order":"little-endian"}"#;

/// A list of `count` texts of JSON, each with its number in place of `#`.
fn list(count: usize, text: &str) -> String {
    let list = many(count, &[text, ","].concat());
    list.trim_end_matches(',').to_owned()
}

/// A member of a structure in CTF 2.
fn member(name: &str, class: &str) -> String {
    format!(r#"{{"name":"{name}","field-class":{class}}}"#)
}

fn structure(members: &[&str]) -> String {
    format!(r#"{{"type":"structure","member-classes":[{}]}}"#, members.join(","))
}

/// A data stream class, these fragments, and an event record class whose payload has these members.
fn record(before: &[String], members: &[&str]) -> Vec<String> {
    let class = structure(members);
    let record = format!(r#"{{"type":"event-record-class","payload-field-class":{class}}}"#);
    [&[r#"{"type":"data-stream-class"}"#.to_owned()], before, &[record]].concat()
}

/// So many aliases, each of the class that `class` makes of the one before, and a record of the last.
fn aliases(count: usize, class: impl Fn(&str) -> String) -> Vec<String> {
    let alias = |n: usize| {
        let of = if n == 0 { U8.to_owned() } else { class(&format!("\"t{}\"", n - 1)) };
        format!(r#"{{"type":"field-class-alias","name":"t{n}","field-class":{of}}}"#)
    };
    let aliases: Vec<String> = (0..count).map(alias).collect();
    record(&aliases, &[&member("x", &format!("\"t{}\"", count - 1))])
}

/// Metadata of CTF 2 behind its preamble.
fn ctf2() -> Vec<(&'static str, Vec<String>)> {
    let selector = r#""selector-field-location":{"path":["n"]}"#;
    let array = |length: &str, of: &str| {
        format!(r#"{{"type":"static-length-array","length":{length},"element-field-class":{of}}}"#)
    };
    let pair = |of: &str| structure(&[&member("a", of), &member("b", of)]);
    let n = &*member("n", U8);
    let option =
        |n: usize| format!(r#"{{"selector-field-ranges":[[{n},{n}]],"field-class":{U8}}}"#);
    // The value of all bytes of the stream is 1.
    let options: Vec<String> = (2..scale(200_000)).chain([1]).map(option).collect();
    let options = options.join(",");
    let variant = format!(r#"{{"type":"variant",{selector},"options":[{options}]}}"#);
    let flags: Vec<String> =
        (0..scale(200_000)).map(|n| format!(r#""f{n}":[[{0},{0}]]"#, n % 8)).collect();
    let bit_map = format!(
        r#"{{"type":"fixed-length-bit-map","length":8,"byte-order":"little-endian","flags":{{{}}}}}"#,
        flags.join(",")
    );
    let optional = format!(
        r#"{{"type":"optional",{selector},"selector-field-ranges":[[0,1]],"field-class":{U8}}}"#
    );
    let optional = list(20_000, &member("o#", &optional));
    let path = "\"n\",".repeat(scale(300_000));
    let long = format!(
        r#"{{"type":"dynamic-length-array","element-field-class":{U8},"length-field-location":{{"path":[{path}"n"]}}}}"#
    );
    let deep = ["{\"type\":", &"[".repeat(1_000_000), &"]".repeat(1_000_000), "}"].concat();
    let large = member("a", &array("18446744073709551615", U8));
    let empty = member("a", &array("4294967295", r#"{"type":"structure"}"#));
    vec![
        ("aliases that double", aliases(50, pair)),
        ("a chain of aliases", aliases(scale(60_000), str::to_owned)),
        ("an array of 2^64 elements", record(&[], &[&large])),
        ("many elements of nothing", record(&[], &[n, &empty])),
        ("lists in each other", vec![deep]),
        ("a variant of many options", record(&[], &[n, &member("v", &variant)])),
        ("a bit map of many names", record(&[], &[&member("b", &bit_map)])),
        ("optional fields", record(&[], &[n, &optional])),
        ("a path without end", record(&[], &[n, &member("a", &long)])),
    ]
}

#[test]
fn crafted_metadata() {
    let place = Place::new();
    let stream = vec![1; scale(1 << 20)];
    let head = "/* CTF 1.8 */ trace { major = 1; minor = 8; byte_order = le; };\n";
    let one = [tsdl(), tsdl_of_much_text()].concat().into_iter();
    let one =
        one.map(|(what, text)| (what, [head, &text.replace("u8 ", &format!("{BYTE} "))].concat()));
    let two = ctf2().into_iter().map(|(what, fragments)| {
        let preamble = r#"{"type":"preamble","version":2}"#.to_owned();
        let fragments = [&[preamble], &fragments[..]].concat();
        (what, fragments.iter().map(|fragment| format!("\u{1e}{fragment}\n")).collect::<String>())
    });
    let mut wrong = Vec::new();
    for (number, (what, metadata)) in one.chain(two).enumerate() {
        let folder = place.at(&format!("trace{number}"));
        std::fs::create_dir(&folder).expect("made");
        std::fs::write(folder.join("metadata"), metadata).expect("written");
        std::fs::write(folder.join("stream"), &stream).expect("written");
        wrong.extend(run(&place, what, &folder));
        std::fs::remove_dir_all(folder).expect("removed");
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Folders with many files: traces of one UUID, streams, packets; and a file of holes.
#[test]
fn crafted_folders() {
    const ONE_BYTE: &str = "fields := struct { integer { size = 8; } x; }; };";
    let head = "/* CTF 1.8 */ trace { major = 1; minor = 8; byte_order = le;";
    let place = Place::new();
    let folder = |name: &str, metadata: &str| {
        std::fs::create_dir_all(place.at(name)).expect("made");
        std::fs::write(place.at(name).join("metadata"), metadata).expect("written");
        place.at(name)
    };
    let plain = format!("{head} }}; event {{ name = e; {ONE_BYTE}");
    for number in 0..1_500 {
        let uuid = "uuid = \"01234567-89ab-cdef-0123-456789abcdef\"";
        // Of each metadata there are three.
        let metadata = format!("{head} {uuid}; }}; event {{ name = e{}; {ONE_BYTE}", number / 3);
        std::fs::write(folder(&format!("uuid/{number}"), &metadata).join("s"), [1; 3])
            .expect("written");
    }
    let streams = folder("streams", &plain);
    (0..scale(40_000))
        .for_each(|n| std::fs::write(streams.join(format!("s{n}")), [1; 3]).expect("written"));
    let clock = "integer { size = 32; align = 8; map = clock.c.value; }";
    let packets = folder(
        "packets",
        &format!(
            "{head} packet.header := struct {{ {BYTE} stream_instance_id; }}; }}; clock {{ name = c; freq = 1000; }};
            stream {{ packet.context := struct {{ {clock} timestamp_begin; {BYTE} packet_size; }}; }};
            event {{ name = e; {ONE_BYTE}"
        ),
    );
    for file in 0..2u32 {
        let packet = |n: u32| [&[7][..], &(2 * n + file).to_le_bytes(), &[56, 1]].concat();
        let bytes: Vec<u8> = (0..scale(200_000) as u32).flat_map(packet).collect();
        std::fs::write(packets.join(format!("s{file}")), bytes).expect("written");
    }
    let holes = std::fs::File::create(folder("holes", &plain).join("s")).expect("made");
    holes.set_len(1 << 40).expect("holes");
    let mut wrong = Vec::new();
    for name in ["uuid", "streams", "packets", "holes"] {
        wrong.extend(run(&place, name, &place.at(name)));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// A trace.dat file of version 6 with this print format, and pages of its events.
fn version_6(print: &str) -> Vec<u8> {
    let fields = [
        "unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;",
        "int a;\toffset:8;\tsize:4;\tsigned:1;",
    ];
    let fields: String = fields.iter().map(|field| format!("\tfield:{field}\n")).collect();
    let format = format!("name: e\nID: 9\nformat:\n{fields}\nprint fmt: {print}\n");
    let mut file = b"\x17\x08\x44tracing6\0\0\x08\0\x10\0\0header_page\0".to_vec();
    file.extend([&[0; 8][..], b"header_event\0", &[0; 8], &1u32.to_le_bytes()].concat());
    file.extend([&(format.len() as u64).to_le_bytes()[..], format.as_bytes()].concat());
    // No events of systems, symbols, printk formats or names; one CPU.
    file.extend([&[0; 4 + 4 + 4 + 8][..], &1u32.to_le_bytes(), b"flyrecord\0"].concat());
    let event = [
        &(1u32 << 5 | 3).to_le_bytes()[..],
        &9u16.to_le_bytes(),
        &[0, 0, 7, 0, 0, 0],
        &5u32.to_le_bytes(),
    ]
    .concat();
    let mut page = [1u64.to_le_bytes(), (254 * event.len() as u64).to_le_bytes()].concat();
    page.extend(event.repeat(254));
    page.resize(4096, 0);
    let pages = page.repeat(scale(400).max(1));
    let offset = (file.len() as u64 + 16).next_multiple_of(4096);
    file.extend([offset.to_le_bytes(), (pages.len() as u64).to_le_bytes()].concat());
    file.resize(offset as usize, 0);
    file.extend(pages);
    file
}

#[test]
fn crafted_trace_dat() {
    let at = version_7("zstd", 4096, &[vec![(0, 0)]], true, &[]).len() as u64;
    let pieces = |count: u32| {
        [&count.to_le_bytes()[..], &[0, 0, 0, 0, 0, 0, 0, 1].repeat(count as usize)].concat()
    };
    let of_pieces = |algorithm, is_packed| {
        let body = pieces(10_000);
        version_7(algorithm, 4096, &[vec![(at, body.len() as u64)]], is_packed, &body)
    };
    let mut files = vec![
        ("pieces of nothing", of_pieces("zstd", true)),
        ("pieces of nothing, zlib", of_pieces("zlib", true)),
        ("pieces of a file that is not compressed", of_pieces("none", true)),
        (
            "CPUs that share one place",
            version_7("none", 4096, &vec![vec![(64, 1 << 20); 2000]; 20], false, &[7; 1 << 16]),
        ),
        (
            "CPUs behind the file",
            version_7("none", 4096, &[vec![(u64::MAX - 7, u64::MAX); 2000]], false, &[]),
        ),
    ];
    for page in [0, 1, 63, 1 << 16, 1 << 20, u32::MAX] {
        files.push((
            "a size of sub-buffers",
            version_7("none", page, &[vec![(64, 1); 300]], false, &[7; 1 << 16]),
        ));
    }
    let nested = |open: &str, close: &str| {
        format!("\"%d\", {}1{}", open.repeat(100_000), close.repeat(100_000))
    };
    let table = |row: &dyn Fn(usize) -> String| {
        format!("\"%s\", __print_symbolic(REC->a{})", (0..4000).map(row).collect::<String>())
    };
    for (what, print) in [
        ("parentheses", nested("(", ")")),
        ("sums", nested("1+", "+REC->a")),
        ("stars", nested("*", "")),
        ("a table", table(&|n| format!(", {{ {n}, \"n{n}\" }}"))),
        ("unknown names", table(&|n| format!(", {{ X{n} + {}1, \"n{n}\" }}", "Y + ".repeat(200)))),
        (
            "tables in a table",
            format!("\"%s\", __print_symbolic(REC->a, {}", "{ __print_symbolic(1, ".repeat(20_000)),
        ),
        ("a precision", "\"%.2000000000s\", \"x\"".to_owned()),
        ("wide fields", format!("\"{}\"{}", "%4000d".repeat(1000), ", REC->a".repeat(1000))),
    ] {
        files.push((what, version_6(&print)));
    }
    let place = Place::new();
    let mut wrong = Vec::new();
    for (what, file) in files {
        let path = place.at("crafted.dat");
        std::fs::write(&path, file).expect("written");
        wrong.extend(run(&place, what, &path));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

//! Converts random traces of CTF 2 to CTF 1.8. Either both versions of babeltrace2 print what the
//! generator wrote, or the conversion is refused before anything is written.

mod encoder;

use crate::support::ctf::{folder, sequence};
use crate::support::tools::{babeltrace, babeltrace20, babeltrace21};
use encoder::Encoder;
use lastwords_ctf::{Version, read};
use lastwords_testkit::random::{Random, setting};
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::sync::Arc;

const SCOPES: [&str; 6] = [
    "packet-header",
    "packet-context",
    "event-record-header",
    "event-record-common-context",
    "event-record-specific-context",
    "event-record-payload",
];
/// Names as users and tracers give them. Some of them have a meaning in CTF 1.8.
const NAMES: [&str; 16] = [
    "a",
    "b",
    "id",
    "timestamp",
    "stream_id",
    "magic",
    "_x",
    "v",
    "int",
    "uuid",
    "packet_size",
    "n",
    "timestamp_begin",
    "content_size",
    "event",
    "z9",
];

/// Names of fields with roles: names from CTF 1.8, and other names.
const MAGIC: [&str; 2] = ["magic", "m"];
const STREAM: [&str; 2] = ["stream_id", "cls"];
const ID: [&str; 2] = ["id", "code"];

type Place = (usize, Vec<String>);
/// Labels, each with its minimum and maximum value.
type Labels = Vec<(String, i64, i64)>;

#[derive(Clone)]
enum Class {
    Int {
        length: u64,
        align: u64,
        big: bool,
        signed: bool,
        small: bool,
        labels: Labels,
        role: &'static str,
    },
    Float {
        length: u64,
    },
    Text,
    Bytes {
        kind: &'static str,
        length: Result<u64, Place>,
    },
    Bool,
    Array {
        length: Result<u64, Place>,
        element: Box<Class>,
    },
    Struct {
        members: Vec<(String, Class)>,
        align: u64,
    },
    Variant {
        selector: Place,
        options: Vec<(String, i64, i64, Class)>,
    },
    Optional {
        selector: Place,
        class: Box<Class>,
    },
}

fn integer(length: u64, role: &'static str) -> Class {
    Class::Int {
        length,
        align: 8,
        big: false,
        signed: false,
        small: false,
        labels: Vec::new(),
        role,
    }
}

fn location((scope, names): &Place) -> Value {
    json!({ "origin": SCOPES[*scope], "path": names })
}

fn lengthy(what: &str, length: &Result<u64, Place>) -> Value {
    match length {
        Ok(length) => json!({ "type": format!("static-length-{what}"), "length": length }),
        Err(place) => {
            json!({ "type": format!("dynamic-length-{what}"), "length-field-location": location(place) })
        }
    }
}

impl Class {
    fn json(&self) -> Value {
        let order = |big: bool| if big { "big-endian" } else { "little-endian" };
        match self {
            Self::Int { length, align, big, signed, labels, role, .. } => {
                let kind = if *signed {
                    "fixed-length-signed-integer"
                } else {
                    "fixed-length-unsigned-integer"
                };
                let mut class = json!({ "type": kind, "length": length, "alignment": align, "byte-order": order(*big) });
                if !role.is_empty() {
                    class["roles"] = json!([role]);
                }
                if !labels.is_empty() {
                    let labels: Map<_, _> = labels
                        .iter()
                        .map(|(l, low, high)| (l.clone(), json!([[low, high]])))
                        .collect();
                    class["mappings"] = labels.into();
                }
                class
            }
            Self::Float { length } => {
                json!({ "type": "fixed-length-floating-point-number", "length": length,
                "alignment": 8, "byte-order": order(false) })
            }
            Self::Text => json!({ "type": "null-terminated-string" }),
            Self::Bytes { kind, length } => {
                let mut class = lengthy(kind, length);
                if *kind == "blob" && *length == Ok(16) {
                    class["roles"] = json!(["metadata-stream-uuid"]);
                }
                class
            }
            Self::Bool => {
                json!({ "type": "fixed-length-boolean", "length": 8, "alignment": 8, "byte-order": order(true) })
            }
            Self::Array { length, element } => {
                let mut class = lengthy("array", length);
                class["element-field-class"] = element.json();
                class
            }
            Self::Struct { members, align } => {
                let members: Vec<Value> = members
                    .iter()
                    .map(|(name, class)| json!({ "name": name, "field-class": class.json() }))
                    .collect();
                json!({ "type": "structure", "member-classes": members, "minimum-alignment": align })
            }
            Self::Variant { selector, options } => {
                let options: Vec<Value> = options.iter().map(|(name, low, high, class)| {
                    json!({ "name": name, "selector-field-ranges": [[low, high]], "field-class": class.json() })
                }).collect();
                json!({ "type": "variant", "selector-field-location": location(selector), "options": options })
            }
            Self::Optional { selector, class } => {
                json!({ "type": "optional", "selector-field-location": location(selector),
                "selector-field-ranges": [[1, 9]], "field-class": class.json() })
            }
        }
    }

    fn align(&self) -> u64 {
        match self {
            Self::Int { align, .. } => *align,
            Self::Array { element, .. } => element.align(),
            Self::Struct { members, align } => {
                members.iter().map(|(_, class)| class.align()).max().unwrap_or(1).max(*align)
            }
            Self::Variant { .. } | Self::Optional { .. } => 1,
            _ => 8,
        }
    }
}

/// Returns an unsigned integer of at most a byte.
fn small(length: u64, align: u64, small: bool, labels: Vec<(String, i64, i64)>) -> Class {
    Class::Int { length, align, big: false, signed: false, small, labels, role: "" }
}

/// Makes the classes of one scope.
struct Maker<'r> {
    rng: &'r mut Random,
    scope: usize,
    names: Vec<String>,
    /// Numbers that lengths and selectors can come from, with the labels of the latter.
    numbers: Vec<(Place, Labels)>,
}

impl Maker<'_> {
    fn structure(&mut self, depth: u64, extra: Vec<(String, Class)>) -> Class {
        let mut members = extra;
        for _ in 0..self.rng.below(5) + u64::from(depth == 0 && self.scope == 5) {
            let mut name = (*self.rng.pick(&NAMES)).to_owned();
            while members
                .iter()
                .any(|(other, _)| other.trim_start_matches('_') == name.trim_start_matches('_'))
            {
                name.push('q');
            }
            self.names.push(name.clone());
            let class = self.class(depth + 1);
            let place = (self.scope, self.names.clone());
            if let Class::Int { small: true, labels, .. } = &class {
                self.numbers.push((place, labels.clone()));
            }
            self.names.pop();
            members.push((name, class));
        }
        Class::Struct { members, align: *self.rng.pick(&[1, 1, 1, 8, 16, 32]) }
    }

    /// Returns the class that `make` makes. Fields after it cannot refer to numbers in it.
    fn inside<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> T {
        let known = self.numbers.len();
        let made = make(self);
        self.numbers.truncate(known);
        made
    }

    fn length(&mut self) -> Result<u64, Place> {
        let plain: Vec<_> = self.numbers.iter().map(|(place, _)| place.clone()).collect();
        if plain.is_empty() || self.rng.one_in(3) {
            Ok(self.rng.below(4))
        } else {
            Err(self.rng.pick(&plain).clone())
        }
    }

    fn class(&mut self, depth: u64) -> Class {
        let kinds = if depth > 3 { 8 } else { 14 };
        match self.rng.below(kinds) {
            0..=2 => {
                let length = *self.rng.pick(&[8, 16, 32, 64]);
                let (big, signed) = (self.rng.one_in(2), self.rng.one_in(3));
                Class::Int {
                    length,
                    align: 8,
                    big,
                    signed,
                    small: false,
                    labels: Vec::new(),
                    role: "",
                }
            }
            3 => small(8, 8, true, Vec::new()),
            4 => {
                let names = ["low", "mid", "high", "_x", "two words", "int"];
                let labels = (0..3).map(|n| {
                    (
                        format!(
                            "{}{}",
                            self.rng.pick(&names),
                            if self.rng.one_in(9) { "" } else { ["0", "1", "2"][n as usize] }
                        ),
                        n * 2,
                        n * 2 + 1,
                    )
                });
                let labels: HashMap<_, _> =
                    labels.map(|(name, low, high)| (name, (low, high))).collect();
                let mut labels: Vec<_> =
                    labels.into_iter().map(|(name, (low, high))| (name, low, high)).collect();
                labels.sort();
                small(8, 8, true, labels)
            }
            5 => Class::Float { length: *self.rng.pick(&[32, 64]) },
            6 => Class::Text,
            7 if self.rng.one_in(4) => Class::Bool,
            7 => small(1 + self.rng.below(7), 1, false, Vec::new()),
            8 => Class::Bytes {
                kind: if self.rng.one_in(3) { "blob" } else { "string" },
                length: self.length(),
            },
            9 | 10 => Class::Array {
                length: self.length(),
                element: Box::new(self.inside(|this| this.class(depth + 1))),
            },
            11 => self.structure(depth, Vec::new()),
            12 if self.rng.one_in(8) && !self.numbers.is_empty() => {
                let (selector, _) =
                    self.numbers[self.rng.below(self.numbers.len() as u64) as usize].clone();
                Class::Optional {
                    selector,
                    class: Box::new(self.inside(|this| this.class(depth + 1))),
                }
            }
            _ => {
                let known: Vec<_> =
                    self.numbers.iter().filter(|(_, labels)| labels.len() == 3).cloned().collect();
                if known.is_empty() {
                    return self.structure(depth, Vec::new());
                }
                let (selector, labels) = self.rng.pick(&known).clone();
                let mut option = |(name, low, high): (String, i64, i64)| {
                    (name, low, high, self.inside(|this| this.class(depth + 1)))
                };
                let options = labels.into_iter().map(&mut option).collect();
                Class::Variant { selector, options }
            }
        }
    }
}

/// The classes of a trace: of its scopes, and of the specific contexts and payloads of its events.
struct Classes {
    metadata: Vec<u8>,
    scopes: [Option<Class>; 4],
    events: Vec<[Option<Class>; 2]>,
    /// Ids of the stream class, and of the events.
    id: u64,
    ids: [u64; 2],
}

/// Returns the UUID of every trace.
fn uuid() -> Vec<u8> {
    (b'a'..).take(16).collect()
}

fn classes(rng: &mut Random) -> Classes {
    let mut maker = Maker { rng, scope: 0, names: Vec::new(), numbers: Vec::new() };
    let id = maker.rng.below(3);
    let ids = [maker.rng.below(9), 20 + maker.rng.below(9)];
    let classes = 1 + maker.rng.below(2) as usize;
    let named = |name: &str, class: Class| (name.to_owned(), class);
    let header = (!maker.rng.one_in(3)).then(|| {
        let mut first = Vec::new();
        if maker.rng.one_in(2) {
            first.push(named(
                MAGIC[maker.rng.below(2) as usize],
                integer(32, "packet-magic-number"),
            ));
            if maker.rng.one_in(2) {
                first.push(named("u", Class::Bytes { kind: "blob", length: Ok(16) }));
            }
        }
        if maker.rng.one_in(2) {
            first.push(named(
                STREAM[maker.rng.below(2) as usize],
                integer(8, "data-stream-class-id"),
            ));
        }
        maker.structure(3, first)
    });
    maker.scope = 1;
    let context = maker.rng.one_in(2).then(|| maker.structure(3, Vec::new()));
    maker.scope = 2;
    let event_header = (classes > 1 || maker.rng.one_in(2)).then(|| {
        let first = if classes > 1 || maker.rng.one_in(2) {
            vec![named(
                ID[maker.rng.below(2) as usize],
                integer(*maker.rng.pick(&[8, 16]), "event-record-class-id"),
            )]
        } else {
            Vec::new()
        };
        maker.structure(3, first)
    });
    maker.scope = 3;
    let common = maker.rng.one_in(3).then(|| maker.structure(2, Vec::new()));
    let known = maker.numbers.len();
    let events: Vec<[Option<Class>; 2]> = (0..classes)
        .map(|_| {
            maker.numbers.truncate(known);
            maker.scope = 4;
            let specific = maker.rng.one_in(3).then(|| maker.structure(2, Vec::new()));
            maker.scope = 5;
            let mut payload = maker.structure(0, vec![named("first", integer(8, ""))]);
            if let Class::Struct { members, .. } = &mut payload {
                // Events end on byte boundaries, so that the file ends with the last event.
                members.push(named("last", integer(8, "")));
            }
            [specific, Some(payload)]
        })
        .collect();
    let scopes = [header, context, event_header, common];
    let metadata = metadata(&scopes, &events, id, ids);
    Classes { metadata, scopes, events, id, ids }
}

/// Returns the metadata of these classes.
fn metadata(
    [header, context, event_header, common]: &[Option<Class>; 4],
    events: &[[Option<Class>; 2]],
    id: u64,
    ids: [u64; 2],
) -> Vec<u8> {
    let with = |mut fragment: Value, scopes: &[(&str, &Option<Class>)]| {
        for (key, class) in scopes {
            if let Some(class) = class {
                fragment[*key] = class.json();
            }
        }
        fragment
    };
    let mut fragments = vec![
        json!({ "type": "preamble", "version": 2, "uuid": uuid() }),
        with(json!({ "type": "trace-class" }), &[("packet-header-field-class", header)]),
        with(
            json!({ "type": "data-stream-class", "id": id }),
            &[
                ("packet-context-field-class", context),
                ("event-record-header-field-class", event_header),
                ("event-record-common-context-field-class", common),
            ],
        ),
    ];
    for (number, [specific, payload]) in events.iter().enumerate() {
        let event = json!({ "type": "event-record-class", "data-stream-class-id": id, "id": ids[number], "name": format!("e{number}") });
        fragments.push(with(
            event,
            &[("specific-context-field-class", specific), ("payload-field-class", payload)],
        ));
    }
    sequence(&fragments)
}

/// Returns metadata, a stream, and the text that must be shown for each event after the names of
/// its header.
fn generate(seed: u64) -> (Vec<u8>, Vec<u8>, Vec<String>) {
    let mut rng = Random(seed);
    let Classes { metadata, scopes: [header, context, event_header, common], events, id, ids } =
        classes(&mut rng);
    let mut encoder = Encoder::default();
    encoder.roles.insert("packet-magic-number", 0xc1fc_1fc1);
    encoder.roles.insert("data-stream-class-id", id);
    let mut put = |encoder: &mut Encoder, scope: usize, class: &Option<Class>| {
        encoder.scope = scope;
        class.as_ref().map(|class| encoder.class(&mut rng, class))
    };
    // The encoder writes a random UUID. The UUID of the metadata replaces it.
    put(&mut encoder, 0, &header);
    if let Some(Class::Struct { members, .. }) = &header
        && members.get(1).is_some_and(|(name, _)| name == "u")
    {
        encoder.bytes[4..20].copy_from_slice(&uuid());
    }
    put(&mut encoder, 1, &context);
    let mut shown = Vec::new();
    for number in 0..6 {
        let which = number % events.len();
        encoder.roles.insert("event-record-class-id", ids[which]);
        put(&mut encoder, 2, &event_header);
        let common = put(&mut encoder, 3, &common);
        let parts: Vec<String> = [
            common,
            put(&mut encoder, 4, &events[which][0]),
            put(&mut encoder, 5, &events[which][1]),
        ]
        .into_iter()
        .flatten()
        .collect();
        shown.push(format!("e{which}: {}", parts.join(", ")));
    }
    (metadata, encoder.bytes, shown)
}

fn check(seed: u64) -> Result<(), String> {
    let (metadata, stream, wanted) = generate(seed);
    let from = folder(&metadata, &[("s", &stream)]);
    let found = read::open(from.path(), &Arc::default()).map_err(|error| error.to_string())?;
    if let Some(fault) = found.faults.first() {
        return Err(format!("seed {seed}: {fault}"));
    }
    let to = tempfile::tempdir().expect("a folder");
    let out = to.path().join("out");
    let mut faults = Vec::new();
    let copied = read::copy(&found.traces, Version::V1_8, &out, &read::unwatched, &mut |fault| {
        faults.push(fault.to_string())
    });
    if let Err(error) = copied {
        assert!(!out.exists(), "seed {seed}: something was written before {error}");
        return Err(error.to_string());
    }
    assert_eq!(faults, [""; 0], "seed {seed}");
    for program in [babeltrace20(), babeltrace21()] {
        let printed = babeltrace(&program, &out);
        let text = String::from_utf8_lossy(&printed.out).into_owned();
        let what = format!("seed {seed}, {}: {}", program.display(), printed.err);
        assert!(printed.success, "{what}");
        let got: Vec<&str> = text.lines().collect();
        assert_eq!(got.len(), wanted.len(), "{what}\n{text}");
        for (got, wanted) in got.iter().zip(&wanted) {
            let (name, fields) = wanted.split_once(' ').expect("a name");
            assert!(
                got.starts_with(name) && got.ends_with(fields),
                "{what}\n   got {got}\nwanted {wanted}"
            );
        }
    }
    Ok(())
}

/// Converts 40 traces, or the number in `LASTWORDS_TRACES`. Most of the traces must be expressible.
#[test]
fn ctf_2_is_written_as_1_8_or_refused() {
    let (first, count) = (setting("LASTWORDS_SEED", 1), setting("LASTWORDS_TRACES", 40));
    let mut refused: Vec<String> = Vec::new();
    for seed in first..first + count {
        refused.extend(check(seed).err().map(|why| format!("seed {seed}: {why}")));
    }
    let why: Vec<&String> =
        refused.iter().filter(|why| !why.contains("the format cannot express")).collect();
    assert!(why.is_empty(), "{why:#?}");
    assert!(count < 10 || (refused.len() as u64) < count / 2, "{refused:#?}");
    if count > 40 {
        println!("{} of {count} were refused: {refused:#?}", refused.len());
    }
}

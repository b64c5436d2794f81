//! Event record classes and stream classes whose fields have the same names, but other types, signs
//! and selector ranges. Each class is decoded by its own fields: the generator knows each value,
//! and babeltrace2 2.1 prints the same text.

use crate::support::ctf::{folder, report, sequence};
use crate::support::tools::{babeltrace, babeltrace21};
use lastwords_testkit::random::{Random, setting};
use serde_json::{Value, json};

/// The forms of a number that lengths and selectors are taken from.
#[derive(Clone, Copy)]
struct Form {
    signed: bool,
    /// Size in bytes of a fixed-length number; 0 stands for a variable-length one.
    size: usize,
    big: bool,
}

impl Form {
    /// Makes a form; `least` is the least size.
    fn random(r: &mut Random, signed: bool, least: usize) -> Self {
        let size = *r.pick(&[0, 1, 2, 4, 8]);
        Self { signed, size: size.max(least), big: r.one_in(2) }
    }

    fn class(self) -> Value {
        let sign = if self.signed { "signed" } else { "unsigned" };
        if self.size == 0 {
            return json!({ "type": format!("variable-length-{sign}-integer") });
        }
        json!({ "type": format!("fixed-length-{sign}-integer"), "length": self.size * 8, "alignment": 8,
            "byte-order": if self.big { "big-endian" } else { "little-endian" } })
    }

    /// Writes a number: LEB128, or two's complement.
    fn write(self, value: i64, out: &mut Vec<u8>) {
        if self.size == 0 {
            return self.write_variable(value, out);
        }
        let bytes = value.to_le_bytes();
        let bytes = bytes.iter().take(self.size).copied();
        if self.big { out.extend(bytes.rev()) } else { out.extend(bytes) }
    }

    fn write_variable(self, mut rest: i64, out: &mut Vec<u8>) {
        loop {
            let low = (rest & 0x7f) as u8;
            rest >>= 7;
            let is_last =
                if self.signed { rest == if low & 0x40 == 0 { 0 } else { -1 } } else { rest == 0 };
            out.push(if is_last { low } else { low | 0x80 });
            if is_last {
                return;
            }
        }
    }
}

/// The shapes of the traces.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// A selector and a variant in each payload. babeltrace2 2.1.1 loses selectors in some of the
    /// others.
    Plain,
    /// Also an optional, an array, and numbers in the common context.
    Full,
}

/// The numbers that a variant, an optional and an array depend on: `s`, `p` and `n`.
#[derive(Clone)]
struct Numbers(Vec<(&'static str, Form)>);

impl Numbers {
    fn random(r: &mut Random, shape: Shape) -> Self {
        let (names, least): (&[_], _) =
            if shape == Shape::Plain { (&["s"], 1) } else { (&["s", "p", "n"], 0) };
        Self(
            names
                .iter()
                .map(|name| {
                    let signed = r.one_in(2) && *name != "n";
                    (*name, Form::random(r, signed, least))
                })
                .collect(),
        )
    }

    fn is_signed(&self, number: usize) -> bool {
        self.0.get(number).is_some_and(|(_, form)| form.signed)
    }

    fn members(&self) -> Vec<Value> {
        self.0
            .iter()
            .map(|(name, form)| json!({ "name": name, "field-class": form.class() }))
            .collect()
    }

    /// Writes the numbers and returns their text.
    fn write(&self, values: [i64; 3], out: &mut Vec<u8>) -> String {
        let texts = self.0.iter().zip(values).map(|((name, form), value)| {
            form.write(value, out);
            format!("{name} = {value}")
        });
        texts.collect::<Vec<_>>().join(", ")
    }
}

/// Fields of a payload. The names are the same in each payload.
struct Fields {
    numbers: Numbers,
    /// The lowest selector value of each option. An option ends before the next one; the last has
    /// one value.
    options: Vec<(i64, Form)>,
    /// The least selector value with which the optional is there.
    present: i64,
    shape: Shape,
    /// The numbers are in the common context of the stream class, not beside what depends on them.
    is_outside: bool,
}

impl Fields {
    fn random(r: &mut Random, context: &Numbers, shape: Shape) -> Self {
        let is_outside = r.one_in(4) && shape == Shape::Full;
        let numbers = if is_outside { context.clone() } else { Numbers::random(r, shape) };
        let mut low = if numbers.is_signed(0) { -20 } else { 0 };
        let options = (0..2 + r.below(3)).map(|_| {
            let begin = low;
            low += 1 + r.below(12) as i64;
            let signed = r.one_in(2);
            (begin, Form::random(r, signed, 0))
        });
        let options = options.collect();
        let present = r.below(20) as i64 - if numbers.is_signed(1) { 20 } else { 0 };
        Self { numbers, options, present, shape, is_outside }
    }

    fn class(&self) -> Value {
        let origin =
            if self.is_outside { "event-record-common-context" } else { "event-record-payload" };
        let place = |name: &str| json!({ "origin": origin, "path": [name] });
        let byte = |signed| Form { signed, size: 1, big: false }.class();
        let ends = self.options.iter().skip(1).map(|(low, _)| low - 1).chain([self
            .options
            .last()
            .unwrap()
            .0]);
        let options =
            self.options.iter().zip(ends).map(
                |((low, form), end)| json!({ "selector-field-ranges": [[low, end]], "field-class": form.class() }),
            );
        let mut members = if self.is_outside { Vec::new() } else { self.numbers.members() };
        members.push(json!({ "name": "v", "field-class": { "type": "variant", "selector-field-location": place("s"),
            "options": options.collect::<Vec<_>>() } }));
        if self.shape == Shape::Plain {
            return json!({ "type": "structure", "member-classes": members });
        }
        members.push(json!({ "name": "o", "field-class": { "type": "optional", "selector-field-location": place("p"),
            "selector-field-ranges": [[self.present, self.present + 30]], "field-class": byte(true) } }));
        members.push(json!({ "name": "a", "field-class": { "type": "dynamic-length-array",
            "length-field-location": place("n"), "element-field-class": byte(false) } }));
        json!({ "type": "structure", "member-classes": members })
    }

    /// Writes the contexts and the payload of an event and returns their text.
    fn event(&self, r: &mut Random, context: &Numbers, out: &mut Vec<u8>) -> String {
        let chosen = r.below(self.options.len() as u64) as usize;
        let (low, form) = self.options[chosen];
        let end = self.options.get(chosen + 1).map_or(low, |(next, _)| next - 1);
        let selector = low + r.below((end - low + 1) as u64) as i64;
        let there = r.below(40) as i64 - if self.numbers.is_signed(1) { 20 } else { 0 };
        let length = r.below(4) as i64;
        let numbers = [selector, there, length];
        let mut other = || r.below(100) as i64;
        let outside = if self.is_outside { numbers } else { [other(), other(), other()] };
        let mut text = match self.shape {
            Shape::Plain => "{ ".to_owned(),
            Shape::Full => format!("{{ {} }}, {{ ", context.write(outside, out)),
        };
        if !self.is_outside {
            text += &self.numbers.write(numbers, out);
            text += ", ";
        }
        let value = r.below(100) as i64 - if form.signed { 50 } else { 0 };
        form.write(value, out);
        text += &format!("v = {{ {value} }}");
        if self.shape == Shape::Plain {
            return text + " }";
        }
        if (self.present..=self.present + 30).contains(&there) {
            out.push(7);
            text += ", o = { 7 }";
        } else {
            text += ", o = <none>";
        }
        let elements = (0..length).map(|i| {
            out.push(r.below(100) as u8);
            format!("[{i}] = {}, ", out.last().unwrap())
        });
        let elements: String = elements.collect();
        format!(
            "{text}, a = [ {}] }}",
            elements.strip_suffix(", ").map(|all| format!("{all} ")).unwrap_or_default()
        )
    }
}

/// Metadata, the files of the streams, and the text of the events' fields in the order of their
/// times.
struct Made {
    metadata: Vec<u8>,
    files: Vec<Vec<u8>>,
    texts: Vec<String>,
}

fn made(seed: u64, shape: Shape) -> Made {
    let r = &mut Random(seed);
    let byte = |role: &str| {
        json!({ "type": "fixed-length-unsigned-integer", "length": 8, "alignment": 8,
        "byte-order": "little-endian", "roles": [role] })
    };
    let time = |role: &str| {
        json!({ "type": "fixed-length-unsigned-integer", "length": 64, "alignment": 8,
        "byte-order": "little-endian", "roles": [role] })
    };
    let (begin, end) =
        (time("default-clock-timestamp"), time("packet-end-default-clock-timestamp"));
    let one = |name: &str, class: Value| json!({ "name": name, "field-class": class });
    let structure = |members: Vec<Value>| json!({ "type": "structure", "member-classes": members });
    let mut fragments = vec![
        json!({ "type": "preamble", "version": 2 }),
        json!({ "type": "trace-class",
            "packet-header-field-class": structure(vec![one("stream", byte("data-stream-class-id"))]) }),
        json!({ "type": "clock-class", "id": "c", "frequency": 1_000_000_000, "origin": "unix-epoch" }),
    ];
    let mut streams = Vec::new();
    for stream in 0..1 + r.below(3) {
        let context = Numbers::random(r, shape);
        let mut class = json!({ "type": "data-stream-class", "id": stream, "default-clock-class-id": "c",
            "packet-context-field-class": structure(vec![one("begin", begin.clone()), one("end", end.clone())]),
            "event-record-header-field-class":
                structure(vec![one("id", byte("event-record-class-id")), one("t", begin.clone())]) });
        if shape == Shape::Full {
            class["event-record-common-context-field-class"] = structure(context.members());
        }
        fragments.push(class);
        let events: Vec<Fields> =
            (0..2 + r.below(4)).map(|_| Fields::random(r, &context, shape)).collect();
        for (id, event) in events.iter().enumerate() {
            fragments.push(
                json!({ "type": "event-record-class", "id": id, "data-stream-class-id": stream,
                "name": format!("e{stream}_{id}"), "payload-field-class": event.class() }),
            );
        }
        streams.push((context, events));
    }
    let mut files: Vec<Vec<u8>> = (0..streams.len())
        .map(|stream| [&[stream as u8][..], &[0; 8], &[60, 0, 0, 0, 0, 0, 0, 0]].concat())
        .collect();
    let mut texts = Vec::new();
    for time in 0..60u64 {
        let stream = r.below(streams.len() as u64) as usize;
        let (context, events) = &streams[stream];
        let id = r.below(events.len() as u64) as usize;
        files[stream].push(id as u8);
        files[stream].extend(time.to_le_bytes());
        let fields = events[id].event(r, context, &mut files[stream]);
        texts.push(format!("e{stream}_{id}: {fields}"));
    }
    Made { metadata: sequence(&fragments), files, texts }
}

/// Returns the event's name and fields of each line.
fn fields(text: &str) -> Vec<&str> {
    text.lines().map(|line| line.splitn(3, ' ').nth(2).unwrap_or(line)).collect()
}

#[test]
fn each_class_is_decoded_by_its_own_fields() {
    let first = setting("LASTWORDS_SEED", 1);
    for seed in first..first + setting("LASTWORDS_TRACES", 40) {
        let shape = if seed.is_multiple_of(2) { Shape::Full } else { Shape::Plain };
        let made = made(seed, shape);
        let names: Vec<String> = (0..made.files.len()).map(|n| format!("s{n}")).collect();
        let streams: Vec<(&str, &[u8])> = names
            .iter()
            .zip(&made.files)
            .map(|(name, bytes)| (name.as_str(), bytes.as_slice()))
            .collect();
        let folder = folder(&made.metadata, &streams);
        let (text, remarks) = report(folder.path());
        assert_eq!(remarks, Vec::<String>::new(), "seed {seed}");
        for (line, expected) in fields(&text).into_iter().zip(&made.texts) {
            assert_eq!(line, expected, "seed {seed}");
        }
        assert_eq!(text.lines().count(), made.texts.len(), "seed {seed}");
        if shape == Shape::Full {
            continue;
        }
        let other = babeltrace(&babeltrace21(), folder.path());
        assert!(other.success, "seed {seed}: {}", other.err);
        assert_eq!(text, String::from_utf8_lossy(&other.out), "seed {seed}");
    }
}

/// A class without the field is refused, though another class has a field at the same path.
#[test]
fn a_class_needs_the_field_that_it_depends_on() {
    let class = |id: u64, length: bool| {
        let u8 = || json!({ "type": "fixed-length-unsigned-integer", "length": 8, "alignment": 8, "byte-order": "little-endian" });
        let mut members =
            if length { vec![json!({ "name": "n", "field-class": u8() })] } else { Vec::new() };
        members
            .push(json!({ "name": "a", "field-class": { "type": "dynamic-length-array", "element-field-class": u8(),
            "length-field-location": { "origin": "event-record-payload", "path": ["n"] } } }));
        json!({ "type": "event-record-class", "id": id, "name": format!("e{id}"),
            "payload-field-class": { "type": "structure", "member-classes": members } })
    };
    let header = json!({ "type": "structure", "member-classes": [{ "name": "id", "field-class": { "type": "fixed-length-unsigned-integer",
        "length": 8, "alignment": 8, "byte-order": "little-endian", "roles": ["event-record-class-id"] } }] });
    for (second, is_valid) in [(true, true), (false, false)] {
        let fragments = [
            json!({ "type": "preamble", "version": 2 }),
            json!({ "type": "trace-class" }),
            json!({ "type": "data-stream-class", "id": 0, "event-record-header-field-class": header }),
            class(0, true),
            class(1, second),
        ];
        let folder = folder(&sequence(&fragments), &[("s", &[0, 1, 5])]);
        let (_, remarks) = report(folder.path());
        assert_eq!(remarks.is_empty(), is_valid, "{remarks:?}");
        assert_eq!(babeltrace(&babeltrace21(), folder.path()).success, is_valid);
    }
}

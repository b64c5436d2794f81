//! Lines of sessions read like the log of their program: the spans around an event, its message.

use crate::support::{
    self, HEADER, Memory, channel, committed, field, full_header, read, signed, text_of, unsigned,
};
use lastwords_ctf::Version;
use lastwords_render::select::Selection;
use lastwords_render::text::Style;
use lastwords_testkit::random::Random;
use lastwords_trace::schema::{EnvValue, EventClass, Field, FieldClass};
use lastwords_trace::source::OpenSpan;
use std::collections::BTreeMap;

const PID: i64 = 70;
/// The names of spans with their targets.
const NAMES: [(&str, &str); 2] = [("svc", "order"), ("svc::db", "query")];

fn string(name: &str) -> Field {
    field(name, FieldClass::String)
}

fn class(id: u64, name: &str, fields: Vec<Field>) -> EventClass {
    let location = "src/main.rs:71".to_owned();
    EventClass { level: 3, location, ..support::class(id, name, fields) }
}

/// A session with streams of two CPUs and these events. Their threads are 77.
fn session(events: Vec<EventClass>) -> Memory {
    let main = channel(0, "main", vec![signed("vtid", 4)], events);
    let mut memory = Memory::new(1_795_000_000, vec![main], &[(0, 0), (0, 1)]);
    memory.schema.env = [
        ("tracer_name".to_owned(), EnvValue::Text("lastwords".to_owned())),
        ("vpid".to_owned(), EnvValue::Integer(PID)),
    ]
    .into();
    memory
}

/// The events of two streams, as bytes.
struct Written {
    streams: [Vec<u8>; 2],
    end: u64,
}

impl Written {
    fn new() -> Self {
        Self { streams: [vec![0; HEADER], vec![0; HEADER]], end: 0 }
    }

    fn put(&mut self, stream: usize, id: u16, clock: u64, payload: &[&[u8]]) {
        let bytes = &mut self.streams[stream];
        full_header(bytes, id, clock);
        bytes.extend(77i32.to_le_bytes());
        payload.iter().for_each(|part| bytes.extend(*part));
        self.end = clock;
    }

    fn into_session(self, mut memory: Memory) -> Memory {
        for (stream, bytes) in self.streams.into_iter().enumerate() {
            memory.packets[stream].push((committed(0, 1, self.end, bytes.len()), bytes));
        }
        memory
    }
}

/// Returns the lines behind the thread.
fn lines(memory: &Memory, style: Style, selection: &Selection) -> Vec<String> {
    let text = text_of(&read(memory, Version::V2), style, selection);
    text.lines().map(|line| line.split_once("] 77 ").expect(line).1.to_owned()).collect()
}

/// A span, as the oracle knows it.
#[derive(Clone)]
struct Span {
    name: usize,
    parent: u64,
    opened: u64,
    n: u64,
    /// The values of `later`, with the times at which they were recorded.
    later: Vec<(u64, u64)>,
    is_open: bool,
    /// The event of the opening is recovered.
    is_recovered: bool,
    /// The list of open spans has it.
    is_listed: bool,
}

impl Span {
    fn is_known(&self) -> bool {
        self.is_recovered || self.is_listed
    }

    /// The text that the recorder gives an event at a time.
    fn text(&self, time: u64) -> String {
        let later = self.later.iter().rfind(|(at, _)| *at <= time);
        let later = later.map_or_else(String::new, |(_, value)| format!(" later={value}"));
        format!("n={} text=two words{later}", self.n)
    }

    /// What can be known of its text at a time.
    fn known_text(&self, time: u64) -> String {
        let name = NAMES[self.name].1;
        if self.is_recovered {
            format!("{name}{{{}}}", self.text(time))
        } else if self.later.iter().any(|(at, _)| *at > time) {
            format!("{name}{{?}}")
        } else {
            format!("{name}{{{}}}", self.text(u64::MAX))
        }
    }
}

/// Returns the chain of an event at a time in a span whose own text is given.
fn chain(spans: &BTreeMap<u64, Span>, id: u64, own: String, time: u64) -> String {
    let mut texts = vec![own];
    let mut inner = &spans[&id];
    while !inner.is_known() || inner.parent != 0 {
        let parent =
            spans.get(&inner.parent).filter(|parent| inner.is_known() && parent.is_known());
        let Some(parent) = parent else {
            texts.push("?".to_owned());
            break;
        };
        texts.push(parent.known_text(time));
        inner = parent;
    }
    texts.reverse();
    texts.join(":") + ":"
}

/// What happens at a time.
#[derive(Clone, Copy)]
enum Step {
    New(u64),
    Record(u64, u64),
    Close(u64),
    Event(u64),
}

/// Random spans in each other, on two CPUs. Some openings are not recovered, and some of the spans
/// that were open at the end are not listed.
#[test]
fn chains_are_those_that_can_be_known() {
    for seed in 1..=60 {
        let mut random = Random(seed);
        let mut spans: BTreeMap<u64, Span> = BTreeMap::new();
        let mut steps = Vec::new();
        let (mut time, mut next) = (1000, 1);
        for _ in 0..150 {
            time += 1 + random.below(3_000_000);
            let open: Vec<u64> =
                spans.iter().filter(|(_, span)| span.is_open).map(|(id, _)| *id).collect();
            let any = |random: &mut Random| open[random.below(open.len() as u64) as usize];
            let step = match random.below(8) {
                0 | 1 => {
                    let parent =
                        if open.is_empty() || random.below(4) == 0 { 0 } else { any(&mut random) };
                    let span = Span {
                        name: random.below(2) as usize,
                        parent,
                        opened: time,
                        n: random.below(1000),
                        later: Vec::new(),
                        is_open: true,
                        is_recovered: random.below(3) > 0,
                        is_listed: false,
                    };
                    next += 1 + random.below(1 << 50);
                    spans.insert(next, span);
                    Step::New(next)
                }
                _ if open.is_empty() => continue,
                2 => {
                    let (id, value) = (any(&mut random), random.below(100));
                    spans.get_mut(&id).expect("a span").later.push((time, value));
                    Step::Record(id, value)
                }
                3 => {
                    let id = any(&mut random);
                    if spans.values().any(|span| span.is_open && span.parent == id) {
                        continue;
                    }
                    spans.get_mut(&id).expect("a span").is_open = false;
                    Step::Close(id)
                }
                _ => Step::Event(any(&mut random)),
            };
            steps.push((time, step));
        }
        for span in spans.values_mut().filter(|span| span.is_open) {
            span.is_listed = random.below(4) > 0;
        }
        check(seed, &mut random, &spans, &steps);
    }
}

/// The classes of the events of [`Step`]s: one for events in spans, and for each name one for each
/// change of a span.
fn classes() -> Vec<EventClass> {
    let with_ids = |fields: Vec<Field>| [fields, vec![unsigned("span_id", 8)]].concat();
    let mut events = vec![class(0, "app:work", with_ids(vec![unsigned("n", 4), string("span")]))];
    for (at, (target, name)) in (0..).zip(NAMES) {
        let fields =
            [with_ids(vec![unsigned("n", 4), string("text")]), vec![unsigned("parent_id", 8)]];
        events.push(class(1 + at, &format!("span:new {target}::{name}"), fields.concat()));
        let later = with_ids(vec![unsigned("later", 4)]);
        events.push(class(3 + at, &format!("span:record {target}::{name}"), later));
        events.push(class(5 + at, &format!("span:close {target}::{name}"), with_ids(Vec::new())));
    }
    events.sort_by_key(|event| event.id);
    events
}

/// The list of the spans that were open at the end.
fn listed(spans: &BTreeMap<u64, Span>) -> Vec<OpenSpan> {
    let listed = spans.iter().filter(|(_, span)| span.is_listed);
    let open = listed.map(|(id, span)| OpenSpan {
        id: *id,
        parent: span.parent,
        opened: span.opened,
        age: 0,
        opener: (PID as u32, 77),
        entered: None,
        threads: 0,
        level: 3,
        target: NAMES[span.name].0.to_owned(),
        name: NAMES[span.name].1.to_owned(),
        fields: span.text(u64::MAX),
    });
    open.collect()
}

fn check(seed: u64, random: &mut Random, spans: &BTreeMap<u64, Span>, steps: &[(u64, Step)]) {
    let (mut written, mut expected) = (Written::new(), Vec::new());
    for (time, step) in steps {
        let (time, stream) = (*time, random.below(2) as usize);
        let four = |number: u64| (number as u32).to_le_bytes();
        // A span whose opening and list entry are lost has only its name.
        let own = |id: u64| {
            let span = &spans[&id];
            let is_known = span.is_known();
            if is_known { span.known_text(time) } else { format!("{}{{?}}", NAMES[span.name].1) }
        };
        match *step {
            Step::New(id) => {
                let span = &spans[&id];
                if !span.is_recovered {
                    continue;
                }
                let payload: [&[u8]; 4] =
                    [&four(span.n), b"two words\0", &id.to_le_bytes(), &span.parent.to_le_bytes()];
                written.put(stream, 1 + span.name as u16, time, &payload);
                expected.push(format!("{} span:new", chain(spans, id, own(id), time)));
            }
            Step::Record(id, value) => {
                let event = 3 + spans[&id].name as u16;
                written.put(stream, event, time, &[&four(value), &id.to_le_bytes()]);
                let chain = chain(spans, id, own(id), time);
                expected.push(format!("{chain} span:record: later={value}"));
            }
            Step::Close(id) => {
                let span = &spans[&id];
                written.put(stream, 5 + span.name as u16, time, &[&id.to_le_bytes()]);
                let age = time - span.opened;
                let age = match span.is_known() {
                    false => "?".to_owned(),
                    true if age < 10_000_000 => {
                        format!("{}.{:03} ms", age / 1_000_000, age / 1000 % 1000)
                    }
                    true => format!("0.{:03} s", age / 1_000_000),
                };
                expected
                    .push(format!("{} span:close after {age}", chain(spans, id, own(id), time)));
            }
            Step::Event(id) => {
                let span = &spans[&id];
                let (target, name) = NAMES[span.name];
                let text = format!("{target}::{name}{{{}}}\0", span.text(time));
                written.put(stream, 0, time, &[&four(5), text.as_bytes(), &id.to_le_bytes()]);
                let own = format!("{name}{{{}}}", span.text(time));
                expected.push(format!("{} app:work: n=5", chain(spans, id, own, time)));
            }
        }
    }
    let mut memory = written.into_session(session(classes()));
    memory.open_spans = listed(spans);
    let all = lines(&memory, Style::Fields, &Selection::default());
    let differ = all.iter().zip(&expected).find(|(found, expected)| found != expected);
    assert_eq!(differ, None, "seed {seed}");
    assert_eq!(all.len(), expected.len(), "seed {seed}");
    // The same chains, where a report begins in the middle or shows some of the events.
    let last = Selection { last: Some(7), ..Selection::default() };
    let found = lines(&memory, Style::Fields, &last);
    assert_eq!(found, expected[expected.len().saturating_sub(7)..], "seed {seed}");
    let work = Selection { events: vec!["app:work".to_owned()], ..Selection::default() };
    expected.retain(|line| line.ends_with("app:work: n=5"));
    assert_eq!(lines(&memory, Style::Fields, &work), expected, "seed {seed}");
}

/// If several processes may have recorded, and no context says which one an event is of, its span's
/// texts are unknown, but not the values that the event itself has.
#[test]
fn an_opening_shows_its_own_values() {
    let mut written = Written::new();
    let ids = [7u64, 0, 8, 7].map(u64::to_le_bytes);
    written.put(0, 1, 10, &[&5u32.to_le_bytes(), b"two words\0", &ids[0], &ids[1]]);
    written.put(0, 2, 20, &[&6u32.to_le_bytes(), b"x\0", &ids[2], &ids[3]]);
    written.put(0, 3, 30, &[&9u32.to_le_bytes(), &ids[0]]);
    let mut memory = written.into_session(session(classes()));
    memory.schema.env.remove("vpid");
    assert_eq!(
        lines(&memory, Style::Fields, &Selection::default()),
        [
            "order{n=5 text=two words}: span:new",
            "?:query{n=6 text=x}: span:new",
            "?:order{?}: span:record: later=9",
        ]
    );
}

/// The recorder cuts long texts of spans in events. The span's opening has its fields whole.
#[test]
fn a_text_that_is_cut_is_completed_from_the_opening() {
    let mut written = Written::new();
    let (id, root, other) = (7u64.to_le_bytes(), 0u64.to_le_bytes(), 8u64.to_le_bytes());
    let work = |written: &mut Written, time, text: &str, id: &[u8]| {
        written.put(0, 0, time, &[&5u32.to_le_bytes(), text.as_bytes(), b"\0", id]);
    };
    work(&mut written, 5, "svc::order{n=5 text=GET /it…}", &id);
    written.put(0, 1, 10, &[&5u32.to_le_bytes(), b"GET /items and more\0", &id, &root]);
    work(&mut written, 20, "svc::order{n=5 text=GET /it…}", &id);
    work(&mut written, 30, "svc::or…{n=5 text=GET /items and more}", &id);
    work(&mut written, 40, "svc::order{n=5 text=PUT /it…}", &id);
    work(&mut written, 50, "svc::order{n=5 text=GET /it…}", &other);
    let memory = written.into_session(session(classes()));
    let all = lines(&memory, Style::Fields, &Selection::default());
    let (cut, whole) = ("order{n=5 text=GET /it…}", "order{n=5 text=GET /items and more}");
    assert_eq!(
        all,
        [
            format!("?:{cut}: app:work: n=5"),
            format!("{whole}: span:new"),
            format!("{whole}: app:work: n=5"),
            // What does not begin in the same way stays as it is.
            "or…{n=5 text=GET /items and more}: app:work: n=5".to_owned(),
            "order{n=5 text=PUT /it…}: app:work: n=5".to_owned(),
            format!("?:{cut}: app:work: n=5"),
        ]
    );
}

/// A message stands without its name, an event that is named by its place is shown by its target,
/// and the addresses of a backtrace are counted. With ids, nothing is left out.
#[test]
fn messages_targets_and_backtraces() {
    let addresses = FieldClass::Integer { size: 8, signed: false, base: 16 };
    let backtrace = field("backtrace", FieldClass::Sequence(Box::new(addresses)));
    let span = || vec![string("span"), unsigned("span_id", 8)];
    let events = vec![
        class(
            0,
            "orders:main.rs:71",
            [vec![string("message"), unsigned("amount", 4)], span()].concat(),
        ),
        class(1, "orders:paid", [vec![string("message")], span()].concat()),
        class(2, "crash:panic", vec![string("message"), string("location"), backtrace]),
        class(3, "orders:main.rs:72", vec![string("message")]),
        class(4, "orders:flat", vec![unsigned("span_id", 8)]),
    ];
    let mut written = Written::new();
    let id = 7u64.to_le_bytes();
    written.put(
        0,
        0,
        10,
        &[b"order 202 charged\0", &5u32.to_le_bytes(), b"orders::charge{order=202}\0", &id],
    );
    written.put(0, 1, 20, &[b"two\nlines\0", b"orders::charge\0", &id]);
    let mut frames = 3u32.to_le_bytes().to_vec();
    (1..4u64).for_each(|frame| frames.extend((0x1000 * frame).to_le_bytes()));
    written.put(0, 2, 30, &[b"gone\0", b"src/main.rs:7:8\0", &frames]);
    written.put(0, 3, 40, &[b"of another line\0"]);
    written.put(0, 4, 50, &[&id]);
    let mut memory = written.into_session(session(events));
    memory.open_spans = vec![OpenSpan {
        id: 7,
        parent: 0,
        opened: 5,
        age: 0,
        opener: (PID as u32, 77),
        entered: None,
        threads: 0,
        level: 3,
        target: "orders".to_owned(),
        name: "charge".to_owned(),
        fields: "order=202".to_owned(),
    }];
    let all = Selection::default();
    assert_eq!(
        lines(&memory, Style::Fields, &all),
        [
            "charge{order=202}: orders: order 202 charged amount=5",
            "charge: orders:paid: two\\nlines",
            "crash:panic: gone location=src/main.rs:7:8 backtrace={3 addresses}",
            "orders:main.rs:72: of another line",
            "orders:flat: span_id=7",
        ]
    );
    assert_eq!(
        lines(&memory, Style::FieldsWithIds, &all),
        [
            "charge{order=202}: orders:main.rs:71: order 202 charged amount=5 span_id=7",
            "charge: orders:paid: two\\nlines span_id=7",
            "crash:panic: gone location=src/main.rs:7:8 backtrace={0x1000,0x2000,0x3000}",
            "orders:main.rs:72: of another line",
            "orders:flat: span_id=7",
        ]
    );
    // Traces of others keep their names and fields.
    memory.schema.env.clear();
    let line = &lines(&memory, Style::Fields, &all)[0];
    let span = "span=\"orders::charge{order=202}\" span_id=7";
    assert_eq!(*line, format!("orders:main.rs:71: message=\"order 202 charged\" amount=5 {span}"));
}

//! Makes a random trace from a seed.

use super::{HEADER, Memory, committed};
use lastwords_bytes::ByteOrder;
use lastwords_testkit::random::Random;
use lastwords_trace::clock::Clock;
use lastwords_trace::evidence::Verdict;
use lastwords_trace::schema::{Channel, EnvValue, EventClass, Field, FieldClass, Schema};
use lastwords_trace::source::{PacketInfo, Stream};
use std::collections::BTreeMap;

const NAMES: [&str; 24] = [
    "a",
    "a_length",
    "_a_length",
    "value_length",
    "_value",
    "value",
    "id",
    "timestamp",
    "align",
    "event",
    "struct",
    "string",
    "int",
    "my field",
    "http.status",
    "_x",
    "__y",
    "stream",
    "len",
    "9lives",
    "größe",
    "variant",
    "x_length",
    "typealias",
];
const WORDS: [&str; 12] = [
    "",
    "x",
    "hello world",
    "quote\" and \\ and ' and ?",
    "tab\tline\nfeed\r",
    "\u{7}\u{8}\u{b}\u{c}\u{1b}[31m",
    "grün",
    "日本語",
    "\u{1}\u{1f}\u{7f}",
    "a somewhat longer text that does not fit a register",
    "%s %d %n",
    "emoji 🦀",
];

/// The limits of random traces.
#[derive(Clone, Copy)]
pub struct Limits {
    /// Enumerations may have values without a label.
    pub unknown_labels: bool,
    /// Text may be empty. babeltrace2 2.0 then prints the text of an earlier event.
    pub empty_text: bool,
    /// A value may have several labels. babeltrace2 2.1 puts them in braces and, for CTF 2, in the
    /// order of a hash table.
    pub several_labels: bool,
    /// The recorder was a big-endian machine.
    pub big: bool,
}

impl Limits {
    /// Appends the low bytes of a number in the byte order of the recorder.
    fn put(self, out: &mut Vec<u8>, raw: u64, size: usize) {
        match self.big {
            false => out.extend(&raw.to_le_bytes()[..size]),
            true => out.extend(&raw.to_be_bytes()[8 - size..]),
        }
    }
}

/// Returns the trace of a seed.
pub fn trace(seed: u64, limits: Limits) -> Memory {
    let mut rng = Random(seed);
    let r = &mut rng;
    let schema = schema(r, limits);
    let mut streams = Vec::new();
    let mut packets = Vec::new();
    let origin = 1 << (20 + r.below(25));
    for (position, channel) in schema.channels.iter().enumerate() {
        for cpu in 0..1 + r.below(3) {
            let instance = streams.len() as u64;
            let any = r.one_in(8);
            streams.push(Stream { channel: position, instance, cpu: (!any).then_some(cpu as u32) });
            packets.push(stream(r, channel, origin, limits));
        }
    }
    if packets.iter().all(Vec::is_empty) {
        packets[0].push((committed(0, origin, origin, HEADER), vec![0xAA; HEADER]));
    }
    Memory { schema, streams, packets, ..Memory::new(0, Vec::new(), &[]) }
}

fn schema(r: &mut Random, limits: Limits) -> Schema {
    let frequency = *r.pick(&[
        1_000_000_000,
        1_000_000_000,
        2_500_000_000,
        2_394_374_000,
        24_000_000,
        1_000_000,
    ]);
    let mut env = BTreeMap::new();
    env.insert(
        "hostname".to_owned(),
        EnvValue::Text((*r.pick(&["box", "host-1.example", "a\"b"])).to_owned()),
    );
    if r.one_in(3) {
        env.insert("procname".to_owned(), EnvValue::Text("demo".to_owned()));
        env.insert("vpid".to_owned(), EnvValue::Integer(r.below(1 << 22) as i64));
    }
    env.insert("stream".to_owned(), EnvValue::Integer(-(r.below(1 << 40) as i64)));
    let clock = Clock {
        name: (*r.pick(&["tsc", "monotonic", "event"])).to_owned(),
        description: "A \"test\" clock\n".to_owned(),
        frequency,
        offset_seconds: r.below(2_000_000_000) as i64,
        offset_ticks: r.below(frequency),
        absolute: r.one_in(2),
    };
    let channels = (0..1 + r.below(3)).map(|i| channel(r, (i * 7 % 5) as u32, limits)).collect();
    let mut uuid = [0; 16];
    uuid.iter_mut().for_each(|b| *b = r.bits() as u8);
    Schema {
        uuid,
        name: "random".to_owned(),
        byte_order: if limits.big { ByteOrder::Big } else { ByteOrder::Little },
        env,
        clock,
        channels,
    }
}

fn channel(r: &mut Random, id: u32, limits: Limits) -> Channel {
    let contexts = (0..r.below(4)).map(|_| field(r, true, limits)).collect();
    let ids: &[u64] = if r.one_in(2) {
        &[0, 1, 2, 27, 28, 29, 30, 31, 32, 300, 65_535]
    } else {
        &[0, 1, 2, 3, 28, 29]
    };
    let events = ids.iter().map(|id| class(r, *id, limits)).collect();
    Channel { id, name: (*r.pick(&["", "default", "errors */ x"])).to_owned(), contexts, events }
}

fn class(r: &mut Random, id: u64, limits: Limits) -> EventClass {
    let name = format!(
        "{}:{}",
        r.pick(&["app", "my\"lib", "größe"]),
        r.pick(&["start", "stop it", "x\u{1b}[2J", "e"])
    );
    let fields = (0..r.below(6)).map(|_| field(r, false, limits)).collect();
    EventClass { id, name, level: r.below(7) as u8, fields, ..EventClass::default() }
}

fn field(r: &mut Random, fixed: bool, limits: Limits) -> Field {
    let class = match r.below(if fixed { 7 } else { 12 }) {
        0..=3 => scalar(r, limits),
        4 => FieldClass::Text { size: *r.pick(&[1, 16, 5]) },
        5 => FieldClass::Array { count: r.below(4) as u32, element: Box::new(scalar(r, limits)) },
        6 => enumeration(r, limits),
        7 => FieldClass::String,
        8 => FieldClass::Bytes,
        9 => FieldClass::Optional(Box::new(scalar(r, limits))),
        10 => FieldClass::Optional(Box::new(FieldClass::String)),
        _ => FieldClass::Sequence(Box::new(scalar(r, limits))),
    };
    Field { name: (*r.pick(&NAMES)).to_owned(), class }
}

fn scalar(r: &mut Random, limits: Limits) -> FieldClass {
    match r.below(6) {
        0..=2 => {
            let size = *r.pick(&[1, 2, 4, 8]);
            FieldClass::Integer { size, signed: r.one_in(2), base: *r.pick(&[10, 10, 16]) }
        }
        3 => FieldClass::Float { size: *r.pick(&[4, 8]) },
        4 => FieldClass::Bool,
        _ => enumeration(r, limits),
    }
}

fn enumeration(r: &mut Random, limits: Limits) -> FieldClass {
    let size = *r.pick(&[1u8, 2, 4, 8]);
    let signed = r.one_in(2);
    let mut labels: Vec<(i64, String)> = (0..1 + r.below(4))
        .map(|i| {
            (
                limit(r.bits(), size, signed),
                format!("{}{i}", r.pick(&["IDLE", "run ning", "a\"b\\", "int", "\n"])),
            )
        })
        .collect();
    if !limits.several_labels {
        labels.sort();
        labels.dedup_by_key(|(value, _)| *value);
    }
    FieldClass::Enum { size, signed, labels }
}

/// Truncates a number to a size, and sign-extends it if it is signed.
fn limit(raw: u64, size: u8, signed: bool) -> i64 {
    let drop = 64 - 8 * u32::from(size);
    if signed { (raw as i64) << drop >> drop } else { (raw << drop >> drop) as i64 }
}

fn stream(
    r: &mut Random,
    channel: &Channel,
    origin: u64,
    limits: Limits,
) -> Vec<(PacketInfo, Vec<u8>)> {
    if r.one_in(10) {
        return Vec::new();
    }
    let mut clock = origin + r.below(1 << 20);
    let first = r.below(100);
    let mut out = Vec::new();
    for sequence in first..first + r.below(4) {
        let begin = clock;
        let mut bytes = vec![0xAA; HEADER];
        for _ in 0..r.below(12) {
            event(r, channel, &mut clock, &mut bytes, limits);
        }
        let end = clock + r.below(1000);
        let mut info = committed(sequence, begin, end, bytes.len());
        info.verdict =
            *r.pick(&[Verdict::Committed, Verdict::Committed, Verdict::Open, Verdict::Torn]);
        out.push((info, bytes));
        clock = end;
    }
    out
}

fn event(r: &mut Random, channel: &Channel, clock: &mut u64, out: &mut Vec<u8>, limits: Limits) {
    let sized = channel.id % 2 == 1;
    let class = r.pick(&channel.events);
    let step = *r.pick(&[0, 1, 1000, 1 << 20, (1 << 27) - 1, 1 << 27, 1 << 27 | 5, 1 << 33]);
    *clock += step;
    let mut body = Vec::new();
    for field in &channel.contexts {
        value(r, &field.class, &mut body, limits);
    }
    payload(r, class, &mut body, limits);
    let size = body.len() as u32;
    let id = class.id as u16;
    let word = (*clock & 0x7ff_ffff) as u32;
    let tag = if step >= 1 << 27 || r.one_in(5) {
        29
    } else if sized {
        30
    } else if id > 28 || r.one_in(5) {
        31
    } else {
        u32::from(id)
    };
    limits.put(out, u64::from(word << 5 | tag), 4);
    if tag >= 29 {
        limits.put(out, u64::from(id), 2);
    }
    if tag == 29 || tag == 30 {
        limits.put(out, u64::from(if sized { size } else { u32::MAX }), 4);
    }
    if tag == 29 {
        limits.put(out, *clock, 8);
    }
    out.extend(body);
}

/// Writes a payload: a bit for each optional field, in the order of the byte's bits, then the
/// fields that are present.
fn payload(r: &mut Random, class: &EventClass, out: &mut Vec<u8>, limits: Limits) {
    let is_optional = |field: &&Field| matches!(field.class, FieldClass::Optional(_));
    let present: Vec<bool> =
        class.fields.iter().filter(is_optional).map(|_| !r.one_in(3)).collect();
    for bits in present.chunks(8) {
        let place = |at: usize| if limits.big { 7 - at } else { at };
        out.push(
            bits.iter().enumerate().fold(0, |byte, (at, bit)| byte | u8::from(*bit) << place(at)),
        );
    }
    let mut present = present.into_iter();
    for field in &class.fields {
        match &field.class {
            FieldClass::Optional(inner) if present.next() == Some(true) => {
                value(r, inner, out, limits)
            }
            FieldClass::Optional(_) => {}
            class => value(r, class, out, limits),
        }
    }
}

fn value(r: &mut Random, class: &FieldClass, out: &mut Vec<u8>, limits: Limits) {
    match class {
        FieldClass::Integer { size, .. } => {
            let raw =
                *r.pick(&[0, 1, u64::MAX, 0x8000_0000_0000_0000, 0x8080_8080_8080_8080, 10, 255]);
            let raw = if r.one_in(2) { r.bits() } else { raw };
            limits.put(out, raw, usize::from(*size));
        }
        FieldClass::Float { size } => float(r, *size, out, limits),
        FieldClass::Bool => out.push(r.below(2) as u8),
        FieldClass::String => {
            let words = if limits.empty_text { &WORDS[..] } else { &WORDS[1..] };
            out.extend(r.pick(words).as_bytes());
            out.push(0);
        }
        FieldClass::Text { size } => {
            let words = ["x", "abcde", "a longer name it is", ""];
            let mut text =
                r.pick(&words[..if limits.empty_text { 4 } else { 3 }]).as_bytes().to_vec();
            text.resize(*size as usize, 0);
            out.extend(text);
        }
        FieldClass::Bytes => {
            let count = r.below(5);
            limits.put(out, count, 4);
            (0..count).for_each(|_| out.push(r.bits() as u8));
        }
        FieldClass::Sequence(element) => {
            let count = r.below(5);
            limits.put(out, count, 4);
            (0..count).for_each(|_| value(r, element, out, limits));
        }
        FieldClass::Array { count, element } => {
            (0..*count).for_each(|_| value(r, element, out, limits))
        }
        FieldClass::Optional(_) => unreachable!("`payload` writes what is inside"),
        FieldClass::Enum { size, labels, .. } => {
            let raw = if limits.unknown_labels && r.one_in(3) {
                r.bits()
            } else {
                r.pick(labels).0 as u64
            };
            limits.put(out, raw, usize::from(*size));
        }
    }
}

fn float(r: &mut Random, size: u8, out: &mut Vec<u8>, limits: Limits) {
    let plain = [
        0.0,
        -0.0,
        1.0,
        0.1,
        1e6,
        999_999.5,
        123_456.7,
        1e-4,
        1e-5,
        f64::INFINITY,
        f64::MAX,
        5e-324,
        100_000.0,
        2.5,
    ];
    let value = match r.below(4) {
        0 => *r.pick(&plain),
        1 => (r.bits() as i64 as f64) / 1e12,
        2 => r.below(1_000_000) as f64 / 8.0,
        _ => f64::from_bits(r.bits()),
    };
    match size {
        4 => limits.put(out, u64::from((value as f32).to_bits()), 4),
        _ => limits.put(out, value.to_bits(), 8),
    }
}

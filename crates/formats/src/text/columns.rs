//! Lines for people: the kernel's layout, and ours.

use std::collections::HashMap;

use super::escape::{bare, quoted};
use super::number::{Constant, general, hexadecimal, masked, signed, six, unsigned};
use super::time::{TimeOfDay, Zone, put_seconds};
use crate::events::Line;
use lastwords_bytes::ByteOrder;
use lastwords_trace::merge::Event;
use lastwords_trace::schema::{Channel, EventClass, Field, FieldClass, Schema};
use lastwords_trace::source::Source;
use lastwords_trace::value::{EnumValue, Value, extend, take, take_integer};

const GIGA: i64 = 1_000_000_000;
/// Most pieces of a message: a format string from a hostile image may not cost more than the event is worth.
const MAX_PIECES: usize = 64;
const LEVELS: [&str; 6] = ["-    ", "ERROR", "WARN ", "INFO ", "DEBUG", "TRACE"];

/// Makes the lines of some sources.
pub(super) struct Lines<'s> {
    plans: Vec<Plan<'s>>,
    kernel: bool,
    time: TimeOfDay,
}

struct Plan<'s> {
    order: ByteOrder,
    /// The clock leads to the time of day.
    absolute: bool,
    channels: Vec<Columns<'s>>,
    /// Names by thread id, for events whose contexts have none.
    names: HashMap<i64, &'s str>,
    /// By stream.
    cpus: Vec<Option<Constant>>,
}

/// A channel: where its contexts hold what the columns show, and what no column shows.
struct Columns<'s> {
    name: Option<Place<'s>>,
    thread: Option<Place<'s>>,
    cpu: Option<Place<'s>>,
    others: Vec<(Place<'s>, Constant)>,
    classes: Vec<Class<'s>>,
}

/// A field at a fixed offset of the contexts.
#[derive(Clone, Copy)]
struct Place<'s> {
    offset: usize,
    class: &'s FieldClass,
}

struct Class<'s> {
    /// Five columns of severity.
    level: &'static str,
    /// ` LEVEL [`.
    before_cpu: Constant,
    /// ` provider:name:`.
    name: Constant,
    /// The message, where there is a format string.
    pieces: Vec<Piece>,
    parts: Vec<Part<'s>>,
}

struct Part<'s> {
    /// ` name=`.
    prefix: Constant,
    class: &'s FieldClass,
    /// The message shows it.
    in_message: bool,
}

/// A piece of a message.
enum Piece {
    Text(Constant),
    /// The field at that position; it takes part in the message, so it is not named behind it.
    Value {
        field: usize,
        base16: bool,
    },
}

impl<'s> Lines<'s> {
    pub(super) fn new(sources: &[&'s dyn Source], kernel: bool, zone: &Zone) -> Self {
        let plans = sources.iter().map(|source| plan(*source)).collect();
        Self { plans, kernel, time: TimeOfDay::new(zone, b"", b"") }
    }
}

fn plan<'s>(source: &'s dyn Source) -> Plan<'s> {
    let schema: &Schema = source.schema();
    Plan {
        order: schema.byte_order,
        absolute: schema.clock.absolute,
        channels: schema.channels.iter().map(columns).collect(),
        names: schema.thread_names(),
        cpus: source.streams().iter().map(|s| s.cpu.map(|cpu| Constant::new(format!("{cpu:03}").as_bytes()))).collect(),
    }
}

fn columns(channel: &Channel) -> Columns<'_> {
    let mut columns = Columns {
        name: None,
        thread: None,
        cpu: None,
        others: Vec::new(),
        classes: channel.events.iter().map(class).collect(),
    };
    let mut process = None;
    let mut offset = 0;
    for field in &channel.contexts {
        let place = Place { offset, class: &field.class };
        match (field.name.as_str(), &field.class) {
            ("procname", FieldClass::Text { .. }) => columns.name = Some(place),
            ("vtid" | "tid", FieldClass::Integer { .. }) => columns.thread = Some(place),
            ("cpu", FieldClass::Integer { .. }) => columns.cpu = Some(place),
            (name, _) => {
                if matches!(name, "vpid" | "pid") {
                    process = Some(place);
                }
                columns.others.push((place, prefix(field)));
            }
        }
        let Some(size) = field.class.fixed_size() else { break };
        offset += size;
    }
    columns.thread = columns.thread.or(process);
    columns
}

fn class(event: &EventClass) -> Class<'_> {
    let mut name = vec![b' '];
    bare(&mut name, shown_name(event).as_bytes());
    name.push(b':');
    let pieces = pieces(event);
    let in_message = |i| pieces.iter().any(|piece| matches!(piece, Piece::Value { field, .. } if *field == i));
    let part = |(i, field)| Part { prefix: prefix(field), class: &field.class, in_message: in_message(i) };
    let level = LEVELS.get(usize::from(event.level)).copied().unwrap_or(LEVELS[0]);
    Class {
        level,
        before_cpu: Constant::new(format!(" {level} [").as_bytes()),
        name: Constant::new(&name),
        parts: event.fields.iter().enumerate().map(part).collect(),
        pieces,
    }
}

/// The name of an event; of a marker whose name is its message only the provider.
fn shown_name(event: &EventClass) -> &str {
    match event.name.strip_suffix(&event.format) {
        Some(provider) if !event.format.is_empty() => provider.trim_end_matches(':'),
        _ => &event.name,
    }
}

/// ` name=`.
fn prefix(field: &Field) -> Constant {
    let mut text = vec![b' '];
    bare(&mut text, field.name.as_bytes());
    text.push(b'=');
    Constant::new(&text)
}

/// A marker's format string: `{name}` stands for the field of that name, `{0}` for the field `arg0`, `{}` for the next of the
/// fields that are not named so; `{{` and `}}` for braces.
fn pieces(event: &EventClass) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut text: Vec<u8> = Vec::new();
    let mut rest = event.format.as_str();
    let mut unnamed =
        (0..event.fields.len()).filter(|i| !keys(&event.fields[*i].name).any(|key| names(&event.format, key)));
    if !rest.is_empty() {
        text.push(b' ');
    }
    while let Some(at) = rest.find(['{', '}']) {
        let (before, from) = rest.split_at(at);
        bare(&mut text, before.as_bytes());
        let end = from.find('}').filter(|_| from.starts_with('{'));
        if from.starts_with("{{") || from.starts_with("}}") {
            text.push(from.as_bytes()[0]);
            rest = &from[2..];
        } else if let Some(end) = end {
            let (name, spec) = from[1..end].split_once(':').unwrap_or((&from[1..end], ""));
            let named = event.fields.iter().position(|field| keys(&field.name).any(|key| key == name));
            match named.or_else(|| unnamed.next()).filter(|_| pieces.len() < MAX_PIECES) {
                Some(field) => {
                    pieces.push(Piece::Text(Constant::new(&std::mem::take(&mut text))));
                    pieces.push(Piece::Value { field, base16: spec.ends_with(['x', 'X']) });
                }
                None => bare(&mut text, &from.as_bytes()[..=end]),
            }
            rest = &from[end + 1..];
        } else {
            text.push(from.as_bytes()[0]);
            rest = &from[1..];
        }
    }
    bare(&mut text, rest.as_bytes());
    if !text.is_empty() {
        pieces.push(Piece::Text(Constant::new(&text)));
    }
    pieces
}

/// The keys by which a format string names a field: its name, and for `arg0` also the number 0.
fn keys(name: &str) -> impl Iterator<Item = &str> {
    [Some(name), name.strip_prefix("arg")].into_iter().flatten()
}

/// `format` has `{name}` or `{name:...}`.
fn names(format: &str, name: &str) -> bool {
    let mut rest = format;
    while let Some(at) = rest.find('{') {
        rest = &rest[at + 1..];
        if rest.strip_prefix(name).is_some_and(|behind| behind.starts_with(['}', ':'])) {
            return true;
        }
    }
    false
}

impl Line for Lines<'_> {
    fn line(&mut self, event: &Event<'_>, out: &mut Vec<u8>) {
        let plan = &self.plans[event.source];
        let columns = &plan.channels[event.channel];
        let class = &columns.classes[event.raw.class];
        let context = event.context();
        let origin = plan.origin(event.stream, columns, context);
        if self.kernel {
            kernel_head(out, class, &origin);
            kernel_time(out, event.nanoseconds);
        } else {
            if plan.absolute {
                self.time.put(event.nanoseconds, out);
            } else {
                put_seconds(event.nanoseconds, out);
            }
            own_head(out, class, &origin);
        }
        class.name.put(out);
        fields(out, class, event.payload(), plan.order);
        if !self.kernel {
            for (place, prefix) in &columns.others {
                let mut rest = context.get(place.offset..).unwrap_or_default();
                if let Some(value) = take(place.class, &mut rest, plan.order) {
                    prefix.put(out);
                    put(out, value);
                }
            }
        }
        out.push(b'\n');
    }
}

/// The thread that recorded an event, and the CPU: of the stream, or of the contexts.
struct Origin<'a> {
    name: Option<&'a [u8]>,
    thread: Option<i64>,
    stream: Option<&'a Constant>,
    cpu: Option<i64>,
}

impl Plan<'_> {
    #[inline]
    fn origin<'a>(&'a self, stream: usize, columns: &Columns<'_>, context: &'a [u8]) -> Origin<'a> {
        let integer = |place: Option<Place<'_>>| place.and_then(|place| place.integer(context, self.order));
        let thread = integer(columns.thread);
        let listed = || self.names.get(&thread?).map(|name| name.as_bytes());
        Origin {
            name: columns.name.and_then(|place| place.text(context)).or_else(listed),
            thread,
            stream: self.cpus[stream].as_ref(),
            cpu: integer(columns.cpu),
        }
    }
}

impl Place<'_> {
    /// The integer here.
    #[inline]
    fn integer(self, context: &[u8], order: ByteOrder) -> Option<i64> {
        let FieldClass::Integer { size, signed, .. } = self.class else { return None };
        let raw = take_integer(&mut context.get(self.offset..)?, *size, order)?;
        Some(if *signed { extend(raw, *size) } else { raw.cast_signed() })
    }

    /// The text here, without its NULs.
    #[inline]
    fn text(self, context: &[u8]) -> Option<&[u8]> {
        let FieldClass::Text { size } = self.class else { return None };
        let bytes = context.get(self.offset..)?.get(..usize::try_from(*size).ok()?)?;
        let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
        bytes.get(..end)
    }
}

/// `            comm-tid     [cpu] LEVEL`, in the columns of the kernel's `trace`.
fn kernel_head(out: &mut Vec<u8>, class: &Class<'_>, origin: &Origin<'_>) {
    let name = origin.name.unwrap_or(b"<...>");
    let width = if name.is_ascii() { name.len() } else { String::from_utf8_lossy(name).chars().count() };
    blanks(out, 16usize.saturating_sub(width));
    bare(out, name);
    out.push(b'-');
    let begin = out.len();
    match origin.thread {
        Some(id) => signed(out, id),
        None => out.push(b'?'),
    }
    blanks(out, 7usize.saturating_sub(out.len() - begin));
    out.extend_from_slice(b" [");
    cpu(out, origin);
    out.extend_from_slice(b"] ");
    out.extend_from_slice(class.level.as_bytes());
}

/// ` secs.usecs:`.
fn kernel_time(out: &mut Vec<u8>, nanoseconds: i64) {
    out.push(b' ');
    signed(out, nanoseconds.div_euclid(GIGA));
    let mut text = *b".000000:";
    text[1..7].copy_from_slice(&six((nanoseconds.rem_euclid(GIGA) / 1000) as u32));
    out.extend_from_slice(&text);
}

/// ` LEVEL [cpu] comm-tid`, or what is known of it, behind the time.
#[inline]
fn own_head(out: &mut Vec<u8>, class: &Class<'_>, origin: &Origin<'_>) {
    class.before_cpu.put(out);
    cpu(out, origin);
    out.push(b']');
    if origin.name.is_some() || origin.thread.is_some() {
        out.push(b' ');
        bare(out, origin.name.unwrap_or_default());
        if let Some(id) = origin.thread {
            if origin.name.is_some() {
                out.push(b'-');
            }
            signed(out, id);
        }
    }
}

/// Three digits of the CPU of the stream, else of the context.
#[inline]
fn cpu(out: &mut Vec<u8>, origin: &Origin<'_>) {
    if let Some(stream) = origin.stream {
        stream.put(out);
        return;
    }
    match origin.cpu {
        Some(cpu) => {
            let pad: &[u8] = match cpu {
                0..10 => b"00",
                10..100 => b"0",
                _ => b"",
            };
            out.extend_from_slice(pad);
            signed(out, cpu);
        }
        None => out.extend_from_slice(b"---"),
    }
}

fn blanks(out: &mut Vec<u8>, count: usize) {
    out.extend_from_slice(b"                ".get(..count).unwrap_or_default());
}

/// The message, and the fields that it does not show.
#[inline]
fn fields(out: &mut Vec<u8>, class: &Class<'_>, payload: &[u8], order: ByteOrder) {
    if !class.pieces.is_empty() {
        message(out, class, payload, order);
    }
    let mut rest = payload;
    for Part { prefix, class, in_message } in &class.parts {
        if let FieldClass::Integer { size, signed: is_signed, base: 10 } = class
            && !in_message
        {
            let Some(raw) = take_integer(&mut rest, *size, order) else { return };
            prefix.put(out);
            if *is_signed { signed(out, extend(raw, *size)) } else { unsigned(out, raw) }
        } else {
            let Some(value) = take(class, &mut rest, order) else { return };
            if !in_message {
                prefix.put(out);
                put(out, value);
            }
        }
    }
}

fn message(out: &mut Vec<u8>, class: &Class<'_>, payload: &[u8], order: ByteOrder) {
    let mut rest = payload;
    let mut next = 0;
    for piece in &class.pieces {
        match piece {
            Piece::Text(text) => text.put(out),
            Piece::Value { field, base16 } => {
                if *field < next {
                    (rest, next) = (payload, 0);
                }
                let mut value = None;
                for part in class.parts.get(next..=*field).unwrap_or_default() {
                    value = take(part.class, &mut rest, order);
                }
                next = *field + 1;
                if let Some(value) = value {
                    in_text(out, value, *base16);
                }
            }
        }
    }
}

/// A value inside a message: text without quotes.
fn in_text(out: &mut Vec<u8>, value: Value<'_>, base16: bool) {
    match value {
        Value::Text(text) => bare(out, text),
        Value::Unsigned { value, .. } if base16 => hexadecimal(out, value),
        Value::Signed { value, size, .. } if base16 => hexadecimal(out, masked(value, size)),
        other => put(out, other),
    }
}

fn put(out: &mut Vec<u8>, value: Value<'_>) {
    match value {
        Value::Unsigned { value, base: 16 } => hexadecimal(out, value),
        Value::Unsigned { value, .. } => unsigned(out, value),
        Value::Signed { value, base: 16, size } => hexadecimal(out, masked(value, size)),
        Value::Signed { value, .. } => signed(out, value),
        Value::Single(value) => general(out, f64::from(value)),
        Value::Double(value) => general(out, value),
        Value::Bool(value) => out.extend_from_slice(if value == 0 { b"false" } else { b"true" }),
        Value::Text(text) => text_value(out, text),
        Value::Bytes(bytes) => {
            for byte in bytes {
                let digit = |value: u8| b"0123456789abcdef"[usize::from(value & 15)];
                out.extend_from_slice(&[digit(byte >> 4), digit(*byte)]);
            }
        }
        Value::Enum(value) => enumeration(out, value),
        Value::Elements(elements) => {
            out.push(b'{');
            for (i, value) in elements.enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                put(out, value);
            }
            out.push(b'}');
        }
    }
}

/// Text as it is where it is one plain word, else in quotes.
#[inline]
fn text_value(out: &mut Vec<u8>, text: &[u8]) {
    if !text.is_empty() && is_word(text) { out.extend_from_slice(text) } else { quoted(out, text) }
}

/// Nothing in it needs quotes.
#[inline]
fn is_word(text: &[u8]) -> bool {
    text.iter().fold(true, |plain, b| plain & PLAIN[usize::from(*b)])
}

/// By byte: it stands in a word without quotes.
static PLAIN: [bool; 256] = {
    let mut plain = [false; 256];
    let mut byte = b'!';
    while byte <= b'~' {
        plain[byte as usize] = !matches!(byte, b'"' | b'\\' | b'\'' | b'=');
        byte += 1;
    }
    plain
};

fn enumeration(out: &mut Vec<u8>, value: EnumValue<'_>) {
    match value.matching().next() {
        Some(label) => text_value(out, label.as_bytes()),
        None if value.signed => signed(out, value.value),
        None => unsigned(out, value.value.cast_unsigned()),
    }
}

//! Lines for people: the kernel's layout, and ours.

use super::escape::{bare, quoted};
use super::number::{Constant, general, hexadecimal, masked, signed, six, unsigned};
use super::time::{TimeOfDay, Zone};
use crate::events::Line;
use lastwords_trace::merge::Event;
use lastwords_trace::schema::{ByteOrder, Channel, EventClass, Field, FieldClass, Schema};
use lastwords_trace::source::Source;
use lastwords_trace::value::{EnumValue, Value, extend, take, take_integer};

const GIGA: i64 = 1_000_000_000;
const LEVELS: [&str; 6] = ["-    ", "ERROR", "WARN ", "INFO ", "DEBUG", "TRACE"];

/// Makes the lines of some sources.
pub(super) struct Lines<'s> {
    plans: Vec<Plan<'s>>,
    kernel: bool,
    time: TimeOfDay,
}

struct Plan<'s> {
    order: ByteOrder,
    channels: Vec<Columns<'s>>,
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
    /// ` provider:name:`.
    name: Constant,
    /// The message, where there is a format string.
    pieces: Vec<Piece>,
    /// ` name=` before each field.
    parts: Vec<(Constant, &'s FieldClass)>,
}

/// A piece of a message.
enum Piece {
    Text(Constant),
    /// The next field.
    Value {
        base16: bool,
    },
}

impl<'s> Lines<'s> {
    pub(super) fn new(sources: &[&'s dyn Source], kernel: bool, zone: &Zone) -> Self {
        let plans = sources.iter().map(|source| plan(*source)).collect();
        Self { plans, kernel, time: TimeOfDay::new(zone) }
    }
}

fn plan<'s>(source: &'s dyn Source) -> Plan<'s> {
    let schema: &Schema = source.schema();
    Plan {
        order: schema.byte_order,
        channels: schema.channels.iter().map(columns).collect(),
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
    bare(&mut name, event.name.as_bytes());
    name.push(b':');
    Class {
        level: LEVELS.get(usize::from(event.level)).copied().unwrap_or(LEVELS[0]),
        name: Constant::new(&name),
        pieces: pieces(&event.format),
        parts: event.fields.iter().map(|field| (prefix(field), &field.class)).collect(),
    }
}

/// ` name=`.
fn prefix(field: &Field) -> Constant {
    let mut text = vec![b' '];
    bare(&mut text, field.name.as_bytes());
    text.push(b'=');
    Constant::new(&text)
}

/// A marker's format string: `{}` stands for a field, `{{` and `}}` for braces.
fn pieces(format: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut text: Vec<u8> = Vec::new();
    let mut rest = format;
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
            let base16 = from[..end].contains(":x") || from[..end].contains(":#x");
            pieces.push(Piece::Text(Constant::new(&std::mem::take(&mut text))));
            pieces.push(Piece::Value { base16 });
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

impl Line for Lines<'_> {
    fn line(&mut self, event: &Event<'_>, out: &mut Vec<u8>) {
        let plan = &self.plans[event.source];
        let columns = &plan.channels[event.channel];
        let class = &columns.classes[event.raw.class];
        let context = event.context();
        let cpu = plan.cpus[event.stream].as_ref();
        if self.kernel {
            kernel_head(out, columns, class, context, plan.order, cpu);
            kernel_time(out, event.nanoseconds);
        } else {
            self.time.put(event.nanoseconds, out);
            own_head(out, columns, class, context, plan.order, cpu);
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
fn kernel_head(
    out: &mut Vec<u8>,
    columns: &Columns<'_>,
    class: &Class<'_>,
    context: &[u8],
    order: ByteOrder,
    stream: Option<&Constant>,
) {
    let name = columns.name.and_then(|place| place.text(context)).unwrap_or(b"<...>");
    let width = if name.is_ascii() { name.len() } else { String::from_utf8_lossy(name).chars().count() };
    blanks(out, 16usize.saturating_sub(width));
    bare(out, name);
    out.push(b'-');
    let begin = out.len();
    match columns.thread.and_then(|place| place.integer(context, order)) {
        Some(id) => signed(out, id),
        None => out.push(b'?'),
    }
    blanks(out, 7usize.saturating_sub(out.len() - begin));
    out.extend_from_slice(b" [");
    cpu(out, columns, context, order, stream);
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

/// ` LEVEL [cpu] comm-tid`, behind the time.
#[inline]
fn own_head(
    out: &mut Vec<u8>,
    columns: &Columns<'_>,
    class: &Class<'_>,
    context: &[u8],
    order: ByteOrder,
    stream: Option<&Constant>,
) {
    let mut text = *b" LEVEL [";
    text[1..6].copy_from_slice(class.level.as_bytes());
    out.extend_from_slice(&text);
    cpu(out, columns, context, order, stream);
    out.push(b']');
    let name = columns.name.and_then(|place| place.text(context));
    let thread = columns.thread.and_then(|place| place.integer(context, order));
    if name.is_some() || thread.is_some() {
        out.push(b' ');
        bare(out, name.unwrap_or_default());
        if let Some(id) = thread {
            out.push(b'-');
            signed(out, id);
        }
    }
}

/// Three digits of the CPU of the stream, else of the context.
#[inline]
fn cpu(out: &mut Vec<u8>, columns: &Columns<'_>, context: &[u8], order: ByteOrder, stream: Option<&Constant>) {
    if let Some(stream) = stream {
        stream.put(out);
        return;
    }
    match columns.cpu.and_then(|place| place.integer(context, order)) {
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
    let mut rest = payload;
    let mut parts = class.parts.iter();
    for piece in &class.pieces {
        match piece {
            Piece::Text(text) => text.put(out),
            Piece::Value { base16 } => match parts.next().and_then(|(_, class)| take(class, &mut rest, order)) {
                Some(value) => in_text(out, value, *base16),
                None => out.extend_from_slice(b"{}"),
            },
        }
    }
    for (prefix, class) in parts {
        if let FieldClass::Integer { size, signed: is_signed, base: 10 } = class {
            let Some(raw) = take_integer(&mut rest, *size, order) else { return };
            prefix.put(out);
            if *is_signed { signed(out, extend(raw, *size)) } else { unsigned(out, raw) }
        } else {
            let Some(value) = take(class, &mut rest, order) else { return };
            prefix.put(out);
            put(out, value);
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
fn text_value(out: &mut Vec<u8>, text: &[u8]) {
    let word = |b: &u8| b.is_ascii_graphic() && !matches!(b, b'"' | b'\\' | b'\'' | b'=');
    if !text.is_empty() && text.iter().all(word) { out.extend_from_slice(text) } else { quoted(out, text) }
}

fn enumeration(out: &mut Vec<u8>, value: EnumValue<'_>) {
    match value.matching().next() {
        Some(label) => text_value(out, label.as_bytes()),
        None if value.signed => signed(out, value.value),
        None => unsigned(out, value.value.cast_unsigned()),
    }
}

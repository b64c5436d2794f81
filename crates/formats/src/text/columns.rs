//! Lines for people: the kernel's layout, and ours.

use super::escape::{bare, quoted};
use super::number::{general, hexadecimal, masked, signed, six, unsigned};
use super::time::{TimeOfDay, Zone};
use crate::events::Line;
use lastwords_trace::merge::Event;
use lastwords_trace::schema::{Channel, EventClass, Schema};
use lastwords_trace::source::Source;
use lastwords_trace::value::{EnumValue, Value, Values};

const GIGA: i64 = 1_000_000_000;
const LEVELS: [&str; 6] = ["-", "ERROR", "WARN", "INFO", "DEBUG", "TRACE"];

/// Makes the lines of some sources.
pub(super) struct Lines<'s> {
    schemas: Vec<&'s Schema>,
    /// By source and stream.
    cpus: Vec<Vec<Option<u32>>>,
    kernel: bool,
    time: TimeOfDay,
}

/// The task that recorded an event, as far as the contexts tell.
#[derive(Default)]
struct Task<'a> {
    name: Option<&'a [u8]>,
    id: Option<i64>,
    cpu: Option<u32>,
}

impl<'s> Lines<'s> {
    pub(super) fn new(sources: &[&'s dyn Source], kernel: bool, zone: &Zone) -> Self {
        Self {
            schemas: sources.iter().map(|s| s.schema()).collect(),
            cpus: sources.iter().map(|s| s.streams().iter().map(|s| s.cpu).collect()).collect(),
            kernel,
            time: TimeOfDay::new(zone),
        }
    }
}

impl Line for Lines<'_> {
    fn line(&mut self, event: &Event<'_>, out: &mut Vec<u8>) {
        let schema = self.schemas[event.source];
        let channel = &schema.channels[event.channel];
        let class = &channel.events[event.raw.class];
        let mut task = task(schema, channel, event);
        task.cpu = self.cpus[event.source][event.stream].or(task.cpu);
        if self.kernel {
            kernel_head(out, &task, class, event.nanoseconds);
        } else {
            self.time.put(event.nanoseconds, out);
            own_head(out, &task, class);
        }
        if class.format.is_empty() {
            for value in Values::new(&class.fields, event.payload(), schema.byte_order) {
                named(out, value.0.name.as_bytes(), value.1);
            }
        } else {
            out.push(b' ');
            message(out, &class.format, Values::new(&class.fields, event.payload(), schema.byte_order));
        }
        if !self.kernel {
            contexts(out, schema, channel, event);
        }
        out.push(b'\n');
    }
}

fn task<'a>(schema: &'a Schema, channel: &'a Channel, event: &Event<'a>) -> Task<'a> {
    let mut task = Task::default();
    for (field, value) in Values::new(&channel.contexts, event.context(), schema.byte_order) {
        match (field.name.as_str(), value) {
            ("procname", Value::Text(name)) => task.name = Some(name),
            ("vtid" | "tid", Value::Signed { value, .. }) => task.id = Some(value),
            ("vpid" | "pid", Value::Signed { value, .. }) => task.id = task.id.or(Some(value)),
            ("cpu", Value::Unsigned { value, .. }) => task.cpu = u32::try_from(value).ok(),
            _ => {}
        }
    }
    task
}

/// The contexts that no column shows.
fn contexts(out: &mut Vec<u8>, schema: &Schema, channel: &Channel, event: &Event<'_>) {
    for (field, value) in Values::new(&channel.contexts, event.context(), schema.byte_order) {
        if !matches!(field.name.as_str(), "procname" | "vtid" | "tid" | "cpu") {
            named(out, field.name.as_bytes(), value);
        }
    }
}

/// `            comm-tid     [cpu] LEVEL secs.usecs: name:`, in the columns of the kernel's `trace`.
fn kernel_head(out: &mut Vec<u8>, task: &Task<'_>, class: &EventClass, nanoseconds: i64) {
    let name = task.name.unwrap_or(b"<...>");
    let width = name.utf8_chunks().map(|c| c.valid().chars().count()).sum::<usize>();
    blanks(out, 16usize.saturating_sub(width));
    bare(out, name);
    out.push(b'-');
    padded(out, 7, |out| match task.id {
        Some(id) => signed(out, id),
        None => out.push(b'?'),
    });
    out.extend_from_slice(b" [");
    cpu(out, task.cpu);
    out.extend_from_slice(b"] ");
    padded(out, 5, |out| out.extend_from_slice(level(class).as_bytes()));
    out.push(b' ');
    signed(out, nanoseconds.div_euclid(GIGA));
    out.push(b'.');
    out.extend_from_slice(&six((nanoseconds.rem_euclid(GIGA) / 1000) as u32));
    out.extend_from_slice(b": ");
    bare(out, class.name.as_bytes());
    out.push(b':');
}

/// ` LEVEL [cpu] comm-tid name:` behind the time.
fn own_head(out: &mut Vec<u8>, task: &Task<'_>, class: &EventClass) {
    out.push(b' ');
    padded(out, 5, |out| out.extend_from_slice(level(class).as_bytes()));
    out.extend_from_slice(b" [");
    cpu(out, task.cpu);
    out.push(b']');
    if task.name.is_some() || task.id.is_some() {
        out.push(b' ');
        bare(out, task.name.unwrap_or_default());
        if let Some(id) = task.id {
            out.push(b'-');
            signed(out, id);
        }
    }
    out.push(b' ');
    bare(out, class.name.as_bytes());
    out.push(b':');
}

fn level(class: &EventClass) -> &'static str {
    LEVELS.get(usize::from(class.level)).copied().unwrap_or("-")
}

fn cpu(out: &mut Vec<u8>, cpu: Option<u32>) {
    match cpu {
        Some(cpu) => {
            let pad: &[u8] = if cpu < 10 {
                b"00"
            } else if cpu < 100 {
                b"0"
            } else {
                b""
            };
            out.extend_from_slice(pad);
            unsigned(out, u64::from(cpu));
        }
        None => out.extend_from_slice(b"---"),
    }
}

/// What `put` appends, blanks behind it up to a width.
fn padded(out: &mut Vec<u8>, width: usize, put: impl FnOnce(&mut Vec<u8>)) {
    let begin = out.len();
    put(out);
    let missing = width.saturating_sub(out.len() - begin);
    blanks(out, missing);
}

fn blanks(out: &mut Vec<u8>, count: usize) {
    out.extend_from_slice(b"                ".get(..count).unwrap_or_default());
}

/// A marker's format string with its fields in place of `{}`; `{{` and `}}` are braces. Fields left over follow by name.
fn message<'a>(out: &mut Vec<u8>, format: &str, mut values: Values<'a>) {
    let mut rest = format;
    while let Some(at) = rest.find(['{', '}']) {
        let (before, from) = rest.split_at(at);
        bare(out, before.as_bytes());
        if from.starts_with("{{") || from.starts_with("}}") {
            out.push(from.as_bytes()[0]);
            rest = &from[2..];
        } else if let Some(end) = from.strip_prefix('{').and_then(|f| f.find('}')) {
            let spec = &from[1..=end];
            match values.next() {
                Some((_, value)) => in_text(out, value, spec.contains(":x") || spec.contains(":#x")),
                None => out.extend_from_slice(b"{}"),
            }
            rest = &from[end + 2..];
        } else {
            out.push(from.as_bytes()[0]);
            rest = &from[1..];
        }
    }
    bare(out, rest.as_bytes());
    for (field, value) in values {
        named(out, field.name.as_bytes(), value);
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

/// ` name=value`.
fn named(out: &mut Vec<u8>, name: &[u8], value: Value<'_>) {
    out.push(b' ');
    bare(out, name);
    out.push(b'=');
    put(out, value);
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

//! Events as JSON lines: docs/JSON.md.

pub mod ctf;

use crate::events::{Line, Outcome, run};
use crate::select::Selection;
use crate::text::number::{signed, unsigned};
use crate::text::time::rfc3339;
use lastwords_bytes::ByteOrder;
use lastwords_ctf::Version;
use lastwords_ctf::names::members;
use lastwords_ctf::{Error, Result};
use lastwords_trace::clock::Rounding;
use lastwords_trace::merge::{Event, Progress};
use lastwords_trace::schema::{EnvValue, Field, FieldClass};
use lastwords_trace::source::Source;
use lastwords_trace::value::{EnumValue, Value, take};
use serde_json::{Map, json};
use std::io::Write;

/// Names the layout of the lines; changes when a reader of the old one would misread.
pub const SCHEMA: &str = "lastwords.events.v1";

const LEVELS: [&str; 6] = ["", "error", "warn", "info", "debug", "trace"];

/// Writes the selected events of `sources`, merged by time, to `out`: a line that describes them, then a line an event.
///
/// # Errors
/// `out` cannot be written.
pub fn write(
    sources: &[&dyn Source],
    selection: &Selection,
    out: &mut dyn Write,
    progress: &mut dyn FnMut(Progress),
) -> Result<Outcome> {
    let head = head(sources);
    out.write_all(head.as_bytes()).map_err(Error::Output)?;
    let mut outcome = run(sources, selection, Rounding::Floor, &mut Lines::new(sources), out, progress)?;
    outcome.totals.bytes += head.len() as u64;
    Ok(outcome)
}

fn head(sources: &[&dyn Source]) -> String {
    let traces: Vec<_> = sources.iter().map(|source| trace(*source)).collect();
    safe(&format!("{}\n", json!({ "schema": SCHEMA, "traces": traces })))
}

fn trace(source: &dyn Source) -> serde_json::Value {
    let schema = source.schema();
    let env: Map<String, serde_json::Value> = schema
        .env
        .iter()
        .map(|(key, value)| match value {
            EnvValue::Text(text) => (key.clone(), json!(text)),
            EnvValue::Integer(number) => (key.clone(), json!(number)),
        })
        .collect();
    let streams: Vec<_> = source
        .streams()
        .iter()
        .map(|s| {
            let channel = schema.channels.get(s.channel).map_or("", |c| c.name.as_str());
            json!({ "channel": channel, "instance": s.instance, "cpu": s.cpu })
        })
        .collect();
    let clock = &schema.clock;
    json!({
        "name": schema.name,
        "uuid": lastwords_ctf::uuid_text(&schema.uuid),
        "env": env,
        "clock": {
            "name": clock.name,
            "frequency": clock.frequency,
            "offset_seconds": clock.offset_seconds,
            "offset_ticks": clock.offset_ticks,
            "absolute": clock.absolute,
        },
        "streams": streams,
        "losses": source.evidence().has_losses(),
    })
}

/// A field and what stands before its value: `,"name":`.
struct Part<'s> {
    prefix: String,
    class: &'s FieldClass,
}

struct Class<'s> {
    /// From the channel's name to the level.
    head: String,
    parts: Vec<Part<'s>>,
}

struct Plan<'s> {
    order: ByteOrder,
    /// By channel.
    contexts: Vec<Vec<Part<'s>>>,
    /// By channel and class.
    classes: Vec<Vec<Class<'s>>>,
    cpus: Vec<Option<u32>>,
}

struct Lines<'s> {
    plans: Vec<Plan<'s>>,
}

impl<'s> Lines<'s> {
    fn new(sources: &[&'s dyn Source]) -> Self {
        Self { plans: sources.iter().map(|source| plan(*source)).collect() }
    }
}

fn plan<'s>(source: &'s dyn Source) -> Plan<'s> {
    let schema = source.schema();
    let mut classes = Vec::new();
    for channel in &schema.channels {
        let of_channel = channel.events.iter().map(|event| {
            let mut head = format!(",\"channel\":{},\"event\":{}", json!(channel.name), json!(event.name));
            if let Some(level) = LEVELS.get(usize::from(event.level)).filter(|level| !level.is_empty()) {
                head.push_str(&format!(",\"level\":\"{level}\""));
            }
            if !event.format.is_empty() {
                head.push_str(&format!(",\"format\":{}", json!(event.format)));
            }
            Class { head: safe(&head), parts: parts(&event.fields) }
        });
        classes.push(of_channel.collect());
    }
    Plan {
        order: schema.byte_order,
        contexts: schema.channels.iter().map(|c| parts(&c.contexts)).collect(),
        classes,
        cpus: source.streams().iter().map(|s| s.cpu).collect(),
    }
}

fn parts(fields: &[Field]) -> Vec<Part<'_>> {
    let part = |(i, member): (usize, lastwords_ctf::names::Member<'_>)| {
        let comma = if i == 0 { "" } else { "," };
        safe(&format!("{comma}{}:", json!(member.name)))
    };
    let prefixes = members(fields, Version::V2).into_iter().enumerate().map(part);
    prefixes.zip(fields).map(|(prefix, field)| Part { prefix, class: &field.class }).collect()
}

impl Line for Lines<'_> {
    fn line(&mut self, event: &Event<'_>, out: &mut Vec<u8>) {
        let plan = &self.plans[event.source];
        let class = &plan.classes[event.channel][event.raw.class];
        out.extend_from_slice(b"{\"time\":\"");
        rfc3339(event.nanoseconds, out);
        out.extend_from_slice(b"\",\"ticks\":");
        unsigned(out, event.raw.clock);
        out.extend_from_slice(b",\"trace\":");
        unsigned(out, event.source as u64);
        out.extend_from_slice(b",\"stream\":");
        unsigned(out, event.stream as u64);
        if let Some(cpu) = plan.cpus[event.stream] {
            out.extend_from_slice(b",\"cpu\":");
            unsigned(out, u64::from(cpu));
        }
        out.extend_from_slice(class.head.as_bytes());
        let contexts = &plan.contexts[event.channel];
        if !contexts.is_empty() {
            out.extend_from_slice(b",\"context\":{");
            fields(out, contexts, event.context(), plan.order);
            out.push(b'}');
        }
        out.extend_from_slice(b",\"fields\":{");
        fields(out, &class.parts, event.payload(), plan.order);
        out.extend_from_slice(b"}}\n");
    }
}

fn fields(out: &mut Vec<u8>, parts: &[Part<'_>], bytes: &[u8], order: ByteOrder) {
    let mut rest = bytes;
    for part in parts {
        let Some(value) = take(part.class, &mut rest, order) else { return };
        out.extend_from_slice(part.prefix.as_bytes());
        put(out, value);
    }
}

fn put(out: &mut Vec<u8>, value: Value<'_>) {
    match value {
        Value::Unsigned { value, .. } => unsigned(out, value),
        Value::Signed { value, .. } => signed(out, value),
        Value::Single(value) => float(out, value.is_finite(), value),
        Value::Double(value) => float(out, value.is_finite(), value),
        Value::Bool(value) => out.extend_from_slice(if value == 0 { b"false" } else { b"true" }),
        Value::Text(bytes) => text(out, bytes),
        Value::Bytes(bytes) => octets(out, bytes),
        Value::Enum(value) => enumeration(out, value),
        Value::Elements(elements) => {
            out.push(b'[');
            for (i, value) in elements.enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                put(out, value);
            }
            out.push(b']');
        }
    }
}

/// The shortest digits that read back the same; what is not a number, as a string: `"NaN"`, `"inf"`, `"-inf"`.
fn float(out: &mut Vec<u8>, finite: bool, value: impl std::fmt::Debug) {
    let quote = if finite { "" } else { "\"" };
    let _ = write!(out, "{quote}{value:?}{quote}");
}

fn enumeration(out: &mut Vec<u8>, value: EnumValue<'_>) {
    out.extend_from_slice(b"{\"value\":");
    if value.signed {
        signed(out, value.value)
    } else {
        unsigned(out, value.value.cast_unsigned())
    }
    out.extend_from_slice(b",\"label\":");
    match value.matching().next() {
        Some(label) => text(out, label.as_bytes()),
        None => out.extend_from_slice(b"null"),
    }
    out.push(b'}');
}

pub(crate) fn octets(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'"');
    for byte in bytes {
        out.extend_from_slice(&hexadecimal(*byte));
    }
    out.push(b'"');
}

/// A JSON string; bytes that are not UTF-8 become U+FFFD. Beyond what JSON asks, everything that could steer a terminal
/// is escaped.
pub(crate) fn text(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    // Most text needs nothing.
    let plain = text.iter().position(|byte| !matches!(byte, b' '..=b'~') || matches!(byte, b'"' | b'\\'));
    let (plain, rest) = text.split_at(plain.unwrap_or(text.len()));
    out.extend_from_slice(plain);
    for chunk in rest.utf8_chunks() {
        for c in chunk.valid().chars() {
            character(out, c);
        }
        if !chunk.invalid().is_empty() {
            out.extend_from_slice("\u{fffd}".as_bytes());
        }
    }
    out.push(b'"');
}

/// Serialized JSON in which what could steer a terminal, and JSON lets pass, is escaped. Line feeds stay.
#[must_use]
pub fn safe(json: &str) -> String {
    let mut out = Vec::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '\n' | '"' | '\\' => out.push(c as u8),
            c => character(&mut out, c),
        }
    }
    String::from_utf8(out).unwrap_or_default()
}

fn character(out: &mut Vec<u8>, c: char) {
    let short = match c {
        '"' | '\\' => c as u8,
        '\n' => b'n',
        '\r' => b'r',
        '\t' => b't',
        _ => 0,
    };
    if short != 0 {
        out.extend_from_slice(&[b'\\', short]);
    } else if lastwords_ctf::names::is_unsafe(c) {
        let [high, low] = (c as u16).to_be_bytes();
        out.extend_from_slice(b"\\u");
        out.extend_from_slice(&hexadecimal(high));
        out.extend_from_slice(&hexadecimal(low));
    } else {
        out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
    }
}

fn hexadecimal(byte: u8) -> [u8; 2] {
    let digit = |value: u8| b"0123456789abcdef"[usize::from(value & 15)];
    [digit(byte >> 4), digit(byte)]
}

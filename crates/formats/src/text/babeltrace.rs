//! Lines as babeltrace2's `sink.text.pretty` prints them.

use super::escape::quoted;
use super::number::{Constant, general, hexadecimal, masked, signed, unsigned};
use super::time::{Stamp, Zone};
use crate::events::Line;
use lastwords_bytes::ByteOrder;
use lastwords_ctf::Version;
use lastwords_ctf::names::{members, plain};
use lastwords_trace::merge::Event;
use lastwords_trace::schema::{EnvValue, Field, FieldClass, Schema};
use lastwords_trace::source::Source;
use lastwords_trace::value::{Elements, EnumValue, Value, extend, take, take_integer};

/// A field and the text before it.
struct Part<'s> {
    /// ` }, { name = ` (the brace closes the scope before), or `, name = `; for a counted field, its length's.
    prefix: Constant,
    /// Counted fields: `, name = `.
    second: Option<Constant>,
    class: &'s FieldClass,
}

struct Class<'s> {
    /// `hostname provider:name: { cpu_id = `.
    head: Constant,
    parts: Vec<Part<'s>>,
}

struct Channel<'s> {
    contexts: Vec<Part<'s>>,
    classes: Vec<Class<'s>>,
}

struct Plan<'s> {
    order: ByteOrder,
    channels: Vec<Channel<'s>>,
    /// By stream.
    cpus: Vec<Constant>,
}

/// Makes the lines of some sources.
pub(super) struct Lines<'s> {
    plans: Vec<Plan<'s>>,
    version: Version,
    stamp: Stamp,
}

impl<'s> Lines<'s> {
    pub(super) fn new(sources: &[&'s dyn Source], version: Version, zone: &Zone) -> Self {
        let plans = sources.iter().map(|source| plan(*source, version)).collect();
        Self { plans, version, stamp: Stamp::new(zone) }
    }
}

fn plan<'s>(source: &'s dyn Source, version: Version) -> Plan<'s> {
    let schema = source.schema();
    let head = header(schema);
    let class = |event: &'s lastwords_trace::schema::EventClass| {
        let mut text = head.clone();
        text.extend_from_slice(plain(&event.name).as_bytes());
        text.extend_from_slice(b": { cpu_id = ");
        Class { head: Constant::new(&text), parts: parts(&event.fields, version) }
    };
    let channel = |channel: &'s lastwords_trace::schema::Channel| Channel {
        contexts: parts(&channel.contexts, version),
        classes: channel.events.iter().map(class).collect(),
    };
    Plan {
        order: schema.byte_order,
        channels: schema.channels.iter().map(channel).collect(),
        cpus: source.streams().iter().map(|s| cpu(s.cpu)).collect(),
    }
}

fn cpu(cpu: Option<u32>) -> Constant {
    Constant::new(cpu.unwrap_or(u32::MAX).to_string().as_bytes())
}

/// What stands before the name: `hostname:procname:(vpid) `, whichever the environment has.
fn header(schema: &Schema) -> Vec<u8> {
    let mut text: Vec<u8> = Vec::new();
    for key in ["hostname", "procname", "vpid"] {
        let piece = match schema.env.get(key) {
            Some(EnvValue::Text(value)) if key != "vpid" => plain(value),
            Some(EnvValue::Integer(value)) if key == "vpid" => format!("({value})"),
            _ => continue,
        };
        if !text.is_empty() {
            text.push(b':');
        }
        text.extend_from_slice(piece.as_bytes());
    }
    if !text.is_empty() {
        text.push(b' ');
    }
    text
}

fn parts(fields: &[Field], version: Version) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    for (i, member) in members(fields, version).into_iter().enumerate() {
        let comma = if i == 0 { " }, { " } else { ", " };
        let name = member.name;
        let (prefix, second) = match member.length {
            Some(length) => (format!("{comma}{length} = "), Some(Constant::new(format!(", {name} = ").as_bytes()))),
            None => (format!("{comma}{name} = "), None),
        };
        parts.push(Part { prefix: Constant::new(prefix.as_bytes()), second, class: &member.field.class });
    }
    parts
}

impl Line for Lines<'_> {
    #[inline]
    fn line(&mut self, event: &Event<'_>, out: &mut Vec<u8>) {
        self.stamp.go(event.nanoseconds);
        self.stamp.put(out);
        let plan = &self.plans[event.source];
        let channel = &plan.channels[event.channel];
        let class = &channel.classes[event.raw.class];
        class.head.put(out);
        plan.cpus[event.stream].put(out);
        let values = Values { order: plan.order, version: self.version };
        if !channel.contexts.is_empty() {
            values.scope(out, &channel.contexts, event.context());
        }
        values.scope(out, &class.parts, event.payload());
        out.extend_from_slice(b" }\n");
    }
}

#[derive(Clone, Copy)]
struct Values {
    order: ByteOrder,
    version: Version,
}

impl Values {
    #[inline]
    fn scope(self, out: &mut Vec<u8>, parts: &[Part<'_>], bytes: &[u8]) {
        let mut rest = bytes;
        if parts.is_empty() {
            out.extend_from_slice(b" }, {");
        }
        for part in parts {
            if let FieldClass::Integer { size, signed: is_signed, base: 10 } = part.class {
                let Some(raw) = take_integer(&mut rest, *size, self.order) else { break };
                part.prefix.put(out);
                if *is_signed {
                    signed(out, extend(raw, *size))
                } else {
                    unsigned(out, raw)
                }
                continue;
            }
            let Some(value) = take(part.class, &mut rest, self.order) else { break };
            part.prefix.put(out);
            if let Some(second) = &part.second {
                unsigned(out, count(&value) as u64);
                second.put(out);
            }
            self.value(out, value);
        }
    }

    #[inline]
    fn value(self, out: &mut Vec<u8>, value: Value<'_>) {
        match value {
            Value::Unsigned { value, base: 16 } => hexadecimal(out, value),
            Value::Unsigned { value, .. } => unsigned(out, value),
            Value::Signed { value, base: 16, size } => hexadecimal(out, masked(value, size)),
            Value::Signed { value, .. } => signed(out, value),
            Value::Single(value) => general(out, f64::from(value)),
            Value::Double(value) => general(out, value),
            Value::Bool(value) if self.version == Version::V1_8 => unsigned(out, u64::from(value)),
            Value::Bool(value) => out.extend_from_slice(if value == 0 { b"false" } else { b"true" }),
            Value::Text(text) => quoted(out, text),
            Value::Bytes(bytes) => octets(out, bytes),
            Value::Enum(value) => self.enumeration(out, value),
            Value::Elements(elements) => self.elements(out, elements),
        }
    }

    fn elements(self, out: &mut Vec<u8>, elements: Elements<'_>) {
        out.push(b'[');
        for (i, value) in elements.enumerate() {
            index(out, i);
            self.value(out, value);
        }
        out.extend_from_slice(b" ]");
    }

    fn enumeration(self, out: &mut Vec<u8>, value: EnumValue<'_>) {
        let number = |out: &mut Vec<u8>| {
            if value.signed { signed(out, value.value) } else { unsigned(out, value.value.cast_unsigned()) }
        };
        if value.labels.is_empty() {
            return number(out);
        }
        out.extend_from_slice(b"( ");
        let first = value.matching().next();
        match first {
            None => out.extend_from_slice(b"<unknown>"),
            Some(label) if value.matching().nth(1).is_none() => quoted(out, label.as_bytes()),
            Some(_) => self.labels(out, value),
        }
        out.extend_from_slice(b" : container = ");
        number(out);
        out.extend_from_slice(b" )");
    }
    /// Several labels of one value.
    fn labels(self, out: &mut Vec<u8>, value: EnumValue<'_>) {
        let mut labels: Vec<&str> = value.matching().collect();
        let (open, close): (&[u8], &[u8]) = match self.version {
            Version::V1_8 => (b"", b""),
            Version::V2 => (b"{ ", b" }"),
        };
        if self.version == Version::V2 {
            labels.sort_unstable();
        }
        out.extend_from_slice(open);
        for (i, label) in labels.into_iter().enumerate() {
            if i > 0 {
                out.extend_from_slice(b", ");
            }
            quoted(out, label.as_bytes());
        }
        out.extend_from_slice(close);
    }
}

fn count(value: &Value<'_>) -> usize {
    match value {
        Value::Bytes(bytes) => bytes.len(),
        Value::Elements(elements) => elements.len(),
        _ => 0,
    }
}

fn octets(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'[');
    for (i, byte) in bytes.iter().enumerate() {
        index(out, i);
        hexadecimal(out, u64::from(*byte));
    }
    out.extend_from_slice(b" ]");
}

fn index(out: &mut Vec<u8>, i: usize) {
    out.extend_from_slice(if i == 0 { b" [" } else { b", [" });
    unsigned(out, i as u64);
    out.extend_from_slice(b"] = ");
}

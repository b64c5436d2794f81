//! CTF 2 metadata: a JSON text sequence (RFC 7464). Layout: CTF2-SPEC-2.0, sections 4 and 5.

use super::names::{Member, members, plain};
use super::{Version, loglevel, uuid_text};
use crate::error::{Error, Result};
use lastwords_trace::clock::Clock;
use lastwords_trace::schema::{ByteOrder, Channel, EnvValue, EventClass, Field, FieldClass, Schema};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Id of the only clock class.
const CLOCK: &str = "clock";

/// The text of the metadata file.
pub(super) fn metadata(schema: &Schema, env: &BTreeMap<String, EnvValue>) -> Result<String> {
    let mut text = String::new();
    let shapes = Shapes { order: schema.byte_order };
    push(&mut text, &json!({ "type": "preamble", "version": 2, "uuid": schema.uuid }));
    push(&mut text, &trace_class(schema, env, shapes));
    push(&mut text, &clock_class(&schema.clock));
    for channel in &schema.channels {
        push(&mut text, &stream_class(channel, shapes)?);
        for event in channel.classes() {
            push(&mut text, &event_class(channel.id, event, shapes)?);
        }
    }
    Ok(text)
}

fn push(text: &mut String, fragment: &Value) {
    text.push('\u{1e}');
    text.push_str(&fragment.to_string());
    text.push('\n');
}

fn trace_class(schema: &Schema, env: &BTreeMap<String, EnvValue>, shapes: Shapes) -> Value {
    let header = structure(vec![
        ("magic", shapes.role(32, "packet-magic-number")),
        ("uuid", json!({ "type": "static-length-blob", "length": 16, "roles": ["metadata-stream-uuid"] })),
        ("stream_id", shapes.role(32, "data-stream-class-id")),
        ("stream_instance_id", shapes.role(64, "data-stream-id")),
    ]);
    let environment: Map<String, Value> = env
        .iter()
        .map(|(key, value)| match value {
            EnvValue::Text(value) => (key.clone(), json!(plain(value))),
            EnvValue::Integer(value) => (key.clone(), json!(value)),
        })
        .collect();
    json!({
        "type": "trace-class",
        "name": plain(&schema.name),
        "uid": uuid_text(&schema.uuid),
        "environment": environment,
        "packet-header-field-class": header,
    })
}

fn clock_class(clock: &Clock) -> Value {
    let frequency = clock.frequency.max(1);
    let seconds = clock.offset_seconds.saturating_add_unsigned(clock.offset_ticks / frequency);
    let mut class = json!({
        "type": "clock-class",
        "id": CLOCK,
        "name": plain(&clock.name),
        "description": plain(&clock.description),
        "frequency": frequency,
        "offset-from-origin": { "seconds": seconds, "cycles": clock.offset_ticks % frequency },
    });
    if clock.absolute {
        class["origin"] = json!("unix-epoch");
    }
    class
}

fn stream_class(channel: &Channel, shapes: Shapes) -> Result<Value> {
    let mut class = json!({
        "type": "data-stream-class",
        "id": channel.id,
        "default-clock-class-id": CLOCK,
        "packet-context-field-class": shapes.packet_context(),
        "event-record-header-field-class": shapes.event_header(),
    });
    if !channel.name.is_empty() {
        class["name"] = json!(plain(&channel.name));
    }
    if !channel.contexts.is_empty() {
        let contexts = shapes
            .fields(&channel.contexts, "event-record-common-context")
            .map_err(|what| Error::Schema(format!("channel {}, context {what}", channel.id)))?;
        class["event-record-common-context-field-class"] = contexts;
    }
    Ok(class)
}

fn event_class(stream: u32, event: &EventClass, shapes: Shapes) -> Result<Value> {
    let payload = shapes
        .fields(&event.fields, "event-record-payload")
        .map_err(|what| Error::Schema(format!("channel {stream}, event {:?}, field {what}", event.name)))?;
    let mut class = json!({
        "type": "event-record-class",
        "data-stream-class-id": stream,
        "id": event.id,
        "name": plain(&event.name),
        "payload-field-class": payload,
    });
    let mut attributes = Map::new();
    if let Some((_, level)) = loglevel(event.level) {
        attributes.insert("babeltrace.org,2020".to_owned(), json!({ "log-level": level }));
    }
    let own: Map<String, Value> = [("format", &event.format), ("location", &event.location)]
        .into_iter()
        .filter(|(_, text)| !text.is_empty())
        .map(|(key, text)| (key.to_owned(), json!(text)))
        .collect();
    if !own.is_empty() {
        attributes.insert("lastwords".to_owned(), Value::Object(own));
    }
    if !attributes.is_empty() {
        class["attributes"] = Value::Object(attributes);
    }
    Ok(class)
}

fn structure(members: Vec<(&str, Value)>) -> Value {
    let members: Vec<Value> =
        members.into_iter().map(|(name, class)| json!({ "name": name, "field-class": class })).collect();
    json!({ "type": "structure", "minimum-alignment": 8, "member-classes": members })
}

/// Makes field classes of one byte order.
#[derive(Debug, Clone, Copy)]
struct Shapes {
    order: ByteOrder,
}

impl Shapes {
    fn order(self) -> &'static str {
        match self.order {
            ByteOrder::Little => "little-endian",
            ByteOrder::Big => "big-endian",
        }
    }

    fn unsigned(self, bits: u32) -> Value {
        json!({
            "type": "fixed-length-unsigned-integer",
            "length": bits,
            "byte-order": self.order(),
            "alignment": if bits.is_multiple_of(8) { 8 } else { 1 },
        })
    }

    fn role(self, bits: u32, role: &str) -> Value {
        let mut class = self.unsigned(bits);
        class["roles"] = json!([role]);
        class
    }

    fn packet_context(self) -> Value {
        structure(vec![
            ("timestamp_begin", self.role(64, "default-clock-timestamp")),
            ("timestamp_end", self.role(64, "packet-end-default-clock-timestamp")),
            ("content_size", self.role(64, "packet-content-length")),
            ("packet_size", self.role(64, "packet-total-length")),
            ("packet_seq_num", self.role(64, "packet-sequence-number")),
            ("events_discarded", self.role(64, "discarded-event-record-counter-snapshot")),
            ("cpu_id", self.unsigned(32)),
        ])
    }

    fn event_header(self) -> Value {
        let id = || ("id", self.role(16, "event-record-class-id"));
        let size = || ("payload_size", self.unsigned(32));
        let clock = ("timestamp", self.role(64, "default-clock-timestamp"));
        let option = |from: u32, to: u32, members| json!({ "selector-field-ranges": [[from, to]], "field-class": structure(members) });
        let forms = json!({
            "type": "variant",
            "selector-field-location": { "origin": "event-record-header", "path": ["id"] },
            "options": [
                option(0, 28, Vec::new()),
                option(29, 29, vec![id(), size(), clock]),
                option(30, 30, vec![id(), size()]),
                option(31, 31, vec![id()]),
            ],
        });
        structure(vec![
            ("id", self.role(5, "event-record-class-id")),
            ("timestamp", self.role(27, "default-clock-timestamp")),
            ("v", forms),
        ])
    }

    /// The structure of the fields; the error is the name of one that cannot be.
    fn fields(self, fields: &[Field], scope: &str) -> std::result::Result<Value, String> {
        let members = members(fields, Version::V2);
        let mut classes = Vec::new();
        for member in &members {
            if let Some(length) = &member.length {
                classes.push((length.as_str(), self.unsigned(32)));
            }
            let class = self.class(member, scope).ok_or_else(|| format!("{:?}", member.field.name))?;
            classes.push((member.name.as_str(), class));
        }
        Ok(structure(classes))
    }

    fn class(self, member: &Member<'_>, scope: &str) -> Option<Value> {
        let counted = |element: Value| {
            json!({
                "type": "dynamic-length-array",
                "length-field-location": { "origin": scope, "path": [member.length] },
                "element-field-class": element,
            })
        };
        Some(match &member.field.class {
            FieldClass::String => json!({ "type": "null-terminated-string" }),
            FieldClass::Text { size } => json!({ "type": "static-length-string", "length": size }),
            FieldClass::Bytes => counted(self.scalar(&FieldClass::Integer { size: 1, signed: false, base: 16 })?),
            FieldClass::Sequence(element) => counted(self.scalar(element)?),
            FieldClass::Array { count, element } => json!({
                "type": "static-length-array",
                "length": count,
                "element-field-class": self.scalar(element)?,
            }),
            class => self.scalar(class)?,
        })
    }

    fn scalar(self, class: &FieldClass) -> Option<Value> {
        if !class.is_scalar() {
            return None;
        }
        let bits = class.fixed_size()? * 8;
        let (kind, rest) = match class {
            FieldClass::Integer { signed, base, .. } => {
                (integer_kind(*signed), json!({ "preferred-display-base": if *base == 16 { 16 } else { 10 } }))
            }
            FieldClass::Enum { signed, labels, .. } => (integer_kind(*signed), mappings(*signed, labels)),
            FieldClass::Float { .. } => ("fixed-length-floating-point-number", json!({})),
            _ => ("fixed-length-boolean", json!({})),
        };
        let mut class = json!({ "type": kind, "length": bits, "byte-order": self.order(), "alignment": 8 });
        if let (Value::Object(class), Value::Object(rest)) = (&mut class, rest) {
            class.extend(rest);
        }
        Some(class)
    }
}

fn integer_kind(signed: bool) -> &'static str {
    if signed { "fixed-length-signed-integer" } else { "fixed-length-unsigned-integer" }
}

/// Labels and the values they stand for; nothing where there are none.
fn mappings(signed: bool, labels: &[(i64, String)]) -> Value {
    let mut ranges: Map<String, Value> = Map::new();
    for (value, label) in labels {
        let value = if signed { json!(value) } else { json!(value.cast_unsigned()) };
        if let Value::Array(list) = ranges.entry(label.clone()).or_insert_with(|| json!([])) {
            list.push(json!([value, value]));
        }
    }
    if ranges.is_empty() { json!({}) } else { json!({ "mappings": ranges }) }
}

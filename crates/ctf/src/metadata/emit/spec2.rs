//! CTF 2 metadata of any trace class: a JSON text sequence (RFC 7464). Layout: CTF2-SPEC-2.0,
//! sections 4 and 5.

use crate::names::plain;
use lastwords_bytes::ByteOrder;
use lastwords_trace::class::{
    Attributes, Bits, Clock, Encoding, EventClass, Field, FieldClass, Identity, Integer, Length,
    Mapping, Origin, Path, Range, Role, StreamClass, Struct, Text, TraceClass, Variant,
};
use lastwords_trace::schema::EnvValue;
use serde_json::{Map, Value, json};

/// Returns the text of the metadata file.
pub(super) fn metadata(class: &TraceClass) -> String {
    let mut text = String::new();
    let mut preamble = json!({ "type": "preamble", "version": 2 });
    set(&mut preamble, "uuid", class.uuid.map(|uuid| json!(uuid)));
    push(&mut text, &preamble);
    push(&mut text, &trace_class(class));
    class.clocks.iter().for_each(|clock| push(&mut text, &clock_class(clock)));
    for stream in &class.streams {
        push(&mut text, &stream_class(stream, &class.clocks));
        stream.events.iter().for_each(|event| push(&mut text, &event_class(stream.id, event)));
    }
    text
}

fn push(text: &mut String, fragment: &Value) {
    text.push('\u{1e}');
    text.push_str(&fragment.to_string());
    text.push('\n');
}

/// Sets a property of an object, if there is a value.
fn set(object: &mut Value, key: &str, value: impl Into<Option<Value>>) {
    if let (Value::Object(map), Some(value)) = (object, value.into()) {
        map.insert(key.to_owned(), value);
    }
}

/// Returns the value of a text, or none if it is empty.
fn not_empty(text: &str) -> Option<Value> {
    (!text.is_empty()).then(|| json!(text))
}

/// Returns the object that is a property of another. It is created if it does not exist.
fn entry<'a>(object: &'a mut Value, key: &str) -> &'a mut Value {
    if !object.get(key).is_some_and(Value::is_object) {
        set(object, key, json!({}));
    }
    match object {
        Value::Object(map) => map.entry(key).or_insert_with(|| json!({})),
        other => other,
    }
}

/// Adds attributes to a fragment if there are any and they are JSON.
fn attach(fragment: &mut Value, attributes: &Attributes) {
    if let Ok(Value::Object(map)) = serde_json::from_str(attributes)
        && !map.is_empty()
    {
        set(fragment, "attributes", Value::Object(map));
    }
}

fn identify(fragment: &mut Value, identity: &Identity) {
    let parts =
        [("namespace", &identity.namespace), ("name", &identity.name), ("uid", &identity.uid)];
    for (key, part) in parts {
        set(fragment, key, part.as_ref().map(|part| json!(plain(part))));
    }
}

fn trace_class(class: &TraceClass) -> Value {
    let environment: Map<String, Value> = class
        .env
        .iter()
        .map(|(key, value)| match value {
            EnvValue::Text(value) => (key.clone(), json!(plain(value))),
            EnvValue::Integer(value) => (key.clone(), json!(value)),
        })
        .collect();
    let mut fragment = json!({ "type": "trace-class", "environment": environment });
    identify(&mut fragment, &class.identity);
    set(&mut fragment, "packet-header-field-class", class.header.as_ref().map(structure));
    attach(&mut fragment, &class.attributes);
    fragment
}

fn clock_class(clock: &Clock) -> Value {
    let frequency = clock.frequency.max(1);
    let seconds = clock
        .offset_seconds
        .saturating_add_unsigned(clock.offset_cycles.checked_div(frequency).unwrap_or(0));
    let mut fragment = json!({
        "type": "clock-class",
        "id": clock.id,
        "description": plain(&clock.description),
        "frequency": frequency,
        "offset-from-origin": { "seconds": seconds, "cycles": clock.offset_cycles.checked_rem(frequency).unwrap_or(0) },
    });
    identify(&mut fragment, &clock.identity);
    match &clock.origin {
        Origin::UnixEpoch => set(&mut fragment, "origin", json!("unix-epoch")),
        Origin::Unknown => {}
        Origin::Custom(identity) => {
            let mut origin = json!({});
            identify(&mut origin, identity);
            set(&mut fragment, "origin", origin);
        }
    }
    for (key, of) in [("precision", clock.precision), ("accuracy", clock.accuracy)] {
        set(&mut fragment, key, of.map(|of| json!(of)));
    }
    attach(&mut fragment, &clock.attributes);
    fragment
}

fn stream_class(class: &StreamClass, clocks: &[Clock]) -> Value {
    let mut fragment = json!({ "type": "data-stream-class", "id": class.id });
    let clock = class.clock.and_then(|at| clocks.get(at));
    set(&mut fragment, "default-clock-class-id", clock.map(|clock| json!(clock.id)));
    identify(&mut fragment, &class.identity);
    set(&mut fragment, "name", not_empty(&plain(&class.name)));
    let scopes = [
        ("packet-context-field-class", &class.packet_context),
        ("event-record-header-field-class", &class.event_header),
        ("event-record-common-context-field-class", &class.common_context),
    ];
    put_scopes(&mut fragment, &scopes);
    attach(&mut fragment, &class.attributes);
    fragment
}

fn put_scopes(fragment: &mut Value, scopes: &[(&str, &Option<Struct>)]) {
    for (key, of) in scopes {
        set(fragment, key, of.as_ref().map(structure));
    }
}

fn event_class(stream: u64, class: &EventClass) -> Value {
    let mut fragment =
        json!({ "type": "event-record-class", "data-stream-class-id": stream, "id": class.id });
    identify(&mut fragment, &class.identity);
    set(&mut fragment, "name", class.name.as_ref().map(|name| json!(plain(name))));
    let scopes = [
        ("specific-context-field-class", &class.specific_context),
        ("payload-field-class", &class.payload),
    ];
    put_scopes(&mut fragment, &scopes);
    attach(&mut fragment, &class.attributes);
    let known = [
        ("log-level", class.log_level.map(|level| json!(level.name()))),
        ("emf-uri", not_empty(&class.emf_uri)),
    ];
    for (key, value) in known {
        if let Some(value) = value {
            let own = entry(entry(&mut fragment, "attributes"), "babeltrace.org,2020");
            set(own, key, value);
        }
    }
    fragment
}

fn structure(of: &Struct) -> Value {
    let member = |field: &Field| {
        let mut member = json!({ "name": field.name, "field-class": field_class(&field.class) });
        attach(&mut member, &field.attributes);
        member
    };
    let members: Vec<Value> = of.fields.iter().map(member).collect();
    let mut fragment = json!({ "type": "structure", "member-classes": members });
    set(&mut fragment, "minimum-alignment", alignment(of.alignment));
    attach(&mut fragment, &of.attributes);
    fragment
}

/// Returns the value of an alignment, or none if it is that of every field.
fn alignment(bits: u64) -> Option<Value> {
    (bits > 1).then(|| json!(bits))
}

fn field_class(class: &FieldClass) -> Value {
    match class {
        FieldClass::Integer(integer) => {
            let mut fragment = bits(kind("fixed-length", integer.signed), integer.bits);
            describe(&mut fragment, integer);
            fragment
        }
        FieldClass::Variable(integer) => {
            let mut fragment = json!({ "type": kind("variable-length", integer.signed) });
            describe(&mut fragment, integer);
            fragment
        }
        FieldClass::Bool(of) => bits("fixed-length-boolean".into(), *of),
        FieldClass::BitArray(of) => bits("fixed-length-bit-array".into(), *of),
        FieldClass::BitMap(of, flags) => {
            let mut fragment = bits("fixed-length-bit-map".into(), *of);
            set(&mut fragment, "flags", mappings(flags));
            fragment
        }
        FieldClass::Float(float) => {
            let mut fragment = bits("fixed-length-floating-point-number".into(), float.bits);
            attach(&mut fragment, &float.attributes);
            fragment
        }
        FieldClass::Text(of) => text(of),
        FieldClass::Blob(blob) => {
            let mut fragment = lengthy("blob", &blob.length);
            set(&mut fragment, "media-type", not_empty(&blob.media_type));
            let roles = blob.is_uuid.then(|| json!(["metadata-stream-uuid"]));
            set(&mut fragment, "roles", roles);
            attach(&mut fragment, &blob.attributes);
            fragment
        }
        FieldClass::Struct(of) => structure(of),
        FieldClass::Array(array) => {
            let mut fragment = lengthy("array", &array.length);
            set(&mut fragment, "element-field-class", field_class(&array.element));
            set(&mut fragment, "minimum-alignment", alignment(array.alignment));
            attach(&mut fragment, &array.attributes);
            fragment
        }
        FieldClass::Variant(of) => variant(of),
        FieldClass::Optional(of) => {
            let mut fragment = json!({
                "type": "optional",
                "selector-field-location": location(&of.selector),
                "field-class": field_class(&of.class),
            });
            let ranges = of.ranges.as_deref().map(ranges);
            set(&mut fragment, "selector-field-ranges", ranges);
            attach(&mut fragment, &of.attributes);
            fragment
        }
    }
}

fn kind(length: &str, signed: bool) -> String {
    format!("{length}-{}-integer", if signed { "signed" } else { "unsigned" })
}

fn bits(kind: String, of: Bits) -> Value {
    let mut fragment = json!({
        "type": kind,
        "length": of.length,
        "byte-order": match of.order {
            ByteOrder::Little => "little-endian",
            ByteOrder::Big => "big-endian",
        },
        "alignment": of.alignment,
    });
    let reversed = match of.order {
        ByteOrder::Little => "last-to-first",
        ByteOrder::Big => "first-to-last",
    };
    set(&mut fragment, "bit-order", of.reversed.then(|| json!(reversed)));
    fragment
}

fn describe(fragment: &mut Value, integer: &Integer) {
    let base = Some(integer.base).filter(|base| matches!(base, 2 | 8 | 16));
    set(fragment, "preferred-display-base", base.map(|base| json!(base)));
    let names: Vec<&str> = integer.roles.iter().map(|role| role_name(*role)).collect();
    set(fragment, "roles", (!names.is_empty()).then(|| json!(names)));
    let labels = (!integer.mappings.is_empty()).then(|| mappings(&integer.mappings));
    set(fragment, "mappings", labels);
    attach(fragment, &integer.attributes);
}

fn role_name(role: Role) -> &'static str {
    match role {
        Role::Magic => "packet-magic-number",
        Role::TraceUuid => "metadata-stream-uuid",
        Role::StreamClassId => "data-stream-class-id",
        Role::StreamId => "data-stream-id",
        Role::PacketLength => "packet-total-length",
        Role::ContentLength => "packet-content-length",
        Role::PacketEnd => "packet-end-default-clock-timestamp",
        Role::Discarded => "discarded-event-record-counter-snapshot",
        Role::Sequence => "packet-sequence-number",
        Role::EventClassId => "event-record-class-id",
        Role::Clock => "default-clock-timestamp",
    }
}

/// Maps labels to the ranges of values that they stand for. Ranges of one label are in one list.
fn mappings(of: &[Mapping]) -> Value {
    let mut labels: Map<String, Value> = Map::new();
    for mapping in of {
        let Value::Array(more) = ranges(&mapping.ranges) else { continue };
        if let Value::Array(list) = labels.entry(mapping.label.clone()).or_insert_with(|| json!([]))
        {
            list.extend(more);
        }
    }
    Value::Object(labels)
}

fn ranges(of: &[Range]) -> Value {
    Value::Array(of.iter().map(|range| json!([number(range.lower), number(range.upper)])).collect())
}

fn number(value: i128) -> Value {
    i64::try_from(value)
        .map_or_else(|_| json!(u64::try_from(value).unwrap_or(u64::MAX)), |value| json!(value))
}

fn text(of: &Text) -> Value {
    let mut fragment = match &of.length {
        None => json!({ "type": "null-terminated-string" }),
        Some(length) => lengthy("string", length),
    };
    let encoding = match of.encoding {
        Encoding::Utf8 => None,
        Encoding::Utf16Be => Some("utf-16be"),
        Encoding::Utf16Le => Some("utf-16le"),
        Encoding::Utf32Be => Some("utf-32be"),
        Encoding::Utf32Le => Some("utf-32le"),
    };
    set(&mut fragment, "encoding", encoding.map(|encoding: &str| json!(encoding)));
    attach(&mut fragment, &of.attributes);
    fragment
}

/// Returns the class of a string, BLOB or array of fixed or dynamic length.
fn lengthy(what: &str, length: &Length) -> Value {
    match length {
        Length::Fixed(count) => json!({ "type": format!("static-length-{what}"), "length": count }),
        Length::Of(path) => {
            json!({ "type": format!("dynamic-length-{what}"), "length-field-location": location(path) })
        }
    }
}

fn location(path: &Path) -> Value {
    json!({ "origin": path.scope.ctf2_name(), "path": path.names })
}

fn variant(of: &Variant) -> Value {
    let options: Vec<Value> = of
        .options
        .iter()
        .map(|option| {
            let mut fragment = json!({
                "selector-field-ranges": ranges(&option.ranges),
                "field-class": field_class(&option.class),
            });
            set(&mut fragment, "name", not_empty(&option.name));
            attach(&mut fragment, &option.attributes);
            fragment
        })
        .collect();
    let mut fragment = json!({
        "type": "variant",
        "selector-field-location": location(&of.selector),
        "options": options,
    });
    attach(&mut fragment, &of.attributes);
    fragment
}

//! CTF 1.8 metadata. Layout: CTF specification 1.8.3, sections 5 to 7 and appendix C.

use super::names::{Member, identifier, members, plain};
use super::{Version, loglevel, uuid_text};
use crate::error::{Error, Result};
use lastwords_trace::clock::Clock;
use lastwords_trace::schema::{ByteOrder, Channel, EnvValue, EventClass, Field, FieldClass, Schema};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Types, packet header and context, event header.
const PRELUDE: &str = "\
typealias integer { size = 5; align = 1; signed = false; } := uint5_t;
typealias integer { size = 8; align = 8; signed = false; } := uint8_t;
typealias integer { size = 16; align = 8; signed = false; } := uint16_t;
typealias integer { size = 32; align = 8; signed = false; } := uint32_t;
typealias integer { size = 64; align = 8; signed = false; } := uint64_t;
";

/// What follows the clock. `CLOCK` stands for its name.
///
/// babeltrace2 2.0 warns of any integer in an event header that is neither `id` nor mapped to a clock. So the payload size
/// of the full form is mapped too: the full timestamp behind it sets the clock anew, all 64 bits. The form with a size and
/// no timestamp could not hide it so; [`super::copy`] leaves none of those.
const SHAPES: &str = "\
typealias integer { size = 27; align = 1; signed = false; map = clock.CLOCK.value; } := uint27_clock_t;
typealias integer { size = 32; align = 8; signed = false; map = clock.CLOCK.value; } := uint32_clock_t;
typealias integer { size = 64; align = 8; signed = false; map = clock.CLOCK.value; } := uint64_clock_t;

struct packet_context {
	uint64_clock_t timestamp_begin;
	uint64_clock_t timestamp_end;
	uint64_t content_size;
	uint64_t packet_size;
	uint64_t packet_seq_num;
	uint64_t events_discarded;
	uint32_t cpu_id;
};

struct event_header {
	enum : uint5_t { compact = 0 ... 28, full = 29, extended = 31 } id;
	uint27_clock_t timestamp;
	variant <id> {
		struct { } compact;
		struct { uint16_t id; uint32_clock_t payload_size; uint64_clock_t timestamp; } full;
		struct { uint16_t id; } extended;
	} v;
} align(8);
";

/// The text of the metadata file.
pub(super) fn metadata(schema: &Schema, env: &BTreeMap<String, EnvValue>) -> Result<String> {
    let mut text = format!("/* CTF 1.8 */\n\n{PRELUDE}\n");
    let order = match schema.byte_order {
        ByteOrder::Little => "le",
        ByteOrder::Big => "be",
    };
    let uuid = uuid_text(&schema.uuid);
    push(
        &mut text,
        format_args!(
            "trace {{\n\tmajor = 1;\n\tminor = 8;\n\tuuid = \"{uuid}\";\n\tbyte_order = {order};\n\t\
             packet.header := struct {{\n\t\tuint32_t magic;\n\t\tuint8_t uuid[16];\n\t\tuint32_t stream_id;\n\t\t\
             uint64_t stream_instance_id;\n\t}};\n}};\n\n"
        ),
    );
    environment(&mut text, env);
    let clock = clock(&mut text, &schema.clock);
    text.push_str(&SHAPES.replace("CLOCK", &clock));
    for channel in &schema.channels {
        stream(&mut text, channel)?;
    }
    Ok(text)
}

fn environment(text: &mut String, env: &BTreeMap<String, EnvValue>) {
    text.push_str("env {\n");
    for (key, value) in env {
        let key = member_identifier(key);
        match value {
            EnvValue::Text(value) => push(text, format_args!("\t{key} = {};\n", quoted(&plain(value)))),
            EnvValue::Integer(value) => push(text, format_args!("\t{key} = {};\n", integer(*value))),
        }
    }
    text.push_str("};\n\n");
}

/// An environment key: an identifier that is no keyword.
fn member_identifier(key: &str) -> String {
    let key = identifier(key);
    let known = ["align", "clock", "env", "event", "integer", "stream", "string", "trace", "struct", "variant", "enum"];
    if known.contains(&key.as_str()) || !key.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
        format!("_{key}")
    } else {
        key
    }
}

fn clock(text: &mut String, clock: &Clock) -> String {
    let name = format!("lastwords_{}", identifier(&clock.name));
    let frequency = clock.frequency.max(1);
    let seconds = clock.offset_seconds.saturating_add_unsigned(clock.offset_ticks / frequency);
    push(
        text,
        format_args!(
            "clock {{\n\tname = \"{name}\";\n\tdescription = {};\n\tfreq = {frequency};\n\toffset_s = {};\n\toffset = {};\n\t\
             absolute = {};\n}};\n\n",
            quoted(&plain(&clock.description)),
            integer(seconds),
            clock.offset_ticks % frequency,
            if clock.absolute { "true" } else { "false" },
        ),
    );
    name
}

fn stream(text: &mut String, channel: &Channel) -> Result<()> {
    let id = channel.id;
    if !channel.name.is_empty() {
        push(text, format_args!("\n/* channel {} */", plain(&channel.name).replace("*/", "* /")));
    }
    push(
        text,
        format_args!(
            "\nstream {{\n\tid = {id};\n\tevent.header := struct event_header;\n\tpacket.context := struct packet_context;\n"
        ),
    );
    if !channel.contexts.is_empty() {
        text.push_str("\tevent.context := struct {\n");
        fields(text, &channel.contexts).map_err(|what| Error::Schema(format!("channel {id}, context {what}")))?;
        text.push_str("\t};\n");
    }
    text.push_str("};\n");
    channel.classes().try_for_each(|class| event(text, id, class))
}

fn event(text: &mut String, stream: u32, class: &EventClass) -> Result<()> {
    let EventClass { id, name, .. } = class;
    let shown = quoted(&plain(name));
    push(text, format_args!("\nevent {{\n\tname = {shown};\n\tid = {id};\n\tstream_id = {stream};\n"));
    if let Some((level, _)) = loglevel(class.level) {
        push(text, format_args!("\tloglevel = {level};\n"));
    }
    text.push_str("\tfields := struct {\n");
    fields(text, &class.fields)
        .map_err(|what| Error::Schema(format!("channel {stream}, event {name:?}, field {what}")))?;
    text.push_str("\t};\n};\n");
    Ok(())
}

/// Declares the fields; the error is the name of one that cannot be.
fn fields(text: &mut String, fields: &[Field]) -> std::result::Result<(), String> {
    for member in members(fields, Version::V1_8) {
        declare(text, &member).ok_or_else(|| format!("{:?}", member.field.name))?;
    }
    Ok(())
}

fn declare(text: &mut String, member: &Member<'_>) -> Option<()> {
    let name = &member.name;
    if let Some(length) = &member.length {
        push(text, format_args!("\t\tuint32_t _{length};\n"));
    }
    let length = member.length.as_deref().unwrap_or_default();
    match &member.field.class {
        FieldClass::String => push(text, format_args!("\t\tstring {{ encoding = UTF8; }} _{name};\n")),
        FieldClass::Text { size } => push(text, format_args!("\t\t{} _{name}[{size}];\n", octets(10, "UTF8"))),
        FieldClass::Bytes => push(text, format_args!("\t\t{} _{name}[_{length}];\n", octets(16, "none"))),
        FieldClass::Sequence(element) => push(text, format_args!("\t\t{} _{name}[_{length}];\n", scalar(element)?)),
        FieldClass::Array { count, element } => {
            push(text, format_args!("\t\t{} _{name}[{count}];\n", scalar(element)?))
        }
        class => push(text, format_args!("\t\t{} _{name};\n", scalar(class)?)),
    }
    Some(())
}

fn octets(base: u8, encoding: &str) -> String {
    format!("integer {{ size = 8; align = 8; signed = false; encoding = {encoding}; base = {base}; }}")
}

/// The type of a scalar class; none for others.
fn scalar(class: &FieldClass) -> Option<String> {
    if !class.is_scalar() {
        return None;
    }
    Some(match class {
        FieldClass::Integer { size, signed, base } => integer_type(*size, *signed, *base),
        FieldClass::Float { size: 4 } => "floating_point { exp_dig = 8; mant_dig = 24; align = 8; }".to_owned(),
        FieldClass::Float { .. } => "floating_point { exp_dig = 11; mant_dig = 53; align = 8; }".to_owned(),
        FieldClass::Enum { size, signed, labels } if labels.is_empty() => integer_type(*size, *signed, 10),
        FieldClass::Enum { size, signed, labels } => {
            let mut text = format!("enum : {} {{ ", integer_type(*size, *signed, 10));
            for (i, (value, label)) in labels.iter().enumerate() {
                let comma = if i == 0 { "" } else { ", " };
                let value = if *signed { integer(*value) } else { value.cast_unsigned().to_string() };
                push(&mut text, format_args!("{comma}{} = {value}", quoted(label)));
            }
            text.push_str(" }");
            text
        }
        _ => octets(10, "none"),
    })
}

fn integer_type(size: u8, signed: bool, base: u8) -> String {
    let bits = u32::from(size) * 8;
    let base = if base == 16 { 16 } else { 10 };
    format!("integer {{ size = {bits}; align = 8; signed = {signed}; encoding = none; base = {base}; }}")
}

/// A number as TSDL takes it.
fn integer(value: i64) -> String {
    value.to_string()
}

/// A TSDL string literal.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_ascii_control() => push(&mut out, format_args!("\\{:03o}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Appends; a `String` takes everything.
fn push(text: &mut String, what: std::fmt::Arguments<'_>) {
    let _ = text.write_fmt(what);
}

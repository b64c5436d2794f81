//! CTF 1.8 metadata of any trace class. Layout: CTF specification 1.8.3, sections 5 to 7 and appendix C.

use crate::error::{Error, Result};
use crate::names::uuid_text;
use crate::names::{identifier, plain};
use lastwords_bytes::ByteOrder;
use lastwords_trace::class::{
    Bits, Clock, Encoding, EventClass, Field, FieldClass, Float, Integer, Length, Mapping, Origin, Path, Role, Scope,
    StreamClass, Struct, Text, TraceClass, Variant,
};
use lastwords_trace::schema::EnvValue;
use std::fmt::Write;

/// The text of the metadata file.
///
/// # Errors
/// A field class that CTF 1.8 cannot express; the error says where it stands.
pub(super) fn metadata(class: &TraceClass) -> Result<String> {
    let mut text = "/* CTF 1.8 */\n\ntrace {\n\tmajor = 1;\n\tminor = 8;\n".to_owned();
    if let Some(uuid) = &class.uuid {
        push(&mut text, format_args!("\tuuid = \"{}\";\n", uuid_text(uuid)));
    }
    push(&mut text, format_args!("\tbyte_order = {};\n", order(class.order)));
    let clock = |of: Option<usize>| of.and_then(|at| class.clocks.get(at));
    if let Some(header) = &class.header {
        scope(&mut text, "packet.header", header, Scope::PacketHeader, None).map_err(of("packet header"))?;
    }
    text.push_str("};\n\n");
    environment(&mut text, &class.env);
    class.clocks.iter().for_each(|clock| describe(&mut text, clock));
    for of in &class.streams {
        stream(&mut text, of, clock(of.clock))?;
        of.events.iter().try_for_each(|of_stream| event(&mut text, of, of_stream, clock(of.clock)))?;
    }
    Ok(text)
}

fn of(what: &str) -> impl FnOnce(String) -> Error + use<> {
    let what = what.to_owned();
    move |why| Error::Schema(format!("{what}, {why}"))
}

fn order(order: ByteOrder) -> &'static str {
    match order {
        ByteOrder::Little => "le",
        ByteOrder::Big => "be",
    }
}

fn environment(text: &mut String, env: &[(String, EnvValue)]) {
    text.push_str("env {\n");
    for (key, value) in env {
        let key = member_identifier(key);
        match value {
            EnvValue::Text(value) => push(text, format_args!("\t{key} = {};\n", quoted(&plain(value)))),
            EnvValue::Integer(value) => push(text, format_args!("\t{key} = {value};\n")),
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

fn describe(text: &mut String, clock: &Clock) {
    let frequency = clock.frequency.max(1);
    let seconds = clock.offset_seconds.saturating_add_unsigned(clock.offset_cycles / frequency);
    let (name, description) = (identifier(&clock.id), quoted(&plain(&clock.description)));
    let (cycles, absolute) = (clock.offset_cycles % frequency, clock.origin == Origin::UnixEpoch);
    push(text, format_args!("clock {{\n\tname = \"{name}\";\n\tdescription = {description};\n\tfreq = {frequency};\n"));
    push(text, format_args!("\toffset_s = {seconds};\n\toffset = {cycles};\n\tabsolute = {absolute};\n}};\n\n"));
}

fn stream(text: &mut String, class: &StreamClass, clock: Option<&Clock>) -> Result<()> {
    let id = class.id;
    if !class.name.is_empty() {
        push(text, format_args!("\n/* channel {} */", plain(&class.name).replace("*/", "* /")));
    }
    push(text, format_args!("\nstream {{\n\tid = {id};\n"));
    let scopes = [
        ("packet.context", &class.packet_context, Scope::PacketContext, "packet context"),
        ("event.header", &class.event_header, Scope::EventHeader, "event header"),
        ("event.context", &class.common_context, Scope::CommonContext, "context"),
    ];
    for (name, of_scope, which, words) in scopes {
        if let Some(fields) = of_scope {
            scope(text, name, fields, which, clock).map_err(of(&format!("channel {id}, {words}")))?;
        }
    }
    text.push_str("};\n");
    Ok(())
}

fn event(text: &mut String, stream: &StreamClass, class: &EventClass, clock: Option<&Clock>) -> Result<()> {
    let (id, of_stream) = (class.id, stream.id);
    let name = plain(class.name.as_deref().unwrap_or_default());
    push(text, format_args!("\nevent {{\n\tname = {};\n\tid = {id};\n\tstream_id = {of_stream};\n", quoted(&name)));
    if let Some(level) = class.log_level {
        push(text, format_args!("\tloglevel = {};\n", level.number()));
    }
    if !class.emf_uri.is_empty() {
        push(text, format_args!("\tmodel.emf.uri = {};\n", quoted(&plain(&class.emf_uri))));
    }
    let scopes =
        [("context", &class.specific_context, Scope::SpecificContext), ("fields", &class.payload, Scope::Payload)];
    for (word, of_scope, which) in scopes {
        if let Some(fields) = of_scope {
            scope(text, word, fields, which, clock)
                .map_err(of(&format!("channel {of_stream}, event {name:?}, field")))?;
        }
    }
    text.push_str("};\n");
    Ok(())
}

/// What fails says why, the field first.
type Declared<T> = std::result::Result<T, String>;

fn scope(text: &mut String, name: &str, fields: &Struct, scope: Scope, clock: Option<&Clock>) -> Declared<()> {
    let declarer = Declarer { scope, clock: clock.map(|clock| identifier(&clock.id)) };
    let body = declarer.structure(fields, 1)?;
    push(text, format_args!("\t{name} := {body};\n"));
    Ok(())
}

/// Declares the fields of one scope.
struct Declarer {
    scope: Scope,
    /// Name of the stream's clock.
    clock: Option<String>,
}

impl Declarer {
    fn structure(&self, of: &Struct, depth: usize) -> Declared<String> {
        let mut text = "struct {\n".to_owned();
        for field in &of.fields {
            let (kind, behind) =
                self.class(&field.class, depth + 1).map_err(|why| format!("{:?}: {why}", field.name))?;
            let tabs = "\t".repeat(depth + 1);
            push(&mut text, format_args!("{tabs}{kind} {}{behind};\n", self.name(field)));
        }
        text.push_str(&"\t".repeat(depth));
        text.push('}');
        if of.alignment > 1 {
            push(&mut text, format_args!(" align({})", of.alignment));
        }
        Ok(text)
    }

    /// The name of a member: what has a role is known by its name, and what users named is escaped by an underscore.
    fn name(&self, field: &Field) -> String {
        let known = match &field.class {
            FieldClass::Integer(integer) => integer.roles.iter().find_map(|role| self.role(*role)),
            FieldClass::Array(array) if array.is_uuid => Some("uuid"),
            FieldClass::Blob(blob) if blob.is_uuid => Some("uuid"),
            _ => None,
        };
        known.map_or_else(|| self.escaped(&field.name), str::to_owned)
    }

    fn escaped(&self, name: &str) -> String {
        let is_ours = matches!(self.scope, Scope::CommonContext | Scope::SpecificContext | Scope::Payload);
        if is_ours { format!("_{}", identifier(name)) } else { member_identifier(name) }
    }

    fn role(&self, role: Role) -> Option<&'static str> {
        Some(match role {
            Role::Magic => "magic",
            Role::TraceUuid => "uuid",
            Role::StreamClassId => "stream_id",
            Role::StreamId => "stream_instance_id",
            Role::PacketLength => "packet_size",
            Role::ContentLength => "content_size",
            Role::PacketEnd => "timestamp_end",
            Role::Discarded => "events_discarded",
            Role::Sequence => "packet_seq_num",
            Role::EventClassId => "id",
            Role::Clock if self.scope == Scope::PacketContext => "timestamp_begin",
            // In an event's header any integer can say the time.
            Role::Clock => return None,
        })
    }

    /// The type of a class, and what stands behind the name.
    fn class(&self, class: &FieldClass, depth: usize) -> Declared<(String, String)> {
        let alone = |text: String| Ok((text, String::new()));
        match class {
            FieldClass::Integer(integer) => alone(self.integer(integer)?),
            FieldClass::Bool(bits) | FieldClass::BitArray(bits) | FieldClass::BitMap(bits, _) => {
                alone(self.integer(&Integer::new(*bits, false, 10))?)
            }
            FieldClass::Float(float) => alone(floating(float)?),
            FieldClass::Text(text) => self.text(text),
            FieldClass::Blob(blob) => Ok((octets(16, "none"), self.length(&blob.length))),
            FieldClass::Struct(of) => alone(self.structure(of, depth)?),
            FieldClass::Array(array) => {
                let (element, behind) = self.class(&array.element, depth)?;
                Ok((element, self.length(&array.length) + &behind))
            }
            FieldClass::Variant(variant) => alone(self.variant(variant, depth)?),
            FieldClass::Variable(_) => Err("CTF 1.8 has no integers of variable length".into()),
            FieldClass::Optional(_) => Err("CTF 1.8 cannot say that a field may be absent".into()),
        }
    }

    fn integer(&self, integer: &Integer) -> Declared<String> {
        let Bits { length, alignment, order: byte_order, reversed } = integer.bits;
        if reversed {
            return Err("CTF 1.8 cannot reverse the bits of a byte".into());
        }
        let (signed, byte_order) = (integer.signed, order(byte_order));
        let base = if matches!(integer.base, 2 | 8 | 16) { integer.base } else { 10 };
        let map = match &self.clock {
            Some(clock) if integer.has(Role::Clock) || integer.has(Role::PacketEnd) => {
                format!(" map = clock.{clock}.value;")
            }
            _ => String::new(),
        };
        let plain = format!(
            "integer {{ size = {length}; align = {alignment}; signed = {signed}; byte_order = {byte_order}; base = {base};{map} }}"
        );
        Ok(if integer.mappings.is_empty() { plain } else { enumeration(&plain, &integer.mappings) })
    }

    fn text(&self, text: &Text) -> Declared<(String, String)> {
        if text.encoding != Encoding::Utf8 {
            return Err("CTF 1.8 has no text but UTF-8".into());
        }
        Ok(match &text.length {
            None => ("string { encoding = UTF8; }".to_owned(), String::new()),
            Some(length) => (octets(10, "UTF8"), self.length(length)),
        })
    }

    fn length(&self, length: &Length) -> String {
        match length {
            Length::Fixed(count) => format!("[{count}]"),
            Length::Of(path) => format!("[{}]", self.path(path)),
        }
    }

    /// A name beside it, or the whole path.
    fn path(&self, path: &Path) -> String {
        let names: Vec<String> = path.names.iter().map(|name| self.escaped(name)).collect();
        match names.as_slice() {
            [name] if path.scope == self.scope => name.clone(),
            _ => format!("{}.{}", path.scope.tsdl_name(), names.join(".")),
        }
    }

    fn variant(&self, variant: &Variant, depth: usize) -> Declared<String> {
        let tabs = "\t".repeat(depth);
        let mut text = format!("variant <{}> {{\n", self.path(&variant.selector));
        for option in &variant.options {
            let (kind, behind) = self.class(&option.class, depth + 1)?;
            push(&mut text, format_args!("{tabs}\t{kind} {}{behind};\n", identifier(&option.name)));
        }
        push(&mut text, format_args!("{tabs}}}"));
        Ok(text)
    }
}

fn enumeration(integer: &str, mappings: &[Mapping]) -> String {
    let mut text = format!("enum : {integer} {{ ");
    let ranges = mappings.iter().flat_map(|mapping| mapping.ranges.iter().map(move |range| (&mapping.label, range)));
    for (index, (label, range)) in ranges.enumerate() {
        let comma = if index == 0 { "" } else { ", " };
        push(&mut text, format_args!("{comma}{} = {}", quoted(label), range.lower));
        if range.upper != range.lower {
            push(&mut text, format_args!(" ... {}", range.upper));
        }
    }
    text.push_str(" }");
    text
}

fn floating(float: &Float) -> Declared<String> {
    let (exponent, mantissa) = match float.bits.length {
        32 => (8, 24),
        64 => (11, 53),
        length => return Err(format!("CTF 1.8 readers know no floats of {length} bits")),
    };
    let (alignment, byte_order) = (float.bits.alignment, order(float.bits.order));
    Ok(format!(
        "floating_point {{ exp_dig = {exponent}; mant_dig = {mantissa}; align = {alignment}; byte_order = {byte_order}; }}"
    ))
}

fn octets(base: u8, encoding: &str) -> String {
    format!("integer {{ size = 8; align = 8; signed = false; encoding = {encoding}; base = {base}; }}")
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

//! Parses blocks: trace, env, clock, stream, event.

use super::Wrong;
use super::lex::Word;
use super::parser::Parser;
use super::types::Type;
use super::value::Value;
use lastwords_bytes::ByteOrder;
use lastwords_trace::class::LogLevel;
use lastwords_trace::schema::EnvValue;
use std::collections::HashMap;
use std::rc::Rc;

/// `trace { … }`.
#[derive(Debug)]
pub(super) struct Trace {
    pub(super) uuid: Option<[u8; 16]>,
    pub(super) order: ByteOrder,
    pub(super) header: Option<Rc<Type>>,
}

/// `clock { … }`.
#[derive(Debug, Default)]
pub(super) struct Clock {
    pub(super) name: String,
    pub(super) uuid: Option<[u8; 16]>,
    pub(super) description: String,
    pub(super) frequency: u64,
    pub(super) offset_seconds: i64,
    pub(super) offset_cycles: u64,
    pub(super) precision: Option<u64>,
    pub(super) absolute: bool,
}

/// `stream { … }`.
#[derive(Debug, Default)]
pub(super) struct Stream {
    pub(super) line: u32,
    pub(super) id: Option<u64>,
    pub(super) packet_context: Option<Rc<Type>>,
    pub(super) event_header: Option<Rc<Type>>,
    pub(super) event_context: Option<Rc<Type>>,
}

/// `event { … }`.
#[derive(Debug, Default)]
pub(super) struct Event {
    pub(super) line: u32,
    pub(super) id: Option<u64>,
    pub(super) stream: Option<u64>,
    pub(super) name: Option<String>,
    pub(super) log_level: Option<LogLevel>,
    pub(super) emf_uri: String,
    pub(super) context: Option<Rc<Type>>,
    pub(super) fields: Option<Rc<Type>>,
}

/// The right-hand side of an attribute: a value after `=`, or a type after `:=`.
enum RightHandSide {
    Value(Value),
    Type(Rc<Type>),
}

/// Calls `set` for each attribute of a block, with its name, its right-hand side and its line.
fn attributes(
    parser: &mut Parser<'_>,
    mut set: impl FnMut(&mut Parser<'_>, &str, RightHandSide, u32) -> Result<(), Wrong>,
) -> Result<(), Wrong> {
    parser.expect("{")?;
    parser.scoped(|parser| {
        while !parser.accept("}") {
            if parser.accept(";") || parser.type_declaration_in_block()? {
                continue;
            }
            let line = parser.line();
            let name = parser.attribute_name()?;
            let right = if parser.accept(":=") {
                RightHandSide::Type(parser.specifier()?)
            } else {
                parser.expect("=")?;
                RightHandSide::Value(parser.value()?)
            };
            parser.expect(";")?;
            set(parser, &name, right, line)?;
        }
        Ok(())
    })
}

impl Parser<'_> {
    fn type_declaration_in_block(&mut self) -> Result<bool, Wrong> {
        match self.peek() {
            Word::Name("typealias" | "typedef" | "struct" | "variant" | "enum") => {
                self.type_declaration()
            }
            _ => Ok(false),
        }
    }

    fn attribute_name(&mut self) -> Result<String, Wrong> {
        match self.peek() {
            Word::Text(text) => {
                self.advance();
                Ok(text.clone())
            }
            _ => self.dotted(),
        }
    }
}

fn wrong(line: u32, name: &str, expected: &str) -> Wrong {
    Wrong { line, what: format!("{name}: expected {expected}") }
}

fn number(right: RightHandSide, line: u32, name: &str) -> Result<u64, Wrong> {
    match right {
        RightHandSide::Value(value) => {
            value.unsigned().ok_or_else(|| wrong(line, name, "a number that is not negative"))
        }
        RightHandSide::Type(_) => Err(wrong(line, name, "`=` and a number")),
    }
}

fn text(right: &RightHandSide, line: u32, name: &str) -> Result<String, Wrong> {
    match right {
        RightHandSide::Value(value) if value.word().is_some() => {
            Ok(value.word().unwrap_or_default().to_owned())
        }
        _ => Err(wrong(line, name, "`=` and text")),
    }
}

fn structure(right: RightHandSide, line: u32, name: &str) -> Result<Option<Rc<Type>>, Wrong> {
    match right {
        RightHandSide::Type(class) if matches!(*class, Type::Struct { .. }) => Ok(Some(class)),
        _ => Err(wrong(line, name, "`:=` and a structure")),
    }
}

fn once<T>(place: &mut Option<T>, value: Option<T>, line: u32, name: &str) -> Result<(), Wrong> {
    if place.is_some() {
        return Err(Wrong { line, what: format!("a second {name}") });
    }
    *place = value;
    Ok(())
}

/// Parses 16 bytes of hexadecimal text, with or without hyphens.
pub(crate) fn uuid(text: &str) -> Option<[u8; 16]> {
    let digits: Vec<u8> = text.bytes().filter(|b| *b != b'-').collect();
    if digits.len() != 32 {
        return None;
    }
    let mut uuid = [0; 16];
    for (place, pair) in uuid.iter_mut().zip(digits.chunks_exact(2)) {
        *place = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(uuid)
}

pub(super) fn trace(parser: &mut Parser<'_>) -> Result<Trace, Wrong> {
    let begin = parser.line();
    let mut trace = Trace { uuid: None, order: parser.native, header: None };
    let (mut major, mut minor, mut order) = (None, None, None);
    attributes(parser, |_, name, right, line| {
        match name {
            "major" => once(&mut major, Some(number(right, line, name)?), line, name)?,
            "minor" => once(&mut minor, Some(number(right, line, name)?), line, name)?,
            "uuid" => {
                let found =
                    uuid(&text(&right, line, name)?).ok_or_else(|| wrong(line, name, "a UUID"))?;
                once(&mut trace.uuid, Some(found), line, name)?;
            }
            "byte_order" => {
                let word = text(&right, line, name)?;
                if !matches!(word.as_str(), "le" | "be" | "network") {
                    return Err(wrong(line, name, "le, be or network"));
                }
                once(&mut order, Some(()), line, name)?;
            }
            "packet.header" => once(&mut trace.header, structure(right, line, name)?, line, name)?,
            _ => {}
        }
        Ok(())
    })?;
    let version = (major, minor);
    if version != (Some(1), Some(8)) {
        let shown = |part: Option<u64>| part.map_or("nothing".to_owned(), |part| part.to_string());
        let what = format!("trace: version {}.{}, expected 1.8", shown(major), shown(minor));
        return Err(Wrong { line: begin, what });
    }
    if order.is_none() {
        return Err(Wrong { line: begin, what: "trace: expected a byte_order".into() });
    }
    Ok(trace)
}

pub(super) fn env(parser: &mut Parser<'_>) -> Result<Vec<(String, EnvValue)>, Wrong> {
    let mut env: Vec<(String, EnvValue)> = Vec::new();
    let mut known: HashMap<String, usize> = HashMap::new();
    attributes(parser, |_, name, right, line| {
        let value = match &right {
            RightHandSide::Value(value @ (Value::Text(_) | Value::Name(_))) => {
                EnvValue::Text(value.word().unwrap_or("").to_owned())
            }
            RightHandSide::Value(Value::Number(number, false)) => {
                EnvValue::Integer(number.cast_signed())
            }
            RightHandSide::Value(value) => {
                EnvValue::Integer(value.signed().ok_or_else(|| wrong(line, name, "64 bits"))?)
            }
            RightHandSide::Type(_) => return Err(wrong(line, name, "`=` and a value")),
        };
        match known.get(name).and_then(|at| env.get_mut(*at)) {
            Some(entry) => entry.1 = value,
            None => {
                known.insert(name.to_owned(), env.len());
                env.push((name.to_owned(), value));
            }
        }
        Ok(())
    })?;
    Ok(env)
}

pub(super) fn clock(parser: &mut Parser<'_>, begin: u32) -> Result<Clock, Wrong> {
    let mut clock = Clock { frequency: 1_000_000_000, ..Clock::default() };
    attributes(parser, |_, name, right, line| {
        match (name, right) {
            ("name", right) => clock.name = text(&right, line, name)?,
            ("uuid", right) => {
                let found = uuid(&text(&right, line, name)?);
                clock.uuid = Some(found.ok_or_else(|| wrong(line, name, "a UUID"))?);
            }
            ("description", right) => clock.description = text(&right, line, name)?,
            ("freq", right) => {
                clock.frequency = number(right, line, name)?;
                if matches!(clock.frequency, 0 | u64::MAX) {
                    return Err(wrong(line, name, "a frequency above 0"));
                }
            }
            ("offset_s", RightHandSide::Value(value)) => {
                clock.offset_seconds =
                    value.signed().ok_or_else(|| wrong(line, name, "a number of 64 bits"))?;
            }
            ("offset", right) => clock.offset_cycles = number(right, line, name)?,
            ("precision", right) => clock.precision = Some(number(right, line, name)?),
            ("absolute", RightHandSide::Value(value)) => {
                clock.absolute = value.truth().ok_or_else(|| wrong(line, name, "true or false"))?;
            }
            _ => {}
        }
        Ok(())
    })?;
    if clock.name.is_empty() {
        return Err(Wrong { line: begin, what: "clock: expected a name".into() });
    }
    Ok(clock)
}

pub(super) fn stream(parser: &mut Parser<'_>, line: u32) -> Result<Stream, Wrong> {
    let mut stream = Stream { line, ..Stream::default() };
    attributes(parser, |_, name, right, line| match name {
        "id" => once(&mut stream.id, Some(number(right, line, name)?), line, name),
        "packet.context" => {
            once(&mut stream.packet_context, structure(right, line, name)?, line, name)
        }
        "event.header" => once(&mut stream.event_header, structure(right, line, name)?, line, name),
        "event.context" => {
            once(&mut stream.event_context, structure(right, line, name)?, line, name)
        }
        _ => Ok(()),
    })?;
    Ok(stream)
}

pub(super) fn event(parser: &mut Parser<'_>, line: u32) -> Result<Event, Wrong> {
    let mut event = Event { line, ..Event::default() };
    attributes(parser, |_, name, right, line| match name {
        "id" => once(&mut event.id, Some(number(right, line, name)?), line, name),
        "stream_id" => once(&mut event.stream, Some(number(right, line, name)?), line, name),
        "name" => once(&mut event.name, Some(text(&right, line, name)?), line, name),
        "loglevel" => {
            // babeltrace2 accepts and ignores a name or a number that is too large for it, and so
            // does this parser.
            if let RightHandSide::Value(value) = right {
                event.log_level = value.unsigned().and_then(LogLevel::from_number);
            }
            Ok(())
        }
        "model.emf.uri" => {
            event.emf_uri = text(&right, line, name)?;
            Ok(())
        }
        "context" => once(&mut event.context, structure(right, line, name)?, line, name),
        "fields" => once(&mut event.fields, structure(right, line, name)?, line, name),
        _ => Ok(()),
    })?;
    Ok(event)
}

/// Skips a block that has no meaning to a reader.
pub(super) fn ignored(parser: &mut Parser<'_>) -> Result<(), Wrong> {
    attributes(parser, |_, _, _, _| Ok(()))
}

//! CTF 2 metadata: a JSON text sequence. CTF2-SPEC-2.0, sections 4 and 5.

mod field;

use super::{Missing, unknown_clock};
use crate::read::Error;
use field::Builder;
use lastwords_bytes::{Budget, ByteOrder};
use lastwords_trace::class::{
    Clock, EventClass, Identity, LogLevel, Origin, Path as FieldPath, Scope, StreamClass, Struct,
    TraceClass,
};
use lastwords_trace::schema::EnvValue;
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet};
use std::path::Path;

type Object = Map<String, Value>;
/// Describes the error in a fragment.
type Wrong = String;

/// Reads metadata; `path` is only used in errors. A fragment that is wrong is left out, with those
/// that need it.
///
/// # Errors
/// The trace class is wrong, or there is no stream class: nothing can be read without them. Or the
/// budget is spent.
pub(super) fn read(path: &Path, bytes: &[u8], budget: &Budget) -> Result<TraceClass, Error> {
    let mut reader = Reader {
        class: TraceClass::new(2, ByteOrder::Little),
        builder: Builder::new(budget),
        begun: false,
        has_trace: false,
        clocks: HashMap::new(),
        streams: HashMap::new(),
        events: HashSet::new(),
        twice: Twice::default(),
        missing: Missing::default(),
    };
    let fragments =
        bytes.split(|b| *b == 0x1e).map(<[u8]>::trim_ascii).filter(|fragment| !fragment.is_empty());
    for (i, fragment) in fragments.enumerate() {
        let number = i.saturating_add(1);
        let wrong = |what: &str| format!("fragment {number}: {what}");
        let Err(what) = reader.read(fragment) else { continue };
        if reader.builder.is_spent() || what.is_fatal {
            return Err(Error::metadata(path, 0, wrong(&what.what)));
        }
        reader.missing.add(|| wrong(&what.what));
    }
    let Twice { streams, events } = reader.twice;
    reader.class.streams.retain(|stream| !streams.contains(&stream.id));
    for stream in &mut reader.class.streams {
        let id = stream.id;
        stream.events.retain(|event| !events.contains(&(id, event.id)));
    }
    reader.class.missing = reader.missing.told();
    if !reader.begun {
        reader.class.missing.insert(0, "expected a preamble fragment".to_owned());
    }
    if reader.class.streams.is_empty() {
        let first =
            reader.class.missing.first().map(|first| format!("; {first}")).unwrap_or_default();
        return Err(Error::metadata(path, 0, format!("expected a data stream class{first}")));
    }
    Ok(reader.class)
}

/// A fragment is wrong.
struct WrongFragment {
    what: Wrong,
    /// Nothing can be read without it.
    is_fatal: bool,
}

struct Reader<'b> {
    class: TraceClass,
    builder: Builder<'b>,
    begun: bool,
    has_trace: bool,
    /// The positions of the clocks by id, and of the stream classes.
    clocks: HashMap<String, usize>,
    streams: HashMap<u64, usize>,
    /// The ids of stream classes and of their events.
    events: HashSet<(u64, u64)>,
    twice: Twice,
    missing: Missing,
}

/// Ids of stream classes, and of event record classes in them, that are there more than once. Of
/// such classes none is known.
#[derive(Default)]
struct Twice {
    streams: HashSet<u64>,
    events: HashSet<(u64, u64)>,
}

impl Reader<'_> {
    fn read(&mut self, fragment: &[u8]) -> Result<(), WrongFragment> {
        let wrong = |what: Wrong| WrongFragment { what, is_fatal: false };
        let value: Value =
            serde_json::from_slice(fragment).map_err(|error| wrong(error.to_string()))?;
        let Value::Object(object) = value else {
            return Err(wrong("expected a JSON object".into()));
        };
        let is_fatal =
            matches!(object.get("type").and_then(Value::as_str), Some("preamble" | "trace-class"));
        self.fragment(&object).map_err(|what| WrongFragment { what, is_fatal })
    }

    fn fragment(&mut self, object: &Object) -> Result<(), Wrong> {
        let kind = text(object, "type")?.ok_or("expected a `type`")?;
        if self.begun && kind == "preamble" {
            return Err(format!("found `{kind}`, expected the preamble first, and once"));
        }
        match kind {
            "preamble" => self.preamble(object),
            "field-class-alias" => {
                let name = text(object, "name")?.ok_or("expected a `name`")?;
                let class = object.get("field-class").ok_or("expected a `field-class`")?;
                self.builder.alias(name, class)
            }
            "trace-class" => self.trace(object),
            "clock-class" => self.clock(object),
            "data-stream-class" => self.stream(object),
            "event-record-class" => self.event(object),
            other => Err(format!("unknown fragment type `{other}`")),
        }
    }

    fn preamble(&mut self, object: &Object) -> Result<(), Wrong> {
        self.begun = true;
        match object.get("version") {
            Some(version) if version.as_u64() == Some(2) => {}
            Some(version) => return Err(format!("version {version}, expected 2")),
            None => return Err("expected a `version`".into()),
        }
        extensions(object)?;
        if let Some(list) = list(object, "uuid")? {
            let bytes: Option<Vec<u8>> = list
                .iter()
                .map(|byte| byte.as_u64().and_then(|byte| u8::try_from(byte).ok()))
                .collect();
            let uuid = bytes.and_then(|bytes| <[u8; 16]>::try_from(bytes).ok());
            self.class.uuid = Some(uuid.ok_or("uuid: expected 16 bytes")?);
        }
        self.class.preamble = attributes(object)?;
        Ok(())
    }

    fn trace(&mut self, object: &Object) -> Result<(), Wrong> {
        if std::mem::replace(&mut self.has_trace, true) {
            return Err("a second trace class".into());
        }
        self.class.identity = identity(object)?;
        self.class.attributes = attributes(object)?;
        for (key, value) in map(object, "environment")?.into_iter().flatten() {
            let value = match value {
                Value::String(text) => EnvValue::Text(text.clone()),
                Value::Number(number) => {
                    let signed = number.as_i64().or_else(|| number.as_u64().map(u64::cast_signed));
                    EnvValue::Integer(
                        signed.ok_or_else(|| format!("environment, {key}: expected an integer"))?,
                    )
                }
                _ => return Err(format!("environment, {key}: expected text or an integer")),
            };
            self.class.env.push((key.clone(), value));
        }
        self.class.header = self.scope(object, "packet-header-field-class", Scope::PacketHeader)?;
        Ok(())
    }

    fn clock(&mut self, object: &Object) -> Result<(), Wrong> {
        let id = text(object, "id")?
            .or(text(object, "name")?)
            .ok_or("clock class: expected an `id`")?
            .to_owned();
        if self.clocks.contains_key(&id) {
            return Err(format!("a second clock class {id:?}"));
        }
        let frequency = number(object, "frequency")?
            .filter(|f| *f > 0)
            .ok_or("expected a `frequency` above 0")?;
        let none = Object::new();
        let offset = map(object, "offset-from-origin")?.unwrap_or(&none);
        let seconds = match offset.get("seconds") {
            None => 0,
            Some(value) => {
                value.as_i64().ok_or_else(|| format!("seconds {value}: expected an integer"))?
            }
        };
        let cycles = number(offset, "cycles")?.unwrap_or(0);
        if cycles >= frequency {
            return Err(format!(
                "cycles {cycles}: expected fewer than the frequency of {frequency}"
            ));
        }
        let origin = match object.get("origin") {
            None => Origin::Unknown,
            Some(Value::String(word)) if word == "unix-epoch" => Origin::UnixEpoch,
            Some(Value::Object(custom)) => match identity(custom)? {
                known @ Identity { name: Some(_), uid: Some(_), .. } => Origin::Custom(known),
                _ => return Err("origin: expected a `name` and a `uid`".into()),
            },
            Some(other) => {
                return Err(format!("origin {other}: expected \"unix-epoch\" or an object"));
            }
        };
        let clock = Clock {
            id: id.clone(),
            identity: identity(object)?,
            frequency,
            offset_seconds: seconds,
            offset_cycles: cycles,
            origin,
            precision: number(object, "precision")?,
            accuracy: number(object, "accuracy")?,
            description: text(object, "description")?.unwrap_or_default().to_owned(),
            attributes: attributes(object)?,
        };
        self.clocks.insert(id, self.class.clocks.len());
        self.class.clocks.push(clock);
        Ok(())
    }

    /// Returns the position of a clock. One that is missing counts nanoseconds from an unknown
    /// origin.
    fn clock_of(&mut self, name: &str, stream: u64) -> usize {
        let next = self.class.clocks.len();
        *self.clocks.entry(name.to_owned()).or_insert_with(|| {
            self.class.clocks.push(unknown_clock(name));
            self.missing.add(|| {
                format!(
                    "data stream class {stream}: default clock class {name:?}: there is none before: its frequency and origin are not known"
                )
            });
            next
        })
    }

    fn stream(&mut self, object: &Object) -> Result<(), Wrong> {
        let id = number(object, "id")?.unwrap_or(0);
        if self.streams.contains_key(&id) {
            self.twice.streams.insert(id);
            return Err(format!("a second data stream class of id {id}"));
        }
        let clock =
            text(object, "default-clock-class-id")?.or(text(object, "default-clock-class-name")?);
        let clock = clock.map(|name| self.clock_of(name, id));
        let stream = StreamClass {
            id,
            name: text(object, "name")?.unwrap_or_default().to_owned(),
            identity: identity(object)?,
            clock,
            packet_context: self.scope(
                object,
                "packet-context-field-class",
                Scope::PacketContext,
            )?,
            event_header: self.scope(
                object,
                "event-record-header-field-class",
                Scope::EventHeader,
            )?,
            common_context: self.scope(
                object,
                "event-record-common-context-field-class",
                Scope::CommonContext,
            )?,
            events: Vec::new(),
            attributes: attributes(object)?,
        };
        self.streams.insert(id, self.class.streams.len());
        self.class.streams.push(stream);
        Ok(())
    }

    fn event(&mut self, object: &Object) -> Result<(), Wrong> {
        let id = number(object, "id")?.unwrap_or(0);
        let stream = number(object, "data-stream-class-id")?.unwrap_or(0);
        let own = object.get("attributes").and_then(|a| a.get("babeltrace.org,2020"));
        let word = |key: &str| own.and_then(|own| own.get(key)).and_then(Value::as_str);
        let event = EventClass {
            id,
            name: text(object, "name")?.map(str::to_owned),
            identity: identity(object)?,
            log_level: word("log-level").and_then(LogLevel::from_name),
            emf_uri: word("emf-uri").unwrap_or_default().to_owned(),
            specific_context: self.scope(
                object,
                "specific-context-field-class",
                Scope::SpecificContext,
            )?,
            payload: self.scope(object, "payload-field-class", Scope::Payload)?,
            attributes: attributes(object)?,
        };
        let place = self.streams.get(&stream);
        let Some(class) = place.and_then(|place| self.class.streams.get_mut(*place)) else {
            return Err(format!("data-stream-class-id {stream}: there is none before"));
        };
        if !self.events.insert((stream, id)) {
            self.twice.events.insert((stream, id));
            return Err(format!(
                "a second event record class of id {id} in data stream class {stream}"
            ));
        }
        class.events.push(event);
        Ok(())
    }

    fn scope(&mut self, object: &Object, key: &str, scope: Scope) -> Result<Option<Struct>, Wrong> {
        match object.get(key) {
            None => Ok(None),
            Some(class) => {
                self.builder.root(class, scope).map(Some).map_err(|what| format!("{key}: {what}"))
            }
        }
    }
}

fn text<'a>(object: &'a Object, key: &str) -> Result<Option<&'a str>, Wrong> {
    match object.get(key) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(format!("{key} {other}: expected text")),
    }
}

fn number(object: &Object, key: &str) -> Result<Option<u64>, Wrong> {
    match object.get(key) {
        None => Ok(None),
        Some(value) => value
            .as_u64()
            .map(Some)
            .ok_or_else(|| format!("{key} {value}: expected an integer from 0")),
    }
}

fn identity(object: &Object) -> Result<Identity, Wrong> {
    let part = |key| text(object, key).map(|part| part.map(str::to_owned));
    Ok(Identity { namespace: part("namespace")?, name: part("name")?, uid: part("uid")? })
}

fn list<'a>(object: &'a Object, key: &str) -> Result<Option<&'a Vec<Value>>, Wrong> {
    match object.get(key) {
        None => Ok(None),
        Some(Value::Array(list)) => Ok(Some(list)),
        Some(other) => Err(format!("{key} {other}: expected an array")),
    }
}

fn map<'a>(object: &'a Object, key: &str) -> Result<Option<&'a Object>, Wrong> {
    match object.get(key) {
        None => Ok(None),
        Some(Value::Object(map)) => Ok(Some(map)),
        Some(other) => Err(format!("{key} {other}: expected an object")),
    }
}

fn attributes(object: &Object) -> Result<String, Wrong> {
    Ok(map(object, "attributes")?
        .map(|map| Value::Object(map.clone()).to_string())
        .unwrap_or_default())
}

/// Refuses extensions, because none is known.
fn extensions(object: &Object) -> Result<(), Wrong> {
    let names: Vec<&str> =
        map(object, "extensions")?.into_iter().flatten().map(|(name, _)| name.as_str()).collect();
    if names.is_empty() {
        Ok(())
    } else {
        Err(format!("extensions {}: none is known", names.join(", ")))
    }
}

/// Returns the location of a field, as metadata name it. `names` leads to the structure that
/// contains the referring field.
fn location(
    value: Option<&Value>,
    scope: Scope,
    names: &[String],
    key: &str,
) -> Result<FieldPath, Wrong> {
    let object = value.and_then(Value::as_object).ok_or_else(|| format!("expected a `{key}`"))?;
    let path = object
        .get("path")
        .and_then(Value::as_array)
        .ok_or_else(|| format!("{key}: expected a `path`"))?;
    let (scope, mut names) = match text(object, "origin")? {
        None => (scope, names.to_vec()),
        Some(origin) => {
            let known = Scope::ALL.into_iter().find(|scope| scope.ctf2_name() == origin);
            (known.ok_or_else(|| format!("{key}: unknown origin {origin:?}"))?, Vec::new())
        }
    };
    for part in path {
        match part {
            Value::String(name) => names.push(name.clone()),
            Value::Null if names.pop().is_some() => {}
            other => {
                return Err(format!(
                    "{key}: found {other}, expected a name, or null below the root"
                ));
            }
        }
    }
    Ok(FieldPath { scope, names })
}

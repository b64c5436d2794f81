//! The trace class of our own sessions. It describes the packets and events of docs/ABI.md in CTF's
//! terms.

use crate::error::{Error, Result};
use crate::metadata::Version;
use crate::names::uuid_text;
use crate::names::{Member, PADDING, identifier, members, plain};
use lastwords_bytes::ByteOrder;
use lastwords_trace::class::{
    Array, Attributes, Bits, Blob, Clock, EventClass, Field, FieldClass, Float, Identity, Integer,
    Labels, Length, LogLevel, Mapping, Origin, Path, Range, Role, Scope, StreamClass, Struct, Text,
    TraceClass, Variant, VariantOption,
};
use lastwords_trace::schema::{self, EnvValue, Schema};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Labels of the bit of an optional field, which select the options of its variant.
const ABSENT: &str = "absent";
const PRESENT: &str = "present";

/// Returns the class of a schema for metadata of a version. CTF 1.8 has identifiers only, and the
/// class avoids what babeltrace2 2.0 warns of.
pub(crate) fn class(
    schema: &Schema,
    env: BTreeMap<String, EnvValue>,
    version: Version,
) -> Result<TraceClass> {
    class_of(schema, env, Shapes { order: schema.byte_order, version, reads: false })
}

/// Returns the class of one channel alone, as in [`class_in_memory`].
pub(super) fn channel_class(channel: &schema::Channel, order: ByteOrder) -> Result<TraceClass> {
    let shapes = Shapes { order, version: Version::V2, reads: true };
    let clocks = vec![Clock { frequency: 1, ..Clock::default() }];
    Ok(TraceClass { clocks, streams: vec![shapes.stream(channel)?], ..TraceClass::new(2, order) })
}

/// Returns the class for reading packets in memory: with the version's names, and with every form
/// of event header. An event class that CTF cannot express is left out.
pub(crate) fn class_in_memory(schema: &Schema, version: Version) -> Result<TraceClass> {
    class_of(schema, schema.env.clone(), Shapes { order: schema.byte_order, version, reads: true })
}

fn class_of(
    schema: &Schema,
    env: BTreeMap<String, EnvValue>,
    shapes: Shapes,
) -> Result<TraceClass> {
    let version = shapes.version;
    let streams =
        schema.channels.iter().map(|channel| shapes.stream(channel)).collect::<Result<Vec<_>>>()?;
    let number = if version == Version::V2 { 2 } else { 1 };
    Ok(TraceClass {
        uuid: Some(schema.uuid),
        identity: Identity {
            namespace: None,
            name: Some(schema.name.clone()),
            uid: Some(uuid_text(&schema.uuid)),
        },
        env: env.into_iter().collect(),
        header: Some(packet_header(schema.byte_order)),
        clocks: vec![clock(&schema.clock, version)],
        streams,
        ..TraceClass::new(number, schema.byte_order)
    })
}

fn clock(clock: &lastwords_trace::clock::Clock, version: Version) -> Clock {
    let id = match version {
        Version::V1_8 => format!("lastwords_{}", identifier(&clock.name)),
        Version::V2 => "clock".to_owned(),
    };
    Clock {
        id,
        identity: Identity { name: Some(clock.name.clone()), ..Identity::default() },
        frequency: clock.frequency,
        offset_seconds: clock.offset_seconds,
        offset_cycles: clock.offset_ticks,
        origin: if clock.absolute { Origin::UnixEpoch } else { Origin::Unknown },
        description: clock.description.clone(),
        ..Clock::default()
    }
}

/// Returns a structure of fields on whole bytes.
pub fn structure(fields: Vec<(&str, FieldClass)>) -> Struct {
    let field = |(name, class): (&str, FieldClass)| Field {
        name: name.to_owned(),
        class,
        attributes: String::new(),
    };
    Struct {
        alignment: 8,
        fields: fields.into_iter().map(field).collect(),
        attributes: Attributes::default(),
    }
}

/// Returns an unsigned integer of whole bytes.
pub fn unsigned(size: u8, order: ByteOrder) -> FieldClass {
    FieldClass::Integer(Integer::new(Bits::bytes(size, order), false, 10))
}

/// Returns an unsigned integer of whole bytes that has a role.
pub fn role(size: u8, order: ByteOrder, role: Role) -> FieldClass {
    let integer = Integer::new(Bits::bytes(size, order), false, 10);
    FieldClass::Integer(Integer { roles: vec![role], ..integer })
}

/// Returns the header of every packet that we write: 32 bytes.
pub fn packet_header(order: ByteOrder) -> Struct {
    let uuid = Blob {
        length: Length::Fixed(16),
        media_type: String::new(),
        is_uuid: true,
        attributes: Attributes::default(),
    };
    structure(vec![
        ("magic", role(4, order, Role::Magic)),
        ("uuid", FieldClass::Blob(uuid)),
        ("stream_id", role(4, order, Role::StreamClassId)),
        ("stream_instance_id", role(8, order, Role::StreamId)),
    ])
}

/// Returns the context of every packet that we write: 52 bytes.
pub fn packet_context(order: ByteOrder) -> Struct {
    structure(vec![
        ("timestamp_begin", role(8, order, Role::Clock)),
        ("timestamp_end", role(8, order, Role::PacketEnd)),
        ("content_size", role(8, order, Role::ContentLength)),
        ("packet_size", role(8, order, Role::PacketLength)),
        ("packet_seq_num", role(8, order, Role::Sequence)),
        ("events_discarded", role(8, order, Role::Discarded)),
        ("cpu_id", unsigned(4, order)),
    ])
}

/// Makes field classes of one byte order.
#[derive(Debug, Clone, Copy)]
struct Shapes {
    order: ByteOrder,
    version: Version,
    /// The class is for reading packets in memory: it has every form of event header, and leaves
    /// out event classes that CTF cannot express.
    reads: bool,
}

impl Shapes {
    fn bits(self, length: u8, with: Role, mappings: Labels) -> FieldClass {
        let alignment = if length.is_multiple_of(8) { 8 } else { 1 };
        let bits = Bits { length, alignment, order: self.order, reversed: false };
        FieldClass::Integer(Integer {
            roles: vec![with],
            mappings,
            ..Integer::new(bits, false, 10)
        })
    }

    /// Returns the event header. babeltrace2 2.0 warns of any integer in an event header that is
    /// neither `id` nor mapped to a clock. So, in CTF 1.8, the payload size of the full form is
    /// mapped to the clock too. This does no harm: the full timestamp after it sets all 64 bits of
    /// the clock. The form with a size and no timestamp cannot be mapped this way, so
    /// [`mod@crate::write`] removes it.
    fn event_header(self) -> Struct {
        let order = self.order;
        let id = || ("id", role(2, order, Role::EventClassId));
        let time = ("timestamp", role(8, order, Role::Clock));
        let option = |name: &str, lower, upper, fields| VariantOption {
            name: name.to_owned(),
            ranges: vec![Range { lower, upper }],
            class: FieldClass::Struct(structure(fields)),
            attributes: Attributes::default(),
        };
        let (size, sized) = match self.reads || self.version == Version::V2 {
            false => (role(4, order, Role::Clock), None),
            true => (
                unsigned(4, order),
                Some(option("sized", 30, 30, vec![id(), ("payload_size", unsigned(4, order))])),
            ),
        };
        let mut options = vec![
            option("compact", 0, 28, Vec::new()),
            option("full", 29, 29, vec![id(), ("payload_size", size), time]),
        ];
        options.extend(sized);
        options.push(option("extended", 31, 31, vec![id()]));
        let labels =
            |o: &VariantOption| Mapping { label: o.name.clone(), ranges: o.ranges.clone() };
        let mappings = match self.version {
            Version::V1_8 => options.iter().map(labels).collect(),
            Version::V2 => Labels::default(),
        };
        let selector = Path { scope: Scope::EventHeader, names: vec!["id".to_owned()] };
        let forms = Variant { selector, options, attributes: Attributes::default() };
        let mut word = vec![
            ("id", self.bits(5, Role::EventClassId, mappings)),
            ("timestamp", self.bits(27, Role::Clock, Labels::default())),
        ];
        // The id has the low bits of the word. CTF counts the bits of big-endian numbers from the
        // highest.
        if self.order == ByteOrder::Big {
            word.reverse();
        }
        structure(word.into_iter().chain([("v", FieldClass::Variant(Box::new(forms)))]).collect())
    }

    fn stream(self, channel: &schema::Channel) -> Result<StreamClass> {
        let id = channel.id;
        let contexts = self
            .fields(&channel.contexts, Scope::CommonContext)
            .map_err(|what| Error::Schema(format!("channel {id}, context {what}")))?;
        let events = channel.classes().map(|class| self.event(id, class));
        let events = events.filter(|event| !self.reads || event.is_ok());
        let events = events.collect::<Result<Vec<_>>>()?;
        Ok(StreamClass {
            id: id.into(),
            name: channel.name.clone(),
            clock: Some(0),
            packet_context: Some(packet_context(self.order)),
            event_header: Some(self.event_header()),
            common_context: (!channel.contexts.is_empty()).then_some(contexts),
            events,
            ..StreamClass::default()
        })
    }

    fn event(self, stream: u32, class: &schema::EventClass) -> Result<EventClass> {
        let payload = self.fields(&class.fields, Scope::Payload).map_err(|what| {
            Error::Schema(format!("channel {stream}, event {:?}, field {what}", class.name))
        })?;
        let own: Map<String, Value> = [("format", &class.format), ("location", &class.location)]
            .into_iter()
            .filter(|(_, text)| !text.is_empty())
            .map(|(key, text)| (key.to_owned(), json!(text)))
            .collect();
        let attributes =
            if own.is_empty() { String::new() } else { json!({ "lastwords": own }).to_string() };
        Ok(EventClass {
            id: class.id,
            name: Some(plain(&class.name)),
            log_level: loglevel(class.level).and_then(|level| LogLevel::from_number(level.into())),
            payload: Some(payload),
            attributes,
            ..EventClass::default()
        })
    }

    /// Returns the structure of the fields. The error is the name of a field that CTF cannot
    /// express.
    fn fields(self, fields: &[schema::Field], scope: Scope) -> std::result::Result<Struct, String> {
        let members = members(fields, self.version);
        let mut classes = self.presence(&members);
        for member in &members {
            let length = member.length.as_deref();
            classes.extend(length.map(|length| (length, unsigned(4, self.order))));
            let count = || {
                Length::Of(Path { scope, names: length.map(str::to_owned).into_iter().collect() })
            };
            let class = match (&member.field.class, &member.presence) {
                (schema::FieldClass::Optional(inner), Some(selector)) => {
                    let selector = Path { scope, names: vec![selector.clone()] };
                    self.class(inner, count).map(|class| Self::optional(class, selector))
                }
                (class, _) => self.class(class, count),
            };
            let class = class.ok_or_else(|| format!("{:?}", member.field.name))?;
            classes.push((member.name.as_str(), class));
        }
        Ok(structure(classes))
    }

    /// Returns the bits that say which optional fields an event has, padded to whole bytes.
    fn presence<'m>(self, members: &'m [Member<'_>]) -> Vec<(&'m str, FieldClass)> {
        let bits = |length| Bits { length, alignment: 1, order: self.order, reversed: false };
        let labels = [(0, ABSENT), (1, PRESENT)].map(|(value, label)| mapping(false, value, label));
        // CTF 1.8 selects by enumerations.
        let mappings: Labels = match self.version {
            Version::V1_8 => labels.into_iter().collect(),
            Version::V2 => Labels::default(),
        };
        let bit = || {
            let integer = Integer::new(bits(1), false, 10);
            FieldClass::Integer(Integer { mappings: mappings.clone(), ..integer })
        };
        let names = members.iter().filter_map(|member| member.presence.as_deref());
        let mut classes: Vec<_> = names.map(|name| (name, bit())).collect();
        let rest = u8::try_from(classes.len() % 8).unwrap_or(0);
        if rest > 0 {
            let padding = Integer::new(bits(8u8.saturating_sub(rest)), false, 10);
            classes.push((PADDING, FieldClass::Integer(padding)));
        }
        classes
    }

    /// Returns the class of a field that an event may lack. CTF 1.8 has only variants for it, and
    /// babeltrace2 2.1 crashes when it reads the optional fields of CTF 2.
    fn optional(class: FieldClass, selector: Path) -> FieldClass {
        let option = |value, name: &str, class| VariantOption {
            name: name.to_owned(),
            ranges: vec![Range { lower: value, upper: value }],
            class,
            attributes: Attributes::default(),
        };
        let absent = option(0, ABSENT, FieldClass::Struct(structure(Vec::new())));
        let options = vec![absent, option(1, PRESENT, class)];
        FieldClass::Variant(Box::new(Variant {
            selector,
            options,
            attributes: Attributes::default(),
        }))
    }

    fn class(self, class: &schema::FieldClass, count: impl Fn() -> Length) -> Option<FieldClass> {
        let array = |length, element| FieldClass::Array(Box::new(Array::new(length, element)));
        let text = |length| FieldClass::Text(Text { length, ..Text::default() });
        let octet = || FieldClass::Integer(Integer::new(Bits::bytes(1, self.order), false, 16));
        Some(match class {
            schema::FieldClass::String => text(None),
            schema::FieldClass::Text { size } => text(Some(Length::Fixed(u64::from(*size)))),
            schema::FieldClass::Bytes => array(count(), octet()),
            schema::FieldClass::Sequence(element) => array(count(), self.scalar(element)?),
            schema::FieldClass::Array { count, element } => {
                array(Length::Fixed(u64::from(*count)), self.scalar(element)?)
            }
            class => self.scalar(class)?,
        })
    }

    fn scalar(self, class: &schema::FieldClass) -> Option<FieldClass> {
        if !class.is_scalar() {
            return None;
        }
        let bits = Bits::bytes(u8::try_from(class.fixed_size()?).ok()?, self.order);
        Some(match class {
            schema::FieldClass::Integer { signed, base, .. } => {
                FieldClass::Integer(Integer::new(bits, *signed, if *base == 16 { 16 } else { 10 }))
            }
            schema::FieldClass::Enum { signed, labels, .. } => {
                let mappings =
                    labels.iter().map(|(value, label)| mapping(*signed, *value, label)).collect();
                FieldClass::Integer(Integer { mappings, ..Integer::new(bits, *signed, 10) })
            }
            schema::FieldClass::Float { .. } => {
                FieldClass::Float(Float { bits, attributes: Attributes::default() })
            }
            // CTF 1.8 has no booleans.
            _ if self.version == Version::V1_8 => {
                FieldClass::Integer(Integer::new(bits, false, 10))
            }
            _ => FieldClass::Bool(bits),
        })
    }
}

fn mapping(signed: bool, value: i64, label: &str) -> Mapping {
    let value = if signed { i128::from(value) } else { i128::from(value.cast_unsigned()) };
    Mapping { label: label.to_owned(), ranges: vec![Range { lower: value, upper: value }] }
}

/// Returns the number that LTTng and babeltrace2 use for a severity of 1 to 5; none for other
/// severities.
fn loglevel(level: u8) -> Option<u8> {
    match level {
        1 => Some(3),
        2 => Some(4),
        3 => Some(6),
        4 => Some(14),
        5 => Some(13),
        _ => None,
    }
}

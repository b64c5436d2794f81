//! The trace, its clocks, stream classes and event record classes.

mod field;
mod labels;
mod path;
mod ranges;

pub use field::{
    Array, Bits, Blob, Encoding, Field, FieldClass, Float, Integer, Length, Optional, Role, Struct,
    Text, Variant, VariantOption,
};
pub use labels::{Labels, Mapping};
pub use path::{Path, Scope};
pub use ranges::{Range, RangeIndex};

use crate::schema::EnvValue;
use crate::tracer::counts_nanoseconds;
use lastwords_bytes::ByteOrder;
use std::collections::HashMap;

/// Deepest nesting of field classes that is accepted.
pub const MAX_DEPTH: usize = 64;

/// Attributes or extensions of CTF 2, as their original JSON text; empty if there are none.
pub type Attributes = String;

/// A name in three parts, which CTF 2 gives traces and clocks.
#[derive(Debug, Clone, PartialEq, Eq, Default, PartialOrd, Ord)]
pub struct Identity {
    /// Namespace.
    pub namespace: Option<String>,
    /// Name.
    pub name: Option<String>,
    /// Unique id; for CTF 1.8 the text of the UUID.
    pub uid: Option<String>,
}

/// The metadata of a trace.
#[derive(Debug, Clone)]
pub struct TraceClass {
    /// Version: 1 (1.8) or 2.
    pub version: u8,
    /// UUID of the metadata stream, which packets repeat.
    pub uuid: Option<[u8; 16]>,
    /// Identity of the trace.
    pub identity: Identity,
    /// Default byte order of CTF 1.8.
    pub order: ByteOrder,
    /// Environment, in the order of the metadata.
    pub env: Vec<(String, EnvValue)>,
    /// Packet header.
    pub header: Option<Struct>,
    /// Clocks.
    pub clocks: Vec<Clock>,
    /// Stream classes.
    pub streams: Vec<StreamClass>,
    /// Attributes of the trace class.
    pub attributes: Attributes,
    /// Attributes and extensions of the preamble.
    pub preamble: Attributes,
    /// Parts of the metadata that are missing or wrong, one sentence for each. The rest of the
    /// class is known without them.
    pub missing: Vec<String>,
}

impl TraceClass {
    /// Makes a class without any parts.
    #[must_use]
    pub fn new(version: u8, order: ByteOrder) -> Self {
        Self {
            version,
            uuid: None,
            identity: Identity::default(),
            order,
            env: Vec::new(),
            header: None,
            clocks: Vec::new(),
            streams: Vec::new(),
            attributes: Attributes::default(),
            preamble: Attributes::default(),
            missing: Vec::new(),
        }
    }

    /// Returns a property of the environment.
    #[must_use]
    pub fn property(&self, key: &str) -> Option<&EnvValue> {
        self.env.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// Returns the names of threads by their ids, if the properties have them (`thread_ID`). A
    /// thread id that was used again may have several names, `one|other`.
    #[must_use]
    pub fn thread_names(&self) -> HashMap<i64, &str> {
        crate::schema::thread_names(self.env.iter().map(|(key, value)| (key, value)))
    }

    /// Returns a property that is text.
    #[must_use]
    pub fn text(&self, key: &str) -> Option<&str> {
        match self.property(key) {
            Some(EnvValue::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// Returns true if the trace is one of a kernel's ftrace.
    #[must_use]
    pub fn is_ftrace(&self) -> bool {
        self.text("tracer_name") == Some("ftrace")
    }

    /// Returns false if a kernel's clock counted something else than nanoseconds.
    #[must_use]
    pub fn counts_nanoseconds(&self) -> bool {
        self.text("trace_clock").is_none_or(counts_nanoseconds)
    }

    /// Returns a property that is a number.
    #[must_use]
    pub fn number(&self, key: &str) -> Option<i64> {
        match self.property(key) {
            Some(EnvValue::Integer(number)) => Some(*number),
            _ => None,
        }
    }

    /// Returns the structure of a scope. `stream` and `event` are the positions of the stream class
    /// and the event record class, for scopes that belong to these.
    #[must_use]
    pub fn scope(&self, scope: Scope, stream: usize, event: usize) -> Option<&Struct> {
        let of = self.streams.get(stream);
        match scope {
            Scope::PacketHeader => self.header.as_ref(),
            Scope::PacketContext => of?.packet_context.as_ref(),
            Scope::EventHeader => of?.event_header.as_ref(),
            Scope::CommonContext => of?.common_context.as_ref(),
            Scope::SpecificContext => of?.events.get(event)?.specific_context.as_ref(),
            Scope::Payload => of?.events.get(event)?.payload.as_ref(),
        }
    }

    /// Returns true if a length or selector in the contexts or the payload of an event record class
    /// refers to one of `scopes`.
    #[must_use]
    pub fn depends_on(&self, stream: usize, event: usize, scopes: &[Scope]) -> bool {
        [Scope::CommonContext, Scope::SpecificContext, Scope::Payload]
            .into_iter()
            .filter_map(|scope| self.scope(scope, stream, event))
            .any(|root| scopes.iter().any(|scope| root.depends_on(*scope)))
    }
}

/// The origin of a clock.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Origin {
    /// The Unix epoch.
    UnixEpoch,
    /// An origin that is not known to others.
    #[default]
    Unknown,
    /// An origin with a name (CTF 2).
    Custom(Identity),
}

/// A clock class.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Clock {
    /// Name in the metadata: CTF 1.8's name, CTF 2's id.
    pub id: String,
    /// Identity of the clock; the uid of CTF 1.8 is the text of its UUID.
    pub identity: Identity,
    /// Ticks in a second.
    pub frequency: u64,
    /// Whole seconds from the origin to tick 0.
    pub offset_seconds: i64,
    /// Ticks in addition to the whole seconds, to tick 0.
    pub offset_cycles: u64,
    /// Origin.
    pub origin: Origin,
    /// Possible error of a reading in ticks, if it is known.
    pub precision: Option<u64>,
    /// Possible error of the clock in ticks, if it is known.
    pub accuracy: Option<u64>,
    /// Description for people.
    pub description: String,
    /// Attributes.
    pub attributes: Attributes,
}

/// Clocks whose tick 0 lies before 1971 count from something else than the epoch, if their metadata
/// does not say that they do.
const EPOCH_MIN: u64 = 365 * 24 * 3600;

impl Clock {
    /// Returns true if the clock's times are since the epoch: its metadata says so, or its offset
    /// is a date, as in traces of older releases of LTTng.
    #[must_use]
    pub fn is_since_epoch(&self) -> bool {
        match self.origin {
            Origin::UnixEpoch => true,
            Origin::Unknown => {
                u64::try_from(self.to_clock().offset_seconds).is_ok_and(|begin| begin >= EPOCH_MIN)
            }
            Origin::Custom(_) => false,
        }
    }

    /// Returns the clock in the form for [`crate::clock::Converter`]. Offsets of a second and more
    /// in ticks become seconds.
    #[must_use]
    pub fn to_clock(&self) -> crate::clock::Clock {
        let frequency = self.frequency.max(1);
        let seconds = self
            .offset_cycles
            .checked_div(frequency)
            .and_then(|seconds| i64::try_from(seconds).ok())
            .unwrap_or(i64::MAX);
        crate::clock::Clock {
            name: self.identity.name.clone().unwrap_or_else(|| self.id.clone()),
            description: self.description.clone(),
            frequency,
            offset_seconds: self.offset_seconds.saturating_add(seconds),
            offset_ticks: self.offset_cycles.checked_rem(frequency).unwrap_or(0),
            absolute: self.origin == Origin::UnixEpoch,
        }
    }
}

/// A class of streams.
#[derive(Debug, Clone, Default)]
pub struct StreamClass {
    /// Id.
    pub id: u64,
    /// Name (CTF 2), or empty.
    pub name: String,
    /// Namespace and unique id (CTF 2).
    pub identity: Identity,
    /// Position of the stream's clock in [`TraceClass::clocks`].
    pub clock: Option<usize>,
    /// Packet context.
    pub packet_context: Option<Struct>,
    /// Event record header.
    pub event_header: Option<Struct>,
    /// Common event record context.
    pub common_context: Option<Struct>,
    /// Event record classes, in order of id.
    pub events: Vec<EventClass>,
    /// Attributes.
    pub attributes: Attributes,
}

/// Severity of an event, with babeltrace2's names, in the order of syslog and LTTng.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogLevel(u8);

impl LogLevel {
    const NAMES: [(&'static str, &'static str); 15] = [
        ("TRACE_EMERG", "emergency"),
        ("TRACE_ALERT", "alert"),
        ("TRACE_CRIT", "critical"),
        ("TRACE_ERR", "error"),
        ("TRACE_WARNING", "warning"),
        ("TRACE_NOTICE", "notice"),
        ("TRACE_INFO", "info"),
        ("TRACE_DEBUG_SYSTEM", "debug:system"),
        ("TRACE_DEBUG_PROGRAM", "debug:program"),
        ("TRACE_DEBUG_PROCESS", "debug:process"),
        ("TRACE_DEBUG_MODULE", "debug:module"),
        ("TRACE_DEBUG_UNIT", "debug:unit"),
        ("TRACE_DEBUG_FUNCTION", "debug:function"),
        ("TRACE_DEBUG_LINE", "debug:line"),
        ("TRACE_DEBUG", "debug"),
    ];

    /// Returns the level with this number, from 0 (emergency) to 14 (debug).
    #[must_use]
    pub fn from_number(number: u64) -> Option<Self> {
        u8::try_from(number).ok().filter(|n| usize::from(*n) < Self::NAMES.len()).map(Self)
    }

    /// Returns the level with this name of CTF 2 metadata by babeltrace2 and LTTng.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let position = Self::NAMES.iter().position(|(_, long)| *long == name)?;
        u8::try_from(position).ok().map(Self)
    }

    /// Returns the number.
    #[must_use]
    pub fn number(self) -> u8 {
        self.0
    }

    /// Returns the word for the level in five steps: `error`, `warn`, `info`, `debug`, `trace`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self.0 {
            0..=3 => "error",
            4 => "warn",
            5 | 6 => "info",
            13 => "trace",
            _ => "debug",
        }
    }

    /// Returns the name in babeltrace2's text, such as `TRACE_INFO`.
    #[must_use]
    pub fn shown(self) -> &'static str {
        Self::NAMES.get(usize::from(self.0)).map_or("", |(shown, _)| *shown)
    }

    /// Returns the name in CTF 2 metadata, such as `info` or `debug:line`.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMES.get(usize::from(self.0)).map_or("", |(_, name)| *name)
    }
}

/// A class of event records.
#[derive(Debug, Clone, Default)]
pub struct EventClass {
    /// Id in the stream class.
    pub id: u64,
    /// Name, if the class has one.
    pub name: Option<String>,
    /// Namespace and unique id (CTF 2).
    pub identity: Identity,
    /// Severity.
    pub log_level: Option<LogLevel>,
    /// `model.emf.uri`, or empty.
    pub emf_uri: String,
    /// Specific context.
    pub specific_context: Option<Struct>,
    /// Payload.
    pub payload: Option<Struct>,
    /// Attributes.
    pub attributes: Attributes,
}

//! The description of a trace's events: channels, event classes, fields.

use lastwords_bytes::ByteOrder;
use std::collections::{BTreeMap, HashMap};

/// The schema of a whole trace.
#[derive(Debug, Clone)]
pub struct Schema {
    /// UUID of the trace.
    pub uuid: [u8; 16],
    /// Name of the trace: session or instance.
    pub name: String,
    /// Byte order of packets.
    pub byte_order: ByteOrder,
    /// Properties (`hostname`, `tracer_name`, ...), by key.
    pub env: BTreeMap<String, EnvValue>,
    /// The trace's clock.
    pub clock: crate::clock::Clock,
    /// Channels; [`Channel::id`] may differ from the index.
    pub channels: Vec<Channel>,
}

/// Key of the property with the time of the machine's boot: the nanoseconds from the epoch to time
/// 0 of `CLOCK_BOOTTIME`.
pub const BOOT_ORIGIN: &str = "boot_origin_ns";

/// Key of the property with the name of a thread: `thread_` and the thread's id.
pub fn thread_key(id: impl std::fmt::Display) -> String {
    format!("thread_{id}")
}

impl Schema {
    /// Names of threads by their ids, if the trace's properties have them.
    ///
    /// A thread id that was reused may have several names, `one|other`.
    pub fn thread_names(&self) -> HashMap<i64, &str> {
        thread_names(&self.env)
    }
}

/// Names of threads by their ids among the properties of a trace.
pub(crate) fn thread_names<'e>(
    env: impl IntoIterator<Item = (&'e String, &'e EnvValue)>,
) -> HashMap<i64, &'e str> {
    let prefix = thread_key("");
    let names = env.into_iter().filter_map(|(key, value)| match value {
        EnvValue::Text(name) => Some((key.strip_prefix(&prefix)?.parse().ok()?, name.as_str())),
        EnvValue::Integer(_) => None,
    });
    names.collect()
}

/// A property of a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnvValue {
    /// Text.
    Text(String),
    /// Number.
    Integer(i64),
}

/// A channel: CTF's stream class.
#[derive(Debug, Clone)]
pub struct Channel {
    /// Stream class id.
    pub id: u32,
    /// Name; empty if the source has none.
    pub name: String,
    /// Fields before each payload, packed.
    pub contexts: Vec<Field>,
    /// Event classes, in order of id. If several have the same id, the first one is used.
    pub events: Vec<EventClass>,
}

impl Channel {
    /// The event classes in use: the first with each id.
    pub fn classes(&self) -> impl Iterator<Item = &EventClass> {
        let mut seen = std::collections::HashSet::new();
        self.events.iter().filter(move |class| seen.insert(class.id))
    }
}

/// An event class.
#[derive(Debug, Clone, Default)]
pub struct EventClass {
    /// Id in its channel.
    pub id: u64,
    /// `provider:name`.
    pub name: String,
    /// Severity 1 (error) to 5 (trace); 0 = unknown.
    pub level: u8,
    /// Format string of a marker, with `{}` for each field; empty for other events.
    pub format: String,
    /// Source location, `file:line`; may be empty.
    pub location: String,
    /// Payload fields, packed.
    pub fields: Vec<Field>,
}

/// A named field.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Field {
    /// Name.
    pub name: String,
    /// Type of the field.
    pub class: FieldClass,
}

/// The type of a field. All fields are packed, without alignment.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum FieldClass {
    /// Integer of 1, 2, 4 or 8 bytes.
    Integer {
        /// Bytes.
        size: u8,
        /// Two's complement.
        signed: bool,
        /// Base for display: 10 or 16.
        base: u8,
    },
    /// Float of 4 or 8 bytes.
    Float {
        /// Bytes.
        size: u8,
    },
    /// One byte, 0 or 1.
    Bool,
    /// UTF-8 text, terminated by a NUL.
    String,
    /// Fixed-size text, NUL-padded.
    Text {
        /// Bytes.
        size: u32,
    },
    /// A u32 count, then that many bytes.
    Bytes,
    /// A u32 count, then that many elements of a scalar class.
    Sequence(Box<FieldClass>),
    /// Elements of a scalar class.
    Array {
        /// Number of elements.
        count: u32,
        /// Type of the elements.
        element: Box<FieldClass>,
    },
    /// An integer with labels for values.
    Enum {
        /// Bytes.
        size: u8,
        /// Two's complement.
        signed: bool,
        /// Value (sign-extended) and label.
        labels: Vec<(i64, String)>,
    },
    /// A field of a payload that an event may lack: a scalar, [`FieldClass::String`] or
    /// [`FieldClass::Text`]. The payload begins with a bit for each optional field, in their order,
    /// padded to whole bytes.
    Optional(Box<FieldClass>),
}

impl FieldClass {
    /// True for types that arrays and sequences may contain: integer, float, bool or enumeration,
    /// of a valid size.
    #[must_use]
    pub fn is_scalar(&self) -> bool {
        match self {
            Self::Integer { size, .. } | Self::Enum { size, .. } => matches!(size, 1 | 2 | 4 | 8),
            Self::Float { size } => matches!(size, 4 | 8),
            Self::Bool => true,
            Self::String
            | Self::Text { .. }
            | Self::Bytes
            | Self::Sequence(_)
            | Self::Array { .. }
            | Self::Optional(_) => false,
        }
    }

    /// Size in bytes, if all values have the same size.
    #[must_use]
    pub fn fixed_size(&self) -> Option<usize> {
        match self {
            Self::Integer { size, .. } | Self::Float { size } | Self::Enum { size, .. } => {
                Some(usize::from(*size))
            }
            Self::Bool => Some(1),
            Self::Text { size } => usize::try_from(*size).ok(),
            Self::Array { count, element } => {
                usize::try_from(*count).ok()?.checked_mul(element.fixed_size()?)
            }
            Self::String | Self::Bytes | Self::Sequence(_) | Self::Optional(_) => None,
        }
    }
}

//! Encodes registry records: docs/ABI.md, section 4.

use crate::checksum::checksum;
use crate::layout::registry as at;
use crate::put::{Order, Packed};

/// The type of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Type {
    /// Unsigned integer of `size` bytes, displayed in `base`.
    Unsigned {
        /// Bytes.
        size: u8,
        /// 10 or 16.
        base: u8,
    },
    /// Signed integer.
    Signed {
        /// Bytes.
        size: u8,
        /// 10 or 16.
        base: u8,
    },
    /// IEEE float.
    Float {
        /// Bytes.
        size: u8,
    },
    /// One byte, 0 or 1.
    Bool,
    /// Text with a NUL.
    String,
    /// A count and that many elements.
    Sequence(Box<Type>),
    /// A fixed number of elements.
    Array {
        /// Number of elements.
        count: u32,
        /// Type of the elements.
        element: Box<Type>,
    },
    /// Integer with labels.
    Enum {
        /// Bytes of the container.
        size: u8,
        /// True if the container is signed.
        signed: bool,
        /// Values and labels.
        labels: Vec<(i64, String)>,
    },
    /// Text of fixed size.
    Text {
        /// Bytes.
        size: u32,
    },
    /// A count and that many bytes.
    Bytes,
}

impl Type {
    /// `u32`, decimal.
    pub const U32: Self = Self::Unsigned { size: 4, base: 10 };
    /// `u64`, decimal.
    pub const U64: Self = Self::Unsigned { size: 8, base: 10 };

    fn encode(&self, to: Packed) -> Packed {
        match self {
            Self::Unsigned { size, base } => to.u8(at::UNSIGNED).u8(*size).u8(*base),
            Self::Signed { size, base } => to.u8(at::SIGNED).u8(*size).u8(*base),
            Self::Float { size } => to.u8(at::FLOAT).u8(*size),
            Self::Bool => to.u8(at::BOOL),
            Self::String => to.u8(at::STRING),
            Self::Sequence(element) => element.encode(to.u8(at::SEQUENCE)),
            Self::Array { count, element } => element.encode(to.u8(at::ARRAY).u32(*count)),
            Self::Enum { size, signed, labels } => {
                let container = if *signed { at::SIGNED } else { at::UNSIGNED };
                let to = to.u8(at::ENUM).u8(container).u8(*size).u8(10).u16(len16(labels.len()));
                labels
                    .iter()
                    .fold(to, |to, (value, label)| to.u64(*value as u64).str16(label.as_bytes()))
            }
            Self::Text { size } => to.u8(at::TEXT).u32(*size),
            Self::Bytes => to.u8(at::BYTES),
        }
    }
}

fn len16(n: usize) -> u16 {
    u16::try_from(n).unwrap_or(u16::MAX)
}

/// A record of the registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// An event class.
    Event {
        /// Channel id.
        channel: u16,
        /// Event id.
        id: u16,
        /// Severity, from 1 (error) to 5 (trace).
        level: u8,
        /// Provider and name.
        name: (String, String),
        /// Format string of a marker; else empty.
        format: String,
        /// Source file and line.
        source: (String, u32),
        /// Names and types of the fields.
        fields: Vec<(String, Type)>,
    },
    /// A user-defined context.
    Context {
        /// Channel id.
        channel: u16,
        /// Index among the channel's contexts.
        index: u16,
        /// Name.
        name: String,
        /// Type; must have a fixed size.
        ty: Type,
    },
    /// A mapped module.
    Module {
        /// Process id.
        pid: u32,
        /// Load bias, start and end of its text.
        addresses: [u64; 3],
        /// Build id.
        build_id: Vec<u8>,
        /// Path.
        path: String,
    },
    /// A property of the trace.
    Env {
        /// Name.
        key: String,
        /// Value of the property.
        value: String,
    },
}

impl Record {
    /// Encodes header, body and padding.
    pub fn encode(&self, order: Order) -> Vec<u8> {
        let (kind, body) = self.body(Packed::new(order));
        raw_record(order, kind, &body.done())
    }

    fn body(&self, to: Packed) -> (u16, Packed) {
        match self {
            Self::Event { channel, id, level, name, format, source, fields } => {
                let count = u8::try_from(fields.len()).unwrap_or(u8::MAX);
                let to = to.u16(*channel).u16(*id).u8(*level).u8(count);
                let to =
                    to.str16(name.0.as_bytes()).str16(name.1.as_bytes()).str16(format.as_bytes());
                let to = to.str16(source.0.as_bytes()).u32(source.1);
                let all =
                    fields.iter().fold(to, |to, (name, ty)| ty.encode(to.str16(name.as_bytes())));
                (at::EVENT, all)
            }
            Self::Context { channel, index, name, ty } => {
                (at::CONTEXT, ty.encode(to.u16(*channel).u16(*index).str16(name.as_bytes())))
            }
            Self::Module { pid, addresses, build_id, path } => {
                let to = addresses.iter().fold(to.u32(*pid), |to, a| to.u64(*a));
                (at::MODULE, to.str16(build_id).str16(path.as_bytes()))
            }
            Self::Env { key, value } => (at::ENV, to.str16(key.as_bytes()).str16(value.as_bytes())),
        }
    }
}

/// Encodes a record of any kind and body, padded to a multiple of 8 bytes.
pub fn raw_record(order: Order, kind: u16, body: &[u8]) -> Vec<u8> {
    let len = u32::try_from(at::RECORD_HEADER_LEN + body.len()).unwrap_or(u32::MAX);
    let mut record =
        Packed::new(order).u32(len).u16(kind).u16(0).u64(checksum(body)).raw(body).done();
    record.resize(record.len().next_multiple_of(8), 0);
    record
}

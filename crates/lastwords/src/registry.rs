//! Descriptions of events: what a callsite knows of itself, and how it is written to a session's registry.

/// What a callsite says of its event; `'static`, made once for each callsite.
#[derive(Debug, Clone, Copy)]
pub struct EventDesc {
    /// Who the event belongs to; the part of the full name before the colon.
    pub provider: &'static str,
    /// Name of the event within the provider.
    pub name: &'static str,
    /// Severity, [`lastwords_abi::registry::level`]: 1 error to 5 trace.
    pub level: u8,
    /// Format string of a marker; empty for events.
    pub format: &'static str,
    /// Source file of the callsite; may be empty.
    pub file: &'static str,
    /// Source line of the callsite; 0 when unknown.
    pub line: u32,
    /// The payload's fields in the order in which they are written.
    pub fields: &'static [FieldDesc],
}

/// A field of an event's payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldDesc {
    /// Name of the field.
    pub name: &'static str,
    /// How its bytes are read.
    pub ty: FieldType,
}

/// How the bytes of a field are read; the same set as [`lastwords_abi::registry::field`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldType {
    /// Unsigned integer of 1, 2, 4 or 8 bytes, shown in base 10 or 16.
    Unsigned {
        /// Bytes of the value.
        bytes: u8,
        /// 10 or 16.
        base: u8,
    },
    /// Signed integer of 1, 2, 4 or 8 bytes, shown in base 10 or 16.
    Signed {
        /// Bytes of the value.
        bytes: u8,
        /// 10 or 16.
        base: u8,
    },
    /// IEEE float of 4 or 8 bytes.
    Float {
        /// Bytes of the value.
        bytes: u8,
    },
    /// One byte, 0 or 1.
    Bool,
    /// UTF-8 and a NUL.
    String,
    /// u32 count and that many elements of a scalar type.
    Sequence(&'static FieldType),
    /// A fixed number of elements of a scalar type.
    Array {
        /// Elements.
        count: u32,
        /// Type of each element.
        element: &'static FieldType,
    },
    /// An integer with labels.
    Enum {
        /// Bytes of the container.
        bytes: u8,
        /// Whether the container is signed.
        signed: bool,
        /// Values and their labels.
        labels: &'static [(i64, &'static str)],
    },
    /// Text of a fixed number of bytes, NUL-padded.
    Text {
        /// Bytes of the field.
        bytes: u32,
    },
    /// u32 count and that many bytes, shown in hexadecimal.
    Bytes,
}

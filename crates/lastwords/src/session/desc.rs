//! Descriptions of events: what a callsite knows of its event.

/// The description of a callsite's event. It is `'static` and made once for each callsite.
#[derive(Debug, Clone, Copy)]
pub struct EventDesc {
    /// The owner of the event; the part of the full name before the colon.
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

impl EventDesc {
    /// Describes an event of which the names and the level are known alone.
    pub(crate) const fn named(provider: &'static str, name: &'static str, level: u8) -> Self {
        Self { provider, name, level, format: "", file: "", line: 0, fields: &[] }
    }
}

/// A field of an event's payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldDesc {
    /// Name of the field.
    pub name: &'static str,
    /// Type of the field.
    pub ty: FieldType,
}

/// Type of a field, which determines how its bytes are read; the same set as
/// [`lastwords_abi::registry::field`].
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
    /// A u32 count, followed by that many elements of a scalar type.
    Sequence(&'static FieldType),
    /// A fixed number of elements of a scalar type.
    Array {
        /// Number of elements.
        count: u32,
        /// Type of each element.
        element: &'static FieldType,
    },
    /// An integer with labels.
    Enum {
        /// Bytes of the container.
        bytes: u8,
        /// The container is signed.
        signed: bool,
        /// Values and their labels.
        labels: &'static [(i64, &'static str)],
    },
    /// Text of a fixed number of bytes, NUL-padded.
    Text {
        /// Bytes of the field.
        bytes: u32,
    },
    /// A u32 count, followed by that many bytes, shown in hexadecimal.
    Bytes,
    /// A number or text that an event may lack. The payload begins with a bit for each optional
    /// field, in their order, padded to whole bytes. An absent field takes no bytes.
    Optional(&'static FieldType),
}

impl FieldType {
    /// Returns the size of a value in bytes, or `None` if it varies.
    #[must_use]
    pub fn fixed_size(&self) -> Option<usize> {
        match self {
            Self::Unsigned { bytes, .. }
            | Self::Signed { bytes, .. }
            | Self::Float { bytes }
            | Self::Enum { bytes, .. } => Some(usize::from(*bytes)),
            Self::Bool => Some(1),
            Self::Text { bytes } => Some(*bytes as usize),
            Self::Array { count, element } => Some(element.fixed_size()? * *count as usize),
            Self::String | Self::Sequence(_) | Self::Bytes | Self::Optional(_) => None,
        }
    }
}

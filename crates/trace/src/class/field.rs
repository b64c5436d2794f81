//! Field classes.

use super::{Attributes, Labels, Path, Scope};
use lastwords_bytes::ByteOrder;

/// What the bits of a field mean.
#[derive(Debug, Clone, PartialEq)]
pub enum FieldClass {
    /// Fixed-length integer, or enumeration where it has mappings.
    Integer(Integer),
    /// Variable-length integer: unsigned or signed LEB128.
    Variable(Integer),
    /// Fixed-length boolean: 0 is false.
    Bool(Bits),
    /// Fixed-length bit array.
    BitArray(Bits),
    /// Fixed-length bit map: names for ranges of bits, by position from the least significant.
    BitMap(Bits, Labels),
    /// Floating-point number of IEEE 754.
    Float(Float),
    /// Text.
    Text(Text),
    /// Bytes.
    Blob(Blob),
    /// Named fields, one behind the other.
    Struct(Struct),
    /// Elements of one class.
    Array(Box<Array>),
    /// One of several, by a selector.
    Variant(Box<Variant>),
    /// There or not, by a selector.
    Optional(Box<Optional>),
}

/// Where the bits of a fixed-length field stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bits {
    /// Length, bits: 1 to 64.
    pub length: u8,
    /// Alignment, bits: a power of two.
    pub alignment: u16,
    /// Byte order.
    pub order: ByteOrder,
    /// The first bit of the field is its most significant for little endian, its least for big endian (CTF 2's bit order
    /// against the natural one).
    pub reversed: bool,
}

impl Bits {
    /// Whole bytes on a byte boundary, in order.
    #[must_use]
    pub fn bytes(size: u8, order: ByteOrder) -> Self {
        Self { length: size.saturating_mul(8), alignment: 8, order, reversed: false }
    }
}

/// An integer.
#[derive(Debug, Clone, PartialEq)]
pub struct Integer {
    /// Its place. Of a variable-length integer only the alignment counts, and the length is 64.
    pub bits: Bits,
    /// Two's complement.
    pub signed: bool,
    /// 2, 8, 10 or 16: how it is shown.
    pub base: u8,
    /// Names of values: an enumeration. Sorted by label; babeltrace2 2.1 has them in the order of its hash table, which shows
    /// where a value has several names.
    pub mappings: Labels,
    /// What else the number says.
    pub roles: Vec<Role>,
    /// Attributes.
    pub attributes: Attributes,
}

impl Integer {
    /// An unsigned or signed integer shown in a base, without mappings and roles.
    #[must_use]
    pub fn new(bits: Bits, signed: bool, base: u8) -> Self {
        Self { bits, signed, base, mappings: Labels::default(), roles: Vec::new(), attributes: Attributes::default() }
    }

    /// Whether it has a role.
    #[must_use]
    pub fn has(&self, role: Role) -> bool {
        self.roles.contains(&role)
    }
}

/// A label and the values that it names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// Label.
    pub label: String,
    /// Values, or positions of bits.
    pub ranges: Vec<Range>,
}

impl Mapping {
    /// The label is this value's.
    #[must_use]
    pub fn names(&self, value: i128) -> bool {
        self.ranges.iter().any(|range| range.contains(value))
    }
}

/// Values from `lower` to `upper`, both included. Wide enough for signed and unsigned ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Range {
    /// Least.
    pub lower: i128,
    /// Greatest.
    pub upper: i128,
}

impl Range {
    /// Whether a value is in it.
    #[must_use]
    pub fn contains(&self, value: i128) -> bool {
        (self.lower..=self.upper).contains(&value)
    }
}

/// What an integer (or, of [`Role::TraceUuid`], an array or BLOB of 16 bytes) tells the reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// Packet header: 0xC1FC1FC1.
    Magic,
    /// Packet header: the metadata's UUID.
    TraceUuid,
    /// Packet header: id of the stream class.
    StreamClassId,
    /// Packet header: id of the stream in its class.
    StreamId,
    /// Packet context: length of the packet with its padding, bits.
    PacketLength,
    /// Packet context: length of the packet's content, bits.
    ContentLength,
    /// Packet context: clock at the end.
    PacketEnd,
    /// Packet context: events discarded since the stream's beginning.
    Discarded,
    /// Packet context: number of the packet in its stream.
    Sequence,
    /// Event record header: id of the event record class.
    EventClassId,
    /// Low bits of the stream's clock.
    Clock,
}

/// A floating-point number: 16, 32, 64 or 128 bits.
#[derive(Debug, Clone, PartialEq)]
pub struct Float {
    /// Its place; 128 bits are said by a length of 128.
    pub bits: Bits,
    /// Attributes.
    pub attributes: Attributes,
}

/// How characters stand in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// UTF-8, or ASCII.
    Utf8,
    /// UTF-16, most significant byte first.
    Utf16Be,
    /// UTF-16, least significant byte first.
    Utf16Le,
    /// UTF-32, most significant byte first.
    Utf32Be,
    /// UTF-32, least significant byte first.
    Utf32Le,
}

impl Encoding {
    /// Bytes of a code unit: of its NUL.
    #[must_use]
    pub fn unit(self) -> usize {
        match self {
            Self::Utf8 => 1,
            Self::Utf16Be | Self::Utf16Le => 2,
            Self::Utf32Be | Self::Utf32Le => 4,
        }
    }
}

/// Where the length of text, a BLOB or an array comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Length {
    /// Always so many bytes or elements.
    Fixed(u64),
    /// What an unsigned integer says that was decoded before.
    Of(Path),
}

/// Text. It begins on a byte.
#[derive(Debug, Clone, PartialEq)]
pub struct Text {
    /// Bytes, of which those behind a NUL do not count; none where a NUL ends it.
    pub length: Option<Length>,
    /// Encoding.
    pub encoding: Encoding,
    /// Attributes.
    pub attributes: Attributes,
}

/// Bytes. They begin on a byte.
#[derive(Debug, Clone, PartialEq)]
pub struct Blob {
    /// How many.
    pub length: Length,
    /// IANA media type, or empty.
    pub media_type: String,
    /// [`Role::TraceUuid`].
    pub is_uuid: bool,
    /// Attributes.
    pub attributes: Attributes,
}

/// A structure.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Struct {
    /// Alignment besides that of its members, bits; 0 and 1 say none.
    pub alignment: u64,
    /// Members, in order.
    pub fields: Vec<Field>,
    /// Attributes.
    pub attributes: Attributes,
}

/// A member of a structure.
#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    /// Name.
    pub name: String,
    /// Class.
    pub class: FieldClass,
    /// Attributes.
    pub attributes: Attributes,
}

/// An array.
#[derive(Debug, Clone, PartialEq)]
pub struct Array {
    /// How many elements.
    pub length: Length,
    /// Their class.
    pub element: FieldClass,
    /// Alignment besides that of the elements, bits; 0 and 1 say none.
    pub alignment: u64,
    /// [`Role::TraceUuid`].
    pub is_uuid: bool,
    /// Attributes.
    pub attributes: Attributes,
}

/// A variant.
#[derive(Debug, Clone, PartialEq)]
pub struct Variant {
    /// Integer that says which option.
    pub selector: Path,
    /// Options.
    pub options: Vec<VariantOption>,
    /// Attributes.
    pub attributes: Attributes,
}

/// An option of a variant.
#[derive(Debug, Clone, PartialEq)]
pub struct VariantOption {
    /// Name, or empty.
    pub name: String,
    /// Values of the selector that select it.
    pub ranges: Vec<Range>,
    /// Class.
    pub class: FieldClass,
    /// Attributes.
    pub attributes: Attributes,
}

/// A field that may be absent.
#[derive(Debug, Clone, PartialEq)]
pub struct Optional {
    /// Boolean or integer that says whether it is there.
    pub selector: Path,
    /// Values of an integer for which it is; none for a boolean.
    pub ranges: Option<Vec<Range>>,
    /// Class.
    pub class: FieldClass,
    /// Attributes.
    pub attributes: Attributes,
}

impl FieldClass {
    /// Where the first bit may stand, bits: the least multiple. CTF2-SPEC-2.0, "alignment requirement of an instance".
    #[must_use]
    pub fn alignment(&self) -> u64 {
        match self {
            Self::Integer(integer) => u64::from(integer.bits.alignment),
            Self::Bool(bits) | Self::BitArray(bits) | Self::BitMap(bits, _) => u64::from(bits.alignment),
            Self::Float(float) => u64::from(float.bits.alignment),
            Self::Variable(_) | Self::Text(_) | Self::Blob(_) => 8,
            Self::Struct(of) => of.alignment(),
            Self::Array(array) => array.alignment.max(array.element.alignment()).max(1),
            Self::Variant(_) | Self::Optional(_) => 1,
        }
    }
}

impl Struct {
    /// Where its first bit may stand, bits: the greatest of its own and its members'.
    #[must_use]
    pub fn alignment(&self) -> u64 {
        self.fields.iter().map(|field| field.class.alignment()).max().unwrap_or(1).max(self.alignment).max(1)
    }

    /// The paths that lengths and selectors in it come from.
    #[must_use]
    pub fn paths(&self) -> Vec<&Path> {
        let mut paths = Vec::new();
        self.fields.iter().for_each(|field| wanted(&field.class, &mut paths, 0));
        paths
    }

    /// Returns true if a length or selector in it comes from a scope.
    #[must_use]
    pub fn depends_on(&self, scope: Scope) -> bool {
        self.paths().iter().any(|path| path.scope == scope)
    }

    /// The member of a name.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&FieldClass> {
        self.fields.iter().find(|field| field.name == name).map(|field| &field.class)
    }
}

fn wanted<'a>(class: &'a FieldClass, paths: &mut Vec<&'a Path>, depth: usize) {
    if depth > super::MAX_DEPTH {
        return;
    }
    match class {
        FieldClass::Struct(of) => {
            of.fields.iter().for_each(|field| wanted(&field.class, paths, depth.saturating_add(1)))
        }
        FieldClass::Array(array) => {
            if let Length::Of(path) = &array.length {
                paths.push(path);
            }
            wanted(&array.element, paths, depth.saturating_add(1));
        }
        FieldClass::Variant(variant) => {
            paths.push(&variant.selector);
            variant.options.iter().for_each(|option| wanted(&option.class, paths, depth.saturating_add(1)));
        }
        FieldClass::Optional(optional) => {
            paths.push(&optional.selector);
            wanted(&optional.class, paths, depth.saturating_add(1));
        }
        FieldClass::Text(Text { length: Some(Length::Of(path)), .. }) => paths.push(path),
        FieldClass::Blob(blob) => {
            if let Length::Of(path) = &blob.length {
                paths.push(path);
            }
        }
        _ => {}
    }
}

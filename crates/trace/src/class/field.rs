//! Field classes.

use super::labels::Labels;
use super::ranges::Range;
use super::{Attributes, Path, Scope};
use lastwords_bytes::ByteOrder;

/// The type of a field.
#[derive(Debug, Clone, PartialEq)]
pub enum FieldClass {
    /// Fixed-length integer, or enumeration if it has mappings.
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
    /// Named fields that follow each other.
    Struct(Struct),
    /// Elements of one class.
    Array(Box<Array>),
    /// One of several options, chosen by a selector.
    Variant(Box<Variant>),
    /// A field that is present or absent, as a selector decides.
    Optional(Box<Optional>),
}

/// Position and order of a fixed-length field's bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bits {
    /// Length in bits: 1 to 64.
    pub length: u8,
    /// Alignment in bits: a power of two.
    pub alignment: u16,
    /// Byte order.
    pub order: ByteOrder,
    /// The field's first bit is its most significant in little endian, and its least significant
    /// in big endian. (CTF 2's bit order is then the opposite of the natural one.)
    pub reversed: bool,
}

impl Bits {
    /// Returns the bits of whole bytes on a byte boundary, in natural order.
    #[must_use]
    pub fn bytes(size: u8, order: ByteOrder) -> Self {
        Self { length: size.saturating_mul(8), alignment: 8, order, reversed: false }
    }
}

/// An integer.
#[derive(Debug, Clone, PartialEq)]
pub struct Integer {
    /// Bits of the integer. For a variable-length integer only the alignment matters, and the
    /// length is 64.
    pub bits: Bits,
    /// The integer is in two's complement.
    pub signed: bool,
    /// Base in which it is shown: 2, 8, 10 or 16.
    pub base: u8,
    /// Names of values, for an enumeration, sorted by label. babeltrace2 2.1 has them in the order
    /// of its hash table, which differs visibly if a value has several names.
    pub mappings: Labels,
    /// Meanings of the number for the decoder.
    pub roles: Vec<Role>,
    /// Attributes.
    pub attributes: Attributes,
}

impl Integer {
    /// Makes an unsigned or signed integer shown in a base, without mappings and roles.
    #[must_use]
    pub fn new(bits: Bits, signed: bool, base: u8) -> Self {
        Self {
            bits,
            signed,
            base,
            mappings: Labels::default(),
            roles: Vec::new(),
            attributes: Attributes::default(),
        }
    }

    /// Returns true if the integer has this role.
    #[must_use]
    pub fn has(&self, role: Role) -> bool {
        self.roles.contains(&role)
    }
}

/// The meaning of an integer for the decoder. [`Role::TraceUuid`] is that of an array or BLOB of 16
/// bytes.
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
    /// Packet context: length of the packet with its padding, in bits.
    PacketLength,
    /// Packet context: length of the packet's content, in bits.
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
    /// Bits of the number. A length of 128 stands for 128 bits.
    pub bits: Bits,
    /// Attributes.
    pub attributes: Attributes,
}

/// The encoding of characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Encoding {
    /// UTF-8, or ASCII.
    #[default]
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
    /// Returns the bytes of a code unit, and so of the NUL.
    #[must_use]
    pub fn unit(self) -> usize {
        match self {
            Self::Utf8 => 1,
            Self::Utf16Be | Self::Utf16Le => 2,
            Self::Utf32Be | Self::Utf32Le => 4,
        }
    }
}

/// The source of the length of text, of a BLOB or of an array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Length {
    /// The length is always this number of bytes or elements.
    Fixed(u64),
    /// The value of an unsigned integer that was decoded before.
    Of(Path),
}

/// Text. It begins on a byte.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Text {
    /// Length in bytes; bytes after a NUL are ignored. If the length is none, a NUL ends the text.
    pub length: Option<Length>,
    /// Encoding.
    pub encoding: Encoding,
    /// Attributes.
    pub attributes: Attributes,
}

/// Bytes. They begin on a byte.
#[derive(Debug, Clone, PartialEq)]
pub struct Blob {
    /// Length in bytes.
    pub length: Length,
    /// IANA media type, or empty.
    pub media_type: String,
    /// The BLOB has the role [`Role::TraceUuid`].
    pub is_uuid: bool,
    /// Attributes.
    pub attributes: Attributes,
}

/// A structure.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Struct {
    /// Alignment in addition to that of its members, in bits; 0 and 1 mean none.
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
    /// Number of elements.
    pub length: Length,
    /// Class of the elements.
    pub element: FieldClass,
    /// Alignment in addition to that of the elements, in bits; 0 and 1 mean none.
    pub alignment: u64,
    /// The array has the role [`Role::TraceUuid`].
    pub is_uuid: bool,
    /// Attributes.
    pub attributes: Attributes,
}

impl Array {
    /// Makes an array of bare elements, without attributes and roles.
    #[must_use]
    pub fn new(length: Length, element: FieldClass) -> Self {
        let attributes = Attributes::default();
        Self { length, element, alignment: 0, is_uuid: false, attributes }
    }
}

/// A variant.
#[derive(Debug, Clone, PartialEq)]
pub struct Variant {
    /// Path of the integer that selects the option.
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
    /// Values of the selector that select this option.
    pub ranges: Vec<Range>,
    /// Class.
    pub class: FieldClass,
    /// Attributes.
    pub attributes: Attributes,
}

/// A field that may be absent.
#[derive(Debug, Clone, PartialEq)]
pub struct Optional {
    /// Path of the boolean or integer that decides whether the field is present.
    pub selector: Path,
    /// Values of an integer for which the field is present; none for a boolean.
    pub ranges: Option<Vec<Range>>,
    /// Class.
    pub class: FieldClass,
    /// Attributes.
    pub attributes: Attributes,
}

impl FieldClass {
    /// Returns the alignment of the field's first bit, in bits. CTF2-SPEC-2.0, "alignment
    /// requirement of an instance".
    #[must_use]
    pub fn alignment(&self) -> u64 {
        match self {
            Self::Integer(integer) => u64::from(integer.bits.alignment),
            Self::Bool(bits) | Self::BitArray(bits) | Self::BitMap(bits, _) => {
                u64::from(bits.alignment)
            }
            Self::Float(float) => u64::from(float.bits.alignment),
            Self::Variable(_) | Self::Text(_) | Self::Blob(_) => 8,
            Self::Struct(of) => of.alignment(),
            Self::Array(array) => array.alignment.max(array.element.alignment()).max(1),
            Self::Variant(_) | Self::Optional(_) => 1,
        }
    }
}

impl Struct {
    /// Returns the alignment of the structure's first bit, in bits: the maximum of its own and its
    /// members'.
    #[must_use]
    pub fn alignment(&self) -> u64 {
        self.fields
            .iter()
            .map(|field| field.class.alignment())
            .max()
            .unwrap_or(1)
            .max(self.alignment)
            .max(1)
    }

    /// Returns the paths of lengths and selectors in the structure.
    #[must_use]
    pub fn paths(&self) -> Vec<&Path> {
        let mut paths = Vec::new();
        self.fields.iter().for_each(|field| wanted(&field.class, &mut paths, 0));
        paths
    }

    /// Returns true if a length or selector in the structure refers to the scope.
    #[must_use]
    pub fn depends_on(&self, scope: Scope) -> bool {
        self.paths().iter().any(|path| path.scope == scope)
    }

    /// Returns the member with this name.
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
            variant
                .options
                .iter()
                .for_each(|option| wanted(&option.class, paths, depth.saturating_add(1)));
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

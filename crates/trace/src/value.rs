//! Field values over an event's bytes, without allocation.

use crate::schema::{Field, FieldClass};
use lastwords_bytes::ByteOrder;

/// The value of a field.
#[derive(Debug, Clone, Copy)]
pub enum Value<'a> {
    /// Unsigned integer.
    Unsigned {
        /// Value.
        value: u64,
        /// 10 or 16.
        base: u8,
    },
    /// Signed integer.
    Signed {
        /// Value.
        value: i64,
        /// 10 or 16.
        base: u8,
        /// Bytes of the field, which say how many digits a negative number has in base 16.
        size: u8,
    },
    /// Float of 4 bytes.
    Single(f32),
    /// Float of 8 bytes.
    Double(f64),
    /// The byte of a boolean: 0 is false.
    Bool(u8),
    /// Text, which should be UTF-8, without its NULs.
    Text(&'a [u8]),
    /// Raw bytes.
    Bytes(&'a [u8]),
    /// Enumeration.
    Enum(EnumValue<'a>),
    /// Array or sequence.
    Elements(Elements<'a>),
}

/// The value of an enumeration.
#[derive(Debug, Clone, Copy)]
pub struct EnumValue<'a> {
    /// Value; sign-extended where signed, else zero-extended and to be read as unsigned.
    pub value: i64,
    /// Two's complement.
    pub signed: bool,
    /// Values and labels of the class.
    pub labels: &'a [(i64, String)],
}

impl<'a> EnumValue<'a> {
    /// The labels of this value, in the order of the class.
    pub fn matching(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let value = self.value;
        self.labels.iter().filter(move |(v, _)| *v == value).map(|(_, label)| label.as_str())
    }
}

/// Elements of an array or sequence: an iterator of values.
#[derive(Debug, Clone, Copy)]
pub struct Elements<'a> {
    class: &'a FieldClass,
    bytes: &'a [u8],
    order: ByteOrder,
    count: usize,
}

impl<'a> Elements<'a> {
    /// Elements left.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// None left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// What they are.
    #[must_use]
    pub fn class(&self) -> &'a FieldClass {
        self.class
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Value<'a>;

    fn next(&mut self) -> Option<Value<'a>> {
        self.count = self.count.checked_sub(1)?;
        take(self.class, &mut self.bytes, self.order)
    }
}

/// The fields of a context or payload and their values, in order. Bytes that [`crate::decode`] has accepted give a value
/// for each field; bytes that it has not may end early.
#[derive(Debug, Clone)]
pub struct Values<'a> {
    fields: std::slice::Iter<'a, Field>,
    bytes: &'a [u8],
    order: ByteOrder,
}

impl<'a> Values<'a> {
    /// Walks `fields` over `bytes`.
    #[must_use]
    pub fn new(fields: &'a [Field], bytes: &'a [u8], order: ByteOrder) -> Self {
        Self { fields: fields.iter(), bytes, order }
    }
}

impl<'a> Iterator for Values<'a> {
    type Item = (&'a Field, Value<'a>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let field = self.fields.next()?;
        take(&field.class, &mut self.bytes, self.order).map(|value| (field, value))
    }
}

/// Takes the value of a class from the front of `bytes`; none where it does not fit.
#[inline]
pub fn take<'a>(class: &'a FieldClass, bytes: &mut &'a [u8], order: ByteOrder) -> Option<Value<'a>> {
    Some(match class {
        FieldClass::Integer { size, signed: false, base } => {
            Value::Unsigned { value: take_integer(bytes, *size, order)?, base: *base }
        }
        FieldClass::Integer { size, signed: true, base } => {
            Value::Signed { value: extend(take_integer(bytes, *size, order)?, *size), base: *base, size: *size }
        }
        FieldClass::Float { size: 4 } => Value::Single(f32::from_bits(take_integer(bytes, 4, order)? as u32)),
        FieldClass::Float { size } => Value::Double(f64::from_bits(take_integer(bytes, *size, order)?)),
        FieldClass::Bool => Value::Bool(bytes.split_off_first().copied()?),
        FieldClass::String => text(bytes)?,
        FieldClass::Text { size } => padded(bytes.split_off(..usize::try_from(*size).ok()?)?),
        FieldClass::Bytes => {
            let count = usize::try_from(take_integer(bytes, 4, order)?).ok()?;
            Value::Bytes(bytes.split_off(..count)?)
        }
        FieldClass::Sequence(element) => {
            let count = usize::try_from(take_integer(bytes, 4, order)?).ok()?;
            elements(element, count, bytes, order)?
        }
        FieldClass::Array { count, element } => elements(element, usize::try_from(*count).ok()?, bytes, order)?,
        FieldClass::Enum { size, signed, labels } => {
            let raw = take_integer(bytes, *size, order)?;
            let value = if *signed { extend(raw, *size) } else { raw.cast_signed() };
            Value::Enum(EnumValue { value, signed: *signed, labels })
        }
    })
}

#[inline]
fn text<'a>(bytes: &mut &'a [u8]) -> Option<Value<'a>> {
    let end = crate::nul::find(bytes)?;
    let text = bytes.split_off(..end)?;
    bytes.split_off_first()?;
    Some(Value::Text(text))
}

fn padded(bytes: &[u8]) -> Value<'_> {
    let end = crate::nul::find(bytes).unwrap_or(bytes.len());
    Value::Text(bytes.get(..end).unwrap_or(bytes))
}

fn elements<'a>(class: &'a FieldClass, count: usize, bytes: &mut &'a [u8], order: ByteOrder) -> Option<Value<'a>> {
    let size = if class.is_scalar() { class.fixed_size()? } else { return None };
    let bytes = bytes.split_off(..count.checked_mul(size)?)?;
    Some(Value::Elements(Elements { class, bytes, order, count }))
}

/// Takes an unsigned integer of 1, 2, 4 or 8 bytes from the front of `bytes`; none where it does not fit.
#[inline]
pub fn take_integer(bytes: &mut &[u8], size: u8, order: ByteOrder) -> Option<u64> {
    match (size, order) {
        (1, _) => bytes.split_off_first().map(|b| u64::from(*b)),
        (2, ByteOrder::Little) => chunk(bytes).map(u16::from_le_bytes).map(u64::from),
        (4, ByteOrder::Little) => chunk(bytes).map(u32::from_le_bytes).map(u64::from),
        (8, ByteOrder::Little) => chunk(bytes).map(u64::from_le_bytes),
        (2, ByteOrder::Big) => chunk(bytes).map(u16::from_be_bytes).map(u64::from),
        (4, ByteOrder::Big) => chunk(bytes).map(u32::from_be_bytes).map(u64::from),
        (8, ByteOrder::Big) => chunk(bytes).map(u64::from_be_bytes),
        _ => None,
    }
}

#[inline]
fn chunk<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*first)
}

/// The value of a two's complement number of `size` bytes.
#[inline]
#[must_use]
pub fn extend(raw: u64, size: u8) -> i64 {
    match size {
        1 => i64::from((raw as u8).cast_signed()),
        2 => i64::from((raw as u16).cast_signed()),
        4 => i64::from((raw as u32).cast_signed()),
        _ => raw.cast_signed(),
    }
}

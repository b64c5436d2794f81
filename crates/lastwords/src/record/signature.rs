//! A number that distinguishes the types of a callsite's values from other types.

use crate::session::desc::{FieldDesc, FieldType};
use crate::session::registry::fnv::{BASIS, with_byte};

/// Returns the signature of the types of these fields; it is never 0.
pub(crate) const fn from_fields(fields: &[FieldDesc]) -> u32 {
    from_both(fields, &[])
}

/// Returns the signature of the types of these fields and of those after them; it is never 0.
pub(crate) const fn from_both(fields: &[FieldDesc], after: &[FieldDesc]) -> u32 {
    let hash = of_types(of_types(BASIS, fields), after);
    if hash == 0 { 1 } else { hash }
}

const fn of_types(mut hash: u32, fields: &[FieldDesc]) -> u32 {
    let mut rest = fields;
    while let [first, others @ ..] = rest {
        hash = of_type(hash, &first.ty);
        rest = others;
    }
    hash
}

const fn of_type(hash: u32, ty: &FieldType) -> u32 {
    match ty {
        FieldType::Unsigned { bytes, base } => add(add(add(hash, 1), *bytes as u64), *base as u64),
        FieldType::Signed { bytes, base } => add(add(add(hash, 2), *bytes as u64), *base as u64),
        FieldType::Float { bytes } => add(add(hash, 3), *bytes as u64),
        FieldType::Bool => add(hash, 4),
        FieldType::String => add(hash, 5),
        FieldType::Sequence(element) => of_type(add(hash, 6), element),
        FieldType::Array { count, element } => of_type(add(add(hash, 7), *count as u64), element),
        FieldType::Enum { bytes, signed, labels } => {
            of_labels(add(add(add(hash, 8), *bytes as u64), *signed as u64), labels)
        }
        FieldType::Text { bytes } => add(add(hash, 9), *bytes as u64),
        FieldType::Bytes => add(hash, 10),
        FieldType::Optional(inner) => of_type(add(hash, 11), inner),
    }
}

const fn of_labels(mut hash: u32, labels: &[(i64, &str)]) -> u32 {
    let mut rest = labels;
    while let [(value, label), others @ ..] = rest {
        hash = add(add(hash, *value as u64), label.len() as u64);
        let mut text = label.as_bytes();
        while let [byte, more @ ..] = text {
            hash = add(hash, *byte as u64);
            text = more;
        }
        rest = others;
    }
    hash
}

/// Adds the bytes of the value from the lowest on, until the rest is 0, so that small numbers take
/// one step.
const fn add(mut hash: u32, mut value: u64) -> u32 {
    loop {
        hash = with_byte(hash, (value & 0xff) as u8);
        value >>= 8;
        if value == 0 {
            return hash;
        }
    }
}

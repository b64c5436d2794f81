//! Estimates how much text an event becomes beyond its own bytes. Names and labels are in the
//! metadata once but in each event's text, and so are fields and elements of no size. Hostile
//! metadata could turn a stream of some kilobytes into gigabytes of text. A [`Budget`] pays for the
//! events of such classes.

use super::fault::{Expected, Fault};
use lastwords_bytes::Budget;
use lastwords_trace::class::{
    Array, Field, FieldClass, Integer, Labels, Length, MAX_DEPTH, Struct, TraceClass,
};

/// Bytes of text that a field takes beyond its name and labels.
const FIELD: u64 = 24;
/// Bytes of text that any event may become without paying. Events of real traces become several
/// times less.
const FREE: u64 = 1024;
/// Bytes of text that an event may become in addition for each of its bits, without paying.
const FREE_A_BIT: u64 = 32;
/// Largest number of bytes of text for an event beyond the free part, because a line must fit in
/// memory.
const MOST: u64 = 1 << 25;
/// Bytes of text that a byte of a packet's context may become.
const CONTEXT_BYTE: u64 = 4;

/// Returns the bytes of text of a structure's fields. Elements of arrays whose length is in the
/// packet are not included.
pub(super) fn of_scope(root: Option<&Struct>) -> u64 {
    root.map_or(0, |root| structure(root, 0))
}

/// Returns the bytes of text that are in each event's line, whatever its class.
pub(super) fn of_trace(class: &TraceClass) -> u64 {
    let text = |key: &&str| class.text(key).map_or(0, |text| text.len() as u64);
    ["hostname", "procname"].iter().map(text).fold(0, u64::saturating_add)
}

/// Returns the bytes of text of an array's element.
pub(super) fn of_element(array: &Array) -> u64 {
    class_weight(&array.element, 0)
}

/// Returns true if elements of this many bits need not be paid for.
pub(super) fn is_element_free(class: &FieldClass, bits: u64) -> bool {
    class_weight(class, 0) <= bits.saturating_mul(FREE_A_BIT)
}

/// Returns true if events of this many bits need not be paid for, whatever packet contains them.
pub(super) fn is_event_free(weight: u64, bits: u64) -> bool {
    weight <= bits.saturating_mul(FREE_A_BIT).saturating_add(FREE / 2)
}

/// Returns how many bytes of text a packet's context of this many bits adds to each event; 0 if it
/// need not be paid for.
pub(super) fn of_context(weight: u64, bits: u64) -> u64 {
    let text = weight.saturating_add((bits / 8).saturating_mul(CONTEXT_BYTE));
    if text <= FREE / 2 { 0 } else { text }
}

/// Pays for an event of `bits` bits that becomes `weight` bytes of text. Returns the amount paid.
#[inline]
pub(super) fn pay(budget: &Budget, weight: u64, at: u64, bits: u64) -> Result<u64, Fault> {
    let free = bits.saturating_mul(FREE_A_BIT).saturating_add(FREE);
    let more = weight.saturating_sub(free);
    if more > 0 && (more > MOST || budget.bytes("text", more).is_err()) {
        return Err(Fault { at, value: weight, expected: Expected::Proportion(bits) });
    }
    Ok(more)
}

fn structure(fields: &Struct, depth: usize) -> u64 {
    let field =
        |field: &Field| class_weight(&field.class, depth).saturating_add(field.name.len() as u64);
    fields.fields.iter().map(field).fold(0, u64::saturating_add)
}

fn class_weight(class: &FieldClass, depth: usize) -> u64 {
    if depth > MAX_DEPTH {
        return FIELD;
    }
    let next = depth.saturating_add(1);
    let more = match class {
        FieldClass::Integer(Integer { mappings, .. })
        | FieldClass::Variable(Integer { mappings, .. }) => mappings.longest(),
        FieldClass::BitMap(bits, flags) => {
            names(flags).min(flags.longest().saturating_mul(u64::from(bits.length)))
        }
        FieldClass::Struct(fields) => structure(fields, next),
        FieldClass::Array(array) => match array.length {
            Length::Fixed(count) => class_weight(&array.element, next).saturating_mul(count),
            Length::Of(_) => 0,
        },
        FieldClass::Variant(variant) => {
            let options = variant.options.iter();
            options
                .map(|option| {
                    class_weight(&option.class, next).saturating_add(option.name.len() as u64)
                })
                .max()
                .unwrap_or(0)
        }
        FieldClass::Optional(optional) => class_weight(&optional.class, next),
        _ => 0,
    };
    more.saturating_add(FIELD)
}

fn names(labels: &Labels) -> u64 {
    labels.iter().map(|mapping| mapping.label.len() as u64).fold(0, u64::saturating_add)
}

//! Event headers that are one number: an id, and the low bits of the clock. In little endian the id
//! has the low bits of the number, in big endian the high ones. LTTng's compact (5 + 27 bits) and
//! large (16 + 32 bits) forms and our own have this form, except for the ids that announce another
//! form.

use lastwords_bytes::ByteOrder;
use lastwords_trace::class::{Bits, FieldClass, Role, Struct};

/// An event header that is one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Word {
    /// Alignment of the header, in bits: at least 8.
    pub(super) alignment: u64,
    /// Size in bytes: up to 8.
    pub(super) size: usize,
    pub(super) clock_bits: u8,
    pub(super) order: ByteOrder,
    /// Largest id of a header of this form.
    pub(super) max_id: u64,
    id: BitField,
    clock: BitField,
}

/// A bit field of a number: the shift to its lowest bit, and the mask after the shift.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct BitField {
    shift: u32,
    mask: u64,
}

impl Word {
    /// Splits the number into the id and the clock's bits.
    #[inline]
    pub(super) fn split(&self, word: u64) -> (u64, u64) {
        (word >> self.id.shift & self.id.mask, word >> self.clock.shift & self.clock.mask)
    }
}

fn mask(bits: u8) -> u64 {
    u64::MAX >> 64u32.wrapping_sub(u32::from(bits.clamp(1, 64)))
}

/// The fields of the form that ids from 0 to `max_id` have.
#[derive(Debug, Default)]
struct Flat {
    bits: Vec<(Bits, Vec<Role>)>,
    max_id: u64,
}

/// Returns the form if the header is one number.
pub(super) fn word(header: &Struct) -> Option<Word> {
    let mut flat = Flat { bits: Vec::new(), max_id: u64::MAX };
    flatten(header, &mut flat, 0)?;
    let [(id, id_roles), (clock, clock_roles)] = flat.bits.as_slice() else { return None };
    let total = u32::from(id.length).saturating_add(u32::from(clock.length));
    let alignment = header.alignment();
    let follows = u32::from(id.length).is_multiple_of(u32::from(clock.alignment.max(1)));
    let plain = id_roles.as_slice() == [Role::EventClassId]
        && clock_roles.as_slice() == [Role::Clock]
        && id.order == clock.order
        && !id.reversed
        && !clock.reversed;
    let fits = alignment >= 8 && total <= 64 && total.is_multiple_of(8) && follows;
    let (id_shift, clock_shift) = match id.order {
        ByteOrder::Little => (0, u32::from(id.length)),
        ByteOrder::Big => (u32::from(clock.length), 0),
    };
    (plain && fits).then_some(Word {
        alignment,
        size: (total / 8) as usize,
        clock_bits: clock.length,
        order: id.order,
        max_id: flat.max_id.min(mask(id.length)),
        id: BitField { shift: id_shift, mask: mask(id.length) },
        clock: BitField { shift: clock_shift, mask: mask(clock.length) },
    })
}

fn flatten(of: &Struct, flat: &mut Flat, depth: usize) -> Option<()> {
    if depth > 4 {
        return None;
    }
    // An inner structure with a greater alignment than its position is not supported.
    for field in &of.fields {
        match &field.class {
            FieldClass::Integer(integer) if !integer.signed && flat.bits.len() < 2 => {
                flat.bits.push((integer.bits, integer.roles.clone()));
            }
            FieldClass::Struct(inner) if inner.alignment() <= 1 || inner.fields.is_empty() => {
                flatten(inner, flat, depth.saturating_add(1))?;
            }
            FieldClass::Variant(variant) => {
                let option =
                    variant.options.iter().find(|o| o.ranges.iter().any(|r| r.contains(0)))?;
                let range = option.ranges.iter().find(|r| r.contains(0))?;
                flat.max_id = flat.max_id.min(u64::try_from(range.upper).ok()?);
                let FieldClass::Struct(inner) = &option.class else { return None };
                let at: u32 = flat.bits.iter().map(|(bits, _)| u32::from(bits.length)).sum();
                let aligned = inner.alignment().max(1);
                if !u64::from(at).is_multiple_of(aligned) && !inner.fields.is_empty() {
                    return None;
                }
                let padded = inner.fields.is_empty() && !u64::from(at).is_multiple_of(aligned);
                if padded || variant.selector.names.len() != 1 {
                    return None;
                }
                let selects = of
                    .fields
                    .first()
                    .is_some_and(|first| Some(&first.name) == variant.selector.names.first());
                if !selects || variant.selector.scope != lastwords_trace::class::Scope::EventHeader
                {
                    return None;
                }
                flatten(inner, flat, depth.saturating_add(1))?;
            }
            _ => return None,
        }
    }
    Some(())
}

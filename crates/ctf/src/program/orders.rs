//! The byte orders that a class has inside of bytes.

use lastwords_bytes::ByteOrder;
use lastwords_trace::class::{Bits, FieldClass, Struct};

/// The byte orders of fields inside bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Orders {
    pub(super) little: bool,
    pub(super) big: bool,
}

impl Orders {
    /// Adds the byte orders of a scope.
    pub(super) fn and(mut self, root: Option<&Struct>) -> Self {
        root.into_iter()
            .flat_map(|root| &root.fields)
            .for_each(|field| orders_inside(&field.class, &mut self));
        self
    }

    /// Returns true if both byte orders occur.
    pub(super) fn are_mixed(self) -> bool {
        self.little && self.big
    }
}

/// Adds the byte orders of fields that can begin or end inside a byte.
fn orders_inside(class: &FieldClass, orders: &mut Orders) {
    let bits = match class {
        FieldClass::Integer(integer) => integer.bits,
        FieldClass::Bool(bits) | FieldClass::BitArray(bits) | FieldClass::BitMap(bits, _) => *bits,
        FieldClass::Float(float) => float.bits,
        FieldClass::Struct(of) => {
            return of.fields.iter().for_each(|field| orders_inside(&field.class, orders));
        }
        FieldClass::Array(array) => return orders_inside(&array.element, orders),
        FieldClass::Variant(variant) => {
            return variant.options.iter().for_each(|option| orders_inside(&option.class, orders));
        }
        FieldClass::Optional(optional) => return orders_inside(&optional.class, orders),
        FieldClass::Variable(_) | FieldClass::Text(_) | FieldClass::Blob(_) => return,
    };
    if inside_bytes(bits) {
        match bits.order {
            ByteOrder::Little => orders.little = true,
            ByteOrder::Big => orders.big = true,
        }
    }
}

/// Returns true if a field can begin or end inside a byte.
pub(super) fn inside_bytes(bits: Bits) -> bool {
    bits.alignment < 8 || !bits.length.is_multiple_of(8)
}

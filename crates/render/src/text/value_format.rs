//! The formats of the values of a scope's fields, and the text before each value.

use super::escape::bare;
use lastwords_ctf::program::Code;
use lastwords_trace::class::{Encoding, Labels};
use lastwords_trace::text::number::Constant;
use lastwords_trace::visit::{Node, Shape};

/// The fields of a scope.
pub(super) struct ScopePlan<'t> {
    pub(super) code: &'t Code,
    pub(super) formats: Vec<FieldFormat<'t>>,
}

/// The text before the value of a field, and the format of the value.
pub(super) struct FieldFormat<'t> {
    pub(super) prefix: Constant,
    pub(super) value: ValueFormat<'t>,
}

/// The format of a value.
#[derive(Clone, Copy)]
pub(super) enum ValueFormat<'t> {
    Hidden,
    Unsigned,
    Signed,
    /// An integer to another base: its length in bits, true if it is signed, and the base.
    Based(u8, bool, u8),
    /// An enumeration: its labels; and length, sign and base of the integer.
    Enum(&'t Labels, u8, bool, u8),
    Bool,
    /// A bit map: the names of the bits.
    Bits(&'t Labels),
    Text(Encoding),
    Other,
}

impl<'t> ScopePlan<'t> {
    /// Returns the formats for a scope with this code.
    pub(super) fn new(code: &'t Code) -> Self {
        Self { code, formats: code.nodes().iter().map(field_format).collect() }
    }
}

impl<'t> ValueFormat<'t> {
    /// Returns the format of the value of a node.
    pub(super) fn from_node(node: &'t Node) -> Self {
        match &node.shape {
            _ if !node.shown => Self::Hidden,
            Shape::Integer { length, signed, base, mappings } if !mappings.is_empty() => {
                Self::Enum(mappings, *length, *signed, *base)
            }
            Shape::Integer { signed: false, base: 10, .. } => Self::Unsigned,
            Shape::Integer { signed: true, base: 10, .. } => Self::Signed,
            Shape::Integer { length, signed, base, .. } => Self::Based(*length, *signed, *base),
            Shape::Bool => Self::Bool,
            Shape::BitArray { flags } => Self::Bits(flags),
            Shape::Text(encoding) => Self::Text(*encoding),
            _ => Self::Other,
        }
    }
}

fn field_format(node: &Node) -> FieldFormat<'_> {
    let mut prefix = Vec::new();
    if !node.name.is_empty() {
        prefix.extend_from_slice(if node.position == 0 { b" " } else { b", " });
        bare(&mut prefix, node.name.as_bytes());
        prefix.extend_from_slice(b" = ");
    }
    FieldFormat { prefix: Constant::new(&prefix), value: ValueFormat::from_node(node) }
}

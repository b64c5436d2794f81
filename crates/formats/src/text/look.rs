//! How the values of a scope's fields look, and what stands before each.

use super::escape::bare;
use super::number::Constant;
use lastwords_ctf::program::Code;
use lastwords_trace::class::{Encoding, Labels};
use lastwords_trace::visit::{Node, Shape};

/// The fields of a scope.
pub(super) struct ScopePlan<'t> {
    pub(super) code: &'t Code,
    pub(super) parts: Vec<Part<'t>>,
}

/// What stands before a field's value, and how the value looks.
pub(super) struct Part<'t> {
    pub(super) prefix: Constant,
    pub(super) look: Look<'t>,
}

#[derive(Clone, Copy)]
pub(super) enum Look<'t> {
    Hidden,
    Unsigned,
    Signed,
    /// Another base: bits of the field, whether it is signed, the base.
    Based(u8, bool, u8),
    Enum(&'t Labels, u8, bool, u8),
    Bool,
    /// Names of bits.
    Bits(&'t Labels),
    Text(Encoding),
    Other,
}

impl<'t> ScopePlan<'t> {
    /// Of a scope with this code.
    pub(super) fn new(code: &'t Code) -> Self {
        Self { code, parts: code.nodes().iter().map(part).collect() }
    }
}

impl<'t> Look<'t> {
    /// How the value of a node looks.
    pub(super) fn of(node: &'t Node) -> Self {
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

fn part(node: &Node) -> Part<'_> {
    let mut prefix = Vec::new();
    if !node.name.is_empty() {
        prefix.extend_from_slice(if node.position == 0 { b" " } else { b", " });
        bare(&mut prefix, node.name.as_bytes());
        prefix.extend_from_slice(b" = ");
    }
    Part { prefix: Constant::new(&prefix), look: Look::of(node) }
}

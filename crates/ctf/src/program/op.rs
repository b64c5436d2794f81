//! The compiled form of field classes: a flat list of steps.

use super::hide::Hidden;
use lastwords_bytes::ByteOrder;
use lastwords_trace::class::{Bits, Range, RangeIndex, Role};
use lastwords_trace::visit::{Node, NodeId};

/// One step of a decoder.
#[derive(Debug, Clone, Copy)]
pub(super) enum Op {
    /// Advance to a multiple of this many bits.
    Align(u32),
    /// Skip this many bits.
    Advance(u64),
    /// A fixed-length field of 8, 16, 32 or 64 bits on a byte boundary.
    Bytes {
        node: NodeId,
        /// Size in bytes.
        size: u8,
        order: ByteOrder,
        kind: Kind,
    },
    /// Any fixed-length field.
    Bits { node: NodeId, bits: Bits, kind: Kind },
    /// A variable-length integer.
    Variable { node: NodeId, signed: bool },
    /// A float of 128 bits on a byte boundary.
    Quadruple { node: NodeId, order: ByteOrder },
    /// Save the last number in this slot.
    Save(u16),
    /// Use the last number for this role.
    Role(Role),
    /// Set the low bits of the clock, this many; 0 stands for the number of bits of the last
    /// variable-length integer.
    Clock(u8),
    /// Text up to a NUL character of this many bytes.
    Text { node: NodeId, unit: u8 },
    /// Text or bytes with a length, on a byte boundary.
    Run { node: NodeId, count: Count, text: bool },
    /// Skip elements of this many bits each.
    Stride { count: Count, bits: u32 },
    /// A structure begins.
    Begin(NodeId),
    /// The structure ends.
    End(NodeId),
    /// Run the ops up to `end` as often as `count` says.
    Loop { node: NodeId, count: Count, end: u32 },
    /// A hidden field: its position among [`Code::hidden`].
    Hide { node: NodeId, hidden: u32 },
    /// Run one of the cases of a choice, then continue at `end`, after all cases.
    Choose { node: NodeId, slot: u16, choice: u32, end: u32 },
}

/// How the bits of a fixed-length field become a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Unsigned,
    Signed,
    Half,
    Single,
    Double,
}

/// A number of elements or bytes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Count {
    Fixed(u64),
    /// The number in a slot. For loops, the second value is how many bytes of text each element
    /// becomes.
    Slot(u16, u32),
}

/// The cases of a variant or optional, and the selector values for each.
#[derive(Debug, Clone)]
pub(super) struct Choice {
    /// The selector is in two's complement.
    pub(super) signed: bool,
    /// Values and the number of their case. The first range that contains the value decides.
    pub(super) ranges: Vec<(u32, Range)>,
    /// Finds the case if there are many ranges.
    pub(super) index: Option<RangeIndex>,
    /// The begin and the end of the ops of each case.
    pub(super) cases: Vec<(u32, u32)>,
    /// The field is an optional, so a value in no range means that it is absent. Otherwise such a
    /// value is an error.
    pub(super) optional: bool,
}

impl Choice {
    #[inline]
    pub(super) fn case(&self, value: u64) -> Option<usize> {
        let value = if self.signed { i128::from(value.cast_signed()) } else { i128::from(value) };
        let found = match &self.index {
            Some(index) => index.first(value)?,
            None => self.ranges.iter().find(|(_, range)| range.contains(value))?.0,
        };
        usize::try_from(found).ok()
    }
}

/// The steps of one scope, and the fields that they decode.
#[derive(Debug, Clone, Default)]
pub struct Code {
    pub(super) ops: Vec<Op>,
    pub(super) choices: Vec<Choice>,
    pub(super) nodes: Vec<Node>,
    pub(super) hidden: Vec<Hidden>,
    /// The field of a packet header that has the metadata's UUID.
    pub(super) uuid: Option<NodeId>,
}

impl Code {
    /// Returns the fields that a visitor's node ids refer to.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }
}

//! The flat form of field classes.

use lastwords_bytes::ByteOrder;
use lastwords_trace::class::{Bits, Range, RangeIndex, Role};
use lastwords_trace::visit::{Node, NodeId};

/// One step of a decoder.
#[derive(Debug, Clone, Copy)]
pub(super) enum Op {
    /// Go on to a multiple of so many bits.
    Align(u32),
    /// Pass over so many bits.
    Advance(u64),
    /// A fixed-length field of 8, 16, 32 or 64 bits on a byte boundary.
    Bytes {
        node: NodeId,
        /// Bytes.
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
    /// Keep the last number.
    Save(u16),
    /// Use the last number.
    Role(Role),
    /// Set the low bits of the clock; 0: as many as the last variable-length integer had.
    Clock(u8),
    /// Text up to a NUL of so many bytes.
    Text { node: NodeId, unit: u8 },
    /// Text or bytes of a length, on a byte boundary.
    Run { node: NodeId, count: Count, text: bool },
    /// Elements of so many bits each, passed over.
    Stride { count: Count, bits: u32 },
    /// A structure begins.
    Begin(NodeId),
    /// It ends.
    End(NodeId),
    /// The ops up to `end` as often as `count` says.
    Loop { node: NodeId, count: Count, end: u32 },
    /// One of the cases of a choice; behind all of them, at `end`, it goes on.
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
    /// The number of a slot. Of a loop's elements each becomes so much text.
    Slot(u16, u32),
}

/// What a variant's or optional's selector can say.
#[derive(Debug, Clone)]
pub(super) struct Choice {
    /// The selector is in two's complement.
    pub(super) signed: bool,
    /// Values, and which case; the first that contains the value counts.
    pub(super) ranges: Vec<(u32, Range)>,
    /// Finds the case where there are many.
    pub(super) index: Option<RangeIndex>,
    /// By case: where its ops begin and end.
    pub(super) cases: Vec<(u32, u32)>,
    /// A value in no range says that the field is absent; else it is an error.
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

/// The steps of one scope and what they are about.
#[derive(Debug, Clone, Default)]
pub struct Code {
    pub(super) ops: Vec<Op>,
    pub(super) choices: Vec<Choice>,
    pub(super) nodes: Vec<Node>,
    /// The metadata's UUID, of a packet header.
    pub(super) uuid: Option<NodeId>,
}

impl Code {
    /// What a visitor's node ids mean.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }
}

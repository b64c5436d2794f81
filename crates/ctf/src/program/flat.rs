//! Scopes whose fields stand one behind the other on byte boundaries: what a program for them needs to know, no more.

use super::op::{Code, Count, Kind, Op};
use lastwords_bytes::ByteOrder;
use lastwords_trace::visit::NodeId;

/// A step over such a scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flat {
    /// A structure begins.
    Begin(NodeId),
    /// It ends.
    End,
    /// So many bytes of nothing.
    Skip(u64),
    /// An integer of 1, 2, 4 or 8 bytes.
    Integer {
        /// What it is.
        node: NodeId,
        /// Bytes.
        size: u8,
        /// Two's complement.
        signed: bool,
        /// Its byte order.
        order: ByteOrder,
    },
    /// Text up to a NUL byte.
    Text(NodeId),
    /// Text of so many bytes.
    Chars(NodeId, u64),
}

impl Code {
    /// The steps, where it has this form, begins on a byte boundary and depends on nothing before it.
    #[must_use]
    pub fn flat(&self) -> Option<Vec<Flat>> {
        let mut steps = Vec::with_capacity(self.ops.len());
        for op in &self.ops {
            steps.push(match *op {
                Op::Begin(node) => Flat::Begin(node),
                Op::End(_) => Flat::End,
                Op::Advance(bits) if bits.is_multiple_of(8) => Flat::Skip(bits / 8),
                Op::Bytes { node, size, order, kind: kind @ (Kind::Unsigned | Kind::Signed) } => {
                    Flat::Integer { node, size, signed: kind == Kind::Signed, order }
                }
                Op::Text { node, unit: 1 } => Flat::Text(node),
                Op::Run { node, count: Count::Fixed(bytes), text: true } => Flat::Chars(node, bytes),
                // Nothing that follows asks for what is kept.
                Op::Align(1 | 8) | Op::Save(_) => continue,
                _ => return None,
            });
        }
        Some(steps)
    }
}

//! A simple list of steps for scopes whose fields follow each other on byte boundaries.

use super::op::{Code, Count, Kind, Op};
use lastwords_bytes::ByteOrder;
use lastwords_trace::visit::NodeId;

/// One step through such a scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flat {
    /// A structure begins.
    Begin(NodeId),
    /// The structure ends.
    End,
    /// Skip this many bytes.
    Skip(u64),
    /// An integer of 1, 2, 4 or 8 bytes.
    Integer {
        /// The field.
        node: NodeId,
        /// Size in bytes.
        size: u8,
        /// The integer is in two's complement.
        signed: bool,
        /// Byte order of the integer.
        order: ByteOrder,
    },
    /// Text up to a NUL byte.
    Text(NodeId),
    /// Text of this many bytes.
    Chars(NodeId, u64),
}

impl Code {
    /// Returns the steps if the code has this form, begins on a byte boundary and depends on no
    /// earlier scope.
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
                Op::Run { node, count: Count::Fixed(bytes), text: true } => {
                    Flat::Chars(node, bytes)
                }
                // No step of this form uses a saved number.
                Op::Align(1 | 8) | Op::Save(_) => continue,
                _ => return None,
            });
        }
        Some(steps)
    }
}

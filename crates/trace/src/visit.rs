//! Visitors of an event's fields. Nodes describe the fields and are known before the first event;
//! values follow for each event.

use crate::class::{Encoding, Labels};

/// Position of a node in its scope.
pub type NodeId = u32;

/// A field, as a visitor sees it.
#[derive(Debug, Clone)]
pub struct Node {
    /// Name of the structure member; empty for elements, options and the root.
    pub name: String,
    /// Position among the shown members of the structure; 0 for others.
    pub position: usize,
    /// Number of structures around the field: 1 for the members of the scope's own structure and
    /// for their parts.
    pub depth: usize,
    /// The field is shown. Fields that only serve the decoding of packets are not.
    pub shown: bool,
    /// Kind of the field.
    pub shape: Shape,
}

/// The kind of a node.
#[derive(Debug, Clone)]
pub enum Shape {
    /// Integer.
    Integer {
        /// Length in bits.
        length: u8,
        /// The integer is in two's complement.
        signed: bool,
        /// Base in which it is shown: 2, 8, 10 or 16.
        base: u8,
        /// Labels of values. The integer is an enumeration if there are any.
        mappings: Labels,
    },
    /// Boolean.
    Bool,
    /// Bit array or bit map.
    BitArray {
        /// Names of bits.
        flags: Labels,
    },
    /// Float. The value is its length in bits.
    Float(u8),
    /// Text. Bytes after its first NUL are ignored.
    Text(Encoding),
    /// Bytes.
    Blob,
    /// Structure.
    Struct,
    /// Array.
    Array,
    /// Variant.
    Variant,
    /// Optional.
    Optional,
}

/// Takes the values of an event's fields, in their order. A method that is not implemented ignores
/// its values.
pub trait Visitor {
    /// Takes an integer, boolean, bit array or bit map. A signed value is sign-extended.
    #[inline]
    fn integer(&mut self, _node: NodeId, _value: u64) {}
    /// Takes a float.
    #[inline]
    fn float(&mut self, _node: NodeId, _value: f64) {}
    /// Takes the bytes of text. A NUL that ends the text is not included.
    #[inline]
    fn text(&mut self, _node: NodeId, _bytes: &[u8]) {}
    /// Takes bytes.
    #[inline]
    fn blob(&mut self, _node: NodeId, _bytes: &[u8]) {}
    /// A structure begins.
    #[inline]
    fn begin(&mut self, _node: NodeId) {}
    /// The structure ends.
    #[inline]
    fn end(&mut self, _node: NodeId) {}
    /// An array of this many elements begins.
    #[inline]
    fn begin_array(&mut self, _node: NodeId, _count: u64) {}
    /// The next element of the array follows.
    #[inline]
    fn element(&mut self, _index: u64) {}
    /// The array ends.
    #[inline]
    fn end_array(&mut self, _node: NodeId) {}
    /// The option of a variant or the field of an optional follows. The case is none if an optional
    /// is absent.
    #[inline]
    fn begin_case(&mut self, _node: NodeId, _case: Option<usize>) {}
    /// The variant or optional ends.
    #[inline]
    fn end_case(&mut self, _node: NodeId) {}
}

/// A visitor that ignores all values.
#[derive(Debug, Clone, Copy, Default)]
pub struct Ignore;

impl Visitor for Ignore {}

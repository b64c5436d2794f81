//! The fields of an event as a visitor meets them: nodes, which are known before the first event, and values.

use crate::class::{Encoding, Labels};

/// Position of a node among those of its scope.
pub type NodeId = u32;

/// A field as a visitor meets it.
#[derive(Debug, Clone)]
pub struct Node {
    /// Name of the structure member, or empty (elements, options, the root).
    pub name: String,
    /// Position among the members of the structure that are shown; 0 for others.
    pub position: usize,
    /// In how many structures it is: 1 for the members of the scope's own structure, and for what these are made of.
    pub depth: usize,
    /// Whether it is shown: fields that only serve the decoding of packets are not.
    pub shown: bool,
    /// What it is.
    pub shape: Shape,
}

/// What a node is.
#[derive(Debug, Clone)]
pub enum Shape {
    /// Integer.
    Integer {
        /// Bits.
        length: u8,
        /// Two's complement.
        signed: bool,
        /// 2, 8, 10 or 16.
        base: u8,
        /// Labels of values; an enumeration where there are any.
        mappings: Labels,
    },
    /// Boolean.
    Bool,
    /// Bit array or bit map.
    BitArray {
        /// Names of bits.
        flags: Labels,
    },
    /// Float; its length in bits.
    Float(u8),
    /// Text; what stands behind its first NUL does not count.
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

/// Takes the values of an event's fields, in their order. A method that is not written ignores its values.
pub trait Visitor {
    /// An integer, boolean, bit array or bit map; a signed one is sign-extended.
    #[inline]
    fn integer(&mut self, _node: NodeId, _value: u64) {}
    /// A float.
    #[inline]
    fn float(&mut self, _node: NodeId, _value: f64) {}
    /// The bytes of text, without the NUL that ends it, if such a one does.
    #[inline]
    fn text(&mut self, _node: NodeId, _bytes: &[u8]) {}
    /// Bytes.
    #[inline]
    fn blob(&mut self, _node: NodeId, _bytes: &[u8]) {}
    /// A structure begins.
    #[inline]
    fn begin(&mut self, _node: NodeId) {}
    /// It ends.
    #[inline]
    fn end(&mut self, _node: NodeId) {}
    /// An array of so many elements begins.
    #[inline]
    fn begin_array(&mut self, _node: NodeId, _count: u64) {}
    /// Its next element follows.
    #[inline]
    fn element(&mut self, _index: u64) {}
    /// It ends.
    #[inline]
    fn end_array(&mut self, _node: NodeId) {}
    /// The option of a variant or the field of an optional follows; or none, of an optional.
    #[inline]
    fn begin_case(&mut self, _node: NodeId, _case: Option<usize>) {}
    /// It ends.
    #[inline]
    fn end_case(&mut self, _node: NodeId) {}
}

/// Looks at nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Ignore;

impl Visitor for Ignore {}

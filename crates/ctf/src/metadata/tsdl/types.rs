//! Types as TSDL declares them. They are shared, and their references are not resolved yet.

use lastwords_bytes::ByteOrder;
use lastwords_trace::class::{Encoding, Range};
use std::rc::Rc;

/// A type.
#[derive(Debug, Clone)]
pub(super) enum Type {
    Integer(Integer),
    Float { length: u64, alignment: u64, order: ByteOrder },
    Text(Encoding),
    Enum { integer: Integer, labels: Vec<(String, Range)> },
    Struct { fields: Vec<Member>, alignment: u64, depth: usize },
    Array { element: Rc<Type>, length: Length, depth: usize },
    Variant { tag: Option<String>, options: Rc<[Member]>, depth: usize },
}

impl Type {
    /// Returns the number of levels of types in this type.
    pub(super) fn depth(&self) -> usize {
        match self {
            Self::Struct { depth, .. }
            | Self::Array { depth, .. }
            | Self::Variant { depth, .. } => *depth,
            _ => 0,
        }
    }
}

/// Returns the number of levels of a type that has these members.
pub(super) fn depth_of(members: &[Member]) -> usize {
    members.iter().map(|member| member.class.depth()).max().unwrap_or(0).saturating_add(1)
}

/// An integer type.
#[derive(Debug, Clone)]
pub(super) struct Integer {
    pub(super) length: u64,
    pub(super) alignment: u64,
    pub(super) signed: bool,
    pub(super) order: ByteOrder,
    pub(super) base: u8,
    /// The integer is a character of a text.
    pub(super) text: bool,
    /// The name of the clock that the integer maps to.
    pub(super) clock: Option<String>,
}

/// A field of a structure or an option of a variant, with its name from the metadata.
#[derive(Debug, Clone)]
pub(super) struct Member {
    pub(super) name: String,
    pub(super) class: Rc<Type>,
    pub(super) line: u32,
}

/// The number of elements.
#[derive(Debug, Clone)]
pub(super) enum Length {
    Fixed(u64),
    /// The value of the field at this path.
    Of(String),
}

/// Returns the name to show. One leading underscore, which escapes keywords, is removed.
pub(super) fn shown(name: &str) -> &str {
    name.strip_prefix('_').unwrap_or(name)
}

//! Errors about the kernel in an image.

use lastwords_image::Hole;
use std::fmt;

/// The reason why a fact about the kernel is unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// The kernel has no symbol of that name.
    NoSymbol(String),
    /// The kernel's types have no structure, union, enumeration or type definition of that name.
    NoType(String),
    /// The structure has no such member.
    NoMember {
        /// Name of the structure.
        structure: String,
        /// The path that was requested.
        member: String,
        /// The part of the path that was not found.
        part: String,
    },
    /// The member is of another kind than requested.
    Shape {
        /// Name of the structure.
        structure: String,
        /// The path that was requested.
        member: String,
        /// The requested kind: `a pointer`, ….
        expected: &'static str,
    },
    /// The pointer is NULL.
    Null {
        /// Name of the structure.
        structure: String,
        /// Name of the member.
        member: String,
    },
    /// The image lacks the bytes.
    Hole {
        /// Description of the data.
        what: String,
        /// The first missing address.
        hole: Hole,
    },
    /// A list does not return to its head: it loops, or has too many entries.
    Loop {
        /// Address of the list's head.
        head: u64,
        /// The entry that came twice, or the entry at which the count reached the limit.
        at: u64,
    },
    /// The kernel's BTF, or the given file with it, cannot be read.
    Btf(lastwords_bytes::Error),
    /// Invalid bytes, or a spent budget.
    Bytes(lastwords_bytes::Error),
}

impl Error {
    /// For `map_err`: adds a description of the data to a hole.
    pub fn hole(what: &str) -> impl FnOnce(Hole) -> Self + '_ {
        move |hole| Self::Hole { what: what.into(), hole }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSymbol(name) => write!(f, "the kernel has no symbol {name}"),
            Self::NoType(name) => write!(f, "the kernel's types have no {name}"),
            Self::NoMember { structure, member, part } if member == part => {
                write!(f, "struct {structure} has no member {member}")
            }
            Self::NoMember { structure, member, part } => {
                write!(f, "struct {structure} has no member {member}: no {part}")
            }
            Self::Shape { structure, member, expected } => {
                write!(f, "member {member} of struct {structure} is not {expected}")
            }
            Self::Null { structure, member } => {
                write!(f, "member {member} of struct {structure} is NULL")
            }
            Self::Hole { what, hole } => write!(f, "{what}: {hole}"),
            Self::Loop { head, at } => {
                write!(f, "the list at {head:#x} does not close: it goes wrong at {at:#x}")
            }
            Self::Btf(error) | Self::Bytes(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

impl From<lastwords_bytes::Error> for Error {
    fn from(error: lastwords_bytes::Error) -> Self {
        Self::Bytes(error)
    }
}

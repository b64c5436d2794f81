//! Why something is not known of the kernel in an image.

use lastwords_image::Hole;
use std::fmt;

/// A failure to learn something of the kernel in an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// The kernel has no symbol of that name.
    NoSymbol(String),
    /// Its types have no structure, union, enumeration or type definition of that name.
    NoType(String),
    /// The structure has no such member.
    NoMember {
        /// Name of the structure.
        structure: String,
        /// The path that was asked for.
        member: String,
        /// The part of it that was not found.
        part: String,
    },
    /// The member is of another shape than was asked for.
    Shape {
        /// Name of the structure.
        structure: String,
        /// The path that was asked for.
        member: String,
        /// What was wanted: `a pointer`, ….
        expected: &'static str,
    },
    /// The pointer is NULL.
    Null {
        /// Name of the structure.
        structure: String,
        /// The member.
        member: String,
    },
    /// The image does not have the bytes.
    Hole {
        /// What was read.
        what: String,
        /// The first address that is not there.
        hole: Hole,
    },
    /// A list does not close: it comes back to an entry that is not its head.
    Loop {
        /// Address of the list's head.
        head: u64,
        /// The entry that came twice, or the one at which the count became absurd.
        at: u64,
    },
    /// Bytes that are not what they should be, or a limit of the Budget.
    Bytes(lastwords_bytes::Error),
}

impl Error {
    /// Says what was read when `hole` was met: for `map_err`.
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
            Self::Null { structure, member } => write!(f, "member {member} of struct {structure} is NULL"),
            Self::Hole { what, hole } => write!(f, "{what}: {hole}"),
            Self::Loop { head, at } => write!(f, "the list at {head:#x} does not close: it goes wrong at {at:#x}"),
            Self::Bytes(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

impl From<lastwords_bytes::Error> for Error {
    fn from(error: lastwords_bytes::Error) -> Self {
        Self::Bytes(error)
    }
}

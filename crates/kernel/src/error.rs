//! Errors about the kernel in an image.

use lastwords_image::Hole;
use lastwords_trace::evidence::{Cause, Gap};

/// The reason why a fact about the kernel is unknown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The kernel has no symbol of that name.
    #[error("the kernel has no symbol {0}")]
    NoSymbol(String),
    /// The kernel's types have no structure, union, enumeration or type definition of that name.
    #[error("the kernel's types have no {0}")]
    NoType(String),
    /// The structure has no such member.
    #[error("struct {structure} has no member {member}{}", lacking(.member, .part))]
    NoMember {
        /// Name of the structure.
        structure: String,
        /// The path that was requested.
        member: String,
        /// The part of the path that was not found.
        part: String,
    },
    /// The member is of another kind than requested.
    #[error("member {member} of struct {structure} is not {expected}")]
    Shape {
        /// Name of the structure.
        structure: String,
        /// The path that was requested.
        member: String,
        /// The requested kind: `a pointer`, ….
        expected: &'static str,
    },
    /// The pointer is NULL.
    #[error("member {member} of struct {structure} is NULL")]
    Null {
        /// Name of the structure.
        structure: String,
        /// Name of the member.
        member: String,
    },
    /// The image lacks the bytes.
    #[error("{what}: {hole}")]
    Hole {
        /// Description of the data.
        what: String,
        /// The first missing address.
        hole: Hole,
    },
    /// A list does not return to its head: it loops, or has too many entries.
    #[error("the list at {head:#x} does not close: it goes wrong at {at:#x}")]
    Loop {
        /// Address of the list's head.
        head: u64,
        /// The entry that came twice, or the entry at which the count reached the limit.
        at: u64,
    },
    /// The kernel's BTF, or the given file with it, cannot be read.
    #[error(transparent)]
    Btf(lastwords_bytes::Error),
    /// Invalid bytes, or a spent budget.
    #[error(transparent)]
    Bytes(#[from] lastwords_bytes::Error),
}

impl Error {
    /// For `map_err`: adds a description of the data to a hole.
    pub fn hole(what: &str) -> impl FnOnce(Hole) -> Self + '_ {
        move |hole| Self::Hole { what: what.into(), hole }
    }
}

/// The end of the message about a member, if only a part of the path to it is missing.
fn lacking(member: &str, part: &str) -> String {
    if member == part { String::new() } else { format!(": no {part}") }
}

/// Returns the gap of something that cannot be read.
#[must_use]
pub fn lost(what: &str, error: &Error) -> Gap {
    let cause = match error {
        Error::Hole { .. } => Cause::Missing,
        _ => Cause::Damaged,
    };
    Gap::new(None, cause, format!("{what}: {error}"))
}

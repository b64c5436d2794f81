//! Errors that say where, what stood there and what was expected.

use std::fmt;

/// What kind of failure an [`Error`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The bytes end too early.
    Short,
    /// A value is not one that may stand there.
    Value,
    /// A limit of the [`Budget`](crate::Budget) is reached.
    Budget,
    /// The operating system refused.
    Io,
}

/// A located failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// The file or structure.
    pub what: String,
    /// Offset in it, bytes.
    pub offset: u64,
    /// What was found there, where it is a number.
    pub value: Option<u64>,
    /// What was expected, or for [`Kind::Io`] what the system said.
    pub expected: String,
    /// What kind of failure it is.
    pub kind: Kind,
}

impl Error {
    /// `value` stands at `offset` of `what`, where `expected` should.
    #[must_use]
    pub fn value(what: &str, offset: u64, value: u64, expected: &str) -> Self {
        Self { what: what.into(), offset, value: Some(value), expected: expected.into(), kind: Kind::Value }
    }

    /// `left` bytes are left at `offset` of `what`, fewer than `expected` says.
    #[must_use]
    pub fn short(what: &str, offset: u64, left: u64, expected: &str) -> Self {
        Self { what: what.into(), offset, value: Some(left), expected: expected.into(), kind: Kind::Short }
    }

    /// The limit named `limit` is reached; `value` was asked for.
    #[must_use]
    pub fn budget(what: &str, limit: &str, value: u64) -> Self {
        Self { what: what.into(), offset: 0, value: Some(value), expected: limit.into(), kind: Kind::Budget }
    }

    /// The operating system's refusal.
    #[must_use]
    pub fn io(what: &str, offset: u64, error: &std::io::Error) -> Self {
        Self { what: what.into(), offset, value: None, expected: error.to_string(), kind: Kind::Io }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, offset, value, expected, kind } = self;
        let value = value.unwrap_or_default();
        match kind {
            Kind::Short => write!(f, "{what}: offset {offset:#x}: {value} bytes are left, expected {expected}"),
            Kind::Value => write!(f, "{what}: offset {offset:#x}: found {value:#x}, expected {expected}"),
            Kind::Budget => write!(f, "{what}: {value} more {expected} would exceed the limit; raise it to go on"),
            Kind::Io if *offset == 0 => write!(f, "{what}: {expected}"),
            Kind::Io => write!(f, "{what}: offset {offset:#x}: {expected}"),
        }
    }
}

impl std::error::Error for Error {}

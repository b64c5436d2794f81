//! Errors with a location, the value found and the value expected.

use std::fmt;

/// Kind of an [`Error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The bytes end too early.
    Short,
    /// A value is invalid.
    Value,
    /// A limit of the [`Budget`](crate::Budget) was reached.
    Budget,
    /// The operating system returned an error.
    Io,
}

/// An error with its location.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// Name of the file or structure.
    pub what: String,
    /// Offset in it, bytes.
    pub offset: u64,
    /// The value found, if it is a number.
    pub value: Option<u64>,
    /// Description of the expected value; for [`ErrorKind::Io`], the system's message.
    pub expected: String,
    /// Kind of the error.
    pub kind: ErrorKind,
    /// The number of the operating system's error (`EIO`, …), if it is known.
    pub errno: Option<i32>,
}

impl Error {
    fn new(kind: ErrorKind, what: &str, offset: u64, value: Option<u64>, expected: &str) -> Self {
        Self { what: what.into(), offset, value, expected: expected.into(), kind, errno: None }
    }

    /// Error: `what` has `value` at `offset` instead of `expected`.
    #[must_use]
    pub fn value(what: &str, offset: u64, value: u64, expected: &str) -> Self {
        Self::new(ErrorKind::Value, what, offset, Some(value), expected)
    }

    /// Error: `what` has only `left` bytes at `offset` instead of `expected`.
    #[must_use]
    pub fn short(what: &str, offset: u64, left: u64, expected: &str) -> Self {
        Self::new(ErrorKind::Short, what, offset, Some(left), expected)
    }

    /// Error: the limit named `limit` was reached by a request for `value`.
    #[must_use]
    pub fn budget(what: &str, limit: &str, value: u64) -> Self {
        Self::new(ErrorKind::Budget, what, 0, Some(value), limit)
    }

    /// Error of the operating system.
    #[must_use]
    pub fn io(what: &str, offset: u64, error: &std::io::Error) -> Self {
        let errno = error.raw_os_error();
        Self { errno, ..Self::new(ErrorKind::Io, what, offset, None, &error.to_string()) }
    }

    /// Error about `what` as a whole, in words.
    #[must_use]
    pub fn other(what: &str, why: &str) -> Self {
        Self::new(ErrorKind::Io, what, 0, None, why)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, offset, value, expected, kind, .. } = self;
        let value = value.unwrap_or_default();
        match kind {
            ErrorKind::Short => {
                write!(f, "{what}: offset {offset:#x}: {value} bytes are left, expected {expected}")
            }
            ErrorKind::Value => {
                write!(f, "{what}: offset {offset:#x}: found {value:#x}, expected {expected}")
            }
            ErrorKind::Budget => write!(
                f,
                "{what}: {value} more {expected} would exceed the limit; raise it to go on"
            ),
            ErrorKind::Io if *offset == 0 => write!(f, "{what}: {expected}"),
            ErrorKind::Io => write!(f, "{what}: offset {offset:#x}: {expected}"),
        }
    }
}

impl std::error::Error for Error {}

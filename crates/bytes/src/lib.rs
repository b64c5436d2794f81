//! Bounded readers for untrusted bytes: integers of either byte order, located errors, a
//! [`Budget`].
//!
//! A [`Reader`] never reads outside of its bytes, and a sub-reader never outside of its parent.
//! Every error has the place, the value found and the value expected.
//!
//! ```
//! use lastwords_bytes::{ByteOrder, Reader};
//!
//! let mut reader = Reader::new("a header", &[2, 0, 0xff], ByteOrder::Little);
//! assert_eq!(reader.u16()?, 2);
//! // One byte is left. The error says where, and what was expected.
//! assert!(reader.u16().is_err());
//! # Ok::<(), lastwords_bytes::Error>(())
//! ```
//!
//! The crate has no features.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::arithmetic_side_effects,
        clippy::as_conversions
    )
)]

mod budget;
mod error;
mod irregular;
mod low;
mod reader;
mod stored;

pub use budget::{Budget, Limits};
pub use error::{Error, ErrorKind};
pub use irregular::irregular;
pub use low::{low_u8, low_u16, low_u32};
pub use reader::{ByteOrder, Reader};
pub use stored::stored;

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

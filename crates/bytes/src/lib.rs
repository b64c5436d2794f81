//! Bounded readers over hostile bytes: endian-typed fields, located errors, a [`Budget`].
//!
//! A [`Reader`] never reads outside the bytes it was made of, and a sub-reader never outside its parent. Every failure
//! says where it was, what stood there and what was expected.
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
mod reader;

pub use budget::{Budget, Limits};
pub use error::{Error, Kind};
pub use irregular::irregular;
pub use reader::{ByteOrder, Reader};

//! Walks the rings of this project's recorder: turns an image into sessions.
//!
//! ```no_run
//! let found = lastwords_walk::open("core.4711".as_ref(), &lastwords_walk::Options::default())?;
//! for session in &found.sessions {
//!     println!("{}", session.info().name);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The crate has no features. To open whatever a path names, use `lastwords-open`.
//!
//! [`open()`] opens a path and finds every session in it. [`session`] walks the buffers of this project's own recorder.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::arithmetic_side_effects,
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

mod open;
pub mod session;

pub use open::{Options, Recovered, open, open_with, sessions};

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

//! Ring-buffer walkers: from an image to a trace.
//!
//! [`open()`] takes whatever a path names and finds every session in it. [`session`] walks the buffers of our own recorder.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::arithmetic_side_effects
    )
)]

pub mod ftrace;
pub mod lttng;
pub mod lttng_kernel;
pub mod lttng_ust;
mod open;
pub(crate) mod pages;
pub mod session;

pub use open::{Options, Recovered, open, open_with, sessions};

//! Writes traces as one HTML page, which a browser opens from the disk: no server, no network.
//!
//! [`collect()`] reads the selected events of any traces once. It puts them into columns (time,
//! kind, thread, CPU), draws slices from those events that begin and end something (scheduling,
//! interrupts, system calls, spans), and notes the gaps of each stream. [`write()`] puts the
//! columns, compressed, into a page, together with the page's own style and ES modules (`page/`).
//! Nothing of a trace becomes HTML: all text is in JSON, which the page shows as text.
//!
//! The crate has no features.
#![doc = include_str!("../README.md")]
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

#[cfg(test)]
mod account_tests;
mod blocks;
mod classes;
mod collect;
mod collected;
mod gaps;
mod html;
#[cfg(test)]
mod losses_tests;
mod machines;
mod names;
mod page;
mod scheduling;
mod shapes;
mod slices;
mod span_lanes;

pub use collect::collect;
pub use collected::{Collected, Inside, Options};
pub use lastwords_render::perfetto::Task;
pub use page::{Death, Facts, write};

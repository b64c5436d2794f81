//! LTTng's buffers of the kernel tracer ([`kernel`]) and of the user-space tracer ([`user`]), and
//! what is common to both.
//!
//! A sub-buffer is a CTF packet. Delivered packets are taken byte for byte; an open packet gets a
//! completed header. Positions and commit counters determine which sub-buffers to keep and how far
//! each was written ([`Ring`]). The header of each packet is checked against them ([`Header`]).
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
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

mod carve;
mod committed;
mod complete;
mod decode;
mod header;
pub mod kernel;
pub(crate) mod metadata;
mod plan;
mod prove;
mod session;
mod texts;
mod trace;
pub mod user;
mod zeros;

pub use carve::carve;
pub use complete::complete;
pub use header::{Header, Shape};
pub use metadata::Metadata;
pub use plan::{Counters, Mode, Ring, Slot};
pub use prove::Proof;
pub(crate) use session::{CARVED, NAMELESS};
pub use session::{Domain, Doubt, Loss, Packet, Session, SetData, Stream};
pub use texts::texts;

/// An image of [`lastwords_testkit::put::words`].
#[cfg(test)]
pub(crate) fn memory(words: &[(u64, u64)]) -> std::sync::Arc<dyn lastwords_image::Image> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), lastwords_testkit::put::words(words)).unwrap();
    let budget = lastwords_bytes::Budget::default();
    lastwords_image::open(file.path(), &budget, &lastwords_image::unwatched).unwrap().image
}

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

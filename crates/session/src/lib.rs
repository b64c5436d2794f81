//! Recovers this recorder's sessions from images of memory.
//!
//! ```no_run
//! let found = lastwords_session::open("core.4711".as_ref(), &lastwords_session::Options::default())?;
//! for session in &found.sessions {
//!     println!("{}", session.info().name);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The feature `serde` serializes clocks, processes, modules and regions ([`info`]). To open whatever
//! a path names, use `lastwords-open`.
//!
//! [`open()`] opens a path and finds every session in it. Regions are found by their magic and
//! grouped by the session's UUID. Each region is read on its own, so damage stays local: without
//! the session region only names and state are lost, not the events; a damaged stream costs that
//! stream; a damaged sub-buffer costs that sub-buffer.
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

mod added;
mod build;
mod carve;
mod clock;
mod clock_area;
mod clock_check;
mod clock_vote;
mod common_context;
mod counters;
mod data;
mod end;
mod events;
mod find;
mod freeze;
mod frozen;
mod halves;
pub mod info;
mod layout;
mod linear;
mod loaded;
mod lockless;
mod loose;
mod losses;
mod open;
mod outcome;
mod packet;
mod pieces;
mod places;
mod plan;
mod planning;
mod read_limit;
mod reader;
mod region;
mod registry;
mod repair_begin;
mod repair_header;
mod schema;
mod session;
mod session_region;
mod single_bit;
mod spans;
mod sparse;
mod types;
mod window;

pub use build::{carve, find};
pub use end::{Begin, End};
pub use open::{Recovered, open, open_with, sessions};
pub use places::{RegionPlace, region_places};
pub use read_limit::ReadLimit;
pub use session::{Options, Session, Sessions, ShowSpan};
pub use window::Window;

use lastwords_trace::evidence::{Cause, Gap};

/// Makes a gap of unknown size.
fn gap(place: &str, cause: Cause) -> Gap {
    Gap { stream: None, place: place.into(), cause, events: None, bytes: None }
}

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

//! The event model that all readers produce and all writers consume.
//!
//! A trace has a class ([`class::TraceClass`]: clocks, streams, event record classes and their
//! fields, in CTF's general model), streams, and evidence of what was found and lost
//! ([`evidence`]). Events are not converted to objects: a reader passes the values of an event's
//! fields to a [`visit::Visitor`], in order. [`schema`] is the narrower description that this
//! project's recorder keeps of its events. [`symbols`] names addresses, and [`text`] has what
//! writers of text share.
//!
//! ```
//! use lastwords_trace::clock::Clock;
//!
//! // A counter of 2 GHz that was 0 ten seconds after the epoch.
//! let clock = Clock {
//!     name: "tsc".into(),
//!     description: String::new(),
//!     frequency: 2_000_000_000,
//!     offset_seconds: 10,
//!     offset_ticks: 0,
//!     absolute: true,
//! };
//! assert_eq!(clock.nanoseconds(3), 10_000_000_001);
//! ```
//!
//! With the feature `serde`, counters and histograms ([`metrics`]) are serialized and deserialized.
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

pub mod class;
pub mod clock;
pub mod evidence;
pub mod integer;
pub mod metrics;
pub mod nul;
pub mod parallel;
pub mod schema;
pub mod source;
pub mod symbols;
pub mod syscalls;
pub mod text;
pub mod tracer;
pub mod visit;

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

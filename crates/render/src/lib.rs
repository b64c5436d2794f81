//! Writes text, JSON lines, Perfetto traces and OTLP, and the evidence as text and as data.
//!
//! A writer takes [`lastwords_ctf::read::Trace`]s, selects their events, merges these by time, and
//! returns [`Totals`]. It knows no source: what it asks of a kernel besides the packets of its tracer
//! is a [`lastwords_trace::tracer::Tracer`] and a [`lastwords_filter::Described`].
//!
//! ```no_run
//! use lastwords_render::{json, select::Selection};
//!
//! // The last 100 events of a folder of CTF, as JSON lines.
//! let folder = lastwords_ctf::read::open("trace".as_ref(), &Default::default())?;
//! let last = Selection { last: Some(100), ..Selection::default() };
//! let totals = json::write(&folder.traces, &last, &mut std::io::stdout(), &|_| {}, &mut |_| {})?;
//! eprintln!("{} events", totals.events);
//! # Ok::<(), Box<dyn std::error::Error>>(())
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
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

mod choose;
mod decoded;
mod duplicates;
pub mod events;
pub mod evidence;
mod fields;
pub mod filter;
pub mod iter;
pub mod json;
mod last;
pub mod meaning;
pub mod metrics;
pub mod missing;
pub mod otlp;
pub mod perfetto;
pub mod picks;
pub mod redact;
pub mod select;
pub mod spans;
pub mod streams;
pub mod text;

pub use lastwords_ctf::{Error, Result, Totals, create_file, create_folder, is_empty_folder};

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

//! Sends the sub-buffers of the kernel's tracer, and those of applications' sessions, over a
//! socket, and receives them from many senders at once.
//!
//! A stream is a sequence of frames ([`wire`]; prose in docs/STREAM.md): who sends, the shape of
//! the rings, the description of the events, then sub-buffers as the kernel gives them, each frame
//! with those of one CPU, and at the end the kernel's counters. A [`Sender`] moves sub-buffers from
//! a pipe to the socket, and a [`Receiver`] moves them from the socket through a pipe into a file,
//! both by `splice(2)`, so that no trace data is copied to user space.
//!
//! `sendfile(2)` copies the sub-buffers of a session from the session's file to the socket. The
//! recorder does not wait for it. So a sub-buffer counts only if the receiver has confirmed it
//! before the recorder overwrites it ([`session`]).
//!
//! Committed events of a sub-buffer that is not full are sent at an interval ([`Flush`]), and so are
//! copies of a session's counters and histograms.
//!
//! ```
//! use lastwords_stream::Address;
//!
//! let address: Address = "tcp:127.0.0.1:7117".parse()?;
//! assert_eq!(address, Address::Tcp("127.0.0.1:7117".into()));
//! // The name of a file is no address.
//! assert_eq!(Address::of_output("trace.dat".as_ref())?, None);
//! # Ok::<(), lastwords_stream::AddressError>(())
//! ```
//!
//! The crate has no features.
//!
//! A receiver writes each stream into a file of its own, the spool, and makes a trace.dat file of
//! the spool when the stream has ended ([`spool`]). The sub-buffers of a session go to their places
//! in its rings at once (`rings.rs`), of which `folder.rs` makes a session folder. A receiver that
//! was killed leaves its spools, which the next one in the same folder finishes.
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

mod address;
mod counters;
mod error;
mod flush;
mod folder;
mod head;
mod io;
mod kept;
mod line;
mod packets;
mod receiver;
mod rings;
mod sender;
pub mod session;
pub mod spool;
mod transfer;
pub mod wire;

pub use address::{Address, AddressError};
pub use error::{Error, Result, WireError};
pub use flush::Flush;
pub use folder::Session;
pub use line::{Heard, Line, Listener, ReadEnd};
pub use receiver::{Limits, Peer, Receiver, Refusals, Told};
pub use sender::Sender;

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

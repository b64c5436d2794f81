//! CTF 1.8 and CTF 2: metadata ([`metadata`]), the decoder that it compiles to ([`program`]),
//! readers ([`read`]) and writers ([`mod@write`]). [`session`] presents our own sessions in the
//! same terms.
//!
//! Metadata of either version become a [`lastwords_trace::class::TraceClass`]. It is compiled once
//! to a [`program::Program`], which splits packets into events and shows an event's fields to a
//! [`lastwords_trace::visit::Visitor`].
//!
//! ```no_run
//! // Counts the streams of each trace in a folder.
//! let folder = lastwords_ctf::read::open("trace".as_ref(), &Default::default())?;
//! for trace in &folder.traces {
//!     println!("{} streams", trace.streams.len());
//! }
//! folder.faults.iter().for_each(|fault| eprintln!("{fault}"));
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

mod error;
pub mod metadata;
pub mod names;
mod output;
pub mod program;
pub mod read;
pub mod session;
pub mod write;

pub use error::{Error, Result};
pub use metadata::{Version, emit};
pub use names::{PADDING, uuid_text};
pub use output::{create_file, create_folder, is_empty_folder};

/// Counts of what a writer wrote.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Streams with at least one packet.
    pub streams: u64,
    /// Packets.
    pub packets: u64,
    /// Events; 0 where they were not counted.
    pub events: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Packets that could not be decoded to their end, or were repaired.
    pub faults: u64,
    /// Discarded events, as the packets of a CTF trace count them. Only streams that were read are
    /// included.
    pub lost_events: u64,
    /// Packets that are missing between those packets.
    pub lost_packets: u64,
    /// Packets before the last events that were not looked at. What they lost is not known.
    pub unread: u64,
}

impl Totals {
    /// Adds the counts of another part of the output.
    pub fn add(&mut self, other: &Self) {
        self.streams = self.streams.saturating_add(other.streams);
        self.packets = self.packets.saturating_add(other.packets);
        self.events = self.events.saturating_add(other.events);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.faults = self.faults.saturating_add(other.faults);
        self.lost_events = self.lost_events.saturating_add(other.lost_events);
        self.lost_packets = self.lost_packets.saturating_add(other.lost_packets);
        self.unread = self.unread.saturating_add(other.unread);
    }

    /// Returns the sum of several parts.
    #[must_use]
    pub fn sum(parts: &[Self]) -> Self {
        parts.iter().fold(Self::default(), |mut sum, part| {
            sum.add(part);
            sum
        })
    }

    /// Returns true if the packets report a loss of events or of whole packets.
    #[must_use]
    pub fn has_losses(&self) -> bool {
        self.lost_events > 0 || self.lost_packets > 0
    }

    /// Counts a loss that a stream's packets report. The count comes from the file and may have any
    /// value.
    pub fn lose(&mut self, loss: read::Loss) {
        let count = if loss.packets { &mut self.lost_packets } else { &mut self.lost_events };
        *count = count.saturating_add(loss.count);
    }
}

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

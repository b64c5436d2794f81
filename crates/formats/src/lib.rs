//! Writers: CTF 1.8 and CTF 2 folders, text, JSON lines; ftrace's text and trace.dat files, and the reader of the latter;
//! and the evidence, as text and as data.
//!
//! Each takes [`lastwords_trace::source::Source`]s and returns [`Totals`]. CTF copies packets without decoding them where
//! their verdict allows; text and JSON decode and merge the streams by time.
#![forbid(unsafe_code)]

pub mod ctf;
mod error;
pub mod events;
pub mod evidence;
mod folder;
pub mod ftrace;
pub mod json;
pub mod last;
mod once;
pub mod perfetto;
pub mod select;
pub mod text;

pub use error::{Error, Result};
pub use folder::{create_file, create_folder};

/// What was written.
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
    /// Packets that could not be decoded to their end, or were mended.
    pub faults: u64,
    /// Events that the packets of a CTF trace tell were discarded, of the streams that were read.
    pub lost_events: u64,
    /// Packets that are missing between those packets.
    pub lost_packets: u64,
}

impl Totals {
    /// Adds what another part has written.
    pub fn add(&mut self, other: &Self) {
        self.streams += other.streams;
        self.packets += other.packets;
        self.events += other.events;
        self.bytes += other.bytes;
        self.faults += other.faults;
        self.lost_events = self.lost_events.saturating_add(other.lost_events);
        self.lost_packets = self.lost_packets.saturating_add(other.lost_packets);
    }

    /// The packets tell of a loss: of events, or of whole packets.
    #[must_use]
    pub fn has_losses(&self) -> bool {
        self.lost_events > 0 || self.lost_packets > 0
    }

    /// Counts a loss that a stream's packets tell of. A count is what a file says: it may be of any size.
    pub fn lose(&mut self, loss: ctf::read::Loss) {
        let count = if loss.packets { &mut self.lost_packets } else { &mut self.lost_events };
        *count = count.saturating_add(loss.count);
    }
}

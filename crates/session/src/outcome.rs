//! The plan of a stream: its packets, and what was found and lost.

use super::layout::Control;
use lastwords_trace::evidence::{Gap, SubBuffer, Verdict};
use lastwords_trace::source::Foretold;

/// The result of planning one stream.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) packets: Vec<Packet>,
    pub(crate) sub_buffers: Vec<SubBuffer>,
    pub(crate) gaps: Vec<Gap>,
    pub(crate) notes: Vec<String>,
    pub(crate) produced: u64,
    /// Position where reading ended before an event that is too late for this read.
    pub(crate) reached: Option<u64>,
    pub(crate) control: Control,
}

/// One packet to deliver.
#[derive(Debug, Clone)]
pub(crate) struct Packet {
    pub(crate) half: usize,
    /// The half's reserve word when the packet was planned.
    pub(crate) reserve: u64,
    pub(crate) number: u64,
    pub(crate) verdict: Verdict,
    /// Runs of bytes (begin, end) of the sub-buffer that contain its events.
    pub(crate) pieces: Vec<(usize, usize)>,
    /// The header in memory is correct and is delivered unchanged.
    pub(crate) as_is: bool,
    /// The checksum is compared when the packet is delivered ([`super::session::Late`]).
    pub(crate) is_unchecked: bool,
    pub(crate) begin: u64,
    pub(crate) end: u64,
    pub(crate) discarded: u64,
}

impl Packet {
    /// Returns what is known of the packet before it is read.
    pub(crate) fn foretold(&self) -> Foretold {
        let size = self
            .pieces
            .iter()
            .map(|(begin, end)| end.saturating_sub(*begin) as u64)
            .fold(0, u64::saturating_add);
        Foretold { sequence: self.number, begin: self.begin, end: self.end, size }
    }
}

/// Most missing sub-buffers that are listed one by one; further ones make one gap.
pub(crate) const LISTED: u64 = 1024;

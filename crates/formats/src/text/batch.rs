//! Events on their way to text: which bytes they stand in.

use super::number::Constant;
use lastwords_ctf::program::{Decoder, PacketPart};
use std::sync::Arc;

/// A window over a packet of a stream.
pub(super) struct Window {
    pub(super) bytes: Arc<Vec<u8>>,
    /// Where the first byte stands in the packet, bytes.
    pub(super) base: u64,
    /// Where the packet's content ends, bits.
    pub(super) content_end: u64,
    /// The packet's context, as text.
    pub(super) context: Arc<Context>,
    /// Its stream has a clock.
    pub(super) is_timed: bool,
    /// Position of its stream among those that are read.
    pub(super) stream: usize,
    /// Positions of the trace and of its stream class's plan.
    pub(super) trace: usize,
    pub(super) plan: usize,
}

impl Window {
    /// What a decoder takes.
    pub(super) fn part(&self) -> PacketPart<'_> {
        PacketPart { bytes: &self.bytes, base: self.base, content_end: self.content_end }
    }
}

/// A packet's context, as text.
pub(super) struct Context {
    pub(super) alone: Constant,
    /// With a comma, if it is not empty.
    pub(super) before_others: Constant,
}

impl Context {
    pub(super) fn new(mut text: Vec<u8>) -> Self {
        let alone = Constant::new(&text);
        if !text.is_empty() {
            text.extend_from_slice(b", ");
        }
        Self { alone, before_others: Constant::new(&text) }
    }
}

/// An event.
pub(super) struct Record {
    /// Position of its window.
    pub(super) window: u32,
    /// Position of its class.
    pub(super) class: u32,
    /// Where its contexts begin, bits from the packet's beginning.
    pub(super) body: u64,
    /// Its time, where the window's stream has a clock.
    pub(super) nanoseconds: i64,
}

/// Events in order.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) windows: Vec<Window>,
    pub(super) records: Vec<Record>,
    /// For records whose fields depend on what stands before them: the position of the record.
    pub(super) decoders: Vec<(usize, Decoder)>,
    /// Time of the event before.
    pub(super) previous: Option<i64>,
}

impl Batch {
    /// Without events, behind some.
    pub(super) fn restart(&mut self, previous: Option<i64>) {
        self.windows.clear();
        self.records.clear();
        self.decoders.clear();
        self.previous = previous;
    }
}

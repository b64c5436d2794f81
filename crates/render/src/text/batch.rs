//! Batches of events to be formatted, with the bytes that contain them.

use lastwords_ctf::program::{Decoder, PacketPart};
use lastwords_trace::text::number::Constant;
use std::sync::Arc;

/// A window over a packet of a stream.
pub(super) struct Window {
    pub(super) bytes: Arc<Vec<u8>>,
    /// Offset of the first byte in the packet, in bytes.
    pub(super) base: u64,
    /// End of the packet's content, in bits.
    pub(super) content_end: u64,
    /// The packet's context, as text.
    pub(super) context: Arc<Context>,
    /// The stream has a clock.
    pub(super) is_timed: bool,
    /// Position of the stream among the streams that are read.
    pub(super) stream: usize,
    /// Position of the trace.
    pub(super) trace: usize,
    /// Position of the stream class's plan.
    pub(super) plan: usize,
}

impl Window {
    /// Returns the input for a decoder.
    pub(super) fn part(&self) -> PacketPart<'_> {
        PacketPart { bytes: &self.bytes, base: self.base, content_end: self.content_end }
    }
}

/// A packet's context, as text.
pub(super) struct Context {
    pub(super) alone: Constant,
    /// The context followed by a comma, or nothing if the context is empty.
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
    /// Position of the event's window in the batch.
    pub(super) window: u32,
    /// Position of the event class.
    pub(super) class: u32,
    /// Begin of the event's contexts, in bits from the beginning of the packet.
    pub(super) body: u64,
    /// Time of the event in nanoseconds, or 0 if the stream has no clock.
    pub(super) nanoseconds: i64,
}

/// Events in order.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) windows: Vec<Window>,
    pub(super) records: Vec<Record>,
    /// The decoders of records whose fields depend on data before the event, each with the
    /// position of the record.
    pub(super) decoders: Vec<(usize, Decoder)>,
    /// Time of the last event before the batch.
    pub(super) previous: Option<i64>,
}

impl Batch {
    /// Removes all events. `previous` is the time of the last event before the next ones.
    pub(super) fn restart(&mut self, previous: Option<i64>) {
        self.windows.clear();
        self.records.clear();
        self.decoders.clear();
        self.previous = previous;
    }
}

//! A recovered trace: schema, streams, packets on demand, evidence.

use crate::evidence::{Evidence, Verdict};
use crate::schema::Schema;

/// A stream: the packets of one channel and CPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stream {
    /// Position of its channel in [`Schema::channels`].
    pub channel: usize,
    /// Instance id, unique in the trace.
    pub instance: u64,
    /// CPU; none where the stream is not bound to one.
    pub cpu: Option<u32>,
}

/// Facts of one packet. The clock readings are ticks of the trace's clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PacketInfo {
    /// Number of the packet in its stream.
    pub sequence: u64,
    /// When it was begun; events decode from this reading on.
    pub begin: u64,
    /// When it was closed, or the time of its last event.
    pub end: u64,
    /// Running total of discarded events of the stream at its end: the stream's lost events of all causes and, where a
    /// gap before the end of this packet has a countable number of events, those too. In the last packet of a stream, all
    /// that were lost since as well.
    pub discarded: u64,
    /// What is said of the sub-buffer.
    pub verdict: Verdict,
    /// Offset in the packet's bytes of the first event.
    pub events_at: usize,
    /// Whole bytes that the packet has in a file, content and padding; at least the length of the bytes delivered.
    pub packet_len: u64,
}

impl PacketInfo {
    /// Facts of no packet: all 0.
    #[must_use]
    pub fn none() -> Self {
        Self { sequence: 0, begin: 0, end: 0, discarded: 0, verdict: Verdict::Open, events_at: 0, packet_len: 0 }
    }
}

/// Reads the packets of one stream in order.
pub trait PacketReader {
    /// Puts the next packet's content (header and context included, padding and trailer not) into `bytes`, in place of what
    /// is there (the packet before: its memory is used again without being cleared), and returns its facts; none at the end. The header and context in `bytes` are those of docs/ABI.md, made whole: content size, end,
    /// and discarded count are right even for a packet that was open. What cannot be read is evidence, not an error.
    fn next_packet(&mut self, bytes: &mut Vec<u8>) -> Option<PacketInfo>;

    /// What the last call of [`Self::next_packet`] met and could not put into a packet, where that is not evidence already; the second
    /// call says no. After such a call there may be more packets, though it gave none.
    fn defect(&mut self) -> Option<Defect> {
        None
    }
}

/// A packet, or what it is made of, cannot be read to its end or is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Defect {
    /// Number of the packet or sub-buffer in its stream.
    pub sequence: u64,
    /// What is wrong.
    pub what: String,
}

/// Gives the packets of a trace's streams.
pub trait Packets: Send + Sync {
    /// A reader of the packets of the stream at a position; of a stream that is not there it gives none.
    fn packets_of(&self, stream: usize) -> Box<dyn PacketReader + '_>;
}

impl<S: Source + ?Sized> Packets for S {
    fn packets_of(&self, stream: usize) -> Box<dyn PacketReader + '_> {
        self.packets(stream)
    }
}

/// One session or instance recovered from an image.
pub trait Source: Send + Sync {
    /// What its events look like.
    fn schema(&self) -> &Schema;
    /// Its streams.
    fn streams(&self) -> &[Stream];
    /// A reader of one stream's packets; `stream` indexes [`Source::streams`].
    fn packets(&self, stream: usize) -> Box<dyn PacketReader + '_>;
    /// Verdicts, gaps and notes of the whole; complete from the start, so that it stands before the events.
    fn evidence(&self) -> &Evidence;
    /// Spans that were open, where the source knows of them.
    fn open_spans(&self) -> &[OpenSpan] {
        &[]
    }
}

/// A span that was open at the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenSpan {
    /// Id.
    pub id: u64,
    /// Id of its parent, or 0.
    pub parent: u64,
    /// When it was opened, ticks.
    pub opened: u64,
    /// Nanoseconds from its opening to the last sign of life in the trace.
    pub age: u64,
    /// Process and thread that opened it.
    pub opener: (u32, u32),
    /// Process and thread that entered it last, if that thread is in it.
    pub entered: Option<(u32, u32)>,
    /// Threads that are in it.
    pub threads: u32,
    /// Severity 1 to 5.
    pub level: u8,
    /// Target (module path).
    pub target: String,
    /// Name.
    pub name: String,
    /// `key=value` joined by blanks.
    pub fields: String,
}

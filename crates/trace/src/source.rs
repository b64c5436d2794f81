//! The interface of a recovered trace: schema, streams, packets on demand, evidence.

use crate::evidence::{Evidence, Verdict};
use crate::schema::Schema;

/// A stream: the packets of one channel and CPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stream {
    /// Index of its channel in [`Schema::channels`].
    pub channel: usize,
    /// Instance id, unique in the trace.
    pub instance: u64,
    /// CPU; none if the stream is not bound to a CPU.
    pub cpu: Option<u32>,
}

/// Facts about one packet. Clock values are ticks of the trace's clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PacketInfo {
    /// Number of the packet in its stream.
    pub sequence: u64,
    /// Clock at the start of the packet, which is the initial clock for decoding events.
    pub begin: u64,
    /// Clock when the packet was closed, or of its last event.
    pub end: u64,
    /// Total of the stream's discarded events at the end of the packet: lost events of all causes,
    /// and events of gaps before the packet's end if their number is known. The last packet of a
    /// stream also includes all later losses.
    pub discarded: u64,
    /// Verdict on the sub-buffer.
    pub verdict: Verdict,
    /// Offset of the first event, bytes from the start of the packet.
    pub events_at: usize,
    /// Size of the packet in a file, content and padding, bytes; at least the number of bytes
    /// delivered.
    pub packet_len: u64,
}

impl PacketInfo {
    /// All-zero facts.
    #[must_use]
    pub fn none() -> Self {
        Self {
            sequence: 0,
            begin: 0,
            end: 0,
            discarded: 0,
            verdict: Verdict::Open,
            events_at: 0,
            packet_len: 0,
        }
    }
}

/// Reads the packets of one stream in order.
pub trait PacketReader {
    /// Replaces `bytes` with the next packet's content: header and context included, padding and
    /// trailer excluded. Returns the packet's facts, or none after the last packet. `bytes` has the
    /// previous packet's memory, which is reused without being cleared.
    ///
    /// Header and context are those of docs/ABI.md, completed: content size, end and discarded
    /// count are correct even for a packet that was open. Unreadable packets are evidence, not
    /// errors.
    fn next_packet(&mut self, bytes: &mut Vec<u8>) -> Option<PacketInfo>;

    /// Returns a defect that the last call of [`Self::next_packet`] found and could not put into a
    /// packet, unless the evidence has it already. A second call returns none. After a defect there
    /// may be more packets, although that call returned none.
    fn defect(&mut self) -> Option<Defect> {
        None
    }

    /// Returns the packets to come, as far as they are known before they are read. Returns none if
    /// the source does not know them; then it cannot pass over packets either.
    fn foretell(&self) -> Option<Vec<Foretold>> {
        None
    }

    /// Passes over this number of the packets that [`Self::foretell`] returns, without reading
    /// them.
    fn pass_over(&mut self, _packets: usize) {}
}

/// A packet as it is known before it is read. Clock values are ticks of the trace's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Foretold {
    /// Number of the packet in its stream.
    pub sequence: u64,
    /// Clock at the start of the packet.
    pub begin: u64,
    /// Clock when the packet was closed, or of its last event.
    pub end: u64,
    /// Size of its content, bytes.
    pub size: u64,
}

/// A packet, or what it is made of, cannot be read to its end or is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Defect {
    /// Number of the packet or sub-buffer in its stream.
    pub sequence: u64,
    /// A description of the defect.
    pub what: String,
}

/// Provides the packets of a trace's streams.
pub trait Packets: Send + Sync {
    /// Creates a reader of the packets of stream number `stream`; a reader without packets if there
    /// is no such stream.
    fn packets_of(&self, stream: usize) -> Box<dyn PacketReader + '_>;
}

/// Knows what was found and lost.
pub trait Told: Send + Sync {
    /// Returns the evidence. It may first read what was not checked yet.
    fn told(&self) -> &Evidence;

    /// Returns the spans that were open, if the source records them.
    fn told_spans(&self) -> &[OpenSpan] {
        &[]
    }
}

impl Told for Evidence {
    fn told(&self) -> &Evidence {
        self
    }
}

impl<S: Source> Told for S {
    fn told(&self) -> &Evidence {
        self.evidence()
    }

    fn told_spans(&self) -> &[OpenSpan] {
        self.open_spans()
    }
}

impl<S: Source + ?Sized> Packets for S {
    fn packets_of(&self, stream: usize) -> Box<dyn PacketReader + '_> {
        self.packets(stream)
    }
}

/// One session or instance recovered from an image.
pub trait Source: Send + Sync {
    /// Description of the events.
    fn schema(&self) -> &Schema;
    /// The streams.
    fn streams(&self) -> &[Stream];
    /// Creates a reader of one stream's packets; `stream` is an index into [`Source::streams`].
    fn packets(&self, stream: usize) -> Box<dyn PacketReader + '_>;
    /// Verdicts, gaps and notes of the whole source. It is complete whenever it is asked for, also
    /// before the events are read; what a source left to be checked during reading is then checked
    /// at once.
    fn evidence(&self) -> &Evidence;
    /// Number of bytes of the committed content of each stream's sub-buffers, as far as it is known
    /// without further reading.
    fn contents(&self) -> Vec<u64> {
        self.evidence().contents(self.streams().len())
    }
    /// Spans that were open, if the source records them.
    fn open_spans(&self) -> &[OpenSpan] {
        &[]
    }
    /// Returns false if the source may have had open spans, and its table of them is not there.
    fn knows_open_spans(&self) -> bool {
        true
    }
}

/// A span that was open when recording ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenSpan {
    /// Id.
    pub id: u64,
    /// Id of the parent span, or 0.
    pub parent: u64,
    /// Clock when the span was opened, ticks.
    pub opened: u64,
    /// Time from opening to the latest time in the trace, nanoseconds.
    pub age: u64,
    /// Process and thread that opened it.
    pub opener: (u32, u32),
    /// Process and thread that entered the span last, if that thread is still in it.
    pub entered: Option<(u32, u32)>,
    /// Number of threads that are in the span.
    pub threads: u32,
    /// Severity 1 to 5.
    pub level: u8,
    /// Target (module path).
    pub target: String,
    /// Name.
    pub name: String,
    /// `key=value` pairs joined by spaces.
    pub fields: String,
}

//! All events of one or several sources in order of time, one packet of each stream in memory.

use crate::clock::{Converter, Rounding};
use crate::decode::{DecodeError, Decoder, Position, RawEvent};
use crate::source::{PacketInfo, PacketReader, Source};
use std::fmt;
use std::rc::Rc;

/// Most faults that are kept; the others are only counted.
const MAX_FAULTS: usize = 1000;

/// An event and where it comes from.
#[derive(Debug, Clone, Copy)]
pub struct Event<'m> {
    /// Position of its source among those merged.
    pub source: usize,
    /// Position of its stream in [`Source::streams`].
    pub stream: usize,
    /// Position of its channel in the source's schema.
    pub channel: usize,
    /// Its packet.
    pub packet: &'m PacketInfo,
    /// The packet's bytes.
    pub bytes: &'m [u8],
    /// Where it stands in them.
    pub raw: RawEvent,
    /// Nanoseconds since the epoch, as the merge rounds them.
    pub nanoseconds: i64,
}

impl<'m> Event<'m> {
    /// The bytes of the channel's contexts.
    #[must_use]
    pub fn context(&self) -> &'m [u8] {
        self.bytes.get(self.raw.context()).unwrap_or_default()
    }

    /// The bytes of the payload.
    #[must_use]
    pub fn payload(&self) -> &'m [u8] {
        self.bytes.get(self.raw.payload()).unwrap_or_default()
    }
}

/// A packet that could not be decoded to its end; the events before are delivered, those behind are not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Position of the source among those merged.
    pub source: usize,
    /// Position of the stream.
    pub stream: usize,
    /// Number of the packet in its stream.
    pub sequence: u64,
    /// Bytes of the packet that were not decoded.
    pub bytes: usize,
    /// Where and why.
    pub error: DecodeError,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { stream, sequence, bytes, error, .. } = self;
        write!(f, "stream {stream}, packet {sequence}: {error}; {bytes} bytes not decoded")
    }
}

/// What has been read so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Packets.
    pub packets: u64,
    /// Bytes of packets.
    pub bytes: u64,
}

/// The merge. [`Merge::next`] lends one event at a time.
///
/// Order: nanoseconds; then, where they are exact, ticks; then UUID of the trace, name, channel id, stream instance. The
/// events of one stream keep their order whatever their clocks say.
pub struct Merge<'s> {
    cursors: Vec<Cursor<'s>>,
    /// A binary heap, least key first, of the cursors that have an event.
    heap: Vec<Entry>,
    /// The event at the top was lent: step before the next.
    lent: bool,
    progress: Progress,
    faults: Vec<Fault>,
    fault_count: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    nanoseconds: i64,
    ticks: u64,
    cursor: usize,
}

struct Cursor<'s> {
    source: usize,
    stream: usize,
    channel: usize,
    decoder: Rc<Decoder>,
    reader: Box<dyn PacketReader + 's>,
    converter: Converter,
    exact: bool,
    bytes: Vec<u8>,
    packet: PacketInfo,
    position: Position,
    event: RawEvent,
    nanoseconds: i64,
    /// Greatest so far.
    key: (i64, u64),
}

impl<'s> Merge<'s> {
    /// Merges the streams of `sources` that `wanted(source, stream)` lets pass.
    pub fn new(sources: &[&'s dyn Source], rounding: Rounding, mut wanted: impl FnMut(usize, usize) -> bool) -> Self {
        let mut cursors = Vec::new();
        for (position, source) in sources.iter().enumerate() {
            let decoder = Rc::new(Decoder::new(source.schema()));
            for stream in 0..source.streams().len() {
                if wanted(position, stream) {
                    cursors.push(Cursor::new(*source, (position, stream), &decoder, rounding));
                }
            }
        }
        cursors.sort_by_cached_key(|c| rank(sources[c.source], c));
        let mut merge = Self {
            cursors,
            heap: Vec::new(),
            lent: false,
            progress: Progress::default(),
            faults: Vec::new(),
            fault_count: 0,
        };
        for cursor in 0..merge.cursors.len() {
            let first = merge.advance(cursor);
            merge.heap.extend(first);
        }
        merge.heap.sort_unstable();
        merge
    }

    /// The next event, or none at the end of all streams.
    #[allow(clippy::should_implement_trait, reason = "it lends: Iterator cannot")]
    #[inline]
    pub fn next(&mut self) -> Option<Event<'_>> {
        if self.lent {
            self.step();
        }
        let top = self.heap.first()?;
        self.lent = true;
        let c = &self.cursors[top.cursor];
        Some(Event {
            source: c.source,
            stream: c.stream,
            channel: c.channel,
            packet: &c.packet,
            bytes: &c.bytes,
            raw: c.event,
            nanoseconds: c.nanoseconds,
        })
    }

    /// Streams that are merged.
    #[must_use]
    pub fn streams(&self) -> usize {
        self.cursors.len()
    }

    /// What has been read so far.
    #[must_use]
    pub fn progress(&self) -> Progress {
        self.progress
    }

    /// Packets that could not be decoded to their end: the first thousand.
    #[must_use]
    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }

    /// How many packets could not be decoded to their end.
    #[must_use]
    pub fn fault_count(&self) -> u64 {
        self.fault_count
    }

    /// Replaces the top of the heap by its cursor's next event.
    #[inline]
    fn step(&mut self) {
        self.lent = false;
        let Some(top) = self.heap.first() else { return };
        match self.advance(top.cursor) {
            Some(entry) => self.sift_down(entry),
            None => {
                if let Some(last) = self.heap.pop()
                    && !self.heap.is_empty()
                {
                    self.sift_down(last);
                }
            }
        }
    }

    /// Puts `entry` in place of the top.
    #[inline]
    fn sift_down(&mut self, entry: Entry) {
        let heap = self.heap.as_mut_slice();
        let mut hole = 0;
        loop {
            let mut child = 2 * hole + 1;
            if child >= heap.len() {
                break;
            }
            if child + 1 < heap.len() && heap[child + 1] < heap[child] {
                child += 1;
            }
            if entry <= heap[child] {
                break;
            }
            heap[hole] = heap[child];
            hole = child;
        }
        heap[hole] = entry;
    }

    /// The cursor's next event, over the ends of packets and bad packets.
    #[inline]
    fn advance(&mut self, cursor: usize) -> Option<Entry> {
        let c = &mut self.cursors[cursor];
        loop {
            match c.step() {
                Ok(true) => return Some(Entry { nanoseconds: c.key.0, ticks: c.key.1, cursor }),
                Ok(false) => {}
                Err(error) => {
                    self.fault_count += 1;
                    if self.faults.len() < MAX_FAULTS {
                        self.faults.push(c.fault(error));
                    }
                }
            }
            if !c.next_packet() {
                return None;
            }
            self.progress.packets += 1;
            self.progress.bytes += c.bytes.len() as u64;
        }
    }
}

impl fmt::Debug for Merge<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Merge").field("streams", &self.cursors.len()).field("progress", &self.progress).finish()
    }
}

fn rank(source: &dyn Source, cursor: &Cursor<'_>) -> ([u8; 16], String, u32, u64, usize, usize) {
    let schema = source.schema();
    let id = schema.channels.get(cursor.channel).map_or(u32::MAX, |c| c.id);
    let instance = source.streams().get(cursor.stream).map_or(0, |s| s.instance);
    (schema.uuid, schema.name.clone(), id, instance, cursor.source, cursor.stream)
}

impl<'s> Cursor<'s> {
    fn new(source: &'s dyn Source, at: (usize, usize), decoder: &Rc<Decoder>, rounding: Rounding) -> Self {
        let (position, stream) = at;
        Self {
            source: position,
            stream,
            channel: source.streams()[stream].channel,
            decoder: Rc::clone(decoder),
            reader: source.packets(stream),
            converter: Converter::new(&source.schema().clock, rounding),
            exact: rounding == Rounding::Floor,
            bytes: Vec::new(),
            packet: PacketInfo::none(),
            position: Position { offset: 0, clock: 0 },
            event: RawEvent { clock: 0, id: 0, class: 0, start: 0, context_at: 0, payload_at: 0, end: 0 },
            nanoseconds: 0,
            key: (i64::MIN, 0),
        }
    }

    /// True: `event` is the next of the packet. False: the packet is at its end.
    #[inline]
    fn step(&mut self) -> Result<bool, DecodeError> {
        let Some(channel) = self.decoder.channel(self.channel) else { return Ok(false) };
        let Some(event) = channel.step(&mut self.position, &self.bytes)? else { return Ok(false) };
        self.nanoseconds = self.converter.nanoseconds(event.clock);
        let ticks = if self.exact { event.clock } else { 0 };
        self.key = self.key.max((self.nanoseconds, ticks));
        self.event = event;
        Ok(true)
    }

    fn next_packet(&mut self) -> bool {
        let Some(packet) = self.reader.next_packet(&mut self.bytes) else {
            self.bytes.clear();
            return false;
        };
        self.position = Position { offset: packet.events_at, clock: packet.begin };
        self.packet = packet;
        true
    }

    fn fault(&self, error: DecodeError) -> Fault {
        Fault {
            source: self.source,
            stream: self.stream,
            sequence: self.packet.sequence,
            bytes: self.bytes.len().saturating_sub(self.position.offset),
            error,
        }
    }
}

//! A recovered LTTng session: streams, packets, metadata, evidence.

use super::header::{Header, MAGIC, Shape};
use super::metadata::Metadata;
use super::plan::{KeptSubBuffer, Ring, Written};
use lastwords_bytes::{Budget, Error};
use lastwords_image::Hole;
use lastwords_trace::evidence::{Cause, Evidence, Gap, SubBuffer, Verdict};
use std::sync::Arc;

/// Number of bytes read at once to check that they are in the image.
const PIECE: usize = 1 << 16;

/// Prefixes of the names of nameless sessions: user-space sessions, and sessions whose packets were
/// carved.
pub(crate) const NAMELESS: &str = "ust-";
pub(crate) const CARVED: &str = "carved-";

/// The tracer that recorded a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Domain {
    /// The kernel tracer.
    Kernel,
    /// The user-space tracer.
    User,
}

impl Domain {
    /// Name of the domain in lower case, as in LTTng's folders.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::User => "ust",
        }
    }
}

/// Number of events that a stream lost, by cause.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Loss {
    /// Events lost because the ring was full.
    pub full: u64,
    /// Events lost because a nested writer wrapped around the ring.
    pub wrap: u64,
    /// Events lost because they were larger than a sub-buffer.
    pub big: u64,
}

impl Loss {
    /// Sum of all lost events.
    #[must_use]
    pub fn total(self) -> u64 {
        self.full.saturating_add(self.wrap).saturating_add(self.big)
    }
}

/// Reads the sets of pages of a ring.
pub trait SetData: Send + Sync {
    /// Fills `buf` with the bytes of set number `set` from offset `at` on.
    ///
    /// # Errors
    /// The image lacks some of these bytes.
    fn read(&self, set: u64, at: u64, buf: &mut [u8]) -> Result<(), Hole>;

    /// Length of header and events in a set, bytes, as noted by the tracer when it left the
    /// sub-buffer; none if unknown.
    fn data_size(&self, set: u64) -> Option<u64>;
}

/// A recovered packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    /// The completed header.
    pub header: Header,
    /// Verdict on the packet's sub-buffer.
    pub verdict: Verdict,
    /// Length of header and events, bytes.
    pub content: u64,
    /// Length of the packet in a file, bytes.
    pub len: u64,
    pub(super) set: u64,
    /// True if the packet is byte for byte as the tracer delivered it.
    pub is_as_delivered: bool,
    /// The property of the packet that only its events can prove.
    pub doubt: Doubt,
    /// If the end is in doubt: possible ends in bytes, from the commit counters that fit.
    pub(super) ends: Vec<u64>,
}

/// A property of a packet that only its events can prove.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Doubt {
    /// No property: the packet is proven.
    #[default]
    None,
    /// The end: no counter shows how far the packet was written.
    End,
    /// The pages after the first.
    Pages,
}

/// A stream: one channel's ring on one CPU.
pub struct Stream {
    /// Id of the channel.
    pub channel: u32,
    /// Name of the channel; empty if the image lacks it.
    pub channel_name: String,
    /// CPU of the stream; none if all CPUs share the ring.
    pub cpu: Option<u32>,
    /// The ring.
    pub ring: Ring,
    /// Lost events.
    pub loss: Loss,
    /// Clock of the newest event, ticks, if the tracer noted it.
    pub last_time: Option<u64>,
    /// Packets, oldest first.
    pub packets: Vec<Packet>,
    /// The ring's sets of pages.
    pub data: Arc<dyn SetData>,
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream")
            .field("channel", &self.channel)
            .field("cpu", &self.cpu)
            .finish_non_exhaustive()
    }
}

/// A recovered session.
#[derive(Debug)]
pub struct Session {
    /// Name of the session.
    pub name: String,
    /// Tracer that recorded the session.
    pub domain: Domain,
    /// Folders between the session's folder and the streams' as LTTng has them, such as
    /// `uid/0/64-bit`; may be empty.
    pub folder: String,
    /// Creation time as noted by the tracer; may be empty.
    pub created: String,
    /// True if the session was recording; none if unknown.
    pub is_active: Option<bool>,
    /// UUID of the trace.
    pub uuid: [u8; 16],
    /// Layout of the packet headers.
    pub shape: Shape,
    /// Packets are padded to a multiple of this many bytes.
    pub page_size: u64,
    /// Description of the events.
    pub metadata: Metadata,
    /// True if the walk could not read some of the channels or rings.
    pub is_cut: bool,
    /// The streams.
    pub streams: Vec<Stream>,
    /// Evidence of what was found and lost; stream numbers are indices into [`Session::streams`].
    pub evidence: Evidence,
}

impl Session {
    /// Makes a session without streams.
    pub(crate) fn new(domain: Domain, uuid: [u8; 16], shape: Shape, page_size: u64) -> Self {
        Self {
            name: String::new(),
            domain,
            folder: String::new(),
            created: String::new(),
            is_active: None,
            uuid,
            shape,
            page_size,
            metadata: Metadata::default(),
            is_cut: false,
            streams: Vec::new(),
            evidence: Evidence::default(),
        }
    }

    /// Fills `bytes` with a packet, including padding; false if there is no such packet.
    #[must_use]
    pub fn packet(&self, stream: usize, packet: usize, bytes: &mut Vec<u8>) -> bool {
        bytes.clear();
        let Some(stream) = self.streams.get(stream) else { return false };
        let Some(packet) = stream.packets.get(packet) else { return false };
        let (Ok(len), Ok(content)) = (usize::try_from(packet.len), usize::try_from(packet.content))
        else {
            return false;
        };
        bytes.resize(len, 0);
        let from_memory = if packet.is_as_delivered { len } else { content };
        let Some(part) = bytes.get_mut(..from_memory) else { return false };
        if stream.data.read(packet.set, 0, part).is_err() {
            return false;
        }
        if !packet.is_as_delivered
            && let Some(place) = bytes.get_mut(..self.shape.len())
        {
            place.copy_from_slice(&packet.header.bytes(self.shape));
        }
        true
    }

    /// Adds a gap for a part of the session that is not in the image.
    pub(crate) fn lose(&mut self, place: String) {
        self.evidence.gaps.push(Gap::new(None, Cause::Missing, place));
    }

    /// Adds a gap of a stream.
    pub(super) fn gap(&mut self, stream: usize, place: String, cause: Cause) {
        self.evidence.gaps.push(Gap::new(Some(stream), cause, place));
    }

    /// Names a nameless session by the `trace_name` in its metadata.
    pub fn name_by_metadata(&mut self) {
        if [NAMELESS, CARVED].iter().any(|nameless| self.name.starts_with(nameless))
            && let Some(name) = self.metadata.property("trace_name")
        {
            self.name = name;
        }
    }

    /// Checks each sub-buffer of a stream and adds the stream.
    ///
    /// # Errors
    /// The budget is spent.
    pub fn add(&mut self, mut stream: Stream, budget: &Budget) -> Result<(), Error> {
        let index = self.streams.len();
        let (first, _, is_odd) = stream.ring.range();
        let mut look = StreamWalk {
            session: self,
            stream: &stream,
            index,
            packets: Vec::new(),
            evidence: Evidence::default(),
        };
        if is_odd {
            let (consumed, produced) = (stream.ring.consumed, stream.ring.produced);
            let why = format!(
                "{}: read position {consumed} does not go with write position {produced}",
                look.what()
            );
            look.evidence.notes.push(why);
        }
        if first > 0 && stream.ring.mode == super::Mode::Overwrite {
            let place = format!("packets before {first}");
            look.gap(place, Cause::Overwritten, None, None);
        }
        for place in stream.ring.places() {
            budget.bytes("sub-buffers", stream.ring.sub_buffer_size)?;
            look.sub_buffer(place);
        }
        look.losses();
        let StreamWalk { packets, evidence, .. } = look;
        stream.packets = packets;
        self.evidence.append(evidence);
        self.streams.push(stream);
        Ok(())
    }
}

/// The state of checking one stream.
struct StreamWalk<'a> {
    session: &'a Session,
    stream: &'a Stream,
    index: usize,
    packets: Vec<Packet>,
    evidence: Evidence,
}

impl StreamWalk<'_> {
    fn what(&self) -> String {
        let cpu = self.stream.cpu.map_or_else(String::new, |cpu| format!(", CPU {cpu}"));
        format!("channel {}{cpu}", self.stream.channel)
    }

    fn gap(&mut self, place: String, cause: Cause, events: Option<u64>, bytes: Option<u64>) {
        self.evidence.gaps.push(Gap { stream: Some(self.index), place, cause, events, bytes });
    }

    fn verdict(&mut self, sequence: u64, verdict: Verdict, content: u64, why: String) {
        self.evidence.sub_buffers.push(SubBuffer {
            stream: self.index,
            sequence,
            verdict,
            content,
            why,
        });
    }

    fn sub_buffer(&mut self, place: KeptSubBuffer) {
        let bad =
            |look: &mut Self, verdict, why: String| look.verdict(place.number, verdict, 0, why);
        let Some(set) = place.set else {
            return bad(
                self,
                Verdict::Missing,
                "the image does not tell which pages hold it".to_owned(),
            );
        };
        match place.written {
            Written::Unknown => {
                bad(self, Verdict::Missing, "the image lacks its commit counters".to_owned())
            }
            Written::OtherLap => {
                bad(self, Verdict::Stale, "its commit counters are of another lap".to_owned())
            }
            Written::Delivered => self.delivered(place, set),
            Written::Partly { committed, reserved } => self.partly(place, set, committed, reserved),
        }
    }

    /// Reads the header of a set.
    fn read(&self, set: u64) -> Result<Header, String> {
        let mut bytes = vec![0u8; self.session.shape.len()];
        let read = self.stream.data.read(set, 0, &mut bytes);
        read.map_err(|hole| hole.to_string())?;
        Header::parse(&bytes, self.session.shape).map_err(|error| error.to_string())
    }

    /// The first hole in the first `len` bytes of a set; none if all bytes are there.
    fn hole(&self, set: u64, len: u64) -> Option<Hole> {
        let mut bytes = vec![0u8; PIECE];
        let mut at = 0;
        while at < len {
            let part =
                usize::try_from(len.saturating_sub(at).min(PIECE as u64)).unwrap_or_default();
            if let Err(hole) =
                self.stream.data.read(set, at, bytes.get_mut(..part).unwrap_or_default())
            {
                return Some(hole);
            }
            at = at.saturating_add(PIECE as u64);
        }
        None
    }

    /// The header that a packet in this place must have; fields that are free are copied from
    /// `header`.
    fn expected(&self, place: KeptSubBuffer, header: &Header) -> Header {
        Header {
            magic: MAGIC,
            uuid: self.session.uuid,
            stream_id: self.stream.channel,
            cpu: self.stream.cpu.unwrap_or(header.cpu),
            sequence: header.sequence & !self.stream.ring.number_mask() | place.number,
            ..*header
        }
    }

    /// Returns the reader's set in place of the slot's, if its packet belongs here: a reader was
    /// stopped while it exchanged the two sets.
    fn exchanged(&self, place: KeptSubBuffer, set: u64) -> Option<(u64, Header)> {
        let reader = self.stream.ring.reader.filter(|reader| *reader != set)?;
        let header = self.read(reader).ok()?;
        let fits = header.content(self.session.shape).is_some();
        (fits && differences(&header, &self.expected(place, &header)).is_empty())
            .then_some((reader, header))
    }

    fn delivered(&mut self, place: KeptSubBuffer, set: u64) {
        let header = match self.read(set) {
            Ok(header) => header,
            Err(why) => return self.verdict(place.number, Verdict::Missing, 0, why),
        };
        let is_other =
            !header.has_magic() || self.expected(place, &header).sequence != header.sequence;
        let exchanged = if is_other { self.exchanged(place, set) } else { None };
        let (set, header) = exchanged.unwrap_or((set, header));
        let size = self.stream.ring.sub_buffer_size;
        if header.is_open() {
            // All bytes are committed, but no writer has completed the header.
            return self.partly(place, set, size, size);
        }
        let right = self.expected(place, &header);
        let content = header.content(self.session.shape).filter(|_| header.packet_bits / 8 <= size);
        let wrong = differences(&header, &right);
        let (header, content, as_delivered) = match (content, wrong.as_slice()) {
            (Some(content), []) => (header, content, header.packet_bits.is_multiple_of(8)),
            // Exactly one field is wrong. All others match, so its correct value is known.
            (Some(content), [_]) => (right, content, false),
            (None, []) => match self.stream.data.data_size(set).filter(|n| self.can_hold(*n)) {
                Some(content) => (right, content, false),
                None => return self.invalid(place, &header, &wrong),
            },
            _ => return self.invalid(place, &header, &wrong),
        };
        if !self.times_fit(&header) {
            return self.invalid(place, &header, &wrong);
        }
        let len = if as_delivered { header.packet_bits / 8 } else { self.padded(content) };
        if let Some(hole) = self.hole(set, len) {
            return self.verdict(place.number, Verdict::Missing, 0, hole.to_string());
        }
        if as_delivered {
            self.verdict(place.number, Verdict::Committed, content, String::new());
            self.push(header, Verdict::Committed, content, set, true);
        } else {
            let why = format!("{}; put right", self.why(&header, &wrong));
            self.verdict(place.number, Verdict::Invalid, content, why);
            self.push(header, Verdict::Invalid, content, set, false);
        }
    }

    fn partly(&mut self, place: KeptSubBuffer, set: u64, committed: u64, reserved: u64) {
        let mut content = committed;
        if committed == self.stream.ring.sub_buffer_size {
            // All bytes including the padding are committed, but the sub-buffer was not delivered.
            content =
                self.stream.data.data_size(set).filter(|n| self.can_hold(*n)).unwrap_or(committed);
        }
        let verdict = if place.is_last { Verdict::Open } else { Verdict::Torn };
        // The header of a new sub-buffer is committed separately, before any event.
        let is_fresh = committed == 0 && reserved <= self.session.shape.len() as u64;
        if committed < reserved && !is_fresh {
            let from = format!("sub-buffer {}, behind byte {committed}", place.number);
            self.gap(from, Cause::InFlight, None, Some(reserved.saturating_sub(committed)));
        }
        if content < self.session.shape.len() as u64 {
            return self.verdict(place.number, verdict, 0, String::new());
        }
        let header = match self.read(set) {
            Ok(header) => header,
            Err(why) => return self.verdict(place.number, Verdict::Missing, 0, why),
        };
        let right = self.expected(place, &header);
        let wrong = differences(&header, &right);
        let begins = self.packets.last().is_none_or(|before| before.header.end <= header.begin);
        if wrong.len() > 1 || !begins {
            return self.invalid(place, &header, &wrong);
        }
        if let Some(hole) = self.hole(set, content) {
            return self.verdict(place.number, Verdict::Missing, 0, hole.to_string());
        }
        let newest = self
            .stream
            .last_time
            .filter(|_| place.is_last)
            .unwrap_or(header.begin)
            .max(header.begin);
        let end = if header.end == 0 || header.end < header.begin { newest } else { header.end };
        let verdict = if wrong.is_empty() { verdict } else { Verdict::Invalid };
        let why = if wrong.is_empty() {
            String::new()
        } else {
            format!("{}; put right", wrong.join(", "))
        };
        self.verdict(place.number, verdict, content, why);
        self.push(Header { end, ..right }, verdict, content, set, false);
    }

    /// True if a sub-buffer can have this many bytes of content.
    fn can_hold(&self, content: u64) -> bool {
        (self.session.shape.len() as u64..=self.stream.ring.sub_buffer_size).contains(&content)
    }

    /// True if the packet begins before it ends, and after the end of the packet before.
    fn times_fit(&self, header: &Header) -> bool {
        let before = self.packets.last().map_or(0, |before| before.header.end);
        header.begin <= header.end && before <= header.begin
    }

    fn padded(&self, content: u64) -> u64 {
        let padded =
            content.checked_next_multiple_of(self.session.page_size.max(1)).unwrap_or(content);
        padded.min(self.stream.ring.sub_buffer_size).max(content)
    }

    fn push(
        &mut self,
        mut header: Header,
        verdict: Verdict,
        content: u64,
        set: u64,
        is_as_delivered: bool,
    ) {
        let mut len = header.packet_bits / 8;
        if !is_as_delivered {
            len = self.padded(content);
            header.content_bits = content.saturating_mul(8);
            header.packet_bits = len.saturating_mul(8);
            let before = self.packets.last().map_or(0, |before| before.header.discarded);
            header.discarded = header.discarded.max(before);
        }
        self.packets.push(Packet {
            header,
            verdict,
            content,
            len,
            set,
            is_as_delivered,
            doubt: Doubt::None,
            ends: Vec::new(),
        });
    }

    fn why(&self, header: &Header, wrong: &[String]) -> String {
        let mut why = wrong.to_vec();
        if header.content(self.session.shape).is_none()
            || header.packet_bits / 8 > self.stream.ring.sub_buffer_size
        {
            let (content, packet) = (header.content_bits, header.packet_bits);
            why.push(format!(
                "header offset 48: content of {content} bits in a packet of {packet} bits"
            ));
        }
        if !self.times_fit(header) {
            let before = self.packets.last().map_or(0, |before| before.header.end);
            let (begin, end) = (header.begin, header.end);
            why.push(format!("header offset 32: time stamps {begin} to {end}, behind a packet that ends at {before}"));
        }
        why.join(", ")
    }

    fn invalid(&mut self, place: KeptSubBuffer, header: &Header, wrong: &[String]) {
        let is_other = header.magic == MAGIC
            && header.uuid == self.session.uuid
            && header.sequence != place.number;
        let verdict = if is_other && wrong.len() == 1 { Verdict::Stale } else { Verdict::Invalid };
        self.verdict(place.number, verdict, 0, self.why(header, wrong));
    }

    /// Adds gaps for the stream's counters of lost events. The last packet carries the total if it
    /// was open; else an empty packet is added.
    fn losses(&mut self) {
        let loss = self.stream.loss;
        for (events, cause) in
            [(loss.full, Cause::Discarded), (loss.wrap, Cause::Refused), (loss.big, Cause::TooBig)]
        {
            if events > 0 {
                self.gap("in the whole stream".to_owned(), cause, Some(events), None);
            }
        }
        // If a counter is damaged, the headers of delivered packets still tell how many events were
        // lost before.
        let told = self.packets.iter().map(|packet| packet.header.discarded).max().unwrap_or(0);
        if let Some(events) = told.checked_sub(loss.total()).filter(|events| *events > 0) {
            self.gap("as the packets tell".to_owned(), Cause::Discarded, Some(events), None);
        }
        let Some(last) = self.packets.last_mut() else { return };
        if !last.is_as_delivered && last.verdict == Verdict::Open {
            last.header.discarded = last.header.discarded.max(loss.total());
        } else if last.header.discarded < loss.total() {
            let last = last.clone();
            self.packets.push(self.behind(&last));
        }
    }

    /// Builds a packet without events after the last one, to carry the losses since. The tracer
    /// makes the same packet when it closes a full ring.
    fn behind(&self, last: &Packet) -> Packet {
        let end = last.header.end.max(self.stream.last_time.unwrap_or(0));
        let content = self.session.shape.len() as u64;
        let len = self.padded(content);
        let header = Header {
            begin: end,
            end,
            content_bits: content.saturating_mul(8),
            packet_bits: len.saturating_mul(8),
            sequence: last.header.sequence.wrapping_add(1),
            discarded: self.stream.loss.total(),
            ..last.header
        };
        Packet {
            header,
            verdict: Verdict::Open,
            content,
            len,
            set: last.set,
            is_as_delivered: false,
            doubt: Doubt::None,
            ends: Vec::new(),
        }
    }
}

/// Describes the fields of a header that differ from `right`.
fn differences(header: &Header, right: &Header) -> Vec<String> {
    let say = |what: &str, offset: usize, found: u64, expected: u64| {
        (found != expected)
            .then(|| format!("header offset {offset}: {what} {found:#x}, expected {expected:#x}"))
    };
    let uuid = (header.uuid != right.uuid)
        .then(|| "header offset 4: the UUID of another trace".to_owned());
    [
        say("magic", 0, header.magic.into(), right.magic.into()),
        uuid,
        say("stream id", 20, header.stream_id.into(), right.stream_id.into()),
        say("sequence number", 64, header.sequence, right.sequence),
        say("CPU", 80, header.cpu.into(), right.cpu.into()),
    ]
    .into_iter()
    .flatten()
    .collect()
}

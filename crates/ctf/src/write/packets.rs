//! Writes data files: copies packets and rewrites their headers.

use super::index::{Entry, IndexWriter};
use crate::error::{Error, Result};
use crate::read::Watch;
use crate::session::{ChannelDecoder, NO_SIZE, Position, RawEvent, TAG_BITS, TAG_FULL, TAG_ID};
use crate::{Totals, create_file};
use lastwords_bytes::{ByteOrder, low_u32};
use lastwords_trace::clock::Clock;
use lastwords_trace::evidence::Verdict;
use lastwords_trace::source::{PacketInfo, Source};
use std::fs::File;
use std::io::{IoSlice, Write};
use std::path::{Path, PathBuf};

/// Size of the packet header and context that the metadata describe, in bytes.
pub const HEADER_LEN: usize = 84;
const MAGIC: u32 = 0xC1FC_1FC1;
/// Largest count that is accepted as real: babeltrace2 takes the largest numbers for "unknown".
const MAX_COUNT: u64 = 1 << 62;
/// Size of an event header with a payload size and no timestamp, in bytes.
const SIZED_LEN: usize = 10;
/// Size of an event header with payload size and timestamp, in bytes.
const FULL_LEN: usize = 18;

/// Writes one stream's file and its index. After each packet it reports the number of written bytes
/// to `watch`. A stream without packets has no file.
pub(super) fn stream(
    source: &dyn Source,
    stream: usize,
    folder: &Path,
    watch: Watch<'_>,
) -> Result<Totals> {
    let mut totals = Totals::default();
    let schema = source.schema();
    let Some(facts) = source.streams().get(stream) else { return Ok(totals) };
    let Some(channel) = schema.channels.get(facts.channel) else { return Ok(totals) };
    let mut reader = source.packets(stream);
    let mut copier = Copier {
        folder: folder.to_path_buf(),
        name: format!("stream-{}-{}", channel.id, facts.instance),
        file: None,
        decoder: ChannelDecoder::new(channel, schema.byte_order),
        header: Header {
            order: schema.byte_order,
            uuid: schema.uuid,
            stream_id: channel.id,
            instance: facts.instance,
            cpu: facts.cpu.unwrap_or(u32::MAX),
        },
        last: None,
        limit: limit(&schema.clock),
        rewritten: Vec::new(),
    };
    let mut bytes = Vec::new();
    while let Some(info) = reader.next_packet(&mut bytes) {
        let before = totals.bytes;
        copier.packet(&info, &bytes, &mut totals)?;
        watch(totals.bytes.saturating_sub(before));
    }
    if let Some((_, index)) = copier.file.take() {
        totals.streams = totals.streams.saturating_add(1);
        index.finish()?;
    }
    Ok(totals)
}

/// Values of the previous packet. The next packet's values must not be smaller.
#[derive(Debug, Clone, Copy)]
pub struct Last {
    /// Clock at the packet's end, in ticks.
    pub end: u64,
    /// Number of the packet.
    pub sequence: u64,
    /// Number of discarded events up to the packet's end.
    pub discarded: u64,
}

struct Copier {
    folder: PathBuf,
    name: String,
    file: Option<(File, IndexWriter)>,
    decoder: ChannelDecoder,
    header: Header,
    last: Option<Last>,
    /// Largest clock that a reader can show.
    limit: u64,
    rewritten: Vec<u8>,
}

/// The result of decoding a packet before it is written.
struct Survey {
    events: u64,
    /// Largest clock of the events, or the packet's begin.
    latest: u64,
    /// Offset after the last event that could be decoded.
    end: usize,
    /// The clock never goes back.
    ordered: bool,
    /// There are event headers with a payload size and no timestamp.
    sized: bool,
}

impl Copier {
    fn packet(&mut self, info: &PacketInfo, bytes: &[u8], totals: &mut Totals) -> Result<()> {
        if info.begin > self.limit {
            totals.faults = totals.faults.saturating_add(1);
            return Ok(());
        }
        let content = bytes.get(info.events_at..).unwrap_or_default();
        let last = self.last.unwrap_or(Last { end: 0, sequence: 0, discarded: 0 });
        let mut next = Last {
            end: info.end,
            sequence: match self.last {
                None => info.sequence.min(MAX_COUNT),
                Some(last) => info.sequence.min(MAX_COUNT).max(last.sequence.saturating_add(1)),
            },
            discarded: info.discarded.min(MAX_COUNT).max(last.discarded),
        };
        let in_order = info.begin >= last.end && info.end >= info.begin && info.end <= self.limit;
        let trusted = info.verdict == Verdict::Committed && in_order && !self.begins_sized(content);
        let counted = trusted.then(|| self.decoder.count(content, 0).ok()).flatten();
        let written = if let Some(events) = counted {
            totals.events = totals.events.saturating_add(events);
            self.write(next, info.begin, content)?
        } else {
            let survey = self.survey(content, info.begin);
            let behind = info.begin < last.end || !survey.ordered;
            totals.events = totals.events.saturating_add(survey.events);
            for is_fault in [survey.end < content.len(), behind] {
                totals.faults = totals.faults.saturating_add(u64::from(is_fault));
            }
            let whole = content.get(..survey.end).unwrap_or_default();
            let begin = info.begin.max(last.end);
            let end = if info.end > self.limit { 0 } else { info.end };
            next.end = end.max(survey.latest).max(begin);
            match (behind, survey.sized) {
                (false, false) => self.write(next, begin, whole)?,
                (true, _) => self.rewrite(next, info.begin, Some(begin), whole)?,
                (false, true) => self.rewrite(next, begin, None, whole)?,
            }
        };
        totals.packets = totals.packets.saturating_add(1);
        totals.bytes = totals.bytes.saturating_add(written);
        self.last = Some(next);
        Ok(())
    }

    fn survey(&self, content: &[u8], begin: u64) -> Survey {
        let mut position = Position { offset: 0, clock: begin };
        let mut survey = Survey { events: 0, latest: begin, end: 0, ordered: true, sized: false };
        while let Ok(Some(event)) = self.decoder.step(&mut position, content) {
            if event.clock > self.limit {
                break;
            }
            survey.events = survey.events.saturating_add(1);
            survey.ordered &= event.clock >= survey.latest;
            survey.latest = survey.latest.max(event.clock);
            survey.end = event.end;
            survey.sized |= header_len(&event) == SIZED_LEN;
        }
        survey
    }

    /// Returns true if the first header carries a payload size. Then all headers of that channel
    /// do.
    fn begins_sized(&self, content: &[u8]) -> bool {
        let mut position = Position { offset: 0, clock: 0 };
        match self.decoder.step(&mut position, content) {
            Ok(Some(event)) => match header_len(&event) {
                SIZED_LEN => true,
                FULL_LEN => {
                    let size = content.get(event.start..).and_then(|header| header.get(6..10));
                    size != Some(&NO_SIZE.to_le_bytes())
                }
                _ => false,
            },
            _ => false,
        }
    }

    /// Writes a packet with other event headers. With a `floor`, each header has its full clock,
    /// which is at least the floor and the clock of the previous event. Without a floor, headers
    /// with a payload size and no timestamp lose the size.
    fn rewrite(
        &mut self,
        facts: Last,
        begin: u64,
        floor: Option<u64>,
        content: &[u8],
    ) -> Result<u64> {
        let mut out = std::mem::take(&mut self.rewritten);
        out.clear();
        let mut position = Position { offset: 0, clock: begin };
        let mut latest = floor.unwrap_or(begin);
        while let Ok(Some(event)) = self.decoder.step(&mut position, content) {
            latest = latest.max(event.clock);
            if floor.is_some() {
                self.header.full(&mut out, &event, latest);
            } else if header_len(&event) == SIZED_LEN {
                self.header.extended(&mut out, &event);
            } else {
                out.extend_from_slice(
                    content.get(event.start..event.context_at).unwrap_or_default(),
                );
            }
            out.extend_from_slice(content.get(event.context_at..event.end).unwrap_or_default());
        }
        let facts = Last { end: facts.end.max(latest), ..facts };
        let written = self.write(facts, floor.unwrap_or(begin), &out);
        self.rewritten = out;
        written
    }

    fn write(&mut self, facts: Last, begin: u64, content: &[u8]) -> Result<u64> {
        let header = self.header.bytes(facts, begin, content.len());
        let path = self.folder.join(&self.name);
        let (file, index) = match &mut self.file {
            Some(files) => files,
            None => {
                self.file.insert((create_file(&path)?, IndexWriter::new(&self.folder, &self.name)?))
            }
        };
        write_both(file, &header, content).map_err(Error::io(&path, "write"))?;
        let written = header.len().saturating_add(content.len()) as u64;
        let bits = written.saturating_mul(8);
        let Last { end, sequence, discarded } = facts;
        let (stream_id, instance) = (self.header.stream_id.into(), self.header.instance);
        let entry = Entry {
            packet_bits: bits,
            content_bits: bits,
            begin,
            end,
            discarded,
            stream_id,
            instance,
            sequence,
        };
        index.packet(written, &entry)?;
        Ok(written)
    }
}

fn write_both(file: &mut File, header: &[u8], content: &[u8]) -> std::io::Result<()> {
    let written = file.write_vectored(&[IoSlice::new(header), IoSlice::new(content)])?;
    file.write_all(header.get(written..).unwrap_or_default())?;
    file.write_all(content.get(written.saturating_sub(header.len())..).unwrap_or_default())
}

/// Returns the largest clock that readers can show, less a second. They count nanoseconds since the
/// epoch in an i64.
fn limit(clock: &Clock) -> u64 {
    const MOST: i64 = i64::MAX / 1_000_000_000 - 2;
    let seconds = i128::from(MOST).saturating_sub(i128::from(clock.offset_seconds).max(0));
    let ticks = seconds.max(0).saturating_mul(i128::from(clock.frequency.max(1)));
    u64::try_from(ticks).unwrap_or(u64::MAX).min(1 << 63)
}

fn header_len(event: &RawEvent) -> usize {
    event.context_at.saturating_sub(event.start)
}

/// Values that are the same in all packets of a stream.
pub struct Header {
    /// Byte order of integers.
    pub order: ByteOrder,
    /// UUID of the trace.
    pub uuid: [u8; 16],
    /// Id of the stream class.
    pub stream_id: u32,
    /// Id of the stream in its class.
    pub instance: u64,
    /// The CPU; `u32::MAX` if the stream is not bound to one.
    pub cpu: u32,
}

impl Header {
    /// Returns the bytes of the packet header and context.
    pub fn bytes(&self, facts: Last, begin: u64, content: usize) -> [u8; HEADER_LEN] {
        let bits = (HEADER_LEN as u64).saturating_add(content as u64).saturating_mul(8);
        let mut out = [0; HEADER_LEN];
        let mut rest = out.as_mut_slice();
        self.put(&mut rest, MAGIC.to_le_bytes());
        put(&mut rest, self.uuid);
        self.put(&mut rest, self.stream_id.to_le_bytes());
        let words = [begin, facts.end, bits, bits, facts.sequence, facts.discarded];
        for word in [self.instance].into_iter().chain(words) {
            self.put(&mut rest, word.to_le_bytes());
        }
        self.put(&mut rest, self.cpu.to_le_bytes());
        out
    }

    /// Writes an event header with the full clock.
    fn full(&self, out: &mut Vec<u8>, event: &RawEvent, clock: u64) {
        self.word(out, clock, TAG_FULL);
        self.id(out, event.id);
        out.extend(self.order.little(NO_SIZE.to_le_bytes()));
        out.extend(self.order.little(clock.to_le_bytes()));
    }

    /// Writes an event header with an id of its own.
    fn extended(&self, out: &mut Vec<u8>, event: &RawEvent) {
        self.word(out, event.clock, TAG_ID);
        self.id(out, event.id);
    }

    fn word(&self, out: &mut Vec<u8>, clock: u64, tag: u32) {
        let word = low_u32(clock) << TAG_BITS | tag;
        out.extend(self.order.little(word.to_le_bytes()));
    }

    fn id(&self, out: &mut Vec<u8>, id: u16) {
        out.extend(self.order.little(id.to_le_bytes()));
    }

    /// Writes a number, whose bytes are given in little endian.
    fn put<const N: usize>(&self, out: &mut &mut [u8], little: [u8; N]) {
        put(out, self.order.little(little));
    }
}

fn put<const N: usize>(out: &mut &mut [u8], bytes: [u8; N]) {
    if let Some(place) = out.split_off_mut(..N) {
        place.copy_from_slice(&bytes);
    }
}

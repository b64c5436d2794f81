//! Reads the records of a ring buffer (`struct bpf_ringbuf`).
//!
//! A record is a header of 8 bytes and its data, and begins at a multiple of 8. The header has the
//! length with a busy and a discard bit, and the page of the ring in which it is. The program
//! reserves a record before it writes it: the busy bit is set until it submits or discards it.
//! Positions count bytes since the ring was created. The data are mapped twice, one after the other,
//! and only the first mapping is used here.
//!
//! Records cannot be found backwards. After a hole, the next record is the first position from which
//! headers lead to the producer's position or to another hole, each with the page that it is in.

use crate::content::{Content, Positions, Record, Sink, State};
use lastwords_bytes::{Error as BytesError, Reader};
use lastwords_image::Hole;
use lastwords_kernel::{Error, Object};
use lastwords_trace::evidence::Cause;
use std::io;

/// Length of a header; the length of a record is rounded up to a multiple of it.
const HEADER: u64 = 8;
/// Bits of the length word (`BPF_RINGBUF_BUSY_BIT`, `BPF_RINGBUF_DISCARD_BIT`).
const BUSY: u32 = 1 << 31;
const DISCARD: u32 = 1 << 30;
/// Largest ring that is accepted, bytes; the kernel's limit is 64 GiB.
const SIZE_MAX: u64 = 1 << 36;

/// Most headers that are followed to prove that the first of them is one.
const CHAIN: u32 = 64;

/// The reason why there is no header.
#[derive(Debug, Clone, Copy)]
enum Fault {
    Hole(Hole),
    /// The page is zero where a header should be.
    Zero,
    Invalid(u64),
}

/// A header.
#[derive(Debug, Clone, Copy)]
struct Header {
    word: u32,
    /// Position after the record.
    end: u64,
}

/// A ring that is being read.
struct Ring {
    /// Address of the data.
    data: u64,
    positions: Positions,
    /// Headers name the page of the ring in which they are.
    has_pages: bool,
    /// Offset of the data from the start of the ring, bytes.
    offset: u64,
    page_size: u64,
    /// The page that was read last: its offset in the data, and its bytes.
    page: Option<(u64, Result<Vec<u8>, Hole>)>,
}

/// Reads the records of the sink's map. `has_pages` says that the kernel writes the headers.
///
/// # Errors
/// The sink fails.
pub(crate) fn read(sink: &mut Sink<'_>, has_pages: bool) -> io::Result<()> {
    let found = find(sink, has_pages).and_then(|ring| {
        sink.kernel.budget().bytes("BPF ring buffer", ring.positions.size)?;
        Ok(ring)
    });
    match found {
        Ok(mut ring) => {
            sink.put(Content::Positions(ring.positions))?;
            ring.records(sink)
        }
        Err(error) => {
            sink.unreadable(&error);
            Ok(())
        }
    }
}

/// Finds the ring of the sink's map. A position that cannot be right becomes a gap.
fn find(sink: &mut Sink<'_>, has_pages: bool) -> Result<Ring, Error> {
    let kernel = sink.kernel;
    let ring = kernel.object("bpf_ringbuf_map", sink.map.address)?.pointer("rb")?;
    let size = ring.u64("mask")?.wrapping_add(1);
    let page_size = kernel.memory.page_size();
    if !size.is_power_of_two() || !(page_size..=SIZE_MAX).contains(&size) {
        let expected = "the size of a ring, a power of two";
        return Err(BytesError::value("bpf_ringbuf", ring.place(), size, expected).into());
    }
    let producer = ring.u64("producer_pos")?;
    if producer % HEADER != 0 {
        let expected = "a position of the producer, a multiple of 8";
        return Err(BytesError::value("bpf_ringbuf", ring.place(), producer, expected).into());
    }
    let data = ring.at("data")?.place();
    // A page that reads as zero would be a ring without records.
    if producer == 0 && kernel.memory.number(data, 8).is_ok_and(|header| header != 0) {
        let expected = "the producer's position of a ring that has records";
        return Err(BytesError::value("bpf_ringbuf", ring.place(), producer, expected).into());
    }
    let has_overwrite = ring.has("overwrite_pos") && ring.bool("overwrite_mode")?;
    let overwritten_to = match has_overwrite {
        true => position(sink, &ring, "overwrite_pos", producer, size),
        false => None,
    };
    // Of records that were overwritten before they were consumed, the consumer may be far behind.
    let reach = if has_overwrite { producer } else { size };
    let consumer = position(sink, &ring, "consumer_pos", producer, reach);
    Ok(Ring {
        data,
        positions: Positions { size, consumer, producer, overwritten_to },
        has_pages,
        offset: data.wrapping_sub(ring.place()),
        page_size,
        page: None,
    })
}

/// Returns a position that is at most `reach` bytes before the producer's. User space may write
/// that of the consumer.
fn position(
    sink: &mut Sink<'_>,
    ring: &Object<'_>,
    member: &str,
    producer: u64,
    reach: u64,
) -> Option<u64> {
    let why = match ring.u64(member) {
        Ok(at) if at % HEADER == 0 && producer.checked_sub(at).is_some_and(|n| n <= reach) => {
            return Some(at);
        }
        Ok(at) => format!(
            "{member} of the ring at {:#x} is {at}, and producer_pos {producer}",
            ring.place()
        ),
        Err(error) => error.to_string(),
    };
    sink.gap(Cause::Unknown, &why);
    None
}

impl Ring {
    /// Returns the position at which the oldest record in memory begins. None if it must be searched
    /// for.
    fn begin(&self) -> Option<u64> {
        let Positions { size, producer, overwritten_to, consumer } = self.positions;
        // Consumed records are counted, if it is known where they begin.
        overwritten_to.or((producer <= size).then_some(0)).or(consumer)
    }

    /// Reads all records that are in memory.
    fn records(&mut self, sink: &mut Sink<'_>) -> io::Result<()> {
        let Positions { size, producer, consumer, .. } = self.positions;
        let begin = self.begin();
        let oldest = producer.saturating_sub(size);
        let mut at = begin.unwrap_or_else(|| self.search(sink, oldest));
        if at > oldest && begin.is_none() {
            let place =
                format!("positions {oldest} to {at}: it is not known where a record begins");
            let gap = sink.gap(Cause::Damaged, &place);
            (gap.events, gap.bytes) = (None, Some(at.saturating_sub(oldest)));
        }
        let mut consumed = (begin == Some(0)).then_some(0u64);
        while at < producer {
            if let Err(error) = sink.kernel.budget().events("BPF ring buffer", 1) {
                sink.unreadable(&error.into());
                return Ok(());
            }
            let is_consumed = consumer.is_some_and(|consumer| at < consumer);
            at = match self.header(sink, at) {
                Ok(header) if is_consumed => {
                    consumed = consumed.map(|n| n.saturating_add(1));
                    header.end
                }
                Ok(header) => {
                    self.record(sink, at, header)?;
                    header.end
                }
                Err(fault) => {
                    let next = self.search(sink, at.saturating_add(HEADER));
                    consumed = consumed.filter(|_| !is_consumed);
                    self.lose(sink, at, next, fault);
                    next
                }
            };
        }
        self.tell_consumed(sink, consumed);
        Ok(())
    }

    /// Adds the gaps of what was consumed, and of what was overwritten before it was.
    fn tell_consumed(&self, sink: &mut Sink<'_>, events: Option<u64>) {
        let Positions { consumer: Some(consumer), overwritten_to, .. } = self.positions else {
            return;
        };
        if consumer > 0 {
            let gap = sink.gap(Cause::Consumed, &format!("positions 0 to {consumer}"));
            // In overwrite mode, the consumer may have skipped records.
            let bytes = overwritten_to.is_none_or(|at| at == 0).then_some(consumer);
            (gap.events, gap.bytes) = (events, bytes);
        }
        let Some(to) = overwritten_to.filter(|to| *to > consumer) else { return };
        let gap = sink.gap(Cause::Overwritten, &format!("positions {consumer} to {to}"));
        (gap.events, gap.bytes) = (None, Some(to.saturating_sub(consumer)));
    }

    fn record(&mut self, sink: &mut Sink<'_>, position: u64, header: Header) -> io::Result<()> {
        let len = header.word & !(BUSY | DISCARD);
        let state = match header.word {
            word if word & BUSY != 0 => State::InFlight,
            word if word & DISCARD != 0 => State::Discarded,
            _ => State::Committed,
        };
        let named = format!("record at position {position}");
        let mut bytes = Vec::new();
        match state {
            State::Discarded => {}
            State::InFlight => {
                let gap = sink.gap(Cause::InFlight, &named);
                (gap.events, gap.bytes) = (Some(1), Some(len.into()));
            }
            State::Committed if self.ends_in_zeros(sink, position, header.end) => {
                let why = format!("{named}: it goes on in a page that reads as zero");
                let gap = sink.gap(Cause::Missing, &why);
                (gap.events, gap.bytes) = (Some(1), Some(len.into()));
                return Ok(());
            }
            State::Committed => match self.data(sink, position.saturating_add(HEADER), len) {
                Ok(data) => bytes = data,
                Err(hole) => {
                    sink.missing(&named, hole, len.into());
                    sink.gaps.last_mut().into_iter().for_each(|gap| gap.events = Some(1));
                    return Ok(());
                }
            },
        }
        sink.put(Content::Record(Record { position, state, len, bytes }))
    }

    /// Returns true if the end of a record is in another page than its start, and that page is zero
    /// where the next header should be.
    fn ends_in_zeros(&mut self, sink: &Sink<'_>, from: u64, end: u64) -> bool {
        let within = end & self.page_size.saturating_sub(1);
        let goes_on = within > 0 && end.saturating_sub(from) > within;
        goes_on
            && end < self.positions.producer
            && matches!(self.header(sink, end), Err(Fault::Zero))
    }

    /// Adds the gap of the records from one position to another.
    fn lose(&self, sink: &mut Sink<'_>, from: u64, to: u64, fault: Fault) {
        let address = self.address(from);
        let (cause, why) = match fault {
            Fault::Hole(hole) => (Cause::Missing, hole.to_string()),
            Fault::Zero => (Cause::Missing, format!("the header at {address:#x} reads as zero")),
            Fault::Invalid(found) => {
                (Cause::Damaged, format!("{found:#x} at {address:#x} is no header of a record"))
            }
        };
        let gap = sink.gap(cause, &format!("positions {from} to {to}: {why}"));
        (gap.events, gap.bytes) = (None, Some(to.saturating_sub(from)));
    }

    /// Returns the first position from `from` on at which a record provably begins, or the
    /// producer's.
    fn search(&mut self, sink: &Sink<'_>, from: u64) -> u64 {
        let end = self.positions.producer;
        let mut at = from;
        // Without pages in the headers, nothing tells a header.
        while at < end && self.has_pages {
            if sink.kernel.budget().steps("BPF ring buffer", 1).is_err() {
                return end;
            }
            match self.header(sink, at) {
                Ok(_) if self.is_proven(sink, at) => return at,
                // The next page may be there.
                Err(Fault::Hole(_)) => {
                    let page = at.checked_next_multiple_of(self.page_size).unwrap_or(end);
                    at = if page > at { page } else { at.saturating_add(self.page_size) };
                }
                _ => at = at.saturating_add(HEADER),
            }
        }
        end
    }

    /// Returns true if headers follow one after the other from a position on.
    fn is_proven(&mut self, sink: &Sink<'_>, from: u64) -> bool {
        let mut at = from;
        for passed in 0..CHAIN {
            match self.header(sink, at) {
                Ok(header) if header.end == self.positions.producer => return true,
                Ok(header) => at = header.end,
                Err(Fault::Hole(_) | Fault::Zero) => return passed > 1,
                Err(Fault::Invalid(_)) => return false,
            }
        }
        true
    }

    /// Returns the header at a position.
    fn header(&mut self, sink: &Sink<'_>, at: u64) -> Result<Header, Fault> {
        let (place, address) = (self.place(at), self.address(at));
        let within = place & self.page_size.saturating_sub(1);
        let page = self
            .page(sink, place.saturating_sub(within))
            .map_err(|hole| Fault::Hole(Hole { address, ..hole }))?;
        let reader = Reader::new("bpf_ringbuf_hdr", page, sink.kernel.memory.byte_order());
        let within = usize::try_from(within).unwrap_or(usize::MAX);
        let word = reader.u32_at(within).unwrap_or_default();
        let page = reader.u32_at(within.saturating_add(4)).unwrap_or_default();
        let len = u64::from(word & !(BUSY | DISCARD));
        let end = at.saturating_add(len.next_multiple_of(HEADER)).saturating_add(HEADER);
        let own = self.offset.saturating_add(place).checked_div(self.page_size).unwrap_or_default();
        match (word, page) {
            (0, 0) => Err(Fault::Zero),
            _ if end <= self.positions.producer && (!self.has_pages || u64::from(page) == own) => {
                Ok(Header { word, end })
            }
            _ => Err(Fault::Invalid(u64::from(page) << 32 | u64::from(word))),
        }
    }

    /// Returns the page of the data at an offset, which is read once for all headers in it.
    fn page(&mut self, sink: &Sink<'_>, offset: u64) -> Result<&[u8], Hole> {
        if self.page.as_ref().is_none_or(|page| page.0 != offset) {
            let mut bytes = vec![0; usize::try_from(self.page_size).unwrap_or_default()];
            let read = sink.kernel.memory.read(self.data.wrapping_add(offset), &mut bytes);
            self.page = Some((offset, read.map(|()| bytes)));
        }
        match &self.page {
            Some((_, Ok(bytes))) => Ok(bytes),
            Some((_, Err(hole))) => Err(*hole),
            None => Ok(&[]),
        }
    }

    /// Reads data from a position on, which may go on at the start of the ring.
    fn data(&self, sink: &Sink<'_>, at: u64, len: u32) -> Result<Vec<u8>, Hole> {
        let left = self.positions.size.saturating_sub(self.place(at));
        let first = u32::try_from(left).unwrap_or(u32::MAX).min(len);
        let mut bytes = sink.read(self.address(at), first)?;
        bytes.extend(sink.read(self.data, len.saturating_sub(first))?);
        Ok(bytes)
    }

    /// Offset in the data of a position.
    fn place(&self, at: u64) -> u64 {
        at & self.positions.size.saturating_sub(1)
    }

    fn address(&self, at: u64) -> u64 {
        self.data.wrapping_add(self.place(at))
    }
}

//! Reads the records of a buffer.
//!
//! A record is a header with its type and size and its fields; it begins at a multiple of 8 and may
//! go on at the begin of the data. Of a buffer that is read, the records from `data_tail` to
//! `data_head` are left. A buffer that is written backward has its newest record at the head, so
//! that headers lead from there to the oldest, whose end may be overwritten.
//!
//! After a hole, the next record is the first one that names its event or CPU and from which headers
//! lead on, or one of a form without event and CPU from which many lead on.

use crate::buffer::Buffer;
use crate::layout::{self, Check, HEADER, LOST, LOST_SAMPLES};
use lastwords_bytes::Reader;
use lastwords_image::Hole;
use lastwords_kernel::Kernel;
use lastwords_trace::evidence::{Cause, Gap};
use std::io;

/// Most headers that are followed to prove that the first of them is one.
const CHAIN: u32 = 64;
/// Headers that prove that the first of them is one, if the records name neither event nor CPU; fewer
/// do if they lead to the end.
const SURE: u32 = 8;
const SURE_TO_END: u32 = 2;
/// Number after the last type of record, if the kernel does not say it (`PERF_RECORD_MAX`).
const KINDS_END: u32 = 64;

/// A record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Position of its header.
    pub position: u64,
    /// Type of the record (`enum perf_event_type`): 9 is a sample.
    pub kind: u32,
    /// All its bytes, header included, in the byte order of the machine.
    pub bytes: Vec<u8>,
}

/// The part of a buffer that may have records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Region {
    /// Position of its begin.
    begin: u64,
    pub(crate) len: u64,
    /// A record begins at the begin.
    begins_with_record: bool,
    /// The end of its last record may be overwritten.
    is_cut: bool,
}

/// The reason why there is no record.
#[derive(Debug, Clone, Copy)]
enum Fault {
    Hole(Hole),
    /// The page is zero where a header should be.
    Zero,
    Invalid(u64),
    /// A part of the record is overwritten.
    Cut,
}

/// A header.
#[derive(Debug, Clone, Copy)]
struct Header {
    kind: u32,
    size: u64,
}

/// A buffer that is being read.
struct Ring<'a> {
    kernel: &'a Kernel,
    buffer: &'a Buffer,
    region: Region,
    gaps: &'a mut Vec<Gap>,
    kinds_end: u32,
    /// The page that was read last: its number, and its bytes.
    page: Option<(u64, Result<Vec<u8>, Hole>)>,
}

impl Region {
    /// Returns the part of a buffer that its process has not read, and that is not overwritten.
    pub(crate) fn new(buffer: &Buffer) -> Self {
        let (size, positions) = (buffer.size, buffer.positions);
        let (reserved, committed) = (positions.reserved, positions.committed);
        let written = buffer.distance(0, reserved);
        let in_flight = buffer.written_since(committed);
        // All that is in memory. Without a position of the reader, that may have been read.
        let all = written.min(size).saturating_sub(in_flight);
        let len = positions.consumed.map_or(all, |tail| buffer.distance(tail, committed).min(size));
        let is_whole = positions.consumed.is_some() || written <= size;
        match buffer.is_backward {
            true => Self { begin: committed, len, begins_with_record: true, is_cut: !is_whole },
            false => Self {
                begin: committed.wrapping_sub(len),
                len,
                begins_with_record: is_whole,
                is_cut: false,
            },
        }
    }
}

/// Reads the records of a buffer.
///
/// # Errors
/// `take` fails.
pub(crate) fn read(
    kernel: &Kernel,
    buffer: &Buffer,
    gaps: &mut Vec<Gap>,
    take: &mut dyn FnMut(Record) -> io::Result<()>,
) -> io::Result<()> {
    if let Err(error) = kernel.budget().bytes("perf buffer", buffer.size) {
        gaps.push(crate::lost(&buffer.words(), &error.into()));
        return Ok(());
    }
    let kinds_end = kernel.types.enum_value("PERF_RECORD_MAX");
    let kinds_end = kinds_end.and_then(|end| u32::try_from(end).ok()).unwrap_or(KINDS_END);
    let region = Region::new(buffer);
    let mut ring = Ring { kernel, buffer, region, gaps, kinds_end, page: None };
    ring.tell_positions();
    ring.records(take)
}

impl Ring<'_> {
    fn records(&mut self, take: &mut dyn FnMut(Record) -> io::Result<()>) -> io::Result<()> {
        let (mut at, mut lost) = (0, 0u64);
        let (mut foreign, mut foreign_bytes) = (0u64, 0u64);
        if !self.region.begins_with_record {
            at = self.search(0);
            let place = "its begin: it is not known where a record begins";
            let gap = self.buffer.gap(Cause::Overwritten, place);
            let is_found = at < self.region.len;
            let cause = if is_found { Cause::Overwritten } else { Cause::Unknown };
            self.gaps.push(Gap { cause, ..gap.with_bytes(Some(at)) });
        }
        while at < self.region.len {
            if let Err(error) = self.kernel.budget().events("perf buffer", 1) {
                self.gaps.push(crate::lost(&self.buffer.words(), &error.into()));
                break;
            }
            at = match self.record(at) {
                Ok((record, Check::Foreign)) => {
                    let size = record.bytes.len() as u64;
                    let next = at.saturating_add(size);
                    match self.leads_on(next) {
                        Some(_) => {
                            foreign = foreign.saturating_add(1);
                            foreign_bytes = foreign_bytes.saturating_add(size);
                            next
                        }
                        None => self.lose(at, Fault::Invalid(size)),
                    }
                }
                Ok((record, _)) => {
                    lost = lost.saturating_add(self.told_losses(&record));
                    let next = at.saturating_add(record.bytes.len() as u64);
                    take(record)?;
                    next
                }
                // A damaged size may lead over the end, too; then records are left.
                Err(Fault::Cut)
                    if self.search(at.saturating_add(HEADER as u64)) >= self.region.len =>
                {
                    break;
                }
                Err(fault) => self.lose(at, fault),
            };
        }
        if foreign > 0 {
            let gap = self.buffer.gap(Cause::Undescribed, "records of an event that is missing");
            self.gaps.push(gap.with_events(Some(foreign)).with_bytes(Some(foreign_bytes)));
        }
        if lost > 0 {
            let gap = self.buffer.gap(Cause::Discarded, "as its records of losses say");
            self.gaps.push(gap.with_events(Some(lost)));
        }
        Ok(())
    }

    /// Returns the number of records that were lost, as a record says.
    fn told_losses(&self, record: &Record) -> u64 {
        let at = match record.kind {
            LOST => HEADER.saturating_add(8),
            LOST_SAMPLES => HEADER,
            _ => return 0,
        };
        Reader::new("perf record", &record.bytes, self.kernel.memory.byte_order())
            .u64_at(at)
            .unwrap_or_default()
    }

    /// Adds the gaps that the positions and counters tell.
    fn tell_positions(&mut self) {
        let buffer = self.buffer;
        let written = buffer.distance(0, buffer.positions.reserved);
        let in_flight = buffer.written_since(buffer.positions.committed);
        let mut tell = |cause, place: &str, events, bytes: Option<u64>| {
            let gap = buffer.gap(cause, place);
            self.gaps.push(gap.with_events(events).with_bytes(bytes));
        };
        if in_flight > 0 {
            tell(Cause::InFlight, "records that were being written", None, Some(in_flight));
        }
        if let Some(consumed) = buffer.positions.consumed.filter(|at| *at != 0) {
            let bytes = buffer.distance(0, consumed);
            tell(Cause::Consumed, "records that its process has read", None, Some(bytes));
        }
        if buffer.is_overwritten && written > buffer.size {
            let bytes = written.saturating_sub(buffer.size);
            tell(Cause::Overwritten, "its oldest records", None, Some(bytes));
        }
        if buffer.lost > 0 {
            tell(Cause::Discarded, "which no record says yet", Some(buffer.lost), None);
        }
    }

    /// Reads the record at an offset in the region.
    fn record(&mut self, at: u64) -> Result<(Record, Check), Fault> {
        let Header { kind, size } = self.header(at)?;
        let end = at.saturating_add(size);
        if end > self.region.len {
            return Err(if self.region.is_cut { Fault::Cut } else { Fault::Invalid(size) });
        }
        if self.ends_in_zeros(at, end) {
            return Err(Fault::Zero);
        }
        let bytes = self.bytes(at, size).map_err(Fault::Hole)?;
        let order = self.kernel.memory.byte_order();
        match layout::check(self.buffer, order, kind, &bytes) {
            Check::Wrong => Err(Fault::Invalid(size)),
            check => Ok((Record { position: self.position(at), kind, bytes }, check)),
        }
    }

    /// Returns true if the end of a record is in another page than its begin, and that page is zero,
    /// or it is zero where the next header should be.
    fn ends_in_zeros(&mut self, at: u64, end: u64) -> bool {
        let page_size = self.buffer.page_size;
        let number = |at: u64| {
            let offset = self.position(at) & self.buffer.size.wrapping_sub(1);
            offset.checked_div(page_size).unwrap_or_default()
        };
        let last = number(end.saturating_sub(1));
        if number(at) == last {
            return false;
        }
        let has_next = number(end) == last && end < self.region.len;
        let is_zero = |page: &[u8]| page.iter().all(|byte| *byte == 0);
        self.page(last).is_ok_and(is_zero)
            || has_next && matches!(self.header(end), Err(Fault::Zero))
    }

    fn header(&mut self, at: u64) -> Result<Header, Fault> {
        let bytes = self.bytes(at, HEADER as u64).map_err(Fault::Hole)?;
        let reader = Reader::new("perf record", &bytes, self.kernel.memory.byte_order());
        let word = reader.u64_at(0).unwrap_or_default();
        let kind = reader.u32_at(0).unwrap_or_default();
        let size = u64::from(reader.u16_at(6).unwrap_or_default());
        let is_one = size >= HEADER as u64 && size & 7 == 0 && (1..self.kinds_end).contains(&kind);
        match word {
            0 => Err(Fault::Zero),
            _ if is_one => Ok(Header { kind, size }),
            _ => Err(Fault::Invalid(word)),
        }
    }

    /// Returns the first offset from `from` on at which a record provably begins, or the end.
    fn search(&mut self, from: u64) -> u64 {
        let mut at = from;
        while at < self.region.len {
            if self.kernel.budget().steps("perf buffer", 1).is_err() {
                break;
            }
            match self.record(at) {
                Ok((record, check @ (Check::Proven | Check::Plausible))) => {
                    let least = if check == Check::Proven { 0 } else { SURE };
                    let next = at.saturating_add(record.bytes.len() as u64);
                    if self.leads_on(next).is_some_and(|headers| headers >= least) {
                        return at;
                    }
                }
                // The rest of a page that is missing has no header.
                Err(Fault::Hole(_)) if self.header(at).is_err() => {
                    let page = self.buffer.page_size;
                    let within = self.position(at).checked_rem(page).unwrap_or_default();
                    at = at.saturating_add(page.saturating_sub(within));
                    continue;
                }
                _ => {}
            }
            at = at.saturating_add(HEADER as u64);
        }
        self.region.len
    }

    /// Returns the number of headers that lead from an offset to the end, to a hole, or far; at the
    /// end, those that prove as much. None if they lead elsewhere.
    fn leads_on(&mut self, mut at: u64) -> Option<u32> {
        for headers in 0..CHAIN {
            if at >= self.region.len {
                let is_end = at == self.region.len;
                let proven = if headers >= SURE_TO_END { SURE } else { headers };
                return is_end.then_some(proven);
            }
            match self.record(at) {
                Ok((record, _)) => at = at.saturating_add(record.bytes.len() as u64),
                Err(Fault::Hole(_) | Fault::Cut | Fault::Zero) => return Some(headers),
                Err(Fault::Invalid(_)) => return None,
            }
        }
        Some(CHAIN)
    }

    /// Adds the gap of what is lost at an offset. Returns the offset of the next record.
    fn lose(&mut self, at: u64, fault: Fault) -> u64 {
        // If the header is there, the record alone is lost.
        let header = self.header(at).ok().filter(|_| matches!(fault, Fault::Hole(_) | Fault::Zero));
        let next = match header {
            Some(header) => at.saturating_add(header.size),
            None => self.search(at.saturating_add(HEADER as u64)),
        };
        let position = self.position(at);
        let (cause, why) = match fault {
            Fault::Hole(hole) => (Cause::Missing, hole.to_string()),
            Fault::Zero => (Cause::Missing, "a header reads as zero".to_owned()),
            Fault::Invalid(found) => (Cause::Damaged, format!("{found:#x} is not of a record")),
            Fault::Cut => (Cause::Damaged, "a size leads over its end".to_owned()),
        };
        let place = format!("{} bytes at position {position}: {why}", next.saturating_sub(at));
        let gap = self.buffer.gap(cause, &place).with_bytes(Some(next.saturating_sub(at)));
        self.gaps.push(gap.with_events(header.map(|_| 1)));
        next
    }

    /// Position of an offset in the region.
    fn position(&self, at: u64) -> u64 {
        self.region.begin.wrapping_add(at)
    }

    /// Returns bytes from an offset on.
    ///
    /// # Errors
    /// The image lacks some of them.
    fn bytes(&mut self, at: u64, len: u64) -> Result<Vec<u8>, Hole> {
        let page_size = self.buffer.page_size;
        let (mut bytes, mut at, mut left) = (Vec::new(), self.position(at), len);
        while left > 0 {
            let offset = at & self.buffer.size.wrapping_sub(1);
            let within = offset.checked_rem(page_size).unwrap_or_default();
            let part = left.min(page_size.saturating_sub(within));
            let page = self.page(offset.checked_div(page_size).unwrap_or_default())?;
            let range = usize::try_from(within).unwrap_or_default()
                ..usize::try_from(within.saturating_add(part)).unwrap_or_default();
            bytes.extend_from_slice(page.get(range).unwrap_or_default());
            (at, left) = (at.wrapping_add(part), left.saturating_sub(part));
        }
        Ok(bytes)
    }

    /// Returns a page of the data.
    fn page(&mut self, number: u64) -> Result<&[u8], Hole> {
        if self.page.as_ref().is_none_or(|(known, _)| *known != number) {
            self.page = Some((number, self.read_page(number)));
        }
        match &self.page {
            Some((_, Ok(page))) => Ok(page),
            Some((_, Err(hole))) => Err(*hole),
            None => Ok(&[]),
        }
    }

    fn read_page(&self, number: u64) -> Result<Vec<u8>, Hole> {
        let memory = &self.kernel.memory;
        let word = u64::from(memory.word_size());
        let address = memory.pointer(self.buffer.pages.wrapping_add(number.wrapping_mul(word)))?;
        let mut page = vec![0; usize::try_from(self.buffer.page_size).unwrap_or_default()];
        memory.read(address, &mut page)?;
        Ok(page)
    }
}

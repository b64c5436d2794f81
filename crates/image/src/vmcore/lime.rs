//! Opens LiME and AVML images: ranges of RAM one after the other, each with a header.
//!
//! LiME's version 1 stores the bytes unchanged. AVML's version 2 stores them as a snappy stream
//! (the framing format: independent chunks of at most 64 KiB), followed by the length of the
//! stream.

use super::{Format, Physical};
use crate::file::Backing;
use crate::got::Got;
use crate::{Cache, Hole, HoleCause, Image, Range, front};
use lastwords_bytes::{Budget, ByteOrder, Error, Reader};
use std::sync::{Arc, Mutex, PoisonError};

/// The first bytes of a LiME range.
pub(super) const LIME: [u8; 8] = *b"EMiL\x01\0\0\0";
/// The first bytes of an AVML range.
pub(super) const AVML: [u8; 8] = *b"AVML\x02\0\0\0";
/// Length of a range's header, bytes.
const HEADER_LEN: usize = 32;
/// Length of the field after an AVML range, bytes: it has the length of the stream.
const TRAILER_LEN: u64 = 8;
/// Chunk types of snappy's framing format.
const COMPRESSED: u8 = 0;
const PLAIN: u8 = 1;
/// Additional types, not of snappy: a LiME range, stored uncompressed in the file; and the missing
/// part of a truncated stream.
const RANGE: u8 = 2;
const MISSING: u8 = 3;
/// Chunk types from here on may be skipped. Lower ones may not, except the two above.
const SKIPPABLE: u8 = 0x80;
/// Largest decompressed size of a chunk, bytes.
const MOST: u64 = 1 << 16;
/// Best compression ratio of snappy: 3 bytes copy 64.
const SMALLEST: u64 = 22;
/// Number of decompressed chunks in the cache: 16 MiB.
const KEPT: usize = 256;

/// The header of a range.
struct Header {
    start: u64,
    len: u64,
    compressed: bool,
}

fn header(file: &Backing, at: u64) -> Result<Option<Header>, Error> {
    let mut raw = [0u8; HEADER_LEN];
    match file.read(at, &mut raw) {
        Got::All => {}
        Got::Ended(0) => return Ok(None),
        Got::Ended(got) | Got::Failed(got) => {
            return Err(Error::short(&file.name, at, got as u64, "the header of a range"));
        }
    }
    let reader = Reader::new(&file.name, &raw, ByteOrder::Little).based(at);
    let magic: [u8; 8] = reader.array_at(0)?;
    let (start, last) = (reader.u64_at(8)?, reader.u64_at(16)?);
    if magic != LIME && magic != AVML {
        return Err(Error::value(
            &file.name,
            at,
            u64::from_be_bytes(magic),
            "the magic of a LiME or AVML range",
        ));
    }
    let len = last.checked_sub(start).and_then(|n| n.checked_add(1));
    let len = len.ok_or_else(|| {
        Error::value(&file.name, at.saturating_add(16), last, "an end behind the start")
    })?;
    Ok(Some(Header { start, len, compressed: magic == AVML }))
}

/// Opens a file that begins with a range of either format.
pub(super) fn open(file: Backing, budget: &Budget) -> Result<Physical, Error> {
    let (mut notes, mut chunks) = (Vec::new(), Vec::new());
    let mut at = 0u64;
    loop {
        budget.steps(&file.name, 1)?;
        let Header { start, len, compressed } = match header(&file, at) {
            Ok(Some(header)) => header,
            Ok(None) => break,
            Err(error) => {
                notes.push(format!("{error}; the rest is not read"));
                break;
            }
        };
        let data = at.saturating_add(HEADER_LEN as u64);
        if compressed {
            let mut scan = Scan { file: &file, chunks: &mut chunks, budget };
            at = scan.stream(data, start, len)?.saturating_add(TRAILER_LEN);
        } else {
            chunks.push(Chunk { address: start, len, at: data, stored: 0, kind: RANGE });
            at = data.saturating_add(len);
        }
        if at > file.len {
            notes.push(format!(
                "{}: the file ends at {:#x}, inside the range of address {start:#x}",
                file.name, file.len
            ));
            break;
        }
    }
    let expanded =
        chunks.iter().filter(|c| c.kind == COMPRESSED).map(|c| c.len).fold(0, u64::saturating_add);
    budget.admit(expanded.min(file.stored().saturating_mul(SMALLEST)));
    Ok(Physical::new(Arc::new(Chunks::new(file, chunks)), Format::Lime).noted(notes))
}

/// A chunk of a snappy stream, or an uncompressed range.
#[derive(Debug, Clone, Copy)]
struct Chunk {
    address: u64,
    len: u64,
    /// Offset of its bytes, after the checksum.
    at: u64,
    stored: u32,
    kind: u8,
}

/// The state of searching a stream's chunks.
struct Scan<'a> {
    file: &'a Backing,
    chunks: &'a mut Vec<Chunk>,
    budget: &'a Budget,
}

impl Scan<'_> {
    /// Finds the chunks of `len` bytes of memory from `address` on; returns the offset of the end
    /// of the stream. A truncated stream ends past the end of the file.
    fn stream(&mut self, at: u64, address: u64, len: u64) -> Result<u64, Error> {
        let (mut at, mut done) = (at, 0u64);
        while done < len {
            self.budget.steps(&self.file.name, 1)?;
            let rest = (address.saturating_add(done), len.saturating_sub(done));
            // Fields: type and length, a checksum; for a compressed chunk also its decompressed
            // length.
            let mut raw = [0u8; 11];
            if let Got::Ended(0..8) | Got::Failed(_) = self.file.read(at, &mut raw) {
                return Ok(self.missing(at, rest));
            }
            let [kind, a, b, c, _, _, _, _, varint @ ..] = raw;
            let stored = u32::from_le_bytes([a, b, c, 0]);
            let comes_to = match kind {
                COMPRESSED => u64::from(varint_of(&varint)),
                PLAIN => u64::from(stored.saturating_sub(4)),
                SKIPPABLE.. => 0,
                _ => {
                    return Err(Error::value(
                        &self.file.name,
                        at,
                        u64::from(kind),
                        "a chunk of a snappy stream",
                    ));
                }
            };
            if comes_to > MOST || (comes_to > 0 && stored < 5) {
                return Err(Error::value(
                    &self.file.name,
                    at,
                    comes_to,
                    "a chunk of at most 64 KiB, with a checksum",
                ));
            }
            let end = at.saturating_add(4).saturating_add(u64::from(stored));
            if end > self.file.len {
                return Ok(self.missing(at, rest));
            }
            if comes_to > 0 {
                let (address, at) = (address.saturating_add(done), at.saturating_add(8));
                let stored = stored.saturating_sub(4);
                self.chunks.push(Chunk {
                    address,
                    len: comes_to.min(len.saturating_sub(done)),
                    at,
                    stored,
                    kind,
                });
            }
            done = done.saturating_add(comes_to);
            at = end;
        }
        Ok(at)
    }

    /// Adds a missing chunk for `address`, because the stream is truncated at `at`; returns an
    /// offset past the end of the file.
    fn missing(&mut self, at: u64, (address, len): (u64, u64)) -> u64 {
        self.chunks.push(Chunk { address, len, at, stored: 0, kind: MISSING });
        u64::MAX
    }
}

/// Decodes a length of at most 21 bits in snappy's format.
fn varint_of(bytes: &[u8; 3]) -> u32 {
    let mut value = 0u32;
    for (byte, shift) in bytes.iter().zip([0, 7, 14]) {
        value |= u32::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            break;
        }
    }
    value
}

/// An image whose memory is stored in chunks.
struct Chunks {
    file: Backing,
    /// Sorted by address.
    chunks: Vec<Chunk>,
    ranges: Vec<Range>,
    known: Mutex<Cache<Arc<[u8]>>>,
}

impl Chunks {
    fn new(file: Backing, mut chunks: Vec<Chunk>) -> Self {
        chunks.sort_by_key(|c| c.address);
        let mut ranges: Vec<Range> = Vec::new();
        for chunk in &chunks {
            let held = match chunk.kind {
                RANGE => chunk.len.min(file.len.saturating_sub(chunk.at)),
                MISSING => 0,
                _ => chunk.len,
            };
            let end = chunk.address.saturating_add(chunk.len);
            let mut add = |from: u64, to: u64, hole| match ranges.last_mut() {
                Some(last) if last.end() >= from && last.hole == hole => {
                    last.len = last.len.max(to.saturating_sub(last.address));
                }
                last => {
                    let address = from.max(last.map_or(0, |l| l.end()));
                    let (len, name) = (to.saturating_sub(address), file.name.clone());
                    if len > 0 {
                        ranges.push(Range { address, len, name, offset: chunk.at, hole });
                    }
                }
            };
            let middle = chunk.address.saturating_add(held);
            add(chunk.address, middle, None);
            add(middle, end, Some(HoleCause::Truncated));
        }
        Self { file, chunks, ranges, known: Mutex::new(Cache::new(KEPT)) }
    }

    fn bytes(&self, chunk: &Chunk) -> Result<Arc<[u8]>, HoleCause> {
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let found = known().find(chunk.at);
        if let Some(found) = found {
            return Ok(found);
        }
        if chunk.kind == MISSING {
            return Err(HoleCause::Truncated);
        }
        let mut stored = vec![0u8; usize::try_from(chunk.stored).unwrap_or(0)];
        match self.file.read(chunk.at, &mut stored) {
            Got::All => {}
            Got::Ended(_) => return Err(HoleCause::Truncated),
            Got::Failed(_) => return Err(HoleCause::Bad),
        }
        let bytes: Arc<[u8]> = if chunk.kind == COMPRESSED {
            if snap::raw::decompress_len(&stored).ok().is_none_or(|n| n as u64 > MOST) {
                return Err(HoleCause::Bad);
            }
            snap::raw::Decoder::new().decompress_vec(&stored).map_err(|_| HoleCause::Bad)?.into()
        } else {
            stored.into()
        };
        known().keep(chunk.at, bytes.clone());
        Ok(bytes)
    }

    /// Fills the front of `buf` from an uncompressed range.
    fn read_range(&self, chunk: &Chunk, within: u64, buf: &mut [u8]) -> Result<usize, Hole> {
        let part = front(buf, chunk.len.saturating_sub(within));
        let got = self.file.read(chunk.at.saturating_add(within), part);
        got.part(chunk.address.saturating_add(within), part.len())
    }

    /// The chunk that contains `address`, and the offset in the chunk.
    fn find(&self, address: u64) -> Option<(&Chunk, u64)> {
        let behind = self.chunks.partition_point(|c| c.address <= address);
        let chunk = self.chunks.get(behind.checked_sub(1)?)?;
        let within = address.saturating_sub(chunk.address);
        (within < chunk.len).then_some((chunk, within))
    }

    /// Fills the front of `buf` from the chunk that contains `address`; returns the number of
    /// bytes.
    fn read_some(&self, address: u64, buf: &mut [u8]) -> Result<usize, Hole> {
        let hole = |cause| Hole { address, cause };
        let (chunk, within) = self.find(address).ok_or(hole(HoleCause::Unmapped))?;
        if chunk.kind == RANGE {
            return self.read_range(chunk, within, buf);
        }
        let bytes = self.bytes(chunk).map_err(hole)?;
        let end = usize::try_from(chunk.len).unwrap_or(usize::MAX).min(bytes.len());
        let from =
            bytes.get(usize::try_from(within).unwrap_or(usize::MAX)..end).unwrap_or_default();
        let len = from.len().min(buf.len());
        if len == 0 {
            return Err(hole(HoleCause::Bad));
        }
        if let (Some(to), Some(from)) = (buf.get_mut(..len), from.get(..len)) {
            to.copy_from_slice(from);
        }
        Ok(len)
    }
}

impl Image for Chunks {
    fn name(&self) -> &str {
        &self.file.name
    }

    fn ranges(&self) -> &[Range] {
        &self.ranges
    }

    fn read(&self, address: u64, buf: &mut [u8]) -> Result<(), Hole> {
        crate::read_parts(address, buf, |at, rest| self.read_some(at, rest))
    }

    fn next_data(&self, address: u64, end: u64) -> u64 {
        match self.find(address) {
            Some((chunk, within)) if chunk.kind == RANGE => {
                let at = chunk.at.saturating_add(within);
                let skipped = self.file.next_data(at).saturating_sub(at);
                address.saturating_add(skipped.min(chunk.len.saturating_sub(within))).min(end)
            }
            _ => address.min(end),
        }
    }
}

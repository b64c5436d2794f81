//! Reads makedumpfile's flattened stream (`-F`): the file it would have written, as records of an
//! offset and the bytes there.
//!
//! The stream is always big-endian. If two records write the same bytes, the later one counts. An
//! end record shows that the stream is complete. Without one, bytes that no record wrote are
//! missing, not zero.

use crate::got::{Got, read_at};
use lastwords_bytes::{Budget, ByteOrder, Error, Reader};
use std::collections::BTreeMap;
use std::fs::File;
use std::sync::Arc;

/// The first bytes of the stream.
pub(crate) const MAGIC: [u8; 16] = *b"makedumpfile\0\0\0\0";
/// Size of the header with padding, bytes.
const HEADER_LEN: u64 = 4096;
/// Length of a record before its data, bytes.
const RECORD_LEN: usize = 16;
/// `type` of the header.
const FLATTENED: u64 = 1;

/// A range of the inner file and its location in the stream.
#[derive(Debug, Clone, Copy)]
struct Extent {
    start: u64,
    len: u64,
    at: u64,
}

/// The file that holds the stream.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) file: File,
    pub(crate) len: u64,
    pub(crate) name: Arc<str>,
}

impl Stream {
    fn read(&self, offset: u64, buf: &mut [u8]) -> Got {
        read_at(&self.file, offset, buf)
    }
}

/// A stream, and the inner file in it.
#[derive(Debug)]
pub(crate) struct Flattened {
    pub(crate) stream: Stream,
    index: Index,
}

impl Flattened {
    /// Reads the heads of all records. Missing or damaged parts are reported in `notes`.
    pub(crate) fn new(
        stream: Stream,
        budget: &Budget,
        notes: &mut Vec<String>,
    ) -> Result<Self, Error> {
        let index = Index::read(&stream, budget, notes)?;
        Ok(Self { stream, index })
    }

    /// Returns the length of the inner file, bytes.
    pub(crate) fn len(&self) -> u64 {
        self.index.len
    }

    /// First offset at or after `offset` that some record wrote; the end of the inner file if there
    /// is none.
    pub(crate) fn next_data(&self, offset: u64) -> u64 {
        self.index.next_data(offset)
    }

    /// Fills `buf` from `offset` of the inner file on.
    pub(crate) fn fill(&self, offset: u64, buf: &mut [u8]) -> Got {
        self.index.fill(&self.stream, offset, buf)
    }
}

/// Location of each part of the inner file.
#[derive(Debug)]
struct Index {
    /// Sorted by `start`, without overlap.
    extents: Vec<Extent>,
    /// Length of the inner file, bytes.
    len: u64,
    /// True if the end record was found.
    complete: bool,
}

impl Index {
    fn read(stream: &Stream, budget: &Budget, notes: &mut Vec<String>) -> Result<Self, Error> {
        let mut head = [0u8; 32];
        stream.read(0, &mut head).all(&stream.name, 0, 32)?;
        let kind = Reader::new(&stream.name, &head, ByteOrder::Big).u64_at(16)?;
        if kind != FLATTENED {
            return Err(Error::value(&stream.name, 16, kind, "type 1 (flattened)"));
        }
        let mut extents = BTreeMap::new();
        let mut at = HEADER_LEN;
        let complete = loop {
            budget.steps(&stream.name, 1)?;
            let mut raw = [0u8; RECORD_LEN];
            if !matches!(stream.read(at, &mut raw), Got::All) {
                notes.push(format!(
                    "{}: the stream ends at {at:#x}, without an end record",
                    stream.name
                ));
                break false;
            }
            let reader = Reader::new(&stream.name, &raw, ByteOrder::Big);
            let (start, len) = (reader.u64_at(0)?, reader.u64_at(8)?);
            if start == u64::MAX && len == u64::MAX {
                break true;
            }
            at = at.saturating_add(RECORD_LEN as u64);
            let held = len.min(stream.len.saturating_sub(at));
            if start > u64::MAX >> 1 || len > u64::MAX >> 1 {
                notes.push(format!(
                    "{}: offset {at:#x}: a record of {len:#x} bytes at {start:#x}; the rest is not read",
                    stream.name
                ));
                break false;
            }
            put(&mut extents, Extent { start, len: held, at });
            at = at.saturating_add(len);
        };
        let extents: Vec<Extent> = extents.into_values().collect();
        let len = extents.last().map_or(0, |e| e.start.saturating_add(e.len));
        Ok(Self { extents, len, complete })
    }

    fn next_data(&self, offset: u64) -> u64 {
        let behind = self.extents.partition_point(|e| e.start.saturating_add(e.len) <= offset);
        self.extents.get(behind).map_or(self.len.max(offset), |extent| extent.start.max(offset))
    }

    fn fill(&self, stream: &Stream, offset: u64, buf: &mut [u8]) -> Got {
        let (mut done, mut window) =
            (0usize, Window { at: 0, bytes: Vec::new(), next: Window::LEAST });
        let mut next = self.extents.partition_point(|e| e.start <= offset);
        while done < buf.len() {
            let at = offset.saturating_add(done as u64);
            if self.extents.get(next).is_some_and(|e| e.start <= at) {
                next = next.saturating_add(1);
            }
            let here = next.checked_sub(1).and_then(|i| self.extents.get(i));
            let here = here.filter(|e| at.saturating_sub(e.start) < e.len);
            let end = match here {
                Some(extent) => extent.start.saturating_add(extent.len),
                None if at >= self.len || !self.complete => return Got::Ended(done),
                None => self.extents.get(next).map_or(self.len, |e| e.start),
            };
            let left = usize::try_from(end.saturating_sub(at)).unwrap_or(usize::MAX);
            let len = left.min(buf.len().saturating_sub(done));
            let Some(part) = buf.get_mut(done..done.saturating_add(len)) else { break };
            let got = match here {
                Some(extent) => window.read(
                    stream,
                    extent.at.saturating_add(at.saturating_sub(extent.start)),
                    part,
                ),
                None => {
                    part.fill(0);
                    Got::All
                }
            };
            match got {
                Got::All => done = done.saturating_add(len),
                Got::Ended(n) => return Got::Ended(done.saturating_add(n)),
                Got::Failed(n) => return Got::Failed(done.saturating_add(n)),
            }
        }
        Got::All
    }
}

/// Bytes of the stream that were read at once, because records may be short. The window grows while
/// records are read in order.
struct Window {
    at: u64,
    bytes: Vec<u8>,
    /// Number of bytes of the next read.
    next: usize,
}

impl Window {
    const LEAST: usize = 512;
    const MOST: usize = 1 << 16;

    fn read(&mut self, stream: &Stream, at: u64, buf: &mut [u8]) -> Got {
        if buf.len() >= Self::LEAST {
            return stream.read(at, buf);
        }
        let inside =
            |window: &Self| at.checked_sub(window.at).and_then(|from| usize::try_from(from).ok());
        let is_there =
            inside(self).is_some_and(|from| from.saturating_add(buf.len()) <= self.bytes.len());
        if !is_there {
            let end = self.at.saturating_add(self.bytes.len() as u64);
            let follows =
                at.checked_sub(self.at).is_some() && at <= end.saturating_add(RECORD_LEN as u64);
            self.next =
                if follows { self.next.saturating_mul(2).min(Self::MOST) } else { Self::LEAST };
            self.at = at;
            self.bytes.resize(self.next, 0);
            if let Got::Ended(got) | Got::Failed(got) = stream.read(at, &mut self.bytes) {
                self.bytes.truncate(got);
            }
        }
        let from = inside(self).unwrap_or(0);
        match self.bytes.get(from..from.saturating_add(buf.len())) {
            Some(part) => {
                buf.copy_from_slice(part);
                Got::All
            }
            None => stream.read(at, buf),
        }
    }
}

/// Adds an extent; it replaces overlapping parts of earlier ones.
fn put(extents: &mut BTreeMap<u64, Extent>, new: Extent) {
    if new.len == 0 {
        return;
    }
    let end = new.start.saturating_add(new.len);
    // Find the last extent that begins before the new one's end; stop at one that ends before the
    // new one.
    while let Some((&start, &old)) = extents.range(..end).next_back() {
        let old_end = old.start.saturating_add(old.len);
        if old_end <= new.start {
            break;
        }
        extents.remove(&start);
        if old_end > end {
            let cut = end.saturating_sub(old.start);
            let rest = Extent {
                start: end,
                len: old_end.saturating_sub(end),
                at: old.at.saturating_add(cut),
            };
            extents.insert(end, rest);
        }
        if old.start < new.start {
            extents.insert(old.start, Extent { len: new.start.saturating_sub(old.start), ..old });
        }
    }
    extents.insert(new.start, new);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;

    fn stream(records: &[(u64, Vec<u8>)], end: bool) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend([1u64.to_be_bytes(), 1u64.to_be_bytes()].concat());
        bytes.resize(4096, 0);
        for (offset, data) in records {
            bytes.extend(offset.to_be_bytes());
            bytes.extend((data.len() as u64).to_be_bytes());
            bytes.extend(data);
        }
        if end {
            bytes.extend([0xff; 16]);
        }
        bytes
    }

    fn stored(bytes: &[u8]) -> Stream {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        Stream { file, len: bytes.len() as u64, name: "s".into() }
    }

    proptest! {
        #[test]
        fn agrees_with_writing_the_file(records in proptest::collection::vec((0u64..200, proptest::collection::vec(any::<u8>(), 0..40)), 0..20), at in 0u64..260, len in 0usize..120, end: bool, cut in 0usize..100) {
            let mut plain: Vec<Option<u8>> = Vec::new();
            let mut bytes = stream(&records, end);
            let cut = if end { 0 } else { cut.min(bytes.len() - 4096) };
            bytes.truncate(bytes.len() - cut);
            // The expected bytes: the remaining records, written to a file in order.
            let mut place = 4096;
            for (offset, data) in &records {
                place += 16;
                let held = data.len().min(bytes.len().saturating_sub(place));
                for (i, byte) in data[..held].iter().enumerate() {
                    let to = *offset as usize + i;
                    plain.resize(plain.len().max(to + 1), None);
                    plain[to] = Some(*byte);
                }
                place += data.len();
            }
            let file = stored(&bytes);
            let mut notes = Vec::new();
            let index = Index::read(&file, &Budget::default(), &mut notes).unwrap();
            prop_assert_eq!(notes.is_empty(), end);
            prop_assert_eq!(index.len, plain.len() as u64);
            let mut buf = vec![0xaa; len];
            let got = index.fill(&file, at, &mut buf);
            let there = |i: usize| match plain.get(at as usize + i) {
                Some(Some(byte)) => Some(*byte),
                Some(None) if end => Some(0),
                _ => None,
            };
            let most = (0..len).take_while(|i| there(*i).is_some()).count();
            match got {
                Got::All => prop_assert_eq!(most, len),
                Got::Ended(n) => prop_assert_eq!(n, most),
                Got::Failed(_) => prop_assert!(false),
            }
            let written = (at as usize..plain.len()).find(|i| plain[*i].is_some());
            prop_assert_eq!(index.next_data(at), written.unwrap_or(plain.len().max(at as usize)) as u64);
            for (i, byte) in buf.iter().enumerate().take(most) {
                prop_assert_eq!(Some(*byte), there(i));
            }
        }

        #[test]
        fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let mut all = stream(&[(0, vec![1; 30])], false);
            all.extend(bytes);
            let file = stored(&all);
            let index = Index::read(&file, &Budget::default(), &mut Vec::new()).unwrap();
            let mut buf = [0u8; 100];
            let _ = index.fill(&file, 0, &mut buf);
        }
    }
}

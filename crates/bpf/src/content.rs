//! Reads the entries and records of a map.

use crate::map::Map;
use crate::value::Value;
use lastwords_image::Hole;
use lastwords_kernel::Kernel;
use lastwords_trace::evidence::{Cause, Gap};
use serde::Serialize;
use std::io;

/// Bytes of a value that are read at once.
const PIECE: usize = 1 << 20;

/// A part of a map's content.
#[derive(Debug, Clone, PartialEq)]
pub enum Content {
    /// The positions of a ring buffer; they come before its records.
    Positions(Positions),
    /// A record of a ring buffer.
    Record(Record),
    /// An entry of an array or a hash table.
    Entry(Entry),
    /// Elements of an array that are all zero: the index of the first and of the last.
    Zeros(u32, u32),
}

/// Positions of a ring buffer: bytes since it was created, headers of records included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Positions {
    /// Size of the ring, bytes.
    pub size: u64,
    /// Position of the first byte that was not consumed, or null if that is not known.
    pub consumer: Option<u64>,
    /// Position after the newest record.
    pub producer: u64,
    /// Overwrite mode: position of the oldest record that is not overwritten. Null in other rings,
    /// or if it is not known.
    pub overwritten_to: Option<u64>,
}

/// The state of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// The program submitted the record.
    Committed,
    /// The program reserved the record and did not come to submit or discard it.
    InFlight,
    /// The program discarded the record.
    Discarded,
}

/// A record of a ring buffer that was not consumed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Record {
    /// Position of its header.
    pub position: u64,
    /// State of the record.
    pub state: State,
    /// Length of its data, bytes.
    pub len: u32,
    /// Its data; empty unless it is committed.
    #[serde(serialize_with = "crate::json::hex")]
    pub bytes: Vec<u8>,
}

/// An entry of an array or a hash table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Entry {
    /// Key of the entry; the index of an array's element.
    pub key: Value,
    /// CPU that has this value, for maps with a value for each CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u32>,
    /// Value of the entry.
    pub value: Value,
}

/// Takes the content of a map.
pub(crate) struct Sink<'a> {
    pub(crate) kernel: &'a Kernel,
    pub(crate) map: &'a Map,
    pub(crate) gaps: &'a mut Vec<Gap>,
    pub(crate) take: &'a mut dyn FnMut(Content) -> io::Result<()>,
}

impl Sink<'_> {
    pub(crate) fn put(&mut self, content: Content) -> io::Result<()> {
        (self.take)(content)
    }

    /// Reads bytes at an address, in pieces, so that no memory is allocated for missing bytes.
    ///
    /// # Errors
    /// The image lacks some of them.
    pub(crate) fn read(&self, place: u64, len: u32) -> Result<Vec<u8>, Hole> {
        let (mut bytes, len) = (Vec::new(), usize::try_from(len).unwrap_or_default());
        while bytes.len() < len {
            let old = bytes.len();
            bytes.resize(old.saturating_add(PIECE).min(len), 0);
            let piece = bytes.get_mut(old..).unwrap_or_default();
            self.kernel.memory.read(place.wrapping_add(old as u64), piece)?;
        }
        Ok(bytes)
    }

    /// Adds a gap. `place` says where it is in the map.
    pub(crate) fn gap(&mut self, cause: Cause, place: &str) -> &mut Gap {
        let place = format!("{}, {place}", self.map.words());
        self.gaps.push(Gap::new(None, cause, place).with_events(Some(0)));
        let last = self.gaps.len().saturating_sub(1);
        #[expect(clippy::indexing_slicing, reason = "a gap was pushed")]
        &mut self.gaps[last]
    }

    /// Adds a gap for bytes that the image lacks.
    pub(crate) fn missing(&mut self, place: &str, hole: Hole, bytes: u64) {
        self.gap(Cause::Missing, &format!("{place}: {hole}")).bytes = Some(bytes);
    }

    /// Adds a gap for a part that the error prevents from being read.
    pub(crate) fn unreadable(&mut self, error: &lastwords_kernel::Error) {
        let lost = crate::lost(&self.map.words(), error);
        self.gaps.push(lost.with_events(None));
    }
}

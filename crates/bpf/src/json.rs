//! Programs, maps and their contents as data for JSON; docs/JSON.md describes it.

use crate::{Bpf, Content, Entry, Map, Positions, Program, Record};
use serde::{Serialize, Serializer};
use std::fmt::Write as _;

/// The programs and maps of a kernel, with what is in the maps.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The programs, by id.
    pub programs: Vec<Program>,
    /// The maps, by id.
    pub maps: Vec<MapReport>,
}

/// A map, with what is in it.
#[derive(Debug, Clone, Serialize)]
pub struct MapReport {
    /// Facts about the map.
    #[serde(flatten)]
    pub map: Map,
    /// False if maps of this kind are not read.
    pub is_read: bool,
    /// Positions of a ring buffer, or null.
    pub positions: Option<Positions>,
    /// Records of a ring buffer.
    pub records: Vec<Record>,
    /// Entries of an array or a hash table.
    pub entries: Vec<Entry>,
    /// Elements of an array that are all zero: the first and the last of each run.
    pub zeros: Vec<(u32, u32)>,
}

impl Bpf<'_> {
    /// Reads all maps, and returns them with the programs.
    #[must_use]
    pub fn report(&mut self) -> Report {
        let mut maps = Vec::new();
        for map in self.maps.clone() {
            let (records, entries, zeros) = (Vec::new(), Vec::new(), Vec::new());
            let mut report =
                MapReport { map, is_read: false, positions: None, records, entries, zeros };
            let map = report.map.clone();
            let is_read = self.content(&map, &mut |content| {
                match content {
                    Content::Positions(positions) => report.positions = Some(positions),
                    Content::Record(record) => report.records.push(record),
                    Content::Entry(entry) => report.entries.push(entry),
                    Content::Zeros(first, last) => report.zeros.push((first, last)),
                }
                Ok(())
            });
            // Nothing fails that only keeps what it gets.
            report.is_read = is_read.unwrap_or_default();
            maps.push(report);
        }
        Report { programs: self.programs.clone(), maps }
    }
}

/// Writes bytes as hexadecimal digits.
pub(crate) fn hex<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    let mut text = String::new();
    for byte in bytes {
        // A String takes everything.
        let _ = write!(text, "{byte:02x}");
    }
    serializer.serialize_str(&text)
}

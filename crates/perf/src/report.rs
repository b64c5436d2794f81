//! Buffers and the numbers of their records, as data for JSON; docs/JSON.md describes it.

use crate::ring::Region;
use crate::{Buffer, Perf};
use serde::Serialize;
use std::collections::BTreeMap;

/// The buffers of a kernel, with the numbers of their records.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The buffers, in the order of the processes that have them.
    pub buffers: Vec<BufferReport>,
}

/// A buffer, with the numbers of its records.
#[derive(Debug, Clone, Serialize)]
pub struct BufferReport {
    /// Facts about the buffer.
    #[serde(flatten)]
    pub buffer: Buffer,
    /// Bytes that its process had not read.
    pub unread: u64,
    /// Numbers of its records by type, such as `sample`.
    pub records: BTreeMap<String, u64>,
}

impl Perf {
    /// Reads all buffers, and counts their records.
    #[must_use]
    pub fn report(&mut self) -> Report {
        let buffers = self.buffers.clone();
        Report { buffers: buffers.into_iter().map(|buffer| self.report_on(buffer)).collect() }
    }

    fn report_on(&mut self, buffer: Buffer) -> BufferReport {
        let mut kinds: BTreeMap<u32, u64> = BTreeMap::new();
        let read = self.records(&buffer, &mut |record| {
            let count = kinds.entry(record.kind).or_default();
            *count = count.saturating_add(1);
            Ok(())
        });
        // Nothing fails that only counts.
        debug_assert!(read.is_ok());
        let words = self.kernel.types.enumeration("perf_event_type");
        let word = |kind: u32| {
            let name = words.iter().find(|(_, number)| *number == i64::from(kind));
            let name = name.and_then(|(name, _)| name.strip_prefix("PERF_RECORD_"));
            name.map_or_else(|| kind.to_string(), |name| name.to_lowercase().replace('_', "-"))
        };
        let records = kinds.into_iter().map(|(kind, count)| (word(kind), count)).collect();
        BufferReport { unread: Region::new(&buffer).len, buffer, records }
    }
}

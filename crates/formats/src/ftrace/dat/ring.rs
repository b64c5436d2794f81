//! A buffer of a file as a ring: sub-buffers are read when they are asked for.

use std::sync::Mutex;

use lastwords_trace::evidence::{Evidence, Verdict};
use lastwords_trace::ftrace::{CpuRing, HeaderPage, Ring, SubBufferInfo};

use super::chunks::{Algorithm, Chunk, Chunks};
use super::reader::Source;
use crate::ftrace::page::header;

/// A CPU's data.
pub(super) struct Data {
    pub(super) offset: u64,
    pub(super) size: u64,
    /// Where it is compressed: its pieces.
    pub(super) chunks: Option<Chunks>,
}

/// A buffer of a file.
pub(super) struct FileRing {
    pub(super) source: Source,
    pub(super) cpus: Vec<CpuRing>,
    pub(super) data: Vec<Data>,
    pub(super) header_page: HeaderPage,
    pub(super) algorithm: Algorithm,
    /// The piece that was uncompressed last: lane, offset, bytes.
    pub(super) last: Mutex<Option<(usize, u64, Vec<u8>)>>,
    pub(super) evidence: Evidence,
}

impl Ring for FileRing {
    fn cpus(&self) -> &[CpuRing] {
        &self.cpus
    }

    fn sub_buffer(&self, cpu: usize, index: usize, bytes: &mut Vec<u8>) -> SubBufferInfo {
        let missing = SubBufferInfo { committed: 0, consumed: 0, missed: None, verdict: Verdict::Missing };
        bytes.clear();
        let Some((data, ring)) = self.data.get(cpu).zip(self.cpus.get(cpu)) else { return missing };
        let size = ring.sub_buffer_size as usize;
        let start = index as u64 * size as u64;
        let read = match &data.chunks {
            None if start >= data.size => Some(()),
            None => self.source.read(data.offset + start, size, bytes).ok(),
            Some(chunks) => self.uncompressed(cpu, chunks, start, size, bytes),
        };
        let is_whole = read.is_some() && bytes.len() == size;
        bytes.resize(size, 0);
        match header(bytes, self.header_page, self.source.order) {
            Ok(found) if is_whole => SubBufferInfo {
                committed: found.committed,
                consumed: 0,
                missed: found.missed,
                verdict: Verdict::Committed,
            },
            Ok(_) => missing,
            Err(_) => SubBufferInfo { verdict: Verdict::Invalid, ..missing },
        }
    }

    fn evidence(&self) -> Evidence {
        self.evidence.clone()
    }
}

impl FileRing {
    fn uncompressed(&self, cpu: usize, chunks: &Chunks, start: u64, size: usize, bytes: &mut Vec<u8>) -> Option<()> {
        let chunk: Chunk = chunks.holding(start)?;
        let mut last = self.last.lock().ok()?;
        let is_there = matches!(&*last, Some((lane, offset, _)) if (*lane, *offset) == (cpu, chunk.offset));
        if !is_there {
            let mut raw = Vec::new();
            self.source.read(chunk.offset, chunk.compressed as usize, &mut raw).ok()?;
            *last = Some((cpu, chunk.offset, self.algorithm.uncompress(&raw, chunk.size as usize)?));
        }
        let (_, _, whole) = last.as_ref()?;
        let from = usize::try_from(start - chunk.start).ok()?;
        bytes.extend_from_slice(whole.get(from..whole.len().min(from + size))?);
        Some(())
    }
}

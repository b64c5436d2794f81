//! A buffer of a file as a ring: sub-buffers are read when they are asked for.

use std::sync::Mutex;

use lastwords_trace::evidence::{Evidence, Verdict};
use lastwords_trace::ftrace::{CpuRing, HeaderPage, Ring, SubBufferInfo};

use super::chunks::{Algorithm, Chunk, Chunks, Unpacker};
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
    pub(super) unpacked: Mutex<Unpacked>,
    pub(super) evidence: Evidence,
}

/// What was uncompressed last.
#[derive(Default)]
pub(super) struct Unpacked {
    unpacker: Unpacker,
    raw: Vec<u8>,
    /// By CPU: offset of the piece, and its bytes.
    last: Vec<(u64, Vec<u8>)>,
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
            None => self.source.read(data.offset.saturating_add(start), size, bytes).ok(),
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
        let mut unpacked = self.unpacked.lock().ok()?;
        let Unpacked { unpacker, raw, last } = &mut *unpacked;
        if last.len() < self.cpus.len() {
            last.resize_with(self.cpus.len(), Default::default);
        }
        let (offset, whole) = last.get_mut(cpu)?;
        if *offset != chunk.offset {
            raw.clear();
            self.source.read(chunk.offset, chunk.compressed as usize, raw).ok()?;
            // Nothing stands at offset 0: until this piece is there, none is.
            *offset = 0;
            unpacker.unpack(self.algorithm, raw, chunk.size as usize, whole)?;
            *offset = chunk.offset;
        }
        let from = usize::try_from(start - chunk.start).ok()?;
        bytes.extend_from_slice(whole.get(from..whole.len().min(from + size))?);
        Some(())
    }
}

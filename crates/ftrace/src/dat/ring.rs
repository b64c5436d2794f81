//! Presents a buffer of a file as a ring. A sub-buffer is read when it is asked for.

use std::collections::BTreeMap;
use std::sync::Mutex;

use crate::{CpuRing, HeaderPage, Ring, SubBufferInfo, retime};
use lastwords_trace::evidence::{Cause, Evidence, Gap, SubBuffer, Verdict};

use super::chunks::{Algorithm, Chunk, Chunks, Unpacker};
use super::clock::Correction;
use super::reader::Source;
use crate::page::{Cursor, header, long};

/// The data of a CPU.
pub(super) struct Data {
    pub(super) offset: u64,
    pub(super) size: u64,
    /// The chunks of compressed data.
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
    /// Faults of the sub-buffers that were read, by CPU and number.
    pub(super) faults: Mutex<BTreeMap<(usize, usize), SubBuffer>>,
    /// Events that the ring overwrote before the recording program had read them, by CPU and
    /// number of the next sub-buffer.
    pub(super) missed: Mutex<BTreeMap<(usize, usize), Option<u64>>>,
    /// The time correction of its events.
    pub(super) correction: Option<Correction>,
    /// Number of times in a sub-buffer that could not be corrected exactly, by CPU and number.
    pub(super) inexact: Mutex<BTreeMap<(usize, usize), u64>>,
}

/// The chunks that were uncompressed last.
#[derive(Default)]
pub(super) struct Unpacked {
    unpacker: Unpacker,
    raw: Vec<u8>,
    /// For each CPU: the offset of the chunk, and its bytes.
    last: Vec<(u64, Vec<u8>)>,
}

impl Ring for FileRing {
    fn cpus(&self) -> &[CpuRing] {
        &self.cpus
    }

    fn sub_buffer(&self, cpu: usize, index: usize, bytes: &mut Vec<u8>) -> SubBufferInfo {
        let none = SubBufferInfo::MISSING;
        bytes.clear();
        let Some((data, ring)) = self.data.get(cpu).zip(self.cpus.get(cpu)) else { return none };
        let size = ring.sub_buffer_size as usize;
        let start = (index as u64).saturating_mul(size as u64);
        let read = match &data.chunks {
            None if start >= data.size => Ok(()),
            None => self
                .source
                .read(data.offset.saturating_add(start), size, bytes)
                .map_err(|error| error.to_string()),
            Some(chunks) => self.uncompressed(cpu, chunks, start, size, bytes),
        };
        let there = bytes.len();
        bytes.resize(size, 0);
        let judged = match read {
            Ok(()) if there < size => {
                Err((Verdict::Missing, 0, format!("{there} of its {size} bytes are there")))
            }
            Ok(()) => self.judge(bytes, index.saturating_add(1) == ring.sub_buffers),
            Err(why) => Err((Verdict::Missing, 0, why)),
        };
        if let Some(correction) = &self.correction {
            let committed =
                judged.as_ref().map_or_else(|(_, kept, _)| *kept, |info| info.committed);
            let mut convert = |time| correction.apply(ring.cpu, time);
            let count = retime(bytes, self.header_page, self.source.order, committed, &mut convert);
            if let (1.., Ok(mut inexact)) = (count, self.inexact.lock()) {
                inexact.insert((cpu, index), count);
            }
        }
        // Events that were overwritten before the first sub-buffer are not a gap in the recording.
        if let (Ok(SubBufferInfo { missed: Some(events), .. }), 1..) = (&judged, index)
            && let Ok(mut missed) = self.missed.lock()
        {
            missed.insert((cpu, index), *events);
        }
        judged.unwrap_or_else(|(verdict, kept, why)| {
            let row = SubBuffer {
                stream: cpu,
                sequence: index as u64,
                verdict,
                content: kept as u64,
                why,
            };
            if let Ok(mut faults) = self.faults.lock() {
                faults.insert((cpu, index), row);
            }
            SubBufferInfo { verdict, committed: kept, ..none }
        })
    }

    fn evidence(&self) -> Evidence {
        let faults = self.faults.lock().map(|faults| faults.values().cloned().collect());
        let gap = |(&(cpu, index), &events): (&(usize, usize), &Option<u64>)| {
            let place = format!("before sub-buffer {index}");
            Gap { stream: Some(cpu), place, cause: Cause::Unread, events, bytes: None }
        };
        let inexact = |(&(cpu, index), count): (&(usize, usize), &u64)| {
            let cpu = self.cpus.get(cpu).map_or(0, |ring| ring.cpu);
            format!(
                "CPU {cpu}: sub-buffer {index}: {count} corrected times are before or far after the preceding event; \
                 these events have the nearest time that the sub-buffer can hold"
            )
        };
        let notes =
            self.inexact.lock().map(|all| all.iter().map(inexact).collect()).unwrap_or_default();
        let gaps = self.missed.lock().map(|missed| missed.iter().map(gap).collect());
        Evidence { notes, sub_buffers: faults.unwrap_or_default(), gaps: gaps.unwrap_or_default() }
    }

    fn checked(&self) -> Evidence {
        let mut bytes = Vec::new();
        for (cpu, ring) in self.cpus.iter().enumerate() {
            for index in 0..ring.sub_buffers {
                let _ = self.sub_buffer(cpu, index, &mut bytes);
            }
        }
        self.evidence()
    }
}

/// A fault of a sub-buffer: the verdict, the bytes of events before the fault, and the reason.
type Fault = (Verdict, usize, String);

impl FileRing {
    /// Checks a whole sub-buffer: the committed bytes must be events to their end.
    fn judge(&self, bytes: &[u8], is_last: bool) -> Result<SubBufferInfo, Fault> {
        let (layout, order) = (self.header_page, self.source.order);
        let found = header(bytes, layout, order)
            .map_err(|misfit| (Verdict::Invalid, 0, misfit.to_string()))?;
        let begin = layout.data_offset as usize;
        let is_blank = long(bytes, 0, order) == 0 && found.committed == 0 && found.missed.is_none();
        if is_blank && !(is_last && bytes.iter().all(|byte| *byte == 0)) {
            let lost = bytes.len().saturating_sub(begin);
            return Err((
                Verdict::Invalid,
                0,
                format!("its header is zero: up to {lost} bytes of events are lost"),
            ));
        }
        let mut cursor = Cursor::new(bytes, layout, order, found.committed);
        while let Some(event) = cursor.next(bytes) {
            if let Err(misfit) = event {
                let kept = misfit.offset.saturating_sub(begin);
                let (lost, all) = (found.committed.saturating_sub(kept), found.committed);
                return Err((
                    Verdict::Invalid,
                    kept,
                    format!("{misfit}: {lost} of {all} bytes of events are lost"),
                ));
            }
        }
        let verdict = Verdict::Committed;
        Ok(SubBufferInfo { committed: found.committed, consumed: 0, missed: found.missed, verdict })
    }

    fn uncompressed(
        &self,
        cpu: usize,
        chunks: &Chunks,
        start: u64,
        size: usize,
        bytes: &mut Vec<u8>,
    ) -> Result<(), String> {
        let Some(chunk) = chunks.holding(start) else {
            return Err("no compressed piece holds it".to_owned());
        };
        let Chunk { offset, compressed, size: all, .. } = chunk;
        let damaged = || {
            format!("the {compressed} bytes at {offset:#x} cannot be uncompressed to {all} bytes")
        };
        self.unpack(cpu, chunk, start, size, bytes).ok_or_else(damaged)
    }

    fn unpack(
        &self,
        cpu: usize,
        chunk: Chunk,
        start: u64,
        size: usize,
        bytes: &mut Vec<u8>,
    ) -> Option<()> {
        let mut unpacked = self.unpacked.lock().ok()?;
        let Unpacked { unpacker, raw, last } = &mut *unpacked;
        if last.len() < self.cpus.len() {
            last.resize_with(self.cpus.len(), Default::default);
        }
        let (offset, whole) = last.get_mut(cpu)?;
        if *offset != chunk.offset {
            raw.clear();
            self.source.read(chunk.offset, chunk.compressed as usize, raw).ok()?;
            // No chunk is at offset 0. This marks the buffer as empty until the chunk is
            // uncompressed.
            *offset = 0;
            unpacker.unpack(self.algorithm, raw, chunk.size as usize, whole)?;
            *offset = chunk.offset;
        }
        let from = usize::try_from(start.saturating_sub(chunk.start)).ok()?;
        bytes.extend_from_slice(whole.get(from..whole.len().min(from.saturating_add(size)))?);
        Some(())
    }
}

//! Copies memory of a dead process into the files of a session's copy, up to a limit. Blocks of
//! zeroes stay holes.

use std::cell::Cell;
use std::ops::Range;

use lastwords_abi::stream::StreamInfo;

use super::{CopySink, ReadMemory, Region};
use lastwords::Error;
use lastwords::internals::save::{BLOCK, CHUNK};

/// Copies memory of the dead process into files.
pub(super) struct Copier<'a> {
    pub(super) read: ReadMemory<'a>,
    /// Bytes that may still be read.
    pub(super) room: &'a Cell<u64>,
    /// `room` before this session.
    pub(super) at_first: u64,
    /// Bytes that could not be read.
    pub(super) missing: Cell<u64>,
}

impl Copier<'_> {
    fn take(&self, len: u64) -> Result<(), Error> {
        let too_large =
            || Error::TooLarge { needs: self.at_first.saturating_add(len), limit: self.at_first };
        self.room.set(self.room.get().checked_sub(len).ok_or_else(too_large)?);
        Ok(())
    }

    /// Copies a range of the region at `address` to a position in the file.
    pub(super) fn range(
        &self,
        address: u64,
        range: Range<u64>,
        sink: &mut dyn CopySink,
        to: u64,
    ) -> Result<(), Error> {
        let mut buffer = vec![0; CHUNK];
        let mut at = range.start;
        while at < range.end {
            let chunk = &mut buffer[..CHUNK.min((range.end - at) as usize)];
            self.take(chunk.len() as u64)?;
            self.fill(address.saturating_add(at), chunk);
            let position = to + (at - range.start);
            for (block, index) in chunk.chunks(BLOCK).zip(0..) {
                if block.iter().any(|byte| *byte != 0) {
                    sink.write(position + index * BLOCK as u64, block)?;
                }
            }
            at += chunk.len() as u64;
        }
        Ok(())
    }

    /// Fills the chunk; blocks that cannot be read become zeroes and are counted.
    fn fill(&self, address: u64, chunk: &mut [u8]) {
        if (self.read)(address, chunk) {
            return;
        }
        for (index, block) in chunk.chunks_mut(BLOCK).enumerate() {
            if !(self.read)(address.saturating_add((index * BLOCK) as u64), block) {
                block.fill(0);
                self.missing.set(self.missing.get() + block.len() as u64);
            }
        }
    }

    /// Copies the pages of a half, whose table lies in the region. Pages that were never allocated
    /// stay holes.
    pub(super) fn pages(
        &self,
        region: &Region,
        info: &StreamInfo,
        half: usize,
        sink: &mut dyn CopySink,
        to: u64,
    ) -> Result<(), Error> {
        let pages = info.sub_buffer_size.saturating_mul(info.sub_buffers.into()) / BLOCK as u64;
        let table = region.address.saturating_add(info.data_off[half]);
        let mut entries = vec![0; BLOCK];
        for first in (0..pages).step_by(BLOCK / 8) {
            let part = &mut entries[..BLOCK.min((pages - first) as usize * 8)];
            self.take(part.len() as u64)?;
            self.fill(table.saturating_add(first * 8), part);
            for (entry, index) in part.as_chunks::<8>().0.iter().zip(first..) {
                let page = u64::from_ne_bytes(*entry);
                if page != 0 {
                    self.range(page, 0..BLOCK as u64, sink, to + index * BLOCK as u64)?;
                }
            }
        }
        Ok(())
    }
}

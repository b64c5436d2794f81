//! Program headers of ELF vmcores.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use anyhow::{Context, Result, ensure};

/// Size of a program header.
pub const PROGRAM_HEADER: usize = 56;
const PT_LOAD: u32 = 1;
const PT_NOTE: u32 = 4;

/// The program headers of a 64-bit little-endian file.
pub struct Table {
    /// How many there are.
    pub count: u16,
    /// They, as they stand in the file.
    pub bytes: Vec<u8>,
}

impl Table {
    /// Reads it.
    ///
    /// # Errors
    /// The file is not of that kind, or cannot be read.
    pub fn read(file: &File) -> Result<Self> {
        let mut header = [0u8; 64];
        file.read_exact_at(&mut header, 0).context("the ELF header")?;
        ensure!(header.starts_with(b"\x7fELF\x02\x01"), "no 64-bit little-endian ELF file");
        let count = u16::from_le_bytes([header[56], header[57]]);
        let mut bytes = vec![0u8; usize::from(count) * PROGRAM_HEADER];
        file.read_exact_at(&mut bytes, word(&header, 32)).context("the program headers")?;
        Ok(Self { count, bytes })
    }

    /// Where the file has the byte at this physical address.
    pub fn offset_of(&self, physical: u64) -> Option<u64> {
        self.rows(PT_LOAD).find_map(|row| {
            let inside =
                physical.checked_sub(word(row, 24)).filter(|inside| *inside < word(row, 32))?;
            Some(word(row, 8) + inside)
        })
    }

    /// Where the file has its notes.
    pub fn notes(&self) -> Option<Range<u64>> {
        let row = self.rows(PT_NOTE).next()?;
        Some(word(row, 8)..word(row, 8) + word(row, 32))
    }

    fn rows(&self, kind: u32) -> impl Iterator<Item = &[u8]> {
        let rows = self.bytes.chunks_exact(PROGRAM_HEADER);
        rows.filter(move |row| row[..4] == kind.to_le_bytes())
    }
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_loads() {
        let row = |kind: u32, offset: u64, physical: u64, size: u64| {
            let words = [offset, u64::MAX, physical, size, size, 0];
            [
                u64::from(kind).to_le_bytes().to_vec(),
                words.into_iter().flat_map(u64::to_le_bytes).collect(),
            ]
            .concat()
        };
        let bytes =
            [row(4, 0, 0, 0x5000), row(1, 0x1000, 0x8000, 0x100), row(1, 0x2000, 0x20000, 8)]
                .concat();
        let table = Table { count: 3, bytes };
        assert_eq!(table.offset_of(0x80ff), Some(0x10ff));
        assert_eq!(table.offset_of(0x20000), Some(0x2000));
        assert_eq!((table.offset_of(0x8100), table.offset_of(0x10)), (None, None));
        assert_eq!(table.notes(), Some(0..0x5000));
    }
}

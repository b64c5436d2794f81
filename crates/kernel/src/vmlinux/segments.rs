//! The loadable segments of an ELF file as memory.

use crate::memory::Memory;
use lastwords_bytes::ByteOrder;
use lastwords_image::{Hole, HoleCause};
use object::Endianness;
use object::elf::{FileHeader64, PT_LOAD};
use object::read::elf::{FileHeader, ProgramHeader};

/// The segments of a vmlinux at the addresses at which they were linked.
pub(super) struct Segments(Vec<Segment>);

/// A loadable segment.
pub(super) struct Segment {
    /// Address of the first byte.
    pub(super) address: u64,
    /// Length in memory. Bytes that the file does not have are zero.
    len: u64,
    /// The bytes in the file.
    pub(super) bytes: Vec<u8>,
}

impl Segments {
    pub(super) fn from_header(
        header: &FileHeader64<Endianness>,
        endian: Endianness,
        bytes: &[u8],
    ) -> Result<Self, object::Error> {
        let mut segments = Vec::new();
        let mut left = bytes.len();
        for row in header
            .program_headers(endian, bytes)?
            .iter()
            .filter(|row| row.p_type(endian) == PT_LOAD)
        {
            let data = row.data(endian, bytes).unwrap_or_default();
            // Segments of a kernel do not share bytes of the file; that bounds the memory of the
            // copies.
            left = left.saturating_sub(data.len());
            if left == 0 {
                break;
            }
            segments.push(Segment {
                address: row.p_vaddr(endian),
                len: row.p_memsz(endian),
                bytes: data.to_vec(),
            });
        }
        Ok(Self(segments))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Segment> {
        self.0.iter()
    }
}

impl Segment {
    /// Fills `buf` with the bytes at `address`; none if the segment does not have all.
    fn read(&self, address: u64, buf: &mut [u8]) -> Option<()> {
        let at = address.checked_sub(self.address)?;
        let end = at.checked_add(buf.len() as u64)?;
        if end > self.len {
            return None;
        }
        let at = usize::try_from(at).ok()?;
        let there = self.bytes.get(at..).unwrap_or_default();
        let count = there.len().min(buf.len());
        buf.fill(0);
        buf.get_mut(..count)?.copy_from_slice(there.get(..count)?);
        Some(())
    }
}

impl Memory for Segments {
    fn read(&self, address: u64, buf: &mut [u8]) -> Result<(), Hole> {
        let found = self.0.iter().find_map(|segment| segment.read(address, buf));
        found.ok_or(Hole { address, cause: HoleCause::Unmapped })
    }

    fn byte_order(&self) -> ByteOrder {
        ByteOrder::Little
    }

    fn word_size(&self) -> u8 {
        8
    }

    fn page_size(&self) -> u64 {
        4096
    }
}

//! Parses the headers of the kdump-compressed format, versions 1 to 6 (makedumpfile's
//! IMPLEMENTATION; 64-bit machines).

use crate::vmcore::{Machine, foreign};
use lastwords_bytes::{ByteOrder, Error, Reader};

/// The first bytes of the file.
pub(crate) const MAGIC: [u8; 8] = *b"KDUMP   ";
/// Number of bytes read of the first header.
pub(super) const HEADER_LEN: usize = 464;
/// Number of bytes read of the second header.
pub(super) const SUB_HEADER_LEN: usize = 104;
/// Offset of the block size in the first header.
pub(super) const BLOCK_SIZE_AT: u64 = disk_dump_header::BLOCK_SIZE as u64;
/// `status`: the dump was cut because space ran out.
const INCOMPLETE: u32 = 8;
/// Supported versions.
const VERSIONS: std::ops::RangeInclusive<u32> = 1..=6;
/// Valid block sizes; blocks are pages of 512 bytes to 64 KiB.
const BLOCK_SIZES: std::ops::RangeInclusive<u32> = 512..=1 << 16;

/// Offsets in `struct disk_dump_header` of 64-bit machines.
mod disk_dump_header {
    pub(super) const HEADER_VERSION: usize = 8;
    /// `struct new_utsname`: six names of this length; the fifth is the machine's.
    pub(super) const UTSNAME: usize = 12;
    pub(super) const NAME_LEN: usize = 65;
    pub(super) const MACHINE: usize = UTSNAME + 4 * NAME_LEN;
    pub(super) const STATUS: usize = 424;
    pub(super) const BLOCK_SIZE: usize = 428;
    pub(super) const SUB_HDR_SIZE: usize = 432;
    pub(super) const BITMAP_BLOCKS: usize = 436;
    pub(super) const MAX_MAPNR: usize = 440;
}

/// Offsets in `struct kdump_sub_header` of 64-bit machines.
mod kdump_sub_header {
    pub(super) const SPLIT: usize = 12;
    pub(super) const START_PFN: usize = 16;
    pub(super) const END_PFN: usize = 24;
    /// Each offset is followed by the size, here and for notes.
    pub(super) const OFFSET_VMCOREINFO: usize = 32;
    pub(super) const OFFSET_NOTE: usize = 48;
    pub(super) const START_PFN_64: usize = 80;
    pub(super) const END_PFN_64: usize = 88;
    pub(super) const MAX_MAPNR_64: usize = 96;
}

/// Offsets in `struct page_desc`.
mod page_desc {
    pub(super) const OFFSET: usize = 0;
    pub(super) const SIZE: usize = 8;
    pub(super) const FLAGS: usize = 12;
}

/// A range of the file, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct FileRange {
    pub(super) offset: u64,
    pub(super) len: u64,
}

/// The fields of the two headers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) order: ByteOrder,
    pub(super) version: u32,
    /// The machine; QEMU leaves it out.
    pub(super) machine: Option<Machine>,
    /// Name of an unsupported machine.
    pub(super) foreign: Option<String>,
    pub(super) block_size: u64,
    pub(super) incomplete: bool,
    sub_header_blocks: u64,
    bitmap_blocks: u64,
    /// First page frame after the memory.
    pub(super) max_pfn: u64,
    /// Range of page frames of this file, if the dump is split.
    pub(super) split: Option<(u64, u64)>,
    pub(super) vmcoreinfo: FileRange,
    pub(super) notes: FileRange,
}

impl Header {
    /// Parses the first header.
    pub(super) fn parse(what: &str, bytes: &[u8]) -> Result<Self, Error> {
        use disk_dump_header as at;
        // The version shows the byte order. The block size cannot: 4096 read in the wrong order is
        // a power of two as well.
        let big = Reader::new(what, bytes, ByteOrder::Big);
        let is_big = VERSIONS.contains(&big.u32_at(at::HEADER_VERSION)?);
        let reader = if is_big { big } else { Reader::new(what, bytes, ByteOrder::Little) };
        let version = reader.u32_at(at::HEADER_VERSION)?;
        if !VERSIONS.contains(&version) {
            return Err(Error::value(
                what,
                at::HEADER_VERSION as u64,
                u64::from(version),
                "a header version of 1 to 6",
            ));
        }
        let block_size = reader.u32_at(at::BLOCK_SIZE)?;
        if !block_size.is_power_of_two() || !BLOCK_SIZES.contains(&block_size) {
            let expected =
                "a power of two from 512 to 2^16 (dumps of 32-bit machines are not read)";
            return Err(Error::value(what, at::BLOCK_SIZE as u64, u64::from(block_size), expected));
        }
        let name = reader.text_at(at::MACHINE, at::NAME_LEN)?;
        let machine = Machine::of_name(&name);
        Ok(Self {
            order: reader.order(),
            version,
            machine,
            foreign: Some(name).filter(|name| foreign::is_machine(name)),
            block_size: u64::from(block_size),
            incomplete: reader.u32_at(at::STATUS)? & INCOMPLETE != 0,
            sub_header_blocks: u64::from(reader.u32_at(at::SUB_HDR_SIZE)?),
            bitmap_blocks: u64::from(reader.u32_at(at::BITMAP_BLOCKS)?),
            max_pfn: u64::from(reader.u32_at(at::MAX_MAPNR)?),
            split: None,
            vmcoreinfo: FileRange::default(),
            notes: FileRange::default(),
        })
    }

    /// Offset of the second header.
    pub(super) fn sub_header_at(&self) -> u64 {
        self.block_size
    }

    /// Adds the fields of the second header that its version has.
    pub(super) fn add_sub_header(&mut self, what: &str, bytes: &[u8]) -> Result<(), Error> {
        use kdump_sub_header as at;
        let reader = Reader::new(what, bytes, self.order).based(self.sub_header_at());
        let place = |at: usize| -> Result<FileRange, Error> {
            Ok(FileRange { offset: reader.u64_at(at)?, len: reader.u64_at(at.saturating_add(8))? })
        };
        if self.version >= 2 && reader.u32_at(at::SPLIT)? != 0 {
            self.split = Some((reader.u64_at(at::START_PFN)?, reader.u64_at(at::END_PFN)?));
        }
        if self.version >= 3 {
            self.vmcoreinfo = place(at::OFFSET_VMCOREINFO)?;
        }
        if self.version >= 4 {
            self.notes = place(at::OFFSET_NOTE)?;
        }
        if self.version >= 6 {
            self.split = match self.split {
                Some(_) => Some((reader.u64_at(at::START_PFN_64)?, reader.u64_at(at::END_PFN_64)?)),
                None => None,
            };
            self.max_pfn = reader.u64_at(at::MAX_MAPNR_64)?;
        }
        Ok(())
    }

    /// Range of the bitmap of RAM.
    pub(super) fn ram_bitmap(&self) -> FileRange {
        let len = (self.bitmap_blocks >> 1).saturating_mul(self.block_size);
        FileRange {
            offset: self.sub_header_blocks.saturating_add(1).saturating_mul(self.block_size),
            len,
        }
    }

    /// Range of the bitmap of dumped pages.
    pub(super) fn dumped_bitmap(&self) -> FileRange {
        let ram = self.ram_bitmap();
        FileRange { offset: ram.offset.saturating_add(ram.len), len: ram.len }
    }

    /// Offset of the page descriptors.
    pub(super) fn descriptors_at(&self) -> u64 {
        self.sub_header_blocks
            .saturating_add(self.bitmap_blocks)
            .saturating_add(1)
            .saturating_mul(self.block_size)
    }
}

/// Size of a page descriptor, bytes.
pub(super) const DESCRIPTOR_LEN: usize = 24;

/// Location of a page's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Descriptor {
    pub(super) offset: u64,
    pub(super) size: u32,
    /// Compression flags; 0 = not compressed.
    pub(super) flags: u32,
}

impl Descriptor {
    pub(super) fn parse(reader: &Reader<'_>) -> Result<Self, Error> {
        use page_desc as at;
        Ok(Self {
            offset: reader.u64_at(at::OFFSET)?,
            size: reader.u32_at(at::SIZE)?,
            flags: reader.u32_at(at::FLAGS)?,
        })
    }
}

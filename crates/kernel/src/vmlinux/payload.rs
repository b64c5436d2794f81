//! The setup header of a bzImage, and the compressed vmlinux behind it.
//!
//! Layout: `Documentation/arch/x86/boot.rst`, boot protocol 2.08 and later.

use super::WHAT;
use crate::Error;
use lastwords_bytes::{Budget, ByteOrder, Error as BytesError, Reader};
use lastwords_image::decompress;
use std::io::Read as _;

/// Offset of `setup_sects`, the number of sectors of the setup code after the first.
const SETUP_SECTORS: usize = 0x1f1;
/// Offset of the magic word of the setup header.
const MAGIC_AT: usize = 0x202;
const MAGIC: &[u8] = b"HdrS";
/// Offset of the version of the boot protocol.
const VERSION: usize = 0x206;
/// The first version with the place of the payload.
const FIRST_VERSION: u16 = 0x208;
/// Offsets of the payload's offset and length.
const PAYLOAD_OFFSET: usize = 0x248;
const PAYLOAD_LENGTH: usize = 0x24c;
const SECTOR: usize = 512;

/// Returns true if the bytes begin as a bzImage.
pub(super) fn is_bz_image(head: &[u8]) -> bool {
    head.get(MAGIC_AT..).is_some_and(|rest| rest.starts_with(MAGIC))
}

/// Returns the ELF file of a kernel image: the bytes themselves, or the decompressed payload of a
/// bzImage.
pub(super) fn find(bytes: Vec<u8>, budget: &Budget) -> Result<Vec<u8>, Error> {
    if bytes.starts_with(&object::elf::ELFMAG) {
        return Ok(bytes);
    }
    if !is_bz_image(&bytes) {
        let first = bytes.first().copied().unwrap_or_default();
        return Err(
            BytesError::value(WHAT, 0, first.into(), "an ELF file, or a bzImage for x86").into()
        );
    }
    let payload = packed(&bytes)?;
    let mut unpacked = Vec::new();
    let read = decompress::reader(WHAT, payload, budget)
        .and_then(|mut reader| reader.read_to_end(&mut unpacked));
    if !unpacked.starts_with(&object::elf::ELFMAG) {
        let begin = unpacked.first_chunk::<4>().map_or(0, |word| u32::from_be_bytes(*word));
        read.map_err(|error| BytesError::io(WHAT, 0, &error))?;
        let expected = "an ELF file that gzip, xz, zstd or lz4 compressed";
        return Err(BytesError::value(WHAT, 0, begin.into(), expected).into());
    }
    read.map_err(|error| BytesError::io(WHAT, unpacked.len() as u64, &error))?;
    Ok(unpacked)
}

/// The compressed payload.
fn packed(bytes: &[u8]) -> Result<&[u8], Error> {
    let reader = Reader::new(WHAT, bytes, ByteOrder::Little);
    let version = reader.u16_at(VERSION)?;
    if version < FIRST_VERSION {
        return Err(BytesError::value(
            WHAT,
            VERSION as u64,
            version.into(),
            "boot protocol 2.08 or later",
        )
        .into());
    }
    // Zero stands for four sectors.
    let sectors = match reader.bytes_at(SETUP_SECTORS, 1)?.first() {
        Some(0) | None => 4,
        Some(count) => usize::from(*count),
    };
    let begin = sectors.saturating_add(1).saturating_mul(SECTOR);
    let offset = begin.saturating_add(reader.u32_at(PAYLOAD_OFFSET)? as usize);
    Ok(reader.bytes_at(offset, reader.u32_at(PAYLOAD_LENGTH)? as usize)?)
}

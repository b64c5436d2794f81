//! Reads the debug sections of an ELF file by their offsets.
//!
//! A kernel's `.debug_info` has hundreds of megabytes, so one of its units is in memory at a time.
//! A module is a relocatable file; its offsets between sections are relocated first (System V ABI,
//! processor supplements).

use super::WHAT;
use lastwords_bytes::{Budget, Error, low_u32};
use object::elf::{EM_AARCH64, EM_X86_64, ET_REL, SHF_COMPRESSED, SHT_RELA};
use object::elf::{R_AARCH64_ABS32, R_AARCH64_ABS64, R_X86_64_32, R_X86_64_32S, R_X86_64_64};
use object::read::elf::{FileHeader, SectionHeader};
use object::{Endian, Endianness, ReadRef};
use std::io::{Read, Seek, SeekFrom};

/// Largest size of a unit, and of a section that is read completely, bytes.
const WHOLE_MAX: u64 = 512 << 20;

/// Sizes in bytes of a relocation with addend and of a symbol (`Elf64_Rela`, `Elf64_Sym`).
const RELOCATION: usize = 24;
const SYMBOL: usize = 24;

/// Names of the sections to read, in the order of [`Index`].
const NAMES: [&str; 5] =
    [".debug_info", ".debug_abbrev", ".debug_str", ".debug_line_str", ".debug_str_offsets"];

/// Range of a section in its file, bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct FileRange {
    offset: u64,
    size: u64,
}

/// Location of the debug information in a file.
#[derive(Debug, Clone)]
pub(crate) struct Index {
    endian: Endianness,
    machine: u16,
    /// Sections in the order of [`NAMES`].
    sections: [FileRange; NAMES.len()],
    /// For a relocatable file: the relocations of these sections, and the symbols that the
    /// relocations name.
    relocations: Option<([FileRange; NAMES.len()], FileRange)>,
}

impl Index {
    /// Finds the debug information of a file; none if there is none.
    ///
    /// # Errors
    /// The headers are damaged, or the debug sections are compressed.
    pub(crate) fn read<'d, H, R>(header: &H, file: R) -> Result<Option<Self>, Error>
    where
        H: FileHeader<Endian = Endianness>,
        R: ReadRef<'d>,
    {
        let elf = |error: object::Error| problem(&error.to_string());
        let endian = header.endian().map_err(elf)?;
        let table = header.sections(endian, file).map_err(elf)?;
        let place = |section: &H::SectionHeader| FileRange {
            offset: section.sh_offset(endian).into(),
            size: section.sh_size(endian).into(),
        };
        let mut sections = [FileRange::default(); NAMES.len()];
        let mut relocations = [FileRange::default(); NAMES.len()];
        let mut symbols = FileRange::default();
        for ((name, at), relocated) in NAMES.iter().zip(&mut sections).zip(&mut relocations) {
            let Some((index, section)) = table.section_by_name(endian, name.as_bytes()) else {
                continue;
            };
            let flags: u64 = section.sh_flags(endian).into();
            if flags & u64::from(SHF_COMPRESSED) != 0 {
                return Err(problem(&format!(
                    "{name} as it is, not compressed: objcopy --decompress-debug-sections"
                )));
            }
            *at = place(section);
            let is_its = |s: &&H::SectionHeader| {
                s.sh_type(endian) == SHT_RELA && s.info_link(endian) == index
            };
            if let Some(found) = table.iter().find(is_its) {
                *relocated = place(found);
                symbols = table.section(found.link(endian)).map(place).unwrap_or_default();
            }
        }
        let is_whole = sections.iter().take(2).all(|section| section.size > 0);
        let relocations = (header.e_type(endian) == ET_REL).then_some((relocations, symbols));
        Ok(is_whole.then_some(Self {
            endian,
            machine: header.e_machine(endian),
            sections,
            relocations,
        }))
    }
}

/// The debug sections; `.debug_info` may stay in the file.
pub(crate) struct Sections<F> {
    pub(super) endian: Endianness,
    pub(super) abbreviations: Vec<u8>,
    pub(super) strings: Vec<u8>,
    pub(super) line_strings: Vec<u8>,
    pub(super) string_offsets: Vec<u8>,
    info: Info<F>,
}

enum Info<F> {
    InFile(F, FileRange),
    InMemory(Vec<u8>),
}

impl<F: Read + Seek> Sections<F> {
    /// Reads all sections except `.debug_info`; reads that one too if it must be relocated.
    ///
    /// # Errors
    /// The file ends within a section, or has relocations of an unknown machine.
    pub(crate) fn read(mut file: F, index: &Index, budget: &Budget) -> Result<Self, Error> {
        let [info, rest @ ..] = index.sections;
        let mut read = |slot: usize, place: FileRange| -> Result<Vec<u8>, Error> {
            let mut bytes = bytes_at(&mut file, place, budget)?;
            if let Some((relocations, symbols)) = &index.relocations {
                let rows = bytes_at(
                    &mut file,
                    relocations.get(slot).copied().unwrap_or_default(),
                    budget,
                )?;
                let symbols = if rows.is_empty() {
                    Vec::new()
                } else {
                    bytes_at(&mut file, *symbols, budget)?
                };
                relocate(&mut bytes, &rows, &symbols, index)?;
            }
            Ok(bytes)
        };
        let [abbreviations, strings, line_strings, string_offsets] = rest;
        let parts = [
            read(1, abbreviations)?,
            read(2, strings)?,
            read(3, line_strings)?,
            read(4, string_offsets)?,
        ];
        let [abbreviations, strings, line_strings, string_offsets] = parts;
        let info = if index.relocations.is_some() {
            Info::InMemory(read(0, info)?)
        } else {
            Info::InFile(file, info)
        };
        Ok(Self {
            endian: index.endian,
            abbreviations,
            strings,
            line_strings,
            string_offsets,
            info,
        })
    }

    /// Reads the unit at an offset of `.debug_info`; returns its bytes and the offset of the next
    /// unit. None after the last unit.
    ///
    /// # Errors
    /// The unit extends past the section.
    pub(super) fn unit(
        &mut self,
        at: u64,
        budget: &Budget,
    ) -> Result<Option<(Vec<u8>, u64)>, Error> {
        // The length of a unit excludes the length field: 4 bytes, or 12 bytes if the first 4 are
        // all ones (DWARF 5, 7.4).
        let head = self.info(at, 12, budget)?;
        let Some(short) = head.first_chunk::<4>() else { return Ok(None) };
        let short = self.endian.read_u32_bytes(*short);
        let len = match head.last_chunk::<8>().filter(|_| short == u32::MAX && head.len() == 12) {
            Some(long) => self.endian.read_u64_bytes(*long).saturating_add(12),
            None => u64::from(short).saturating_add(4),
        };
        let bytes = self.info(at, len, budget)?;
        if (bytes.len() as u64) < len {
            return Err(Error::value(WHAT, at, len, "a unit inside .debug_info"));
        }
        Ok(Some((bytes, at.saturating_add(len))))
    }

    /// Reads up to `len` bytes of `.debug_info`.
    fn info(&mut self, at: u64, len: u64, budget: &Budget) -> Result<Vec<u8>, Error> {
        match &mut self.info {
            Info::InFile(file, place) => {
                let size = len.min(place.size.saturating_sub(at));
                bytes_at(file, FileRange { offset: place.offset.saturating_add(at), size }, budget)
            }
            Info::InMemory(bytes) => {
                let from = usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len());
                let rest = bytes.get(from..).unwrap_or_default();
                let len = usize::try_from(len).unwrap_or(usize::MAX).min(rest.len());
                Ok(rest.get(..len).unwrap_or_default().to_vec())
            }
        }
    }
}

/// Reads all bytes of a range of the file.
fn bytes_at<F: Read + Seek>(
    file: &mut F,
    place: FileRange,
    budget: &Budget,
) -> Result<Vec<u8>, Error> {
    if place.size > WHOLE_MAX {
        return Err(Error::value(
            WHAT,
            place.offset,
            place.size,
            "a unit or section of up to 512 MiB",
        ));
    }
    budget.bytes(WHAT, place.size)?;
    let io = |error: std::io::Error| Error::io(WHAT, place.offset, &error);
    file.seek(SeekFrom::Start(place.offset)).map_err(io)?;
    let mut bytes = Vec::new();
    // Memory is allocated as bytes arrive.
    file.by_ref().take(place.size).read_to_end(&mut bytes).map_err(io)?;
    if (bytes.len() as u64) < place.size {
        return Err(Error::short(
            WHAT,
            place.offset,
            bytes.len() as u64,
            "the whole of a debug section",
        ));
    }
    Ok(bytes)
}

/// Applies relocations: stores the symbol's value plus the addend at each location.
fn relocate(bytes: &mut [u8], rows: &[u8], symbols: &[u8], index: &Index) -> Result<(), Error> {
    let endian = index.endian;
    for row in rows.chunks_exact(RELOCATION) {
        // Fields: r_offset, r_info (symbol number above the type), r_addend.
        let (offset, info, addend) =
            (word(row, 0, endian), word(row, 8, endian), word(row, 16, endian));
        let size = match (index.machine, low_u32(info)) {
            (EM_X86_64, R_X86_64_32 | R_X86_64_32S) | (EM_AARCH64, R_AARCH64_ABS32) => 4,
            (EM_X86_64, R_X86_64_64) | (EM_AARCH64, R_AARCH64_ABS64) => 8,
            (EM_X86_64 | EM_AARCH64, _) => continue,
            (machine, _) => {
                return Err(problem(&format!(
                    "relocations of x86_64 or aarch64, not of machine {machine}"
                )));
            }
        };
        // The field st_value, after name, type and section.
        let symbol = symbols
            .chunks_exact(SYMBOL)
            .nth((info >> 32) as usize)
            .map_or(0, |row| word(row, 8, endian));
        let value = symbol.wrapping_add(addend);
        let at = usize::try_from(offset).unwrap_or(usize::MAX);
        let Some(place) = bytes.get_mut(at..at.saturating_add(size)) else { continue };
        let (long, short) = (endian.write_u64_bytes(value), endian.write_u32_bytes(low_u32(value)));
        place.copy_from_slice(if size == 8 { &long } else { &short });
    }
    Ok(())
}

/// The 8 bytes at an offset of a row.
fn word(row: &[u8], at: usize, endian: Endianness) -> u64 {
    let bytes = row.get(at..).and_then(<[u8]>::first_chunk).copied();
    endian.read_u64_bytes(bytes.unwrap_or_default())
}

/// Error about the file itself.
pub(super) fn problem(expected: &str) -> Error {
    Error::other(WHAT, expected)
}

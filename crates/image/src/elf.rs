//! Parses ELF64 program headers and notes in both byte orders. Layout: System V gABI, chapters 4
//! and 5.

use lastwords_bytes::{Budget, ByteOrder, Error, Reader};

/// The first bytes of an ELF file.
pub(crate) const MAGIC: [u8; 4] = *b"\x7fELF";
/// Size of the file header.
pub(crate) const HEADER_LEN: usize = 64;
/// `e_type` of a core.
const ET_CORE: u16 = 4;
/// Value of `e_phnum` if the number is in `sh_info` of section 0.
const PN_XNUM: u16 = 0xffff;
/// Size of a program header, bytes.
pub(crate) const PROGRAM_HEADER_LEN: u64 = 56;
/// `p_type`: loadable.
pub(crate) const PT_LOAD: u32 = 1;
/// `p_type`: notes.
pub(crate) const PT_NOTE: u32 = 4;
/// `p_type`: first of the values that systems and processors define themselves.
const PT_OTHERS: u32 = 0x6000_0000;
/// `p_flags`: readable, writable and executable.
const FLAGS_MAX: u32 = 7;
/// Size of a section header, and most bytes of a core's section names; gdb gives many sections the
/// same name.
const SECTION_LEN: u64 = 64;
const NAMES_MAX: u64 = 4096;
/// Offset of `sh_info` in a section header.
const SH_INFO: usize = 44;
/// Most program headers that are read. Linux allows at most 2^31 - 1 mappings, by default 65,530.
pub(crate) const MAX_PROGRAM_HEADERS: u64 = 1 << 22;

/// Offsets in the file header (`Elf64_Ehdr`).
mod ehdr {
    pub(super) const CLASS: usize = 4;
    pub(super) const DATA: usize = 5;
    pub(super) const TYPE: usize = 16;
    pub(super) const MACHINE: usize = 18;
    pub(super) const PHOFF: usize = 32;
    pub(super) const SHOFF: usize = 40;
    pub(super) const PHENTSIZE: usize = 54;
    pub(super) const PHNUM: usize = 56;
    pub(super) const SHNUM: usize = 60;
}

/// The fields of the file header.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FileHeader {
    pub(crate) order: ByteOrder,
    pub(crate) machine: u16,
    pub(crate) program_headers_at: u64,
    section_headers_at: u64,
    count: u16,
    entry: u16,
    sections: u16,
}

/// A program header.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProgramHeader {
    pub(crate) kind: u32,
    pub(crate) offset: u64,
    pub(crate) address: u64,
    /// `p_paddr`; 0 in process cores.
    pub(crate) physical: u64,
    pub(crate) file_size: u64,
    pub(crate) memory_size: u64,
    flags: u32,
    align: u64,
}

impl FileHeader {
    /// Parses the header of a core; `what` is the name of the file.
    pub(crate) fn parse(what: &str, bytes: &[u8]) -> Result<Self, Error> {
        use ehdr as at;
        let probe = Reader::new(what, bytes, ByteOrder::Little);
        if probe.array_at::<4>(0)? != MAGIC {
            return Err(Error::value(what, 0, u64::from(probe.u32_at(0)?), "the ELF magic"));
        }
        let class = probe.u8_at(at::CLASS)?;
        if class != 2 {
            return Err(Error::value(
                what,
                at::CLASS as u64,
                u64::from(class),
                "2 (ELF64); cores of 32-bit processes are not read",
            ));
        }
        let order = match probe.u8_at(at::DATA)? {
            1 => ByteOrder::Little,
            2 => ByteOrder::Big,
            other => {
                return Err(Error::value(
                    what,
                    at::DATA as u64,
                    u64::from(other),
                    "byte order 1 or 2",
                ));
            }
        };
        let reader = Reader::new(what, bytes, order);
        let kind = reader.u16_at(at::TYPE)?;
        if kind != ET_CORE {
            return Err(Error::value(what, at::TYPE as u64, u64::from(kind), "e_type 4 (a core)"));
        }
        Ok(Self {
            order,
            machine: reader.u16_at(at::MACHINE)?,
            program_headers_at: reader.u64_at(at::PHOFF)?,
            section_headers_at: reader.u64_at(at::SHOFF)?,
            count: reader.u16_at(at::PHNUM)?,
            entry: reader.u16_at(at::PHENTSIZE)?,
            sections: reader.u16_at(at::SHNUM)?,
        })
    }

    /// Offset and length of the section headers and of the names before them; none without section
    /// headers.
    pub(crate) fn sections(&self) -> Option<(u64, u64)> {
        let len = u64::from(self.sections).saturating_mul(SECTION_LEN);
        // If there are more section headers than the field can count, their number is in the first
        // of them.
        let len = if self.count == PN_XNUM { u64::MAX } else { len };
        let at = Some(self.section_headers_at).filter(|at| *at > 0)?;
        Some((at.saturating_sub(NAMES_MAX), len.saturating_add(NAMES_MAX)))
    }

    /// Error about the size of a program header, which has only one valid value.
    pub(crate) fn wrong_entry(&self, what: &str) -> Option<Error> {
        let entry = u64::from(self.entry);
        (entry != PROGRAM_HEADER_LEN)
            .then(|| Error::value(what, ehdr::PHENTSIZE as u64, entry, "e_phentsize 56"))
    }

    /// Number of program headers; `read` reads bytes of the file.
    pub(crate) fn count(
        &self,
        what: &str,
        read: impl FnOnce(u64, &mut [u8]) -> Result<(), Error>,
    ) -> Result<u64, Error> {
        if self.count != PN_XNUM {
            return Ok(u64::from(self.count));
        }
        let mut section = [0u8; 64];
        read(self.section_headers_at, &mut section)?;
        let count = u64::from(Reader::new(what, &section, self.order).u32_at(SH_INFO)?);
        if count > MAX_PROGRAM_HEADERS {
            let at = self.section_headers_at.saturating_add(SH_INFO as u64);
            return Err(Error::value(what, at, count, "at most 2^22 program headers"));
        }
        Ok(count)
    }
}

impl ProgramHeader {
    /// Parses the next program header.
    pub(crate) fn parse(reader: &mut Reader<'_>) -> Result<Self, Error> {
        let kind = reader.u32()?;
        let flags = reader.u32()?;
        let offset = reader.u64()?;
        let (address, physical) = (reader.u64()?, reader.u64()?);
        let (file_size, memory_size) = (reader.u64()?, reader.u64()?);
        let align = reader.u64()?;
        Ok(Self { kind, offset, address, physical, file_size, memory_size, flags, align })
    }

    /// True if the header is plausible: a loadable or note segment with consistent fields, or a
    /// kind that is not used here.
    pub(crate) fn is_plausible(&self) -> bool {
        let sized = self.offset.checked_add(self.file_size).is_some()
            && self.address.checked_add(self.memory_size).is_some();
        match self.kind {
            PT_LOAD => {
                sized
                    && self.flags <= FLAGS_MAX
                    && self.file_size <= self.memory_size
                    && self.is_aligned()
            }
            PT_NOTE => sized && self.flags <= FLAGS_MAX && self.is_aligned(),
            kind => kind == 0 || kind >= PT_OTHERS,
        }
    }

    fn is_aligned(&self) -> bool {
        self.align == 0 || self.align.is_power_of_two()
    }

    /// True if the segment has memory or notes.
    pub(crate) fn has_bytes(&self) -> bool {
        matches!(self.kind, PT_LOAD | PT_NOTE) && self.memory_size.max(self.file_size) > 0
    }
}

/// A note.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Note<'a> {
    pub(crate) kind: u32,
    pub(crate) name: &'a [u8],
    pub(crate) body: Reader<'a>,
}

/// Parses the next note; none at the end. A note that does not fit is an error and ends the
/// iteration.
pub(crate) fn next_note<'a>(
    reader: &mut Reader<'a>,
    budget: &Budget,
) -> Result<Option<Note<'a>>, Error> {
    if reader.left() < 12 {
        return Ok(None);
    }
    budget.steps(reader.what(), 1)?;
    let (name_len, body_len, kind) = (reader.u32()?, reader.u32()?, reader.u32()?);
    let len = |n: u32| usize::try_from(n).unwrap_or(usize::MAX);
    let name = reader.take(len(name_len))?;
    reader.align(4);
    let body = reader.sub(len(body_len))?;
    reader.align(4);
    let name = name.split(|b| *b == 0).next().unwrap_or_default();
    Ok(Some(Note { kind, name, body }))
}

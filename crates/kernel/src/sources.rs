//! Symbols and types that a user provides if the image lacks them: a System.map, a BTF file, a
//! vmlinux.

use crate::dwarf;
use crate::kallsyms::Kallsyms;
use crate::notes;
use crate::vmcoreinfo::VmcoreInfo;
use lastwords_bytes::{Budget, Error};
use object::elf::{FileHeader32, FileHeader64, SHF_ALLOC, SHF_EXECINSTR, SHF_WRITE, SHT_NOBITS};
use object::read::elf::{FileHeader, Sym};
use object::{Endianness, FileKind, ReadCache, ReadRef};
use std::io::{Read, Seek, SeekFrom};

/// Provided symbols and types; they are used instead of those in the image.
#[derive(Default)]
pub struct Sources {
    /// Symbols of the running kernel, at the addresses where it ran.
    pub symbols: Option<Kallsyms>,
    /// The kernel's BTF.
    pub btf: Option<Vec<u8>>,
    /// True if that BTF is not the kernel's own, so that its modules' BTF does not continue it.
    pub(crate) is_foreign: bool,
    /// Errors about parts that could not be read.
    pub(crate) missing: Vec<Error>,
}

/// Name of the file in errors.
const VMLINUX: &str = "vmlinux";

/// A symbol: address, kind, name.
type Row<'a> = (u64, u8, &'a str);

impl Sources {
    /// Reads the symbols of a `System.map`, or of the output of `/proc/kallsyms`. A `System.map`
    /// has link-time addresses; they are moved by VMCOREINFO's `KERNELOFFSET`.
    ///
    /// # Errors
    /// No line is a symbol.
    pub fn system_map(&mut self, text: &str, info: &VmcoreInfo) -> Result<(), Error> {
        let mut rows: Vec<Row<'_>> = text.lines().filter_map(map_row).collect();
        if rows.is_empty() {
            return Err(Error::value(
                "System.map",
                0,
                text.len() as u64,
                "lines of address, kind and name",
            ));
        }
        // If `_stext` is where the image has it, the addresses are already run-time addresses.
        let place = rows.iter().find(|row| row.2 == "_stext").map(|row| row.0);
        if place != info.symbol("_stext") || place.is_none() {
            moved(&mut rows, info);
        }
        self.symbols = Some(Kallsyms::of_rows(rows));
        Ok(())
    }

    /// Reads the symbols of a vmlinux, and its types from its BTF or from its debug information.
    ///
    /// # Errors
    /// The file is no ELF file of a kernel, it is damaged, it is of another build than the image,
    /// or the budget is spent.
    pub fn vmlinux<F: Read + Seek>(
        &mut self,
        mut file: F,
        info: &VmcoreInfo,
        budget: &Budget,
    ) -> Result<(), Error> {
        budget.admit(len_of(&mut file).map_err(|e| Error::other(VMLINUX, &e.to_string()))?);
        let cache = ReadCache::new(file);
        let debug = match FileKind::parse(&cache) {
            Ok(FileKind::Elf64) => self.elf::<FileHeader64<Endianness>, F>(&cache, info)?,
            Ok(FileKind::Elf32) => self.elf::<FileHeader32<Endianness>, F>(&cache, info)?,
            _ => {
                let first =
                    (&cache).read_bytes_at(0, 1).ok().and_then(|bytes| bytes.first().copied());
                return Err(Error::value(
                    VMLINUX,
                    0,
                    first.unwrap_or_default().into(),
                    "an ELF file",
                ));
            }
        };
        if let Some(index) = debug {
            let made = dwarf::read(cache.into_inner(), &index, None, budget)?;
            self.btf = Some(made.blob);
            self.is_foreign = true;
            self.missing.extend(made.missing);
        }
        Ok(())
    }

    /// Reads symbols and BTF. Returns the location of debug information if the types must come from
    /// it.
    fn elf<H: FileHeader<Endian = Endianness>, F: Read + Seek>(
        &mut self,
        file: &ReadCache<F>,
        info: &VmcoreInfo,
    ) -> Result<Option<dwarf::Index>, Error> {
        let elf = |error: object::Error| Error::other(VMLINUX, &error.to_string());
        let header = H::parse(file).map_err(elf)?;
        let (build, mut rows, btf) = read_elf(header, file).map_err(elf)?;
        if let (Some(ours), Some(theirs)) = (info.build_id(), build)
            && ours != theirs
        {
            return Err(Error::other(
                VMLINUX,
                &format!("it is of build {theirs}, the image of {ours}; give the image's own"),
            ));
        }
        if !rows.is_empty() {
            moved(&mut rows, info);
            self.symbols = Some(Kallsyms::of_rows(rows));
        }
        if btf.is_some() {
            self.btf = btf;
            return Ok(None);
        }
        dwarf::Index::read(header, file)
    }
}

/// The size of a file, bytes.
pub(crate) fn len_of<F: Seek>(file: &mut F) -> std::io::Result<u64> {
    let len = file.seek(SeekFrom::End(0))?;
    file.rewind()?;
    Ok(len)
}

/// Parses a line: `ffffffff81000000 T _stext`. Symbols of modules, which end with the module's
/// name, are skipped.
fn map_row(line: &str) -> Option<Row<'_>> {
    let mut words = line.split_ascii_whitespace();
    let address = u64::from_str_radix(words.next()?, 16).ok()?;
    let kind = words.next().filter(|kind| kind.len() == 1)?.bytes().next()?;
    let name = words.next()?;
    words.next().is_none().then_some((address, kind, name))
}

/// Moves symbols from link-time to run-time addresses. Lower addresses are offsets in per-CPU
/// memory and do not move.
fn moved(rows: &mut [Row<'_>], info: &VmcoreInfo) {
    let stext = rows.iter().find(|row| row.2 == "_stext").map(|row| row.0);
    let text = rows.iter().find(|row| row.2 == "_text").map(|row| row.0);
    let offset = match (info.symbol("_stext"), stext) {
        (Some(ran), Some(linked)) => ran.wrapping_sub(linked),
        _ => info.kernel_offset().unwrap_or_default(),
    };
    let first = text.into_iter().chain(stext).min().unwrap_or_default();
    for row in rows.iter_mut().filter(|row| row.0 >= first) {
        row.0 = row.0.wrapping_add(offset);
    }
}

/// Build id in hexadecimal, symbols, and BTF.
type Parts<'a> = (Option<String>, Vec<Row<'a>>, Option<Vec<u8>>);

fn read_elf<'d, H, R>(header: &H, file: R) -> object::Result<Parts<'d>>
where
    H: FileHeader<Endian = Endianness>,
    R: ReadRef<'d>,
{
    let endian = header.endian()?;
    let sections = header.sections(endian, file)?;
    let symbols = sections.symbols(endian, file, object::elf::SHT_SYMTAB)?;
    let mut rows = Vec::new();
    for symbol in symbols.iter() {
        let Ok(name) =
            std::str::from_utf8(symbol.name(endian, symbols.strings()).unwrap_or_default())
        else {
            continue;
        };
        let is_kept = !name.is_empty()
            && symbol.st_type() <= object::elf::STT_FUNC
            && !symbol.is_undefined(endian);
        if is_kept {
            let section =
                sections.section(object::SectionIndex(symbol.st_shndx(endian).into())).ok();
            let kind = section.map_or(b'a', |section| kind(section, endian));
            let kind = if symbol.is_local() { kind } else { kind.to_ascii_uppercase() };
            rows.push((symbol.st_value(endian).into(), kind, name));
        }
    }
    let btf = match sections.section_by_name(endian, b".BTF") {
        Some((_, section)) => {
            Some(object::read::elf::SectionHeader::data(section, endian, file)?.to_vec())
        }
        None => None,
    };
    let mut build = None;
    for section in sections.iter() {
        let Ok(Some(found)) = object::read::elf::SectionHeader::notes(section, endian, file) else {
            continue;
        };
        build = notes::of_notes(found, endian).or(build);
    }
    Ok((build, rows, btf))
}

/// Letter for the contents of a section, like in `nm`.
fn kind<S: object::read::elf::SectionHeader<Endian = Endianness>>(
    section: &S,
    endian: Endianness,
) -> u8 {
    let flags: u64 = section.sh_flags(endian).into();
    let has = |flag: u32| flags & u64::from(flag) != 0;
    match () {
        () if !has(SHF_ALLOC) => b'n',
        () if has(SHF_EXECINSTR) => b't',
        () if section.sh_type(endian) == SHT_NOBITS => b'b',
        () if has(SHF_WRITE) => b'd',
        () => b'r',
    }
}

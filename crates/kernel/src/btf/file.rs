//! Reads the types in a module's own file.

use super::{Btf, Types};
use crate::dwarf;
use crate::sources::len_of;
use lastwords_bytes::{Budget, Error};
use object::elf::{FileHeader32, FileHeader64};
use object::read::elf::{FileHeader, SectionHeader};
use object::{Endianness, FileKind, ReadCache};
use std::io::{Read, Seek};
use std::sync::Arc;

/// Reads the types of a module's file (`.ko`) from its `.BTF`, on top of its own `.BTF.base` if
/// there is one (Linux 6.11 and later), else on top of the kernel's. Without `.BTF`, the types come
/// from its debug information.
///
/// # Errors
/// The file is no ELF file, it is damaged, it has neither BTF nor debug information, or the budget
/// is spent.
pub fn of_module<F: Read + Seek>(
    what: &str,
    mut file: F,
    kernel: &Types,
    budget: &Budget,
) -> Result<Types, Error> {
    budget.admit(len_of(&mut file).map_err(|error| Error::other(what, &error.to_string()))?);
    let cache = ReadCache::new(file);
    let found = match FileKind::parse(&cache) {
        Ok(FileKind::Elf64) => sections::<FileHeader64<Endianness>, F>(what, &cache)?,
        Ok(FileKind::Elf32) => sections::<FileHeader32<Endianness>, F>(what, &cache)?,
        _ => return Err(Error::other(what, "this is no ELF file")),
    };
    let (blob, base) = match found {
        TypeSource::Btf { blob, base: Some(base) } => {
            (blob, Arc::new(Btf::parse(base, None, budget)?))
        }
        TypeSource::Btf { blob, base: None } => (blob, Arc::clone(kernel.btf())),
        TypeSource::Debug(index) => {
            let base = Arc::clone(kernel.btf());
            (dwarf::read(cache.into_inner(), &index, Some(&base), budget)?.blob, base)
        }
    };
    Ok(Types::new(Arc::new(Btf::parse(blob, Some(base), budget)?)))
}

/// The source of types in a module's file.
enum TypeSource {
    /// Contents of `.BTF` and of `.BTF.base`.
    Btf { blob: Vec<u8>, base: Option<Vec<u8>> },
    /// DWARF.
    Debug(dwarf::Index),
}

fn sections<H: FileHeader<Endian = Endianness>, F: Read + Seek>(
    what: &str,
    file: &ReadCache<F>,
) -> Result<TypeSource, Error> {
    let elf = |error: object::Error| Error::other(what, &error.to_string());
    let header = H::parse(file).map_err(elf)?;
    let endian = header.endian().map_err(elf)?;
    let sections = header.sections(endian, file).map_err(elf)?;
    let data = |name: &[u8]| match sections.section_by_name(endian, name) {
        Some((_, section)) => {
            section.data(endian, file).map(|bytes| Some(bytes.to_vec())).map_err(elf)
        }
        None => Ok(None),
    };
    if let Some(blob) = data(b".BTF")? {
        return Ok(TypeSource::Btf { blob, base: data(b".BTF.base")? });
    }
    let debug = dwarf::Index::read(header, file)?;
    debug.map(TypeSource::Debug).ok_or_else(|| {
        Error::other(what, "a section .BTF or .debug_info; give a module that has one")
    })
}

//! The types that a module's own file carries.

use super::{Btf, Types};
use lastwords_bytes::{Budget, Error, Kind};
use object::elf::{FileHeader32, FileHeader64};
use object::read::elf::{FileHeader, SectionHeader};
use object::{Endianness, FileKind};
use std::sync::Arc;

/// The types of a module's file (`.ko`): its `.BTF`, on its own `.BTF.base` where it has one (6.11 and later), else on the
/// kernel's.
///
/// # Errors
/// It is no ELF file, it is damaged, or it has no BTF.
pub fn of_module(what: &str, file: &[u8], kernel: &Types, budget: &Budget) -> Result<Types, Error> {
    let elf = |error: object::Error| problem(what, &error.to_string());
    let (btf, base) = match FileKind::parse(file).map_err(elf)? {
        FileKind::Elf64 => sections::<FileHeader64<Endianness>>(file).map_err(elf)?,
        FileKind::Elf32 => sections::<FileHeader32<Endianness>>(file).map_err(elf)?,
        _ => return Err(problem(what, "an ELF file")),
    };
    let btf = btf.ok_or_else(|| problem(what, "a section .BTF; give a module that has one"))?;
    let base = match base {
        Some(base) => Arc::new(Btf::parse(base.to_vec(), None, budget)?),
        None => Arc::clone(kernel.btf()),
    };
    Ok(Types::new(Arc::new(Btf::parse(btf.to_vec(), Some(base), budget)?)))
}

/// Contents of `.BTF` and of `.BTF.base`.
type Sections<'a> = (Option<&'a [u8]>, Option<&'a [u8]>);

fn sections<H: FileHeader<Endian = Endianness>>(file: &[u8]) -> object::Result<Sections<'_>> {
    let header = H::parse(file)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, file)?;
    let data = |name: &[u8]| -> object::Result<Option<&[u8]>> {
        match sections.section_by_name(endian, name) {
            Some((_, section)) => section.data(endian, file).map(Some),
            None => Ok(None),
        }
    };
    Ok((data(b".BTF")?, data(b".BTF.base")?))
}

fn problem(what: &str, expected: &str) -> Error {
    Error { what: what.into(), offset: 0, value: None, expected: expected.into(), kind: Kind::Io }
}

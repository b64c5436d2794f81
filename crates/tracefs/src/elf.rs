//! Places in programs and libraries: functions by name, and the static probes (USDT) that
//! `<sys/sdt.h>` and its like leave in a section of notes.
//!
//! The kernel takes offsets in the file. An address becomes one by the segment that holds it. The
//! form of the notes is that of SystemTap's `sys/sdt.h`, version 3: addresses of the probe, of the
//! section `.stapsdt.base` and of the probe's semaphore, then provider, name and arguments as texts.

use anyhow::{Context, bail, ensure};
use lastwords_bytes::{ByteOrder, Reader};
use object::elf::STT_GNU_IFUNC;
use object::read::ReadCache;
use object::{Object as _, ObjectSection as _, ObjectSegment as _, ObjectSymbol as _};
use object::{SymbolFlags, SymbolKind};
use std::fs::File;
use std::path::Path;

/// The kind of the notes of static probes, and the name of their owner.
const STAPSDT: u32 = 3;
const OWNER: &[u8] = b"stapsdt\0";

/// Where a static probe is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// Offset of the instruction in the file.
    pub(crate) offset: u64,
    /// Offset of the counter by which the program learns that the probe is used; none if it does
    /// not ask.
    pub(crate) semaphore: Option<u64>,
}

/// Returns the offset of a function in a file.
///
/// # Errors
/// The file is no ELF file, or has no such function, or several.
pub(crate) fn function(path: &Path, name: &str) -> anyhow::Result<u64> {
    let shown = path.display();
    let cache = open(path)?;
    let file = object::File::parse(&cache).with_context(|| format!("{shown}: no ELF file"))?;
    let mut found: Vec<u64> = Vec::new();
    for symbol in file.symbols().chain(file.dynamic_symbols()) {
        let is_named = symbol.name().is_ok_and(|own| own == name);
        if !is_named || symbol.is_undefined() {
            continue;
        }
        if let SymbolFlags::Elf { st_info, .. } = symbol.flags() {
            ensure!(
                st_info & 0xf != STT_GNU_IFUNC,
                "{shown}: which code {name} has is chosen when the library is loaded: name that function, such as {name}_avx2"
            );
        }
        if symbol.kind() == SymbolKind::Text {
            found.push(symbol.address());
        }
    }
    found.sort_unstable();
    found.dedup();
    match found.as_slice() {
        [address] => offset(&file, *address).with_context(|| format!("{shown}: {name}")),
        [] => {
            bail!("{shown}: it has no function {name}; `nm -D --defined-only {shown}` lists some")
        }
        several => {
            bail!("{shown}: it has {} functions {name}: give the offset of one", several.len())
        }
    }
}

/// Returns the places of a static probe in a file. An empty `provider` is the only one that has a
/// probe of this name.
///
/// # Errors
/// The file is no ELF file, or has no such probe, or that of several providers, or its notes are
/// damaged.
pub(crate) fn usdt(path: &Path, provider: &str, name: &str) -> anyhow::Result<Vec<Place>> {
    let shown = path.display();
    let cache = open(path)?;
    let file = object::File::parse(&cache).with_context(|| format!("{shown}: no ELF file"))?;
    let section = file.section_by_name(".note.stapsdt");
    let section = section.with_context(|| format!("{shown}: it has no static probes (USDT)"))?;
    let bytes = section.data().with_context(|| shown.to_string())?;
    let base = file.section_by_name(".stapsdt.base").map(|section| section.address());
    let order = if file.is_little_endian() { ByteOrder::Little } else { ByteOrder::Big };
    let mut notes = Reader::new("the notes of static probes", bytes, order);
    let (mut places, mut names, mut found) = (Vec::new(), Vec::new(), Vec::new());
    while notes.left() > 0 {
        let Some(note) = next(&mut notes, file.is_64()).with_context(|| shown.to_string())? else {
            continue;
        };
        let is_of = provider.is_empty() || note.provider == provider.as_bytes();
        if !is_of || note.name != name.as_bytes() {
            names.push(note.shown());
            continue;
        }
        found.push(note.shown());
        // A file that was moved (prelink) has notes with the addresses of before.
        let moved = base.map_or(0, |base| base.wrapping_sub(note.base));
        let of = |address: u64| offset(&file, address.wrapping_add(moved));
        let semaphore = (note.semaphore != 0).then(|| of(note.semaphore)).transpose()?;
        places.push(Place { offset: of(note.address)?, semaphore });
    }
    for names in [&mut names, &mut found] {
        names.sort();
        names.dedup();
    }
    ensure!(
        !places.is_empty(),
        "{shown}: it has no static probe {provider}:{name}; it has {}",
        names.join(", ")
    );
    ensure!(found.len() == 1, "{shown}: it has {}: name the provider", found.join(", "));
    places.sort_unstable_by_key(|place| place.offset);
    Ok(places)
}

fn open(path: &Path) -> anyhow::Result<ReadCache<File>> {
    File::open(path).map(ReadCache::new).with_context(|| path.display().to_string())
}

/// Returns the offset in the file of an address.
fn offset<'a>(file: &object::File<'a, &'a ReadCache<File>>, address: u64) -> anyhow::Result<u64> {
    let of = |segment: object::Segment<'a, '_, &'a ReadCache<File>>| {
        let (begin, size) = segment.file_range();
        let at = address.checked_sub(segment.address()).filter(|at| *at < size)?;
        begin.checked_add(at)
    };
    file.segments().find_map(of).with_context(|| format!("address {address:#x} is not in the file"))
}

/// A note of a static probe.
struct Note<'a> {
    address: u64,
    base: u64,
    semaphore: u64,
    provider: &'a [u8],
    name: &'a [u8],
}

impl Note<'_> {
    fn shown(&self) -> String {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        format!("{}:{}", text(self.provider), text(self.name))
    }
}

/// Reads the next note; none if it is of another kind.
fn next<'a>(notes: &mut Reader<'a>, is_64: bool) -> anyhow::Result<Option<Note<'a>>> {
    let (owner, size, kind) = (notes.u32()?, notes.u32()?, notes.u32()?);
    let owner = notes.take(usize::try_from(owner)?)?;
    notes.align(4);
    let mut body = notes.sub(usize::try_from(size)?)?;
    notes.align(4);
    if kind != STAPSDT || owner != OWNER {
        return Ok(None);
    }
    let mut word =
        || Ok::<u64, anyhow::Error>(if is_64 { body.u64()? } else { body.u32()?.into() });
    let (address, base, semaphore) = (word()?, word()?, word()?);
    let rest = body.take(body.left())?;
    let mut texts = rest.split(|byte| *byte == 0);
    let (provider, name) = (texts.next().unwrap_or_default(), texts.next().unwrap_or_default());
    Ok(Some(Note { address, base, semaphore, provider, name }))
}

//! Reads the symbols of one module from the ELF symbol table that the kernel keeps.

use super::Region;
use crate::memory::Memory;
use crate::{Error, Kernel, Object};
use lastwords_bytes::Reader;
use lastwords_trace::symbols::SymbolRow;
use std::collections::HashMap;
use std::ops::Range;

/// Most bytes of one module's names.
const NAMES_MAX: usize = 16 << 20;
/// Number of bytes read at once.
const PIECE: usize = 4096;

/// Addresses of a module's tables.
pub(super) struct Tables {
    symtab: u64,
    count: u64,
    strtab: u64,
    typetab: u64,
    /// Layout of a symbol.
    entry: Entry,
    /// Names of exported symbols, by address.
    exported: HashMap<u64, Vec<String>>,
}

/// Layout of an ELF symbol: its size, and the offsets of section and value.
#[derive(Debug, Clone, Copy)]
struct Entry {
    size: usize,
    section: usize,
    value: usize,
}

/// One symbol.
#[derive(Debug, Clone)]
struct Row {
    address: u64,
    kind: u8,
    name: Box<str>,
}

/// A module's symbols, in the order of its table.
#[derive(Debug, Clone, Default)]
pub struct ModuleSymbols {
    rows: Vec<Row>,
    /// Indices of `rows`, sorted by address.
    sorted: Vec<u32>,
    /// The same without compiler marks, which never name an address.
    names: Vec<u32>,
}

impl Tables {
    /// Finds a module's tables. `left` is the number of symbols that may still be read, for all
    /// modules together.
    pub(super) fn from_module(
        kernel: &Kernel,
        module: Object<'_>,
        regions: &[Region],
        left: &mut u64,
    ) -> Result<Self, Error> {
        let tables = module.pointer("kallsyms")?;
        let entry = match kernel.memory.word_size() {
            8 => Entry { size: 24, section: 6, value: 8 },
            _ => Entry { size: 16, section: 14, value: 4 },
        };
        let count = take(left, tables.u64("num_symtab")?);
        kernel.budget().steps("symbols of a module", count)?;
        Ok(Self {
            symtab: tables.address("symtab")?,
            count,
            strtab: tables.address("strtab")?,
            // Before Linux 5.2, the kind was in the symbol itself.
            typetab: tables.address("typetab").unwrap_or_default(),
            entry,
            exported: exported(kernel, module, regions, left),
        })
    }

    /// Reads the table; entries that the image lacks are left out.
    pub(super) fn read(&self, memory: &dyn Memory) -> ModuleSymbols {
        let count = usize::try_from(self.count).unwrap_or_default();
        let order = memory.byte_order();
        let table = read_up_to(memory, self.symtab, count.saturating_mul(self.entry.size));
        let kinds = read_up_to(memory, self.typetab, count);
        let parts =
            || table.chunks_exact(self.entry.size).map(|raw| Reader::new("symbol", raw, order));
        let last = parts().filter_map(|raw| raw.u32_at(0).ok()).max().unwrap_or_default() as usize;
        let names = read_up_to(memory, self.strtab, last.saturating_add(512).min(NAMES_MAX));
        let mut rows = Vec::new();
        // The first entry of an ELF symbol table is empty.
        for (index, raw) in parts().enumerate().skip(1) {
            if let Some(row) = self.row(&raw, &names, kinds.get(index).copied()) {
                rows.push(row);
            }
        }
        let mut sorted: Vec<u32> = (0..u32::try_from(rows.len()).unwrap_or_default()).collect();
        sorted.sort_by_key(|index| rows.get(*index as usize).map(|row| row.address));
        let is_name = |index: &&u32| {
            rows.get(**index as usize).is_some_and(|row| !is_mark(row.name.as_bytes()))
        };
        let names = sorted.iter().filter(is_name).copied().collect();
        ModuleSymbols { rows, sorted, names }
    }

    fn row(&self, raw: &Reader<'_>, names: &[u8], kind: Option<u8>) -> Option<Row> {
        let address = match self.entry.size {
            24 => raw.u64_at(self.entry.value).ok()?,
            _ => raw.u32_at(self.entry.value).ok()?.into(),
        };
        if raw.u16_at(self.entry.section).ok()? == 0 {
            return None;
        }
        let name = names.get(raw.u32_at(0).ok()? as usize..)?.split(|b| *b == 0).next()?;
        if name.is_empty() {
            return None;
        }
        let name = String::from_utf8_lossy(name);
        let exported = self
            .exported
            .get(&address)
            .is_some_and(|names| names.iter().any(|other| *other == name));
        let kind = kind.unwrap_or(b'?');
        let kind = if exported { kind.to_ascii_uppercase() } else { kind.to_ascii_lowercase() };
        Some(Row { address, kind, name: name.into() })
    }
}

impl ModuleSymbols {
    /// Address of the first symbol with this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<u64> {
        self.named(name).next()
    }

    /// Addresses of the symbols with this name.
    pub fn named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = u64> + 'a {
        self.rows.iter().filter(move |row| &*row.name == name).map(|row| row.address)
    }

    /// Number of symbols.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// True if there are no symbols.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Calls `each` with every symbol, in order of address.
    pub fn each(&self, each: &mut dyn FnMut(SymbolRow<'_>)) {
        for row in self.sorted.iter().filter_map(|index| self.rows.get(*index as usize)) {
            each(SymbolRow {
                address: row.address,
                kind: row.kind.into(),
                name: &row.name,
                module: None,
            });
        }
    }

    /// Name, address and size of the symbol that contains `address`, which is in `region`.
    pub(super) fn at(&self, address: u64, region: &Range<u64>) -> Option<(String, u64, u64)> {
        let start = |index: &u32| self.rows.get(*index as usize).map_or(0, |row| row.address);
        let behind = self.names.partition_point(|index| start(index) <= address);
        let place = start(self.names.get(behind.checked_sub(1)?)?);
        if place < region.start {
            return None;
        }
        // Of several symbols at one address, take the first of the table: the sort kept their
        // order.
        let first = self.names.partition_point(|index| start(index) < place);
        let name = &self.rows.get(*self.names.get(first)? as usize)?.name;
        let next = self.names.get(behind).map_or(region.end, |index| start(index).min(region.end));
        Some((name.to_string(), place, next.wrapping_sub(place)))
    }
}

/// Takes up to `count` from `left`; returns the number taken.
fn take(left: &mut u64, count: u64) -> u64 {
    let taken = count.min(*left);
    *left = left.saturating_sub(taken);
    taken
}

/// True for marks of compilers and assemblers, which the kernel ignores when it names an address:
/// `.L…`, `L0…`, `$x`, `$d`, ….
fn is_mark(name: &[u8]) -> bool {
    match name {
        [b'.', b'L', ..] | [b'L', b'0', ..] => true,
        [b'$', b'a' | b'd' | b't' | b'x', rest @ ..] => matches!(rest.first(), None | Some(b'.')),
        _ => false,
    }
}

/// Reads from `address` on, up to `len` bytes or to the first missing page.
fn read_up_to(memory: &dyn Memory, address: u64, len: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while address != 0 && bytes.len() < len {
        let at = address.wrapping_add(bytes.len() as u64);
        let page = PIECE.saturating_sub((at & 4095) as usize);
        let part = page.min(len.saturating_sub(bytes.len()));
        let old = bytes.len();
        bytes.resize(old.saturating_add(part), 0);
        if memory.read(at, bytes.get_mut(old..).unwrap_or_default()).is_err() {
            bytes.truncate(old);
            break;
        }
    }
    bytes
}

/// Reads the addresses and names of a module's exported symbols. On most machines the members are
/// offsets from their own address.
fn exported(
    kernel: &Kernel,
    module: Object<'_>,
    regions: &[Region],
    left: &mut u64,
) -> HashMap<u64, Vec<String>> {
    let mut found: HashMap<u64, Vec<String>> = HashMap::new();
    // Until Linux 7.0, symbols exported only to GPL modules are in a separate table, which
    // /proc/kallsyms does not use.
    let count = take(left, module.u64("num_syms").unwrap_or_default());
    for index in 0..count {
        let Ok(symbol) = module.element("syms", index) else { break };
        let inside = |region: &Region| region.range.contains(&symbol.place());
        if !regions.iter().any(inside) || kernel.budget().steps("exported symbols", 1).is_err() {
            break;
        }
        if let Ok((value, name)) = export(kernel, symbol) {
            found.entry(value).or_default().push(name);
        }
    }
    found
}

fn export(kernel: &Kernel, symbol: Object<'_>) -> Result<(u64, String), Error> {
    if !symbol.has("value_offset") {
        return Ok((symbol.u64("value")?, symbol.text("name")?));
    }
    let target = |path: &str| -> Result<u64, Error> {
        let place = symbol.at(path)?.place();
        Ok(place.wrapping_add_signed(symbol.i64(path)?))
    };
    let name = kernel
        .memory
        .text(target("name_offset")?, 512)
        .map_err(Error::hole("name of an exported symbol"))?;
    Ok((target("value_offset")?, name))
}

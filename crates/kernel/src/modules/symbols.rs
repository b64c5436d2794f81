//! Reads the symbols of one module from the ELF symbol table that the kernel keeps.

use crate::memory::Memory;
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
    pub(super) symtab: u64,
    pub(super) count: u64,
    pub(super) strtab: u64,
    pub(super) typetab: u64,
    /// Layout of a symbol.
    pub(super) entry: Entry,
    /// Names of exported symbols, by address.
    pub(super) exported: HashMap<u64, Vec<String>>,
}

/// Layout of an ELF symbol: its size, and the offsets of section and value.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) size: usize,
    pub(super) section: usize,
    pub(super) value: usize,
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

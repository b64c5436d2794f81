//! Finds the kernel's own symbol table by its contents: in the file of a kernel, and in a dump
//! whose VMCOREINFO has no addresses of the tables (kernels before Linux 6.0).
//!
//! The order of the tables is that of `scripts/kallsyms.c`: the number of symbols, their names, a
//! marker for each 256 names, the expansions of the tokens, the offset of each expansion. The
//! offsets of the symbols, and the base of these offsets, follow (Linux 6.4 and later) or come
//! before the number of symbols. The table of expansions is found first, because the tokens of the
//! digits expand to themselves.

use super::names::{BLOCK, name_len};
use super::{Around, Kallsyms, Tables};
use crate::Error;
use crate::memory::Memory;
use crate::vmcoreinfo::VmcoreInfo;
use lastwords_bytes::{Budget, ByteOrder, Error as BytesError, Reader};

/// Name of the searched bytes in errors.
const WHAT: &str = "kernel image";
/// The expansions of the ten digits.
const DIGITS: &[u8] = b"0\x001\x002\x003\x004\x005\x006\x007\x008\x009\x00";
/// Number of tokens before that of the digit 0.
const BEFORE_DIGITS: usize = 0x30;
const TOKENS: usize = 256;
/// Longest expansion of a token.
const EXPANSION_MAX: usize = 1024;
/// Most bytes of the names after the last marker.
const LAST_NAMES_MAX: usize = BLOCK * 514;
/// Most markers: 4 million symbols.
const MARKERS_MAX: usize = 1 << 14;
/// Most bytes of a kernel in memory that are searched.
const IMAGE_MAX: usize = 256 << 20;
/// Number of bytes of a kernel in memory that are read at once.
const STEP: usize = 4 << 20;
/// A kernel in memory ends before so many bytes of which none is there. Between its sections, pages
/// are unmapped too.
const GAP: usize = 16 << 20;

/// Finds and reads the symbol table of a kernel in memory. VMCOREINFO has the begin of its code,
/// and the addresses of some symbols, by which the table is proven.
///
/// # Errors
/// VMCOREINFO has no address of the code, no table is found there, or the budget is spent.
pub(crate) fn in_memory(
    memory: &dyn Memory,
    info: &VmcoreInfo,
    budget: &Budget,
) -> Result<Kallsyms, Error> {
    let missing = |why: &str| {
        Error::NoSymbol(format!("kallsyms_names in VMCOREINFO, and {why} (give a System.map)"))
    };
    let begin = info.symbol("_stext").ok_or_else(|| missing("no _stext"))?;
    let begin = begin.saturating_sub(begin & memory.page_size().saturating_sub(1));
    let image = read_image(memory, begin, budget)?;
    let is_right = |symbols: &Kallsyms| {
        let known = info.symbols().filter(|(name, _)| symbols.find(name).is_some());
        let has = |name: &str, address| {
            symbols.named(name).any(|index| symbols.address(index) == address)
        };
        let (right, wrong): (Vec<_>, Vec<_>) =
            known.partition(|(name, address)| has(name, *address));
        // Of a few variables, VMCOREINFO has the value in place of the address (`mem_section`).
        right.len() > wrong.len()
    };
    let found = in_part(memory, (begin, &image), &is_right, budget)?;
    found.ok_or_else(|| missing("its memory has no symbol table that is whole"))
}

/// The bytes of a kernel from its code on. Missing parts are zero.
fn read_image(memory: &dyn Memory, begin: u64, budget: &Budget) -> Result<Vec<u8>, Error> {
    let mut image = Around::default();
    while image.bytes.len() < IMAGE_MAX {
        budget.bytes(WHAT, STEP as u64)?;
        image.read_on(memory, begin.wrapping_add(image.bytes.len() as u64), STEP, WHAT, &mut None);
        let mut end = image.bytes.len();
        for part in image.lacking.iter().rev() {
            if part.end != end {
                break;
            }
            end = part.start;
        }
        if image.bytes.len().saturating_sub(end) >= GAP {
            image.bytes.truncate(end);
            break;
        }
    }
    Ok(image.bytes)
}

/// Finds and reads the symbol table in a part of a kernel: its address and its bytes. `is_right`: a
/// property of the right table.
///
/// # Errors
/// The budget is spent.
pub(crate) fn in_part(
    memory: &dyn Memory,
    (address, bytes): (u64, &[u8]),
    is_right: &dyn Fn(&Kallsyms) -> bool,
    budget: &Budget,
) -> Result<Option<Kallsyms>, Error> {
    for digits in memchr::memmem::find_iter(bytes, DIGITS) {
        budget.steps(WHAT, 1)?;
        let Some(names) = Names::around(bytes, digits) else { continue };
        for tables in names.tables(address) {
            let Ok(symbols) = Kallsyms::read(memory, &tables, budget) else {
                budget.steps(WHAT, 1)?;
                continue;
            };
            if is_right(&symbols) {
                return Ok(Some(symbols));
            }
        }
    }
    Ok(None)
}

/// The error about an image without a symbol table.
pub(crate) fn nothing() -> Error {
    BytesError::value(WHAT, 0, 0, "a symbol table (the kernel option KALLSYMS)").into()
}

/// The tables of names, by their offsets in a part of a kernel.
struct Names {
    count: usize,
    num_syms: usize,
    names: usize,
    token_table: usize,
    token_index: usize,
}

impl Names {
    /// The tables around the expansions of the digits at `digits`, if they agree with each other.
    /// Names may be damaged.
    fn around(bytes: &[u8], digits: usize) -> Option<Self> {
        let reader = Reader::new(WHAT, bytes, ByteOrder::Little);
        let token_table = token_table(bytes, digits)?;
        let token_index = token_index(&reader, token_table)?;
        let markers = Markers::before(&reader, token_table)?;
        let last = *markers.offsets.last()? as usize;
        let most = markers.offsets.len().saturating_mul(BLOCK);
        let first = markers.begin.saturating_sub(last).saturating_sub(LAST_NAMES_MAX) & !3;
        let number = |place: usize| reader.u32_at(place).unwrap_or(0) as usize;
        let fits =
            |place: &usize| number(*place) <= most && number(*place) > most.saturating_sub(BLOCK);
        let places = (first..markers.begin.saturating_sub(last)).step_by(4).filter(fits);
        // The names begin at the next multiple of 4 or 8 after the number.
        let mut candidates = places.flat_map(|place| {
            [place.saturating_add(8), place.saturating_add(4)].map(|n| (place, n))
        });
        let (num_syms, names) = candidates.find(|(place, names)| {
            reader
                .bytes_at(*names, markers.begin.saturating_sub(*names))
                .is_ok_and(|packed| markers.fit(packed, number(*place)))
        })?;
        Some(Self { count: number(num_syms), num_syms, names, token_table, token_index })
    }

    /// The tables with each place that the offsets may have.
    fn tables(&self, address: u64) -> impl Iterator<Item = Tables> {
        let at = move |offset: usize| address.saturating_add(offset as u64);
        let size = self.count.saturating_mul(4);
        let after = self.token_index.saturating_add(TOKENS * 2);
        let base_after = after.saturating_add(size).next_multiple_of(8);
        let base_before = self.num_syms.checked_sub(8);
        let before = base_before.and_then(|base| base.checked_sub(size.next_multiple_of(8)));
        let places = [(Some(after), Some(base_after)), (before, base_before), (Some(after), None)];
        let [names, num_syms, token_table, token_index] =
            [self.names, self.num_syms, self.token_table, self.token_index].map(at);
        places.into_iter().filter_map(move |(offsets, base)| {
            let (offsets, relative_base) = (at(offsets?), base.map(at));
            Some(Tables { names, num_syms, token_table, token_index, offsets, relative_base })
        })
    }
}

/// The begin of the table of expansions, from the place of the digits on backwards.
fn token_table(bytes: &[u8], digits: usize) -> Option<usize> {
    let mut begin = digits;
    for _ in 0..BEFORE_DIGITS {
        let end = begin.checked_sub(1)?;
        let text = bytes.get(end.saturating_sub(EXPANSION_MAX)..end)?;
        let len = text.iter().rev().position(|byte| *byte == 0)?;
        begin = end.checked_sub(len)?;
    }
    begin.is_multiple_of(4).then_some(begin)
}

/// The place of the offsets of the expansions, if they are right.
fn token_index(reader: &Reader<'_>, table: usize) -> Option<usize> {
    let mut offsets = Vec::new();
    let mut at = table;
    for _ in 0..TOKENS {
        offsets.push(u16::try_from(at.saturating_sub(table)).ok()?);
        let left = reader.len().saturating_sub(at).min(EXPANSION_MAX);
        let len = reader.bytes_at(at, left).ok()?.iter().position(|byte| *byte == 0)?;
        at = at.saturating_add(len).saturating_add(1);
    }
    let is_index = |place: &usize| {
        let places = (0usize..).map(|n| place.saturating_add(n.saturating_mul(2)));
        offsets.iter().zip(places).all(|(offset, at)| reader.u16_at(at).ok() == Some(*offset))
    };
    [at.next_multiple_of(8), at.next_multiple_of(4), at.next_multiple_of(2)]
        .into_iter()
        .find(is_index)
}

/// The markers: the offset of each 256th name.
struct Markers {
    /// Offset of the first marker.
    begin: usize,
    offsets: Vec<u32>,
}

impl Markers {
    /// The markers that end at `end`. They rise from 0.
    fn before(reader: &Reader<'_>, end: usize) -> Option<Self> {
        let marker = |at: usize| reader.u32_at(at).ok();
        let mut begin = end.checked_sub(4)?;
        if marker(begin)? == 0 {
            // Four bytes of padding.
            begin = begin.checked_sub(4)?;
        }
        let mut offsets = vec![marker(begin)?];
        while let Some(current) = offsets.last().filter(|current| **current != 0) {
            begin = begin.checked_sub(4)?;
            let before = marker(begin).filter(|before| before < current)?;
            offsets.push(before);
            if offsets.len() > MARKERS_MAX {
                return None;
            }
        }
        offsets.reverse();
        (offsets.len() > 1).then_some(Self { begin, offsets })
    }

    /// True if most blocks of the names lead from their marker to the next one, and the last block
    /// to the end of the names.
    fn fit(&self, packed: &[u8], count: usize) -> bool {
        let blocks = self.offsets.len();
        let mut wrong = 0usize;
        for (block, marker) in self.offsets.iter().enumerate() {
            let names = count.saturating_sub(block.saturating_mul(BLOCK)).min(BLOCK);
            let end = end_of_names(packed, *marker as usize, names);
            let is_right = match self.offsets.get(block.saturating_add(1)) {
                Some(next) => end == Some(*next as usize),
                None => end.is_some_and(|end| packed.len().saturating_sub(end) < 8),
            };
            wrong = wrong.saturating_add(usize::from(!is_right));
            if wrong.saturating_mul(2) > blocks {
                return false;
            }
        }
        true
    }
}

/// The end of `count` names that begin at `at`.
fn end_of_names(packed: &[u8], mut at: usize, count: usize) -> Option<usize> {
    for _ in 0..count {
        let rest = packed.get(at..)?;
        let (len, tokens) =
            name_len(rest).filter(|(len, tokens)| *len > 0 && tokens.len() >= *len)?;
        at = at.saturating_add(rest.len().saturating_sub(tokens.len())).saturating_add(len);
    }
    Some(at)
}

//! Finds the kernel's own symbol table in its image. VMCOREINFO has the addresses only once the kernel runs.
//!
//! The order of the tables is that of `scripts/kallsyms.c`: the number of symbols, their names, a marker for each 256
//! names, the expansions of the tokens, the offset of each expansion, the offsets of the symbols (Linux 6.4 and later). The
//! table of expansions is found first, because the tokens of the digits expand to themselves.

use super::WHAT;
use super::segments::{Segment, Segments};
use crate::Error;
use crate::kallsyms::{Kallsyms, Tables, name_len};
use crate::memory::Memory as _;
use lastwords_bytes::{Budget, ByteOrder, Error as BytesError, Reader};

/// The expansions of the ten digits.
const DIGITS: &[u8] = b"0\x001\x002\x003\x004\x005\x006\x007\x008\x009\x00";
/// Number of tokens before that of the digit 0.
const BEFORE_DIGITS: usize = 0x30;
const TOKENS: usize = 256;
/// Longest expansion of a token.
const EXPANSION_MAX: usize = 1024;
/// Number of names for which there is one marker.
const NAMES_PER_MARKER: usize = 256;
/// Most bytes of the names after the last marker.
const LAST_NAMES_MAX: usize = NAMES_PER_MARKER * 514;
/// Most markers: 4 million symbols.
const MARKERS_MAX: usize = 1 << 14;

/// Finds and reads the symbol table.
pub(super) fn find(segments: &Segments, budget: &Budget) -> Result<Kallsyms, Error> {
    for segment in segments.iter() {
        let mut from = 0usize;
        while let Some(digits) = position(segment.bytes.get(from..).unwrap_or_default(), DIGITS) {
            let at = from.saturating_add(digits);
            from = at.saturating_add(1);
            budget.steps(WHAT, 1)?;
            let Some(names) = Names::around(segment, at) else { continue };
            if let Some(symbols) = names.read(segments, segment.address, budget)? {
                return Ok(symbols);
            }
        }
    }
    let expected = "a symbol table (the kernel option KALLSYMS)";
    Err(BytesError::value(WHAT, 0, 0, expected).into())
}

fn position(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

/// The tables of names, by their offsets in a segment.
struct Names {
    count: usize,
    num_syms: usize,
    names: usize,
    token_table: usize,
    token_index: usize,
}

impl Names {
    /// The tables around the expansions of the digits at `digits`, if they are complete and agree with each other.
    fn around(segment: &Segment, digits: usize) -> Option<Self> {
        let reader = Reader::new(WHAT, &segment.bytes, ByteOrder::Little);
        let token_table = token_table(&segment.bytes, digits)?;
        let token_index = token_index(&reader, token_table)?;
        let (markers, last) = markers(&reader, token_table)?;
        let count = token_table.saturating_sub(markers) / 4;
        let first = markers.saturating_sub(last).saturating_sub(LAST_NAMES_MAX) & !3;
        let fits = |num_syms: &usize| {
            let most = count.saturating_mul(NAMES_PER_MARKER);
            let number = reader.u32_at(*num_syms).unwrap_or(0) as usize;
            number <= most && number > most.saturating_sub(NAMES_PER_MARKER.saturating_mul(2))
        };
        let places = (first..markers.saturating_sub(last)).step_by(4).filter(fits);
        // The names begin at the next multiple of 4 or 8 after the number.
        let candidates =
            places.flat_map(|place| [place.saturating_add(8), place.saturating_add(4)].map(|n| (place, n)));
        for (num_syms, names) in candidates {
            let count = reader.u32_at(num_syms).unwrap_or(0) as usize;
            if is_marked(&reader, names..markers, count) {
                return Some(Self { count, num_syms, names, token_table, token_index });
            }
        }
        None
    }

    /// Reads the table with and without a base of the offsets. The right way gives the symbol of the kernel's version the
    /// address of that text.
    fn read(&self, segments: &Segments, base: u64, budget: &Budget) -> Result<Option<Kallsyms>, Error> {
        let at = |offset: usize| base.saturating_add(offset as u64);
        let after = self.token_index.saturating_add(TOKENS * 2);
        let size = self.count.saturating_mul(4);
        let base_after = after.saturating_add(size).next_multiple_of(8);
        for (offsets, relative_base) in [(after, Some(base_after)), (after, None)] {
            let tables = Tables {
                names: at(self.names),
                num_syms: at(self.num_syms),
                token_table: at(self.token_table),
                token_index: at(self.token_index),
                offsets: at(offsets),
                relative_base: relative_base.map(at),
            };
            let Ok(symbols) = Kallsyms::read(segments, &tables, budget) else {
                budget.steps(WHAT, 1)?;
                continue;
            };
            let banner = symbols.find("linux_banner").and_then(|banner| segments.text(banner, 64).ok());
            if banner.is_some_and(|text| text.starts_with("Linux version ")) {
                return Ok(Some(symbols));
            }
        }
        Ok(None)
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
    [at.next_multiple_of(8), at.next_multiple_of(4), at.next_multiple_of(2)].into_iter().find(is_index)
}

/// The begin of the markers that end at `end`, and the last marker. They rise from 0.
fn markers(reader: &Reader<'_>, end: usize) -> Option<(usize, usize)> {
    let marker = |at: usize| reader.u32_at(at).ok();
    let mut at = end.checked_sub(4)?;
    if marker(at)? == 0 {
        // Four bytes of padding.
        at = at.checked_sub(4)?;
    }
    let last = marker(at)?;
    let mut current = last;
    for _ in 0..MARKERS_MAX {
        if current == 0 {
            return Some((at, usize::try_from(last).ok()?)).filter(|_| last > 0);
        }
        at = at.checked_sub(4)?;
        let before = marker(at)?;
        if before >= current {
            return None;
        }
        current = before;
    }
    None
}

/// True if `count` names are in the range of offsets, each 256th at its marker, which follow the names.
fn is_marked(reader: &Reader<'_>, range: std::ops::Range<usize>, count: usize) -> bool {
    let Ok(packed) = reader.bytes_at(range.start, range.len()) else { return false };
    let mut at = 0usize;
    for index in 0..count {
        if index.is_multiple_of(NAMES_PER_MARKER) {
            let marker = range.end.saturating_add(index.saturating_div(NAMES_PER_MARKER).saturating_mul(4));
            if reader.u32_at(marker).ok().map(|marker| marker as usize) != Some(at) {
                return false;
            }
        }
        let rest = packed.get(at..).unwrap_or_default();
        let Some((len, tokens)) = name_len(rest).filter(|(len, tokens)| *len > 0 && tokens.len() >= *len) else {
            return false;
        };
        at = at.saturating_add(rest.len().saturating_sub(tokens.len())).saturating_add(len);
    }
    packed.len().saturating_sub(at) < 8
}

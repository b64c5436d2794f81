//! The packed names.

use super::{Around, PIECE, Tables, WHAT};
use crate::Error;
use crate::memory::Memory;
use lastwords_bytes::Budget;

/// Most bytes of packed names that are accepted; real kernels have 3 MB.
const NAMES_MAX: u64 = 64 << 20;

/// Number of symbols for which `kallsyms_markers` has one offset.
pub(super) const BLOCK: usize = 256;

/// Stands for the place of a name that is not known.
pub(super) const NO_PLACE: u32 = u32::MAX;

/// Length of a packed name, and the bytes from its tokens on.
pub(crate) fn name_len(packed: &[u8]) -> Option<(usize, &[u8])> {
    let (first, rest) = packed.split_first()?;
    if first & 0x80 == 0 {
        return Some((usize::from(*first), rest));
    }
    let (second, rest) = rest.split_first()?;
    Some((usize::from(first & 0x7f) | usize::from(*second) << 7, rest))
}

/// Packed names, and the offset of each, or [`NO_PLACE`].
#[derive(Default)]
pub(super) struct Names {
    pub(super) packed: Vec<u8>,
    pub(super) places: Vec<u32>,
}

/// The packed names while they are read.
struct Reading<'a> {
    memory: &'a dyn Memory,
    tables: &'a Tables,
    /// Number of the names.
    count: usize,
    names: Around,
    places: Vec<u32>,
    /// The kernel's markers, once they were needed.
    markers: Option<Markers>,
    /// Offset of the next name.
    at: usize,
}

impl Reading<'_> {
    fn markers(&mut self) -> &Markers {
        self.markers.get_or_insert_with(|| {
            Markers::read(self.memory, self.tables, self.count, &self.places)
        })
    }

    /// Checks where a block begins. After a damaged length, each name would be taken for that of
    /// another symbol. The marker of the next block shows that.
    fn check_begin(&mut self) {
        if !self.places.len().is_multiple_of(BLOCK) || self.places.is_empty() {
            return;
        }
        let (block, at) = (self.places.len() / BLOCK, self.at);
        if let Some(next) = self.markers().offset(block).filter(|next| *next != at) {
            forget_last(&mut self.places, BLOCK);
            self.at = next;
        }
    }

    /// Goes on at the next marker, behind a part that is missing or damaged. Returns false if there
    /// is none.
    fn skip(&mut self, is_missing: bool) -> bool {
        if !is_missing {
            // The name before a part of zeros may end in it, and a damaged length may have led
            // here.
            let unfinished = self.places.len() % BLOCK;
            forget_last(&mut self.places, unfinished.max(1));
        }
        let block = (self.places.len() / BLOCK).saturating_add(1);
        let is_inside = block.saturating_mul(BLOCK) < self.count;
        let Some(next) = self.markers().offset(block).filter(|_| is_inside) else { return false };
        self.places.resize(block.saturating_mul(BLOCK), NO_PLACE);
        self.at = next;
        true
    }

    /// Checks where the last name ends, if all were read.
    fn check_end(&mut self) {
        let (at, count) = (self.at, self.count);
        if self.places.len() == count && !self.markers().end_at(at) {
            let others = count.saturating_sub(1) % BLOCK;
            forget_last(&mut self.places, others.saturating_add(1));
        }
    }
}

/// Reads the packed names. A name has no length of 0, so that a part that reads as zero is one that
/// is missing. Behind a missing part, the names go on at the next of the kernel's markers.
pub(super) fn read_names(
    memory: &dyn Memory,
    tables: &Tables,
    count: usize,
    budget: &Budget,
    missing: &mut Option<Error>,
) -> Result<Names, Error> {
    // The tokens follow the names in memory. If they do not, the names end after the counted
    // number.
    let bound = tables.token_table.checked_sub(tables.names).unwrap_or(NAMES_MAX).min(NAMES_MAX);
    let (names, places) = (Around::default(), Vec::new());
    let mut reading = Reading { memory, tables, count, names, places, markers: None, at: 0 };
    while reading.places.len() < count {
        reading.check_begin();
        let (at, names) = (reading.at, &reading.names);
        let is_all = names.bytes.len() as u64 >= bound;
        let rest = names.bytes.get(at..).unwrap_or_default();
        let packed = name_len(rest);
        let size_of_len = packed.map_or(1, |(_, tokens)| rest.len().saturating_sub(tokens.len()));
        let is_missing = names.lacking(at, at.saturating_add(size_of_len)).is_some();
        match packed {
            Some((len, tokens)) if len > 0 && tokens.len() >= len && !is_missing => {
                let end = at.saturating_add(size_of_len).saturating_add(len);
                let is_there = names.lacking(at, end).is_none();
                let place = if is_there { u32::try_from(at).ok() } else { None };
                reading.places.push(place.unwrap_or(NO_PLACE));
                reading.at = end;
            }
            Some((len, tokens)) if len == 0 || is_missing || (tokens.len() < len && is_all) => {
                if !reading.skip(is_missing) {
                    break;
                }
            }
            _ if is_all => {
                let unfinished = reading.places.len() % BLOCK;
                forget_last(&mut reading.places, unfinished);
                break;
            }
            _ => {
                let read = names.bytes.len() as u64;
                let left = usize::try_from(bound.saturating_sub(read)).unwrap_or(PIECE);
                budget.bytes(WHAT, PIECE as u64)?;
                let from = tables.names.wrapping_add(read);
                reading.names.read_on(memory, from, left.min(PIECE), "kallsyms_names", missing);
            }
        }
    }
    reading.check_end();
    let Reading { names, places, .. } = reading;
    match missing.take() {
        Some(error) if places.iter().all(|place| *place == NO_PLACE) => Err(error),
        error => {
            *missing = error;
            Ok(Names { packed: names.bytes, places })
        }
    }
}

/// Forgets the last `count` names.
fn forget_last(places: &mut [u32], count: usize) {
    let from = places.len().saturating_sub(count);
    places.iter_mut().skip(from).for_each(|place| *place = NO_PLACE);
}

/// `kallsyms_markers`: the offset of each 256th name. They stand between the names and the tokens.
#[derive(Default)]
struct Markers {
    /// Empty if they are not known.
    offsets: Vec<u32>,
    /// Offset from the names of the first marker.
    place: u64,
}

impl Markers {
    /// Reads them. There are none if the numbers there are not those of the names that are known.
    fn read(memory: &dyn Memory, tables: &Tables, count: usize, places: &[u32]) -> Self {
        let size = (count.div_ceil(BLOCK) as u64).saturating_mul(4);
        let read = |alignment| {
            let at = tables.token_table.wrapping_sub(size.next_multiple_of(alignment));
            let number = |index: u64| memory.number(at.wrapping_add(index.saturating_mul(4)), 4);
            let offsets: Result<Vec<u32>, _> = (0..size / 4)
                .map(|index| number(index).map(|n| u32::try_from(n).unwrap_or(NO_PLACE)))
                .collect();
            let (offsets, place) = (offsets.ok()?, at.checked_sub(tables.names)?);
            let mut known =
                places.iter().step_by(BLOCK).zip(&offsets).filter(|(place, _)| **place != NO_PLACE);
            let is_right = offsets.first() == Some(&0)
                && offsets.is_sorted_by(|a, b| a < b)
                && offsets.last().is_some_and(|last| u64::from(*last) < place)
                && known.all(|(place, marker)| place == marker);
            is_right.then_some(Self { offsets, place })
        };
        read(8).or_else(|| read(4)).unwrap_or_default()
    }

    /// The offset of a block's first name, if it is known.
    fn offset(&self, block: usize) -> Option<usize> {
        self.offsets.get(block).map(|offset| *offset as usize)
    }

    /// True if the names may end at `end`: the markers follow, at a multiple of 8 bytes at most.
    fn end_at(&self, end: usize) -> bool {
        self.offsets.is_empty()
            || self.place.checked_sub(end as u64).is_some_and(|padding| padding < 8)
    }
}

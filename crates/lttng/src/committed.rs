//! Finds out how far open sub-buffers were written, from the tracer's tables of commit counters. A
//! table is recognized by the numbers that it must contain.
//!
//! A ring has a row for each of its sub-buffers: bytes committed, and bytes committed without a
//! hole (`struct commit_counters_hot` of lttng-modules, 2.13 to 2.16). Both count from the start of
//! the ring. All sub-buffers except the one being written are full, so the number of that
//! sub-buffer determines the counters in all other rows.

use lastwords_bytes::{Budget, Error};
use lastwords_image::process_pages::{pieces, words};
use lastwords_image::{Image, Watch};
use std::collections::HashMap;
use std::sync::Arc;

/// Size of a row, bytes.
const ROW: u64 = 16;
/// The same number as a length of memory.
const ROW_LEN: usize = 16;
/// A table has two to the power of 1 to `ROWS_BITS` rows.
const ROWS_BITS: u32 = 12;

/// A sub-buffer that is being written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Open {
    /// Number of its packet in the stream.
    pub(super) sequence: u64,
    /// Size of the sub-buffer, bytes.
    pub(super) size: u64,
}

/// The expected contents of a table with `rows` rows for an open sub-buffer.
#[derive(Debug, Clone, Copy)]
struct Table {
    open: usize,
    rows: u64,
    /// Index of the open sub-buffer's row, and of the row that is searched for.
    row: u64,
    known: u64,
    /// Counters of a full sub-buffer in rows before the open one, and in rows after it; `begin` is
    /// also where the open one started.
    full: u64,
    begin: u64,
}

impl Table {
    fn new(number: usize, open: Open, rows: u64) -> Option<Self> {
        let (row, lap) = (open.sequence.checked_rem(rows)?, open.sequence.checked_div(rows)?);
        let begin = lap.checked_mul(open.size)?;
        let full = begin.checked_add(open.size)?;
        let known = row.checked_sub(1).unwrap_or(rows.saturating_sub(1));
        let table = Self { open: number, rows, row, known, full, begin };
        (table.counter(known) != 0).then_some(table)
    }

    fn counter(&self, row: u64) -> u64 {
        if row < self.row { self.full } else { self.begin }
    }

    /// Number of bytes written to the open sub-buffer, if this table has its known row at address
    /// `at`.
    fn end(&self, image: &dyn Image, at: u64) -> Option<u64> {
        let first = at.checked_sub(self.known.saturating_mul(ROW))?;
        let own = first.checked_add(self.row.saturating_mul(ROW))?;
        let mut raw = [0u8; ROW_LEN];
        image.read(own, &mut raw).ok()?;
        let mut row = words(own, &raw).map(|(_, word)| word);
        let (committed, contiguous) = (row.next()?, row.next()?);
        // A full sub-buffer would have a closed header.
        let fits = self.begin <= contiguous && contiguous <= committed && committed < self.full;
        if !fits {
            return None;
        }
        let mut raw = vec![0u8; usize::try_from(self.rows.saturating_mul(ROW)).ok()?];
        image.read(first, &mut raw).ok()?;
        let is_known = |(place, word): (u64, u64)| {
            let row = place.saturating_sub(first).checked_div(ROW).unwrap_or(0);
            row == self.row || word == self.counter(row)
        };
        words(first, &raw).all(is_known).then_some(contiguous.saturating_sub(self.begin))
    }
}

/// Returns for each open sub-buffer its possible ends, bytes from its start: empty if no table is
/// found, several if tables of more than one ring fit.
///
/// # Errors
/// The budget is spent.
pub(super) fn ends(
    image: &Arc<dyn Image>,
    open: &[Open],
    budget: &Budget,
    watch: Watch<'_>,
) -> Result<Vec<Vec<u64>>, Error> {
    let mut found = vec![Vec::new(); open.len()];
    let mut tables: HashMap<u64, Vec<Table>> = HashMap::new();
    for (number, open) in open.iter().enumerate() {
        for table in (1..=ROWS_BITS).filter_map(|bits| Table::new(number, *open, 1 << bits)) {
            tables.entry(table.counter(table.known)).or_default().push(table);
        }
    }
    if tables.is_empty() {
        return Ok(found);
    }
    pieces(&**image, "looking for commit counters", budget, watch, |at, bytes| {
        let mut before = 0u64;
        for (place, word) in words(at, bytes) {
            let is_row =
                std::mem::replace(&mut before, word) == word && word != 0 && place % ROW != 0;
            let Some(tables) = tables.get(&word).filter(|_| is_row) else { continue };
            for table in tables {
                budget.steps("commit counters", table.rows)?;
                let end = table.end(&**image, place.saturating_sub(8));
                let Some(ends) = found.get_mut(table.open) else { continue };
                ends.extend(end.filter(|end| !ends.contains(end)));
            }
        }
        Ok(())
    })?;
    found.iter_mut().for_each(|ends| ends.sort_unstable());
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory;
    use lastwords_image::unwatched;

    fn ends_of(counters: &[(u64, u64)], sequence: u64) -> Vec<u64> {
        let rows = counters.iter().enumerate();
        let words: Vec<(u64, u64)> = rows
            .flat_map(|(n, row)| [(0x2340 + 16 * n as u64, row.0), (0x2348 + 16 * n as u64, row.1)])
            .collect();
        let image: Arc<dyn Image> = memory(&words);
        let open = [Open { sequence, size: 0x4000 }];
        ends(&image, &open, &Budget::default(), &unwatched).expect("within the budget").remove(0)
    }

    #[test]
    fn a_table_is_known_by_its_other_rows() {
        // Four sub-buffers, the eleventh packet (number 10) in the third: two were filled three
        // times, one twice.
        let full = |laps: u64| (0x4000 * laps, 0x4000 * laps);
        assert_eq!(ends_of(&[full(3), full(3), (0x9000, 0x8f00), full(2)], 10), [0xf00]);
        // The open row is full; a row was not filled; more was committed than a sub-buffer holds;
        // nothing was committed in this lap.
        assert!(ends_of(&[full(3), full(3), full(3), full(2)], 10).is_empty());
        assert!(ends_of(&[full(2), full(3), (0x9000, 0x8f00), full(2)], 10).is_empty());
        assert!(ends_of(&[full(3), full(3), (0xc001, 0x8f00), full(2)], 10).is_empty());
        assert!(ends_of(&[full(3), full(3), (0x9000, 0x7f00), full(2)], 10).is_empty());
    }

    #[test]
    fn the_first_row_goes_on_behind_the_last() {
        assert_eq!(ends_of(&[(0x8123, 0x8123), (0x8000, 0x8000)], 4), [0x123]);
        // For the first packet of a ring, no other row has a counter to recognize.
        assert!(ends_of(&[(0x123, 0x123), (0, 0)], 0).is_empty());
        assert_eq!(ends_of(&[(0x4000, 0x4000), (0x123, 0x123), (0, 0), (0, 0)], 1), [0x123]);
    }
}

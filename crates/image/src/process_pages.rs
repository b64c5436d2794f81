//! Finds which pages of physical memory are consecutive in a process, from the page tables that are
//! in the same memory.
//!
//! No pointer leads to the page tables. An entry is recognized by the page that it names and by the
//! bits of a user-space entry: present, and accessible to programs (x86-64; arm64 with 4 KiB
//! pages). The tables of the next level are found in the same way.

use crate::{Hole, HoleCause, Image, Progress, Range, Watch, front, read_parts};
use lastwords_bytes::{Budget, Error};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// Size of a page, bytes. On machines with larger pages, only data that fit into one page are
/// found.
pub const PAGE: u64 = 4096;
/// The same number as a length of memory.
pub const PAGE_LEN: usize = 4096;
/// Number of bytes read at once.
const PIECE: usize = 1 << 20;
/// Mask of the page address in an entry.
const ADDRESS: u64 = 0x0000_ffff_ffff_f000;
/// Size of an entry, bytes.
const ENTRY: u64 = 8;
/// Most entries kept for one page; a page has as many as processes map it.
const SHARED_MAX: usize = 64;

/// Kind of page tables to search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// Page tables of processes.
    Process,
    /// Page tables of the kernel, only entries of writable pages. They include the direct map of
    /// all memory, where pages are in physical order.
    Kernel,
}

impl Whose {
    /// Address of the page that an entry names, if the entry is one of this kind.
    fn named(self, entry: u64) -> Option<u64> {
        let is_used = match self {
            // x86-64: present, user. arm64: valid, accessed, inner shareable, accessible to
            // programs.
            Self::Process => entry & 5 == 5 || entry & 0x743 == 0x743,
            // x86-64: present, writable. arm64: a valid page.
            Self::Kernel => entry & 3 == 3,
        };
        is_used.then_some(entry & ADDRESS).filter(|page| *page != 0)
    }
}

/// Address of the lower table that an entry of a higher table names.
fn table(entry: u64) -> Option<u64> {
    let is_table = entry & 0xfff == 3 || entry & 0x85 == 5;
    is_table.then_some(entry & ADDRESS).filter(|page| *page != 0)
}

/// Calls `each` with the address and bytes of every piece of data in an image.
///
/// # Errors
/// The budget is spent, or `each` fails.
pub fn pieces(
    image: &dyn Image,
    what: &'static str,
    budget: &Budget,
    watch: Watch<'_>,
    mut each: impl FnMut(u64, &[u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    let total = image.ranges().iter().map(|range| range.len).fold(0, u64::saturating_add);
    let (mut done, mut bytes) = (0u64, Vec::new());
    for range in image.ranges().iter().filter(|range| range.hole.is_none()) {
        let mut at = range.address;
        while at < range.end() {
            // Skip holes of sparse files: they read as zeros.
            let data = image.next_data(at, range.end()) & !PAGE.saturating_sub(1);
            done = done.saturating_add(data.saturating_sub(at));
            at = at.max(data);
            // Pieces start at page boundaries, so that the pages before a hole within a piece are
            // kept.
            let len =
                usize::try_from(range.end().saturating_sub(at)).unwrap_or(usize::MAX).min(PIECE);
            bytes.clear();
            bytes.resize(len, 0);
            let got = match image.read(at, &mut bytes) {
                Ok(()) => len,
                Err(hole) => usize::try_from(hole.address.saturating_sub(at)).unwrap_or(0).min(len),
            };
            each(at, bytes.get(..got).unwrap_or_default())?;
            // Skip only the page that contains the hole.
            let step = if got < len {
                (got as u64 & !PAGE.saturating_sub(1)).saturating_add(PAGE)
            } else {
                len as u64
            };
            budget.bytes(image.name(), step)?;
            at = at.saturating_add(step);
            done = done.saturating_add(step);
            watch(Progress { what, done: done.min(total), total: Some(total) });
        }
    }
    Ok(())
}

/// Iterates over the 64-bit words of a piece, with their addresses.
pub fn words(at: u64, bytes: &[u8]) -> impl Iterator<Item = (u64, u64)> + '_ {
    let words = bytes
        .chunks_exact(8)
        .map(|word| word.first_chunk().map_or(0, |word| u64::from_le_bytes(*word)));
    words.enumerate().map(move |(n, word)| (at.saturating_add((n as u64).saturating_mul(8)), word))
}

/// The page-table entries that name certain pages.
pub struct PageTables<'i> {
    image: &'i dyn Image,
    budget: &'i Budget,
    whose: Whose,
    /// By page: addresses of the entries that name it.
    entries: HashMap<u64, Vec<u64>>,
    /// By table that contains such an entry: addresses of the higher entries that name the table.
    above: HashMap<u64, Vec<u64>>,
}

impl<'i> PageTables<'i> {
    /// Searches the entries that name `wanted` pages, in two passes over the image.
    ///
    /// # Errors
    /// The budget is spent.
    pub fn find(
        image: &'i dyn Image,
        wanted: &HashSet<u64>,
        whose: Whose,
        budget: &'i Budget,
        watch: Watch<'_>,
    ) -> Result<Self, Error> {
        let mut found =
            Self { image, budget, whose, entries: HashMap::new(), above: HashMap::new() };
        if wanted.is_empty() || image.is_virtual() {
            return Ok(found);
        }
        found.entries = naming(image, wanted, |entry| whose.named(entry), budget, watch)?;
        let tables: HashSet<u64> =
            found.entries.values().flatten().map(|at| at & !PAGE.saturating_sub(1)).collect();
        found.above = naming(image, &tables, table, budget, watch)?;
        Ok(found)
    }

    /// Lists `count` pages from `first` on, once for each page table that has `first`; none for a
    /// page that the table lacks. Runs with the most pages come first.
    pub fn runs(&self, first: u64, count: u64) -> Vec<Vec<Option<u64>>> {
        let entries = self.entries.get(&first).map(Vec::as_slice).unwrap_or_default();
        let mut runs: Vec<_> = entries.iter().map(|entry| self.run(*entry, count, false)).collect();
        runs.sort_by_key(|run| std::cmp::Reverse(run.iter().flatten().count()));
        runs.dedup();
        runs
    }

    /// Lists the pages from `first` to the first missing one, at most `most` pages, for each page
    /// table that has `first`; the longest come first.
    pub fn whole_runs(&self, first: u64, most: u64) -> Vec<Vec<u64>> {
        let entries = self.entries.get(&first).map(Vec::as_slice).unwrap_or_default();
        let whole = |entry: &u64| self.run(*entry, most, true).into_iter().flatten().collect();
        let mut runs: Vec<Vec<u64>> = entries.iter().map(whole).collect();
        runs.sort_by_key(|run| std::cmp::Reverse(run.len()));
        runs.dedup();
        runs
    }

    /// With `is_whole`, the run ends before the first missing page.
    fn run(&self, entry: u64, count: u64, is_whole: bool) -> Vec<Option<u64>> {
        let mut pages = Vec::new();
        let (mut at, mut above) = (entry, None);
        // If the budget is spent, the run ends here and the caller's next step fails.
        while (pages.len() as u64) < count && self.budget.steps("page tables", 1).is_ok() {
            let page = self.word(at).and_then(|entry| self.whose.named(entry));
            if is_whole && page.is_none() {
                break;
            }
            pages.push(page);
            at = at.saturating_add(ENTRY);
            if at & PAGE.saturating_sub(1) == 0 && (pages.len() as u64) < count {
                let Some((entry, next)) = self.behind(at.saturating_sub(PAGE), above) else {
                    break;
                };
                (above, at) = (Some(entry), next);
            }
        }
        pages
    }

    /// Address of the table after a table, and of the entry that names it. `entry` is the address
    /// of the table's own entry, if known.
    fn behind(&self, table_at: u64, entry: Option<u64>) -> Option<(u64, u64)> {
        let next = |entry: u64| {
            let next =
                entry.checked_add(ENTRY).filter(|next| next & PAGE.saturating_sub(1) != 0)?;
            Some((next, self.word(next).and_then(table)?))
        };
        match entry {
            Some(entry) => next(entry),
            None => self.above.get(&table_at)?.iter().find_map(|entry| next(*entry)),
        }
    }

    fn word(&self, at: u64) -> Option<u64> {
        let mut raw = [0u8; 8];
        self.image.read(at, &mut raw).ok()?;
        Some(u64::from_le_bytes(raw))
    }
}

/// Addresses of the words that name one of these pages, by page.
fn naming(
    image: &dyn Image,
    wanted: &HashSet<u64>,
    page_of: impl Fn(u64) -> Option<u64>,
    budget: &Budget,
    watch: Watch<'_>,
) -> Result<HashMap<u64, Vec<u64>>, Error> {
    let mut found: HashMap<u64, Vec<u64>> = HashMap::new();
    pieces(image, "looking for page tables", budget, watch, |at, bytes| {
        for (place, word) in words(at, bytes) {
            let Some(page) = page_of(word).filter(|page| wanted.contains(page)) else { continue };
            budget.steps("page tables", 1)?;
            let places = found.entry(page).or_default();
            if places.len() < SHARED_MAX {
                places.push(place);
            }
        }
        Ok(())
    })?;
    Ok(found)
}

/// An image of mappings assembled from pages. Mappings start at `Stitched::BASE`, with an unmapped
/// page between them.
pub struct Stitched {
    image: Arc<dyn Image>,
    /// Pages of each mapping, by its address.
    runs: BTreeMap<u64, Vec<Option<u64>>>,
    ranges: Vec<Range>,
}

impl Stitched {
    /// Address of the first mapping.
    const BASE: u64 = 1 << 40;

    /// Assembles mappings.
    pub fn new(image: &Arc<dyn Image>, mappings: Vec<Vec<Option<u64>>>) -> Self {
        let (mut runs, mut ranges, mut address) = (BTreeMap::new(), Vec::new(), Self::BASE);
        for pages in mappings {
            let len = (pages.len() as u64).saturating_mul(PAGE);
            let first = pages.first().copied().flatten().unwrap_or(0);
            let name = format!("{}, pages from {first:#x} on", image.name());
            ranges.push(Range { address, len, name: name.into(), offset: 0, hole: None });
            runs.insert(address, pages);
            address = address.saturating_add(len).saturating_add(PAGE);
        }
        Self { image: Arc::clone(image), runs, ranges }
    }

    fn page(&self, address: u64) -> Option<u64> {
        let (begin, pages) = self.runs.range(..=address).next_back()?;
        pages
            .get(usize::try_from(address.checked_sub(*begin)?.checked_div(PAGE)?).ok()?)
            .copied()
            .flatten()
    }
}

impl Image for Stitched {
    fn name(&self) -> &str {
        self.image.name()
    }

    fn ranges(&self) -> &[Range] {
        &self.ranges
    }

    fn read(&self, address: u64, buf: &mut [u8]) -> Result<(), Hole> {
        read_parts(address, buf, |at, rest| {
            let inside = at & PAGE.saturating_sub(1);
            let unmapped = Hole { address: at, cause: HoleCause::Unmapped };
            let from = self.page(at).ok_or(unmapped)?.saturating_add(inside);
            let part = front(rest, PAGE.saturating_sub(inside));
            self.image.read(from, part).map_err(|gone| Hole {
                address: at.saturating_add(gone.address.saturating_sub(from)),
                cause: gone.cause,
            })?;
            Ok(part.len())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unwatched;

    /// 128 KiB of memory with the given words at the given addresses.
    fn memory(words: &[(u64, u64)]) -> Arc<dyn Image> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), lastwords_testkit::put::words(words)).unwrap();
        crate::open(file.path(), &Budget::default(), &unwatched).unwrap().image
    }

    /// A sparse file of a terabyte in which two pages were written.
    #[test]
    fn holes_of_sparse_files_cost_nothing() {
        use std::os::unix::fs::FileExt;
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 40).unwrap();
        for at in [0, (1 << 39) + 5 * PAGE] {
            file.as_file().write_all_at(&[7; PAGE_LEN], at).unwrap();
        }
        let image = crate::open(file.path(), &Budget::default(), &unwatched).unwrap().image;
        let (mut sevens, mut seen) = (0, 0);
        pieces(&*image, "", &Budget::default(), &unwatched, |_, bytes| {
            sevens += bytes.iter().filter(|byte| **byte == 7).count();
            seen += bytes.len();
            Ok(())
        })
        .unwrap();
        assert_eq!(sevens, 2 * PAGE_LEN);
        assert!(seen <= 2 * PIECE, "{seen} bytes");
    }

    #[test]
    fn a_run_goes_on_in_the_next_table() {
        // Entries 510 and 511 of the table at 0x3000 and entries 0 and 2 of the table at 0x7000
        // name the pages. Both tables are named by the table at 0x9000. An entry of the kernel's
        // direct map, at 0x2000, names the first page too.
        let user = 0x8000_0000_0000_0067u64;
        let image = memory(&[
            (0x3ff0, user | 0x10000),
            (0x3ff8, user | 0x5000),
            (0x7000, user | 0x11000),
            (0x7010, user | 0x6000),
            (0x9020, 0x3067),
            (0x9028, 0x7067),
            (0x2000, 0x8000_0000_0000_0163 | 0x10000),
        ]);
        let budget = Budget::default();
        let tables = PageTables::find(
            &*image,
            &HashSet::from([0x10000]),
            Whose::Process,
            &budget,
            &unwatched,
        )
        .unwrap();
        let run = vec![Some(0x10000), Some(0x5000), Some(0x11000), None, Some(0x6000)];
        assert_eq!(tables.runs(0x10000, 5), std::slice::from_ref(&run));
        assert_eq!(tables.runs(0x5000, 1), Vec::<Vec<_>>::new());
        let stitched = Stitched::new(&image, vec![run]);
        let mut bytes = [0u8; 16];
        assert!(stitched.read(Stitched::BASE + 0x1ff8, &mut bytes).is_ok());
        let hole = stitched.read(Stitched::BASE + 0x2ff8, &mut bytes).unwrap_err();
        assert_eq!((hole.address, hole.cause), (Stitched::BASE + 0x3000, HoleCause::Unmapped));
    }

    #[test]
    fn entries_of_two_machines() {
        assert_eq!(Whose::Process.named(0x00e8_0000_1234_5f43), Some(0x1234_5000));
        assert_eq!(Whose::Process.named(0x8000_0000_1234_5867), Some(0x1234_5000));
        // Not present; an entry of the kernel; an empty entry.
        assert_eq!(Whose::Process.named(0x8000_0000_1234_5866), None);
        assert_eq!(Whose::Process.named(0x8000_0000_1234_5163), None);
        assert_eq!(Whose::Process.named(0), None);
        assert_eq!(Whose::Kernel.named(0x8000_0000_1234_5163), Some(0x1234_5000));
        assert_eq!(
            (table(0x1234_5003), table(0x1234_5067), table(0x1234_50e7)),
            (Some(0x1234_5000), Some(0x1234_5000), None)
        );
    }
}

//! A finished session: its regions, and the files they make.

use std::fs;
use std::io;
use std::path::Path;

use crate::elf::{self, Segment};
use crate::layout::region as rg;
use crate::put::Order;

/// A region.
#[derive(Debug, Clone)]
pub struct Region {
    /// Name of its file.
    pub name: String,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// Where a sub-buffer lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spot {
    /// Index of the stream.
    pub stream: u32,
    /// Half.
    pub half: usize,
    /// Number of the sub-buffer.
    pub number: u64,
    /// Index of the region in [`Image::regions`].
    pub region: usize,
    /// Offset in the region.
    pub at: usize,
    /// Bytes.
    pub len: usize,
}

/// All that a session left in memory.
#[derive(Debug, Clone)]
pub struct Image {
    /// Byte order.
    pub order: Order,
    /// The regions.
    pub regions: Vec<Region>,
    /// Pages of paged streams: address and bytes.
    pub pages: Vec<(u64, Vec<u8>)>,
    /// The sub-buffers that hold something.
    pub spots: Vec<Spot>,
}

/// Where regions lie in the address space of the process that a core is made of.
const REGIONS_BASE: u64 = 0x7f00_0000_0000;
/// Where the heap lies.
const HEAP_BASE: u64 = 0x5600_0000_0000;

impl Image {
    /// All regions one behind the other.
    #[must_use]
    pub fn arena(&self) -> Vec<u8> {
        self.regions.iter().flat_map(|r| r.bytes.iter().copied()).collect()
    }

    /// Offset of a region in the arena.
    #[must_use]
    pub fn offset_of(&self, region: usize) -> usize {
        self.regions[..region].iter().map(|r| r.bytes.len()).sum()
    }

    /// Offset of a sub-buffer in the arena.
    #[must_use]
    pub fn spot_in_arena(&self, spot: &Spot) -> usize {
        self.offset_of(spot.region) + spot.at
    }

    /// Writes one file a region.
    ///
    /// # Errors
    /// What the system said.
    pub fn write_folder(&self, folder: &Path) -> io::Result<()> {
        fs::create_dir_all(folder)?;
        self.regions.iter().try_for_each(|r| fs::write(folder.join(&r.name), &r.bytes))
    }

    /// Writes all regions into one file.
    ///
    /// # Errors
    /// What the system said.
    pub fn write_arena(&self, file: &Path) -> io::Result<()> {
        fs::write(file, self.arena())
    }

    /// A core of the process: regions in mappings apart from each other, the heap's pages, and memory that means nothing.
    #[must_use]
    pub fn core(&self) -> Vec<u8> {
        let mut segments = vec![Segment::new(0x40_0000, &[0x90; 5000])];
        let mut heap: Vec<Segment> = self.pages.iter().map(|(at, bytes)| Segment::new(*at, bytes)).collect();
        heap.sort_by_key(|s| s.address);
        segments.extend(heap);
        let mut at = REGIONS_BASE;
        for region in &self.regions {
            segments.push(Segment::new(at, &region.bytes));
            at += (region.bytes.len() + 3 * rg::PAGE) as u64;
        }
        elf::core(self.order, &segments)
    }

    /// Takes pages for `data` from the heap, in no order, and writes their addresses at `table`.
    pub(crate) fn add_pages(&mut self, region: &mut [u8], table: usize, data: &[u8]) {
        let pages = data.len() / rg::PAGE;
        let base = HEAP_BASE + (self.pages.len() * 2 * rg::PAGE) as u64;
        for (n, page) in data.chunks_exact(rg::PAGE).enumerate() {
            let place = (n * 5 + 3) % pages;
            let place = if pages.is_multiple_of(5) { n } else { place };
            let address = base + (place * 2 * rg::PAGE) as u64;
            self.order.put64(region, table + 8 * n, address);
            self.pages.push((address, page.to_vec()));
        }
    }
}

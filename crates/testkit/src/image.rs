//! A finished session: its regions, and the files made from them.

use std::fs;
use std::io;
use std::path::Path;

use crate::elf::{self, Segment};
use crate::layout::region as rg;
use crate::put::Order;

/// A region.
#[derive(Debug, Clone)]
pub struct Region {
    /// Name of the region's file.
    pub name: String,
    /// Bytes of the region.
    pub bytes: Vec<u8>,
}

/// Location of a sub-buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spot {
    /// Index of the stream.
    pub stream: u32,
    /// Index of the half.
    pub half: usize,
    /// Number of the sub-buffer.
    pub number: u64,
    /// Index of the region in [`Image::regions`].
    pub region: usize,
    /// Offset in the region.
    pub at: usize,
    /// Length, bytes.
    pub len: usize,
}

/// The memory of a session.
#[derive(Debug, Clone)]
pub struct Image {
    /// Byte order.
    pub order: Order,
    /// The regions.
    pub regions: Vec<Region>,
    /// Pages of paged streams: address and bytes.
    pub pages: Vec<(u64, Vec<u8>)>,
    /// The sub-buffers that have content.
    pub spots: Vec<Spot>,
}

/// Address of the first region in the address space of the core.
const REGIONS_BASE: u64 = 0x7f00_0000_0000;
/// Address of the heap.
const HEAP_BASE: u64 = 0x5600_0000_0000;

impl Image {
    /// All regions, concatenated.
    pub fn arena(&self) -> Vec<u8> {
        self.regions.iter().flat_map(|r| r.bytes.iter().copied()).collect()
    }

    /// Offset of a region in the arena.
    pub fn offset_of(&self, region: usize) -> usize {
        self.regions[..region].iter().map(|r| r.bytes.len()).sum()
    }

    /// Offset of a sub-buffer in the arena.
    pub fn spot_in_arena(&self, spot: &Spot) -> usize {
        self.offset_of(spot.region) + spot.at
    }

    /// Writes one file for each region.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn write_folder(&self, folder: &Path) -> io::Result<()> {
        fs::create_dir_all(folder)?;
        self.regions.iter().try_for_each(|r| fs::write(folder.join(&r.name), &r.bytes))
    }

    /// Writes all regions into one file.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn write_arena(&self, file: &Path) -> io::Result<()> {
        fs::write(file, self.arena())
    }

    /// A core of the process: the regions in separate mappings, the pages of the heap, and
    /// unrelated memory.
    pub fn core(&self) -> Vec<u8> {
        let mut segments = vec![Segment::new(0x40_0000, &[0x90; 5000])];
        let mut heap: Vec<Segment> =
            self.pages.iter().map(|(at, bytes)| Segment::new(*at, bytes)).collect();
        heap.sort_by_key(|s| s.address);
        segments.extend(heap);
        let mut at = REGIONS_BASE;
        for region in &self.regions {
            segments.push(Segment::new(at, &region.bytes));
            at += (region.bytes.len() + 3 * rg::PAGE) as u64;
        }
        elf::core(self.order, &segments)
    }

    /// Takes pages for `data` from the heap in shuffled order, and writes their addresses at
    /// `table`.
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

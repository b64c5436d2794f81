//! Walks page tables: translates the kernel's virtual addresses to physical ones.

mod aarch64;
mod x86_64;

use crate::vmcoreinfo::VmcoreInfo;
use lastwords_image::vmcore::Machine;
use lastwords_image::{Cache, Hole, HoleCause, Image};
use std::sync::{Arc, Mutex, PoisonError};

/// Number of bytes of page tables that are read and cached at a time.
const PART: u64 = 4096;
/// Number of such parts that are cached: 4 MiB.
const PARTS: usize = 1024;
/// Most levels of tables.
const MAX_LEVELS: usize = 5;

/// The reason why page tables cannot be walked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// VMCOREINFO lacks a fact that the walk needs.
    #[error("VMCOREINFO has no {key}, so that virtual addresses cannot be followed")]
    Missing {
        /// The missing key.
        key: &'static str,
    },
    /// VMCOREINFO has a value that no machine has.
    #[error("VMCOREINFO says {key}={value:#x}, expected {expected}")]
    Value {
        /// The key.
        key: &'static str,
        /// The value.
        value: u64,
        /// Description of valid values.
        expected: &'static str,
    },
}

/// The mapping of a virtual address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mapping {
    /// Physical address of the virtual address.
    pub physical: u64,
    /// Number of bytes from there to the end of the page, small or huge.
    pub left: u64,
}

/// A decoded table entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entry {
    /// Nothing is mapped.
    None,
    /// Physical address of the next table.
    Table(u64),
    /// Physical address of the page.
    Page(u64),
}

/// A level of tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Level {
    /// Lowest bit of the level's index in an address: log2 of the number of bytes that an entry
    /// maps.
    shift: u32,
    /// Number of bits of the index.
    bits: u32,
}

/// Format of a machine's table entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    X86_64(x86_64::Entries),
    Aarch64(aarch64::Entries),
}

/// A range of virtual addresses with a known mapping that needs no tables: the kernel's image, or
/// the linear map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Direct {
    start: u64,
    len: u64,
    physical: u64,
}

/// The parameters of walking a kernel's tables.
#[derive(Debug, Clone)]
struct Geometry {
    /// Physical address of the top table.
    root: u64,
    /// Levels, from the top.
    levels: Vec<Level>,
    format: Format,
    /// Mask of the upper address bits. In a canonical address they are all set or, on x86-64, all
    /// equal.
    canonical: u64,
    direct: Option<Direct>,
    page_size: u64,
}

/// The page tables of a kernel.
#[derive(Debug)]
pub(crate) struct PageTables {
    geometry: Geometry,
    /// Cached parts of tables, by physical address.
    parts: Mutex<Cache<Arc<[u8]>>>,
}

impl PageTables {
    /// Creates the walker for the tables that VMCOREINFO describes.
    pub(crate) fn new(info: &VmcoreInfo, machine: Machine) -> Result<Self, Error> {
        let geometry = match machine {
            Machine::X86_64 => x86_64::geometry(info)?,
            Machine::Aarch64 => aarch64::geometry(info)?,
        };
        Ok(Self { geometry, parts: Mutex::new(Cache::new(PARTS)) })
    }

    /// Size of a small page, bytes.
    pub(crate) fn page_size(&self) -> u64 {
        self.geometry.page_size
    }

    /// Number of levels of tables.
    pub(crate) fn levels(&self) -> usize {
        self.geometry.levels.len()
    }

    /// Translates `address` with the tables in `memory`.
    ///
    /// # Errors
    /// The address is not mapped ([`HoleCause::Unmapped`]), or the image lacks a table.
    pub(crate) fn translate(&self, memory: &dyn Image, address: u64) -> Result<Mapping, Hole> {
        match self.walk(memory, address) {
            Err(cause) => {
                // If the image lacks a table, the direct mapping may still be known.
                let direct =
                    (cause != HoleCause::Unmapped).then_some(self.geometry.direct).flatten();
                direct
                    .and_then(|d| d.translate(address, self.geometry.page_size))
                    .ok_or(Hole { address, cause })
            }
            Ok(mapping) => Ok(mapping),
        }
    }

    fn walk(&self, memory: &dyn Image, address: u64) -> Result<Mapping, HoleCause> {
        let Geometry { root, levels, format, canonical, .. } = &self.geometry;
        if !format.is_canonical(address, *canonical) {
            return Err(HoleCause::Unmapped);
        }
        let mut table = *root;
        for (depth, level) in levels.iter().enumerate().take(MAX_LEVELS) {
            let last = depth.saturating_add(1) == levels.len();
            let index = low_bits(address.checked_shr(level.shift).unwrap_or(0), level.bits);
            let entry = self.entry(memory, table.saturating_add(index.saturating_mul(8)))?;
            match format.entry(entry, last, level.shift) {
                Entry::None => return Err(HoleCause::Unmapped),
                Entry::Table(next) => table = next,
                Entry::Page(page) => {
                    let within = low_bits(address, level.shift);
                    let len = 1u64.checked_shl(level.shift).unwrap_or(u64::MAX);
                    let physical =
                        page.saturating_sub(low_bits(page, level.shift)).saturating_add(within);
                    return Ok(Mapping { physical, left: len.saturating_sub(within) });
                }
            }
        }
        Err(HoleCause::Unmapped)
    }

    /// Reads the entry at a physical address.
    fn entry(&self, memory: &dyn Image, at: u64) -> Result<u64, HoleCause> {
        let within = at % PART;
        let start = at.saturating_sub(within);
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let part = match parts.find(start) {
            Some(part) => part,
            None => {
                let mut part = vec![0u8; usize::try_from(PART).unwrap_or(0)];
                memory.read(start, &mut part).map_err(|hole| hole.cause.of_a_table())?;
                let part: Arc<[u8]> = part.into();
                parts.keep(start, part.clone());
                part
            }
        };
        let within = usize::try_from(within).unwrap_or(usize::MAX);
        let raw = part.get(within..).and_then(|p| p.first_chunk::<8>()).ok_or(HoleCause::Bad)?;
        Ok(u64::from_le_bytes(*raw))
    }
}

/// Converts the cause of a hole in a table to the cause of the hole that results.
trait OfATable {
    fn of_a_table(self) -> Self;
}

impl OfATable for HoleCause {
    /// If the image does not map a table, the kernel may still have mapped pages in it: the cause
    /// is a missing table.
    fn of_a_table(self) -> Self {
        if self == Self::Unmapped { Self::Excluded } else { self }
    }
}

impl Direct {
    fn translate(&self, address: u64, page_size: u64) -> Option<Mapping> {
        let within = address.checked_sub(self.start).filter(|n| *n < self.len)?;
        let left = page_size.saturating_sub(low_bits(address, page_size.trailing_zeros()));
        // The base of the kernel's image can be negative on x86-64.
        Some(Mapping { physical: self.physical.wrapping_add(within), left })
    }
}

impl Format {
    fn entry(&self, entry: u64, last: bool, shift: u32) -> Entry {
        match self {
            Self::X86_64(entries) => entries.read(entry, last, shift),
            Self::Aarch64(entries) => entries.read(entry, last),
        }
    }

    fn is_canonical(&self, address: u64, bits: u64) -> bool {
        let top = address & bits;
        top == bits || (top == 0 && matches!(self, Self::X86_64(_)))
    }
}

/// The lowest `bits` bits of `value`.
fn low_bits(value: u64, bits: u32) -> u64 {
    match 1u64.checked_shl(bits) {
        Some(above) => value & above.wrapping_sub(1),
        None => value,
    }
}

/// Mask of the bits from `low` to `high`, both included.
const fn bits(high: u32, low: u32) -> u64 {
    u64::MAX.wrapping_shl(low) & u64::MAX.wrapping_shr(63u32.wrapping_sub(high))
}

/// Address of a symbol, or an error that it is missing.
fn symbol(info: &VmcoreInfo, name: &str, key: &'static str) -> Result<u64, Error> {
    info.symbol(name).ok_or(Error::Missing { key })
}

/// A number as 64 bits, or an error that it is missing.
fn number(info: &VmcoreInfo, name: &str, key: &'static str) -> Result<u64, Error> {
    info.number(name).map(i64::cast_unsigned).ok_or(Error::Missing { key })
}

#[cfg(test)]
mod tests;

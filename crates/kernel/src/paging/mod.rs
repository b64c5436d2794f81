//! Page tables: from the kernel's virtual addresses to physical ones.

mod aarch64;
mod x86_64;

use crate::vmcoreinfo::VmcoreInfo;
use lastwords_image::vmcore::Machine;
use lastwords_image::{Cache, Hole, HoleCause, Image};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of page tables that are read and kept at a time.
const PART: u64 = 4096;
/// Parts of page tables that are kept: 4 MiB of them.
const PARTS: usize = 1024;
/// Most levels of tables there are.
const MAX_LEVELS: usize = 5;

/// Why no page tables can be walked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// VMCOREINFO does not say what the walk begins with.
    Missing {
        /// The key that is not there.
        key: &'static str,
    },
    /// VMCOREINFO says something that no machine has.
    Value {
        /// The key.
        key: &'static str,
        /// What stands there.
        value: u64,
        /// What may stand there.
        expected: &'static str,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { key } => write!(f, "VMCOREINFO has no {key}, so that virtual addresses cannot be followed"),
            Self::Value { key, value, expected } => {
                write!(f, "VMCOREINFO says {key}={value:#x}, expected {expected}")
            }
        }
    }
}

impl std::error::Error for Error {}

/// A run of virtual addresses and where it is in physical memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mapping {
    /// Physical address of the address that was asked for.
    pub physical: u64,
    /// Bytes from there to the end of the page, small or huge.
    pub left: u64,
}

/// What an entry of a table says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entry {
    /// Nothing is mapped.
    None,
    /// The next table is there.
    Table(u64),
    /// The page is there.
    Page(u64),
}

/// A level of tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Level {
    /// The lowest bit of its index in an address: log2 of the bytes that an entry maps.
    shift: u32,
    /// How many bits its index has.
    bits: u32,
}

/// What a machine's tables look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    X86_64(x86_64::Entries),
    Aarch64(aarch64::Entries),
}

/// Where physical memory is known to be without tables: the kernel's own image, or the linear map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Direct {
    start: u64,
    len: u64,
    physical: u64,
}

/// What is needed to walk a kernel's tables.
#[derive(Debug, Clone)]
struct Geometry {
    /// Physical address of the top table.
    root: u64,
    /// From the top.
    levels: Vec<Level>,
    format: Format,
    /// Addresses of which these bits are not all set, or for x86-64 not all alike, are not canonical.
    canonical: u64,
    direct: Option<Direct>,
    page_size: u64,
}

/// The page tables of a kernel.
#[derive(Debug)]
pub(crate) struct PageTables {
    geometry: Geometry,
    /// Parts of tables by physical address.
    parts: Mutex<Cache<Arc<[u8]>>>,
}

impl PageTables {
    /// The tables that VMCOREINFO tells of.
    pub(crate) fn new(info: &VmcoreInfo, machine: Machine) -> Result<Self, Error> {
        let geometry = match machine {
            Machine::X86_64 => x86_64::geometry(info)?,
            Machine::Aarch64 => aarch64::geometry(info)?,
        };
        Ok(Self { geometry, parts: Mutex::new(Cache::new(PARTS)) })
    }

    /// Bytes of a small page.
    pub(crate) fn page_size(&self) -> u64 {
        self.geometry.page_size
    }

    /// Walks the tables in `memory` for `address`.
    ///
    /// # Errors
    /// Nothing is mapped there ([`HoleCause::Unmapped`]), or the image lacks a table.
    pub(crate) fn translate(&self, memory: &dyn Image, address: u64) -> Result<Mapping, Hole> {
        match self.walk(memory, address) {
            Err(cause) => {
                // Where a table is not in the image, what the machine is known to map may still be.
                let direct = (cause != HoleCause::Unmapped).then_some(self.geometry.direct).flatten();
                direct.and_then(|d| d.translate(address, self.geometry.page_size)).ok_or(Hole { address, cause })
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
                    let physical = page.saturating_sub(low_bits(page, level.shift)).saturating_add(within);
                    return Ok(Mapping { physical, left: len.saturating_sub(within) });
                }
            }
        }
        Err(HoleCause::Unmapped)
    }

    /// The entry at a physical address.
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

/// What a hole in place of a table means for what the table maps.
trait OfATable {
    fn of_a_table(self) -> Self;
}

impl OfATable for HoleCause {
    /// That a table is not mapped by the image does not say that its pages are not mapped by the kernel: the table is missing.
    fn of_a_table(self) -> Self {
        if self == Self::Unmapped { Self::Excluded } else { self }
    }
}

impl Direct {
    fn translate(&self, address: u64, page_size: u64) -> Option<Mapping> {
        let within = address.checked_sub(self.start).filter(|n| *n < self.len)?;
        let left = page_size.saturating_sub(low_bits(address, page_size.trailing_zeros()));
        // The base of x86-64's image can be negative.
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

/// The lowest `bits` of `value`.
fn low_bits(value: u64, bits: u32) -> u64 {
    match 1u64.checked_shl(bits) {
        Some(above) => value & above.wrapping_sub(1),
        None => value,
    }
}

/// The bits from `low` to `high`, both included.
const fn bits(high: u32, low: u32) -> u64 {
    u64::MAX.wrapping_shl(low) & u64::MAX.wrapping_shr(63u32.wrapping_sub(high))
}

/// A symbol's address, or that it is missing.
fn symbol(info: &VmcoreInfo, name: &str, key: &'static str) -> Result<u64, Error> {
    info.symbol(name).ok_or(Error::Missing { key })
}

/// A number as it stands in 64 bits, or that it is missing.
fn number(info: &VmcoreInfo, name: &str, key: &'static str) -> Result<u64, Error> {
    info.number(name).map(i64::cast_unsigned).ok_or(Error::Missing { key })
}

#[cfg(test)]
mod tests;

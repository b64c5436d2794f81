//! A kernel made of bytes: writers that share nothing with the readers.
#![allow(dead_code, reason = "each test file uses a part")]

pub(crate) mod kallsyms;
pub(crate) mod toy;

use lastwords_bytes::ByteOrder;
use lastwords_image::{Hole, HoleCause};
use lastwords_kernel::memory::Memory;
use std::collections::BTreeMap;

/// Memory of regions by their addresses; what lies between is not there.
#[derive(Clone, Default)]
pub(crate) struct Regions(pub(crate) BTreeMap<u64, Vec<u8>>);

impl Regions {
    pub(crate) fn put(&mut self, address: u64, bytes: &[u8]) {
        let (start, region) = self.0.range_mut(..=address).next_back().expect("a region");
        let at = (address - start) as usize;
        region[at..at + bytes.len()].copy_from_slice(bytes);
    }

    pub(crate) fn put_u32(&mut self, address: u64, value: u32) {
        self.put(address, &value.to_le_bytes());
    }

    pub(crate) fn put_u64(&mut self, address: u64, value: u64) {
        self.put(address, &value.to_le_bytes());
    }

    pub(crate) fn add(&mut self, address: u64, bytes: Vec<u8>) {
        self.0.insert(address, bytes);
    }
}

impl Memory for Regions {
    fn read(&self, address: u64, buf: &mut [u8]) -> Result<(), Hole> {
        let hole = Hole { address, cause: HoleCause::Unmapped };
        let (start, region) = self.0.range(..=address).next_back().ok_or(hole)?;
        let at = usize::try_from(address - start).map_err(|_| hole)?;
        let end = at.checked_add(buf.len()).ok_or(hole)?;
        buf.copy_from_slice(region.get(at..end).ok_or(hole)?);
        Ok(())
    }

    fn byte_order(&self) -> ByteOrder {
        ByteOrder::Little
    }

    fn word_size(&self) -> u8 {
        8
    }

    fn page_size(&self) -> u64 {
        4096
    }
}

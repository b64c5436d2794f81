//! A kernel in memory that a test writes. Tests of other crates use it too, by its path.
#![allow(dead_code, reason = "each user takes a part")]

use lastwords_bytes::{Budget, ByteOrder};
use lastwords_image::{Hole, HoleCause};
use lastwords_kernel::memory::Memory;
use lastwords_kernel::vmcoreinfo::VmcoreInfo;
use lastwords_kernel::{Kernel, Sources};
use lastwords_trace::evidence::{Cause, Gap};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Address of the kernel's first symbol.
pub(crate) const TEXT: u64 = 0xffff_ffff_8100_0000;

/// Memory of regions by their addresses; what lies between is not there.
#[derive(Clone, Default)]
pub(crate) struct Regions(pub(crate) BTreeMap<u64, Vec<u8>>);

impl Regions {
    /// The region that has an address, and where in it that is.
    fn place(&self, address: u64) -> Option<(u64, usize)> {
        let (start, region) = self.0.range(..=address).next_back()?;
        let at = usize::try_from(address - start).ok()?;
        (at < region.len()).then_some((*start, at))
    }

    /// Writes bytes, and adds the pages that are not there.
    pub(crate) fn put(&mut self, address: u64, bytes: &[u8]) {
        for (n, byte) in (0..).zip(bytes) {
            let address = address.wrapping_add(n);
            let page = (address & !4095, (address & 4095) as usize);
            let (start, at) = self.place(address).unwrap_or(page);
            self.0.entry(start).or_insert_with(|| vec![0; 4096])[at] = *byte;
        }
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

    /// Takes the page of an address away.
    pub(crate) fn drop(&mut self, address: u64) {
        assert!(self.0.remove(&(address & !4095)).is_some(), "no page at {address:#x}");
    }

    /// The addresses of all regions.
    pub(crate) fn all(&self) -> Vec<u64> {
        self.0.keys().copied().collect()
    }

    /// Opens the kernel that has these types, and symbols besides `_stext`.
    pub(crate) fn open(self, types: Vec<u8>, symbols: &[(u64, &str)]) -> Kernel {
        let info =
            VmcoreInfo::parse(format!("OSRELEASE=6.99\nSYMBOL(_stext)={TEXT:x}\n").as_bytes());
        let rows = [&[(TEXT, "_stext")], symbols].concat();
        let text: String = rows.iter().map(|(at, name)| format!("{at:016x} D {name}\n")).collect();
        let mut sources = Sources::default();
        sources.btf = Some(types);
        sources.system_map(&text, &info).unwrap();
        Kernel::open(Arc::new(self), &info, sources, Arc::new(Budget::default())).unwrap()
    }
}

impl Memory for Regions {
    fn read(&self, address: u64, buf: &mut [u8]) -> Result<(), Hole> {
        let (mut address, mut rest) = (address, buf);
        while !rest.is_empty() {
            let hole = Hole { address, cause: HoleCause::Excluded };
            let (start, at) = self.place(address).ok_or(hole)?;
            let region = &self.0[&start][at..];
            let (part, behind) = rest.split_at_mut(region.len().min(rest.len()));
            part.copy_from_slice(&region[..part.len()]);
            (address, rest) = (address.wrapping_add(part.len() as u64), behind);
        }
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

/// Cause, events and bytes of gaps.
pub(crate) fn causes(gaps: &[Gap]) -> Vec<(Cause, Option<u64>, Option<u64>)> {
    gaps.iter().map(|gap| (gap.cause, gap.events, gap.bytes)).collect()
}

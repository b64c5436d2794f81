//! A kernel in pages of memory that a test writes. The tests of `lastwords-perf` use it too.

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

/// Memory of pages, of which some may be taken away.
#[derive(Clone, Default)]
pub(crate) struct Pages(BTreeMap<u64, Box<[u8]>>);

impl Pages {
    pub(crate) fn put(&mut self, address: u64, bytes: &[u8]) {
        for (at, byte) in (address..).zip(bytes) {
            let page = self.0.entry(at >> 12).or_insert_with(|| vec![0; 4096].into());
            page[(at & 4095) as usize] = *byte;
        }
    }

    pub(crate) fn put_u32(&mut self, address: u64, value: u32) {
        self.put(address, &value.to_le_bytes());
    }

    pub(crate) fn put_u64(&mut self, address: u64, value: u64) {
        self.put(address, &value.to_le_bytes());
    }

    /// Takes the page of an address away.
    pub(crate) fn drop(&mut self, address: u64) {
        assert!(self.0.remove(&(address >> 12)).is_some(), "no page at {address:#x}");
    }

    pub(crate) fn all(&self) -> Vec<u64> {
        self.0.keys().map(|page| page << 12).collect()
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

impl Memory for Pages {
    fn read(&self, address: u64, buf: &mut [u8]) -> Result<(), Hole> {
        for (n, byte) in buf.iter_mut().enumerate() {
            let at = address.wrapping_add(n as u64);
            let hole = Hole { address: at, cause: HoleCause::Excluded };
            *byte = self.0.get(&(at >> 12)).ok_or(hole)?[(at & 4095) as usize];
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

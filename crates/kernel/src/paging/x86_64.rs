//! Page tables of x86-64: four or five levels of 512 entries (AMD64 Architecture Programmer's
//! Manual 2, chapter 5).

use super::{Direct, Entry, Error, Format, Geometry, Level, bits, number, symbol};
use crate::vmcoreinfo::VmcoreInfo;

/// Virtual address of the kernel's image (`__START_KERNEL_map`).
const KERNEL_MAP: u64 = 0xffff_ffff_8000_0000;
/// Largest size of the image's mapping (`KERNEL_IMAGE_SIZE`), if VMCOREINFO lacks it.
const KERNEL_IMAGE_SIZE: u64 = 1 << 30;
/// Size of a small page, bytes.
const PAGE_SIZE: u64 = 4096;
/// Bit of an entry: present.
const PRESENT: u64 = 1;
/// Bit of an entry in the second and third level from below: the entry is a page, not a table.
const HUGE: u64 = 1 << 7;
/// Mask of the address in an entry.
const ADDRESS: u64 = bits(51, 12);
/// log2 of the largest page size: 1 GiB.
const LARGEST: u32 = 30;

/// Format of the entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entries {
    /// Mask of the address bits of an entry, without the encryption bit.
    address: u64,
}

impl Entries {
    pub(super) fn read(&self, entry: u64, last: bool, shift: u32) -> Entry {
        let address = entry & self.address;
        if entry & PRESENT == 0 {
            Entry::None
        } else if last || (entry & HUGE != 0 && shift <= LARGEST) {
            Entry::Page(address)
        } else {
            Entry::Table(address)
        }
    }
}

pub(super) fn geometry(info: &VmcoreInfo) -> Result<Geometry, Error> {
    let base = number(info, "phys_base", "NUMBER(phys_base)")?;
    let top = symbol(info, "swapper_pg_dir", "SYMBOL(swapper_pg_dir)")
        .or_else(|missing| info.symbol("init_top_pgt").ok_or(missing))?;
    let five = info.number("pgtable_l5_enabled").unwrap_or(0) != 0;
    let encryption = info.number("sme_mask").unwrap_or(0).cast_unsigned();
    let shifts: &[u32] = if five { &[48, 39, 30, 21, 12] } else { &[39, 30, 21, 12] };
    let image = info.number("KERNEL_IMAGE_SIZE").map_or(KERNEL_IMAGE_SIZE, i64::cast_unsigned);
    Ok(Geometry {
        root: top.wrapping_sub(KERNEL_MAP).wrapping_add(base),
        levels: shifts.iter().map(|&shift| Level { shift, bits: 9 }).collect(),
        format: Format::X86_64(Entries { address: ADDRESS & !encryption }),
        canonical: if five { bits(63, 56) } else { bits(63, 47) },
        direct: Some(Direct {
            start: KERNEL_MAP,
            len: image.min(KERNEL_IMAGE_SIZE),
            physical: base,
        }),
        page_size: PAGE_SIZE,
    })
}

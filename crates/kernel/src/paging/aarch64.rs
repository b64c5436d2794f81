//! Page tables of 64-bit Arm: pages of 4, 16 or 64 KiB, addresses of 36 to 52 bits (Arm
//! Architecture Reference Manual, D8).

use super::{Direct, Entry, Error, Format, Geometry, Level, bits, number, symbol};
use crate::vmcoreinfo::VmcoreInfo;

/// Bit of an entry: the entry is valid.
const VALID: u64 = 1;
/// Bit of an entry: a table, or in the last level a page. Without the bit, the entry is a block.
const TABLE: u64 = 2;
/// Highest bit below the top byte of an address, which may contain a tag.
const BELOW_TAG: u32 = 55;

/// Format of the entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entries {
    /// log2 of the page size in bytes.
    page: u32,
    /// Entries contain addresses of 52 bits with pages of 4 or 16 KiB (FEAT_LPA2): bits 8 and 9
    /// are bits 50 and 51 of the address.
    lpa2: bool,
}

impl Entries {
    pub(super) fn read(&self, entry: u64, last: bool) -> Entry {
        let address = self.address(entry);
        match (entry & VALID != 0, entry & TABLE != 0) {
            (false, _) => Entry::None,
            (true, true) if last => Entry::Page(address),
            (true, true) => Entry::Table(address),
            // A block; reserved in the last level.
            (true, false) if last => Entry::None,
            (true, false) => Entry::Page(address),
        }
    }

    fn address(&self, entry: u64) -> u64 {
        match self.page {
            16 => (entry & bits(47, 16)) | ((entry & bits(15, 12)) << 36),
            page if self.lpa2 => (entry & bits(49, page)) | ((entry & bits(9, 8)) << 42),
            page => entry & bits(47, page),
        }
    }
}

pub(super) fn geometry(info: &VmcoreInfo) -> Result<Geometry, Error> {
    let page_size = info.page_size().ok_or(Error::Missing { key: "PAGESIZE" })?;
    if ![0x1000, 0x4000, 0x10000].contains(&page_size) {
        return Err(Error::Value {
            key: "PAGESIZE",
            value: page_size,
            expected: "4096, 16384 or 65536",
        });
    }
    let page = page_size.trailing_zeros();
    let configured = number(info, "VA_BITS", "NUMBER(VA_BITS)")?;
    // The processor may support fewer bits than the kernel was built for: TCR_EL1.T1SZ has the size
    // in use.
    let actual = info
        .number("TCR_EL1_T1SZ")
        .map_or(configured, |size| 64u64.saturating_sub(size.cast_unsigned()));
    let (built, actual) = (
        address_bits("NUMBER(VA_BITS)", configured)?,
        address_bits("NUMBER(TCR_EL1_T1SZ)", actual)?,
    );
    let top = symbol(info, "swapper_pg_dir", "SYMBOL(swapper_pg_dir)")?;
    let image = number(info, "kimage_voffset", "NUMBER(kimage_voffset)")?;
    let linear = u64::MAX.wrapping_shl(built);
    let direct = info.number("PHYS_OFFSET").map(|physical| Direct {
        start: linear,
        len: 1u64.wrapping_shl(built.saturating_sub(1)),
        physical: physical.cast_unsigned(),
    });
    Ok(Geometry {
        root: top.wrapping_sub(image),
        levels: levels(page, actual, built),
        format: Format::Aarch64(Entries { page, lpa2: page < 16 && actual > 48 }),
        canonical: bits(BELOW_TAG, actual.min(BELOW_TAG)),
        direct,
        page_size,
    })
}

fn address_bits(key: &'static str, value: u64) -> Result<u32, Error> {
    let expected = "addresses of 36 to 52 bits";
    u32::try_from(value).ok().filter(|n| (36..=52).contains(n)).ok_or(Error::Value {
        key,
        value,
        expected,
    })
}

/// The levels from the top. With 64 KiB pages, the top table has the size for the addresses that
/// the kernel was built for, even if the processor uses shorter ones.
fn levels(page: u32, actual: u32, built: u32) -> Vec<Level> {
    let each = page.saturating_sub(3);
    let count = actual.saturating_sub(page).div_ceil(each);
    let shift = |level: u32| page.saturating_add(each.saturating_mul(level));
    let reach = if page == 16 { actual.max(built) } else { actual };
    let bits = |level: u32| {
        if level.saturating_add(1) == count { reach.saturating_sub(shift(level)) } else { each }
    };
    (0..count).rev().map(|level| Level { shift: shift(level), bits: bits(level) }).collect()
}

//! Hand-written page tables of every format.

use super::*;
use lastwords_image::Range;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Physical memory of a few 4 KiB pages.
#[derive(Default)]
struct Pages(BTreeMap<u64, Vec<u8>>);

impl Pages {
    fn put(&mut self, at: u64, value: u64) {
        let page = self.0.entry(at & !0xfff).or_insert_with(|| vec![0; 4096]);
        let within = usize::try_from(at & 0xfff).unwrap();
        page[within..within + 8].copy_from_slice(&value.to_le_bytes());
    }
}

impl Image for Pages {
    fn name(&self) -> &str {
        "pages"
    }

    fn ranges(&self) -> &[Range] {
        &[]
    }

    fn read(&self, address: u64, buf: &mut [u8]) -> Result<(), Hole> {
        for (i, byte) in buf.iter_mut().enumerate() {
            let at = address.saturating_add(i as u64);
            let page = self
                .0
                .get(&(at & !0xfff))
                .ok_or(Hole { address: at, cause: HoleCause::Unmapped })?;
            *byte = page[usize::try_from(at & 0xfff).unwrap()];
        }
        Ok(())
    }
}

fn x86_64(five: bool, mask: u64) -> PageTables {
    let text = format!(
        "SYMBOL(swapper_pg_dir)=ffffffff81001000\nNUMBER(phys_base)=-16777216\nNUMBER(pgtable_l5_enabled)={}\nNUMBER(sme_mask)={mask}\n",
        u8::from(five)
    );
    PageTables::new(&VmcoreInfo::parse(text.as_bytes()), Machine::X86_64).unwrap()
}

fn aarch64(page_size: u64, built: u64, actual: u64) -> PageTables {
    let text = format!(
        "PAGESIZE={page_size}\nSYMBOL(swapper_pg_dir)=ffff800000010000\nNUMBER(VA_BITS)={built}\nNUMBER(kimage_voffset)=0xffff800000000000\n\
         NUMBER(PHYS_OFFSET)=0x40000000\nNUMBER(TCR_EL1_T1SZ)={:#x}\n",
        64 - actual
    );
    PageTables::new(&VmcoreInfo::parse(text.as_bytes()), Machine::Aarch64).unwrap()
}

/// Translates `address`: physical address, and bytes left in the page.
fn at(tables: &PageTables, memory: &Pages, address: u64) -> Result<(u64, u64), HoleCause> {
    tables.translate(memory, address).map(|m| (m.physical, m.left)).map_err(|h| h.cause)
}

#[test]
fn four_levels_of_x86_64() {
    let (tables, mut memory) = (x86_64(false, 0), Pages::default());
    // Top: entry 511; then entry 510; then entry 8 is a table and entry 9 a page of 2 MiB. Entry
    // 511 of the second table is a page of 1 GiB.
    memory.put(0x1000 + 511 * 8, 0x2003);
    memory.put(0x2000 + 510 * 8, 0x3003);
    memory.put(0x2000 + 511 * 8, 0x1_c000_1083);
    memory.put(0x3000 + 8 * 8, 0x4003);
    memory.put(0x3000 + 9 * 8, 0x8000_0000_00e0_1083);
    memory.put(0x4000 + 5 * 8, 0x8000_0000_1234_5003);
    memory.put(0x4000 + 6 * 8, 0x1234_6002);
    assert_eq!(at(&tables, &memory, 0xffff_ffff_8100_5678), Ok((0x1234_5678, 0x988)));
    assert_eq!(at(&tables, &memory, 0xffff_ffff_8123_4567), Ok((0xe3_4567, 0x20_0000 - 0x3_4567)));
    assert_eq!(at(&tables, &memory, 0xffff_ffff_c000_0001), Ok((0x1_c000_0001, 0x3fff_ffff)));
    assert_eq!(
        at(&tables, &memory, 0xffff_ffff_8100_6000),
        Err(HoleCause::Unmapped),
        "not present"
    );
    assert_eq!(at(&tables, &memory, 0x8000_0000_0000), Err(HoleCause::Unmapped), "not canonical");
    assert_eq!(at(&tables, &memory, 0), Err(HoleCause::Unmapped));
}

#[test]
fn five_levels_and_encryption() {
    let mask = 1u64 << 47;
    let (tables, mut memory) = (x86_64(true, mask), Pages::default());
    memory.put(0x1000 + 0x111 * 8, mask | 0x2003);
    memory.put(0x2000, mask | 0x3003);
    memory.put(0x3000, mask | 0x4003);
    memory.put(0x4000, mask | 0x5003);
    memory.put(0x5000, mask | 0x7_0003);
    assert_eq!(at(&tables, &memory, 0xff11_0000_0000_0010), Ok((0x7_0010, 0xff0)));
    assert_eq!(
        at(&tables, &memory, 0x7f11_0000_0000_0010),
        Err(HoleCause::Unmapped),
        "not canonical"
    );
}

#[test]
fn a_table_that_is_not_in_the_image() {
    let (tables, mut memory) = (x86_64(false, 0), Pages::default());
    // The kernel's own image has a known mapping if tables are missing; other addresses do not.
    assert_eq!(at(&tables, &memory, 0xffff_ffff_8100_1010), Ok((0x1010, 0xff0)));
    assert_eq!(at(&tables, &memory, 0xffff_8880_0000_0000), Err(HoleCause::Excluded));
    let arm = aarch64(4096, 48, 48);
    assert_eq!(at(&arm, &memory, 0xffff_0000_0000_1010), Ok((0x4000_1010, 0xff0)));
    assert_eq!(at(&arm, &memory, 0xffff_8000_0001_0000), Err(HoleCause::Excluded));
    memory.put(0x1000, 0);
    assert_eq!(at(&tables, &memory, 0xffff_8880_0000_0000), Err(HoleCause::Unmapped));
}

/// Maps a page through all levels, as the manual defines the walk.
fn map(memory: &mut Pages, page: u32, shifts: &[u32], top: u32, address: u64, leaf: u64) {
    let mut table = 0x1_0000u64;
    for (depth, shift) in shifts.iter().enumerate() {
        let width = if depth == 0 { top } else { page - 3 };
        let index = (address >> shift) & ((1 << width) - 1);
        let next = 0x10_0000 + 0x10_0000 * depth as u64;
        let last = depth + 1 == shifts.len();
        memory.put(table + index * 8, if last { leaf } else { next | 3 });
        table = next;
    }
}

#[test]
fn every_granule_and_size_of_aarch64() {
    // Page size, address bits built for and in use, shifts of the levels from the top, bits of the
    // top index.
    let shapes: [(u64, u64, u64, &[u32], u32); 10] = [
        (0x1000, 39, 39, &[30, 21, 12], 9),
        (0x1000, 48, 48, &[39, 30, 21, 12], 9),
        (0x1000, 52, 52, &[48, 39, 30, 21, 12], 4),
        (0x1000, 52, 48, &[39, 30, 21, 12], 9),
        (0x4000, 36, 36, &[25, 14], 11),
        (0x4000, 47, 47, &[36, 25, 14], 11),
        (0x4000, 48, 48, &[47, 36, 25, 14], 1),
        (0x4000, 52, 52, &[47, 36, 25, 14], 5),
        (0x1_0000, 42, 42, &[29, 16], 13),
        (0x1_0000, 52, 48, &[42, 29, 16], 10),
    ];
    for (size, built, actual, shifts, top) in shapes {
        let mut memory = Pages::default();
        let address =
            (u64::MAX << actual) | (0x1_2345_6789_abcd & !(size - 1) & ((1 << actual) - 1));
        map(&mut memory, size.trailing_zeros(), shifts, top, address, 0x7_0000 | 3);
        let tables = aarch64(size, built, actual);
        let found = at(&tables, &memory, address | 0x123);
        assert_eq!(
            found,
            Ok((0x7_0123, size - 0x123)),
            "{size:#x} {built} {actual} {:?}",
            tables.geometry
        );
        // A tag in the top byte is not part of the address; the bits below are.
        assert_eq!(at(&tables, &memory, address ^ (0xf3 << 56)), Ok((0x7_0000, size)));
        assert_eq!(at(&tables, &memory, address ^ (1 << 55)), Err(HoleCause::Unmapped));
        // A reserved entry of the last level.
        map(&mut memory, size.trailing_zeros(), shifts, top, address, 0x7_0000 | 1);
        assert_eq!(at(&aarch64(size, built, actual), &memory, address), Err(HoleCause::Unmapped));
    }
}

#[test]
fn blocks_and_long_physical_addresses_of_aarch64() {
    let mut memory = Pages::default();
    let address = 0xffff_0000_4020_1234;
    map(&mut memory, 12, &[39, 30, 21], 9, address, 0x60_0000 | 1);
    assert_eq!(at(&aarch64(0x1000, 48, 48), &memory, address), Ok((0x60_1234, 0x20_0000 - 0x1234)));
    // Bits 8 and 9 are the shareability of a page; with FEAT_LPA2 they are bits 50 and 51 of the
    // address.
    let (short, long) = (0xffff_0000_0000_0000, 0xfff0_0000_0000_0000);
    let mut memory = Pages::default();
    map(&mut memory, 12, &[39, 30, 21, 12], 9, short, 0x7_0303);
    assert_eq!(at(&aarch64(0x1000, 48, 48), &memory, short), Ok((0x7_0000, 0x1000)));
    let mut memory = Pages::default();
    map(&mut memory, 12, &[48, 39, 30, 21, 12], 4, long, 0x7_0303);
    assert_eq!(at(&aarch64(0x1000, 52, 52), &memory, long), Ok((0xc_0000_0007_0000, 0x1000)));
    let mut memory = Pages::default();
    map(&mut memory, 16, &[42, 29, 16], 10, long, 0x7_a003);
    assert_eq!(at(&aarch64(0x1_0000, 52, 52), &memory, long), Ok((0xa_0000_0007_0000, 0x1_0000)));
}

#[test]
fn what_is_missing_or_absurd_is_named() {
    let error = |text: &str, machine| {
        PageTables::new(&VmcoreInfo::parse(text.as_bytes()), machine).unwrap_err().to_string()
    };
    assert!(error("", Machine::X86_64).contains("NUMBER(phys_base)"));
    assert!(error("NUMBER(phys_base)=0", Machine::X86_64).contains("SYMBOL(swapper_pg_dir)"));
    assert!(error("PAGESIZE=8192", Machine::Aarch64).contains("0x2000"));
    assert!(error("PAGESIZE=4096\nNUMBER(VA_BITS)=77", Machine::Aarch64).contains("0x4d"));
    assert!(
        error("PAGESIZE=4096\nNUMBER(VA_BITS)=48\nNUMBER(TCR_EL1_T1SZ)=0x40", Machine::Aarch64)
            .contains("T1SZ")
    );
}

proptest! {
    /// Tables of any content, with loops: translation must return an answer or a hole.
    #[test]
    fn any_tables(words in proptest::collection::vec((0u64..0x8000, any::<u64>()), 0..64), address: u64, facts in proptest::collection::vec(any::<i64>(), 6)) {
        let mut memory = Pages::default();
        for (at, word) in words {
            memory.put(at & !7, word & 0x7fff_u64 | (word & 0xfff0_0000_0000_0000));
        }
        let text = format!(
            "PAGESIZE=4096\nSYMBOL(swapper_pg_dir)={:x}\nNUMBER(phys_base)={}\nNUMBER(sme_mask)={}\nNUMBER(VA_BITS)=48\nNUMBER(kimage_voffset)={}\nNUMBER(PHYS_OFFSET)={}\nNUMBER(KERNEL_IMAGE_SIZE)={}",
            facts[0], facts[1], facts[2], facts[3], facts[4], facts[5]
        );
        for machine in [Machine::X86_64, Machine::Aarch64] {
            let tables = PageTables::new(&VmcoreInfo::parse(text.as_bytes()), machine).unwrap();
            let _ = tables.translate(&memory, address);
            let _ = tables.translate(&memory, address | 0xffff_0000_0000_0000);
        }
    }
}

//! The pages of a guest's memory that a dump of makedumpfile lacks. QEMU's ELF dump has all of them,
//! and its page tables lead from the kernel's addresses to the pages. The program that is judged
//! shares no code with this.
//!
//! Source of the layouts: `diskdump_mod.h` of makedumpfile 1.7 (`struct disk_dump_header`, the second
//! bitmap), `Documentation/arch/x86/x86_64/{mm,5level-paging}.rst` and
//! `Documentation/admin-guide/kdump/vmcoreinfo.rst` of Linux 6.12.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use rig::elf::Table;
use serde_json::Value;

use super::compare::Rows;

const PAGE: u64 = 4096;
/// Where the kernel's own image is mapped (`__START_KERNEL_map`).
const IMAGE: u64 = 0xffff_ffff_8000_0000;
/// The part of an entry of a page table that is an address.
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
/// Flags of an entry: it is valid; it is no table, but a large page.
const PRESENT: u64 = 1;
const LARGE: u64 = 1 << 7;

/// The memory of a guest, and the pages of it that a dump has.
pub(super) struct Pages {
    elf: File,
    loads: Table,
    /// Physical address of the highest page table.
    top: u64,
    levels: u32,
    /// The second bitmap of the other dump: a bit for each page that is in it.
    kept: Vec<u8>,
}

impl Pages {
    /// Reads the headers of QEMU's ELF dump, and of makedumpfile's of the same memory.
    ///
    /// # Errors
    /// One of them is not what these programs write.
    pub(super) fn new(elf: &Path, cut: &Path) -> Result<Self> {
        let named = || elf.display().to_string();
        let file = File::open(elf).with_context(named)?;
        let loads = Table::read(&file).with_context(named)?;
        let (top, levels) = top(&vmcoreinfo(&file).with_context(named)?).with_context(named)?;
        let kept = kept(cut).with_context(|| cut.display().to_string())?;
        Ok(Self { elf: file, loads, top, levels, kept })
    }

    /// Returns true if the guest has a page at an address of the kernel, and the dump does not.
    ///
    /// # Errors
    /// The ELF dump has no such page table.
    pub(super) fn lacks(&self, address: u64) -> Result<bool> {
        let Some(physical) = self.physical(address)? else { return Ok(false) };
        let page = physical / PAGE;
        let byte = self.kept.get(usize::try_from(page / 8)?);
        let is_kept = byte.is_some_and(|byte| byte >> (page % 8) & 1 == 1);
        Ok(self.loads.offset_of(physical).is_some() && !is_kept)
    }

    /// Adds a row: each loss of an account is of a page that the dump lacks, or of records whose
    /// description is in such a page. Returns the words of the losses.
    ///
    /// # Errors
    /// The account cannot be read.
    pub(super) fn judge(
        &self,
        rows: &mut Rows,
        what: &str,
        evidence: &Value,
    ) -> Result<Vec<String>> {
        let gaps = evidence["gaps"].as_array().context("no gaps")?;
        let lost = gaps.iter().filter(|gap| gap["loss"] == true && gap["cause"] != "undescribed");
        let places = lost.map(|gap| Ok(gap["place"].as_str().context("a place")?.to_owned()));
        let places = places.collect::<Result<Vec<String>>>()?;
        let mut wrong = None;
        for place in &places {
            let is_right = match excluded(place) {
                Some(address) => self.lacks(address)?,
                None => false,
            };
            wrong = wrong.or((!is_right).then_some(place));
        }
        let detail = match wrong {
            Some(place) => format!("the dump has it: {place}"),
            None => format!("{} losses, all of pages that the dump lacks", places.len()),
        };
        rows.row(wrong.is_none() && !places.is_empty(), &format!("{what} losses"), &detail);
        Ok(places)
    }

    /// Walks the page tables. None for an address that is not mapped.
    fn physical(&self, address: u64) -> Result<Option<u64>> {
        let mut table = self.top;
        for level in (0..self.levels).rev() {
            let shift = 12 + 9 * level;
            let at = table + (address >> shift & 511) * 8;
            let offset = self.loads.offset_of(at);
            let offset = offset.with_context(|| format!("no page table at {at:#x}"))?;
            let entry = number(&self.elf, offset, 8)?;
            if entry & PRESENT == 0 {
                return Ok(None);
            }
            if level == 0 || entry & LARGE != 0 {
                let inside = (1u64 << shift) - 1;
                return Ok(Some(entry & ADDRESS & !inside | address & inside));
            }
            table = entry & ADDRESS;
        }
        Ok(None)
    }
}

/// Returns the address in the words of a loss: `…: address 0x1000 is excluded`.
fn excluded(place: &str) -> Option<u64> {
    let before = place.split(" is excluded").next().filter(|before| before.len() < place.len())?;
    u64::from_str_radix(before.rsplit_once("address 0x")?.1, 16).ok()
}

/// Reads a little-endian number of up to 8 bytes.
fn number(file: &File, at: u64, size: usize) -> Result<u64> {
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes[..size], at).with_context(|| format!("offset {at:#x}"))?;
    Ok(u64::from_le_bytes(bytes))
}

/// Returns the text that the kernel left for dumps, which QEMU has put into a note.
fn vmcoreinfo(file: &File) -> Result<String> {
    const NAME: &[u8] = b"VMCOREINFO\0";
    let notes = Table::read(file)?.notes().context("no notes")?;
    let mut bytes = vec![0; usize::try_from(notes.end - notes.start)?];
    file.read_exact_at(&mut bytes, notes.start).context("the notes")?;
    let at = bytes.windows(NAME.len()).position(|window| window == NAME);
    let text = &bytes[at.context("no note VMCOREINFO")?..];
    // The name is padded to 4 bytes.
    let text = text.get(NAME.len().next_multiple_of(4)..).unwrap_or_default();
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    Ok(String::from_utf8_lossy(&text[..end]).into_owned())
}

/// Returns the physical address of the highest page table, and the number of levels.
fn top(info: &str) -> Result<(u64, u32)> {
    let value = |key: &str| info.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    let table = value("SYMBOL(init_top_pgt)").context("no SYMBOL(init_top_pgt)")?;
    let base: i64 = value("NUMBER(phys_base)").context("no NUMBER(phys_base)")?.parse()?;
    let inside = u64::from_str_radix(table, 16)?.checked_sub(IMAGE).context("init_top_pgt")?;
    let levels = if value("NUMBER(pgtable_l5_enabled)") == Some("1") { 5 } else { 4 };
    Ok((inside.wrapping_add_signed(base), levels))
}

/// Returns the second bitmap of a compressed dump.
fn kept(dump: &Path) -> Result<Vec<u8>> {
    let file = File::open(dump)?;
    let mut magic = [0; 8];
    file.read_exact_at(&mut magic, 0)?;
    ensure!(&magic == b"KDUMP   ", "no compressed dump");
    // block_size, sub_hdr_size and bitmap_blocks of struct disk_dump_header.
    let [block, headers, blocks] = [428, 432, 436].map(|at| number(&file, at, 4));
    let (block, headers, blocks) = (block?, headers?, blocks?);
    ensure!(block == PAGE, "blocks of {block} bytes");
    let mut bitmap = vec![0; usize::try_from(blocks * block / 2)?];
    let at = (1 + headers) * block + blocks * block / 2;
    file.read_exact_at(&mut bitmap, at).context("the second bitmap")?;
    Ok(bitmap)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rig::scratch::Scratch;

    const INFO: &str = "OSRELEASE=x\nNUMBER(phys_base)=-8192\nSYMBOL(init_top_pgt)=ffffffff80003000\nNUMBER(pgtable_l5_enabled)=0\n";

    /// An ELF dump of 8 pages: the four page tables are in those from 1 on.
    fn elf() -> Vec<u8> {
        let notes = [&[11, 0, 0, 0], &[0; 8][..], NAME_AND_PAD, INFO.as_bytes(), &[0; 4]].concat();
        let mut bytes = b"\x7fELF\x02\x01".to_vec();
        bytes.resize(64 + 2 * 56 + notes.len(), 0);
        bytes[64 + 2 * 56..].copy_from_slice(&notes);
        let mut put = |at: usize, word: u64| bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        put(32, 64);
        put(56, 2);
        put(64, 4);
        put(64 + 8, 64 + 2 * 56);
        put(64 + 32, notes.len() as u64);
        put(120, 1);
        put(120 + 8, PAGE);
        put(120 + 32, 8 * PAGE);
        bytes.resize(9 * PAGE as usize, 0);
        let mut entry = |table: u64, at: u64, to: u64| {
            let at = ((1 + table) * PAGE + at * 8) as usize;
            bytes[at..at + 8].copy_from_slice(&(to | PRESENT | 1 << 63).to_le_bytes());
        };
        entry(1, 0x100, 2 * PAGE);
        entry(2, 0, 3 * PAGE);
        entry(3, 0, 4 * PAGE);
        entry(3, 1, LARGE);
        entry(4, 5, 6 * PAGE);
        entry(4, 6, 7 * PAGE);
        bytes
    }

    const NAME_AND_PAD: &[u8] = b"VMCOREINFO\0\0";

    /// A compressed dump that has all pages but one.
    fn cut(without: u64) -> Vec<u8> {
        let mut bytes = b"KDUMP   ".to_vec();
        bytes.resize(5 * PAGE as usize, 0);
        for (at, word) in [(428, PAGE as u32), (432, 2), (436, 2)] {
            bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        bytes[4 * PAGE as usize] = !(1u8 << without);
        bytes
    }

    #[test]
    fn a_page_that_a_dump_lacks_is_found_by_its_address() {
        let scratch = Scratch::in_memory("lastwords-lab-pages").unwrap();
        let [full, less] = ["elf", "kdump"].map(|name| scratch.path().join(name));
        std::fs::write(&full, elf()).unwrap();
        std::fs::write(&less, cut(6)).unwrap();
        let pages = Pages::new(&full, &less).unwrap();
        let base = 0xffff_8000_0000_0000;
        assert_eq!(pages.physical(base + 5 * PAGE + 7).unwrap(), Some(6 * PAGE + 7));
        assert_eq!(pages.physical(base + (2 << 20) + 0x6123).unwrap(), Some(0x6123));
        assert_eq!(pages.physical(base).unwrap(), None);
        let lacks = [5, 6, 7].map(|page| pages.lacks(base + page * PAGE + 1).unwrap());
        assert_eq!(lacks, [true, false, false]);
        assert_eq!(excluded("a: address 0x12f is excluded"), Some(0x12f));
        assert_eq!(excluded("a: address 0x12f is not mapped"), None);
        std::fs::write(&less, b"KDUMP").unwrap();
        assert!(Pages::new(&full, &less).is_err());
    }
}

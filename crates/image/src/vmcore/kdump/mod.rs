//! Reads the kdump-compressed format; pages are decompressed on demand.
//!
//! Two bitmaps tell which page frames are RAM, and which of those were dumped. The descriptor of a
//! dumped page is at the page's rank among the dumped pages. A page of RAM that was not dumped is
//! excluded, not zero. Several descriptors may share the bytes of one page, as those of zero pages
//! do. A split dump consists of several files; each has all bitmaps, and the descriptors of its own
//! page frames.

mod bitmap;
mod codec;
mod header;
mod lzo;

pub(crate) use header::MAGIC;

use super::elf::Notes;
use super::{Format, Physical};
use crate::file::Backing;
use crate::got::Got;
use crate::{Cache, Hole, HoleCause, Image, Range, front, read_parts};
use bitmap::{Bitmap, Counts, bit_of};
use codec::Codecs;
use header::{
    BLOCK_SIZE_AT, DESCRIPTOR_LEN, Descriptor, FileRange, HEADER_LEN, Header, SUB_HEADER_LEN,
};
use lastwords_bytes::{Budget, Error, Reader};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// The end of messages about a file of a split dump whose other files are missing.
pub(super) const PART: &str = "this is a part of a split dump (makedumpfile --split): name all of its files, with --split before them";
/// Most bytes of decompressed pages in the cache.
const KEPT: u64 = 4 << 20;
/// Most bytes of notes, and of VMCOREINFO, that are read.
const MOST_NOTES: u64 = 64 << 20;
/// Best compression ratio assumed for the budget; real dumps have a ratio of 4 to 8.
const SMALLEST: u64 = 8;
/// Most bytes by which a compressed page may be longer than a plain one.
const MOST_GROWTH: u64 = 4096;

/// One file of a dump.
#[derive(Debug)]
struct DumpFile {
    file: Backing,
    header: Header,
    ram: Bitmap,
    dumped: Bitmap,
    counts: Counts,
    /// Range of the page frames whose descriptors are in this file.
    start: u64,
    end: u64,
    /// Number of dumped page frames before `start`.
    skipped: u64,
}

/// The image of all files of a dump.
#[derive(Debug)]
struct Dump {
    name: String,
    parts: Vec<DumpFile>,
    page_size: u64,
    pages: Mutex<Cache<Arc<[u8]>>>,
    codecs: Codecs,
    ranges: OnceLock<Vec<Range>>,
}

/// Opens the files of one dump; a split dump has several.
///
/// # Errors
/// A header is damaged, the files are not from the same dump, or the budget is spent.
pub(super) fn open(files: Vec<Backing>, budget: &Budget) -> Result<Physical, Error> {
    let mut remarks = Vec::new();
    let mut parts = Vec::new();
    for file in files {
        parts.push(DumpFile::open(file, budget, &mut remarks)?);
    }
    parts.sort_by_key(|p| p.start);
    let Some(first) = parts.first() else {
        return Err(Error::short("split dump", 0, 0, "at least one file"));
    };
    let (page_size, machine, order) =
        (first.header.block_size, first.header.machine, first.header.order);
    let foreign = first.header.foreign.clone();
    if let Some(other) = parts.iter().find(|p| p.header.block_size != page_size) {
        let expected = format!("the block size of {}: {page_size}", first.file.name);
        return Err(Error::value(
            &other.file.name,
            BLOCK_SIZE_AT,
            other.header.block_size,
            &expected,
        ));
    }
    remarks.extend(missing_parts(&parts));
    let mut notes = Notes::default();
    let read = parts.iter().find_map(|p| p.notes(&mut notes, budget, &mut remarks));
    let vmcoreinfo = read.or(notes.vmcoreinfo);
    let name = first.file.name.to_string();
    let kept = usize::try_from(KEPT.checked_div(page_size).unwrap_or(0)).unwrap_or(1);
    let dump = Dump {
        name,
        parts,
        page_size,
        pages: Mutex::new(Cache::new(kept)),
        codecs: Codecs::default(),
        ranges: OnceLock::new(),
    };
    let image = Arc::new(dump);
    Ok(Physical {
        image,
        format: Format::Kdump,
        machine,
        foreign,
        order,
        vmcoreinfo,
        cpus: notes.cpus,
        notes: remarks,
    })
}

/// Messages about missing files of a split dump.
fn missing_parts(parts: &[DumpFile]) -> Vec<String> {
    let mut next = 0u64;
    let mut remarks = Vec::new();
    for part in parts {
        if part.start > next {
            let name = &part.file.name;
            remarks.push(format!(
                "{name}: page frames {next:#x} to {:#x} are in another file; {PART}",
                part.start
            ));
        }
        next = next.max(part.end);
    }
    if let Some(last) = parts.last().filter(|p| next < p.header.max_pfn) {
        remarks.push(format!(
            "{}: page frames from {next:#x} on are in another file; {PART}",
            last.file.name
        ));
    }
    remarks
}

impl DumpFile {
    fn open(file: Backing, budget: &Budget, remarks: &mut Vec<String>) -> Result<Self, Error> {
        let file = file.cached();
        let mut head = [0u8; HEADER_LEN];
        file.read_all(0, &mut head)?;
        let mut header = Header::parse(&file.name, &head)?;
        let mut sub = [0u8; SUB_HEADER_LEN];
        file.read_all(header.sub_header_at(), &mut sub)?;
        header.add_sub_header(&file.name, &sub)?;
        if header.incomplete {
            remarks.push(format!(
                "{}: the dump was cut short when it was written; the rest is missing",
                file.name
            ));
        }
        let (ram, dumped) = (header.ram_bitmap(), header.dumped_bitmap());
        if dumped.offset.saturating_add(dumped.len) > file.len {
            remarks.push(format!(
                "{}: the file ends at {:#x}, inside the bitmaps of pages",
                file.name, file.len
            ));
        }
        let ram = Bitmap::new(&file, ram, header.max_pfn);
        let dumped = Bitmap::new(&file, dumped, header.max_pfn);
        let counts = dumped.count(&file, budget)?;
        let (start, end) = header.split.unwrap_or((0, header.max_pfn));
        let skipped = dumped.rank(&counts, &file, start).map_or(0, |(_, rank)| rank);
        let part = Self { file, header, ram, dumped, counts, start, end, skipped };
        // Pages are compressed, and zero pages are stored once.
        let pages =
            part.counts.total().min(part.descriptors()).saturating_mul(part.header.block_size);
        budget.admit(pages.min(part.file.stored().saturating_mul(SMALLEST)));
        if !part.header.incomplete && part.is_cut() {
            remarks.push(format!(
                "{}: the file ends at {:#x}, inside the pages",
                part.file.name, part.file.len
            ));
        }
        Ok(part)
    }

    /// Adds the notes; returns the text of VMCOREINFO if the header has its location.
    fn notes(
        &self,
        notes: &mut Notes,
        budget: &Budget,
        remarks: &mut Vec<String>,
    ) -> Option<Vec<u8>> {
        match self.place(self.header.notes, budget) {
            Ok(bytes) => {
                let reader = Reader::new(&self.file.name, &bytes, self.header.order)
                    .based(self.header.notes.offset);
                notes.add(reader, budget, remarks);
            }
            Err(error) => remarks.push(format!("{error} (notes)")),
        }
        match self.place(self.header.vmcoreinfo, budget) {
            Ok(bytes) => Some(bytes).filter(|b| !b.is_empty()),
            Err(error) => {
                remarks.push(format!("{error} (VMCOREINFO)"));
                None
            }
        }
    }

    fn place(&self, place: FileRange, budget: &Budget) -> Result<Vec<u8>, Error> {
        let len = place.len.min(self.file.len.saturating_sub(place.offset)).min(MOST_NOTES);
        budget.bytes(&self.file.name, len)?;
        let mut bytes = vec![0u8; usize::try_from(len).unwrap_or(0)];
        self.file.read_all(place.offset, &mut bytes)?;
        Ok(bytes)
    }

    /// Reads a page frame into `page`.
    fn read(&self, pfn: u64, codecs: &Codecs, page: &mut [u8]) -> Result<(), HoleCause> {
        let (dumped, rank) =
            self.dumped.rank(&self.counts, &self.file, pfn).ok_or(HoleCause::Truncated)?;
        if !dumped {
            let ram = self.ram.is_set(&self.file, pfn);
            return Err(if ram == Some(true) { HoleCause::Excluded } else { HoleCause::Unmapped });
        }
        let descriptor = self.descriptor(rank.checked_sub(self.skipped).ok_or(HoleCause::Bad)?)?;
        let most = self.header.block_size.saturating_add(MOST_GROWTH);
        if u64::from(descriptor.size) > most {
            return Err(HoleCause::Bad);
        }
        let mut stored = vec![0u8; usize::try_from(descriptor.size).unwrap_or(0)];
        cause(self.file.read(descriptor.offset, &mut stored))?;
        codecs.decompress(&descriptor, &stored, page).ok_or(HoleCause::Bad)
    }

    /// True if the file ends within the pages. The last descriptors show it, because pages are
    /// stored in order.
    fn is_cut(&self) -> bool {
        const LOOKED_AT: u64 = 64;
        let dumped = self.dumped.rank(&self.counts, &self.file, self.end.saturating_sub(1));
        let count = dumped.map_or(0, |(set, rank)| {
            rank.saturating_add(u64::from(set)).saturating_sub(self.skipped)
        });
        (count.saturating_sub(LOOKED_AT)..count).any(|index| match self.descriptor(index) {
            Ok(d) => d.offset.saturating_add(u64::from(d.size)) > self.file.len,
            Err(cause) => cause == HoleCause::Truncated,
        })
    }

    /// Number of descriptors that fit into the file.
    fn descriptors(&self) -> u64 {
        let room =
            self.file.len.saturating_sub(self.header.descriptors_at()).min(self.file.stored());
        room.checked_div(DESCRIPTOR_LEN as u64).unwrap_or(0)
    }

    fn descriptor(&self, index: u64) -> Result<Descriptor, HoleCause> {
        let at = self
            .header
            .descriptors_at()
            .saturating_add(index.saturating_mul(DESCRIPTOR_LEN as u64));
        let mut raw = [0u8; DESCRIPTOR_LEN];
        cause(self.file.read(at, &mut raw))?;
        let reader = Reader::new(&self.file.name, &raw, self.header.order).based(at);
        let descriptor = Descriptor::parse(&reader).map_err(|_| HoleCause::Bad)?;
        // Descriptors that were not written because space ran out are zeros.
        if descriptor.offset == 0 { Err(HoleCause::Truncated) } else { Ok(descriptor) }
    }
}

fn cause(got: Got) -> Result<(), HoleCause> {
    match got {
        Got::All => Ok(()),
        Got::Ended(_) => Err(HoleCause::Truncated),
        Got::Failed(_) => Err(HoleCause::Bad),
    }
}

impl Dump {
    fn part(&self, pfn: u64) -> Result<&DumpFile, HoleCause> {
        let part = self.parts.iter().find(|p| pfn >= p.start && pfn < p.end);
        part.ok_or_else(|| match self.parts.first() {
            Some(first) if first.dumped.is_set(&first.file, pfn) == Some(true) => {
                HoleCause::Truncated
            }
            Some(first) if first.ram.is_set(&first.file, pfn) == Some(true) => HoleCause::Excluded,
            _ => HoleCause::Unmapped,
        })
    }

    fn page(&self, pfn: u64) -> Result<Arc<[u8]>, HoleCause> {
        let pages = || self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        let known = pages().find(pfn);
        if let Some(page) = known {
            return Ok(page);
        }
        let mut page = vec![0u8; usize::try_from(self.page_size).unwrap_or(0)];
        self.part(pfn)?.read(pfn, &self.codecs, &mut page)?;
        let page: Arc<[u8]> = page.into();
        pages().keep(pfn, page.clone());
        Ok(page)
    }

    /// Runs of page frames of the same state.
    fn all_ranges(&self) -> Vec<Range> {
        let mut ranges: Vec<Range> = Vec::new();
        for part in &self.parts {
            let (mut at, mut left) = (part.start, part.descriptors());
            while at < part.end.min(part.header.max_pfn) {
                let (Some((first, dumped)), Some((_, ram))) =
                    (part.dumped.chunk(&part.file, at), part.ram.chunk(&part.file, at))
                else {
                    break;
                };
                let next =
                    first.saturating_add((dumped.len() as u64).saturating_mul(8)).min(part.end);
                for pfn in at..next {
                    let within = pfn.saturating_sub(first);
                    match (bit_of(&dumped, within), bit_of(&ram, within)) {
                        (true, _) => {
                            let hole = if left == 0 { Some(HoleCause::Truncated) } else { None };
                            left = left.saturating_sub(1);
                            self.extend(&mut ranges, part, pfn, hole);
                        }
                        (false, true) => {
                            self.extend(&mut ranges, part, pfn, Some(HoleCause::Excluded))
                        }
                        (false, false) => {}
                    }
                }
                at = next;
            }
        }
        ranges
    }

    fn extend(&self, ranges: &mut Vec<Range>, part: &DumpFile, pfn: u64, hole: Option<HoleCause>) {
        let Some(address) = pfn.checked_mul(self.page_size) else { return };
        match ranges.last_mut() {
            Some(last)
                if last.end() == address && last.hole == hole && last.name == part.file.name =>
            {
                last.len = last.len.saturating_add(self.page_size);
            }
            _ => {
                let offset = part.header.descriptors_at();
                ranges.push(Range {
                    address,
                    len: self.page_size,
                    name: part.file.name.clone(),
                    offset,
                    hole,
                });
            }
        }
    }
}

impl Image for Dump {
    fn name(&self) -> &str {
        &self.name
    }

    /// Compressed page frames have no offset of their own: `offset` is that of the file's page
    /// descriptors.
    fn ranges(&self) -> &[Range] {
        self.ranges.get_or_init(|| self.all_ranges())
    }

    fn read(&self, address: u64, buf: &mut [u8]) -> Result<(), Hole> {
        read_parts(address, buf, |at, rest| {
            let hole = |cause| Hole { address: at, cause };
            let pfn = at.checked_div(self.page_size).ok_or(hole(HoleCause::Unmapped))?;
            let page = self.page(pfn).map_err(hole)?;
            let within = at.saturating_sub(pfn.saturating_mul(self.page_size));
            let from = page.get(usize::try_from(within).unwrap_or(0)..).unwrap_or_default();
            let part = front(rest, from.len() as u64);
            part.copy_from_slice(from.get(..part.len()).unwrap_or_default());
            Ok(part.len())
        })
    }

    fn next_data(&self, address: u64, end: u64) -> u64 {
        let Some(pfn) = address.checked_div(self.page_size) else { return end };
        let mut at = pfn;
        for part in self.parts.iter().filter(|p| p.end > pfn) {
            at = part.dumped.next_set(&part.counts, &part.file, at.max(part.start));
            if at < part.end {
                break;
            }
        }
        at.saturating_mul(self.page_size).max(address).min(end)
    }
}

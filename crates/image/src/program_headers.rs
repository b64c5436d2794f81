//! Reads the program headers of an ELF core, of a process or of a kernel, and the segments they
//! describe.
//!
//! If the file header does not lead to the table, or not to all of it, the headers are searched at
//! their usual place.

use crate::HoleCause;
use crate::elf::{
    FileHeader, HEADER_LEN, MAX_PROGRAM_HEADERS, PROGRAM_HEADER_LEN, PT_LOAD, ProgramHeader,
};
use crate::file::Backing;
use crate::got::Got;
use crate::orphans;
use crate::segments::Segment;
use lastwords_bytes::{Budget, Error, Reader};

/// Most bytes of notes that are read of one core; a core of 10,000 threads has 100 MB.
const MAX_NOTES: u64 = 1 << 28;
/// Most times that segments together may map the bytes of the file. Writers of dumps map each byte
/// once.
const MAX_SHARED: u64 = 4;
/// Number of program headers read at a time.
const BATCH: u64 = 1024;

/// A table of program headers that is being read.
pub(crate) struct Table<'a> {
    file: &'a Backing,
    /// The segments found, at the addresses that the caller chose.
    pub(crate) segments: Vec<Segment>,
    /// Notes about missing or damaged parts.
    pub(crate) notes: Vec<String>,
    /// True if a part of the file is damaged or missing.
    pub(crate) is_damaged: bool,
    note_bytes: u64,
    /// Number of file bytes that segments map, and number of segments left out because that is too
    /// many.
    held: u64,
    left_out: u64,
    /// Number of segments cut by the end of the file, address of the first, and length of the
    /// complete file in bytes.
    cut: (u64, u64, u64),
}

/// Program headers and their offset in the file.
struct Headers {
    at: u64,
    headers: Vec<ProgramHeader>,
    /// Offset of the first implausible header, and the number of implausible ones.
    odd: Option<(u64, u64)>,
}

impl Headers {
    /// Number of headers whose bytes are in a file of `len` bytes.
    fn leading(&self, len: u64) -> usize {
        let end = |header: &ProgramHeader| header.offset.saturating_add(header.file_size);
        self.headers.iter().filter(|header| header.has_bytes() && end(header) <= len).count()
    }
}

impl<'a> Table<'a> {
    /// Creates an empty table.
    pub(crate) fn new(file: &'a Backing) -> Self {
        let (segments, notes) = (Vec::new(), Vec::new());
        Self {
            file,
            segments,
            notes,
            is_damaged: false,
            note_bytes: 0,
            held: 0,
            left_out: 0,
            cut: (0, 0, 0),
        }
    }

    /// Reads the table. A truncated table is read up to the end of the file. If the file header
    /// does not lead to the table, it is read at its usual place.
    pub(crate) fn program_headers(
        &mut self,
        header: &FileHeader,
        budget: &Budget,
    ) -> Result<Vec<ProgramHeader>, Error> {
        let name = self.file.name.clone();
        if let Some(error) = header.wrong_entry(&name) {
            self.damage(error.to_string());
        }
        let count = match header.count(&name, |at, buf| self.file.read_all(at, buf)) {
            Ok(count) => count,
            Err(error) => {
                self.damage(format!("{error}; the number of program headers is not known"));
                0
            }
        };
        let at = header.program_headers_at;
        let said = self.read(header, at, count, false, budget)?;
        let parts = parts(header, &said);
        if said.odd.is_none() && orphans::orphans(self.file, parts).is_empty() {
            return Ok(said.headers);
        }
        self.mend(header, count, budget)
    }

    /// Searches headers when those that the file header names do not cover the file: after the
    /// `count` that it names, or at the usual place.
    fn mend(
        &mut self,
        header: &FileHeader,
        count: u64,
        budget: &Budget,
    ) -> Result<Vec<ProgramHeader>, Error> {
        let (name, at) = (self.file.name.clone(), header.program_headers_at);
        let mut best = self.read(header, at, count, true, budget)?;
        if at != HEADER_LEN as u64 {
            let usual = self.read(header, HEADER_LEN as u64, count, true, budget)?;
            if usual.leading(self.file.len) > best.leading(self.file.len) {
                let found = usual.headers.len();
                let expected = format!(
                    "{HEADER_LEN:#x}, where there are {found} program headers; these are read"
                );
                self.damage(Error::value(&name, 32, at, &expected).to_string());
                best = usual;
            }
        }
        let found = best.headers.len() as u64;
        if found > count {
            let expected =
                format!("{found}, the number of program headers at {:#x}; all are read", best.at);
            self.damage(Error::value(&name, 56, count, &expected).to_string());
        }
        if let Some((first, odd)) = best.odd {
            self.damage(format!(
                "{name}: offset {first:#x}: {odd} impossible program headers are skipped"
            ));
        }
        Ok(best.headers)
    }

    fn damage(&mut self, note: String) {
        self.is_damaged = true;
        self.notes.push(note);
    }

    /// Reads `count` headers from `at` on. With `more`, also those that follow, up to the first
    /// implausible one.
    fn read(
        &mut self,
        header: &FileHeader,
        at: u64,
        count: u64,
        more: bool,
        budget: &Budget,
    ) -> Result<Headers, Error> {
        let name = self.file.name.clone();
        let mut read = Headers { at, headers: Vec::new(), odd: None };
        let limit = if more { MAX_PROGRAM_HEADERS } else { count };
        let mut done = 0u64;
        while done < limit {
            let batch = BATCH.min(limit.saturating_sub(done));
            budget.steps(&name, batch)?;
            let at = at.saturating_add(done.saturating_mul(PROGRAM_HEADER_LEN));
            let mut bytes =
                vec![0u8; usize::try_from(batch.saturating_mul(PROGRAM_HEADER_LEN)).unwrap_or(0)];
            let got = match self.file.read(at, &mut bytes) {
                Got::All => bytes.len(),
                Got::Ended(n) | Got::Failed(n) => n,
            };
            let mut reader =
                Reader::new(&name, bytes.get(..got).unwrap_or_default(), header.order).based(at);
            for _ in 0..batch {
                let place = reader.offset();
                match ProgramHeader::parse(&mut reader) {
                    Ok(header) if header.is_plausible() && (done < count || header.has_bytes()) => {
                        read.headers.push(header);
                    }
                    Ok(_) if done < count => {
                        let (first, odd) = read.odd.unwrap_or((place, 0));
                        read.odd = Some((first, odd.saturating_add(1)));
                    }
                    Err(error) if done < count => {
                        if !more {
                            self.damage(format!("{error}: the table of program headers is cut"));
                        }
                        return Ok(read);
                    }
                    _ => return Ok(read),
                }
                done = done.saturating_add(1);
            }
        }
        Ok(read)
    }

    /// Adds the bytes of a loadable segment at `address`, its virtual or physical address.
    pub(crate) fn load(&mut self, header: &ProgramHeader, address: u64) {
        let ProgramHeader { offset, file_size, memory_size, .. } = *header;
        let len = memory_size.max(file_size);
        let held = file_size.min(self.file.len.saturating_sub(offset));
        self.held = self.held.saturating_add(held);
        if self.held > self.file.len.saturating_mul(MAX_SHARED) {
            self.left_out = self.left_out.saturating_add(1);
            return;
        }
        let mut push = |address: u64, len, held, offset, rest| {
            self.segments.push(Segment { address, len, held, file: 0, offset, rest });
        };
        push(address, file_size, held, offset, HoleCause::Truncated);
        let rest = len.saturating_sub(file_size);
        push(address.saturating_add(file_size), rest, 0, offset, HoleCause::Excluded);
        if held < file_size {
            let (count, first, whole) = self.cut;
            let first = if count == 0 { address } else { first };
            self.cut =
                (count.saturating_add(1), first, whole.max(offset.saturating_add(file_size)));
        }
    }

    /// Adds the pages of a process core that no header leads to.
    pub(crate) fn orphans(&mut self, header: &FileHeader, headers: &[ProgramHeader]) {
        let read = Headers { at: header.program_headers_at, headers: headers.to_vec(), odd: None };
        let runs = orphans::orphans(self.file, parts(header, &read));
        for (at, len) in &runs {
            let end = at.saturating_add(*len);
            let name = self.file.name.clone();
            self.damage(format!(
                "{name}: no program header leads to the {len} bytes from {at:#x} to {end:#x}; they are searched at that offset"
            ));
        }
        let loads = headers.iter().filter(|header| header.kind == PT_LOAD && header.file_size > 0);
        let pages = loads.map(|load| load.offset).filter(|offset| *offset < self.file.len);
        self.segments.extend(orphans::segments(self.file, &runs, pages));
    }

    /// Reports the segments cut by the end of the file, and those that share too many bytes, once
    /// for all segments.
    pub(crate) fn tell_cut(&mut self) {
        if self.left_out > 0 {
            let (name, count) = (self.file.name.clone(), self.left_out);
            self.damage(format!(
                "{name}: program headers name the same bytes more than {MAX_SHARED} times; the last {count} are not read"
            ));
        }
        let (count, first, whole) = self.cut;
        if count > 0 {
            let Backing { name, len, .. } = self.file;
            let words = if count == 1 { "segment is" } else { "segments are" };
            let percent = len.saturating_mul(100).checked_div(whole).unwrap_or(0);
            self.damage(format!(
                "{name}: the file ends at {len} of {whole} bytes ({percent} %): {count} {words} cut or missing, the first at address {first:#x}"
            ));
        }
    }

    /// The bytes of a note segment, as far as the file has them; none if there were already too
    /// many.
    pub(crate) fn note_segment(
        &mut self,
        header: &ProgramHeader,
        budget: &Budget,
    ) -> Result<Option<Vec<u8>>, Error> {
        let len = header.file_size.min(self.file.len.saturating_sub(header.offset));
        self.note_bytes = self.note_bytes.saturating_add(len);
        if self.note_bytes > MAX_NOTES {
            self.notes.push(format!(
                "{}: more than {MAX_NOTES} bytes of notes; the rest is not read",
                self.file.name
            ));
            return Ok(None);
        }
        budget.bytes(&self.file.name, len)?;
        let mut bytes = vec![0u8; usize::try_from(len).unwrap_or(0)];
        self.file.read_all(header.offset, &mut bytes)?;
        Ok(Some(bytes))
    }
}

/// The known parts of a file: the headers, the segments, and the section headers at its end with
/// their names.
fn parts(header: &FileHeader, read: &Headers) -> Vec<(u64, u64)> {
    let table = (read.headers.len() as u64).saturating_mul(PROGRAM_HEADER_LEN);
    let mut parts = vec![(0, HEADER_LEN as u64), (read.at, table)];
    parts.extend(read.headers.iter().map(|header| (header.offset, header.file_size)));
    parts.extend(header.sections());
    parts
}

//! The program headers of an ELF core, of a process or of a kernel, and what they point to.

use crate::HoleCause;
use crate::elf::{FileHeader, PROGRAM_HEADER_LEN, ProgramHeader};
use crate::file::{Backing, Got};
use crate::segments::Segment;
use lastwords_bytes::{Budget, Error, Reader};

/// Bytes of notes that are read of one core; a core of 10,000 threads has 100 MB.
const MAX_NOTES: u64 = 1 << 28;
/// Program headers read at a time.
const BATCH: u64 = 1024;

/// A table of program headers that is being read.
pub(crate) struct Table<'a> {
    file: &'a Backing,
    /// The segments found, at the addresses that the caller gave them.
    pub(crate) segments: Vec<Segment>,
    /// Remarks on what is missing or damaged.
    pub(crate) notes: Vec<String>,
    note_bytes: u64,
}

impl<'a> Table<'a> {
    /// Nothing read yet.
    pub(crate) fn new(file: &'a Backing) -> Self {
        Self { file, segments: Vec::new(), notes: Vec::new(), note_bytes: 0 }
    }

    /// Reads the table in batches. A table that the file does not hold whole is read as far as it goes.
    pub(crate) fn program_headers(
        &mut self,
        header: &FileHeader,
        budget: &Budget,
    ) -> Result<Vec<ProgramHeader>, Error> {
        let name = &*self.file.name;
        let mut headers = Vec::new();
        let count = match header.count(name, |at, buf| self.file.read_all(at, buf)) {
            Ok(count) => count,
            Err(error) => {
                self.notes.push(format!("{error}; no program header is read"));
                0
            }
        };
        let mut done = 0u64;
        while done < count {
            let batch = BATCH.min(count.saturating_sub(done));
            budget.steps(name, batch)?;
            let at = header.program_headers_at.saturating_add(done.saturating_mul(PROGRAM_HEADER_LEN));
            let mut bytes = vec![0u8; usize::try_from(batch.saturating_mul(PROGRAM_HEADER_LEN)).unwrap_or(0)];
            let got = match self.file.read(at, &mut bytes) {
                Got::All => bytes.len(),
                Got::Ended(n) | Got::Failed(n) => n,
            };
            let mut reader = Reader::new(name, bytes.get(..got).unwrap_or_default(), header.order).based(at);
            for _ in 0..batch {
                match ProgramHeader::parse(&mut reader) {
                    Ok(header) => headers.push(header),
                    Err(error) => {
                        self.notes.push(format!("{error}: the table of program headers is cut"));
                        return Ok(headers);
                    }
                }
            }
            done = done.saturating_add(batch);
        }
        Ok(headers)
    }

    /// Adds what a loadable segment holds, at `address`: its virtual or its physical one.
    pub(crate) fn load(&mut self, header: &ProgramHeader, address: u64) {
        let ProgramHeader { offset, file_size, memory_size, .. } = *header;
        let len = memory_size.max(file_size);
        let held = file_size.min(self.file.len.saturating_sub(offset));
        let mut push = |address: u64, len, held, offset, rest| {
            self.segments.push(Segment { address, len, held, file: 0, offset, rest });
        };
        push(address, file_size, held, offset, HoleCause::Truncated);
        let rest = len.saturating_sub(file_size);
        push(address.saturating_add(file_size), rest, 0, offset, HoleCause::Excluded);
        if held < file_size {
            let at = offset.saturating_add(held);
            self.notes.push(format!(
                "{}: the file ends at {:#x}, inside the segment of address {address:#x} (bytes from {at:#x} on are missing)",
                self.file.name, self.file.len
            ));
        }
    }

    /// The bytes of a segment of notes, as far as the file holds them; none where there are too many already.
    pub(crate) fn note_segment(&mut self, header: &ProgramHeader, budget: &Budget) -> Result<Option<Vec<u8>>, Error> {
        let len = header.file_size.min(self.file.len.saturating_sub(header.offset));
        self.note_bytes = self.note_bytes.saturating_add(len);
        if self.note_bytes > MAX_NOTES {
            self.notes.push(format!("{}: more than {MAX_NOTES} bytes of notes; the rest is not read", self.file.name));
            return Ok(None);
        }
        budget.bytes(&self.file.name, len)?;
        let mut bytes = vec![0u8; usize::try_from(len).unwrap_or(0)];
        self.file.read_all(header.offset, &mut bytes)?;
        Ok(Some(bytes))
    }
}

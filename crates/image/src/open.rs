//! Opening whatever a path names.

use crate::core::CoreInfo;
use crate::elf::{self, FileHeader, PT_LOAD, PT_NOTE, ProgramHeader};
use crate::file::{Backing, Got};
use crate::segments::{Segment, Segments};
use crate::{HoleCause, Image, Watch, compressed};
use lastwords_bytes::{Budget, Error, Reader};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a path was found to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A folder of region files.
    Folder,
    /// A process core.
    Core,
    /// A process core, compressed with zstd.
    CompressedCore,
    /// A file that is no container: a region, or several one behind the other.
    Plain,
}

impl Kind {
    /// A few words for people.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Folder => "session folder",
            Self::Core => "process core",
            Self::CompressedCore => "process core (zstd)",
            Self::Plain => "file",
        }
    }
}

/// An image and what is known of it.
#[derive(Clone)]
pub struct Opened {
    /// The image.
    pub image: Arc<dyn Image>,
    /// What it is.
    pub kind: Kind,
    /// What a core says of its process.
    pub core: Option<CoreInfo>,
    /// Remarks: what is missing or damaged in the container itself.
    pub notes: Vec<String>,
}

impl std::fmt::Debug for Opened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { image, kind, core, notes } = self;
        f.debug_struct("Opened")
            .field("image", &image.name())
            .field("kind", kind)
            .field("core", core)
            .field("notes", notes)
            .finish()
    }
}

/// Bytes of notes that are read of one core; a core of 10,000 threads has 100 MB.
const MAX_NOTES: u64 = 1 << 28;
/// Program headers read at a time.
const BATCH: u64 = 1024;
/// Files of a folder that are looked at.
const MAX_FILES: usize = 1 << 16;
/// Distance of the files of a folder in its made-up address space, beyond their length; keeps reads from running on.
const FILE_GAP: u64 = 1 << 30;

/// Opens a session folder, a core (compressed or not) or a plain file.
///
/// # Errors
/// The path cannot be read, or the budget is spent.
pub fn open(path: &Path, budget: &Budget, watch: Watch<'_>) -> Result<Opened, Error> {
    let name = path.display().to_string();
    let metadata = std::fs::metadata(path).map_err(|e| Error::io(&name, 0, &e))?;
    if metadata.is_dir() {
        return folder(path, &name, budget);
    }
    let file = Backing::open(path, true)?;
    let mut magic = [0u8; 4];
    let _ = file.read(0, &mut magic);
    if magic == compressed::MAGIC {
        let mut notes = Vec::new();
        let file = compressed::decompress(&file, budget, watch, &mut notes)?;
        let mut opened = of_file(file, &name, budget)?;
        opened.notes.splice(0..0, notes);
        if opened.kind == Kind::Core {
            opened.kind = Kind::CompressedCore;
        }
        return Ok(opened);
    }
    of_file(file, &name, budget)
}

fn of_file(file: Backing, name: &str, budget: &Budget) -> Result<Opened, Error> {
    let mut head = [0u8; elf::HEADER_LEN];
    if matches!(file.read(0, &mut head), Got::All) && head.starts_with(&elf::MAGIC) {
        match FileHeader::parse(name, &head) {
            Ok(header) => return core(file, name, header, budget),
            Err(error) => return Ok(plain(file, name, vec![format!("{error}; read as a plain file")])),
        }
    }
    Ok(plain(file, name, Vec::new()))
}

fn plain(file: Backing, name: &str, notes: Vec<String>) -> Opened {
    let len = file.len;
    let segment = Segment { address: 0, len, held: len, file: 0, offset: 0, rest: HoleCause::Truncated };
    let (image, _) = Segments::new(name, vec![file], vec![segment], false);
    Opened { image: Arc::new(image), kind: Kind::Plain, core: None, notes }
}

fn folder(path: &Path, name: &str, budget: &Budget) -> Result<Opened, Error> {
    let mut paths: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(path).map_err(|e| Error::io(name, 0, &e))?.take(MAX_FILES) {
        let entry = entry.map_err(|e| Error::io(name, 0, &e))?;
        if entry.file_type().is_ok_and(|t| t.is_file()) {
            paths.push(entry.path());
        }
    }
    paths.sort();
    budget.steps(name, paths.len() as u64)?;
    let (mut files, mut segments, mut notes) = (Vec::new(), Vec::new(), Vec::new());
    let mut address = 0u64;
    for path in paths {
        match Backing::open(&path, false) {
            Ok(file) => {
                let (len, index) = (file.len, files.len());
                segments.push(Segment { address, len, held: len, file: index, offset: 0, rest: HoleCause::Truncated });
                files.push(file);
                let end = address.saturating_add(len).saturating_add(FILE_GAP);
                address = end.checked_next_multiple_of(FILE_GAP).unwrap_or(u64::MAX);
            }
            Err(error) => notes.push(error.to_string()),
        }
    }
    let (image, _) = Segments::new(name, files, segments, false);
    Ok(Opened { image: Arc::new(image), kind: Kind::Folder, core: None, notes })
}

/// A core that is being opened.
struct Core<'a> {
    file: &'a Backing,
    name: &'a str,
    header: FileHeader,
    budget: &'a Budget,
    info: CoreInfo,
    segments: Vec<Segment>,
    notes: Vec<String>,
    note_bytes: u64,
}

fn core(file: Backing, name: &str, header: FileHeader, budget: &Budget) -> Result<Opened, Error> {
    let info = CoreInfo { machine: header.machine, ..CoreInfo::default() };
    let mut core =
        Core { file: &file, name, header, budget, info, segments: Vec::new(), notes: Vec::new(), note_bytes: 0 };
    core.program_headers()?;
    let Core { info, segments, mut notes, .. } = core;
    let (image, overlaps) = Segments::new(name, vec![file], segments, true);
    if overlaps > 0 {
        notes.push(format!("{name}: {overlaps} program headers overlap others and were cut"));
    }
    Ok(Opened { image: Arc::new(image), kind: Kind::Core, core: Some(info), notes })
}

impl Core<'_> {
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        let len = buf.len();
        match self.file.read(offset, buf) {
            Got::All => Ok(()),
            Got::Ended(got) => Err(Error::short(self.name, offset, got as u64, &format!("{len} bytes"))),
            Got::Failed(_) => {
                Err(Error::io(self.name, offset, &std::io::Error::other(format!("{len} bytes cannot be read"))))
            }
        }
    }

    /// Reads the table in batches. A table that the file does not hold whole is read as far as it goes.
    fn program_headers(&mut self) -> Result<(), Error> {
        let count = match self.header.count(self.name, |at, buf| self.read(at, buf)) {
            Ok(count) => count,
            Err(error) => {
                self.notes.push(format!("{error}; no program header is read"));
                0
            }
        };
        let mut done = 0u64;
        while done < count {
            let batch = BATCH.min(count.saturating_sub(done));
            self.budget.steps(self.name, batch)?;
            let at = self.header.program_headers_at.saturating_add(done.saturating_mul(elf::PROGRAM_HEADER_LEN));
            let mut bytes = vec![0u8; usize::try_from(batch.saturating_mul(elf::PROGRAM_HEADER_LEN)).unwrap_or(0)];
            let got = match self.file.read(at, &mut bytes) {
                Got::All => bytes.len(),
                Got::Ended(n) | Got::Failed(n) => n,
            };
            let order = self.header.order;
            let mut reader = Reader::new(self.name, bytes.get(..got).unwrap_or_default(), order).based(at);
            for _ in 0..batch {
                match ProgramHeader::parse(&mut reader) {
                    Ok(header) => self.program_header(header)?,
                    Err(error) => {
                        self.notes.push(format!("{error}: the table of program headers is cut"));
                        return Ok(());
                    }
                }
            }
            done = done.saturating_add(batch);
        }
        Ok(())
    }

    fn program_header(&mut self, header: ProgramHeader) -> Result<(), Error> {
        match header.kind {
            PT_LOAD => self.segment(header),
            PT_NOTE => self.note_segment(header)?,
            _ => {}
        }
        Ok(())
    }

    fn segment(&mut self, header: ProgramHeader) {
        let ProgramHeader { offset, address, file_size, memory_size, .. } = header;
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
                self.name, self.file.len
            ));
        }
    }

    fn note_segment(&mut self, header: ProgramHeader) -> Result<(), Error> {
        let len = header.file_size.min(self.file.len.saturating_sub(header.offset));
        self.note_bytes = self.note_bytes.saturating_add(len);
        if self.note_bytes > MAX_NOTES {
            self.notes.push(format!("{}: more than {MAX_NOTES} bytes of notes; the rest is not read", self.name));
            return Ok(());
        }
        self.budget.bytes(self.name, len)?;
        let mut bytes = vec![0u8; usize::try_from(len).unwrap_or(0)];
        self.read(header.offset, &mut bytes)?;
        let reader = Reader::new(self.name, &bytes, self.header.order).based(header.offset);
        self.info.add(reader, self.budget, &mut self.notes);
        Ok(())
    }
}

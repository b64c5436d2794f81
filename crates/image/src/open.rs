//! Opens a path of any kind.

use crate::core::CoreInfo;
use crate::elf::{self, FileHeader, PT_LOAD, PT_NOTE, ProgramHeader};
use crate::file::Backing;
use crate::got::Got;
use crate::opened::{ImageKind, Opened};
use crate::program_headers::Table;
use crate::segments::{Segment, Segments};
use crate::{HoleCause, Watch, compressed, dax_node, orphans, process};
use lastwords_bytes::{Budget, Error, Reader, irregular};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Most files of a folder that are opened.
const MAX_FILES: usize = 1 << 16;
/// Distance between the files of a folder in the image's artificial address space, so that a read
/// cannot run into the next file.
const FILE_GAP: u64 = 1 << 30;

/// Opens a session folder, a core (compressed or not), the memory of a process (`/proc/PID/mem`) or
/// a plain file.
///
/// # Errors
/// The path cannot be read, or the budget is spent.
pub fn open(path: &Path, budget: &Budget, watch: Watch<'_>) -> Result<Opened, Error> {
    if process::is_memory(path) {
        return process::open(path, budget);
    }
    let name = path.display().to_string();
    let metadata = std::fs::metadata(path).map_err(|e| Error::io(&name, 0, &e))?;
    if metadata.is_dir() {
        return folder(path, &name, budget);
    }
    if let Some(node) = dax_node::open(path, budget)? {
        return Ok(node);
    }
    let file = Backing::open(path, true, budget)?;
    let mut magic = [0u8; 4];
    let _ = file.read(0, &mut magic);
    if magic == compressed::MAGIC {
        let mut notes = Vec::new();
        let file = compressed::decompress(&file, budget, watch, &mut notes)?;
        let mut opened = of_file(file, &name, budget)?;
        opened.notes.splice(0..0, notes);
        if opened.kind == ImageKind::Core {
            opened.kind = ImageKind::CompressedCore;
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
            Err(error) => {
                return Ok(headless(file, name, vec![format!("{error}; read as a plain file")]));
            }
        }
    }
    Ok(plain(file, name, Vec::new()))
}

fn plain(file: Backing, name: &str, notes: Vec<String>) -> Opened {
    let len = file.len;
    let segment =
        Segment { address: 0, len, held: len, file: 0, offset: 0, rest: HoleCause::Truncated };
    let (image, _) = Segments::new(name, vec![file], vec![segment], false);
    Opened { image: Arc::new(image), kind: ImageKind::Plain, core: None, is_damaged: false, notes }
}

/// Opens an ELF file whose header says that it is no core. In case it was one, its pages are mapped
/// as in a core without headers.
fn headless(file: Backing, name: &str, notes: Vec<String>) -> Opened {
    let head = elf::HEADER_LEN as u64;
    let segments =
        orphans::segments(&file, &[(head, file.len.saturating_sub(head))], std::iter::empty());
    let (image, _) = Segments::new(name, vec![file], segments, false);
    Opened { image: Arc::new(image), kind: ImageKind::Plain, core: None, is_damaged: true, notes }
}

fn folder(path: &Path, name: &str, budget: &Budget) -> Result<Opened, Error> {
    let (mut paths, mut notes): (Vec<PathBuf>, Vec<String>) = (Vec::new(), Vec::new());
    for entry in std::fs::read_dir(path).map_err(|e| Error::io(name, 0, &e))?.take(MAX_FILES) {
        let entry = entry.map_err(|e| Error::io(name, 0, &e))?;
        let kind = entry.file_type().map_err(|e| Error::io(name, 0, &e))?;
        match irregular(kind) {
            None => paths.push(entry.path()),
            // Folders may be beside region files for other reasons.
            Some(_) if kind.is_dir() => {}
            Some(what) => notes.push(format!("{}: {what}; it is not read", entry.path().display())),
        }
    }
    paths.sort();
    budget.steps(name, paths.len() as u64)?;
    let files = paths.iter().map(|path| Backing::open(path, false, budget));
    Ok(of_files(name, files, notes))
}

/// Opens files as those of a session's folder. Each has the path that is opened, and the path that
/// is shown. The caller vouches for the paths: links in them are followed.
///
/// # Errors
/// The budget is spent.
pub fn open_files(
    name: &Path,
    files: &[(PathBuf, PathBuf)],
    budget: &Budget,
) -> Result<Opened, Error> {
    let name = name.display().to_string();
    budget.steps(&name, files.len() as u64)?;
    let files = files.iter().map(|(path, shown)| {
        let mut file = Backing::open(path, true, budget)?;
        file.name = shown.display().to_string().into();
        Ok(file)
    });
    Ok(of_files(&name, files, Vec::new()))
}

/// Puts files side by side in one image. Files that cannot be opened become notes.
fn of_files(
    name: &str,
    opened: impl Iterator<Item = Result<Backing, Error>>,
    mut notes: Vec<String>,
) -> Opened {
    let (mut files, mut segments) = (Vec::new(), Vec::new());
    let mut address = 0u64;
    for file in opened {
        match file {
            Ok(file) => {
                let (len, index) = (file.len, files.len());
                segments.push(Segment {
                    address,
                    len,
                    held: len,
                    file: index,
                    offset: 0,
                    rest: HoleCause::Truncated,
                });
                files.push(file);
                let end = address.saturating_add(len).saturating_add(FILE_GAP);
                address = end.checked_next_multiple_of(FILE_GAP).unwrap_or(u64::MAX);
            }
            Err(error) => notes.push(error.to_string()),
        }
    }
    let (image, _) = Segments::new(name, files, segments, false);
    Opened { image: Arc::new(image), kind: ImageKind::Folder, core: None, is_damaged: false, notes }
}

/// A core that is being opened.
struct Core<'a> {
    name: &'a str,
    header: FileHeader,
    budget: &'a Budget,
    info: CoreInfo,
    table: Table<'a>,
}

fn core(file: Backing, name: &str, header: FileHeader, budget: &Budget) -> Result<Opened, Error> {
    let info = CoreInfo { machine: header.machine, ..CoreInfo::default() };
    let mut core = Core { name, header, budget, info, table: Table::new(&file) };
    let headers = core.table.program_headers(&header, budget)?;
    headers.iter().try_for_each(|h| core.program_header(*h))?;
    core.table.orphans(&header, &headers);
    core.table.tell_cut();
    let Core { info, table: Table { segments, mut notes, is_damaged, .. }, .. } = core;
    let (image, overlaps) = Segments::new(name, vec![file], segments, true);
    if overlaps > 0 {
        notes.push(format!("{name}: {overlaps} program headers overlap others and were cut"));
    }
    Ok(Opened {
        image: Arc::new(image),
        kind: ImageKind::Core,
        core: Some(info),
        is_damaged,
        notes,
    })
}

impl Core<'_> {
    fn program_header(&mut self, header: ProgramHeader) -> Result<(), Error> {
        match header.kind {
            PT_LOAD => self.table.load(&header, header.address),
            PT_NOTE => self.note_segment(header)?,
            _ => {}
        }
        Ok(())
    }

    fn note_segment(&mut self, header: ProgramHeader) -> Result<(), Error> {
        if let Some(bytes) = self.table.note_segment(&header, self.budget)? {
            let reader = Reader::new(self.name, &bytes, self.header.order).based(header.offset);
            self.info.add(reader, self.budget, &mut self.table.notes);
        }
        Ok(())
    }
}

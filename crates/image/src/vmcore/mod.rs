//! Opens dumps of a machine's physical memory.
//!
//! Addresses of these images are physical: [`Physical::image`] contains RAM, whatever the
//! container. Memory that the dump leaves out is a hole with its cause.

mod elf;
mod foreign;
mod kdump;
mod lime;

use crate::file::Backing;
use crate::got::Got;
use crate::segments::{Segment, Segments};
use crate::{HoleCause, Image, Watch, compressed, flattened};
use lastwords_bytes::{Budget, ByteOrder, Error};
use std::path::Path;
use std::sync::Arc;

/// Number of decompressed bytes that show the kind of a zstd file: headers and notes.
const ZSTD_HEAD: usize = 4 << 20;

/// First bytes of dumps of physical memory, other than ELF files and zstd files.
pub const MAGICS: [&[u8]; 4] = [&kdump::MAGIC, &flattened::MAGIC, &lime::LIME, &lime::AVML];

/// Returns true if a file that begins with `head` is a dump or a saved state in a form of other
/// tools, which cannot be read. [`open_physical`] says what it is.
#[must_use]
pub fn is_foreign(head: &[u8]) -> bool {
    foreign::of_head(head).is_some()
}

/// Format of a dump.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// ELF64: `/proc/vmcore`, `/proc/kcore`, `makedumpfile -E`, a hypervisor's dump.
    Elf,
    /// kdump-compressed: `makedumpfile`, or a hypervisor's dump in that form.
    Kdump,
    /// LiME, or AVML with or without compression.
    Lime,
    /// Plain bytes of RAM without a header.
    Raw,
}

impl Format {
    /// Name of the format in messages.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Elf => "ELF vmcore",
            Self::Kdump => "kdump-compressed vmcore",
            Self::Lime => "LiME image",
            Self::Raw => "raw memory",
        }
    }
}

/// The machine whose memory was dumped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Machine {
    /// x86-64.
    X86_64,
    /// 64-bit Arm.
    Aarch64,
}

impl Machine {
    /// The machine of an `e_machine` value in an ELF file.
    #[must_use]
    pub fn of_elf(number: u16) -> Option<Self> {
        match number {
            62 => Some(Self::X86_64),
            183 => Some(Self::Aarch64),
            _ => None,
        }
    }

    /// The machine with this name in `uname -m`.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        match name {
            "x86_64" => Some(Self::X86_64),
            "aarch64" => Some(Self::Aarch64),
            _ => None,
        }
    }

    /// Name of the machine as `uname -m` prints it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
        }
    }
}

/// Physical memory, and facts from its container.
#[derive(Clone)]
pub struct Physical {
    /// The memory, at physical addresses.
    pub image: Arc<dyn Image>,
    /// Format of the dump.
    pub format: Format,
    /// The machine, if the container names it.
    pub machine: Option<Machine>,
    /// Name of an unsupported machine that the container names: its memory can be read, but not
    /// its kernel.
    pub foreign: Option<String>,
    /// Byte order of the machine.
    pub order: ByteOrder,
    /// Text of the VMCOREINFO note, if there is one.
    pub vmcoreinfo: Option<Vec<u8>>,
    /// The NT_PRSTATUS notes (struct elf_prstatus), one for each CPU that wrote one.
    pub cpus: Vec<Vec<u8>>,
    /// Notes about missing or damaged parts of the container itself.
    pub notes: Vec<String>,
}

impl Physical {
    /// Memory of which the container tells nothing else. It is read as little-endian.
    fn new(image: Arc<dyn Image>, format: Format) -> Self {
        Self {
            image,
            format,
            machine: None,
            foreign: None,
            order: ByteOrder::Little,
            vmcoreinfo: None,
            cpus: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Adds notes about the file before those of its content.
    fn noted(mut self, notes: Vec<String>) -> Self {
        self.notes.splice(0..0, notes);
        self
    }

    /// Returns the note that says that the file is a part of a split dump whose other parts were
    /// not named; none if it is whole.
    #[must_use]
    pub fn part_of_split(&self) -> Option<&str> {
        self.notes.iter().find(|note| note.ends_with(kdump::PART)).map(String::as_str)
    }
}

impl std::fmt::Debug for Physical {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Physical")
            .field("image", &self.image.name())
            .field("format", &self.format)
            .field("machine", &self.machine)
            .field("vmcoreinfo", &self.vmcoreinfo.as_ref().map(Vec::len))
            .field("cpus", &self.cpus.len())
            .field("notes", &self.notes)
            .finish()
    }
}

/// Opens a dump of physical memory, also one compressed with zstd; none if the file is something
/// else, such as a process core.
///
/// # Errors
/// The path cannot be read, the budget is spent, or the file is of a known format but too damaged
/// to read.
pub fn open_physical(
    path: &Path,
    budget: &Budget,
    watch: Watch<'_>,
) -> Result<Option<Physical>, Error> {
    let name = path.display().to_string();
    if std::fs::metadata(path).map_err(|e| Error::io(&name, 0, &e))?.is_dir() {
        return Ok(None);
    }
    let file = Backing::open(path, true, budget)?;
    if !starts_with(&file, &compressed::MAGIC) {
        return open_file(file, budget);
    }
    // The first bytes tell if the whole file must be decompressed: magics, or the notes of an ELF
    // file.
    let quiet = Budget::for_input(ZSTD_HEAD as u64);
    let head = compressed::head(&file, ZSTD_HEAD)?;
    if !starts_with(&head, &flattened::MAGIC)
        && !matches!(of_file(head, &quiet), Ok(Some(_)) | Err(_))
    {
        return Ok(None);
    }
    let mut notes = Vec::new();
    let file = compressed::decompress(&file, budget, watch, &mut notes)?;
    Ok(open_file(file, budget)?.map(|physical| physical.noted(notes)))
}

/// A range of physical addresses and its location in a file of raw memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawRange {
    /// First physical address.
    pub address: u64,
    /// Length, bytes.
    pub len: u64,
    /// Offset of the first byte in the file.
    pub offset: u64,
}

/// Opens a file of raw memory. Such a file has neither a magic nor a memory map; without `map`, the
/// whole file is RAM from address 0 on. `/proc/PID/mem`, which has a guest's memory, has no end and
/// needs a map.
///
/// # Errors
/// The path cannot be read.
pub fn open_raw(path: &Path, map: &[RawRange], budget: &Budget) -> Result<Physical, Error> {
    let file = Backing::open(path, true, budget)?;
    let whole = [RawRange { address: 0, len: file.len, offset: 0 }];
    let map = match map {
        [] if file.is_endless() => return Err(Error::io(&file.name, 0, &needs_map())),
        [] => &whole,
        map => map,
    };
    if file.is_endless() {
        budget.admit(map.iter().map(|run| run.len).fold(0, u64::saturating_add));
    }
    let segment = |r: &RawRange| {
        let held = r.len.min(file.len.saturating_sub(r.offset));
        let (address, len, offset) = (r.address, r.len, r.offset);
        Segment { address, len, held, file: 0, offset, rest: HoleCause::Truncated }
    };
    let segments = map.iter().map(segment).collect();
    let name = file.name.to_string();
    let image = Arc::new(Segments::new(&name, vec![file], segments, false).0);
    Ok(Physical::new(image, Format::Raw))
}

fn needs_map() -> std::io::Error {
    std::io::Error::other(
        "the memory of a process: give the places of a guest's memory in it, ADDRESS+LENGTH@OFFSET",
    )
}

/// Opens the files of one split dump (`makedumpfile --split`), in any order; each file may be
/// flattened.
///
/// # Errors
/// Same as [`open_physical`]; or a file is not kdump-compressed.
pub fn open_split(paths: &[&Path], budget: &Budget) -> Result<Physical, Error> {
    let mut notes = Vec::new();
    let mut files = Vec::new();
    for path in paths {
        let file = Backing::open(path, true, budget)?;
        let file = if starts_with(&file, &flattened::MAGIC) {
            file.flattened(budget, &mut notes)?
        } else {
            file
        };
        let mut head = [0u8; kdump::MAGIC.len()];
        file.read_all(0, &mut head)?;
        if head != kdump::MAGIC {
            let found = u64::from_be_bytes(head);
            return Err(Error::value(&file.name, 0, found, "the magic of a kdump-compressed file"));
        }
        files.push(file);
    }
    Ok(kdump::open(files, budget)?.noted(notes))
}

fn starts_with(file: &Backing, magic: &[u8]) -> bool {
    let mut head = vec![0u8; magic.len()];
    matches!(file.read(0, &mut head), Got::All) && head == magic
}

fn open_file(file: Backing, budget: &Budget) -> Result<Option<Physical>, Error> {
    if !starts_with(&file, &flattened::MAGIC) {
        return of_file(file, budget);
    }
    let mut notes = Vec::new();
    let file = file.flattened(budget, &mut notes)?;
    Ok(of_file(file, budget)?.map(|physical| physical.noted(notes)))
}

fn of_file(file: Backing, budget: &Budget) -> Result<Option<Physical>, Error> {
    let mut head = [0u8; crate::elf::HEADER_LEN];
    if !matches!(file.read(0, &mut head), Got::All) {
        return Ok(None);
    }
    if let Some(foreign::Format { name, advice, .. }) = foreign::of_head(&head) {
        let expected = format!("ELF, kdump-compressed or LiME memory: this is {name}; {advice}");
        return Err(Error::value(&file.name, 0, foreign::word(&head), &expected));
    }
    if head.starts_with(&crate::elf::MAGIC) {
        return elf::open(file, &head, budget);
    }
    if head.starts_with(&kdump::MAGIC) {
        return kdump::open(vec![file], budget).map(Some);
    }
    if head.starts_with(&lime::LIME) || head.starts_with(&lime::AVML) {
        return lime::open(file, budget).map(Some);
    }
    Ok(None)
}

//! Physical memory of a machine, from a dump of it.
//!
//! The addresses of these images are physical: [`Physical::image`] answers for RAM, whatever the container. What the dump
//! leaves out is a hole with its cause.

mod elf;
mod foreign;
mod kdump;
mod lime;

use crate::file::{Backing, Got};
use crate::segments::{Segment, Segments};
use crate::{HoleCause, Image, Watch, compressed, flattened};
use lastwords_bytes::{Budget, ByteOrder, Error};
use std::path::Path;
use std::sync::Arc;

/// Bytes of a file compressed with zstd that show what it is: headers and notes.
const ZSTD_HEAD: usize = 4 << 20;

/// How files begin that hold the memory of a machine, ELF files and those that zstd compressed aside.
pub const MAGICS: [&[u8]; 4] = [&kdump::MAGIC, &flattened::MAGIC, &lime::LIME, &lime::AVML];

/// What kind of file holds the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// ELF64: `/proc/vmcore`, `/proc/kcore`, `makedumpfile -E`, a hypervisor's dump.
    Elf,
    /// kdump-compressed: `makedumpfile`, or a hypervisor's dump in that form.
    Kdump,
    /// LiME, or AVML with or without compression.
    Lime,
    /// Nothing but the bytes of RAM.
    Raw,
}

impl Format {
    /// A few words for people.
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

/// The machine whose memory it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Machine {
    /// x86-64.
    X86_64,
    /// 64-bit Arm.
    Aarch64,
}

impl Machine {
    /// By `e_machine` of an ELF file.
    #[must_use]
    pub fn of_elf(number: u16) -> Option<Self> {
        match number {
            62 => Some(Self::X86_64),
            183 => Some(Self::Aarch64),
            _ => None,
        }
    }

    /// By the name that `uname -m` prints.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        match name {
            "x86_64" => Some(Self::X86_64),
            "aarch64" => Some(Self::Aarch64),
            _ => None,
        }
    }

    /// The name that `uname -m` prints.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
        }
    }
}

/// Physical memory, and what its container says besides.
#[derive(Clone)]
pub struct Physical {
    /// The memory, at physical addresses.
    pub image: Arc<dyn Image>,
    /// What kind of file it is.
    pub format: Format,
    /// The machine, where the container names one.
    pub machine: Option<Machine>,
    /// The name of the machine that the container names, where it is no [`Machine`]: its memory is read, its kernel is not.
    pub foreign: Option<String>,
    /// Byte order of the machine.
    pub order: ByteOrder,
    /// The text of the VMCOREINFO note, where there is one.
    pub vmcoreinfo: Option<Vec<u8>>,
    /// The NT_PRSTATUS notes (struct elf_prstatus), one a CPU that left one.
    pub cpus: Vec<Vec<u8>>,
    /// Remarks: what is missing or damaged in the container itself.
    pub notes: Vec<String>,
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

/// Opens a dump of physical memory, also one that was compressed with zstd; none where the file is something else, such as a process core.
///
/// # Errors
/// The path cannot be read, the budget is spent, or the file says what it is and is too damaged to go on.
pub fn open_physical(path: &Path, budget: &Budget, watch: Watch<'_>) -> Result<Option<Physical>, Error> {
    let name = path.display().to_string();
    if std::fs::metadata(path).map_err(|e| Error::io(&name, 0, &e))?.is_dir() {
        return Ok(None);
    }
    let file = Backing::open(path, true, budget)?;
    if !starts_with(&file, &compressed::MAGIC) {
        return open_file(file, budget);
    }
    // Whether to decompress all of it shows in its first bytes: magics, or the notes of an ELF file.
    let quiet = Budget::for_input(ZSTD_HEAD as u64);
    let head = compressed::head(&file, ZSTD_HEAD)?;
    if !starts_with(&head, &flattened::MAGIC) && !matches!(of_file(head, &quiet), Ok(Some(_)) | Err(_)) {
        return Ok(None);
    }
    let mut notes = Vec::new();
    let mut physical = open_file(compressed::decompress(&file, budget, watch, &mut notes)?, budget)?;
    if let Some(physical) = &mut physical {
        physical.notes.splice(0..0, notes);
    }
    Ok(physical)
}

/// Where a run of physical addresses stands in a file of raw memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawRange {
    /// First physical address.
    pub address: u64,
    /// Bytes.
    pub len: u64,
    /// Offset in the file of the first byte.
    pub offset: u64,
}

/// Opens a file of raw memory: nothing tells that it is one, nor where its RAM was. Without `map` the whole file is RAM from
/// address 0 on.
///
/// # Errors
/// The path cannot be read.
pub fn open_raw(path: &Path, map: &[RawRange], budget: &Budget) -> Result<Physical, Error> {
    let file = Backing::open(path, true, budget)?;
    let whole = [RawRange { address: 0, len: file.len, offset: 0 }];
    let map = if map.is_empty() { &whole } else { map };
    let segment = |r: &RawRange| {
        let held = r.len.min(file.len.saturating_sub(r.offset));
        let (address, len, offset) = (r.address, r.len, r.offset);
        Segment { address, len, held, file: 0, offset, rest: HoleCause::Truncated }
    };
    let segments = map.iter().map(segment).collect();
    let name = file.name.to_string();
    let image = Arc::new(Segments::new(&name, vec![file], segments, false).0);
    let (format, order) = (Format::Raw, ByteOrder::Little);
    Ok(Physical {
        image,
        format,
        machine: None,
        foreign: None,
        order,
        vmcoreinfo: None,
        cpus: Vec::new(),
        notes: Vec::new(),
    })
}

/// Opens the files of one split dump (`makedumpfile --split`), in any order; each may be flattened.
///
/// # Errors
/// As [`open_physical`]; and where a file is not kdump-compressed.
pub fn open_split(paths: &[&Path], budget: &Budget) -> Result<Physical, Error> {
    let mut notes = Vec::new();
    let mut files = Vec::new();
    for path in paths {
        let file = Backing::open(path, true, budget)?;
        let file = if starts_with(&file, &flattened::MAGIC) { file.flattened(budget, &mut notes)? } else { file };
        let mut head = [0u8; kdump::MAGIC.len()];
        file.read_all(0, &mut head)?;
        if head != kdump::MAGIC {
            let found = u64::from_be_bytes(head);
            return Err(Error::value(&file.name, 0, found, "the magic of a kdump-compressed file"));
        }
        files.push(file);
    }
    let mut physical = kdump::open(files, budget)?;
    physical.notes.splice(0..0, notes);
    Ok(physical)
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
    let mut physical = of_file(file.flattened(budget, &mut notes)?, budget)?;
    if let Some(physical) = &mut physical {
        physical.notes.splice(0..0, notes);
    }
    Ok(physical)
}

fn of_file(file: Backing, budget: &Budget) -> Result<Option<Physical>, Error> {
    let mut head = [0u8; crate::elf::HEADER_LEN];
    if !matches!(file.read(0, &mut head), Got::All) {
        return Ok(None);
    }
    if let Some(format) = foreign::format(&head) {
        let expected =
            format!("ELF, kdump-compressed or LiME memory: this is {format}; write the dump as ELF or by makedumpfile");
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

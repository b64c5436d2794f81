//! The kinds of memory that a guest's application records in: for the kernel's command line, for
//! QEMU, and where the host finds them.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use lastwords::Memory as Backend;

use super::{MEMORY, SIZE};
use rig::run_quietly;

/// A kind of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Memory {
    /// A file on a DAX file system of an NVDIMM in the mode fsdax.
    Dax,
    /// The same in memory of the machine that the kernel takes for persistent
    /// (`memmap=SIZE!ADDRESS`).
    Memmap,
    /// Memory of the machine that the kernel was told not to use (`memmap=SIZE$ADDRESS`), by
    /// /dev/mem.
    Physical,
    /// The device node of an NVDIMM in the mode devdax.
    DeviceDax,
}

/// Address of what is taken from the machine's memory.
pub(super) const PLACE: u64 = 0x1000_0000;
/// Bytes at that address for the page of acknowledgements, where the session's memory has no place
/// for one.
const ACK: u64 = 2 << 20;
/// Where the file system begins on an NVDIMM: Linux keeps what it says of the memory before it.
const DATA: u64 = 2 << 20;

/// Where the guest finds the memory.
pub(super) struct Places {
    pub(super) session: Backend,
    /// The file with the page of acknowledgements, and the page's offset.
    pub(super) ack: (&'static str, u64),
}

/// The files of the memory.
pub(crate) struct Files {
    pub(super) kind: Memory,
    /// The NVDIMM.
    nvdimm: PathBuf,
    /// The memory of the machine.
    pub(crate) ram: PathBuf,
    /// A copy of the part of the machine's memory that has the session.
    part: PathBuf,
}

impl Memory {
    /// The name on command lines.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Dax => "dax",
            Self::Memmap => "memmap",
            Self::Physical => "physical",
            Self::DeviceDax => "device-dax",
        }
    }

    fn has_nvdimm(self) -> bool {
        matches!(self, Self::Dax | Self::DeviceDax)
    }

    /// Modules of the kernel that find the memory.
    pub(crate) fn modules(self) -> &'static [&'static str] {
        match self {
            Self::Dax => &["nfit", "nd_pmem"],
            Self::Memmap => &["nd_e820", "nd_pmem"],
            Self::Physical => &[],
            Self::DeviceDax => &["nfit", "nd_pmem", "device_dax", "dax_pmem"],
        }
    }

    /// For the kernel's command line.
    pub(crate) fn arguments(self) -> String {
        let memory = match self {
            Self::Dax => String::new(),
            Self::Memmap => format!(" memmap={SIZE}!{PLACE:#x}"),
            Self::Physical => format!(" memmap={SIZE}${PLACE:#x}"),
            Self::DeviceDax => format!(" memmap={ACK}${PLACE:#x}"),
        };
        format!("lab.memory={}{memory}", self.name())
    }

    /// The places in the guest.
    pub(super) fn places(self) -> Places {
        let dax = |path: &str| Backend::Dax { path: path.into(), reuse: true };
        let (session, ack) = match self {
            Self::Dax | Self::Memmap => (dax("/pmem/session"), ("/pmem/ack", 0)),
            Self::Physical => {
                let (path, len) = ("/dev/mem".into(), SIZE - ACK);
                (
                    Backend::Physical { path, offset: PLACE, len, reuse: true },
                    ("/dev/mem", PLACE + len),
                )
            }
            // A device node is not written by calls.
            Self::DeviceDax => (dax("/dev/dax0.0"), ("/dev/mem", PLACE)),
        };
        Places { session, ack }
    }

    /// How many inputs a boot reports.
    pub(super) fn inputs(self) -> usize {
        if matches!(self, Self::Dax | Self::Memmap) { 2 } else { 1 }
    }
}

impl Files {
    /// Makes the files of an empty memory, with a file system where the application needs one.
    pub(crate) fn make(kind: Memory, folder: &Path) -> Result<Self> {
        let [nvdimm, ram, part] = ["nvdimm", "ram", "part"].map(|name| folder.join(name));
        let files = Self { kind, nvdimm, ram, part };
        File::create(&files.ram)?.set_len(u64::from(MEMORY) << 20)?;
        if kind.has_nvdimm() {
            File::create(&files.nvdimm)?.set_len(SIZE)?;
        }
        let (file, offset) = match kind {
            Memory::Dax => (&files.nvdimm, DATA),
            Memory::Memmap => (&files.ram, PLACE),
            Memory::Physical | Memory::DeviceDax => return Ok(files),
        };
        let blocks = (if kind == Memory::Dax { SIZE - DATA } else { SIZE }) / 4096;
        let mut mke2fs = Command::new("mke2fs");
        mke2fs.args(["-q", "-t", "ext4", "-b", "4096", "-E", &format!("offset={offset}")]);
        run_quietly(mke2fs.arg(file).arg(blocks.to_string()))?;
        Ok(files)
    }

    /// For QEMU's command line.
    pub(crate) fn of_qemu(&self) -> Vec<String> {
        let backend = |id: &str, file: &Path, size: u64| {
            [
                "-object".into(),
                format!(
                    "memory-backend-file,id={id},share=on,mem-path={},size={size}",
                    file.display()
                ),
            ]
        };
        let mut words = backend("ram", &self.ram, u64::from(MEMORY) << 20).to_vec();
        if self.kind.has_nvdimm() {
            words.extend(["-machine".into(), "pc,nvdimm=on,memory-backend=ram".into()]);
            words.extend(["-m".into(), format!("{MEMORY}M,slots=2,maxmem=2G")]);
            words.extend(backend("nv", &self.nvdimm, SIZE));
            words.extend(["-device".into(), "nvdimm,memdev=nv".into()]);
        } else {
            words.extend(["-machine".into(), "pc,memory-backend=ram".into()]);
        }
        words
    }

    /// The file that has the session, while the machine stands still.
    pub(super) fn session(&self) -> Result<&Path> {
        if self.kind.has_nvdimm() {
            return Ok(&self.nvdimm);
        }
        let bytes = part(&self.ram, SIZE)?;
        std::fs::write(&self.part, bytes).with_context(|| self.part.display().to_string())?;
        Ok(&self.part)
    }

    /// The bytes that have the page of acknowledgements.
    pub(super) fn acks(&self) -> Result<Vec<u8>> {
        match self.kind {
            Memory::Dax => {
                std::fs::read(&self.nvdimm).with_context(|| self.nvdimm.display().to_string())
            }
            Memory::Memmap | Memory::Physical => part(&self.ram, SIZE),
            Memory::DeviceDax => part(&self.ram, ACK),
        }
    }
}

/// The first bytes of what is taken from the machine's memory.
fn part(ram: &Path, len: u64) -> Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(len)?];
    let file = File::open(ram).with_context(|| ram.display().to_string())?;
    file.read_exact_at(&mut bytes, PLACE).with_context(|| ram.display().to_string())?;
    Ok(bytes)
}

//! Layer three: where the memory of a session's regions comes from.
//!
//! All regions of a session are asked for at once; every back-end gives zeroed, writable memory that begins on a
//! 4096-byte boundary and stays mapped until [`Mapping::detach`] puts private memory in its place. What recording can
//! touch is backed before [`Backend::allocate`] returns, so that a full file system is an error there and never a signal
//! later.

mod arena;
mod dax;
mod file;
mod heap;
mod huge;
mod mapping;
mod places;
mod shared;
mod verified_file;

use core::ops::Range;
use std::io;
use std::os::fd::OwnedFd;

use lastwords_abi::region::REGION_ALIGN as PAGE;
use lastwords_abi::session as abi;

pub use crate::flush;
pub use huge::ARENA_FILE;
pub use mapping::Mapping;
pub use places::{PLACES_FILE, Place, open_places, parse_places, write_places};
pub use shared::open_region;
pub use verified_file::VerifiedFile;

/// What a back-end is asked for: one region.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Name of the region, unique in its session: letters, digits, `-` and `.`; a file's name where regions are files.
    pub name: String,
    /// Bytes, a multiple of 4096.
    pub len: u64,
    /// The byte range that may stay without memory for now (the spare half of a stream); empty when all is needed.
    pub sparse: Range<u64>,
}

impl Plan {
    /// A region that is wholly backed.
    #[must_use]
    pub fn whole(name: impl Into<String>, len: u64) -> Self {
        Self { name: name.into(), len, sparse: len..len }
    }

    /// The ranges that must be backed.
    pub(crate) fn needed(&self) -> [Range<u64>; 2] {
        [0..self.sparse.start.min(self.len), self.sparse.end.min(self.len)..self.len]
    }
}

/// The folder of a session.
#[derive(Debug)]
pub struct Folder {
    /// The folder, open.
    pub fd: OwnedFd,
    /// Its path, for messages and for other processes.
    pub path: String,
}

/// Where the memory of regions comes from.
#[derive(Debug)]
pub enum Backend {
    /// Pages on the heap of this process.
    Heap,
    /// A file a region, in the session's folder.
    Shm(Folder),
    /// One memfd.
    Memfd,
    /// One file in huge pages: in hugetlbfs when one is mounted, writable and has free pages, else in the session's folder with
    /// advice to the kernel. Pages of a hugetlbfs are given back when the process ends, not when its session does: they can be
    /// unmapped whole only, and late recorders may be in them.
    Huge {
        /// The session's folder.
        folder: Folder,
        /// Name of the session's file in a hugetlbfs.
        unique: String,
    },
    /// A device-DAX node, an existing file of this user, or a file to be made.
    Dax {
        /// The file.
        path: String,
        /// Whether a session that is recorded there may be overwritten; without it, it is refused.
        reuse: bool,
    },
    /// A range of a device file (`/dev/mem`, a UIO or reserved-memory node) or of a plain file.
    Physical {
        /// The file.
        path: String,
        /// Where the range begins, a multiple of 4096.
        offset: u64,
        /// Its bytes.
        len: u64,
        /// As for `Dax`.
        reuse: bool,
    },
}

impl Backend {
    /// Which one, of [`lastwords_abi::session`]'s `BACKEND_`.
    #[must_use]
    pub fn kind(&self) -> u32 {
        match self {
            Self::Heap => abi::BACKEND_HEAP,
            Self::Shm(_) => abi::BACKEND_SHM,
            Self::Memfd => abi::BACKEND_MEMFD,
            Self::Huge { .. } => abi::BACKEND_HUGE,
            Self::Dax { .. } => abi::BACKEND_DAX,
            Self::Physical { .. } => abi::BACKEND_PHYSICAL,
        }
    }

    /// Memory for each plan, in their order; and what was chosen, for people: "2 MiB pages of hugetlbfs", "no MAP_SYNC here".
    ///
    /// # Errors
    /// What the system said, with the path and the length asked for. Nothing stays behind but empty files in the
    /// session's folder.
    pub fn allocate(&self, plans: &[Plan]) -> Result<(Vec<Mapping>, String), BackendError> {
        let noted = |mappings: Vec<Mapping>, note: &str| Ok((mappings, note.to_owned()));
        match self {
            Self::Huge { folder, unique } => huge::allocate(folder, unique, plans),
            Self::Dax { path, reuse } => dax::allocate(path, *reuse, plans),
            Self::Physical { path, offset, len, reuse } => dax::allocate_physical(path, *offset, *len, *reuse, plans),
            Self::Heap => {
                let note = "pages of 4096 bytes on the heap; other processes cannot see them, a core has them";
                noted(heap::allocate(plans)?, note)
            }
            Self::Shm(folder) => noted(shared::allocate_files(folder, plans)?, "one file a region"),
            Self::Memfd => {
                let note = "one memfd; gone with the last process that has it, kept in its core";
                noted(shared::allocate_memfd(plans)?, note)
            }
        }
    }

    /// Bytes of the pages in which stream data is given, or 0 when it is contiguous.
    #[must_use]
    pub fn page_size(&self) -> u32 {
        if matches!(self, Self::Heap) { PAGE as u32 } else { 0 }
    }

    /// Whether what is written must be flushed from the CPU's caches to be kept.
    #[must_use]
    pub fn is_persistent(&self) -> bool {
        matches!(self, Self::Dax { .. } | Self::Physical { .. })
    }

    /// Whether the regions are files of their own names in the session's folder; if not, [`write_places`] is to say there
    /// where they are.
    #[must_use]
    pub fn is_in_folder(&self) -> bool {
        matches!(self, Self::Shm(_))
    }
}

/// Why a back-end gave no memory.
#[derive(Debug)]
pub struct BackendError {
    /// The call that failed: `openat`, `fallocate`, `mmap`, …
    pub call: &'static str,
    /// The file, or what stands for it.
    pub path: String,
    /// Offset in the file, bytes.
    pub offset: u64,
    /// Length asked for, bytes.
    pub len: u64,
    /// What the system said.
    pub source: io::Error,
}

impl core::fmt::Display for BackendError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self { call, path, offset, len, source } = self;
        write!(f, "{path}: {call} of {len} bytes at offset {offset}: {source}")?;
        match source.raw_os_error() {
            Some(libc::ENOSPC) => write!(f, "; make room there, or ask for fewer or smaller sub-buffers"),
            Some(libc::EFBIG) => write!(f, "; raise the process's limit on file sizes (`ulimit -f`), or take the heap"),
            Some(libc::ENOMEM) => write!(f, "; ask for fewer or smaller sub-buffers, or raise the limit (`ulimit -v`)"),
            Some(libc::EACCES | libc::EPERM) => write!(f, "; choose a path that this user may write"),
            _ => Ok(()),
        }
    }
}

impl std::error::Error for BackendError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

impl BackendError {
    pub(crate) fn new(call: &'static str, path: &str, offset: u64, len: u64, source: impl Into<io::Error>) -> Self {
        Self { call, path: path.to_owned(), offset, len, source: source.into() }
    }

    pub(crate) fn invalid(path: &str, offset: u64, len: u64, what: impl Into<String>) -> Self {
        Self::new("use", path, offset, len, io::Error::new(io::ErrorKind::InvalidInput, what.into()))
    }
}

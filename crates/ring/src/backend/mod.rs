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
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use lastwords_abi::region::REGION_ALIGN as PAGE;
use lastwords_abi::session as abi;

pub use file::open_at;
pub use heap::{discard_pages, fill_pages, free_pages};
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
}

/// An open folder: that of a session, as a rule.
#[derive(Debug, Clone, Copy)]
pub struct Folder<'a> {
    /// The folder, open.
    pub fd: BorrowedFd<'a>,
    /// Its path, for messages and for other processes.
    pub path: &'a Path,
}

impl Folder<'_> {
    /// The folder in which the process is, from where a file is found by its path.
    fn here() -> Self {
        Self { fd: rustix::fs::CWD, path: Path::new("") }
    }

    /// The path of a file in it.
    fn shown(&self, name: &Path) -> String {
        self.path.join(name).display().to_string()
    }
}

/// Where the memory of regions comes from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Backend {
    /// Pages on the heap of this process; seen by nobody else, kept by a core.
    Heap,
    /// One shared-memory file a region, in the session's folder.
    #[default]
    Shm,
    /// One memfd: shared, and kept by a core with the default filter.
    Memfd,
    /// One file in huge pages: in hugetlbfs when one is mounted, writable and has free pages, else in the session's folder with
    /// advice to the kernel. Pages of a hugetlbfs are given back when the process ends, not when its session does: they can be
    /// unmapped whole only, and late recorders may be in them.
    Huge,
    /// A device-DAX node, an existing file of this user, or a file to be made.
    Dax {
        /// The file or device.
        path: PathBuf,
        /// Whether a session that is recorded there may be overwritten; without it, it is refused.
        reuse: bool,
    },
    /// A range of a device file (`/dev/mem`, a UIO or reserved-memory node) or of a plain file.
    Physical {
        /// The file.
        path: PathBuf,
        /// Where the range begins, bytes, a multiple of 4096.
        offset: u64,
        /// Its length, bytes.
        len: u64,
        /// As for `Dax`.
        reuse: bool,
    },
}

/// Memory for each plan, in their order; and what was chosen, for people: "2 MiB pages of hugetlbfs", "no MAP_SYNC here".
type Allocated = Result<(Vec<Mapping>, String), BackendError>;

impl Backend {
    /// Which one, of [`lastwords_abi::session`]'s `BACKEND_`.
    #[must_use]
    pub fn kind(&self) -> u32 {
        match self {
            Self::Heap => abi::BACKEND_HEAP,
            Self::Shm => abi::BACKEND_SHM,
            Self::Memfd => abi::BACKEND_MEMFD,
            Self::Huge => abi::BACKEND_HUGE,
            Self::Dax { .. } => abi::BACKEND_DAX,
            Self::Physical { .. } => abi::BACKEND_PHYSICAL,
        }
    }

    /// Memory for each plan, in their order; and what was chosen, for people: "2 MiB pages of hugetlbfs", "no MAP_SYNC here".
    /// Regions that are files of their own names are made in the session's `folder`; [`write_places`] is to say there where others
    /// are. `unique` is the name of the session's file in a hugetlbfs.
    ///
    /// # Errors
    /// What the system said, with the path and the length asked for. Nothing stays behind but empty files in the
    /// session's folder.
    pub fn allocate(&self, folder: Option<Folder<'_>>, unique: &str, plans: &[Plan]) -> Allocated {
        let folder = || folder.ok_or_else(|| BackendError::invalid("the session's folder", 0, 0, "there is none"));
        match self {
            Self::Heap => heap::allocate(plans),
            Self::Shm => shared::allocate_files(folder()?, plans),
            Self::Memfd => shared::allocate_memfd(plans),
            Self::Huge => huge::allocate(folder()?, unique, plans),
            Self::Dax { path, reuse } => dax::allocate(path, *reuse, plans),
            Self::Physical { path, offset, len, reuse } => dax::allocate_physical(path, *offset, *len, *reuse, plans),
        }
    }

    /// Bytes of the pages in which stream data is given, or 0 when it is contiguous.
    #[must_use]
    pub fn page_size(&self) -> u32 {
        if matches!(self, Self::Heap) { PAGE as u32 } else { 0 }
    }
}

/// Why a back-end gave no memory.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {call} of {len} bytes at offset {offset}: {source}{}", remedy(source))]
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

impl BackendError {
    pub(crate) fn new(call: &'static str, path: &str, offset: u64, len: u64, source: impl Into<io::Error>) -> Self {
        Self { call, path: path.to_owned(), offset, len, source: source.into() }
    }

    pub(crate) fn invalid(path: &str, offset: u64, len: u64, what: impl Into<String>) -> Self {
        Self::new("use", path, offset, len, io::Error::new(io::ErrorKind::InvalidInput, what.into()))
    }
}

/// What to do against it.
fn remedy(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::ENOSPC) => "; make room there, or ask for fewer or smaller sub-buffers",
        Some(libc::EFBIG) => "; raise the process's limit on file sizes (`ulimit -f`), or take the heap",
        Some(libc::ENOMEM) => "; ask for fewer or smaller sub-buffers, or raise the limit (`ulimit -v`)",
        Some(libc::EACCES | libc::EPERM) => "; choose a path that this user may write",
        _ => "",
    }
}

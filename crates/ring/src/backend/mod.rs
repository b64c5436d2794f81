//! The third layer provides the memory of a session's regions.
//!
//! All regions of a session are allocated at once. Every back-end gives zeroed, writable memory
//! that begins on a 4096-byte boundary and stays mapped until [`Mapping::detach`] replaces it by
//! private memory. All memory outside of [`Plan::sparse`] is allocated before [`Backend::allocate`]
//! returns. So a full file system is an error there and never a signal later. The sparse range is
//! allocated before it is used: by [`Mapping::populate`], or by [`crate::grow`].

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
pub use mapping::{Mapping, free};
pub use places::{map_place, open_places, write_places};
pub use shared::{copy_region, open_region, open_region_to_read};
pub use verified_file::VerifiedFile;

/// A request for one region.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Name of the region, unique in its session: letters, digits, `-` and `.`. It is a file name
    /// if regions are files.
    pub name: String,
    /// Length in bytes, a multiple of 4096.
    pub len: u64,
    /// The byte range that may stay without memory for now (the spare half of a stream, and data
    /// that [`crate::grow`] allocates). It is empty if all of the region needs memory.
    pub sparse: Range<u64>,
}

impl Plan {
    /// Returns a plan for a region that is completely backed.
    #[must_use]
    pub fn whole(name: impl Into<String>, len: u64) -> Self {
        Self { name: name.into(), len, sparse: len..len }
    }
}

/// An open folder, usually that of a session.
#[derive(Debug, Clone, Copy)]
pub struct Folder<'a> {
    /// Descriptor of the open folder.
    pub fd: BorrowedFd<'a>,
    /// Path of the folder, for messages and for other processes.
    pub path: &'a Path,
}

impl Folder<'_> {
    /// Returns the working directory of the process, from which a path of a file is resolved.
    fn here() -> Self {
        Self { fd: rustix::fs::CWD, path: Path::new("") }
    }

    /// Returns the path of a file in the folder.
    fn shown(&self, name: &Path) -> String {
        self.path.join(name).display().to_string()
    }
}

/// Kinds of memory for regions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Backend {
    /// Pages on the heap of this process. No other process sees them, and a core contains them.
    Heap,
    /// One shared-memory file for each region, in the session's folder.
    #[default]
    Shm,
    /// One memfd. Processes can share it, and a core with the default filter contains it.
    Memfd,
    /// One file in huge pages. The file is in hugetlbfs if one is mounted, writable and has free
    /// pages; otherwise it is in the session's folder with advice to the kernel. Pages of a
    /// hugetlbfs are freed when the process ends, not when its session does: they can only be
    /// unmapped as a whole, and late recorders may be in them.
    Huge,
    /// A device-DAX node, an existing file of this user, or a file to be created.
    Dax {
        /// The file or device.
        path: PathBuf,
        /// Allows overwriting a session that is recorded there. Without it, such memory is
        /// refused.
        reuse: bool,
    },
    /// A range of a device file (`/dev/mem`, a UIO or reserved-memory node) or of a plain file.
    Physical {
        /// The file.
        path: PathBuf,
        /// Begin of the range, in bytes, a multiple of 4096.
        offset: u64,
        /// Length of the range, in bytes.
        len: u64,
        /// Allows overwriting a session, as for `Dax`.
        reuse: bool,
    },
}

/// Memory for each plan, in the order of the plans, and a description of the memory for people: "2
/// MiB pages of hugetlbfs", "no MAP_SYNC here".
type Allocated = Result<(Vec<Mapping>, String), BackendError>;

impl Backend {
    /// Returns the `BACKEND_` constant of [`lastwords_abi::session`] for this back-end.
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

    /// Allocates memory for each plan, in the order of the plans. Returns it with a description for
    /// people: "2 MiB pages of hugetlbfs", "no MAP_SYNC here". Regions that are files of their own
    /// are created in the session's `folder`. For other regions, call [`write_places`] to list them
    /// there. `unique` is the name of the session's file in a hugetlbfs.
    ///
    /// # Errors
    /// The error of the system, with the path and the requested length. Nothing is left behind
    /// except empty files in the session's folder.
    pub fn allocate(&self, folder: Option<Folder<'_>>, unique: &str, plans: &[Plan]) -> Allocated {
        let folder = || {
            folder
                .ok_or_else(|| BackendError::invalid("the session's folder", 0, 0, "there is none"))
        };
        match self {
            Self::Heap => heap::allocate(plans),
            Self::Shm => shared::allocate_files(folder()?, plans),
            Self::Memfd => shared::allocate_memfd(plans),
            Self::Huge => huge::allocate(folder()?, unique, plans),
            Self::Dax { path, reuse } => dax::allocate(path, *reuse, plans),
            Self::Physical { path, offset, len, reuse } => {
                dax::allocate_physical(path, *offset, *len, *reuse, plans)
            }
        }
    }

    /// Returns true if the data of rings can get its memory when it is first used. Otherwise all of
    /// it is allocated at the start: persistent memory and huge pages are not taken page by page.
    #[must_use]
    pub fn grows(&self) -> bool {
        matches!(self, Self::Shm | Self::Memfd) && crate::grow::is_possible()
    }

    /// Returns the size of the pages that contain stream data in bytes, or 0 if the data is
    /// contiguous.
    #[must_use]
    pub fn page_size(&self) -> u32 {
        if matches!(self, Self::Heap) { PAGE as u32 } else { 0 }
    }
}

/// Reason why a back-end gave no memory.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {call} of {len} bytes at offset {offset}: {source}{}", remedy(source))]
pub struct BackendError {
    /// The call that failed: `openat`, `fallocate`, `mmap`, …
    pub call: &'static str,
    /// The file, or a text in place of it.
    pub path: String,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Requested length, in bytes.
    pub len: u64,
    /// The error of the system.
    pub source: io::Error,
}

impl BackendError {
    pub(crate) fn new(
        call: &'static str,
        path: &str,
        offset: u64,
        len: u64,
        source: impl Into<io::Error>,
    ) -> Self {
        Self { call, path: path.to_owned(), offset, len, source: source.into() }
    }

    pub(crate) fn invalid(path: &str, offset: u64, len: u64, what: impl Into<String>) -> Self {
        Self::new(
            "use",
            path,
            offset,
            len,
            io::Error::new(io::ErrorKind::InvalidInput, what.into()),
        )
    }
}

/// Returns advice on how to fix the error.
fn remedy(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::ENOSPC) => "; make room there, or ask for fewer or smaller sub-buffers",
        Some(libc::EFBIG) => {
            "; raise the process's limit on file sizes (`ulimit -f`), or take the heap"
        }
        Some(libc::ENOMEM) => {
            "; ask for fewer or smaller sub-buffers, or raise the limit (`ulimit -v`)"
        }
        Some(libc::EACCES | libc::EPERM) => "; choose a path that this user may write",
        _ => "",
    }
}

//! Layer three: where the memory of a session's regions comes from.
//!
//! All regions of a session are asked for at once; every back-end gives zeroed, writable memory that begins on a
//! 4096-byte boundary and stays mapped until [`Mapping::detach`] puts private memory in its place. What recording can
//! touch is backed before [`Backend::allocate`] returns, so that a full file system is an error there and never a signal
//! later.

mod arena;
mod dax;
mod file;
pub mod flush;
mod heap;
mod huge;
mod mapping;
mod memfd;
mod physical;
mod places;
mod shm;
mod verified_file;

use core::ops::Range;
use std::io;

pub use arena::holds_session;
pub use dax::DaxBackend;
pub use heap::HeapBackend;
pub use huge::{ARENA_FILE, HugeBackend};
pub use mapping::Mapping;
pub use memfd::MemfdBackend;
pub use physical::PhysicalBackend;
pub use places::{PLACES_FILE, Place, open_places, parse_places, write_places};
pub use shm::{ShmBackend, open_region};
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

/// Gives memory to regions.
pub trait Backend: Send {
    /// Which one, of [`lastwords_abi::session`]'s `BACKEND_`.
    fn kind(&self) -> u32;

    /// Memory for each plan, in their order.
    ///
    /// # Errors
    /// What the system said, with the path and the length asked for. Nothing stays behind but empty files in the
    /// session's folder.
    fn allocate(&mut self, plans: &[Plan]) -> Result<Vec<Mapping>, BackendError>;

    /// Bytes of the pages in which stream data is given, or 0 when it is contiguous.
    fn page_size(&self) -> u32 {
        0
    }

    /// Whether what is written must be flushed from the CPU's caches to be kept.
    fn persistent(&self) -> bool {
        false
    }

    /// Whether other processes can map the regions.
    fn shared(&self) -> bool {
        true
    }

    /// Whether the regions are files of their own names in the session's folder; if not, [`write_places`] is to say there
    /// where they are.
    fn in_folder(&self) -> bool {
        false
    }

    /// What was chosen, for people: "2 MiB pages of hugetlbfs", "no MAP_SYNC here".
    fn note(&self) -> String;
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
    /// The last error of the C library.
    pub(crate) fn last(call: &'static str, path: &str, offset: u64, len: u64) -> Self {
        Self { call, path: path.to_owned(), offset, len, source: io::Error::last_os_error() }
    }

    /// The heap has no block of that length.
    pub(crate) fn no_memory(path: &str, len: u64) -> Self {
        let source = io::Error::from_raw_os_error(libc::ENOMEM);
        Self { call: "allocate", path: path.to_owned(), offset: 0, len, source }
    }

    pub(crate) fn invalid(path: &str, offset: u64, len: u64, what: impl Into<String>) -> Self {
        let source = io::Error::new(io::ErrorKind::InvalidInput, what.into());
        Self { call: "use", path: path.to_owned(), offset, len, source }
    }
}

/// `value` rounded up to a multiple of `align`, a power of two.
pub(crate) fn round_up(value: u64, align: u64) -> u64 {
    (value + align - 1) & !(align - 1)
}

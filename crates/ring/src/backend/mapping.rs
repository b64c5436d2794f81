//! A region's memory in this process.

use core::ops::Range;
use core::ptr::NonNull;
use std::sync::Arc;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use super::BackendError;
use super::file::NamedFile;

/// Memory of one region, given back when it is dropped: who records in it, or looks into it, keeps it.
#[derive(Debug)]
pub struct Mapping {
    /// Name of the region in its session.
    pub name: String,
    pub(crate) start: NonNull<u8>,
    pub(crate) len: u64,
    /// The file behind it; none for a block of the heap.
    pub(crate) backing: Option<Backing>,
}

/// The file, or a device that acts as one, behind a region.
#[derive(Debug)]
pub(crate) struct Backing {
    pub(crate) file: Arc<NamedFile>,
    /// Offset of the region in the file.
    pub(crate) offset: u64,
    /// Whether the file's blocks come and go (false for devices).
    pub(crate) blocks: bool,
}

// SAFETY: the memory is shared by design and is reached through atomics or raw pointers by whoever uses it; the handle
// itself holds an address, a length and a file.
unsafe impl Send for Mapping {}
// SAFETY: as above; no method of a shared handle writes to the handle.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// First byte; on a 4096-byte boundary.
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Bytes.
    #[expect(clippy::len_without_is_empty, reason = "a region is never empty")]
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Path of the file behind it and the offset there, or `None` for the heap.
    #[must_use]
    pub fn place(&self) -> Option<(&str, u64)> {
        self.backing.as_ref().map(|backing| (backing.file.path.as_str(), backing.offset))
    }

    /// Gives memory to `range`: what was sparse can be written from now on.
    ///
    /// # Errors
    /// The file system is full, or refuses.
    pub fn populate(&self, range: Range<u64>) -> Result<(), BackendError> {
        let Some(backing) = self.backing.as_ref().filter(|backing| backing.blocks) else { return Ok(()) };
        let range = self.bounded(range);
        backing.file.fallocate(backing.offset + range.start, range.end - range.start)
    }

    /// Takes the memory of `range` back, where the file can do without; it reads as zeroes after. Nobody may be writing there.
    pub fn release(&self, range: Range<u64>) {
        let Some(backing) = &self.backing else { return };
        let range = self.bounded(range);
        let (at, len) = (backing.offset + range.start, range.end - range.start);
        if !backing.blocks || backing.file.punch_hole(at, len).is_err() {
            // SAFETY: `bounded` keeps the range inside the mapping, which lives as long as the process.
            unsafe { self.as_ptr().add(range.start as usize).write_bytes(0, len as usize) };
        }
    }

    /// Puts private zeroed memory in the place of the region, in this process only, and closes the file's descriptor. A ring of
    /// zeroes is an empty ring, so recorders that are still on their way write there and harm nothing; the file's memory goes with
    /// its last name. The kernel merges such ranges, so that sessions that were ended take address space but no mappings of their
    /// own. A heap block stays as it is.
    ///
    /// # Safety
    /// No other call for this region, or for one that shares its file, is under way.
    pub unsafe fn detach(&self) {
        let Some(backing) = &self.backing else { return };
        // A refusal leaves the file's memory there, which works as well.
        self.put_zeroes(self.as_ptr(), self.len as usize);
        // SAFETY: descriptors are used during calls only, and there are none.
        unsafe { backing.file.fd.give_up() }
    }

    /// Puts a private zeroed page in the place of the one at `address`, which the file has lost; false where the address is not
    /// in the region, or the system refuses. Async-signal-safe.
    #[must_use]
    pub fn mend(&self, address: usize) -> bool {
        let start = self.as_ptr() as usize;
        if self.backing.is_none() || !(start..start + self.len as usize).contains(&address) {
            return false;
        }
        // SAFETY: the call takes no memory.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
        // A mapping begins on a page's boundary.
        self.put_zeroes(self.as_ptr().wrapping_add((address - start) / page * page), page)
    }

    /// Maps private zeroed memory at a place in the region, in one step. False where the system refuses: all is as it was.
    fn put_zeroes(&self, place: *mut u8, len: usize) -> bool {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: the place lies in a mapping of our own, into which nothing holds references that are not to atomics.
        unsafe { mmap_anonymous(place.cast(), len, protection, flags) }.is_ok()
    }

    fn bounded(&self, range: Range<u64>) -> Range<u64> {
        let end = range.end.min(self.len);
        range.start.min(end)..end
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: a mapping of our own of this length. Who has its address has borrowed the handle, or keeps it for ever.
        let _ = unsafe { munmap(self.as_ptr().cast(), self.len as usize) };
    }
}

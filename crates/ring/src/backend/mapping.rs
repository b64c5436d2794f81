//! A region's memory in this process.

use core::ops::Range;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};
use std::alloc::Layout;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;

use super::{BackendError, VerifiedFile, file};

/// Memory of one region. Dropping it leaves the memory mapped: recorders on other threads may still be in it.
#[derive(Debug)]
pub struct Mapping {
    pub(crate) name: String,
    pub(crate) start: NonNull<u8>,
    pub(crate) len: u64,
    pub(crate) backing: Backing,
}

/// What is behind the memory.
#[derive(Debug)]
pub(crate) enum Backing {
    /// A block of the heap.
    Heap,
    /// A file, or a device that acts as one.
    File {
        fd: Arc<VerifiedFile>,
        /// For messages and for other processes.
        path: String,
        /// Offset of the region in the file.
        offset: u64,
        /// Whether the file's blocks come and go (false for devices).
        blocks: bool,
    },
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

    /// Name of the region in its session.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Path of the file behind it and the offset there, or `None` for the heap.
    #[must_use]
    pub fn place(&self) -> Option<(&str, u64)> {
        match &self.backing {
            Backing::Heap => None,
            Backing::File { path, offset, .. } => Some((path, *offset)),
        }
    }

    /// Gives memory to `range`: what was sparse can be written from now on.
    ///
    /// # Errors
    /// The file system is full, or refuses.
    pub fn populate(&self, range: Range<u64>) -> Result<(), BackendError> {
        let Backing::File { fd, path, offset, blocks: true } = &self.backing else { return Ok(()) };
        let range = self.bounded(range);
        with_file(fd, path, |fd| file::fallocate(&fd, path, offset + range.start, range.end - range.start))
    }

    /// Takes the memory of `range` back; it reads as zeroes after. Nobody may be writing there.
    ///
    /// # Errors
    /// The file system refuses.
    pub fn release(&self, range: Range<u64>) -> Result<(), BackendError> {
        let range = self.bounded(range);
        let Backing::File { fd, path, offset, blocks } = &self.backing else { return Ok(()) };
        let len = range.end - range.start;
        let punch = |fd: BorrowedFd<'_>| file::punch(&fd, path, offset + range.start, len);
        if *blocks && with_file(fd, path, punch).is_ok() {
            return Ok(());
        }
        // SAFETY: `bounded` keeps the range inside the mapping, which lives as long as the process.
        unsafe { self.as_ptr().add(range.start as usize).write_bytes(0, len as usize) };
        Ok(())
    }

    /// Puts private zeroed memory in the place of the region, in this process only, and closes the file's descriptor. A ring of
    /// zeroes is an empty ring, so recorders that are still on their way write there and harm nothing; the file's memory goes with
    /// its last name. The kernel merges such ranges, so that sessions that were ended take address space but no mappings of their
    /// own. A heap block stays as it is.
    ///
    /// # Safety
    /// No other call for this region, or for one that shares its file, is under way.
    pub unsafe fn detach(&self) {
        let Backing::File { fd, .. } = &self.backing else { return };
        // A refusal leaves the file's memory there, which works as well.
        self.put_zeroes(self.as_ptr(), self.len as usize);
        // SAFETY: descriptors are used during calls only, and there are none.
        unsafe { fd.give_up() }
    }

    /// Puts a private zeroed page in the place of the one at `address`, which the file has lost; false where the address is not
    /// in the region, or the system refuses. Async-signal-safe.
    #[must_use]
    pub fn mend(&self, address: usize) -> bool {
        let start = self.as_ptr() as usize;
        if matches!(self.backing, Backing::Heap) || !(start..start + self.len as usize).contains(&address) {
            return false;
        }
        // SAFETY: the call takes no memory.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
        // A mapping begins on a page's boundary.
        self.put_zeroes(self.as_ptr().wrapping_add((address - start) / page * page), page)
    }

    /// Maps private zeroed memory at a place in the region, in one step. False where the system refuses: all is as it was.
    fn put_zeroes(&self, place: *mut u8, len: usize) -> bool {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        // SAFETY: the place lies in a mapping of our own, into which nothing holds references that are not to atomics.
        unsafe { libc::mmap(place.cast(), len, protection, flags, -1, 0) != libc::MAP_FAILED }
    }

    /// Unmaps the region. A heap block stays.
    ///
    /// # Safety
    /// Nothing of this process uses its memory, now or later.
    pub unsafe fn unmap(&self) {
        if matches!(self.backing, Backing::File { .. }) {
            // SAFETY: a mapping of our own of this length, which is used no more, as the caller vouches.
            unsafe { libc::munmap(self.as_ptr().cast(), self.len as usize) };
        }
    }

    /// Enters fresh zeroed pages of `page_size` bytes in the page table of `pages` entries at `table` (byte offset in the
    /// region), where it has none. Pages are taken from the heap in runs of 16.
    ///
    /// # Errors
    /// The heap has no memory; pages that were entered stay.
    pub fn fill_pages(&self, table: u64, pages: usize, page_size: u32) -> Result<(), BackendError> {
        for run in self.table(table, pages).chunks(RUN) {
            if run[0].load(Ordering::Relaxed) != 0 {
                continue;
            }
            let layout = run_layout(run.len(), page_size);
            // SAFETY: the layout has a size that is not 0.
            let first = unsafe { std::alloc::alloc_zeroed(layout) } as u64;
            if first == 0 {
                return Err(BackendError::no_memory("the heap", layout.size() as u64));
            }
            // The first entry is written last: it says that the run is there.
            for (index, entry) in run.iter().enumerate().rev() {
                entry.store(first + index as u64 * u64::from(page_size), Ordering::Release);
            }
        }
        Ok(())
    }

    /// Frees the pages of a page table.
    ///
    /// # Safety
    /// `table`, `pages` and `page_size` are those of a table that [`Mapping::fill_pages`] filled, and nobody reads or writes
    /// its pages, now or later.
    pub unsafe fn free_pages(&self, table: u64, pages: usize, page_size: u32) {
        for run in self.table(table, pages).chunks(RUN) {
            let first = run[0].swap(0, Ordering::AcqRel) as *mut u8;
            run.iter().for_each(|entry| entry.store(0, Ordering::Release));
            if !first.is_null() {
                // SAFETY: `fill_pages` made the run with this layout, and the swap gave it to us alone; nobody uses it, as the
                // caller vouches.
                unsafe { std::alloc::dealloc(first, run_layout(run.len(), page_size)) };
            }
        }
    }

    /// Gives the memory of a page table's pages back to the system but leaves them mapped: late recorders may write.
    ///
    /// # Safety
    /// `table`, `pages` and `page_size` are those of a table that [`Mapping::fill_pages`] filled.
    pub unsafe fn discard_pages(&self, table: u64, pages: usize, page_size: u32) {
        for entry in self.table(table, pages) {
            let page = entry.load(Ordering::Relaxed) as *mut libc::c_void;
            if !page.is_null() {
                // SAFETY: a page that `fill_pages` made, aligned to its size, private and anonymous: it reads as zeroes after.
                unsafe { libc::madvise(page, page_size as usize, libc::MADV_DONTNEED) };
            }
        }
    }

    fn table(&self, table: u64, pages: usize) -> &[AtomicU64] {
        let end = table + pages as u64 * 8;
        assert!(end <= self.len && table.is_multiple_of(8), "page table {table}..{end} lies outside the region");
        // SAFETY: inside the region by the check above, aligned to 8, alive as long as the process, and only used as
        // atomics.
        unsafe { core::slice::from_raw_parts(self.as_ptr().add(table as usize).cast(), pages) }
    }

    fn bounded(&self, range: Range<u64>) -> Range<u64> {
        let end = range.end.min(self.len);
        range.start.min(end)..end
    }
}

/// Runs `call` with a region's file: by the descriptor that is kept, or opened again where the program closed that one.
fn with_file<T>(
    kept: &VerifiedFile,
    path: &str,
    call: impl FnOnce(BorrowedFd<'_>) -> Result<T, BackendError>,
) -> Result<T, BackendError> {
    if let Some(fd) = kept.get() {
        return call(fd);
    }
    let again = file::open_at(libc::AT_FDCWD, path, path, libc::O_RDWR | libc::O_NONBLOCK).ok();
    match again.filter(|fd| kept.is(fd.as_fd())) {
        Some(fd) => call(fd.as_fd()),
        None => {
            let what = "the program closed the region's descriptor, and the file is not at its path any more";
            Err(BackendError::invalid(path, 0, 0, what))
        }
    }
}

/// Pages that are allocated at a time: `malloc` puts a header before each block, which would cost a page for every page.
const RUN: usize = 16;

fn run_layout(pages: usize, page_size: u32) -> Layout {
    let size = page_size as usize;
    Layout::from_size_align(pages * size, size).expect("a page size is a power of two")
}

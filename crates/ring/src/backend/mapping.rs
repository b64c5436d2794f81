//! A region's memory in this process.

use core::ops::Range;
use core::ptr::NonNull;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use super::file::{NamedFile, is_device};
use super::{BackendError, PAGE};

/// Memory of one region. It is unmapped when the value is dropped, so recorders and readers keep
/// the value.
#[derive(Debug)]
pub struct Mapping {
    /// Name of the region in its session.
    pub name: String,
    pub(crate) start: NonNull<u8>,
    pub(crate) len: u64,
    /// The file that contains the region; none for a block of the heap.
    pub(crate) backing: Option<Backing>,
}

/// A file, or a device that acts as one, that contains a region.
#[derive(Debug)]
pub(crate) struct Backing {
    pub(crate) file: Arc<NamedFile>,
    /// Offset of the region in the file.
    pub(crate) offset: u64,
    /// The file's blocks can be allocated and freed (false for devices).
    pub(crate) blocks: bool,
}

// SAFETY: the memory is shared by design, and its users reach it through atomics or raw pointers.
// The handle itself contains only an address, a length and a file.
unsafe impl Send for Mapping {}
// SAFETY: no method of a shared handle writes to the handle.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Returns the address of the first byte, which is on a 4096-byte boundary.
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Returns the length in bytes.
    #[expect(clippy::len_without_is_empty, reason = "a region is never empty")]
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns the path of the file that contains the region and the offset in it, or `None` for
    /// the heap.
    #[must_use]
    pub fn place(&self) -> Option<(&str, u64)> {
        self.backing.as_ref().map(|backing| (backing.file.path.as_str(), backing.offset))
    }

    /// Returns the device and the inode of the file that contains the region, or `None` for the
    /// heap.
    #[must_use]
    pub fn identity(&self) -> Option<(u64, u64)> {
        self.backing.as_ref().map(|backing| backing.file.fd.identity())
    }

    /// Takes the record lock of this process on one byte of the region's file, which need not
    /// exist. The kernel releases it when the process dies, executes another program, or closes any
    /// descriptor of the file. A forked child does not have it. If the system refuses, nothing is
    /// locked. Async-signal-safe.
    pub fn lock_byte(&self, at: u64) {
        let _ = self.record_lock(libc::F_SETLK, at);
    }

    /// Returns true if another process has the record lock on this byte of the region's file.
    /// Async-signal-safe.
    #[must_use]
    pub fn is_byte_locked(&self, at: u64) -> bool {
        self.record_lock(libc::F_GETLK, at)
            .is_some_and(|lock| i32::from(lock.l_type) != libc::F_UNLCK)
    }

    fn record_lock(&self, command: libc::c_int, at: u64) -> Option<libc::flock> {
        use std::os::fd::AsRawFd as _;
        let _errno = crate::errno::ErrnoKept::now();
        let file = self.backing.as_ref().filter(|backing| backing.blocks)?.file.fd.get()?;
        // SAFETY: an all-zero `flock` is valid.
        let mut lock: libc::flock = unsafe { core::mem::zeroed() };
        lock.l_type = libc::F_WRLCK as libc::c_short;
        lock.l_whence = libc::SEEK_SET as libc::c_short;
        lock.l_start = libc::off_t::try_from(at).ok()?;
        lock.l_len = 1;
        // SAFETY: the descriptor is open, and the call reads and writes the local variable.
        let done = unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) };
        (done == 0).then_some(lock)
    }

    /// Allocates memory for `range`, so that its sparse parts can be written from now on.
    ///
    /// # Errors
    /// The file system is full, or refuses.
    pub fn populate(&self, range: Range<u64>) -> Result<(), BackendError> {
        let Some(backing) = self.backing.as_ref().filter(|backing| backing.blocks) else {
            return Ok(());
        };
        let range = self.bounded(range);
        backing.file.fallocate(backing.offset + range.start, range.end - range.start)
    }

    /// Returns the free bytes of the file system of the region's file; the largest number if it has
    /// no limit, or does not say.
    #[must_use]
    pub fn free(&self) -> u64 {
        let file =
            self.backing.as_ref().filter(|backing| backing.blocks).map(|backing| &backing.file);
        let stat =
            file.and_then(|file| file.call("statvfs", 0, 0, |fd| rustix::fs::fstatvfs(fd)).ok());
        stat.map_or(u64::MAX, |stat| free(&stat))
    }

    /// Returns an error if the file system has less free space than `len` bytes. A file system that
    /// does not say how much it has passes.
    ///
    /// # Errors
    /// The file system has no room.
    pub fn check_room(&self, len: u64) -> Result<(), BackendError> {
        let Some(backing) = self.backing.as_ref().filter(|backing| backing.blocks) else {
            return Ok(());
        };
        match self.free() < len {
            true => Err(BackendError::new(
                "fallocate",
                &backing.file.path,
                backing.offset,
                len,
                Errno::NOSPC,
            )),
            false => Ok(()),
        }
    }

    /// Frees the memory of `range` if the file supports that. The range reads as zeroes afterwards.
    /// Nobody may write there during the call.
    pub fn release(&self, range: Range<u64>) {
        let Some(backing) = &self.backing else { return };
        let range = self.bounded(range);
        let (at, len) = (backing.offset + range.start, range.end - range.start);
        if !backing.blocks || backing.file.punch_hole(at, len).is_err() {
            // SAFETY: `bounded` keeps the range inside the mapping, which lives as long as the
            // process.
            unsafe { self.as_ptr().add(range.start as usize).write_bytes(0, len as usize) };
        }
    }

    /// Replaces the region by private zeroed memory, in this process only, and closes the file's
    /// descriptor. A ring of zeroes is an empty ring, so late recorders write there and do no harm.
    /// The file's memory is freed when its last name is removed. The kernel merges such ranges, so
    /// that ended sessions take address space but no mappings of their own. A heap block stays.
    ///
    /// # Safety
    /// No other call for this region, or for one that shares its file, is under way.
    pub unsafe fn detach(&self) {
        let Some(backing) = &self.backing else { return };
        // If the system refuses, the file's memory stays there, which also works.
        self.put_zeroes(self.as_ptr(), self.len as usize);
        // SAFETY: descriptors are used only during calls, and no call is under way.
        unsafe { backing.file.fd.give_up() }
    }

    /// Unmaps a region that [`Mapping::detach`] has replaced. The handle must be kept for ever, and
    /// its address not be used again. A heap block stays.
    ///
    /// # Safety
    /// Nobody uses the region's memory, now or later.
    pub unsafe fn unmap(&self) {
        if self.backing.is_some() {
            // SAFETY: this is a mapping of our own with this length, which nobody uses.
            let _ = unsafe { munmap(self.as_ptr().cast(), self.len as usize) };
        }
    }

    /// Replaces the page at `address`, which the file has lost, by a private zeroed page. Returns
    /// false if the address is not in the region, or if the system refuses. The function is
    /// async-signal-safe.
    #[must_use]
    pub fn replace_page(&self, address: usize) -> bool {
        let start = self.as_ptr() as usize;
        if self.backing.is_none() || !(start..start + self.len as usize).contains(&address) {
            return false;
        }
        // SAFETY: the call takes no memory.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
        // A mapping begins on a page's boundary.
        self.put_zeroes(self.as_ptr().wrapping_add((address - start) / page * page), page)
    }

    /// Maps private zeroed memory at an address in the region, in one step. Returns false if the
    /// system refuses; then nothing has changed.
    fn put_zeroes(&self, place: *mut u8, len: usize) -> bool {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: the address is in a mapping of our own. All references into it are to atomics.
        unsafe { mmap_anonymous(place.cast(), len, protection, flags) }.is_ok()
    }

    fn bounded(&self, range: Range<u64>) -> Range<u64> {
        let end = range.end.min(self.len);
        range.start.min(end)..end
    }
}

/// Returns the free bytes of a file system for this user; the largest number if the file system has
/// no limit.
#[must_use]
pub fn free(stat: &rustix::fs::StatVfs) -> u64 {
    match stat.f_blocks {
        0 => u64::MAX,
        _ => stat.f_bavail.saturating_mul(stat.f_frsize),
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this is a mapping of our own with this length. Code that has its address has
        // borrowed the handle, or keeps the handle for ever.
        let _ = unsafe { munmap(self.as_ptr().cast(), self.len as usize) };
    }
}

impl NamedFile {
    /// Maps a region at `offset`, in pages of `step` bytes. `flags` say whether the mapping is
    /// shared.
    pub(super) fn region(
        self,
        name: &str,
        offset: u64,
        len: u64,
        step: u64,
        flags: MapFlags,
    ) -> Result<Mapping, BackendError> {
        let blocks = !is_device(&self.look()?) && step == PAGE;
        let before = offset % step;
        let start = self.map(offset - before, (before + len).next_multiple_of(step), flags)?;
        // SAFETY: `before` is less than the mapping's length.
        let start = unsafe { start.add(before as usize) };
        let backing = Backing { file: Arc::new(self), offset, blocks };
        Ok(Mapping { name: name.to_owned(), start, len, backing: Some(backing) })
    }
}

//! Files that contain regions. This module opens, sizes, allocates and maps them, and its errors
//! name the file.

use core::ptr::{NonNull, null_mut};
use std::ffi::c_void;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{self, CWD, FallocateFlags, FileType, Mode, OFlags, Stat};
use rustix::io::{Errno, pread, pwrite, retry_on_intr};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::process::{Resource, geteuid, getrlimit};

use super::{BackendError, Folder, PAGE, VerifiedFile};

/// A file, and the path that errors show. The descriptor stays open while regions are in the file.
#[derive(Debug)]
pub(crate) struct NamedFile {
    pub(super) fd: VerifiedFile,
    pub(super) path: String,
}

/// Calls `openat` with O_CLOEXEC and O_NOFOLLOW, and repeats it after an interruption. A file that
/// it creates has mode 0600. O_NONBLOCK is set because a FIFO in the place of the file must not
/// block the call.
pub fn open_at(folder: impl AsFd, name: impl AsRef<Path>, flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    retry_on_intr(|| fs::openat(&folder, name.as_ref(), flags, Mode::RUSR | Mode::WUSR))
}

impl NamedFile {
    /// Keeps an open file.
    pub(super) fn new(fd: OwnedFd, path: String) -> Result<Self, BackendError> {
        let fd =
            VerifiedFile::new(fd).map_err(|error| BackendError::new("stat", &path, 0, 0, error))?;
        Ok(Self { fd, path })
    }

    /// Opens a file in a folder.
    pub(super) fn open(
        folder: Folder<'_>,
        name: impl AsRef<Path>,
        flags: OFlags,
    ) -> Result<Self, BackendError> {
        let path = folder.shown(name.as_ref());
        let opened = open_at(folder.fd, name.as_ref(), flags);
        Self::new(opened.map_err(|error| BackendError::new("open", &path, 0, 0, error))?, path)
    }

    /// Creates a file that must not exist.
    pub(super) fn create(folder: Folder<'_>, name: impl AsRef<Path>) -> Result<Self, BackendError> {
        Self::open(folder, name, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)
    }

    /// Calls the system with the file's descriptor, and repeats the call after a signal. If the
    /// program has closed the descriptor, the file is opened again.
    pub(super) fn call<T>(
        &self,
        call: &'static str,
        offset: u64,
        len: u64,
        mut ask: impl FnMut(BorrowedFd<'_>) -> Result<T, Errno>,
    ) -> Result<T, BackendError> {
        let again;
        let fd = match self.fd.get() {
            Some(fd) => fd,
            None => {
                again =
                    open_at(CWD, &self.path, OFlags::RDWR).ok().filter(|fd| self.fd.is(fd.as_fd()));
                let what = "the program closed the region's descriptor, and the file is not at its path any more";
                again.as_ref().ok_or_else(|| BackendError::invalid(&self.path, 0, 0, what))?.as_fd()
            }
        };
        retry_on_intr(|| ask(fd))
            .map_err(|error| BackendError::new(call, &self.path, offset, len, error))
    }

    /// Reads the file's metadata, and refuses anything that is neither a regular file nor a device.
    pub(super) fn look(&self) -> Result<Stat, BackendError> {
        let stat = self.call("stat", 0, 0, |fd| fs::fstat(fd))?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile | FileType::CharacterDevice => Ok(stat),
            _ => Err(BackendError::invalid(
                &self.path,
                0,
                0,
                "not a regular file, and not a device file",
            )),
        }
    }

    pub(super) fn truncate(&self, len: u64) -> Result<(), BackendError> {
        check_limit("ftruncate", &self.path, 0, len)?;
        self.call("ftruncate", 0, len, |fd| fs::ftruncate(fd, len))
    }

    /// Allocates blocks for a range of the file. If the file system has no fallocate, zeroes are
    /// written.
    pub(super) fn fallocate(&self, offset: u64, len: u64) -> Result<(), BackendError> {
        if len == 0 {
            return Ok(());
        }
        let done = self.call("fallocate", offset, len, |fd| {
            match fs::fallocate(fd, FallocateFlags::empty(), offset, len) {
                // The file system or the kernel has no such call, or a filter forbids it.
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM) => Ok(false),
                done => done.map(|()| true),
            }
        })?;
        if done { Ok(()) } else { self.fill_holes(offset, len) }
    }

    /// Reads each page of the range and writes it back. Holes get blocks, and data stays.
    fn fill_holes(&self, offset: u64, len: u64) -> Result<(), BackendError> {
        check_limit("write", &self.path, offset, len)?;
        let end = offset + len;
        let mut at = offset;
        while at < end {
            let mut page = [0u8; 4096];
            let part = &mut page[..(end - at).min(4096) as usize];
            at += self.call("write", at, part.len() as u64, |fd| {
                // If the page cannot be read, the file has no data there yet.
                let _ = pread(fd, &mut *part, at);
                pwrite(fd, part, at)
                    .and_then(|wrote| if wrote > 0 { Ok(wrote as u64) } else { Err(Errno::IO) })
            })?;
        }
        Ok(())
    }

    /// Frees the blocks of a range.
    pub(super) fn punch_hole(&self, offset: u64, len: u64) -> Result<(), BackendError> {
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        self.call("fallocate", offset, len, |fd| fs::fallocate(fd, hole, offset, len))
    }

    /// Maps a part of the file, readable and writable, with these flags.
    pub(super) fn map(
        &self,
        offset: u64,
        len: u64,
        flags: MapFlags,
    ) -> Result<NonNull<u8>, BackendError> {
        // SAFETY: a new mapping at an address of the kernel's choice; no memory of ours is
        // replaced.
        unsafe { self.map_at(null_mut(), offset, len, flags) }
    }

    /// Maps the page at an offset, if the file has it. A device decides by itself.
    pub(super) fn map_page_inside(&self, offset: u64) -> Result<NonNull<u8>, BackendError> {
        let stat = self.look()?;
        if !is_device(&stat) && offset.saturating_add(PAGE) > stat.st_size as u64 {
            return Err(BackendError::invalid(&self.path, offset, PAGE, "the file ends before it"));
        }
        self.map(offset, PAGE, MapFlags::SHARED)
    }

    /// # Safety
    /// With MAP_FIXED, nobody uses the `len` bytes at `place`.
    unsafe fn map_at(
        &self,
        place: *mut c_void,
        offset: u64,
        len: u64,
        flags: MapFlags,
    ) -> Result<NonNull<u8>, BackendError> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        self.call("mmap", offset, len, |fd| {
            // SAFETY: the caller guarantees the condition.
            let start = unsafe { mmap(place, len as usize, protection, flags, fd, offset) }?;
            NonNull::new(start.cast()).ok_or(Errno::NOMEM)
        })
    }

    /// Maps the whole file at a multiple of `align`, a power of two, which huge pages require.
    pub(super) fn map_aligned(&self, len: u64, align: u64) -> Result<NonNull<u8>, BackendError> {
        let area: *mut c_void = self.map(0, len + align, MapFlags::SHARED)?.as_ptr().cast();
        let before = (area as usize).next_multiple_of(align as usize) - area as usize;
        // SAFETY: the file is mapped again inside an area that nobody uses, and the rest of that
        // area before and after it is unmapped. If that fails, it only wastes address space.
        unsafe {
            let place = area.byte_add(before);
            let start = self.map_at(place, 0, len, MapFlags::SHARED | MapFlags::FIXED);
            let start = start.inspect_err(|_| _ = munmap(area, (len + align) as usize))?;
            let _ = munmap(area, before);
            let _ = munmap(place.byte_add(len as usize), align as usize - before);
            Ok(start)
        }
    }
}

/// Returns true for a character device, which has no length.
pub(super) fn is_device(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice
}

/// Returns true if the file belongs to this user.
pub(super) fn is_own(stat: &Stat) -> bool {
    stat.st_uid == geteuid().as_raw()
}

/// Refuses a length above the process's limit on file sizes, because the system would kill the
/// process with a signal.
pub(super) fn check_limit(
    call: &'static str,
    path: &str,
    offset: u64,
    len: u64,
) -> Result<(), BackendError> {
    match getrlimit(Resource::Fsize).current {
        Some(limit) if offset.saturating_add(len) > limit => {
            Err(BackendError::new(call, path, offset, len, Errno::FBIG))
        }
        _ => Ok(()),
    }
}

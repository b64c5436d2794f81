//! Files that hold regions: opened, sized, given blocks and mapped, with errors that name the file.

use core::ptr::{NonNull, null_mut};
use std::ffi::c_void;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{self, CWD, FallocateFlags, FileType, Mode, OFlags, Stat};
use rustix::io::{Errno, pread, pwrite, retry_on_intr};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::process::{Resource, geteuid, getrlimit};

use super::mapping::{Backing, Mapping};
use super::{BackendError, Folder, PAGE, VerifiedFile};

/// A file, and the path that errors show. Its descriptor is kept while regions lie in it.
#[derive(Debug)]
pub(crate) struct NamedFile {
    pub(super) fd: VerifiedFile,
    pub(super) path: String,
}

/// `openat` with O_CLOEXEC and O_NOFOLLOW, again when it was interrupted. A file that it makes has mode 0600. O_NONBLOCK: a FIFO in
/// the place of the file must not stop us.
pub fn open_at(folder: impl AsFd, name: impl AsRef<Path>, flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    retry_on_intr(|| fs::openat(&folder, name.as_ref(), flags, Mode::RUSR | Mode::WUSR))
}

impl NamedFile {
    /// Keeps an open file.
    pub(super) fn new(fd: OwnedFd, path: String) -> Result<Self, BackendError> {
        let fd = VerifiedFile::new(fd).map_err(|error| BackendError::new("stat", &path, 0, 0, error))?;
        Ok(Self { fd, path })
    }

    /// Opens a file in a folder.
    pub(super) fn open(folder: Folder<'_>, name: impl AsRef<Path>, flags: OFlags) -> Result<Self, BackendError> {
        let path = folder.shown(name.as_ref());
        let opened = open_at(folder.fd, name.as_ref(), flags);
        Self::new(opened.map_err(|error| BackendError::new("open", &path, 0, 0, error))?, path)
    }

    /// Creates a file that must not exist.
    pub(super) fn create(folder: Folder<'_>, name: impl AsRef<Path>) -> Result<Self, BackendError> {
        Self::open(folder, name, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)
    }

    /// Asks the system for something of the file, again where a signal came in between: by the descriptor that is kept, or by a new
    /// one where the program closed that.
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
                again = open_at(CWD, &self.path, OFlags::RDWR).ok().filter(|fd| self.fd.is(fd.as_fd()));
                let what = "the program closed the region's descriptor, and the file is not at its path any more";
                again.as_ref().ok_or_else(|| BackendError::invalid(&self.path, 0, 0, what))?.as_fd()
            }
        };
        retry_on_intr(|| ask(fd)).map_err(|error| BackendError::new(call, &self.path, offset, len, error))
    }

    /// Looks at the file, and refuses what is neither a regular file nor a device.
    pub(super) fn look(&self) -> Result<Stat, BackendError> {
        let stat = self.call("stat", 0, 0, |fd| fs::fstat(fd))?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile | FileType::CharacterDevice => Ok(stat),
            _ => Err(BackendError::invalid(&self.path, 0, 0, "not a regular file, and not a device file")),
        }
    }

    pub(super) fn truncate(&self, len: u64) -> Result<(), BackendError> {
        check_limit("ftruncate", &self.path, 0, len)?;
        self.call("ftruncate", 0, len, |fd| fs::ftruncate(fd, len))
    }

    /// Gives blocks to a range of the file. A file system that knows no fallocate gets zeroes written.
    pub(super) fn fallocate(&self, offset: u64, len: u64) -> Result<(), BackendError> {
        if len == 0 {
            return Ok(());
        }
        let done = self.call("fallocate", offset, len, |fd| {
            match fs::fallocate(fd, FallocateFlags::empty(), offset, len) {
                // A file system or a kernel that has no such call, or a filter that forbids it.
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM) => Ok(false),
                done => done.map(|()| true),
            }
        })?;
        if done { Ok(()) } else { self.fill_holes(offset, len) }
    }

    /// Writes back, page by page, what is there: holes get blocks, data stays.
    fn fill_holes(&self, offset: u64, len: u64) -> Result<(), BackendError> {
        check_limit("write", &self.path, offset, len)?;
        let end = offset + len;
        let mut at = offset;
        while at < end {
            let mut page = [0u8; 4096];
            let part = &mut page[..(end - at).min(4096) as usize];
            at += self.call("write", at, part.len() as u64, |fd| {
                // Where it cannot be read, nothing is there yet.
                let _ = pread(fd, &mut *part, at);
                pwrite(fd, part, at).and_then(|wrote| if wrote > 0 { Ok(wrote as u64) } else { Err(Errno::IO) })
            })?;
        }
        Ok(())
    }

    /// Takes the blocks of a range away.
    pub(super) fn punch_hole(&self, offset: u64, len: u64) -> Result<(), BackendError> {
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        self.call("fallocate", offset, len, |fd| fs::fallocate(fd, hole, offset, len))
    }

    /// `mmap`, shared, readable and writable, with `extra` flags.
    pub(super) fn map(&self, offset: u64, len: u64, extra: MapFlags) -> Result<NonNull<u8>, BackendError> {
        // SAFETY: a new mapping at an address of the kernel's choice; no memory of ours is replaced.
        unsafe { self.map_at(null_mut(), offset, len, extra) }
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
            // SAFETY: as the caller vouches.
            let start = unsafe { mmap(place, len as usize, protection, flags, fd, offset) }?;
            NonNull::new(start.cast()).ok_or(Errno::NOMEM)
        })
    }

    /// Maps the whole file at a multiple of `align`, a power of two, as huge pages ask for.
    pub(super) fn map_aligned(&self, len: u64, align: u64) -> Result<NonNull<u8>, BackendError> {
        let area: *mut c_void = self.map(0, len + align, MapFlags::SHARED)?.as_ptr().cast();
        let before = (area as usize).next_multiple_of(align as usize) - area as usize;
        // SAFETY: the file is mapped anew inside an area that nobody uses, and what is left of that before and behind is given
        // back. Where that fails, it only keeps address space.
        unsafe {
            let place = area.byte_add(before);
            let start = self.map_at(place, 0, len, MapFlags::SHARED | MapFlags::FIXED);
            let start = start.inspect_err(|_| _ = munmap(area, (len + align) as usize))?;
            let _ = munmap(area, before);
            let _ = munmap(place.byte_add(len as usize), align as usize - before);
            Ok(start)
        }
    }

    /// Maps a region that lies at `offset`, in pages of `step` bytes.
    pub(super) fn region(self, name: &str, offset: u64, len: u64, step: u64) -> Result<Mapping, BackendError> {
        let blocks = !is_device(&self.look()?) && step == PAGE;
        let before = offset % step;
        let start = self.map(offset - before, (before + len).next_multiple_of(step), MapFlags::SHARED)?;
        // SAFETY: `before` is less than the mapping's length.
        let start = unsafe { start.add(before as usize) };
        let backing = Backing { file: Arc::new(self), offset, blocks };
        Ok(Mapping { name: name.to_owned(), start, len, backing: Some(backing) })
    }
}

/// It is a character device, which has no length.
pub(super) fn is_device(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice
}

/// It belongs to this user.
pub(super) fn is_own(stat: &Stat) -> bool {
    stat.st_uid == geteuid().as_raw()
}

/// Refuses what the process's limit on file sizes forbids: the system would not only refuse it but kill the process.
pub(super) fn check_limit(call: &'static str, path: &str, offset: u64, len: u64) -> Result<(), BackendError> {
    match getrlimit(Resource::Fsize).current {
        Some(limit) if offset.saturating_add(len) > limit => {
            Err(BackendError::new(call, path, offset, len, Errno::FBIG))
        }
        _ => Ok(()),
    }
}

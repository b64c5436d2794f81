//! Files that hold regions: opened, sized, given blocks and mapped, with errors that name the file.

use core::ptr::{NonNull, null_mut};
use std::ffi::c_void;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{self, FallocateFlags, FileType, Mode, OFlags};
use rustix::io::{Errno, pread, pwrite, retry_on_intr};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::process::{Resource, geteuid, getrlimit};

use super::mapping::{Backing, Mapping};
use super::{BackendError, PAGE, VerifiedFile};

/// An open file, and the path that errors show.
#[derive(Debug)]
pub(super) struct NamedFile {
    pub(super) fd: OwnedFd,
    pub(super) path: String,
}

/// What matters of a file that is to hold regions.
pub(super) struct Look {
    /// A character device, which has no length.
    pub(super) is_device: bool,
    /// It belongs to this user.
    pub(super) is_own: bool,
    /// Bytes of the file.
    pub(super) len: u64,
    /// Bytes of its blocks.
    pub(super) block: u64,
}

/// `openat` with O_CLOEXEC and O_NOFOLLOW, again when it was interrupted. A file that it makes has mode 0600.
pub(super) fn open_at(folder: BorrowedFd<'_>, name: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    retry_on_intr(|| fs::openat(folder, name, flags, Mode::RUSR | Mode::WUSR))
}

impl NamedFile {
    /// Opens a file in a folder. O_NONBLOCK: a FIFO in the place of the file must not stop us.
    pub(super) fn open(
        folder: BorrowedFd<'_>,
        name: &str,
        path: impl Into<String>,
        flags: OFlags,
    ) -> Result<Self, BackendError> {
        let path = path.into();
        match open_at(folder, name, flags | OFlags::NONBLOCK) {
            Ok(fd) => Ok(Self { fd, path }),
            Err(error) => Err(BackendError::new("open", &path, 0, 0, error)),
        }
    }

    /// Creates a file that must not exist.
    pub(super) fn create(folder: BorrowedFd<'_>, name: &str, path: impl Into<String>) -> Result<Self, BackendError> {
        Self::open(folder, name, path, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)
    }

    fn failed(&self, call: &'static str, offset: u64, len: u64) -> impl Fn(Errno) -> BackendError {
        move |error| BackendError::new(call, &self.path, offset, len, error)
    }

    /// Looks at the file, and refuses what is neither a regular file nor a device.
    pub(super) fn look(&self) -> Result<Look, BackendError> {
        let stat = fs::fstat(&self.fd).map_err(self.failed("stat", 0, 0))?;
        let is_device = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => false,
            FileType::CharacterDevice => true,
            _ => return Err(BackendError::invalid(&self.path, 0, 0, "not a regular file, and not a device file")),
        };
        Ok(Look {
            is_device,
            is_own: stat.st_uid == geteuid().as_raw(),
            len: u64::try_from(stat.st_size).unwrap_or(0),
            block: u64::try_from(stat.st_blksize).unwrap_or(0),
        })
    }

    pub(super) fn truncate(&self, len: u64) -> Result<(), BackendError> {
        check_limit("ftruncate", &self.path, 0, len)?;
        retry_on_intr(|| fs::ftruncate(&self.fd, len)).map_err(self.failed("ftruncate", 0, len))
    }

    /// Gives blocks to a range of the file.
    pub(super) fn fallocate(&self, offset: u64, len: u64) -> Result<(), BackendError> {
        fallocate(self.fd.as_fd(), &self.path, offset, len)
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
        // SAFETY: as the caller vouches.
        let start = unsafe { mmap(place, len as usize, protection, flags, &self.fd, offset) };
        let failed = self.failed("mmap", offset, len);
        NonNull::new(start.map_err(&failed)?.cast()).ok_or_else(|| failed(Errno::NOMEM))
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
            if start.is_err() {
                let _ = munmap(area, (len + align) as usize);
                return start;
            }
            let _ = munmap(area, before);
            let _ = munmap(place.byte_add(len as usize), align as usize - before);
            start
        }
    }

    /// Keeps the descriptor with the path, for the regions that lie in the file. `blocks` says whether its blocks come and go.
    pub(super) fn hold(self, blocks: bool) -> Result<Backing, BackendError> {
        let Self { fd, path } = self;
        match VerifiedFile::new(fd) {
            Ok(file) => Ok(Backing { file: Arc::new(file), path, offset: 0, blocks }),
            Err(error) => Err(BackendError::new("stat", &path, 0, 0, error)),
        }
    }

    /// Maps a region that lies at `offset`, in pages of `step` bytes.
    pub(super) fn region(self, name: &str, offset: u64, len: u64, step: u64) -> Result<Mapping, BackendError> {
        let blocks = !self.look()?.is_device && step == PAGE;
        let before = offset % step;
        let start = self.map(offset - before, (before + len).next_multiple_of(step), MapFlags::SHARED)?;
        // SAFETY: `before` is less than the mapping's length.
        let start = unsafe { start.add(before as usize) };
        Ok(self.hold(blocks)?.mapping(name, start, offset, len))
    }
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

/// Gives blocks to a range of a file. A file system that knows no fallocate gets zeroes written.
pub(super) fn fallocate(fd: BorrowedFd<'_>, path: &str, offset: u64, len: u64) -> Result<(), BackendError> {
    if len == 0 {
        return Ok(());
    }
    match retry_on_intr(|| fs::fallocate(fd, FallocateFlags::empty(), offset, len)) {
        // A file system or a kernel that has no such call, or a filter that forbids it.
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM) => fill_holes(fd, path, offset, len),
        done => done.map_err(|error| BackendError::new("fallocate", path, offset, len, error)),
    }
}

/// Writes back, page by page, what is there: holes get blocks, data stays.
fn fill_holes(fd: BorrowedFd<'_>, path: &str, offset: u64, len: u64) -> Result<(), BackendError> {
    check_limit("write", path, offset, len)?;
    let end = offset + len;
    let mut at = offset;
    while at < end {
        let mut page = [0u8; 4096];
        let part = &mut page[..(end - at).min(4096) as usize];
        // Where it cannot be read, nothing is there yet.
        let _ = pread(fd, &mut *part, at);
        match pwrite(fd, part, at) {
            Ok(wrote) if wrote > 0 => at += wrote as u64,
            other => {
                let error = other.err().unwrap_or(Errno::IO);
                return Err(BackendError::new("write", path, at, part.len() as u64, error));
            }
        }
    }
    Ok(())
}

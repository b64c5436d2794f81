//! The system calls that the file-like back-ends share.

use core::ptr::NonNull;
use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd};
use std::sync::Arc;

use super::mapping::{Backing, Mapping};
use super::{BackendError, Plan, VerifiedFile};

/// Calls `call` until it is not interrupted; negative results are errors.
fn retry(mut call: impl FnMut() -> i32) -> Result<i32, ()> {
    loop {
        let result = call();
        if result >= 0 {
            return Ok(result);
        }
        if std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted {
            return Err(());
        }
    }
}

/// `openat`, with O_CLOEXEC and O_NOFOLLOW added.
pub(super) fn open_at(dir: i32, name: &str, shown: &str, flags: i32) -> Result<OwnedFd, BackendError> {
    let c_name = CString::new(name).map_err(|_| BackendError::invalid(shown, 0, 0, "a NUL in the name"))?;
    let flags = flags | libc::O_CLOEXEC | libc::O_NOFOLLOW;
    // SAFETY: `c_name` is a C string that outlives the call.
    let fd = retry(|| unsafe { libc::openat(dir, c_name.as_ptr(), flags, 0o600) });
    match fd {
        // SAFETY: the descriptor is new and nobody else's.
        Ok(fd) => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        Err(()) => Err(BackendError::last("open", shown, 0, 0)),
    }
}

/// Creates a file that must not exist.
pub(super) fn create_at(dir: i32, name: &str, shown: &str) -> Result<OwnedFd, BackendError> {
    open_at(dir, name, shown, libc::O_RDWR | libc::O_CREAT | libc::O_EXCL)
}

/// What `fstat` says.
pub(super) fn stat(fd: &OwnedFd, path: &str) -> Result<libc::stat, BackendError> {
    let mut stat = core::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the descriptor is open and the buffer is a `stat`.
    if unsafe { libc::fstat(fd.as_raw_fd(), stat.as_mut_ptr()) } != 0 {
        return Err(BackendError::last("stat", path, 0, 0));
    }
    // SAFETY: filled by the call that succeeded.
    Ok(unsafe { stat.assume_init() })
}

/// Refuses what the process's limit on file sizes forbids: the system would not only refuse it but kill the process.
pub(super) fn check_limit(call: &'static str, path: &str, offset: u64, len: u64) -> Result<(), BackendError> {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the place is a `rlimit`; where the call fails it stays without limit.
    unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) };
    if limit.rlim_cur == libc::RLIM_INFINITY || offset.saturating_add(len) <= limit.rlim_cur {
        return Ok(());
    }
    let source = std::io::Error::from_raw_os_error(libc::EFBIG);
    Err(BackendError { call, path: path.to_owned(), offset, len, source })
}

pub(super) fn truncate(fd: &OwnedFd, path: &str, len: u64) -> Result<(), BackendError> {
    check_limit("ftruncate", path, 0, len)?;
    // SAFETY: the descriptor is open.
    match retry(|| unsafe { libc::ftruncate(fd.as_raw_fd(), len as libc::off_t) }) {
        Ok(_) => Ok(()),
        Err(()) => Err(BackendError::last("ftruncate", path, 0, len)),
    }
}

/// Gives blocks to a range of a file. A file system that knows no fallocate gets zeroes written.
pub(super) fn fallocate(fd: &impl AsFd, path: &str, offset: u64, len: u64) -> Result<(), BackendError> {
    if len == 0 {
        return Ok(());
    }
    // SAFETY: the descriptor is open.
    let done =
        retry(|| unsafe { libc::fallocate(fd.as_fd().as_raw_fd(), 0, offset as libc::off_t, len as libc::off_t) });
    if done.is_ok() {
        return Ok(());
    }
    let error = BackendError::last("fallocate", path, offset, len);
    match error.source.raw_os_error() {
        // A file system or a kernel that has no such call, or a filter that forbids it.
        Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::EPERM) => fill_holes(fd, path, offset, len),
        _ => Err(error),
    }
}

/// Writes back, page by page, what is there: holes get blocks, data stays.
fn fill_holes(fd: &impl AsFd, path: &str, offset: u64, len: u64) -> Result<(), BackendError> {
    check_limit("write", path, offset, len)?;
    let mut page = [0u8; 4096];
    let end = offset + len;
    let mut at = offset;
    while at < end {
        let n = (end - at).min(page.len() as u64) as usize;
        page.fill(0);
        // SAFETY: `n` bytes of `page` are writable and then readable; the descriptor is open.
        unsafe { libc::pread(fd.as_fd().as_raw_fd(), page.as_mut_ptr().cast(), n, at as libc::off_t) };
        // SAFETY: as above.
        let wrote = unsafe { libc::pwrite(fd.as_fd().as_raw_fd(), page.as_ptr().cast(), n, at as libc::off_t) };
        if wrote <= 0 {
            return Err(BackendError::last("write", path, at, n as u64));
        }
        at += wrote as u64;
    }
    Ok(())
}

pub(super) fn punch(fd: &impl AsFd, path: &str, offset: u64, len: u64) -> Result<(), BackendError> {
    if len == 0 {
        return Ok(());
    }
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: the descriptor is open.
    let done =
        retry(|| unsafe { libc::fallocate(fd.as_fd().as_raw_fd(), mode, offset as libc::off_t, len as libc::off_t) });
    done.map(|_| ()).map_err(|()| BackendError::last("punch a hole", path, offset, len))
}

/// Keeps a region's descriptor.
pub(super) fn hold(fd: OwnedFd, path: &str) -> Result<Arc<VerifiedFile>, BackendError> {
    let failed = |source| BackendError { call: "stat", path: path.to_owned(), offset: 0, len: 0, source };
    VerifiedFile::new(fd).map(Arc::new).map_err(failed)
}

/// `mmap`, shared, readable and writable, with `extra` flags.
pub(super) fn map(fd: &OwnedFd, path: &str, offset: u64, len: u64, extra: i32) -> Result<NonNull<u8>, BackendError> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice; no memory of ours is replaced.
    let start = unsafe {
        libc::mmap(core::ptr::null_mut(), len as usize, protection, extra, fd.as_raw_fd(), offset as libc::off_t)
    };
    match NonNull::new(start.cast::<u8>()) {
        Some(start) if start.as_ptr().cast() != libc::MAP_FAILED => Ok(start),
        _ => Err(BackendError::last("mmap", path, offset, len)),
    }
}

/// Maps a whole file at a multiple of `align`, a power of two, as huge pages ask for.
pub(super) fn map_aligned(fd: &OwnedFd, path: &str, len: u64, align: u64) -> Result<NonNull<u8>, BackendError> {
    let room = (len + align) as usize;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let reserve = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: new address space at a place of the kernel's choice; the file goes inside it, and what is left before and
    // behind is given back.
    let start = unsafe {
        let area = libc::mmap(core::ptr::null_mut(), room, libc::PROT_NONE, reserve, -1, 0);
        if area == libc::MAP_FAILED {
            return Err(BackendError::last("mmap", path, 0, len));
        }
        let before = (area as usize).next_multiple_of(align as usize) - area as usize;
        let place = area.byte_add(before);
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        let start = libc::mmap(place, len as usize, protection, flags, fd.as_raw_fd(), 0);
        if start == libc::MAP_FAILED {
            let error = BackendError::last("mmap", path, 0, len);
            libc::munmap(area, room);
            return Err(error);
        }
        libc::munmap(area, before);
        libc::munmap(place.byte_add(len as usize), room - before - len as usize);
        start
    };
    NonNull::new(start.cast()).ok_or_else(|| BackendError::last("mmap", path, 0, len))
}

/// Sizes a fresh file for one plan, gives blocks to what is needed, and maps it.
pub(super) fn map_plan(fd: OwnedFd, path: String, plan: &Plan) -> Result<Mapping, BackendError> {
    truncate(&fd, &path, plan.len)?;
    for range in plan.needed() {
        fallocate(&fd, &path, range.start, range.end - range.start)?;
    }
    let start = map(&fd, &path, 0, plan.len, libc::MAP_SHARED)?;
    let backing = Backing::File { fd: hold(fd, &path)?, path, offset: 0, blocks: true };
    Ok(Mapping { name: plan.name.clone(), start, len: plan.len, backing })
}

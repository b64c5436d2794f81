//! A memfd: shared memory without a name in the file system, which the default core filter (0x33) keeps in a core.

use std::ffi::CStr;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use lastwords_abi::session::BACKEND_MEMFD;

use super::{Backend, BackendError, Mapping, Plan, arena};

/// One memfd for all regions of the session. Others reach it as `/proc/PID/fd/N` while the process lives.
#[derive(Debug, Default)]
pub struct MemfdBackend;

impl Backend for MemfdBackend {
    fn kind(&self) -> u32 {
        BACKEND_MEMFD
    }

    fn allocate(&mut self, plans: &[Plan]) -> Result<Vec<Mapping>, BackendError> {
        let fd = create(c"lastwords")?;
        let path = shown(&fd);
        super::file::truncate(&fd, &path, arena::length(plans, arena::PAGE))?;
        seal(&fd);
        let arena = arena::Arena { fd, path, base: 0, blocks: true, step: arena::PAGE, flags: libc::MAP_SHARED };
        arena.allocate(plans)
    }

    fn note(&self) -> String {
        "one memfd; gone with the last process that has it, kept in its core".to_owned()
    }
}

/// A new memfd, closed on exec.
pub(super) fn create(name: &CStr) -> Result<OwnedFd, BackendError> {
    // SAFETY: the name is a C string.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
    if fd < 0 {
        return Err(BackendError::last("memfd_create", "memfd", 0, 0));
    }
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Fixes the length for good: who opens the memfd through /proc cannot truncate it under its recorders. A kernel or filter that
/// refuses seals leaves the memfd as it is.
fn seal(fd: &OwnedFd) {
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: the descriptor is open, and the call takes no memory.
    unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, seals) };
}

/// How another process opens it.
fn shown(fd: &OwnedFd) -> String {
    format!("/proc/{}/fd/{}", std::process::id(), fd.as_raw_fd())
}

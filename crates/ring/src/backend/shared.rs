//! Allocates memory that other processes map: files in the session's folder, or one memfd.

use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{MemfdFlags, OFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::{Errno, pread};
use rustix::mm::MapFlags;

use super::arena::{Arena, length};
use super::file::{NamedFile, is_device};
use super::mapping::Backing;
use super::{Allocated, BackendError, Folder, Mapping, PAGE, Plan};
use crate::os::private_memory;

/// Creates one file for each region in the session's folder, mode 0600. Data that a killed process
/// wrote stays in the page cache.
pub(super) fn allocate_files(folder: Folder<'_>, plans: &[Plan]) -> Allocated {
    let make = |plan: &Plan| {
        let file = NamedFile::create(folder, &plan.name)?;
        file.truncate(plan.len)?;
        Arena { plans: core::slice::from_ref(plan), file, base: 0, blocks: true }.allocate(plan.len)
    };
    let mappings = plans.iter().map(make).collect::<Result<Vec<_>, _>>()?;
    Ok((mappings.into_iter().flatten().collect(), "one file a region".to_owned()))
}

/// Creates one memfd for all regions. It has no name in the file system, and a core with the
/// default filter (0x33) contains it. Other processes open it as `/proc/PID/fd/N` while the process
/// lives.
pub(super) fn allocate_memfd(plans: &[Plan]) -> Allocated {
    let fd = memfd_create("lastwords", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
        .map_err(|error| BackendError::new("memfd_create", "memfd", 0, 0, error))?;
    let path = format!("/proc/{}/fd/{}", std::process::id(), fd.as_raw_fd());
    let file = NamedFile::new(fd, path)?;
    let len = length(plans, PAGE);
    file.truncate(len)?;
    // The seals make the length permanent, so that a process that opens the memfd through /proc
    // cannot truncate it while others record. If the kernel or a filter refuses seals, the memfd
    // stays without them.
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    let _ = file.call("seal", 0, len, |fd| fcntl_add_seals(fd, seals));
    let mappings = Arena { plans, file, base: 0, blocks: true }.allocate(len)?;
    Ok((mappings, "one memfd; gone with the last process that has it, kept in its core".to_owned()))
}

/// Maps a region that another process created as a file in its folder. A file that is not regular,
/// or that is shorter than a region header, is refused.
///
/// # Errors
/// The error of the system, or a description of what is wrong with the file.
pub fn open_region(folder: Folder<'_>, name: &str) -> Result<Mapping, BackendError> {
    map_file(NamedFile::open(folder, name, OFlags::RDWR)?, name, MapFlags::SHARED)
}

/// Maps a region for a caller that only reads it. Unlike [`open_region`], it also works where this
/// process may not write: in a file system that is mounted read-only, or a file without permission
/// to write.
///
/// # Errors
/// Those of [`open_region`].
pub fn open_region_to_read(folder: Folder<'_>, name: &str) -> Result<Mapping, BackendError> {
    // Stores into a private mapping would stay in this process.
    map_file(NamedFile::open(folder, name, OFlags::RDONLY)?, name, MapFlags::PRIVATE)
}

/// The longest region that [`copy_region`] copies, in bytes.
const LONGEST_COPY: u64 = 64 << 20;

/// Copies a region into private memory, for a caller that does not trust the owner of the file: the
/// owner may change or truncate it meanwhile, and a mapping of a truncated file raises SIGBUS. The
/// record locks and the identity are those of the file.
///
/// # Errors
/// The error of the system, or a description of what is wrong with the file.
pub fn copy_region(file: OwnedFd, path: &str, name: &str) -> Result<Mapping, BackendError> {
    let file = NamedFile::new(file, path.to_owned())?;
    let len = length_of_region(&file)?;
    if len > LONGEST_COPY {
        return Err(BackendError::invalid(path, 0, len, "too long for a region of a session"));
    }
    let failed = |error: Errno| BackendError::new("read", path, 0, len, error);
    let start = private_memory(len as usize).ok_or_else(|| failed(Errno::NOMEM))?;
    // From here on, the value frees the memory.
    let backing = Some(Backing { file: Arc::new(file), offset: 0, blocks: true });
    let copy = Mapping { name: name.to_owned(), start, len, backing };
    // SAFETY: this is new, zeroed, writable memory of that length, and nobody else has its address.
    let bytes = unsafe { core::slice::from_raw_parts_mut(start.as_ptr(), len as usize) };
    let backing = copy.backing.as_ref().map(|backing| &backing.file);
    let mut at = 0;
    while at < bytes.len() {
        let read = |fd: BorrowedFd<'_>| pread(fd, &mut bytes[at..], at as u64);
        match backing.map_or(Ok(0), |file| file.call("read", at as u64, len, read))? {
            // The file is shorter by now.
            0 => break,
            read => at += read,
        }
    }
    Ok(copy)
}

fn map_file(file: NamedFile, name: &str, flags: MapFlags) -> Result<Mapping, BackendError> {
    let len = length_of_region(&file)?;
    file.region(name, 0, len, PAGE, flags)
}

fn length_of_region(file: &NamedFile) -> Result<u64, BackendError> {
    let stat = file.look()?;
    let len = stat.st_size as u64;
    if is_device(&stat) {
        return Err(BackendError::invalid(&file.path, 0, 0, "not a regular file"));
    }
    if len < PAGE || !len.is_multiple_of(PAGE) {
        return Err(BackendError::invalid(&file.path, 0, len, "not the length of a region"));
    }
    Ok(len)
}

//! Memory that other processes map: files in the session's folder, or one memfd.

use std::os::fd::AsRawFd as _;

use rustix::fs::{MemfdFlags, OFlags, SealFlags, fcntl_add_seals, memfd_create};

use super::arena::{Arena, length};
use super::file::{NamedFile, is_device};
use super::{Allocated, BackendError, Folder, Mapping, PAGE, Plan};

/// One file a region in the session's folder, mode 0600. What a killed process wrote stays in the page cache.
pub(super) fn allocate_files(folder: Folder<'_>, plans: &[Plan]) -> Allocated {
    let make = |plan: &Plan| {
        let file = NamedFile::create(folder, &plan.name)?;
        file.truncate(plan.len)?;
        Arena { plans: core::slice::from_ref(plan), file, base: 0, blocks: true }.allocate(plan.len)
    };
    let mappings = plans.iter().map(make).collect::<Result<Vec<_>, _>>()?;
    Ok((mappings.into_iter().flatten().collect(), "one file a region".to_owned()))
}

/// One memfd for all regions, which has no name in the file system and which the default core filter (0x33) keeps in a core.
/// Others reach it as `/proc/PID/fd/N` while the process lives.
pub(super) fn allocate_memfd(plans: &[Plan]) -> Allocated {
    let fd = memfd_create("lastwords", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
        .map_err(|error| BackendError::new("memfd_create", "memfd", 0, 0, error))?;
    let path = format!("/proc/{}/fd/{}", std::process::id(), fd.as_raw_fd());
    let file = NamedFile::new(fd, path)?;
    let len = length(plans, PAGE);
    file.truncate(len)?;
    // Fixes the length for good: who opens the memfd through /proc cannot truncate it under its recorders. A kernel or filter that
    // refuses seals leaves the memfd as it is.
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    let _ = file.call("seal", 0, len, |fd| fcntl_add_seals(fd, seals));
    let mappings = Arena { plans, file, base: 0, blocks: true }.allocate(len)?;
    Ok((mappings, "one memfd; gone with the last process that has it, kept in its core".to_owned()))
}

/// Maps a region that another process made as a file in its folder. A file that is no regular file, or that is shorter
/// than a region header, is refused.
///
/// # Errors
/// What the system said, or what is wrong with the file.
pub fn open_region(folder: Folder<'_>, name: &str) -> Result<Mapping, BackendError> {
    let file = NamedFile::open(folder, name, OFlags::RDWR)?;
    let stat = file.look()?;
    let len = stat.st_size as u64;
    if is_device(&stat) {
        return Err(BackendError::invalid(&file.path, 0, 0, "not a regular file"));
    }
    if len < PAGE || !len.is_multiple_of(PAGE) {
        return Err(BackendError::invalid(&file.path, 0, len, "not the length of a region"));
    }
    file.region(name, 0, len, PAGE)
}

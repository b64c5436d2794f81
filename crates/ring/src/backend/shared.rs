//! Memory that other processes map: files in the session's folder, or one memfd.

use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};

use rustix::fs::{MemfdFlags, OFlags, SealFlags, fcntl_add_seals, memfd_create};

use super::arena::{Arena, length};
use super::file::NamedFile;
use super::{BackendError, Folder, Mapping, PAGE, Plan};

/// One file a region in the session's folder, mode 0600. What a killed process wrote stays in the page cache.
pub(super) fn allocate_files(folder: &Folder, plans: &[Plan]) -> Result<Vec<Mapping>, BackendError> {
    let make = |plan: &Plan| {
        let path = format!("{}/{}", folder.path, plan.name);
        let file = NamedFile::create(folder.fd.as_fd(), &plan.name, path)?;
        file.truncate(plan.len)?;
        Arena { file, base: 0, blocks: true }.allocate(core::slice::from_ref(plan), plan.len)
    };
    let mut mappings = Vec::with_capacity(plans.len());
    for plan in plans {
        match make(plan) {
            Ok(mapping) => mappings.extend(mapping),
            Err(error) => {
                // What is mapped would keep its memory after its file is removed.
                // SAFETY: nobody else has these mappings.
                mappings.iter().for_each(|mapping: &Mapping| unsafe { mapping.detach() });
                return Err(error);
            }
        }
    }
    Ok(mappings)
}

/// One memfd for all regions, which has no name in the file system and which the default core filter (0x33) keeps in a core.
/// Others reach it as `/proc/PID/fd/N` while the process lives.
pub(super) fn allocate_memfd(plans: &[Plan]) -> Result<Vec<Mapping>, BackendError> {
    let fd = memfd_create("lastwords", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
        .map_err(|error| BackendError::new("memfd_create", "memfd", 0, 0, error))?;
    let path = format!("/proc/{}/fd/{}", std::process::id(), fd.as_raw_fd());
    let file = NamedFile { fd, path };
    let len = length(plans, PAGE);
    file.truncate(len)?;
    // Fixes the length for good: who opens the memfd through /proc cannot truncate it under its recorders. A kernel or filter that
    // refuses seals leaves the memfd as it is.
    let _ = fcntl_add_seals(&file.fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL);
    Arena { file, base: 0, blocks: true }.allocate(plans, len)
}

/// Maps a region that another process made as a file in its folder. A file that is no regular file, or that is shorter
/// than a region header, is refused.
///
/// # Errors
/// What the system said, or what is wrong with the file.
pub fn open_region(folder: BorrowedFd<'_>, folder_path: &str, name: &str) -> Result<Mapping, BackendError> {
    let file = NamedFile::open(folder, name, format!("{folder_path}/{name}"), OFlags::RDWR)?;
    let look = file.look()?;
    if look.is_device {
        return Err(BackendError::invalid(&file.path, 0, 0, "not a regular file"));
    }
    if look.len < PAGE || look.len % PAGE != 0 {
        return Err(BackendError::invalid(&file.path, 0, look.len, "not the length of a region"));
    }
    file.region(name, 0, look.len, PAGE)
}

//! Allocates memory that keeps its contents: a file on a DAX file system, a device-DAX node, or a
//! fixed physical range through a device file, such as memory that the kernel was told not to use.

use std::path::Path;

use rustix::fs::OFlags;
use rustix::mm::MapFlags;

use super::arena::{Arena, length};
use super::file::{NamedFile, is_device, is_own};
use super::{Allocated, BackendError, Folder, PAGE, Plan};

/// Device-DAX nodes are mapped in multiples of their alignment.
const DEVICE_STEP: u64 = 2 << 20;

/// Allocates all regions in one file or device on DAX. A file that does not exist is created.
pub(super) fn allocate(path: &Path, reuse: bool, plans: &[Plan]) -> Allocated {
    let file = NamedFile::open(Folder::here(), path, OFlags::RDWR | OFlags::CREATE)?;
    let stat = file.look()?;
    let is_device = is_device(&stat);
    if !is_device && !is_own(&stat) {
        return Err(BackendError::invalid(
            &file.path,
            0,
            0,
            "another user's file; name one of your own",
        ));
    }
    let len = length(plans, if is_device { DEVICE_STEP } else { PAGE });
    if !is_device {
        if (stat.st_size as u64) < len {
            file.truncate(len)?;
        }
        file.fallocate(0, len)?;
    }
    let (start, what) = match file.map(0, len, MapFlags::SHARED_VALIDATE | MapFlags::SYNC) {
        Ok(start) => (start, "MAP_SYNC"),
        Err(_) => {
            let start = file.map(0, len, MapFlags::SHARED)?;
            (start, "no MAP_SYNC here: contents survive the process, not the loss of power")
        }
    };
    let arena = Arena { plans, file, base: 0, blocks: false };
    // SAFETY: the mapping of `len` bytes was just made.
    unsafe { arena.overwrite(start, len, reuse, what) }
}

/// Allocates all regions in `len` bytes at `offset` of a device file (`/dev/mem`, a UIO or
/// reserved-memory node) or of a plain file, which must exist.
pub(super) fn allocate_physical(
    path: &Path,
    offset: u64,
    len: u64,
    reuse: bool,
    plans: &[Plan],
) -> Allocated {
    let refused =
        |what: String| Err(BackendError::invalid(&path.display().to_string(), offset, len, what));
    if !offset.is_multiple_of(PAGE) {
        return refused("the offset is no multiple of 4096".to_owned());
    }
    let needed = length(plans, PAGE);
    if needed > len {
        return refused(format!(
            "the session takes {needed} bytes; ask for fewer or smaller sub-buffers"
        ));
    }
    let file = NamedFile::open(Folder::here(), path, OFlags::RDWR)?;
    let stat = file.look()?;
    if !is_device(&stat) {
        if offset.checked_add(len).is_none_or(|end| end > stat.st_size as u64) {
            return refused(format!(
                "the file has {} bytes; the range does not lie in it",
                stat.st_size
            ));
        }
        file.fallocate(offset, len)?;
    }
    let start = file.map(offset, needed, MapFlags::SHARED)?;
    let arena = Arena { plans, file, base: offset, blocks: false };
    // SAFETY: the mapping of `needed` bytes was just made.
    unsafe {
        arena.overwrite(
            start,
            needed,
            reuse,
            &format!("{len} bytes at {offset:#x} of {}", path.display()),
        )
    }
}

//! Memory that keeps its contents: a file on a DAX file system, a device-DAX node, or a fixed physical range through a device
//! file, such as memory that the kernel was told to leave alone.

use rustix::fs::{CWD, OFlags};
use rustix::mm::MapFlags;

use super::arena::{Arena, length};
use super::file::NamedFile;
use super::{BackendError, Mapping, PAGE, Plan, flush};

/// Device-DAX nodes are mapped in multiples of their alignment.
const DEVICE_STEP: u64 = 2 << 20;

/// All regions in one file or device on DAX; a file that is not there is made.
pub(super) fn allocate(path: &str, reuse: bool, plans: &[Plan]) -> Result<(Vec<Mapping>, String), BackendError> {
    let file = NamedFile::open(CWD, path, path, OFlags::RDWR | OFlags::CREATE)?;
    let look = file.look()?;
    if !look.is_device && !look.is_own {
        return Err(BackendError::invalid(path, 0, 0, "another user's file; name one of your own"));
    }
    let len = length(plans, if look.is_device { DEVICE_STEP } else { PAGE });
    if !look.is_device {
        if look.len < len {
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
    let arena = Arena { file, base: 0, blocks: false };
    // SAFETY: a mapping of `len` bytes made just now.
    let mappings = unsafe { arena.overwrite(start, len, plans, reuse) }?;
    Ok((mappings, format!("{what}; {}", flush::way())))
}

/// All regions in `len` bytes at `offset` of a device file (`/dev/mem`, a UIO or reserved-memory node) or of a plain file, which
/// must exist.
pub(super) fn allocate_physical(
    path: &str,
    offset: u64,
    len: u64,
    reuse: bool,
    plans: &[Plan],
) -> Result<(Vec<Mapping>, String), BackendError> {
    let refused = |what: String| Err(BackendError::invalid(path, offset, len, what));
    if !offset.is_multiple_of(PAGE) {
        return refused("the offset is no multiple of 4096".to_owned());
    }
    let needed = length(plans, PAGE);
    if needed > len {
        return refused(format!("the session takes {needed} bytes; ask for fewer or smaller sub-buffers"));
    }
    let file = NamedFile::open(CWD, path, path, OFlags::RDWR)?;
    let look = file.look()?;
    if !look.is_device {
        if offset.checked_add(len).is_none_or(|end| end > look.len) {
            return refused(format!("the file has {} bytes; the range does not lie in it", look.len));
        }
        file.fallocate(offset, len)?;
    }
    let start = file.map(offset, needed, MapFlags::SHARED)?;
    let arena = Arena { file, base: offset, blocks: false };
    // SAFETY: a mapping of `needed` bytes made just now.
    let mappings = unsafe { arena.overwrite(start, needed, plans, reuse) }?;
    Ok((mappings, format!("{len} bytes at {offset:#x} of {path}; {}", flush::way())))
}

//! Allocates memory that keeps its contents: a file on a DAX file system, a device-DAX node, or a fixed physical range
//! through a device file, such as memory that the kernel was told not to use.

use core::ptr::copy_nonoverlapping;
use std::path::Path;

use rustix::fs::OFlags;
use rustix::mm::MapFlags;

use super::arena::{Arena, length};
use super::file::{NamedFile, is_device, is_own};
use super::{Allocated, BackendError, Folder, Mapping, PAGE, Plan};

/// Device-DAX nodes are mapped in multiples of their alignment.
const DEVICE_STEP: u64 = 2 << 20;

/// Allocates all regions in one file or device on DAX. A file that does not exist is created.
pub(super) fn allocate(path: &Path, reuse: bool, plans: &[Plan]) -> Allocated {
    let file = NamedFile::open(Folder::here(), path, OFlags::RDWR | OFlags::CREATE)?;
    let stat = file.look()?;
    let is_device = is_device(&stat);
    if !is_device && !is_own(&stat) {
        return Err(BackendError::invalid(&file.path, 0, 0, "another user's file; name one of your own"));
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

/// Allocates all regions in `len` bytes at `offset` of a device file (`/dev/mem`, a UIO or reserved-memory node) or of
/// a plain file, which must exist.
pub(super) fn allocate_physical(path: &Path, offset: u64, len: u64, reuse: bool, plans: &[Plan]) -> Allocated {
    let refused = |what: String| Err(BackendError::invalid(&path.display().to_string(), offset, len, what));
    if !offset.is_multiple_of(PAGE) {
        return refused("the offset is no multiple of 4096".to_owned());
    }
    let needed = length(plans, PAGE);
    if needed > len {
        return refused(format!("the session takes {needed} bytes; ask for fewer or smaller sub-buffers"));
    }
    let file = NamedFile::open(Folder::here(), path, OFlags::RDWR)?;
    let stat = file.look()?;
    if !is_device(&stat) {
        if offset.checked_add(len).is_none_or(|end| end > stat.st_size as u64) {
            return refused(format!("the file has {} bytes; the range does not lie in it", stat.st_size));
        }
        file.fallocate(offset, len)?;
    }
    let start = file.map(offset, needed, MapFlags::SHARED)?;
    let arena = Arena { plans, file, base: offset, blocks: false };
    // SAFETY: the mapping of `needed` bytes was just made.
    unsafe { arena.overwrite(start, needed, reuse, &format!("{len} bytes at {offset:#x} of {}", path.display())) }
}

/// The memory of a device-DAX node, for a reader. Such a node can be mapped, but not read by calls.
#[derive(Debug)]
pub struct DaxNode(Mapping);

impl DaxNode {
    /// Maps the `len` bytes of a node.
    ///
    /// # Errors
    /// The node cannot be opened or mapped.
    pub fn open(path: &Path, len: u64) -> Result<Self, BackendError> {
        let file = NamedFile::open(Folder::here(), path, OFlags::RDWR)?;
        Ok(Self(file.region("node", 0, len, DEVICE_STEP, MapFlags::SHARED)?))
    }

    /// Copies bytes from an offset on. Returns how many: fewer than `buf` has if the node ends before.
    #[must_use]
    pub fn copy(&self, offset: u64, buf: &mut [u8]) -> usize {
        let len = self.0.len().saturating_sub(offset).min(buf.len() as u64) as usize;
        if len > 0 {
            // SAFETY: `len` bytes from the offset on are inside the mapping, which the handle keeps. A process that still
            // records can change them meanwhile; readers of sessions check what they copied.
            unsafe { copy_nonoverlapping(self.0.as_ptr().add(offset as usize), buf.as_mut_ptr(), len) };
        }
        len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_ends_where_the_memory_ends() {
        let path = std::env::temp_dir().join(format!("lastwords-node-{}", std::process::id()));
        let bytes: Vec<u8> = (0..2 * PAGE).map(|at| (at / 16) as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        let node = DaxNode::open(&path, 2 * PAGE).unwrap();
        std::fs::remove_file(&path).unwrap();
        let mut buf = [0; 48];
        assert_eq!(node.copy(4080, &mut buf), 48);
        assert_eq!(buf, bytes[4080..4128]);
        assert_eq!(node.copy(2 * PAGE - 16, &mut buf), 16);
        assert_eq!(node.copy(2 * PAGE, &mut buf), 0);
        assert_eq!(node.copy(u64::MAX, &mut buf), 0);
    }
}

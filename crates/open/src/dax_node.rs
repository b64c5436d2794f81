//! A device-DAX node (`/dev/dax0.0`) as an image. Such a node can be mapped, but not read by calls.

use anyhow::Context;
use lastwords_bytes::Budget;
use lastwords_image::{Hole, HoleCause, Image, Kind, Opened, Range};
use lastwords_ring::backend::DaxNode;
use rustix::fs::{major, minor};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Opens a path if it is a device-DAX node.
///
/// # Errors
/// The node cannot be mapped: root alone may, by default.
pub(super) fn open(path: &Path, budget: &Budget) -> anyhow::Result<Option<Opened>> {
    let Some(len) = length(path, Path::new("/sys")) else { return Ok(None) };
    budget.admit(len);
    let name = path.display().to_string();
    let node = DaxNode::open(path, len).with_context(|| name.clone())?;
    let range = Range { address: 0, len, name: name.as_str().into(), offset: 0, hole: None };
    let image = Arc::new(Node { node, name, ranges: [range] });
    Ok(Some(Opened { image, kind: Kind::Plain, core: None, is_damaged: false, notes: Vec::new() }))
}

/// Returns the length of a device-DAX node in bytes, as a folder like `/sys` has it; none for any other file.
fn length(path: &Path, sys: &Path) -> Option<u64> {
    let meta = std::fs::metadata(path).ok().filter(|meta| meta.file_type().is_char_device())?;
    let device: PathBuf = sys.join(format!("dev/char/{}:{}", major(meta.rdev()), minor(meta.rdev())));
    let subsystem = std::fs::read_link(device.join("subsystem")).ok()?;
    let size = std::fs::read_to_string(device.join("size")).ok().filter(|_| subsystem.ends_with("dax"))?;
    size.trim().parse().ok()
}

struct Node {
    node: DaxNode,
    name: String,
    ranges: [Range; 1],
}

impl Image for Node {
    fn name(&self) -> &str {
        &self.name
    }

    fn ranges(&self) -> &[Range] {
        &self.ranges
    }

    fn is_virtual(&self) -> bool {
        false
    }

    fn read(&self, address: u64, buf: &mut [u8]) -> Result<(), Hole> {
        let copied = self.node.copy(address, buf);
        let end = address.saturating_add(copied as u64);
        if copied == buf.len() { Ok(()) } else { Err(Hole { address: end, cause: HoleCause::Truncated }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_known_by_its_subsystem() {
        let sys = tempfile::tempdir().unwrap();
        // The numbers of /dev/null.
        let device = sys.path().join("dev/char/1:3");
        std::fs::create_dir_all(&device).unwrap();
        std::fs::write(device.join("size"), "2097152\n").unwrap();
        let null = Path::new("/dev/null");
        std::os::unix::fs::symlink("../../../class/mem", device.join("subsystem")).unwrap();
        assert_eq!(length(null, sys.path()), None);
        std::fs::remove_file(device.join("subsystem")).unwrap();
        std::os::unix::fs::symlink("../../../bus/dax", device.join("subsystem")).unwrap();
        assert_eq!(length(null, sys.path()), Some(2 << 20));
        assert_eq!(length(&device.join("size"), sys.path()), None);
    }
}

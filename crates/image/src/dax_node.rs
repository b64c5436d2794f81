//! A device-DAX node (`/dev/dax0.0`) as an image. Such a node can be mapped, but not read by calls.
//! It is mapped, and read where `/proc/self/mem` shows the mapping: memory that fails gives a hole
//! and no signal.

use crate::file::Backing;
use crate::opened::{ImageKind, Opened};
use crate::segments::{Segment, Segments};
use crate::{Hole, HoleCause, Image, Range};
use lastwords_bytes::{Budget, Error};
use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{major, minor};
use std::fs::File;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// This process's own memory.
const MEMORY: &str = "/proc/self/mem";

/// Opens a path if it is a device-DAX node.
///
/// # Errors
/// The node cannot be mapped: root alone may, by default. `/proc` is not mounted.
pub(crate) fn open(path: &Path, budget: &Budget) -> Result<Option<Opened>, Error> {
    let Some(len) = length(path, Path::new("/sys")) else { return Ok(None) };
    let name = path.display().to_string();
    // Only what can be written can be mapped on kernels before 6.1.
    let node =
        File::options().read(true).write(true).open(path).map_err(|e| Error::io(&name, 0, &e))?;
    budget.admit(len);
    let image = Arc::new(Node::new(&node, len, &name)?);
    Ok(Some(Opened {
        image,
        kind: ImageKind::Plain,
        core: None,
        is_damaged: false,
        notes: Vec::new(),
    }))
}

/// Returns the length of a device-DAX node in bytes, as a folder like `/sys` has it; none for any
/// other file.
fn length(path: &Path, sys: &Path) -> Option<u64> {
    let meta = std::fs::metadata(path).ok().filter(|meta| meta.file_type().is_char_device())?;
    let device: PathBuf =
        sys.join(format!("dev/char/{}:{}", major(meta.rdev()), minor(meta.rdev())));
    let subsystem = std::fs::read_link(device.join("subsystem")).ok()?;
    let size =
        std::fs::read_to_string(device.join("size")).ok().filter(|_| subsystem.ends_with("dax"))?;
    size.trim().parse().ok()
}

struct Node {
    image: Segments,
    ranges: [Range; 1],
    /// The mapping that `image` reads.
    _mapped: MmapRaw,
}

impl Node {
    /// Maps `len` bytes of a node.
    fn new(node: &File, len: u64, name: &str) -> Result<Self, Error> {
        let failed = |error: &std::io::Error| Error::io(name, 0, error);
        let bytes =
            usize::try_from(len).map_err(|_| failed(&std::io::ErrorKind::FileTooLarge.into()))?;
        let mapped = MmapOptions::new()
            .len(bytes)
            .map_raw_read_only(node)
            .map_err(|error| failed(&error))?;
        let memory = File::open(MEMORY).map_err(|error| Error::io(MEMORY, 0, &error))?;
        let offset = mapped.as_ptr().addr() as u64;
        let segment =
            Segment { address: 0, len, held: len, file: 0, offset, rest: HoleCause::Truncated };
        let (image, _) =
            Segments::new(name, vec![Backing::of_memory(memory, name)], vec![segment], false);
        let ranges = [Range { address: 0, len, name: name.into(), offset: 0, hole: None }];
        Ok(Self { image, ranges, _mapped: mapped })
    }
}

impl Image for Node {
    fn name(&self) -> &str {
        self.image.name()
    }

    fn ranges(&self) -> &[Range] {
        &self.ranges
    }

    fn read(&self, address: u64, buf: &mut [u8]) -> Result<(), Hole> {
        self.image.read(address, buf)
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

    #[test]
    fn a_read_ends_where_the_memory_ends() {
        let bytes: Vec<u8> = (0..8192).map(|at| (at / 16) as u8).collect();
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, &bytes).unwrap();
        let node = Node::new(&file, 8192, "node").unwrap();
        let mut buf = [0; 48];
        node.read(4080, &mut buf).unwrap();
        assert_eq!(buf, bytes[4080..4128]);
        assert_eq!(node.read(8192 - 16, &mut buf).map_err(|hole| hole.address), Err(8192));
        assert_eq!(buf[..16], bytes[8192 - 16..]);
        assert!(node.read(8192, &mut buf).is_err() && node.read(u64::MAX, &mut buf).is_err());
    }

    #[test]
    fn memory_that_fails_is_a_hole() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(8192).unwrap();
        let node = Node::new(&file, 8192, "node").unwrap();
        file.set_len(4096).unwrap();
        let mut buf = [0; 48];
        node.read(0, &mut buf).unwrap();
        assert!(node.read(4096, &mut buf).is_err());
    }
}

//! A fixed physical range through a device file, such as memory that the kernel was told to leave alone.

use std::os::fd::OwnedFd;

use lastwords_abi::session::BACKEND_PHYSICAL;

use super::arena::{Arena, PAGE, length, make_clean};
use super::{Backend, BackendError, Mapping, Plan, file};

/// `len` bytes at `offset` of a device file (`/dev/mem`, a UIO or reserved-memory node) or of a plain file.
#[derive(Debug)]
pub struct PhysicalBackend {
    path: String,
    offset: u64,
    len: u64,
    reuse: bool,
}

impl PhysicalBackend {
    /// The range; `offset` is a multiple of 4096.
    #[must_use]
    pub fn new(path: impl Into<String>, offset: u64, len: u64) -> Self {
        Self { path: path.into(), offset, len, reuse: false }
    }

    /// Whether a session that is recorded there may be overwritten. Without it, it is refused.
    #[must_use]
    pub fn reuse(mut self, reuse: bool) -> Self {
        self.reuse = reuse;
        self
    }

    /// Opens the file, which must exist, and checks that a plain one holds the range.
    fn open(&self) -> Result<OwnedFd, BackendError> {
        let (path, offset, len) = (&self.path, self.offset, self.len);
        let fd = file::open_at(libc::AT_FDCWD, path, path, libc::O_RDWR | libc::O_NONBLOCK)?;
        let stat = file::stat(&fd, path)?;
        match stat.st_mode & libc::S_IFMT {
            libc::S_IFCHR => Ok(fd),
            libc::S_IFREG => {
                let has = u64::try_from(stat.st_size).unwrap_or(0);
                if offset.checked_add(len).is_none_or(|end| end > has) {
                    let what = format!("the file has {has} bytes; the range does not lie in it");
                    return Err(BackendError::invalid(path, offset, len, what));
                }
                file::fallocate(&fd, path, offset, len)?;
                Ok(fd)
            }
            _ => Err(BackendError::invalid(path, offset, len, "neither a device file nor a regular file")),
        }
    }
}

impl Backend for PhysicalBackend {
    fn kind(&self) -> u32 {
        BACKEND_PHYSICAL
    }

    fn allocate(&mut self, plans: &[Plan]) -> Result<Vec<Mapping>, BackendError> {
        let (path, offset) = (self.path.clone(), self.offset);
        if offset % PAGE != 0 {
            return Err(BackendError::invalid(&path, offset, self.len, "the offset is no multiple of 4096"));
        }
        let needed = length(plans, PAGE);
        if needed > self.len {
            let what = format!("the session takes {needed} bytes; ask for fewer or smaller sub-buffers");
            return Err(BackendError::invalid(&path, offset, self.len, what));
        }
        let fd = self.open()?;
        let arena = Arena { fd, path, base: offset, blocks: false, step: PAGE, flags: libc::MAP_SHARED };
        let start = file::map(&arena.fd, &arena.path, offset, needed, libc::MAP_SHARED)?;
        // SAFETY: a mapping of `needed` bytes made just now.
        unsafe { make_clean(start, &arena.path, offset, needed, self.reuse) }?;
        arena.cut(start, plans)
    }

    fn persistent(&self) -> bool {
        true
    }

    fn note(&self) -> String {
        format!("{} bytes at {:#x} of {}; {}", self.len, self.offset, self.path, super::flush::way())
    }
}

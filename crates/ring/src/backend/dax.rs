//! A file on a DAX file system, or a device-DAX node: memory that keeps its contents without power.

use std::os::fd::OwnedFd;

use lastwords_abi::session::BACKEND_DAX;

use super::arena::{Arena, length, make_clean};
use super::{Backend, BackendError, Mapping, Plan, file, round_up};

/// Device-DAX nodes are mapped in multiples of their alignment.
const DEVICE_STEP: u64 = 2 << 20;

/// All regions one after another in one file or device.
#[derive(Debug)]
pub struct DaxBackend {
    path: String,
    reuse: bool,
    note: String,
}

impl DaxBackend {
    /// `path` is a device-DAX node, an existing file of this user, or a file to be made.
    #[must_use]
    pub fn new(path: impl Into<String>) -> Self {
        Self { path: path.into(), reuse: false, note: "not allocated yet".to_owned() }
    }

    /// Whether a session that is recorded there may be overwritten. Without it, it is refused.
    #[must_use]
    pub fn reuse(mut self, reuse: bool) -> Self {
        self.reuse = reuse;
        self
    }

    fn open(&self) -> Result<(OwnedFd, bool), BackendError> {
        let path = &self.path;
        let fd = match file::open_at(libc::AT_FDCWD, path, path, libc::O_RDWR | libc::O_NONBLOCK) {
            Err(error) if error.source.raw_os_error() == Some(libc::ENOENT) => {
                file::create_at(libc::AT_FDCWD, path, path)?
            }
            other => other?,
        };
        let stat = file::stat(&fd, path)?;
        // SAFETY: geteuid has no way to fail.
        let own = stat.st_uid == unsafe { libc::geteuid() };
        match stat.st_mode & libc::S_IFMT {
            libc::S_IFCHR => Ok((fd, true)),
            libc::S_IFREG if own => Ok((fd, false)),
            libc::S_IFREG => Err(BackendError::invalid(path, 0, 0, "another user's file; name one of your own")),
            _ => Err(BackendError::invalid(path, 0, 0, "neither a regular file nor a character device")),
        }
    }

    /// The mapping's flags that this place takes, and what to say of them.
    fn mapping_flags(&mut self, fd: &OwnedFd, len: u64) -> i32 {
        let sync = libc::MAP_SHARED_VALIDATE | libc::MAP_SYNC;
        match file::map(fd, &self.path, 0, len, sync) {
            Ok(start) => {
                // SAFETY: the mapping was made by the line above and is used by nobody.
                unsafe { libc::munmap(start.as_ptr().cast(), len as usize) };
                self.note = format!("MAP_SYNC; {}", super::flush::way());
                sync
            }
            Err(_) => {
                let what = "no MAP_SYNC here: contents survive the process, not the loss of power";
                self.note = format!("{what}; {}", super::flush::way());
                libc::MAP_SHARED
            }
        }
    }
}

impl Backend for DaxBackend {
    fn kind(&self) -> u32 {
        BACKEND_DAX
    }

    fn allocate(&mut self, plans: &[Plan]) -> Result<Vec<Mapping>, BackendError> {
        let (fd, device) = self.open()?;
        let step = if device { DEVICE_STEP } else { super::arena::PAGE };
        let len = length(plans, step);
        if !device {
            let has = u64::try_from(file::stat(&fd, &self.path)?.st_size).unwrap_or(0);
            if has < len {
                file::truncate(&fd, &self.path, round_up(len, step))?;
            }
            file::fallocate(&fd, &self.path, 0, len)?;
        }
        let flags = self.mapping_flags(&fd, len);
        let path = self.path.clone();
        let arena = Arena { fd, path, base: 0, blocks: false, step, flags };
        let start = file::map(&arena.fd, &arena.path, 0, len, flags)?;
        // SAFETY: a mapping of `len` bytes made just now.
        unsafe { make_clean(start, &self.path, 0, len, self.reuse) }?;
        arena.cut(start, plans)
    }

    fn persistent(&self) -> bool {
        true
    }

    fn note(&self) -> String {
        self.note.clone()
    }
}

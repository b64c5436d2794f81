//! Files that are read with `pread`.

use crate::flattened::{Flattened, Stream};
use crate::got::{Got, read_at};
use crate::pages::{PAGE, Pages};
use lastwords_bytes::{Budget, Error, irregular};
use rustix::fs::{Mode, OFlags, PROC_SUPER_MAGIC, fstatfs};
use std::fs::File;
use std::io::{ErrorKind, Seek, SeekFrom};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;

/// A file of known length.
#[derive(Debug)]
pub(crate) struct Backing {
    pub(crate) file: File,
    pub(crate) len: u64,
    pub(crate) name: Arc<str>,
    /// For a flattened stream: the stream, with the index of the file in it.
    flattened: Option<Box<Flattened>>,
    /// Cached pages, if the file cannot change while it is read.
    pages: Option<Box<Pages>>,
}

impl Backing {
    /// Opens `path` for reading, and admits its size to the budget. If `follow` is false, only a
    /// regular file is opened: no symbolic link and no device.
    pub(crate) fn open(path: &Path, follow: bool, budget: &Budget) -> Result<Self, Error> {
        let name = path.display().to_string();
        let mut flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        if !follow {
            flags |= OFlags::NOFOLLOW;
        }
        let file = rustix::fs::open(path, flags, Mode::empty())
            .map_err(|e| Error::io(&name, 0, &e.into()))?;
        let file = File::from(file);
        if !follow {
            let kind = file.metadata().map_err(|e| Error::io(&name, 0, &e))?.file_type();
            irregular(kind)
                .map_or(Ok(()), |what| Err(Error::io(&name, 0, &std::io::Error::other(what))))?;
        }
        let file = Self::from_file(file, &name)?;
        if !file.is_endless() {
            budget.admit(file.stored());
        }
        Ok(file)
    }

    /// Returns true for the memory of a process, which has no end. Nothing was admitted to the
    /// budget for it.
    pub(crate) fn is_endless(&self) -> bool {
        self.len == u64::MAX
    }

    /// Wraps the open `/proc/PID/mem` of a process. It has no end.
    pub(crate) fn of_memory(file: File, name: &str) -> Self {
        Self { file, len: u64::MAX, name: name.into(), flattened: None, pages: None }
    }

    /// Wraps a file that is already open.
    pub(crate) fn from_file(mut file: File, name: &str) -> Result<Self, Error> {
        let kind = file.metadata().map_err(|e| Error::io(name, 0, &e))?.file_type();
        if kind.is_dir() {
            return Err(Error::io(name, 0, &std::io::Error::from(ErrorKind::IsADirectory)));
        }
        if let Some(what) = irregular(kind).filter(|_| kind.is_fifo() || kind.is_socket()) {
            return Err(Error::io(
                name,
                0,
                &std::io::Error::other(format!("{what}: it cannot be read at places")),
            ));
        }
        // Seeking finds the end of block devices too.
        match file.seek(SeekFrom::End(0)) {
            Ok(len) => Ok(Self { file, len, name: name.into(), flattened: None, pages: None }),
            Err(_) if is_of_proc(&file) => Ok(Self::of_memory(file, name)),
            Err(error) => Err(Error::io(name, 0, &error)),
        }
    }

    /// Opens the file inside a flattened stream.
    pub(crate) fn flattened(self, budget: &Budget, notes: &mut Vec<String>) -> Result<Self, Error> {
        let file = self.file.try_clone().map_err(|e| Error::io(&self.name, 0, &e))?;
        let name = self.name.clone();
        let stream = Stream { file: self.file, len: self.len, name: self.name };
        let flattened = Box::new(Flattened::new(stream, budget, notes)?);
        Ok(Self { file, len: flattened.len(), name, flattened: Some(flattened), pages: None })
    }

    /// Caches pages of a dump, for small reads. Devices and `/proc/kcore` are left as they are:
    /// their memory changes while it is read.
    pub(crate) fn cached(mut self) -> Self {
        let is_file = self.file.metadata().is_ok_and(|data| data.is_file());
        let is_of_proc = is_of_proc(&self.file);
        // The memory of a crashed kernel does not change.
        if is_file && (!is_of_proc || &*self.name == "/proc/vmcore") {
            self.pages = Some(Box::new(Pages::new()));
        }
        self
    }

    /// Number of bytes stored, without the holes of a sparse file; for a flattened stream, those of
    /// the stream.
    pub(crate) fn stored(&self) -> u64 {
        let len = self.flattened.as_ref().map_or(self.len, |flattened| flattened.stream.len);
        match self.file.metadata() {
            Ok(data) if data.is_file() && !is_of_proc(&self.file) => lastwords_bytes::stored(&data),
            // A device has no holes. A file of /proc has no blocks.
            _ => len,
        }
    }

    /// Fills `buf` from `offset` on.
    pub(crate) fn read(&self, offset: u64, buf: &mut [u8]) -> Got {
        match &self.pages {
            Some(pages) if buf.len() < PAGE => {
                pages.read(offset, buf, |at, part| self.read_uncached(at, part))
            }
            _ => self.read_uncached(offset, buf),
        }
    }

    fn read_uncached(&self, offset: u64, buf: &mut [u8]) -> Got {
        if let Some(flattened) = &self.flattened {
            return flattened.fill(offset, buf);
        }
        read_at(&self.file, offset, buf)
    }

    /// Fills `buf` from `offset` on, or returns an error.
    pub(crate) fn read_all(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        let len = buf.len();
        self.read(offset, buf).all(&self.name, offset, len)
    }

    /// First offset at or after `offset` that is not in a hole of a sparse file.
    pub(crate) fn next_data(&self, offset: u64) -> u64 {
        use rustix::fs::{SeekFrom as To, seek};
        if let Some(flattened) = &self.flattened {
            return flattened.next_data(offset);
        }
        match seek(&self.file, To::Data(offset)) {
            Ok(data) => data.max(offset),
            Err(rustix::io::Errno::NXIO) => self.len.max(offset),
            Err(_) => offset,
        }
    }
}

fn is_of_proc(file: &File) -> bool {
    fstatfs(file).map_or(true, |system| system.f_type == PROC_SUPER_MAGIC)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_memory_that_cannot_change_is_cached() {
        let open =
            |path: &Path| Backing::open(path, true, &Budget::default()).expect("a file").cached();
        let file = tempfile::NamedTempFile::new().expect("a file");
        assert!(open(file.path()).pages.is_some());
        let memory = File::open("/proc/self/mem").expect("a process has memory");
        let memory = Backing::of_memory(memory, "/proc/self/mem").cached();
        assert!(memory.file.metadata().expect("its kind").is_file() && memory.pages.is_none());
        assert!(open(Path::new("/dev/zero")).pages.is_none());
        assert!(
            Backing::open(file.path(), true, &Budget::default()).expect("a file").pages.is_none()
        );
    }

    #[test]
    fn files_of_a_folder_are_regular() {
        let budget = Budget::default();
        let error = |path: &Path| {
            Backing::open(path, false, &budget).expect_err("no regular file").to_string()
        };
        assert!(error(Path::new("/dev/zero")).contains("a device, no regular file"));
        assert!(error(Path::new("/proc")).contains("a folder, no regular file"));
        let dir = tempfile::tempdir().expect("a folder");
        let (link, file) = (dir.path().join("link"), dir.path().join("file"));
        std::fs::write(&file, [0; 10]).expect("written");
        std::os::unix::fs::symlink(&file, &link).expect("a link");
        assert!(!error(&link).is_empty());
        let before = budget.left().bytes;
        assert_eq!(Backing::open(&file, false, &budget).expect("a file").len, 10);
        assert_eq!(Backing::open(&link, true, &budget).expect("what it leads to").len, 10);
        assert_eq!(budget.left().bytes, before + 2 * 640);
    }
}

//! The folder of a copy: what a reader of the dead process's memory sends becomes files there.
//!
//! The sender may be under the control of the dead process, whose memory it parses. So names, sizes
//! and positions are checked here: only files of a session's regions are made, each once, and all
//! bytes of all copies have a limit.

use std::cell::Cell;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use super::{CopySink, Death, MARK, remove_oldest};
use lastwords::Error;
use lastwords::internals::config::check_name;
use lastwords::internals::cut;
use lastwords::internals::dirs::{Base, Folder, base_path};
use lastwords::internals::region_names::{
    COUNTERS, REGISTRY, SESSION, SPANS, stream_name, stream_of_file,
};
use lastwords::internals::save::{MOST_NAME, create_file};
use lastwords_folders::unique_of;

/// Largest number of files of one copy. A session has three, and one for each stream.
const MOST_FILES: usize = 1 << 16;
/// Largest size of a file, in bytes. Most of a file of this size is holes.
const MOST_LEN: u64 = 1 << 40;

/// The number of bytes and files that may still be written for the copies of one process.
#[derive(Debug)]
pub struct CopyLimits {
    /// Bytes, holes not counted.
    pub bytes: Cell<u64>,
    /// Files.
    pub files: Cell<usize>,
}

impl CopyLimits {
    /// The limits of a process whose copies may take this number of bytes together.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        Self { bytes: Cell::new(bytes), files: Cell::new(MOST_FILES) }
    }
}

/// The copy of a dead process's session.
#[derive(Debug)]
pub struct Copied {
    /// The folder of the copy.
    pub folder: PathBuf,
    /// Older copies that were removed, because there were more than the limit of number or bytes.
    pub removed: u32,
}

/// The unpublished folder of a copy. Dropped without [`CopyFolder::publish`], nothing is left of
/// it.
#[derive(Debug)]
pub struct CopyFolder<'a> {
    base: Base,
    folder: Option<Folder>,
    limits: &'a CopyLimits,
    /// Names of the files that were made.
    names: Vec<String>,
    /// The last file, and its length.
    file: Option<(File, u64)>,
}

impl<'a> CopyFolder<'a> {
    /// Makes the folder `NAME.dead-PID-UUID` in the folder of this user's sessions. A name that no
    /// session can have becomes `session`.
    ///
    /// # Errors
    /// The folder of this user's sessions cannot be written.
    pub fn new(
        uuid: &[u8; 16],
        name: &str,
        death: &Death,
        limits: &'a CopyLimits,
    ) -> Result<Self, Error> {
        Self::new_in(Base::make(&base_path())?, uuid, name, death, limits)
    }

    pub(super) fn new_in(
        base: Base,
        uuid: &[u8; 16],
        name: &str,
        death: &Death,
        limits: &'a CopyLimits,
    ) -> Result<Self, Error> {
        let name = if check_name(name).is_ok() { name } else { "session" };
        let name = format!("{}{MARK}{}", cut(name, MOST_NAME), death.pid);
        let folder = Some(base.new_folder(&name, &unique_of(uuid))?);
        Ok(Self { base, folder, limits, names: Vec::new(), file: None })
    }

    /// Gives the folder its name, so that others find it, and removes the oldest copies above the
    /// limits of a user.
    ///
    /// # Errors
    /// The folder cannot be renamed. Nothing is left of the copy then.
    pub fn publish(mut self) -> Result<Copied, Error> {
        let mut folder = self.folder.take().ok_or_else(refused)?;
        folder.publish().inspect_err(|_| drop(folder.remove()))?;
        Ok(Copied { folder: folder.path, removed: remove_oldest(&self.base) })
    }

    fn path(&self) -> &Path {
        self.folder.as_ref().map_or(Path::new(""), |folder| &folder.path)
    }
}

impl Drop for CopyFolder<'_> {
    fn drop(&mut self) {
        if let Some(folder) = self.folder.take() {
            // A file that cannot be removed now is removed as abandoned when the next session is
            // created.
            drop(folder.remove());
        }
    }
}

impl CopySink for CopyFolder<'_> {
    fn create(&mut self, name: &str, len: u64) -> Result<(), Error> {
        let is_stream =
            || stream_of_file(name).is_some_and(|(index, _)| name == stream_name(index));
        let is_region = [SESSION, REGISTRY, SPANS, COUNTERS].contains(&name) || is_stream();
        let files = self.limits.files.get().checked_sub(1);
        let (true, Some(files)) =
            (is_region && len <= MOST_LEN && !self.names.iter().any(|old| old == name), files)
        else {
            return Err(refused());
        };
        self.limits.files.set(files);
        let folder = self.folder.as_ref().ok_or_else(refused)?;
        self.file = Some((create_file(folder, name, len)?, len));
        self.names.push(name.to_owned());
        Ok(())
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), Error> {
        let len = bytes.len() as u64;
        let (file, end) = self.file.as_ref().ok_or_else(refused)?;
        let fits = at.checked_add(len).is_some_and(|to| to <= *end);
        let left = self.limits.bytes.get().checked_sub(len).filter(|_| fits).ok_or_else(refused)?;
        self.limits.bytes.set(left);
        file.write_all_at(bytes, at).map_err(|error| Error::io("write", self.path(), error))
    }
}

/// The error of a copy that breaks a limit. No whole session does so.
fn refused() -> Error {
    Error::unsupported(
        "the copy",
        "it is larger than any session, or not one",
        "read the core instead",
    )
}

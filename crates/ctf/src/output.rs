//! Output files that nobody else can read, replace or redirect.

use crate::error::{Error, Result};
use std::fs::{DirBuilder, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

/// Makes a folder, mode 0700. Its parent must exist.
///
/// # Errors
/// It exists already (whatever it is), or cannot be made.
pub fn create_folder(path: &Path) -> Result<()> {
    DirBuilder::new().mode(0o700).create(path).map_err(Error::io(path, "create the folder"))
}

/// Makes a folder as [`create_folder`] does, or takes an empty one that is there already as it is.
///
/// # Errors
/// Something else is there already, or it cannot be made.
pub(crate) fn empty_folder(path: &Path) -> Result<()> {
    if is_empty_folder(path) { Ok(()) } else { create_folder(path) }
}

/// A folder, and no link to one, that has nothing in it.
pub fn is_empty_folder(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|meta| meta.is_dir())
        && path.read_dir().is_ok_and(|mut entries| entries.next().is_none())
}

/// Makes a file for writing, mode 0600.
///
/// # Errors
/// Something of that name exists already, be it a dangling symbolic link; or it cannot be made.
pub fn create_file(path: &Path) -> Result<File> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
        .open(path)
        .map_err(Error::io(path, "create"))
}

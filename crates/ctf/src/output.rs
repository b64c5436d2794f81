//! Creates output files that no other user can read, replace or redirect.

use crate::error::{Error, Result};
use std::fs::{DirBuilder, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

/// Creates a folder with mode 0700. Its parent must exist.
///
/// # Errors
/// The path exists already, whatever it is, or the folder cannot be created.
pub fn create_folder(path: &Path) -> Result<()> {
    DirBuilder::new().mode(0o700).create(path).map_err(Error::io(path, "create the folder"))
}

/// Creates a folder as [`create_folder`] does, or leaves an empty one that exists as it is.
///
/// # Errors
/// Something else exists at the path, or the folder cannot be created.
pub(crate) fn empty_folder(path: &Path) -> Result<()> {
    if is_empty_folder(path) { Ok(()) } else { create_folder(path) }
}

/// Returns true for a folder with nothing in it; a link to a folder is none.
pub fn is_empty_folder(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|meta| meta.is_dir())
        && path.read_dir().is_ok_and(|mut entries| entries.next().is_none())
}

/// Creates a file for writing, with mode 0600.
///
/// # Errors
/// Something of that name exists already (also a dangling symbolic link), or the file cannot be
/// created.
pub fn create_file(path: &Path) -> Result<File> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
        .open(path)
        .map_err(Error::io(path, "create"))
}

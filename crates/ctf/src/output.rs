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

/// Creates a file for writing, with mode 0600.
///
/// # Errors
/// Something of that name exists already (also a dangling symbolic link), or the file cannot be created.
pub fn create_file(path: &Path) -> Result<File> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
        .open(path)
        .map_err(Error::io(path, "create"))
}

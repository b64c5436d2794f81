//! Makes files, and moves bytes between them and pipes, in the kernel.

use anyhow::Context;
use rustix::fs::copy_file_range;
use rustix::io::Errno;
use rustix::pipe::{SpliceFlags, splice};
use std::fs::{File, OpenOptions};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// `O_NOFOLLOW`.
pub(crate) const NOFOLLOW: i32 = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();

/// Creates a file, or empties one that a killed receiver has left.
pub(crate) fn create(path: &Path) -> anyhow::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path);
    file.with_context(|| path.display().to_string())
}

/// Moves bytes from a pipe into a file: to an offset, or to where it is written next.
pub(crate) fn take(
    file: &File,
    mut at: Option<u64>,
    pipe: BorrowedFd<'_>,
    mut left: usize,
) -> anyhow::Result<()> {
    while left > 0 {
        match splice(pipe, None, file, at.as_mut(), left, SpliceFlags::MOVE) {
            Err(Errno::INTR) => {}
            Ok(moved) if moved > 0 => left = left.saturating_sub(moved),
            written => return Err(written.err().unwrap_or(Errno::IO)).context("cannot be written"),
        }
    }
    Ok(())
}

/// Most bytes of one call that copies.
const CHUNK: u64 = 1 << 30;

/// Copies bytes of a file to another.
///
/// # Errors
/// They are not there, or cannot be written.
pub(crate) fn copy(
    from: &File,
    offset: u64,
    to: &File,
    place: u64,
    length: u64,
) -> anyhow::Result<()> {
    let (mut at, mut place, end) = (offset, place, offset.saturating_add(length));
    while at < end {
        let left = usize::try_from(end.saturating_sub(at).min(CHUNK))?;
        match copy_file_range(from, Some(&mut at), to, Some(&mut place), left) {
            Err(Errno::INTR) => {}
            Err(error) => return Err(error).context("what arrived cannot be copied"),
            Ok(0) => anyhow::bail!("the last {left} bytes of what arrived are gone"),
            Ok(_) => {}
        }
    }
    Ok(())
}

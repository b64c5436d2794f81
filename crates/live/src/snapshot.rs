//! Reads snapshots of live sessions, which no process replaces meanwhile.

use crate::inputs::{inputs, knowing};
use crate::{Result, is_live};
use lastwords_control::Handle;
use lastwords_open::{Opened, Options};

/// Opens inputs as [`crate::open()`] does, and calls `read` with the result. In the meantime,
/// snapshots of live sessions are marked as being read, so that no process replaces them.
///
/// # Errors
/// The same as for [`crate::open()`], or a snapshot is being read by another process.
pub fn read<W: AsRef<str>, T>(
    words: &[W],
    options: &Options<'_>,
    read: impl FnOnce(Opened) -> T,
) -> Result<T> {
    let options = knowing(options);
    let inputs = inputs(words, &options)?;
    let mut handles = Vec::new();
    for folder in
        inputs.paths().iter().filter(|path| options.snapshot && path.is_dir() && is_live(path))
    {
        handles.push(Handle::open(folder)?);
    }
    let mut readers = Vec::new();
    for handle in &handles {
        match handle.read_snapshot() {
            Ok(reader) => readers.push(reader),
            // The session has no snapshot. This is reported for each session later.
            Err(lastwords::Error::Snapshot { .. }) => {}
            Err(why) => return Err(why.into()),
        }
    }
    let done = read(inputs.open(&options, &|_| None)?);
    drop(readers);
    Ok(done)
}

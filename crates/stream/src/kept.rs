//! The relation of a stream's clock to that of the machine which receives it, in a file beside the
//! spool, for the case that the receiver is killed.
//!
//! Beside the spool `NAME.stream` is `NAME.relation`, a file of JSON. It is replaced as a whole, so
//! that a reader finds the last one that was written.

use crate::transfer::NOFOLLOW;
use anyhow::{Context, ensure};
use lastwords_ftrace::dat::Relation;
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// The ending of the file's name.
pub(crate) const ENDING: &str = "relation";
/// Most bytes of the file. One of 512 measurements has 30 KiB.
const MOST: u64 = 1 << 20;

/// Returns the place of the relation of the spool at a path.
pub(crate) fn path(spool: &Path) -> PathBuf {
    spool.with_extension(ENDING)
}

/// Writes the relation of the spool at a path.
///
/// # Errors
/// The file cannot be written. An earlier one stays.
pub(crate) fn write(spool: &Path, relation: &Relation) -> anyhow::Result<()> {
    let (path, new) = (path(spool), spool.with_extension("relation.new"));
    let named = || format!("{}: cannot be written", path.display());
    let _ = fs::remove_file(&new);
    let text = serde_json::to_vec(relation).with_context(named)?;
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new);
    let written =
        file.and_then(|mut file| file.write_all(&text)).and_then(|()| fs::rename(&new, &path));
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written.with_context(named)
}

/// Reads the relation of the spool at a path; none if there is none.
///
/// # Errors
/// The file cannot be read, or is no relation.
pub(crate) fn read(spool: &Path) -> anyhow::Result<Option<Relation>> {
    let path = path(spool);
    let named = || path.display().to_string();
    let file = match OpenOptions::new().read(true).custom_flags(NOFOLLOW).open(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        file => file.with_context(named)?,
    };
    let mut text = Vec::new();
    file.take(MOST.saturating_add(1)).read_to_end(&mut text).with_context(named)?;
    ensure!(text.len() as u64 <= MOST, "{}: more than {MOST} bytes", path.display());
    serde_json::from_slice(&text).map(Some).with_context(named)
}

/// Removes the file, and what a writer left that was killed.
pub(crate) fn remove(spool: &Path) {
    for path in [path(spool), spool.with_extension("relation.new")] {
        let _ = fs::remove_file(path);
    }
}

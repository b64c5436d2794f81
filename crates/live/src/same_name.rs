//! Chooses between a path and a session that has the same name.
//!
//! A program is often called like its session, and lies in the folder in which its user works:
//! `./shop` records the session `shop`. A path that holds no trace therefore gives way to the
//! session. A path that may hold a trace is read, as is every word with a slash.

use crate::named::{folders_of, of_name};
use lastwords_open::what_has_no_trace;
use std::path::{Path, PathBuf};

/// Returns the folder of the session that is read in place of the path `word`. A note says so.
pub(crate) fn session_instead_of(word: &str, notes: &mut Vec<String>) -> Option<PathBuf> {
    let path = Path::new(word);
    path.metadata().ok().filter(|_| !word.contains('/'))?;
    folders_of(word).first()?;
    let what = what_has_no_trace(path)?;
    let folder = of_name(word, notes).ok()?;
    notes.push(format!(
        "{word}: the session of this name is read; the path ./{word} has no trace: it is {what}"
    ));
    Some(folder)
}

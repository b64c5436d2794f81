//! Looks whether a path holds a trace.

use crate::candidate::Candidate;
use crate::locate::{is_likely, of_whole_folder};
use crate::source::{Beginning, SESSION, of_file};
use std::path::Path;

/// Returns in words what is at a path that certainly holds no trace: an empty folder, a program.
/// Returns none if it may hold one, or if nothing is there.
#[must_use]
pub fn what_has_no_trace(path: &Path) -> Option<&'static str> {
    let meta = std::fs::metadata(path).ok()?;
    if meta.is_dir() {
        let found = of_whole_folder(path, &mut Vec::new());
        return found
            .iter()
            .all(|candidate| is_nothing(path, candidate))
            .then_some("a folder without a trace");
    }
    match of_file(path).filter(|_| meta.is_file())? {
        Beginning::Other(words) | Beginning::Compressed(words) => Some(words),
        _ => None,
    }
}

/// Returns true if the search of a folder found nothing that could be opened.
fn is_nothing(folder: &Path, candidate: &Candidate) -> bool {
    let Ok(location) = &candidate.location else { return candidate.is_nothing() };
    // A folder without anything is opened as a session, so that its error is the one of a session.
    location.is_of(&SESSION) && location.path() == folder && !is_likely(folder)
}

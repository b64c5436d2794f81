//! Chooses between a path and a session that has the same name.
//!
//! A program is often called like its session, and lies in the folder in which its user works: `./shop` records the session
//! `shop`. A path that holds no trace therefore gives way to the session. A path that may hold a trace is read, as is every word with a slash.

use crate::locate::{Candidate, LocationKind, is_likely, of_whole_folder};
use crate::named::{folders_of, of_name};
use crate::sniff;
use std::path::{Path, PathBuf};

/// Returns the folder of the session that is read in place of the path `word`. A note says so.
pub(super) fn session_instead_of(word: &str, notes: &mut Vec<String>) -> Option<PathBuf> {
    let path = Path::new(word);
    let meta = std::fs::metadata(path).ok().filter(|_| !word.contains('/'))?;
    folders_of(word).first()?;
    let what = if meta.is_dir() {
        let found = of_whole_folder(path, &mut Vec::new());
        found.iter().all(|candidate| is_nothing(path, candidate)).then_some("a folder without a trace")?
    } else {
        match sniff::of_file(path).filter(|_| meta.is_file())? {
            sniff::Kind::Other(words) => words,
            _ => return None,
        }
    };
    let folder = of_name(word, notes).ok()?;
    notes.push(format!("{word}: the session of this name is read; the path ./{word} has no trace: it is {what}"));
    Some(folder)
}

/// Returns true if the search of a folder found nothing that could be opened.
fn is_nothing(folder: &Path, candidate: &Candidate) -> bool {
    let Ok(location) = &candidate.location else { return candidate.is_nothing() };
    // A folder without anything is opened as a session, so that its error is the one of a session.
    location.kind == LocationKind::Session && location.path() == folder && !is_likely(folder)
}

//! Finds sessions by their names, in all places of this user.

use anyhow::bail;
use lastwords_control::dirs;
use lastwords_folders::name_of;
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Returns the folders of the sessions with a name (or of the folder with that whole name), in all
/// places of this user, the newest first.
#[must_use]
pub fn folders_of(name: &str) -> Vec<PathBuf> {
    let mut found: Vec<(SystemTime, PathBuf)> = Vec::new();
    for base in dirs::candidates() {
        for entry in std::fs::read_dir(&base).into_iter().flatten().filter_map(Result::ok) {
            let file_name = entry.file_name();
            let Some(folder) = file_name.to_str() else { continue };
            let of_name = folder == name || name_of(folder) == name;
            if of_name && entry.file_type().is_ok_and(|t| t.is_dir()) {
                let made =
                    entry.metadata().and_then(|m| m.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
                found.push((made, entry.path()));
            }
        }
    }
    found.sort();
    found.dedup_by(|a, b| a.1 == b.1);
    found.into_iter().rev().map(|(_, path)| path).collect()
}

/// Returns text that proposes the names of sessions that are nearest to one that no session has:
/// `; did you mean shop?`. It is empty if none is near.
#[must_use]
pub fn did_you_mean(name: &str) -> String {
    let mut known = BTreeSet::new();
    for base in dirs::candidates() {
        for entry in std::fs::read_dir(&base).into_iter().flatten().filter_map(Result::ok) {
            if let Some(folder) = entry.file_name().to_str()
                && entry.file_type().is_ok_and(|t| t.is_dir())
            {
                known.insert(name_of(folder).to_owned());
            }
        }
    }
    let near = lastwords_open::nearest_names(name, &known);
    if near.is_empty() { String::new() } else { format!("; did you mean {}?", near.join(", ")) }
}

/// Describes a place that has been searched, with the reason if that was not possible.
fn searched(base: &Path) -> String {
    match std::fs::read_dir(base) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            format!("{}, which cannot be read ({error})", base.display())
        }
        _ => base.display().to_string(),
    }
}

/// Returns the folder of the newest session with a name.
pub(crate) fn of_name(name: &str, notes: &mut Vec<String>) -> anyhow::Result<PathBuf> {
    match name {
        "" => bail!("the name of an input is empty: give a path, or the name of a session"),
        "-" => bail!("-: no input is read from stdin: save it as a file, and give its path"),
        _ => {}
    }
    let folders = folders_of(name);
    let Some((newest, older)) = folders.split_first() else {
        let bases: Vec<String> = dirs::candidates().iter().map(|base| searched(base)).collect();
        bail!(
            "{name}: no such file, and no session of that name in {}{}; `lastwords list` shows the sessions there are",
            bases.join(", "),
            did_you_mean(name)
        );
    };
    if !older.is_empty() {
        let (count, shown) = (folders.len(), newest.display());
        let place = newest.parent().unwrap_or(newest).display();
        notes.push(format!(
            "{count} sessions are called {name}; the newest is read: {shown} (all that are there: {place} --session {name})"
        ));
    }
    Ok(newest.clone())
}

//! Names, folders and processes: where the memory of sessions is.

use crate::say;
use anyhow::{Context, bail};
use lastwords_ring::backend::{PLACES_FILE, parse_places};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Longest file of places that is read.
const LONGEST: u64 = 1 << 20;

/// Something to be scanned for sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    /// What a person is told.
    pub(super) shown: PathBuf,
    /// What is opened.
    pub(super) open: PathBuf,
    /// The session's own part of its folder's name, where what is opened could have become another's.
    pub(super) unique: Option<String>,
}

impl Place {
    fn plain(path: &Path) -> Self {
        Self { shown: path.to_path_buf(), open: path.to_path_buf(), unique: None }
    }
}

/// The folder of all sessions that a program of this user would use.
pub(crate) fn sessions_dir() -> PathBuf {
    lastwords::dirs::base_path()
}

/// What a word names: a file, a session's folder, a folder of sessions, or the name of a session.
pub(super) fn of_word(word: &str) -> anyhow::Result<Vec<Place>> {
    let path = Path::new(word);
    match std::fs::metadata(path) {
        Ok(meta) if meta.is_dir() => of_folder(path),
        Ok(_) => Ok(vec![Place::plain(path)]),
        Err(error) if word.contains('/') => Err(error).with_context(|| format!("{word}: cannot be read")),
        Err(_) => of_name(word),
    }
}

/// A session's folder, or all those in a folder.
fn of_folder(folder: &Path) -> anyhow::Result<Vec<Place>> {
    let list = || format!("{}: cannot be read", folder.display());
    let entries: Vec<_> = std::fs::read_dir(folder).with_context(list)?.filter_map(Result::ok).collect();
    if folder.join(PLACES_FILE).is_file() {
        return elsewhere(folder);
    }
    let visible = |path: &Path| !path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    let is_dir = |entry: &&std::fs::DirEntry| entry.file_type().is_ok_and(|t| t.is_dir()) && visible(&entry.path());
    let has_files = entries.iter().any(|e| e.file_type().is_ok_and(|t| t.is_file()) && visible(&e.path()));
    let mut folders: Vec<PathBuf> = entries.iter().filter(is_dir).map(std::fs::DirEntry::path).collect();
    if has_files || folders.is_empty() {
        return Ok(vec![Place::plain(folder)]);
    }
    folders.sort();
    let mut places = Vec::new();
    for folder in folders {
        match of_folder(&folder) {
            Ok(found) => places.extend(found),
            // One of many: the others are still to be had.
            Err(error) => say::note(format_args!("passed over: {error:#}")),
        }
    }
    Ok(places)
}

/// The session's folder says where its memory is: a memfd of a process, a device.
fn elsewhere(folder: &Path) -> anyhow::Result<Vec<Place>> {
    let path = folder.join(PLACES_FILE);
    let shown = || path.display().to_string();
    let len = std::fs::metadata(&path).with_context(shown)?.len();
    if len > LONGEST {
        bail!("{}: {len} bytes, more than any session's ({LONGEST})", path.display());
    }
    let text = std::fs::read_to_string(&path).with_context(shown)?;
    let mut files: Vec<String> = parse_places(&text).into_iter().map(|place| place.path).collect();
    files.dedup();
    let unique =
        folder.file_name().and_then(|n| n.to_str()).and_then(|n| n.rsplit_once('-')).map(|(_, u)| u.to_owned());
    let mut places = Vec::new();
    for file in files {
        if file == "-" {
            bail!("{}: its buffers are on the heap of its process; give a core of it (gcore PID)", folder.display());
        }
        let open = PathBuf::from(&file);
        if !open.exists() {
            bail!("{}: its buffers were in {file}, which is gone; give a core of that process", folder.display());
        }
        places.push(Place { shown: folder.to_path_buf(), open, unique: unique.clone() });
    }
    if places.is_empty() {
        bail!("{}: names no place of a region; it cannot be read", path.display());
    }
    Ok(places)
}

/// The folders of the sessions of a name (or of the whole name of a folder), in all places of this user, newest first.
pub(crate) fn folders_of(name: &str) -> Vec<PathBuf> {
    let mut found: Vec<(SystemTime, PathBuf)> = Vec::new();
    for base in lastwords::dirs::candidates() {
        for entry in std::fs::read_dir(&base).into_iter().flatten().filter_map(Result::ok) {
            let file_name = entry.file_name();
            let Some(folder) = file_name.to_str() else { continue };
            let of_name = folder == name || folder.rsplit_once('-').is_some_and(|(first, _)| first == name);
            if of_name && entry.file_type().is_ok_and(|t| t.is_dir()) {
                let made = entry.metadata().and_then(|m| m.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
                found.push((made, entry.path()));
            }
        }
    }
    found.sort();
    found.dedup_by(|a, b| a.1 == b.1);
    found.into_iter().rev().map(|(_, path)| path).collect()
}

/// The newest session of a name.
fn of_name(name: &str) -> anyhow::Result<Vec<Place>> {
    let folders = folders_of(name);
    let Some((newest, older)) = folders.split_first() else {
        let bases: Vec<String> = lastwords::dirs::candidates().iter().map(|b| b.display().to_string()).collect();
        bail!(
            "{name}: no such file, and no session of that name in {}; `lastwords list` shows the sessions there are",
            bases.join(", ")
        );
    };
    if !older.is_empty() {
        let newest = newest.display();
        say::note(format_args!("{} sessions are called {name}; the newest is read: {newest}", folders.len()));
    }
    of_folder(newest)
}

/// The memfds of ours that a process holds.
pub(super) fn of_process(pid: u32) -> anyhow::Result<Vec<Place>> {
    let folder = PathBuf::from(format!("/proc/{pid}/fd"));
    let entries = std::fs::read_dir(&folder).with_context(|| format!("process {pid}: {}", folder.display()))?;
    let is_ours = |path: &PathBuf| {
        std::fs::read_link(path).is_ok_and(|to| to.as_os_str().as_encoded_bytes().starts_with(b"/memfd:lastwords"))
    };
    let mut paths: Vec<PathBuf> = entries.filter_map(Result::ok).map(|e| e.path()).filter(is_ours).collect();
    paths.sort();
    if paths.is_empty() {
        bail!("process {pid} holds no memfd of a session; `lastwords list` shows the sessions there are");
    }
    Ok(paths.iter().map(|path| Place::plain(path)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_of_sessions_is_its_sessions() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["b-0", "a-0", ".new-0"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
            std::fs::write(dir.path().join(name).join("session"), b"x").unwrap();
        }
        std::fs::write(dir.path().join(".lock"), b"").unwrap();
        let shown: Vec<PathBuf> = of_folder(dir.path()).unwrap().into_iter().map(|p| p.shown).collect();
        assert_eq!(shown, [dir.path().join("a-0"), dir.path().join("b-0")]);
        assert_eq!(of_folder(&dir.path().join("a-0")).unwrap().len(), 1);
    }

    #[test]
    fn memory_that_is_elsewhere_is_followed_or_said_to_be_gone() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("app-0123456789abcdef");
        std::fs::create_dir(&folder).unwrap();
        let write = |text: &str| std::fs::write(folder.join(PLACES_FILE), text).unwrap();
        write("session 0 4096 /proc/self/exe\nregistry 4096 4096 /proc/self/exe\n");
        let places = of_folder(&folder).unwrap();
        assert_eq!(places.len(), 1);
        assert_eq!(places[0].unique.as_deref(), Some("0123456789abcdef"));
        write("session 0 4096 -\n");
        assert!(of_folder(&folder).unwrap_err().to_string().contains("gcore"));
        write("session 0 4096 /proc/0/fd/3\n");
        assert!(of_folder(&folder).unwrap_err().to_string().contains("which is gone"));
    }
}

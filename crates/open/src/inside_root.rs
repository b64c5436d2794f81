//! Finds inputs in the root of another process, `/proc/PID/root/…`: the sessions and files of
//! containers.
//!
//! The container chooses its names and links. All are resolved in its root
//! ([`lastwords_folders::inside`]), and each file is opened here, once: the reader gets open files
//! and no path that the container could exchange.

use crate::candidate::Candidate;
use crate::reason::NothingToRecover;

use crate::source::{Location, SESSION};
use anyhow::{Context, bail};
use lastwords_folders::inside::{OwnedFolder, Root};
use lastwords_folders::{PLACES_FILE, is_session_folder};
use std::fs::File;
use std::os::fd::IntoRawFd as _;
use std::path::{Path, PathBuf};

/// Returns the locations of a path: a session, a folder of sessions, or a file.
pub(super) fn of_path(
    path: &Path,
    (pid, rest): (u32, &Path),
    notes: &mut Vec<String>,
) -> Vec<Candidate> {
    find(path, pid, rest, notes).unwrap_or_else(|error| {
        let error = error.context(format!("{}: cannot be read", path.display()));
        vec![Candidate::named(Err(error)).at(path)]
    })
}

fn find(
    path: &Path,
    pid: u32,
    rest: &Path,
    notes: &mut Vec<String>,
) -> anyhow::Result<Vec<Candidate>> {
    let root = Root::of_process(pid)?;
    if let (true, Some(base), Some(name)) =
        (is_session_folder(rest), rest.parent(), rest.file_name())
    {
        let base = root.folder(base)?;
        base.check(0o022)?;
        let session = session(path, &base, Path::new(name), notes);
        return Ok(vec![Candidate::named(session).at(path)]);
    }
    let Ok(base) = root.folder(rest) else {
        let location = Location::new(path, None);
        return Ok(vec![Candidate::named(Ok(Location {
            open: vec![held(root.file(rest)?)],
            ..location
        }))]);
    };
    base.check(0o022)?;
    let names = base.names()?.0.into_iter().filter(|name| is_session_folder(name));
    let mut found = Vec::new();
    for name in names {
        let path = path.join(&name);
        found.push(Candidate::found(session(&path, &base, &name, notes)).at(&path));
    }
    match found.is_empty() {
        true => Err(NothingToRecover::error("it has no folder of a session".to_owned())),
        false => Ok(found),
    }
}

/// Opens the files of a session's folder.
fn session(
    path: &Path,
    base: &OwnedFolder,
    name: &Path,
    notes: &mut Vec<String>,
) -> anyhow::Result<Location> {
    let named = || path.display().to_string();
    let folder = base.folder(name).with_context(named)?;
    folder.check(0o077).with_context(named)?;
    let mut location = Location::new(path, Some(&SESSION));
    location.open.clear();
    for name in folder.names().with_context(named)?.0 {
        let shown = path.join(&name);
        if name == Path::new(PLACES_FILE) {
            let advice = "`lastwords list --all-namespaces` shows how it is read";
            bail!("{}: its memory is in a process and not in files; {advice}", path.display());
        }
        match folder.file(&name) {
            Ok(file) => {
                location.open.push(held(file));
                location.files.push(shown);
            }
            Err(error) => notes.push(format!("skipped: {}: {error}", shown.display())),
        }
    }
    if location.files.is_empty() {
        return Err(NothingToRecover::error(format!("{}: it has no files", path.display())));
    }
    Ok(location)
}

/// Returns the path of an open file, which stays open.
fn held(file: File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.into_raw_fd()))
}

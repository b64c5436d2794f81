//! Finds the memory of sessions that is not in files of their folders: a memfd or the heap of a
//! process, a device.

use crate::candidate::Candidate;
use crate::reason::NothingToRecover;

use crate::source::{Location, SESSION};
use anyhow::{Context, bail};
use lastwords_folders::{PLACES_FILE, parse_places};
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::os::fd::IntoRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The largest places file that is read, in bytes.
const LONGEST: u64 = 1 << 20;

/// Returns the locations that the places file of a session's folder names: a memfd of a process, a
/// device. If the folder belongs to another user, only what belongs to that user is followed: see
/// [`trusted`].
pub(super) fn of_folder(folder: &Path) -> anyhow::Result<Vec<Location>> {
    let path = folder.join(PLACES_FILE);
    let shown = || path.display().to_string();
    let mut file = open_regular(&path).with_context(shown)?;
    let meta = file.metadata().with_context(shown)?;
    let len = meta.len();
    if len > LONGEST {
        bail!("{}: {len} bytes, more than any session's ({LONGEST})", path.display());
    }
    let owners = [std::fs::symlink_metadata(folder).with_context(shown)?.uid(), meta.uid()];
    let mut text = String::new();
    file.read_to_string(&mut text).with_context(shown)?;
    let mut files: Vec<String> =
        parse_places(&text).into_iter().map(|location| opened(location.path)).collect();
    files.dedup();
    let unique = folder
        .file_name()
        .and_then(|n| n.to_str())
        .and_then(|n| n.rsplit_once('-'))
        .map(|(_, u)| u.to_owned());
    let mut places = Vec::new();
    let nothing = |why: String| NothingToRecover::error(format!("{}: {why}", folder.display()));
    for file in files {
        let mut open = PathBuf::from(&file);
        if owners.iter().any(|owner| *owner != rustix::process::geteuid().as_raw()) {
            if owners[0] != owners[1] {
                bail!(
                    "{}: another user than the folder's has written it; it is not followed",
                    path.display()
                );
            }
            open = trusted(&open, owners[0]).with_context(|| {
                format!(
                    "{}: names {file}, which is not followed for user {}",
                    path.display(),
                    owners[0]
                )
            })?;
        }
        if !open.exists() {
            return Err(nothing(format!(
                "its buffers were in {file}, which is gone; give a core of that process"
            )));
        }
        let location = Location::new(folder, Some(&SESSION));
        places.push(Location { open: vec![open], unique: unique.clone(), ..location });
    }
    if places.is_empty() {
        bail!("{}: does not give the place of a region; it cannot be read", path.display());
    }
    Ok(places)
}

/// Opens a regular file. It does not follow a link at the path, and does not wait for a FIFO.
fn open_regular(path: &Path) -> std::io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(std::io::Error::other("not a regular file")),
    }
}

/// Checks a path that the folder of `owner`, another user, names as memory of a session. It must be
/// a regular file of that user, or memory or a memfd of a process of that user. Otherwise a user
/// could make us read foreign data with our rights, or open a device.
fn trusted(open: &Path, owner: u32) -> anyhow::Result<PathBuf> {
    let parts: Vec<&str> = open.to_str().unwrap_or_default().split('/').collect();
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let process = match parts.as_slice() {
        ["", "proc", pid, "mem"] if is_number(pid) => Some(pid),
        ["", "proc", pid, "fd", number] if is_number(pid) && is_number(number) => Some(pid),
        _ => None,
    };
    if let Some(pid) = process {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"));
        if status.is_ok_and(|status| !runs_as(&status, owner)) {
            bail!("process {pid} belongs to another user");
        }
        let target = if parts.len() == 5 { std::fs::read_link(open).ok() } else { None };
        if target
            .is_some_and(|to| !to.as_os_str().as_encoded_bytes().starts_with(b"/memfd:lastwords"))
        {
            bail!("no memfd of a session");
        }
        return Ok(open.to_path_buf());
    }
    let file = match open_regular(open) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(open.to_path_buf()),
        other => other?,
    };
    if file.metadata()?.uid() != owner {
        bail!("it belongs to another user");
    }
    // The file is read through this descriptor, which stays open. Another file may be at the path
    // by then.
    Ok(PathBuf::from(format!("/proc/self/fd/{}", file.into_raw_fd())))
}

/// Returns true if the process of this `/proc/PID/status` has only the rights of `owner`: its real,
/// effective, saved and file-system user.
fn runs_as(status: &str, owner: u32) -> bool {
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    users.is_some_and(|users| users.split_ascii_whitespace().all(|user| user.parse() == Ok(owner)))
}

/// Returns the path to open for a location. For memory on the heap of a process, it is the memory
/// of the process.
fn opened(location: String) -> String {
    let process = location.strip_prefix("heap:").and_then(|rest| rest.split(':').next());
    process.map(|pid| format!("/proc/{pid}/mem")).unwrap_or(location)
}

/// Returns the memfds of sessions that a process holds, or its memory if it has none.
pub(super) fn of_process(pid: u32) -> anyhow::Result<Vec<Candidate>> {
    let folder = PathBuf::from(format!("/proc/{pid}/fd"));
    let entries = match std::fs::read_dir(&folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => bail!("there is no process {pid}"),
        entries => entries.with_context(|| format!("process {pid}: {}", folder.display()))?,
    };
    let is_ours = |path: &PathBuf| {
        std::fs::read_link(path)
            .is_ok_and(|to| to.as_os_str().as_encoded_bytes().starts_with(b"/memfd:lastwords"))
    };
    let mut paths: Vec<PathBuf> =
        entries.filter_map(Result::ok).map(|e| e.path()).filter(is_ours).collect();
    paths.sort();
    if paths.is_empty() {
        // Without memfds, the sessions on its heap are read.
        paths.push(PathBuf::from(format!("/proc/{pid}/mem")));
    }
    Ok(paths.iter().map(|path| Candidate::named(Ok(Location::new(path, Some(&SESSION))))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_the_rights_of_another_is_not_its_users() {
        assert!(runs_as("Name:\tx\nUid:\t1000\t1000\t1000\t1000\nGid:\t0\t0\t0\t0\n", 1000));
        for users in ["1000 0 0 0", "0 1000 1000 1000", "1000 1000 0 1000", "1000 x"] {
            assert!(!runs_as(&format!("Uid:\t{users}\n"), 1000), "{users}");
        }
        assert!(!runs_as("Name:\tx\n", 1000));
    }
}

//! Unmounts a folder: on request, and when the process that served it has died.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::tree::UNREAD;

/// The source in the list of mounts. The type is `fuse`, or `fuse.lastwords` if `fusermount3`
/// mounted.
pub(crate) const SOURCE: &str = "lastwords";

/// A mount of lastwords.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    folder: PathBuf,
    /// The device's numbers, `major:minor`, which no other mount has.
    device: String,
}

/// Returns the mounts of lastwords in a text in the form of `/proc/self/mountinfo`.
fn found(mountinfo: &[u8]) -> Vec<Found> {
    let of_line = |line: &[u8]| {
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        let separator = fields.iter().position(|field| *field == b"-")?;
        let kind = fields.get(separator + 1)?;
        let is_ours = kind.starts_with(b"fuse") && *fields.get(separator + 2)? == SOURCE.as_bytes();
        let device = String::from_utf8_lossy(fields.get(2)?).into_owned();
        is_ours.then(|| Found {
            folder: unescaped(fields.get(4).copied().unwrap_or_default()),
            device,
        })
    };
    mountinfo.split(|byte| *byte == b'\n').filter_map(of_line).collect()
}

/// Replaces `\040` and the like by their bytes.
fn unescaped(field: &[u8]) -> PathBuf {
    let (mut bytes, mut rest) = (Vec::new(), field);
    while let Some((first, after)) = rest.split_first() {
        let digits = after
            .get(..3)
            .filter(|_| *first == b'\\')
            .and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    OsString::from_vec(bytes).into()
}

/// Returns the mount of lastwords that is at a folder; of several, the last.
fn at(folder: &Path) -> io::Result<Option<Found>> {
    let mountinfo = std::fs::read("/proc/self/mountinfo")?;
    Ok(found(&mountinfo)
        .into_iter()
        .rfind(|found| found.folder.as_os_str().as_bytes() == folder.as_os_str().as_bytes()))
}

/// Returns the device's numbers of the mount at a folder.
pub(crate) fn device(folder: &Path) -> io::Result<String> {
    at(folder)?.map(|found| found.device).ok_or_else(|| not_ours(folder))
}

fn not_ours(folder: &Path) -> io::Error {
    let why = format!(
        "{}: no mount of lastwords is here; `grep lastwords /proc/mounts` lists them",
        folder.display()
    );
    io::Error::new(io::ErrorKind::NotFound, why)
}

/// How long [`unmount`] and a new mount wait for the end of the process that served the folder.
pub(crate) const ENDS_IN: Duration = Duration::from_secs(10);

/// Unmounts a folder at which lastwords is mounted. With `lazy`, files that are open do not prevent
/// that. Returns the number of events that `trace_pipe` and the like have consumed and that no
/// reader has had: they are lost. Unless `lazy`, the process that served the folder has ended when
/// this returns, or 10 s have passed.
///
/// # Errors
/// No mount of lastwords is there, or it is in use.
pub fn unmount(folder: &Path, lazy: bool) -> io::Result<usize> {
    let (unread, server) = detach(folder, lazy)?;
    let begun = Instant::now();
    // With `lazy`, the process serves the open files until they are closed.
    while !lazy && begun.elapsed() < ENDS_IN && server.is_some_and(is_alive) {
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(unread)
}

/// Returns true for a process that has not ended. One whose parent has not waited for it has ended.
fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// Unmounts a folder, and waits for nothing. Also returns the process that serves it, if it could
/// tell.
pub(crate) fn detach(folder: &Path, lazy: bool) -> io::Result<(usize, Option<u32>)> {
    // A path that leads to a mount without a server cannot be resolved, so that its parent is.
    let (parent, name) =
        (folder.parent().filter(|parent| *parent != Path::new("")), folder.file_name());
    let found = |path: &Path| path.canonicalize().map_err(|error| named(folder, &error));
    let parent = found(parent.unwrap_or(Path::new(".")))?;
    let resolved = name.map_or_else(|| found(folder), |name| Ok(parent.join(name)))?;
    let folder = match at(&resolved)? {
        Some(found) => found.folder,
        None => at(&found(folder)?)?.ok_or_else(|| not_ours(folder))?.folder,
    };
    // A mount whose process has died cannot tell.
    let text = std::fs::read_to_string(folder.join(UNREAD)).unwrap_or_default();
    let (unread, server) = text.trim().split_once(' ').unwrap_or_default();
    let told = (unread.parse().unwrap_or(0), server.parse().ok());
    let flags = if lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    match rustix::mount::unmount(&folder, flags | UnmountFlags::NOFOLLOW) {
        Err(Errno::PERM) => by_helper(&folder, lazy).map(|()| told),
        Err(error) => Err(named(&folder, &error.into())),
        Ok(()) => Ok(told),
    }
}

/// Returns an error that names the path.
fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Unmounts by the program that may do so for other users than root.
fn by_helper(folder: &Path, lazy: bool) -> io::Result<()> {
    let mut command = Command::new("fusermount3");
    command.arg("-u").args(lazy.then_some("-z")).arg("--").arg(folder).stdin(Stdio::null());
    let output = command
        .output()
        .map_err(|error| io::Error::new(error.kind(), format!("fusermount3: {error}")))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
    }
}

/// Waits until the process at the other end of standard input has ended, and then unmounts the
/// folder if the mount of this device is still there. A byte on standard input says that the folder
/// was unmounted: the device's numbers may be those of another mount by now.
///
/// # Errors
/// Standard input cannot be read, or the folder cannot be unmounted.
pub fn guard(folder: &Path, device: &str) -> io::Result<()> {
    // Signals of the terminal are for the process that serves.
    let _ = rustix::process::setsid();
    std::env::set_current_dir("/")?;
    let mut told = Vec::new();
    io::stdin().lock().read_to_end(&mut told)?;
    match at(folder)? {
        Some(found) if told.is_empty() && found.device == device => detach(folder, true).map(drop),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_of_lastwords_are_found() {
        let text = b"21 26 0:20 / /proc rw,nosuid - proc proc rw\n\
            300 26 0:55 / /tmp/a\\040b\\134c rw,nosuid shared:1 - fuse.lastwords lastwords rw,user_id=0\n\
            301 26 0:56 / /tmp/x rw - fuse other rw\n";
        let expected = Found { folder: "/tmp/a b\\c".into(), device: "0:55".into() };
        assert_eq!(found(text), [expected]);
    }

    #[test]
    fn what_is_not_ours_is_not_unmounted() {
        let folder = tempfile::tempdir().unwrap();
        let error = unmount(folder.path(), true).unwrap_err();
        assert!(error.to_string().contains("no mount of lastwords"), "{error}");
        assert!(unmount(Path::new("/proc"), true).is_err());
    }
}

//! Folders and files in the root of another process, which may be in another mount namespace: those
//! of containers.
//!
//! A container chooses all names and links in its root. A path such as `/proc/PID/root/dev/shm` must
//! therefore not be resolved as usual: an absolute link in it leads to this process's own root. The
//! functions here resolve it with openat2(2) beneath the open root of the process, so that a link
//! leads to a place in that root or nowhere. They need Linux 5.6.

use rustix::fs::{self as sys, CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

/// Most entries of a folder that are looked at.
pub const MOST_ENTRIES: usize = 1 << 16;

/// The open root of a process.
#[derive(Debug)]
pub struct Root(OwnedFd);

/// An open folder, with the user whom it belongs to.
#[derive(Debug)]
pub struct OwnedFolder {
    /// The descriptor of the folder.
    pub fd: OwnedFd,
    /// The user, as this process sees it: that of the parent user namespace for a container with one.
    pub owner: u32,
    /// The device and the inode.
    pub identity: (u64, u64),
}

/// Splits the path of something in the root of a process, `/proc/PID/root/REST`, into the process
/// and the rest. Returns none for other paths.
#[must_use]
pub fn split(path: &Path) -> Option<(u32, &Path)> {
    let mut parts = path.components();
    let mut next = || parts.next()?.as_os_str().to_str();
    let is_in_proc = next() == Some("/") && next() == Some("proc");
    let pid = next().filter(|_| is_in_proc)?;
    let is_number = pid.bytes().all(|byte| byte.is_ascii_digit());
    (next() == Some("root") && is_number).then_some(())?;
    Some((pid.parse().ok()?, parts.as_path()))
}

impl Root {
    /// Opens the root of a process.
    ///
    /// # Errors
    /// There is no such process, or this one lacks the right to look at it (ptrace).
    pub fn of_process(pid: u32) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self(sys::open(format!("/proc/{pid}/root"), flags, Mode::empty())?))
    }

    /// Returns the device and the inode of the root.
    ///
    /// # Errors
    /// The error of the system.
    pub fn identity(&self) -> io::Result<(u64, u64)> {
        let stat = sys::fstat(&self.0)?;
        Ok((stat.st_dev, stat.st_ino))
    }

    /// Opens a folder in the root. Links on the way are resolved in the root.
    ///
    /// # Errors
    /// The error of the system.
    pub fn folder(&self, path: &Path) -> io::Result<OwnedFolder> {
        OwnedFolder::new(self.open(path, OFlags::RDONLY | OFlags::DIRECTORY)?)
    }

    /// Opens a regular file in the root. Links on the way are resolved in the root.
    ///
    /// # Errors
    /// The error of the system, or it is no regular file.
    pub fn file(&self, path: &Path) -> io::Result<File> {
        reopened(&self.open(path, OFlags::PATH)?, None)
    }

    fn open(&self, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        resolved(&self.0, path, flags, resolve)
    }
}

impl OwnedFolder {
    fn new(fd: OwnedFd) -> io::Result<Self> {
        let stat = sys::fstat(&fd)?;
        Ok(Self { fd, owner: stat.st_uid, identity: (stat.st_dev, stat.st_ino) })
    }

    /// Checks that nobody but the owner may have put something into the folder: none of the
    /// `forbidden` bits of the mode is set.
    ///
    /// # Errors
    /// Others may.
    pub fn check(&self, forbidden: u32) -> io::Result<()> {
        let mode = sys::fstat(&self.fd)?.st_mode & 0o7777;
        match mode & forbidden {
            0 => Ok(()),
            _ => Err(refused(format!("its mode is {mode:04o}: others may enter or write it"))),
        }
    }

    /// Opens a folder in this one, which must belong to the same user. A link is refused.
    ///
    /// # Errors
    /// The error of the system, or it belongs to another user.
    pub fn folder(&self, name: &Path) -> io::Result<Self> {
        let opened = self.open(name, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let folder = Self::new(opened)?;
        match folder.owner == self.owner {
            true => Ok(folder),
            false => Err(of_another(folder.owner, self.owner)),
        }
    }

    /// Opens a regular file in this folder for reading, which must belong to the same user. A link
    /// is refused, and a device or pipe is not opened.
    ///
    /// # Errors
    /// The error of the system, or what it is instead.
    pub fn file(&self, name: &Path) -> io::Result<File> {
        reopened(&self.open(name, OFlags::PATH)?, Some(self.owner))
    }

    fn open(&self, name: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        let resolve =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        resolved(&self.fd, name, flags | OFlags::NOFOLLOW, resolve)
    }

    /// Returns the names of the entries, at most [`MOST_ENTRIES`], sorted, and whether there are
    /// more.
    ///
    /// # Errors
    /// The error of the system.
    pub fn names(&self) -> io::Result<(Vec<PathBuf>, bool)> {
        let mut names = Vec::new();
        for entry in sys::Dir::read_from(&self.fd)? {
            let name = entry?.file_name().to_bytes().to_vec();
            if name == b"." || name == b".." {
                continue;
            }
            if names.len() == MOST_ENTRIES {
                names.sort();
                return Ok((names, true));
            }
            names.push(PathBuf::from(OsString::from_vec(name)));
        }
        names.sort();
        Ok((names, false))
    }
}

fn refused(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}

fn of_another(found: u32, expected: u32) -> io::Error {
    refused(format!("it belongs to user {found}, not to user {expected} as the folder it is in"))
}

/// Calls openat2. The kernel may ask for a repetition while somebody renames folders on the way.
fn resolved(
    at: &impl AsFd,
    path: &Path,
    flags: OFlags,
    resolve: ResolveFlags,
) -> io::Result<OwnedFd> {
    let mut rounds = 0;
    loop {
        match sys::openat2(at, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve) {
            Err(Errno::AGAIN | Errno::INTR) if rounds < 100 => rounds += 1,
            Err(Errno::NOSYS) => {
                let why = "the kernel has no openat2 (Linux 5.6), without which links of containers cannot be trusted";
                return Err(io::Error::new(io::ErrorKind::Unsupported, why));
            }
            opened => return Ok(opened?),
        }
    }
}

/// Opens a file for reading that is open as a path only. Nothing but a regular file of the `owner`
/// is opened: opening a device may have effects.
fn reopened(path: &OwnedFd, owner: Option<u32>) -> io::Result<File> {
    let stat = sys::fstat(path)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {}
        FileType::Symlink => return Err(refused("no regular file, but a symbolic link".into())),
        FileType::Directory => return Err(refused("no regular file, but a folder".into())),
        _ => return Err(refused("no regular file, but a pipe, socket or device".into())),
    }
    if let Some(owner) = owner.filter(|owner| stat.st_uid != *owner) {
        return Err(of_another(stat.st_uid, owner));
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let link = format!("/proc/self/fd/{}", path.as_raw_fd());
    Ok(File::from(sys::openat(CWD, link, flags, Mode::empty())?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn paths_in_the_root_of_a_process() {
        let of = |path: &'static str| split(Path::new(path));
        assert_eq!(of("/proc/12/root/dev/shm"), Some((12, Path::new("dev/shm"))));
        assert_eq!(of("/proc/12/root"), Some((12, Path::new(""))));
        assert_eq!(of("//proc/12/root/a/"), Some((12, Path::new("a"))));
        for other in ["proc/12/root/a", "/proc/self/root", "/proc/12/cwd/a", "/proc/12", "/a", ""] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    /// A tree whose links lead out of it, as another process's root has it.
    #[test]
    fn links_stay_in_the_root() {
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::create_dir_all(dir.path().join("etc/in")).expect("made");
        std::fs::write(dir.path().join("etc/file"), "own").expect("written");
        for (name, to) in [("abs", "/etc"), ("up", "../../../../etc"), ("proc", "/proc/self/root")]
        {
            symlink(to, dir.path().join(name)).expect("a link");
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = Root(sys::open(dir.path(), flags, Mode::empty()).expect("opened"));
        for name in ["abs", "up", "etc"] {
            let folder = root.folder(Path::new(name)).expect(name);
            let names = folder.names().expect("names");
            assert_eq!(names, (vec!["file".into(), "in".into()], false), "{name}");
            let text = root.file(&Path::new(name).join("file")).expect("opened");
            assert_eq!(io::read_to_string(text).expect("read"), "own");
        }
        assert!(root.folder(Path::new("proc")).is_err(), "it has no /proc");
    }

    #[test]
    fn only_regular_files_of_the_owner_are_opened() {
        let dir = tempfile::tempdir().expect("a folder");
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("file"), "").expect("written");
        std::fs::create_dir(at("folder")).expect("made");
        symlink("file", at("link")).expect("a link");
        symlink("folder", at("folder-link")).expect("a link");
        sys::mknodat(CWD, at("fifo"), FileType::Fifo, Mode::RWXU, 0).expect("a pipe");
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = sys::open(dir.path(), flags, Mode::empty()).expect("opened");
        let mut folder = OwnedFolder::new(fd).expect("a folder");
        assert!(
            folder.file(Path::new("file")).is_ok() && folder.folder(Path::new("folder")).is_ok()
        );
        for name in ["link", "fifo", "folder", "..", "../file", "none"] {
            assert!(folder.file(Path::new(name)).is_err(), "{name}");
        }
        for name in ["folder-link", "file", "..", "none"] {
            assert!(folder.folder(Path::new(name)).is_err(), "{name}");
        }
        folder.owner += 1;
        for why in [
            folder.file(Path::new("file")).expect_err("of another"),
            folder.folder(Path::new("folder")).expect_err("of another"),
        ] {
            assert!(why.to_string().contains("belongs to user"), "{why}");
        }
        assert!(folder.check(0o022).is_ok() && folder.check(0o700).is_err());
    }
}

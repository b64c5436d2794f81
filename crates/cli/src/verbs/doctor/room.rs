//! Checks the folder of sessions: whether it is usable, whether it is memory, and how much room it
//! has.

use super::{Finding, Status};
use crate::progress::human_bytes;
use lastwords_open::ends_with_container;
use rustix::fs::{StatVfs, statfs, statvfs};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A warning is printed for less room than this: two CPUs, three channels, both halves.
const LITTLE: u64 = 16 << 20;
/// `f_type` of tmpfs and ramfs (include/uapi/linux/magic.h).
const MEMORY: [i64; 2] = [0x0102_1994, 0x8584_58f6];
/// The change that makes sessions outlive their container.
const MOUNT: &str = "start the container with -v /dev/shm/lastwords:/dev/shm/lastwords; in it: export LASTWORDS_DIR=/dev/shm/lastwords";

pub(super) fn check() -> Vec<Finding> {
    let dir = lastwords_live::sessions_dir();
    let there = existing(&dir);
    let mut findings = vec![folder(&dir, &there)];
    if findings.iter().all(|f| f.status != Status::Bad) {
        findings.push(kind(&there));
        findings.push(room(&there));
    }
    findings
}

/// Returns the nearest ancestor that exists, or the folder itself.
fn existing(dir: &Path) -> PathBuf {
    dir.ancestors().find(|d| d.exists()).unwrap_or(Path::new("/")).to_path_buf()
}

fn folder(dir: &Path, there: &Path) -> Finding {
    const CHECK: &str = "folder of sessions";
    let shown = dir.display();
    let mine = rustix::process::geteuid().as_raw();
    match std::fs::metadata(there) {
        Err(error) => Finding::bad(CHECK, format!("{shown}: {error}"), elsewhere("/dev/shm/mine")),
        Ok(_) if rustix::fs::access(there, rustix::fs::Access::WRITE_OK).is_err() => {
            let found = format!("{shown}: {} cannot be written by user {mine}", there.display());
            Finding::bad(CHECK, found, elsewhere("/dev/shm/lastwords-$(id -u)"))
        }
        Ok(meta) if !meta.is_dir() => {
            let found = format!("{} is no folder", there.display());
            Finding::bad(CHECK, found, elsewhere("/dev/shm/lastwords-$(id -u)"))
        }
        Ok(meta) if there == dir && meta.uid() != mine => {
            let found = format!("{shown} belongs to user {}, you are {mine}", meta.uid());
            Finding::bad(CHECK, found, elsewhere("/dev/shm/lastwords-$(id -u)-$RANDOM"))
        }
        Ok(meta) if there == dir && meta.mode() & 0o077 != 0 => {
            let found =
                format!("{shown} has mode {:o}: others may look into it", meta.mode() & 0o777);
            Finding::partial(CHECK, found, format!("chmod 700 {shown}"))
        }
        Ok(_) if there == dir => Finding::good(CHECK, format!("{shown}")),
        Ok(_) => Finding::good(CHECK, format!("{shown}, made when the first session is")),
    }
}

/// Returns the command that chooses another folder. In a container whose memory ends with it, a
/// mount is needed first.
fn elsewhere(folder: &str) -> String {
    if ends_with_container(Path::new("/dev/shm")) {
        MOUNT.into()
    } else {
        format!("export LASTWORDS_DIR={folder}")
    }
}

fn kind(there: &Path) -> Finding {
    const CHECK: &str = "kind of memory";
    match statfs(there) {
        Ok(fs) if MEMORY.contains(&fs.f_type) && ends_with_container(there) => {
            let found = format!(
                "{} is a tmpfs of this container, unless the host's was mounted as a whole: sessions in it end with the container",
                there.display()
            );
            Finding::partial(CHECK, found, MOUNT)
        }
        Ok(fs) if MEMORY.contains(&fs.f_type) => {
            Finding::good(CHECK, "tmpfs: sessions outlive their processes, not a reboot")
        }
        Ok(fs) => {
            let found = format!(
                "{} is on a disk ({}): what is recorded is written back to it all the time",
                there.display(),
                file_system(fs.f_type)
            );
            Finding::partial(CHECK, found, elsewhere("/dev/shm/lastwords-$(id -u)"))
        }
        Err(error) => unknown(CHECK, there, error),
    }
}

fn unknown(check: &'static str, there: &Path, error: rustix::io::Errno) -> Finding {
    Finding::partial(check, format!("{}: {error}", there.display()), "").without_fix()
}

/// Returns the name of a usual kind of file system (include/uapi/linux/magic.h), or its number.
fn file_system(kind: i64) -> String {
    let names = [
        (0xef53, "ext4"),
        (0x5846_5342, "xfs"),
        (0x9123_683e, "btrfs"),
        (0x794c_7630, "overlayfs"),
        (0x6969, "NFS"),
        (0x2fc1_2fc1, "ZFS"),
    ];
    let known = names.iter().find(|(known, _)| *known == kind);
    known.map_or_else(|| format!("file system type {kind:#x}"), |(_, name)| (*name).to_owned())
}

fn room(there: &Path) -> Finding {
    const CHECK: &str = "room";
    match statvfs(there) {
        Ok(fs) => room_of(there, free(&fs)),
        Err(error) => unknown(CHECK, there, error),
    }
}

fn free(fs: &StatVfs) -> u64 {
    fs.f_bavail.saturating_mul(fs.f_frsize)
}

fn room_of(there: &Path, free: u64) -> Finding {
    const CHECK: &str = "room";
    let found = format!("{} free in {}", human_bytes(free), there.display());
    if free >= LITTLE {
        return Finding::good(CHECK, found);
    }
    let fix = format!(
        "mount -o remount,size=1G \"$(df --output=target {} | tail -n 1)\"",
        there.display()
    );
    let found = format!("{found}: too little for rings of the default size");
    if free == 0 { Finding::bad(CHECK, found, fix) } else { Finding::partial(CHECK, found, fix) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_room_is_told_with_the_line_that_fixes_it() {
        let here = Path::new("/dev/shm");
        assert_eq!(room_of(here, 1 << 30).status, Status::Good);
        assert_eq!(room_of(here, 1 << 20).status, Status::Partial);
        let none = room_of(here, 0);
        assert_eq!(none.status, Status::Bad);
        assert!(none.fix.unwrap().contains("remount"));
    }

    #[test]
    fn the_nearest_folder_that_exists() {
        assert_eq!(existing(Path::new("/proc/no-such/folder")), Path::new("/proc"));
    }
}

//! The quota of all users together for copies of dead processes' sessions. Each user has a quota
//! too, which the newest copies keep (`lastwords_control::dead`). Above the quota of all, no copy
//! is made: nobody's crashes remove the copies of others.

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, ResolveFlags, openat, openat2, statat};
use std::fmt;
use std::os::fd::OwnedFd;

/// Largest number of copies of all users.
const MOST_COPIES: u64 = 128;
/// Largest number of bytes of these copies.
const MOST_BYTES: u64 = 4 << 30;
/// Most entries of folders that are looked at. What is beyond counts as a full quota.
const MOST_ENTRIES: usize = 20_000;
/// The folder with the folders of users.
const SHM: &str = "/dev/shm";
const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// The room that the copies of all users take.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Used {
    copies: u64,
    bytes: u64,
    entries: usize,
}

impl Used {
    /// Returns true if there may be one more.
    pub(super) fn has_room(&self) -> bool {
        self.copies < MOST_COPIES && self.bytes < MOST_BYTES && self.entries < MOST_ENTRIES
    }
}

impl fmt::Display for Used {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { copies, bytes, .. } = self;
        write!(
            f,
            "all users together have {copies} copies of {bytes} bytes in {SHM}, and may have {MOST_COPIES} of {MOST_BYTES}; \
             `lastwords destroy` removes one"
        )
    }
}

/// Adds up the copies in the folders of all users. Users own these folders, so no link is followed,
/// and no other file system is entered.
pub(super) fn used() -> Used {
    let mut used = Used::default();
    // A kernel before 5.6 has no such call: then there is only the quota of each user.
    if let Ok(shm) = openat(CWD, SHM, FOLDER, Mode::empty()) {
        each(&shm, &mut used, &mut |name, used| {
            if let Some(user) =
                name.starts_with("lastwords-").then(|| open_folder(&shm, name)).flatten()
            {
                each(&user, used, &mut |name, used| of_copy(&user, name, used));
            }
        });
    }
    used
}

fn of_copy(user: &OwnedFd, name: &str, used: &mut Used) {
    let Some(copy) = name.contains(".dead-").then(|| open_folder(user, name)).flatten() else {
        return;
    };
    used.copies += 1;
    each(&copy, used, &mut |name, used| {
        if let Ok(stat) = statat(&copy, name, AtFlags::SYMLINK_NOFOLLOW) {
            used.bytes = used.bytes.saturating_add(stat.st_blocks as u64 * 512);
        }
    });
}

/// Calls `with` for each name in the folder that is not hidden.
fn each(folder: &OwnedFd, used: &mut Used, with: &mut dyn FnMut(&str, &mut Used)) {
    for entry in Dir::read_from(folder).into_iter().flatten().flatten() {
        used.entries += 1;
        if used.entries >= MOST_ENTRIES {
            return;
        }
        if let Ok(name) = entry.file_name().to_str()
            && !name.starts_with('.')
        {
            with(name, used);
        }
    }
}

/// Opens a folder that a user owns, or may own.
fn open_folder(at: &OwnedFd, name: &str) -> Option<OwnedFd> {
    openat2(at, name, FOLDER, Mode::empty(), ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV).ok()
}

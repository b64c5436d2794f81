//! The quota of all users together for copies of dead processes' sessions. Each user has a quota
//! too, which the newest copies keep (`lastwords_control::dead`). Above the quota of all, no copy
//! is made: nobody's crashes remove the copies of others. A user can put anything into the folder
//! of the user's copies, so that a user counts for no more than what the user's quota allows, and
//! fills nobody else's.

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, ResolveFlags, fstat, openat, openat2, statat};
use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::OwnedFd;

/// Largest number of copies of all users.
const MOST_COPIES: u64 = 128;
/// Largest number of bytes of these copies.
const MOST_BYTES: u64 = 4 << 30;
/// The share of a user at most (`lastwords_control::dead`).
const MOST_OF_USER: Used = Used { copies: 16, bytes: 1 << 30 };
/// Most entries of a user's folders that are looked at. What is beyond counts as a full quota of
/// that user.
const MOST_ENTRIES: usize = 20_000;
/// Most names in [`SHM`] that are looked at. All users can make them.
const MOST_NAMES: usize = 1 << 20;
/// The folder with the folders of users.
const SHM: &str = "/dev/shm";
const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// The room that the copies of all users take.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Used {
    copies: u64,
    bytes: u64,
}

impl Used {
    /// Returns true if there may be one more.
    pub(super) fn has_room(&self) -> bool {
        self.copies < MOST_COPIES && self.bytes < MOST_BYTES
    }
}

impl fmt::Display for Used {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { copies, bytes } = self;
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
    let mut users: BTreeMap<u32, (Used, usize)> = BTreeMap::new();
    // A kernel before 5.6 has no such call: then there is only the quota of each user.
    if let Ok(shm) = openat(CWD, SHM, FOLDER, Mode::empty()) {
        each(&shm, &mut { MOST_NAMES }, &mut |name, _| {
            if !name.starts_with("lastwords-") {
                return;
            }
            let Some(folder) = open_folder(&shm, name) else { return };
            let Ok(owner) = fstat(&folder).map(|stat| stat.st_uid) else { return };
            let (used, left) = users.entry(owner).or_insert((Used::default(), MOST_ENTRIES));
            *left = left.saturating_sub(1);
            each(&folder, left, &mut |name, left| of_copy(&folder, name, left, used));
        });
    }
    users.into_values().fold(Used::default(), |sum, (used, left)| {
        let used = if left == 0 { MOST_OF_USER } else { used };
        Used {
            copies: sum.copies + used.copies.min(MOST_OF_USER.copies),
            bytes: sum.bytes + used.bytes.min(MOST_OF_USER.bytes),
        }
    })
}

fn of_copy(user: &OwnedFd, name: &str, left: &mut usize, used: &mut Used) {
    let Some(copy) = name.contains(".dead-").then(|| open_folder(user, name)).flatten() else {
        return;
    };
    used.copies += 1;
    each(&copy, left, &mut |name, _| {
        if let Ok(stat) = statat(&copy, name, AtFlags::SYMLINK_NOFOLLOW) {
            used.bytes = used.bytes.saturating_add(stat.st_blocks as u64 * 512);
        }
    });
}

/// Calls `with` for each name in the folder that is not hidden, for at most `left` names. `with`
/// may look at others.
fn each(folder: &OwnedFd, left: &mut usize, with: &mut dyn FnMut(&str, &mut usize)) {
    for entry in Dir::read_from(folder).into_iter().flatten().flatten() {
        if *left == 0 {
            return;
        }
        *left -= 1;
        if let Ok(name) = entry.file_name().to_str()
            && !name.starts_with('.')
        {
            with(name, left);
        }
    }
}

/// Opens a folder that a user owns, or may own.
fn open_folder(at: &OwnedFd, name: &str) -> Option<OwnedFd> {
    openat2(at, name, FOLDER, Mode::empty(), ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV).ok()
}

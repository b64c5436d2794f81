//! State that helpers share which run at the same time, in a folder of root: who may save sessions,
//! and what may be written into the kernel's log. The kernel starts a helper for each process that
//! crashes, and users can make processes crash as fast as they like.

use anyhow::{Context, bail};
use rustix::fs::{CWD, FlockOperation, Mode, OFlags, fchmod, flock, fstat, mkdir, openat};
use rustix::process::geteuid;
use rustix::time::{ClockId, clock_gettime};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Duration;

/// The folder. It goes at a reboot.
const FOLDER: &str = "/run/lastwords-core-helper";
/// Most helpers that save sessions at the same time.
const SLOTS: usize = 4;
/// Most of them for processes of the same user, unless that is root.
const SLOTS_OF_USER: usize = 2;
/// Seconds for which [`LINES`] are allowed in the kernel's log.
const PERIOD: i64 = 60;
/// Most lines in the kernel's log in this time.
const LINES: i64 = 20;
/// Attempts to take the lock of the state, 1 ms apart. Helpers hold it for much less.
const ATTEMPTS: usize = 200;

/// The folder of the state.
pub(super) struct State {
    folder: OwnedFd,
}

/// The right to save sessions. It ends when this is dropped, or with the process.
pub(super) struct Slot(#[expect(dead_code, reason = "it holds the lock")] File);

impl State {
    /// Opens the folder, and creates it if it is missing.
    ///
    /// # Errors
    /// It cannot be created, or others than root may change it.
    pub(super) fn open() -> anyhow::Result<Self> {
        Self::open_at(Path::new(FOLDER))
    }

    fn open_at(path: &Path) -> anyhow::Result<Self> {
        let shown = || path.display().to_string();
        // If it cannot be made, it cannot be opened.
        let is_new = mkdir(path, Mode::RWXU).is_ok();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = openat(CWD, path, flags, Mode::empty()).with_context(shown)?;
        if is_new {
            // The umask may have taken bits.
            fchmod(&folder, Mode::RWXU).with_context(shown)?;
        }
        let stat = fstat(&folder).with_context(shown)?;
        if stat.st_uid != geteuid().as_raw() || stat.st_mode & 0o022 != 0 {
            bail!("{}: it is no folder that only root may change", path.display());
        }
        Ok(Self { folder })
    }

    fn file(&self, name: &str) -> Option<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(&self.folder, name, flags, Mode::RUSR | Mode::WUSR).ok().map(File::from)
    }

    /// Takes the lock of the state; none if another process holds it for long.
    fn lock(&self) -> Option<File> {
        let file = self.file("lock")?;
        for _ in 0..ATTEMPTS {
            if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
                return Some(file);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        None
    }

    /// Takes a slot for a process of this user; none if too many helpers are at work. The process
    /// does not wait then.
    pub(super) fn slot(&self, user: u32) -> Option<Slot> {
        let _lock = self.lock()?;
        let (mut free, mut own) = (None, 0);
        for slot in 0..SLOTS {
            let file = self.file(&format!("slot-{slot}"))?;
            if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
                free = Some(file);
            } else if text_of(&file) == user.to_string() {
                own += 1;
            }
        }
        let free = free.filter(|_| user == 0 || own < SLOTS_OF_USER)?;
        write_text(&free, &user.to_string())?;
        Some(Slot(free))
    }

    /// Returns the number of lines that were left out before, if a line may be written into the
    /// kernel's log now.
    pub(super) fn line(&self) -> Option<i64> {
        self.line_at(clock_gettime(ClockId::Boottime).tv_sec)
    }

    fn line_at(&self, now: i64) -> Option<i64> {
        let _lock = self.lock()?;
        let file = self.file("log")?;
        let text = text_of(&file);
        let mut words = text.split(' ').map(|word| word.parse::<i64>().unwrap_or(0));
        let [since, lines, left_out] = [(); 3].map(|()| words.next().unwrap_or(0));
        let is_over = !(0..PERIOD).contains(&now.saturating_sub(since));
        let (since, lines) = if is_over { (now, 0) } else { (since, lines) };
        let may = lines < LINES;
        let (lines, next) = if may { (lines + 1, 0) } else { (lines, left_out + 1) };
        write_text(&file, &format!("{since} {lines} {next}"))?;
        may.then_some(left_out)
    }
}

fn text_of(file: &File) -> String {
    let mut bytes = [0; 64];
    // A file that cannot be read says nothing.
    let len = file.read_at(&mut bytes, 0).unwrap_or(0);
    String::from_utf8_lossy(&bytes[..len]).into_owned()
}

fn write_text(file: &File, text: &str) -> Option<()> {
    file.set_len(0).ok()?;
    file.write_all_at(text.as_bytes(), 0).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> (tempfile::TempDir, State) {
        let folder = tempfile::tempdir().unwrap();
        let state = State::open_at(&folder.path().join("state")).unwrap();
        (folder, state)
    }

    #[test]
    fn four_helpers_work_and_two_of_a_user() {
        let (folder, state) = state();
        let first = [state.slot(7), state.slot(7)];
        assert!(first.iter().all(Option::is_some) && state.slot(7).is_none(), "two of a user");
        let others = [state.slot(8), state.slot(0)];
        assert!(
            others.iter().all(Option::is_some)
                && state.slot(0).is_none()
                && state.slot(9).is_none(),
            "four in all"
        );
        drop(first);
        // Another process has the same state.
        let state = State::open_at(&folder.path().join("state")).unwrap();
        let root = [state.slot(0), state.slot(0)];
        assert!(root.iter().all(Option::is_some), "root has what there is");
    }

    #[test]
    fn lines_are_limited_and_those_left_out_are_counted() {
        let (_folder, state) = state();
        for _ in 0..LINES {
            assert_eq!(state.line_at(1000), Some(0));
        }
        for second in 0..5 {
            assert_eq!(state.line_at(1000 + second), None);
        }
        assert_eq!(state.line_at(1000 + PERIOD), Some(5), "in the next period");
        assert_eq!(state.line_at(1000 + PERIOD), Some(0));
        assert_eq!(state.line_at(10), Some(0), "the clock of another boot");
    }

    #[test]
    fn a_folder_of_another_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        std::fs::create_dir(&path).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o777))
            .unwrap();
        assert!(State::open_at(&path).is_err(), "others may write");
        std::fs::remove_dir(&path).unwrap();
        std::os::unix::fs::symlink("/run", &path).unwrap();
        assert!(State::open_at(&path).is_err(), "a link");
    }
}

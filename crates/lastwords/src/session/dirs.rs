//! The folders of sessions: a base folder of the user, and a folder for each session in it.
//!
//! The base folder is `$LASTWORDS_DIR`, else `$XDG_RUNTIME_DIR/lastwords` (if that folder belongs
//! to the user alone, as the XDG specification requires), else `/dev/shm/lastwords-UID`. If another
//! user has created the last one, it is `/dev/shm/lastwords-UID-` and 16 random digits. A program
//! with other rights than its caller (setuid, file capabilities) ignores the environment. Folders
//! belong to the user and have mode 0700. A link, a FIFO or another user's folder in their place is
//! refused, never followed.

use std::cmp::Reverse;
use std::ffi::OsString;
use std::fs;
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::io::ErrorKind;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use lastwords_folders::{PLACES_FILE, Place, is_session_folder, is_unique, name_of, unique_of};
use lastwords_ring::backend::{self, VerifiedFile, open_at, open_places};
use rustix::fs::{
    self as sys, Access, AtFlags, CWD, FlockOperation, Mode, OFlags, Timespec, Timestamps,
    UTIME_NOW,
};
use rustix::io::Errno;
use rustix::process::geteuid;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::process;
use crate::session::Error;
use crate::session::region_names::{SESSION, is_file};

/// Beginning of the names of folders that are being created.
const UNFINISHED: &str = ".new-";
/// Age from which a folder that is being created belongs to nobody.
const ABANDONED: Duration = Duration::from_secs(120);
/// How long [`Base::lock`] waits for one holder of the lock.
const LOCK_WAIT: Duration = Duration::from_secs(5);
/// How long [`Base::lock`] waits for all holders of the lock together.
const LOCK_WAIT_IN_ALL: Duration = Duration::from_secs(60);

/// Returns the base folder that this process would use, whether or not it exists.
#[must_use]
pub fn base_path() -> PathBuf {
    candidates().swap_remove(0)
}

/// Creates the base folder if it is missing, with the checks that the start of a session makes, and
/// returns its path. Other files of this user's recorders, with names that begin with a dot, may be
/// kept in it.
///
/// # Errors
/// It cannot be created, or it is not a folder of this user alone.
pub fn make_base() -> Result<PathBuf, Error> {
    Ok(Base::make(&base_path())?.path)
}

/// Returns all places where this user's sessions can be, the one in use first; only
/// `$LASTWORDS_DIR` if it is set.
#[must_use]
pub fn candidates() -> Vec<PathBuf> {
    let set = |name: &str| {
        let value =
            std::env::var_os(name).filter(|value| !value.is_empty() && !process::is_secure());
        value.map(PathBuf::from)
    };
    if let Some(chosen) = set("LASTWORDS_DIR") {
        return vec![chosen];
    }
    let runtime =
        set("XDG_RUNTIME_DIR").filter(|dir| is_runtime_dir(dir)).map(|dir| dir.join("lastwords"));
    runtime.into_iter().chain(in_shm(Path::new(SHM))).collect()
}

/// The parent of the folders of users without a runtime folder.
const SHM: &str = "/dev/shm";

/// Returns the place in `/dev/shm` that should be this user's but belongs to another user, so that
/// sessions are elsewhere.
#[must_use]
pub fn taken_by_another() -> Option<PathBuf> {
    Some(in_shm_by_name(Path::new(SHM))).filter(|place| is_anothers(place))
}

fn in_shm_by_name(shm: &Path) -> PathBuf {
    shm.join(format!("lastwords-{}", geteuid().as_raw()))
}

/// Returns true if the place belongs to another user. Only that user can remove it: [`SHM`] has the
/// sticky bit.
fn is_anothers(place: &Path) -> bool {
    fs::symlink_metadata(place).is_ok_and(|meta| meta.uid() != geteuid().as_raw())
}

/// Returns the folder of this user in `shm`. If another user has taken its name, returns the
/// folders of this user with other names, the one in use first, or a random name if there is none.
fn in_shm(shm: &Path) -> Vec<PathBuf> {
    let place = in_shm_by_name(shm);
    if !is_anothers(&place) {
        return vec![place];
    }
    let prefix = format!("{}-", place.display());
    let paths =
        fs::read_dir(shm).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    let is_own =
        |path: &PathBuf| path.to_string_lossy().starts_with(&prefix) && Base::open(path).is_ok();
    let mut own: Vec<PathBuf> = paths.filter(is_own).collect();
    own.sort();
    if own.is_empty() {
        own.push(PathBuf::from(prefix + &unique_of(&new_uuid())));
    }
    own
}

/// Returns true if a folder belongs to this user alone and can be written. After `sudo -E` and `su`
/// it does not.
fn is_runtime_dir(dir: &Path) -> bool {
    let writable = || sys::access(dir, Access::WRITE_OK | Access::EXEC_OK).is_ok();
    dir.is_absolute() && open_own_dir(CWD, dir, dir, 0o077).is_ok() && writable()
}

/// The advice to a user whose folder of sessions cannot be trusted.
const OWN_FOLDER: &str = "remove it, or set LASTWORDS_DIR to a folder of your own";

/// An open base folder.
#[derive(Debug)]
pub struct Base {
    /// Path of the folder.
    pub path: PathBuf,
    fd: OwnedFd,
}

/// An open folder of a session.
#[derive(Debug)]
pub struct Folder {
    /// Path of the folder once it is published.
    pub path: PathBuf,
    fd: VerifiedFile,
    /// Current name of the folder in the base folder.
    pub name: String,
}

/// The lock of a file or folder. The system releases it when its holder dies.
#[derive(Debug)]
pub struct Lock(OwnedFd);

impl Lock {
    /// Takes the lock, unless another process has it.
    fn take(file: OwnedFd, shown: &Path) -> Result<Option<Self>, Error> {
        match sys::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => Ok(None),
            locked => {
                locked.map(|()| Some(Self(file))).map_err(|error| Error::io("flock", shown, error))
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // A child that another thread forked meanwhile also has the descriptor, and would keep the
        // lock while it lives. If the call fails, closing the descriptor is the only way left.
        let _ = sys::flock(&self.0, FlockOperation::Unlock);
    }
}

impl Base {
    /// Opens the folder, and creates it if its parent exists.
    pub fn make(path: &Path) -> Result<Self, Error> {
        match sys::mkdir(path, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => Self::open(path),
            Err(error) => Err(Error::io("mkdir", path, error)),
        }
    }

    /// Opens a folder that exists.
    pub fn open(path: &Path) -> Result<Self, Error> {
        Ok(Self { path: path.to_owned(), fd: open_own_dir(CWD, path, path, 0o022)? })
    }

    /// Takes the lock of the folder itself, for retention, unless another process has it.
    pub(crate) fn try_lock_itself(&self) -> Option<Lock> {
        Lock::take(open_dir(&self.fd, ".", &self.path).ok()?, &self.path).ok()?
    }

    /// Takes the lock that [`Base::lock`] waits for, unless another process has it.
    pub(crate) fn try_lock(&self) -> Option<Lock> {
        Lock::take(self.lock_file().ok()?, &self.path).ok()?
    }

    fn lock_file(&self) -> Result<OwnedFd, Error> {
        let opened = open_at(&self.fd, ".lock", OFlags::RDWR | OFlags::CREATE);
        opened.map_err(|error| Error::io("open", self.path.join(".lock"), error))
    }

    /// Waits, for a bounded time, until no other process of the user is creating a session.
    pub(crate) fn lock(&self) -> Result<Lock, Error> {
        let (start, mut since, mut holder) = (Instant::now(), Instant::now(), None);
        loop {
            let file = self.lock_file()?;
            // Each holder sets the time of the file. If many processes start at once, this shows
            // progress.
            let now = sys::fstat(&file).ok().map(|stat| (stat.st_mtime, stat.st_mtime_nsec));
            if let Some(lock) = Lock::take(file, &self.path.join(".lock"))? {
                let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
                // If it fails, others wait for a shorter time.
                let _ = sys::futimens(
                    &lock.0,
                    &Timestamps { last_access: now, last_modification: now },
                );
                return Ok(lock);
            }
            if holder != now {
                (holder, since) = (now, Instant::now());
            }
            if since.elapsed() > LOCK_WAIT || start.elapsed() > LOCK_WAIT_IN_ALL {
                return Err(Error::Busy { what: "the folder of sessions", owner: 0 });
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Creates an unpublished folder for a session of this name; `unique` is [`unique_of`] its
    /// UUID.
    pub fn new_folder(&self, name: &str, unique: &str) -> Result<Folder, Error> {
        self.remove_abandoned();
        let temporary = format!("{UNFINISHED}{unique}");
        let shown = self.path.join(&temporary);
        sys::mkdirat(&self.fd, &temporary, Mode::RWXU)
            .map_err(|error| Error::io("mkdir", &shown, error))?;
        let path = self.path.join(format!("{name}-{unique}"));
        let folder = open_dir(&self.fd, &temporary, &shown)
            .and_then(|fd| Folder::new(path, fd, temporary.clone()));
        // The folder is empty.
        folder.inspect_err(|_| _ = sys::unlinkat(&self.fd, &temporary, AtFlags::REMOVEDIR))
    }

    /// Opens the folder of a published session.
    pub fn folder(&self, name: &str) -> Result<Folder, Error> {
        let path = self.path.join(name);
        let fd = open_own_dir(&self.fd, name, &path, 0o077)?;
        Folder::new(path, fd, name.to_owned())
    }

    /// Returns the names of the entries in the folder.
    fn names(&self) -> Result<impl Iterator<Item = String>, Error> {
        let entries =
            fs::read_dir(&self.path).map_err(|error| Error::io("read", &self.path, error))?;
        Ok(entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()))
    }

    /// Returns the names of the folders of published sessions, sorted. Files in the base folder are
    /// among them, but [`Base::folder`] does not open them.
    pub fn sessions(&self) -> Result<Vec<String>, Error> {
        let mut names: Vec<String> = self.names()?.filter(|name| !name.starts_with('.')).collect();
        names.sort();
        Ok(names)
    }

    /// Returns the names of the folders of published sessions of this name, the newest first.
    pub(crate) fn sessions_of(&self, name: &str) -> Result<Vec<String>, Error> {
        let mut folders = self.sessions()?;
        folders.retain(|folder| name_of(folder) == name);
        folders.sort_by_cached_key(|folder| Reverse(self.modified(folder)));
        Ok(folders)
    }

    /// Returns the time when a file was last created or removed in a session's folder.
    pub fn modified(&self, folder: &str) -> Option<SystemTime> {
        fs::symlink_metadata(self.path.join(folder)).and_then(|meta| meta.modified()).ok()
    }

    /// Removes folders whose creators died before they were complete.
    fn remove_abandoned(&self) {
        for name in self.names().into_iter().flatten().filter(|name| name.starts_with(UNFINISHED)) {
            let age = self.modified(&name).and_then(|then| then.elapsed().ok());
            if age > Some(ABANDONED)
                && let Ok(folder) = self.folder(&name)
            {
                // A folder that cannot be removed now is tried again when the next session is
                // created.
                drop(folder.remove());
            }
        }
    }
}

impl Folder {
    /// Makes a folder from its open descriptor.
    fn new(path: PathBuf, fd: OwnedFd, name: String) -> Result<Self, Error> {
        let fd = VerifiedFile::new(fd).map_err(|error| Error::io("stat", &path, error))?;
        Ok(Self { path, fd, name })
    }

    /// Opens the folder of a session by its path.
    pub fn open(path: &Path) -> Result<Self, Error> {
        if lastwords_folders::inside::split(path).is_some() {
            // Its real path would be one in this process's own root.
            let what = "it is in the root of another process".to_owned();
            let remedy = "sessions of other namespaces are only read (`list`, `report`, `why`, `inspect`, `view`)";
            return Err(Error::Untrusted { path: path.to_owned(), what, remedy });
        }
        let absolute = fs::canonicalize(
            path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")),
        )
        .map_err(|error| Error::io("open", path, error))?;
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.ok_or_else(|| Error::io("open", path, std::io::ErrorKind::InvalidInput))?;
        // A folder that was named need not be one of ours: nobody is to remove it.
        Base::open(&absolute).and_then(|base| base.folder(name)).map_err(|error| match error {
            Error::Untrusted { path, what, .. } => {
                let remedy = "so it is no folder of a session; `lastwords list` shows the sessions there are";
                Error::Untrusted { path, what, remedy }
            }
            error => error,
        })
    }

    /// Renames the folder to its final name. From here on others find it, complete.
    pub fn publish(&mut self) -> Result<(), Error> {
        let name = self
            .path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default();
        let base = open_dir(self.fd()?, "..", &self.path)?;
        sys::renameat(&base, &self.name, &base, &name)
            .map_err(|error| Error::io("rename", &self.path, error))?;
        self.name = name;
        Ok(())
    }

    /// Closes the descriptor.
    ///
    /// # Safety
    /// No other call for this folder is under way.
    pub(crate) unsafe fn give_up(&self) {
        // SAFETY: the descriptor is used only during calls, and no call is under way.
        unsafe { self.fd.give_up() }
    }

    /// Returns the descriptor of the open folder.
    pub(crate) fn fd(&self) -> Result<BorrowedFd<'_>, Error> {
        self.fd.get().ok_or_else(|| Error::io("use", &self.path, Errno::BADF))
    }

    /// Returns the locations of the session's regions, if they are not files in the folder.
    pub fn places(&self) -> Result<Option<Vec<Place>>, Error> {
        Ok(open_places(self.for_ring()?)?)
    }

    /// Returns the folder in the form that the ring uses.
    pub(crate) fn for_ring(&self) -> Result<backend::Folder<'_>, Error> {
        Ok(backend::Folder { fd: self.fd()?, path: &self.path })
    }

    /// Takes the lock of the folder, unless another process has it.
    pub fn lock(&self) -> Result<Option<Lock>, Error> {
        Lock::take(open_dir(self.fd()?, ".", &self.path)?, &self.path)
    }

    /// Takes a second lock in the same way: that of the file that leads to the session's memory.
    pub fn lock_losses(&self) -> Result<Option<Lock>, Error> {
        let folder = self.fd()?;
        let failed = |name: &str, error| Error::io("open", self.path.join(name), error);
        let open =
            |name: &str| open_at(folder, name, OFlags::RDONLY).map_err(|error| failed(name, error));
        Lock::take(open(SESSION).or_else(|error| open(PLACES_FILE).map_err(|_| error))?, &self.path)
    }

    /// Returns the bytes that the files in the folder, and the session's file in a hugetlbfs, take,
    /// holes not counted.
    pub fn bytes_on_disk(&self) -> u64 {
        let entries = fs::read_dir(self.path.with_file_name(&self.name)).into_iter().flatten();
        let files = entries.filter_map(|entry| entry.ok()?.metadata().ok());
        let outside = self.outside().and_then(|path| fs::symlink_metadata(path).ok());
        let blocks = files.chain(outside).map(|meta| meta.blocks());
        blocks.fold(0, |sum, blocks| sum.saturating_add(blocks.saturating_mul(512)))
    }

    /// Removes the folder with its files, and the session's file in a hugetlbfs. Folders in it are
    /// not entered. A folder that contains anything foreign, or that does not have the name of a
    /// session's folder, is left unchanged.
    pub fn remove(&self) -> Result<(), Error> {
        if let Some(fd) = self.fd.get() {
            return self.remove_at(fd);
        }
        // The program closed our descriptor, so the folder is opened by its path, if it still
        // exists.
        let path = self.path.with_file_name(&self.name);
        let again = Self::open(&path)?;
        let fd = again.fd()?;
        if !self.fd.is(fd) {
            let what = "it is another folder than that of the session".to_owned();
            return Err(Error::Untrusted { path, what, remedy: OWN_FOLDER });
        }
        again.remove_at(fd)
    }

    fn remove_at(&self, fd: BorrowedFd<'_>) -> Result<(), Error> {
        let (base, names) = (open_dir(fd, "..", &self.path)?, self.files(fd)?);
        if let Some(path) = self.outside()
            && let Err(error) = fs::remove_file(&path)
            && error.kind() != ErrorKind::NotFound
        {
            return Err(Error::io("unlink", path, error));
        }
        for name in names {
            // If a file stays, the removal of the folder below fails and reports it.
            let _ = sys::unlinkat(fd, name, AtFlags::empty());
        }
        sys::unlinkat(base, &self.name, AtFlags::REMOVEDIR)
            .map_err(|error| Error::io("rmdir", &self.path, error))
    }

    /// Returns the session's own file in a hugetlbfs, which is recognized by its name.
    fn outside(&self) -> Option<PathBuf> {
        let (_, unique) = self.name.rsplit_once('-')?;
        let path = PathBuf::from(&self.places().ok()??.first()?.path);
        (path.file_name()?.to_str()? == format!("lastwords-{unique}")).then_some(path)
    }

    /// Iterates over the entries of the folder.
    pub(crate) fn entries(
        &self,
        fd: BorrowedFd<'_>,
    ) -> Result<impl Iterator<Item = fs::DirEntry> + use<>, Error> {
        let listed = PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()));
        let entries =
            fs::read_dir(&listed).or_else(|_| fs::read_dir(self.path.with_file_name(&self.name)));
        Ok(entries.map_err(|error| Error::io("read", &self.path, error))?.filter_map(Result::ok))
    }

    /// Removes a file of the folder, if it exists.
    pub(crate) fn remove_file(&self, name: impl AsRef<Path>) -> Result<(), Error> {
        match sys::unlinkat(self.fd()?, name.as_ref(), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(Error::io("unlink", self.path.join(name), error)),
        }
    }

    /// Gives a file of the folder another name.
    pub(crate) fn rename_file(&self, from: &str, to: &str) -> Result<(), Error> {
        let fd = self.fd()?;
        sys::renameat(fd, from, fd, to)
            .map_err(|error| Error::io("rename", self.path.join(from), error))
    }

    /// Returns the names of the files in the folder, which must all belong to a session.
    fn files(&self, fd: BorrowedFd<'_>) -> Result<Vec<OsString>, Error> {
        let remedy = "only folders of sessions are removed: move away everything that does not belong to the session";
        let refused = |why: String| Err(Error::unsupported("removal of a folder", why, remedy));
        if !is_of_session(&self.name) {
            return refused(format!(
                "{} does not have the name of a session's folder",
                self.path.display()
            ));
        }
        let mut names = Vec::new();
        for entry in self.entries(fd)? {
            if !is_ours(&entry) {
                return refused(format!(
                    "{} is not a file of a session",
                    self.path.join(entry.file_name()).display()
                ));
            }
            names.push(entry.file_name());
        }
        Ok(names)
    }
}

/// Returns true if the name is that of a session's folder, or of one that is being created.
fn is_of_session(name: &str) -> bool {
    name.strip_prefix(UNFINISHED).map_or_else(|| is_session_folder(name.as_ref()), is_unique)
}

/// Returns true if an entry of a session's folder may be removed with the folder: the session's
/// files, regions under any name (also those of later versions), and entries without data.
fn is_ours(entry: &fs::DirEntry) -> bool {
    let Ok(kind) = entry.file_type() else { return false };
    let named = entry.file_name().to_str().is_some_and(is_file);
    let region = || {
        use std::io::Read as _;
        let mut magic = [0; lastwords_abi::region::MAGIC.len()];
        let read = fs::File::open(entry.path()).and_then(|mut file| file.read_exact(&mut magic));
        read.is_ok() && magic == lastwords_abi::region::MAGIC
    };
    if kind.is_file() { named || region() } else { !kind.is_dir() }
}

/// Returns a new random UUID, version 4.
pub(crate) fn new_uuid() -> [u8; 16] {
    let mut uuid = [0u8; 16];
    // Up to 256 bytes are returned in one call.
    if getrandom(&mut uuid[..], GetRandomFlags::empty()) != Ok(uuid.len()) {
        // Without getrandom (seccomp), which the standard library's hashers need too, the UUID is
        // made from values that distinguish this moment and process from others.
        for (word, n) in uuid.as_chunks_mut().0.iter_mut().zip(0u8..) {
            let place = std::ptr::from_ref(&SystemTime::UNIX_EPOCH).addr();
            let hasher = BuildHasherDefault::<DefaultHasher>::default();
            *word =
                hasher.hash_one((n, std::process::id(), SystemTime::now(), place)).to_ne_bytes();
        }
    }
    uuid[6] = (uuid[6] & 0x0f) | 0x40;
    uuid[8] = (uuid[8] & 0x3f) | 0x80;
    uuid
}

/// Opens a folder without following a link in its place.
fn open_dir(at: impl AsFd, name: impl AsRef<Path>, shown: &Path) -> Result<OwnedFd, Error> {
    open_at(at, name, OFlags::RDONLY | OFlags::DIRECTORY)
        .map_err(|error| Error::io("open", shown, error))
}

/// Opens a folder as [`open_dir`] does; refuses one of another user, or one with any of `forbidden`
/// mode bits.
fn open_own_dir(
    at: impl AsFd,
    name: impl AsRef<Path>,
    shown: &Path,
    forbidden: u32,
) -> Result<OwnedFd, Error> {
    let fd = open_dir(at, name, shown)?;
    let stat = sys::fstat(&fd).map_err(|error| Error::io("stat", shown, error))?;
    let uid = geteuid().as_raw();
    let untrusted =
        |what: String| Err(Error::Untrusted { path: shown.to_owned(), what, remedy: OWN_FOLDER });
    if stat.st_uid != uid {
        return untrusted(format!("it belongs to user {}, not to user {uid}", stat.st_uid));
    }
    if stat.st_mode & forbidden != 0 {
        return untrusted(format!(
            "its mode is {:04o}: others may enter or write it",
            stat.st_mode & 0o7777
        ));
    }
    Ok(fd)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_ends_though_a_forked_child_has_its_descriptor() {
        let dir = tempfile::tempdir().expect("a folder");
        let base = Base::make(&dir.path().join("base")).expect("made");
        for take in [Base::try_lock, Base::try_lock_itself] {
            let lock = take(&base).expect("nobody has it");
            let _of_a_child = lock.0.try_clone().expect("a descriptor");
            assert!(take(&base).is_none(), "it is held");
            drop(lock);
            assert!(take(&base).is_some());
        }
    }

    #[test]
    fn a_place_that_another_user_has_taken_is_not_used() {
        if !geteuid().is_root() {
            return;
        }
        let shm = tempfile::tempdir().expect("a folder");
        let place = in_shm_by_name(shm.path());
        assert_eq!(in_shm(shm.path()), std::slice::from_ref(&place));
        fs::create_dir(&place).expect("a folder");
        assert_eq!(in_shm(shm.path()), std::slice::from_ref(&place));
        std::os::unix::fs::chown(&place, Some(12345), None).expect("given away");
        let other = in_shm(shm.path()).remove(0);
        assert!(other != place && other.starts_with(shm.path()));
        let base = Base::make(&other).expect("made");
        assert_eq!(in_shm(shm.path()), [base.path], "the one that is there is used again");
    }
}

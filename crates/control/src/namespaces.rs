//! Sessions of processes in other mount namespaces: those of containers, as a privileged process
//! sees them from outside.
//!
//! Each mount namespace is looked at through the root of its first process, `/proc/PID/root`, at
//! the places where sessions are by default and at those that the environment of its processes
//! names. Nothing in a container is trusted: links are resolved in its root
//! ([`lastwords_folders::inside`]), a session counts only if its folder and files belong to the user
//! of the folder that they are in, its region is copied and never mapped, and a file system that
//! does not answer costs its namespace only. Whether a process lives is known by the session's guard
//! and lock, as everywhere.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io::{ErrorKind, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;
use std::{ffi::OsStr, fs, io, thread};

use lastwords::internals::regions::look_at_copy;
use lastwords::internals::session_region::SessionRegion;
use lastwords_folders::inside::{OwnedFolder, Root, split};
use lastwords_folders::{ENDED_EARLY, PLACES_FILE, is_session_folder, name_of};

use crate::sessions::{Summary, details};

/// Most namespaces that are looked at.
const MOST_NAMESPACES: usize = 4096;
/// Most folders of a namespace in which sessions are looked for.
const MOST_PLACES: usize = 256;
/// Most sessions of a namespace.
const MOST_SESSIONS: usize = 4096;
/// Most bytes of a file of /proc that are read.
const MOST_BYTES: u64 = 128 << 10;
/// How long a namespace may take to answer. A file system in it may be one that waits for ever.
const PATIENCE: Duration = Duration::from_secs(5);
/// The environment variables that name a folder of sessions, each with what is below it.
const VARIABLES: [(&str, &str); 2] = [("LASTWORDS_DIR", ""), ("XDG_RUNTIME_DIR", "lastwords")];

/// A mount namespace, or another root in it.
#[derive(Debug, Clone)]
pub struct Namespace {
    /// Inode of the mount namespace.
    pub mount: u64,
    /// It is that of this process, with the same root.
    pub is_own: bool,
    /// Its first process, as this process sees it: process 1 of a container, else the oldest.
    pub pid: u32,
    /// The id of that process in its own pid namespace.
    pub pid_inside: Option<u32>,
    /// Inode of that pid namespace.
    pub pid_namespace: Option<u64>,
    /// The command of that process.
    pub program: String,
    /// The path of its control group.
    pub cgroup: Option<String>,
    /// The sessions that were not found in a namespace before this one.
    pub sessions: Vec<Found>,
    /// The parts that could not be read, with the reasons.
    pub notes: Vec<String>,
}

/// A session in a namespace.
#[derive(Debug, Clone)]
pub struct Found {
    /// The session. Its folder is the path as this process reaches it.
    pub summary: Summary,
    /// The user whom the folder belongs to, as this process sees it.
    pub owner: u32,
    /// The processes of the session that live, by their ids in their own pid namespace, with their
    /// ids for this process.
    pub pids: BTreeMap<u32, u32>,
}

/// The result of [`list`].
#[derive(Debug, Clone, Default)]
pub struct Namespaces {
    /// All namespaces; this process's own is the first.
    pub all: Vec<Namespace>,
    /// Number of processes whose namespace this process may not look at.
    pub refused: usize,
    /// There are more namespaces than are looked at.
    pub has_more: bool,
}

/// The namespaces of processes: of each, its processes, the oldest first.
type Groups = BTreeMap<(bool, usize), Vec<u32>>;

/// The ids that processes have here, by their pid namespace and their id in it.
type Outside = HashMap<(u64, u32), u32>;

/// Lists the sessions of all mount namespaces that the processes of /proc are in.
///
/// # Errors
/// /proc cannot be read.
pub fn list() -> io::Result<Namespaces> {
    let mut found = Namespaces::default();
    let mut pids: Vec<u32> = fs::read_dir("/proc")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    pids.sort_unstable();
    let own = Key::of_process("self").ok();
    let (mut groups, mut order, mut outside) = (Groups::new(), HashMap::new(), Outside::new());
    for pid in pids {
        let key = match Key::of_process(&pid.to_string()) {
            Ok(key) => key,
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                found.refused += 1;
                continue;
            }
            // It has ended, or is a thread of the kernel or a zombie, which has no root.
            Err(_) => continue,
        };
        if let (Some(namespace), Some(inside)) = (pid_namespace(pid), pid_inside(pid)) {
            outside.insert((namespace, inside), pid);
        }
        let next = order.len();
        if next >= MOST_NAMESPACES && !order.contains_key(&key) {
            found.has_more = true;
            continue;
        }
        let at = *order.entry(key).or_insert(next);
        groups.entry((Some(key) != own, at)).or_default().push(pid);
    }
    let mounts: HashMap<usize, u64> = order.iter().map(|(key, at)| (*at, key.mount)).collect();
    let seen = Arc::new(Mutex::new(HashSet::new()));
    for ((is_foreign, at), pids) in groups {
        let mount = mounts.get(&at).copied().unwrap_or_default();
        found.all.push(answer(mount, !is_foreign, pids, &seen, &outside));
    }
    Ok(found)
}

/// Returns the session in a folder of any user, also in the root of another process
/// (`/proc/PID/root/…`), without mapping it.
///
/// # Errors
/// The path is not absolute, or the folder cannot be read or trusted.
pub fn look(path: &Path) -> io::Result<Found> {
    let wrong = || io::Error::new(ErrorKind::InvalidInput, "no absolute path of a folder");
    let (pid, rest) = split(path).unwrap_or((std::process::id(), path));
    let (base, name) =
        rest.parent().zip(rest.file_name()).filter(|_| path.is_absolute()).ok_or_else(wrong)?;
    let base = Root::of_process(pid)?.folder(base)?;
    base.check(0o022)?;
    session(&base, path, Path::new(name), &Outside::new())
}

/// The identity of a namespace, and of a root in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    mount: u64,
    root: (u64, u64),
}

impl Key {
    fn of_process(process: &str) -> io::Result<Self> {
        let mount = fs::metadata(format!("/proc/{process}/ns/mnt"))?.ino();
        let root = fs::metadata(format!("/proc/{process}/root"))?;
        Ok(Self { mount, root: (root.dev(), root.ino()) })
    }
}

fn pid_namespace(pid: u32) -> Option<u64> {
    Some(fs::metadata(format!("/proc/{pid}/ns/pid")).ok()?.ino())
}

/// Returns the id of a process in its own pid namespace.
fn pid_inside(pid: u32) -> Option<u32> {
    let status = read(format!("/proc/{pid}/status"))?;
    let status = String::from_utf8_lossy(&status);
    let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    ids.split_whitespace().last()?.parse().ok()
}

fn read(path: impl AsRef<Path>) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(path).ok()?.take(MOST_BYTES).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// Returns the control group of a process: that of version 2, or that of the memory controller where
/// version 2 has only its root.
fn cgroup(pid: u32) -> Option<String> {
    let text = read(format!("/proc/{pid}/cgroup"))?;
    let text = String::from_utf8_lossy(&text).into_owned();
    let groups = || text.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
    let is_deep = |(_, path): &(&str, &str)| *path != "/";
    let of_memory = |(controllers, _): &(&str, &str)| {
        controllers.is_empty() || controllers.split(',').any(|own| own == "memory")
    };
    let group = groups()
        .filter(of_memory)
        .find(is_deep)
        .or_else(|| groups().find(is_deep))
        .or_else(|| groups().next());
    group.map(|(_, path)| path.to_owned())
}

/// Returns the process through which a namespace is looked at: the first process of a container,
/// which has the id 1 in its pid namespace; else the oldest.
fn first_of(pids: &[u32], outside: &Outside) -> u32 {
    let is_first = |((_, inside), pid): &(&(u64, u32), &u32)| *inside == 1 && pids.contains(pid);
    let first = outside.iter().filter(is_first).map(|(_, pid)| *pid).min();
    first.or_else(|| pids.first().copied()).unwrap_or_default()
}

/// Looks at a namespace in a thread of its own, which is left behind if the namespace does not
/// answer: its file systems may be those of processes that never do.
fn answer(
    mount: u64,
    is_own: bool,
    pids: Vec<u32>,
    seen: &Arc<Mutex<HashSet<(u64, u64)>>>,
    outside: &Outside,
) -> Namespace {
    let pid = first_of(&pids, outside);
    let program = read(format!("/proc/{pid}/comm")).unwrap_or_default();
    let mut namespace = Namespace {
        mount,
        is_own,
        pid,
        pid_inside: pid_inside(pid),
        pid_namespace: pid_namespace(pid),
        program: String::from_utf8_lossy(&program).trim_end_matches('\n').to_owned(),
        cgroup: cgroup(pid),
        sessions: Vec::new(),
        notes: Vec::new(),
    };
    let (answers, answered) = mpsc::channel();
    let (seen, outside) = (Arc::clone(seen), outside.clone());
    let looking = thread::Builder::new().spawn(move || {
        let mut search =
            Search { pid, is_own, seen, outside, found: Vec::new(), notes: Vec::new() };
        // The process may have ended meanwhile.
        if let Err(error) = search.look(&pids)
            && error.kind() != ErrorKind::NotFound
        {
            search.notes.push(format!("its root cannot be opened: {error}"));
        }
        // Nobody waits for it any more if it took too long.
        let _ = answers.send((search.found, search.notes));
    });
    let done = looking.map(|_| answered.recv_timeout(PATIENCE));
    match done {
        Ok(Ok((sessions, notes))) => (namespace.sessions, namespace.notes) = (sessions, notes),
        Ok(Err(_)) => namespace.notes.push(format!(
            "a file system in it did not answer in {} s; nothing of it is listed",
            PATIENCE.as_secs()
        )),
        Err(error) => namespace.notes.push(format!("no thread: {error}")),
    }
    namespace
}

/// The search of one namespace.
struct Search {
    pid: u32,
    is_own: bool,
    /// The folders of sessions that are in some namespace that was searched: file systems may be
    /// mounted in several.
    seen: Arc<Mutex<HashSet<(u64, u64)>>>,
    outside: Outside,
    found: Vec<Found>,
    notes: Vec<String>,
}

impl Search {
    fn look(&mut self, pids: &[u32]) -> io::Result<()> {
        let root = Root::of_process(self.pid)?;
        let (mut places, has_more) = places(&root, pids);
        if has_more {
            self.notes.push(format!("it has more than {MOST_PLACES} places; others are left out"));
        }
        while let Some(place) = places.pop_first() {
            if let Err(error) = self.place(&root, &place)
                && !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
            {
                self.notes.push(format!("{}: {error}", self.outer(&place).display()));
            }
        }
        Ok(())
    }

    /// Returns the path by which this process reaches a path in the root.
    fn outer(&self, inner: &Path) -> PathBuf {
        let inner = inner.strip_prefix("/").unwrap_or(inner);
        match self.is_own {
            true => Path::new("/").join(inner),
            false => PathBuf::from(format!("/proc/{}/root", self.pid)).join(inner),
        }
    }

    fn place(&mut self, root: &Root, place: &Path) -> io::Result<()> {
        let base = root.folder(place)?;
        let is_new = |seen: &Mutex<HashSet<_>>| {
            seen.lock().unwrap_or_else(PoisonError::into_inner).insert(base.identity)
        };
        if !is_new(&self.seen) {
            return Ok(());
        }
        base.check(0o022)?;
        let (names, has_more) = base.names()?;
        let names = names.into_iter().filter(|name| is_session_folder(name));
        for name in names {
            if self.found.len() >= MOST_SESSIONS {
                self.notes.push(format!("it has more than {MOST_SESSIONS} sessions"));
                break;
            }
            let path = self.outer(&place.join(&name));
            match session(&base, &path, &name, &self.outside) {
                Ok(found) => self.found.push(found),
                // It was removed meanwhile.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => self.notes.push(format!("{}: {error}", path.display())),
            }
        }
        if has_more {
            self.notes.push(format!("{}: not all entries were read", self.outer(place).display()));
        }
        Ok(())
    }
}

/// Returns the places in a root where sessions may be: the default ones, and those that the
/// environment of processes names. There may be more than are returned.
fn places(root: &Root, pids: &[u32]) -> (BTreeSet<PathBuf>, bool) {
    let mut places = BTreeSet::new();
    let names = |path: &str| {
        root.folder(Path::new(path)).and_then(|folder| folder.names()).unwrap_or_default().0
    };
    let is_base = |name: &PathBuf| name.as_os_str().as_bytes().starts_with(b"lastwords-");
    let in_shm = names("dev/shm").into_iter().filter(is_base);
    let in_run = names("run/user").into_iter();
    let by_default = in_shm
        .map(|name| Path::new("/dev/shm").join(name))
        .chain(in_run.map(|name| Path::new("/run/user").join(name).join("lastwords")));
    let environments = pids.iter().filter_map(|pid| read(format!("/proc/{pid}/environ")));
    let named = environments.flat_map(|variables| named_places(&variables));
    for place in by_default.chain(named) {
        if places.len() >= MOST_PLACES && !places.contains(&place) {
            return (places, true);
        }
        places.insert(place);
    }
    (places, false)
}

/// Returns the folders that an environment names.
fn named_places(environment: &[u8]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for variable in environment.split(|byte| *byte == 0) {
        for (name, below) in VARIABLES {
            let value =
                variable.strip_prefix(name.as_bytes()).and_then(|rest| rest.strip_prefix(b"="));
            let Some(value) = value else { continue };
            let folder = Path::new(OsStr::from_bytes(value));
            if folder.is_absolute() {
                found.push(if below.is_empty() { folder.to_owned() } else { folder.join(below) });
            }
        }
    }
    found
}

/// Reads the session in a folder of `base`. `path` is shown.
fn session(base: &OwnedFolder, path: &Path, name: &Path, outside: &Outside) -> io::Result<Found> {
    let folder = base.folder(name)?;
    folder.check(0o077)?;
    let shown = path.join("session").display().to_string();
    let is_cut = folder.file(Path::new(ENDED_EARLY)).is_ok();
    let details = |view: &SessionRegion| details(view, is_cut);
    let details = match folder.file(Path::new("session")) {
        Ok(file) => look_at_copy(file.into(), &shown, details).map_err(|error| error.to_string()),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(elsewhere(&folder, outside)),
        Err(error) => Err(format!("its file `session`: {error}")),
    };
    let pids = details.iter().flat_map(|details| &details.processes);
    let pids =
        pids.filter_map(|own| Some((own.pid, *outside.get(&(own.namespace, own.pid))?))).collect();
    let name = name_of(&name.to_string_lossy()).to_owned();
    let summary =
        Summary { folder: path.to_owned(), name, details, gone_with: None, notes: Vec::new() };
    Ok(Found { summary, owner: folder.owner, pids })
}

/// Says where the memory of a session is that is not in files of its folder.
fn elsewhere(folder: &OwnedFolder, outside: &Outside) -> String {
    let none = || "the folder has no region of a session".to_owned();
    let Ok(file) = folder.file(Path::new(PLACES_FILE)) else { return none() };
    let mut text = String::new();
    if file.take(MOST_BYTES).read_to_string(&mut text).is_err() {
        return none();
    }
    let places = lastwords_folders::parse_places(&text);
    let owner = places.first().and_then(|place| {
        let rest =
            place.path.strip_prefix("heap:").or_else(|| place.path.strip_prefix("/proc/"))?;
        rest.split([':', '/']).next()?.parse::<u32>().ok()
    });
    let Some(inside) = owner else { return none() };
    // The text does not say which pid namespace it is, so that there may be several.
    let mut here: Vec<u32> =
        outside.iter().filter(|((_, own), _)| *own == inside).map(|(_, pid)| *pid).collect();
    here.sort_unstable();
    let advice = match here.as_slice() {
        [] if outside.is_empty() => "`lastwords report --pid PID` reads it".to_owned(),
        [] => "which is gone: give a core of it".to_owned(),
        [pid] => format!("`lastwords report --pid {pid}` reads it"),
        several => format!("one of {several:?} here; `lastwords report --pid PID` reads it"),
    };
    format!("its memory is in process {inside} of its namespace; {advice}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_environment_names_folders() {
        let named = |text: &str| named_places(text.as_bytes());
        assert_eq!(
            named("A=/x\0LASTWORDS_DIR=/words\0XDG_RUNTIME_DIR=/run/user/7\0"),
            [PathBuf::from("/words"), PathBuf::from("/run/user/7/lastwords")]
        );
        for none in ["", "LASTWORDS_DIR=\0", "LASTWORDS_DIR=here\0", "LASTWORDS_DIRECTORY=/x\0"] {
            assert_eq!(named(none), Vec::<PathBuf>::new(), "{none:?}");
        }
    }

    #[test]
    fn this_process_is_in_its_own_namespace() {
        let found = list().expect("/proc");
        let own = found.all.first().expect("a namespace");
        assert!(own.is_own && found.all.iter().filter(|other| other.is_own).count() == 1);
        let mount = fs::metadata("/proc/self/ns/mnt").expect("it is there").ino();
        assert_eq!(own.mount, mount);
    }
}

//! Finds where traces may be: at paths, in folders and in processes.

use crate::fired::{SNAPSHOT_FILE, SNAPSHOT_TRACE};
use crate::sniff;
use anyhow::{Context, bail};
use lastwords_ctf::read::is_trace;
use lastwords_folders::{PLACES_FILE, is_session_folder, parse_places};
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::os::fd::IntoRawFd as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// The largest places file that is read, in bytes.
const LONGEST: u64 = 1 << 20;

/// The deepest nesting of folders that is searched.
const DEPTH_MAX: usize = 32;

/// The kinds of a location, which determine how it is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LocationKind {
    /// A session's folder, or its memory elsewhere.
    Session,
    /// A file. Its kind is found when it is opened.
    File,
    /// The parts of one split dump.
    Split,
    /// A folder with shared memory of LTTng's user-space tracer.
    Lttng,
    /// A folder of CTF traces.
    Ctf,
    /// The folder of a trace instance of the running kernel in tracefs, or its top folder.
    Instance,
}

/// What is equal for locations of the same file or folder.
pub(super) type Key = (Option<String>, Vec<PathBuf>);

/// Something to be opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Location {
    /// The path that is printed for people.
    pub(super) shown: PathBuf,
    /// The paths that are opened: one path, or each part of a split dump.
    pub(super) open: Vec<PathBuf>,
    /// The kind of the location.
    pub(super) kind: LocationKind,
    /// The unique part of the name of the session's folder. It is checked if the opened memory may
    /// belong to another session by now.
    pub(super) unique: Option<String>,
}

impl Location {
    fn new(path: &Path, kind: LocationKind) -> Self {
        Self { shown: path.to_path_buf(), open: vec![path.to_path_buf()], kind, unique: None }
    }

    /// Returns the path that is opened.
    pub(super) fn path(&self) -> &Path {
        self.open.first().map_or(&self.shown, PathBuf::as_path)
    }

    pub(super) fn key(&self) -> Key {
        let real = |path: &PathBuf| path.canonicalize().unwrap_or_else(|_| path.clone());
        (self.unique.clone(), self.open.iter().map(real).collect())
    }
}

/// A location for an input, or the reason why there is none.
#[derive(Debug)]
pub(super) struct Candidate {
    /// The location.
    pub(super) location: anyhow::Result<Location>,
    /// The location was named. Otherwise it was found in a folder that was named.
    pub(super) is_named: bool,
}

impl Candidate {
    pub(super) fn named(location: anyhow::Result<Location>) -> Self {
        Self { location, is_named: true }
    }

    fn found(location: anyhow::Result<Location>) -> Self {
        Self { location, is_named: false }
    }

    /// Makes a candidate of the parts of one dump.
    pub(super) fn split(parts: Vec<PathBuf>) -> Self {
        let shown = parts.first().cloned().unwrap_or_default();
        Self::named(Ok(Location { shown, open: parts, kind: LocationKind::Split, unique: None }))
    }

    fn kind(&self) -> Option<LocationKind> {
        self.location.as_ref().ok().map(|location| location.kind)
    }

    pub(super) fn is_nothing(&self) -> bool {
        self.location.as_ref().is_err_and(|error| error.is::<NothingToRecover>())
    }
}

/// An error: the input has nothing to recover, by its kind and not because of damage.
#[derive(Debug)]
pub(super) struct NothingToRecover(String);

impl NothingToRecover {
    pub(super) fn error(why: String) -> anyhow::Error {
        anyhow::Error::from(Self(why))
    }
}

impl std::fmt::Display for NothingToRecover {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NothingToRecover {}

/// Returns the locations of a path. Remarks are added to `notes`.
pub(super) fn of_path(path: &Path, notes: &mut Vec<String>) -> Vec<Candidate> {
    let shown = path.display();
    let named = |error| vec![Candidate::named(Err(error))];
    match std::fs::metadata(path) {
        Ok(meta) if meta.is_dir() => of_whole_folder(path, notes),
        Ok(meta) if meta.file_type().is_fifo() || meta.file_type().is_socket() => {
            named(anyhow::anyhow!(
                "{shown}: a pipe, in which no place can be looked up; write it into a file and name that"
            ))
        }
        Ok(_) => vec![Candidate::named(Ok(Location::new(path, LocationKind::File)))],
        Err(error) => named(anyhow::Error::from(error).context(format!("{shown}: cannot be read"))),
    }
}

/// Returns the locations in a folder that was named. A note lists entries that are not followed.
pub(super) fn of_whole_folder(folder: &Path, notes: &mut Vec<String>) -> Vec<Candidate> {
    let mut others = Vec::new();
    let found = of_folder(folder, Candidate::named, 0, &mut others);
    // A folder that is opened as one session reports its own entries.
    let is_one =
        |location: &Location| location.kind == LocationKind::Session && location.path() == folder;
    let is_session = found.iter().any(|candidate| candidate.location.as_ref().is_ok_and(is_one));
    if let Some((first, rest)) = others.split_first().filter(|_| !is_session) {
        let more =
            if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
        notes.push(format!(
            "skipped: {}{more}: links, pipes, sockets and devices in a folder are not followed; name those that you want to read",
            first.display()
        ));
    }
    found
}

/// Returns true if a folder is a trace instance of a running kernel, or the top folder of its
/// tracefs.
#[must_use]
pub fn is_instance(folder: &Path) -> bool {
    folder.join("per_cpu").is_dir() && folder.join("tracing_on").is_file()
}

/// Returns the locations in a folder. If the folder is opened as a whole, `as_one` makes its
/// candidate. Entries that are neither files nor folders are added to `others`.
fn of_folder(
    folder: &Path,
    as_one: fn(anyhow::Result<Location>) -> Candidate,
    depth: usize,
    others: &mut Vec<PathBuf>,
) -> Vec<Candidate> {
    if std::fs::symlink_metadata(folder.join(PLACES_FILE)).is_ok_and(|meta| meta.is_file()) {
        return match places_of_folder(folder) {
            Ok(places) => places.into_iter().map(|location| as_one(Ok(location))).collect(),
            Err(error) => vec![as_one(Err(error))],
        };
    }
    if is_instance(folder) {
        return vec![as_one(Ok(Location::new(folder, LocationKind::Instance)))];
    }
    let Listed { files, folders, others: mut odd } = match listed(folder) {
        Ok(listed) => listed,
        Err(error) => return vec![as_one(Err(error))],
    };
    let whole = |kind| vec![as_one(Ok(Location::new(folder, kind)))];
    let is_ctf = folder.join("metadata").is_file() && is_trace(folder);
    // The streams of a folder of CTF may have the names of a session's.
    let is_session =
        |file: &PathBuf| is_region(file) && sniff::of_file(file) != Some(sniff::Kind::CtfStream);
    if !is_ctf && files.iter().any(is_session) {
        return whole(LocationKind::Session);
    }
    let kinds: Vec<Option<sniff::Kind>> = files.iter().map(|file| sniff::of_file(file)).collect();
    if kinds.contains(&Some(sniff::Kind::Lttng)) {
        return whole(LocationKind::Lttng);
    }
    if is_ctf {
        return whole(LocationKind::Ctf);
    }
    others.append(&mut odd);
    let has_session = folders.iter().any(|folder| is_likely(folder));
    let mut found = Vec::new();
    let has_streams = kinds.contains(&Some(sniff::Kind::CtfStream));
    found.extend(has_streams.then(|| undescribed(folder, as_one)));
    for (path, kind) in files.iter().zip(kinds) {
        if has_streams && (kind == Some(sniff::Kind::CtfStream) || path.ends_with("metadata")) {
            continue;
        }
        found.push(match kind {
            Some(kind) if kind.is_input() => {
                Candidate::found(Ok(Location::new(path, LocationKind::File)))
            }
            _ if has_session => stray(path, "it is not the folder of a session"),
            kind => stray(
                path,
                &format!("{}; there is nothing to recover in it", sniff::sentence(kind)),
            ),
        });
    }
    for path in &folders {
        if depth >= DEPTH_MAX {
            let why =
                anyhow::anyhow!("{}: too deep in other folders to be searched", path.display());
            found.push(Candidate::found(Err(why)));
            continue;
        }
        let inside = of_folder(path, Candidate::found, depth.saturating_add(1), others);
        // The folder has another trace, or something damaged.
        let is_other = |candidate: &Candidate| match candidate.kind() {
            Some(kind) => kind != LocationKind::Session,
            None => !candidate.is_nothing(),
        };
        match has_session && !is_likely(path) && !inside.iter().any(is_other) {
            true => found.push(stray(path, "it is not the folder of a session")),
            false => found.extend(inside),
        }
    }
    let kinds: Vec<LocationKind> = found.iter().filter_map(Candidate::kind).collect();
    match kinds.first() {
        // The folders of one trace are opened together. What cannot be opened is reported
        // separately.
        Some(kind @ (LocationKind::Lttng | LocationKind::Ctf))
            if kinds.iter().all(|other| other == kind) && !(has_streams && kinds.len() > 1) =>
        {
            found.retain(|candidate| candidate.location.is_err() && !candidate.is_nothing());
            whole(*kind).into_iter().chain(found).collect()
        }
        None if !found.iter().all(Candidate::is_nothing) => found,
        None if depth == 0 || is_likely(folder) => whole(LocationKind::Session),
        None => vec![stray(folder, "nothing in it can be recovered")],
        _ => found,
    }
}

/// Makes the candidate of a folder that has streams of CTF, but no metadata, or metadata with an
/// unknown beginning.
fn undescribed(folder: &Path, as_one: fn(anyhow::Result<Location>) -> Candidate) -> Candidate {
    let metadata = folder.join("metadata");
    if metadata.is_file() {
        return as_one(Ok(Location::new(folder, LocationKind::Ctf)));
    }
    let path = metadata.display();
    let why = anyhow::anyhow!(
        "{path}: it is missing, and nothing else describes the streams of CTF beside it"
    );
    Candidate::found(Err(why))
}

fn stray(path: &Path, what: &str) -> Candidate {
    Candidate::found(Err(NothingToRecover::error(format!("{}: {what}", path.display()))))
}

/// The entries of a folder that are not hidden, in order.
#[derive(Default)]
struct Listed {
    files: Vec<PathBuf>,
    folders: Vec<PathBuf>,
    /// Entries of other kinds: links, pipes, sockets, devices.
    others: Vec<PathBuf>,
}

fn listed(folder: &Path) -> anyhow::Result<Listed> {
    let entries = std::fs::read_dir(folder)
        .with_context(|| format!("{}: cannot be read", folder.display()))?;
    let mut found = Listed::default();
    for entry in entries
        .filter_map(Result::ok)
        .filter(|entry| !entry.file_name().as_encoded_bytes().starts_with(b"."))
    {
        match entry.file_type() {
            Ok(kind) if kind.is_file() => found.files.push(entry.path()),
            Ok(kind) if kind.is_dir() => found.folders.push(entry.path()),
            _ => found.others.push(entry.path()),
        }
    }
    // The account of a kernel's snapshot belongs to the trace beside it.
    if found.files.iter().any(|file| file.ends_with(SNAPSHOT_TRACE)) {
        found.files.retain(|file| !file.ends_with(SNAPSHOT_FILE));
    }
    [&mut found.files, &mut found.folders, &mut found.others]
        .into_iter()
        .for_each(|paths| paths.sort());
    Ok(found)
}

/// Returns true if a file has the name of a session's region.
fn is_region(file: &Path) -> bool {
    let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    matches!(name, "session" | "registry" | "spans") || name.starts_with("stream-")
}

/// Returns true if a folder has the name or the files of a session's folder. If it cannot be
/// opened, that is a loss.
pub(super) fn is_likely(folder: &Path) -> bool {
    is_session_folder(folder)
        || folder.join(PLACES_FILE).is_file()
        || listed(folder).is_ok_and(|listed| listed.files.iter().any(|file| is_region(file)))
}

/// Returns the locations that the places file of a session's folder names: a memfd of a process, a
/// device. If the folder belongs to another user, only what belongs to that user is followed: see
/// [`trusted`].
fn places_of_folder(folder: &Path) -> anyhow::Result<Vec<Location>> {
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
        places.push(Location {
            shown: folder.to_path_buf(),
            open: vec![open],
            kind: LocationKind::Session,
            unique: unique.clone(),
        });
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
    Ok(paths
        .iter()
        .map(|path| Candidate::named(Ok(Location::new(path, LocationKind::Session))))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(folder: &Path) -> Vec<Candidate> {
        of_folder(folder, Candidate::named, 0, &mut Vec::new())
    }

    fn shown(folder: &Path) -> Vec<PathBuf> {
        of(folder)
            .into_iter()
            .filter_map(|candidate| candidate.location.ok())
            .map(|location| location.shown)
            .collect()
    }

    fn session(folder: &Path) {
        std::fs::create_dir(folder).unwrap();
        std::fs::write(folder.join("session"), b"x").unwrap();
    }

    #[test]
    fn a_folder_with_rings_and_a_switch_is_an_instance() {
        let dir = tempfile::tempdir().unwrap();
        let instance = dir.path().join("boot_map");
        std::fs::create_dir_all(instance.join("per_cpu/cpu0")).unwrap();
        assert_ne!(of(&instance).first().and_then(Candidate::kind), Some(LocationKind::Instance));
        std::fs::write(instance.join("tracing_on"), b"1\n").unwrap();
        let found = of(&instance);
        assert_eq!((found.len(), found[0].kind()), (1, Some(LocationKind::Instance)));
    }

    /// Some producers leave out the comment that TSDL begins with, and the magic number of packets.
    #[test]
    fn a_folder_with_tsdl_is_a_trace_also_without_marks() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("stream"), [1, 2, 3]).unwrap();
        let kind = |text: &str| {
            std::fs::write(dir.path().join("metadata"), text).unwrap();
            of(dir.path()).first().and_then(Candidate::kind)
        };
        for text in [
            "trace { major = 1; };",
            "// by hand\n/* two\nlines */ typealias integer { size = 8; } := u8;",
        ] {
            assert_eq!(kind(text), Some(LocationKind::Ctf), "{text}");
        }
        for text in ["trace of a murder {", "/* trace {", "events {", "structure x"] {
            assert_ne!(kind(text), Some(LocationKind::Ctf), "{text}");
        }
    }

    #[test]
    fn a_folder_of_sessions_is_its_sessions() {
        let dir = tempfile::tempdir().unwrap();
        ["b-0", "a-0", ".new-0"].iter().for_each(|name| session(&dir.path().join(name)));
        std::fs::write(dir.path().join(".lock"), b"").unwrap();
        assert_eq!(shown(dir.path()), [dir.path().join("a-0"), dir.path().join("b-0")]);
        assert_eq!(of(&dir.path().join("a-0")).len(), 1);
        // Other entries have nothing to recover. A folder with the name of a session's folder
        // should have something.
        std::fs::write(dir.path().join("README"), b"").unwrap();
        std::fs::create_dir(dir.path().join("notes")).unwrap();
        std::fs::create_dir(dir.path().join("c-0123456789abcdef")).unwrap();
        assert_eq!(
            shown(dir.path()),
            ["a-0", "b-0", "c-0123456789abcdef"].map(|name| dir.path().join(name))
        );
        let stray: Vec<anyhow::Error> =
            of(dir.path()).into_iter().filter_map(|found| found.location.err()).collect();
        assert!(
            stray.len() == 2 && stray.iter().all(|error| error.is::<NothingToRecover>()),
            "{stray:?}"
        );
        // A session's folder is opened as one session, even if it contains another.
        session(&dir.path().join("a-0/out"));
        assert_eq!(shown(&dir.path().join("a-0")), [dir.path().join("a-0")]);
    }

    #[test]
    fn memory_that_is_elsewhere_is_followed_or_said_to_be_gone() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("app-0123456789abcdef");
        std::fs::create_dir(&folder).unwrap();
        let write = |text: &str| std::fs::write(folder.join(PLACES_FILE), text).unwrap();
        let error = || of(&folder).pop().unwrap().location.unwrap_err();
        write("session 0 4096 /proc/self/exe\nregistry 4096 4096 /proc/self/exe\n");
        let places = of(&folder);
        assert_eq!(places.len(), 1);
        assert_eq!(
            places[0].location.as_ref().unwrap().unique.as_deref(),
            Some("0123456789abcdef")
        );
        // For several regions on a heap, the process is opened once.
        write("session 0 4096 heap:1:0x1000\nregistry 0 4096 heap:1:0x9000\n");
        let places = of(&folder);
        assert_eq!(
            (places.len(), places[0].location.as_ref().unwrap().path()),
            (1, Path::new("/proc/1/mem"))
        );
        write("session 0 4096 heap:0:0x1000\n");
        assert!(
            error().to_string().contains("were in /proc/0/mem, which is gone")
                && error().is::<NothingToRecover>()
        );
        write("session 0 4096 /proc/0/fd/3\n");
        assert!(error().to_string().contains("which is gone") && error().is::<NothingToRecover>());
        write("");
        assert!(!error().is::<NothingToRecover>());
    }

    #[test]
    fn a_process_with_the_rights_of_another_is_not_its_users() {
        assert!(runs_as("Name:\tx\nUid:\t1000\t1000\t1000\t1000\nGid:\t0\t0\t0\t0\n", 1000));
        for users in ["1000 0 0 0", "0 1000 1000 1000", "1000 1000 0 1000", "1000 x"] {
            assert!(!runs_as(&format!("Uid:\t{users}\n"), 1000), "{users}");
        }
        assert!(!runs_as("Name:\tx\n", 1000));
    }

    /// Root reads another user's folder. The folder names memory that does not belong to that user.
    #[test]
    fn another_users_folder_leads_to_nothing_but_that_users() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("app-0123456789abcdef");
        std::fs::create_dir(&folder).unwrap();
        let (secret, own) = (dir.path().join("secret"), dir.path().join("own"));
        let give = |path: &Path| std::os::unix::fs::chown(path, Some(65534), None).unwrap();
        for file in [&secret, &own] {
            std::fs::write(file, [0; 4096]).unwrap();
        }
        std::os::unix::fs::symlink(&secret, dir.path().join("link")).unwrap();
        give(&own);
        give(&folder);
        let places = folder.join(PLACES_FILE);
        let lead = |to: &str| {
            std::fs::write(&places, format!("session 0 4096 {to}\n")).unwrap();
            give(&places);
            of(&folder).pop().unwrap().location
        };
        let hostile = [
            format!("heap:{}:0x0", std::process::id()),
            "/proc/1/mem".to_owned(),
            "/proc/1/fd/0".to_owned(),
            "/dev/zero".to_owned(),
            "/proc/version".to_owned(),
            secret.display().to_string(),
            dir.path().join("link").display().to_string(),
        ];
        for location in &hostile {
            let error = format!("{:#}", lead(location).unwrap_err());
            assert!(error.contains("not followed"), "{location}: {error}");
        }
        let open = lead(&own.display().to_string()).unwrap();
        assert_eq!(std::fs::read(open.path()).unwrap().len(), 4096);
    }
}

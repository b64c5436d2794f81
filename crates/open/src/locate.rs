//! Finds where traces may be: at paths, in folders and in processes.

use crate::candidate::Candidate;
use crate::reason::NothingToRecover;

use crate::inside_root;
use crate::places;
use crate::source::{Beginning, CTF, Folder, LTTNG, Location, Place, SESSION, is_region, sentence};
use lastwords_folders::{PLACES_FILE, inside, is_session_folder};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

/// The deepest nesting of folders that is searched.
const DEPTH_MAX: usize = 32;

/// Returns the locations of a path. Remarks are added to `notes`.
pub(super) fn of_path(path: &Path, notes: &mut Vec<String>) -> Vec<Candidate> {
    if let Some((pid, rest)) = inside::split(path) {
        return inside_root::of_path(path, (pid, rest), notes);
    }
    let shown = path.display();
    let named = |error| vec![Candidate::named(Err(error)).at(path)];
    match std::fs::metadata(path) {
        Ok(meta) if meta.is_dir() => of_whole_folder(path, notes),
        Ok(meta) if meta.file_type().is_fifo() || meta.file_type().is_socket() => {
            named(anyhow::anyhow!(
                "{shown}: a pipe, in which no place can be looked up; write it into a file and name that"
            ))
        }
        Ok(_) => vec![Candidate::named(Ok(Location::new(path, None)))],
        Err(error) => named(anyhow::Error::from(error).context(format!("{shown}: cannot be read"))),
    }
}

/// Returns the locations in a folder that was named. A note lists entries that are not followed.
pub(super) fn of_whole_folder(folder: &Path, notes: &mut Vec<String>) -> Vec<Candidate> {
    let mut others = Vec::new();
    let found = of_folder(folder, Candidate::named, 0, &mut others);
    // A folder that is opened as one session reports its own entries.
    let is_one = |location: &Location| location.is_of(&SESSION) && location.path() == folder;
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

/// Returns the locations in a folder. If the folder is opened as a whole, `as_one` makes its
/// candidate. Entries that are neither files nor folders are added to `others`.
fn of_folder(
    folder: &Path,
    as_one: fn(anyhow::Result<Location>) -> Candidate,
    depth: usize,
    others: &mut Vec<PathBuf>,
) -> Vec<Candidate> {
    if std::fs::symlink_metadata(folder.join(PLACES_FILE)).is_ok_and(|meta| meta.is_file()) {
        return match places::of_folder(folder) {
            Ok(places) => places.into_iter().map(|location| as_one(Ok(location))).collect(),
            Err(error) => vec![as_one(Err(error)).at(folder)],
        };
    }
    let mut looked = match Folder::look(folder) {
        Ok(looked) => looked,
        Err(error) => return vec![as_one(Err(error)).at(folder)],
    };
    let whole = |source| vec![as_one(Ok(Location::new(folder, Some(source))))];
    if let Some(source) = Place::of_folder(&looked) {
        return whole(source);
    }
    others.append(&mut looked.others);
    in_folder(&looked, as_one, depth, others)
}

/// Returns the locations in a folder that is not opened as a whole.
fn in_folder(
    looked: &Folder,
    as_one: fn(anyhow::Result<Location>) -> Candidate,
    depth: usize,
    others: &mut Vec<PathBuf>,
) -> Vec<Candidate> {
    let (folder, folders) = (&*looked.path, &looked.folders);
    let has_session = folders.iter().any(|folder| is_likely(folder));
    let has_streams = looked.has_files_of(&CTF);
    let mut found = Vec::new();
    found.extend(has_streams.then(|| undescribed(folder, as_one)));
    found.extend(files(looked, has_streams, has_session));
    for path in folders {
        if depth >= DEPTH_MAX {
            let why =
                anyhow::anyhow!("{}: too deep in other folders to be searched", path.display());
            found.push(Candidate::found(Err(why)).at(path));
            continue;
        }
        let inside = of_folder(path, Candidate::found, depth.saturating_add(1), others);
        // The folder has another trace, or something damaged.
        let is_other = |candidate: &Candidate| match candidate.source() {
            Some(source) => source != Some(&SESSION),
            None => !candidate.is_nothing(),
        };
        match has_session && !is_likely(path) && !inside.iter().any(is_other) {
            true => found.push(stray(path, "it is not the folder of a session")),
            false => found.extend(inside),
        }
    }
    as_whole(looked, found, as_one, depth)
}

/// Returns the candidates for the files of a folder.
fn files(looked: &Folder, has_streams: bool, has_session: bool) -> Vec<Candidate> {
    let mut found = Vec::new();
    for (path, beginning) in looked.beginnings() {
        let is_stream = beginning.is_some_and(|own| own.is_of(&CTF)) || path.ends_with("metadata");
        if has_streams && is_stream {
            continue;
        }
        found.push(match beginning {
            Some(beginning) if beginning.is_input() => {
                Candidate::found(Ok(Location::new(path, None)))
            }
            Some(Beginning::Compressed(_)) => {
                let why = format!("{}: {}", path.display(), sentence(*beginning));
                Candidate::found(Err(NothingToRecover::compressed(why))).at(path)
            }
            _ if has_session => stray(path, "it is not the folder of a session"),
            beginning => {
                stray(path, &format!("{}; there is nothing to recover in it", sentence(*beginning)))
            }
        });
    }
    found
}

/// Joins what was found in a folder if it is one trace, or if nothing was found.
fn as_whole(
    looked: &Folder,
    mut found: Vec<Candidate>,
    as_one: fn(anyhow::Result<Location>) -> Candidate,
    depth: usize,
) -> Vec<Candidate> {
    let folder = &*looked.path;
    let whole = |source| as_one(Ok(Location::new(folder, Some(source))));
    let has_streams = looked.has_files_of(&CTF);
    let sources: Vec<_> = found.iter().filter_map(Candidate::source).collect();
    match sources.first() {
        // The folders of one trace are opened together. What cannot be opened is reported
        // separately.
        Some(Some(source))
            if [&LTTNG, &CTF].contains(source)
                && sources.iter().all(|other| *other == Some(source))
                && !(has_streams && sources.len() > 1) =>
        {
            found.retain(|candidate| candidate.location.is_err() && !candidate.is_nothing());
            std::iter::once(whole(source)).chain(found).collect()
        }
        None if !found.iter().all(Candidate::is_nothing) => found,
        None if depth == 0 || is_likely(folder) => vec![whole(&SESSION)],
        None => vec![stray(folder, "nothing in it can be recovered")],
        _ => found,
    }
}

/// Makes the candidate of a folder that has streams of CTF, but no metadata, or metadata with an
/// unknown beginning.
fn undescribed(folder: &Path, as_one: fn(anyhow::Result<Location>) -> Candidate) -> Candidate {
    let metadata = folder.join("metadata");
    if metadata.is_file() {
        return as_one(Ok(Location::new(folder, Some(&CTF))));
    }
    let path = metadata.display();
    let why = anyhow::anyhow!(
        "{path}: it is missing, and nothing else describes the streams of CTF beside it"
    );
    Candidate::found(Err(why)).at(folder)
}

fn stray(path: &Path, what: &str) -> Candidate {
    let why = NothingToRecover::error(format!("{}: {what}", path.display()));
    Candidate::found(Err(why)).at(path)
}

/// Returns true if a folder has the name or the files of a session's folder. If it cannot be
/// opened, that is a loss.
pub(super) fn is_likely(folder: &Path) -> bool {
    is_session_folder(folder)
        || folder.join(PLACES_FILE).is_file()
        || Folder::list(folder).is_ok_and(|listed| listed.files.iter().any(|file| is_region(file)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::INSTANCE;

    fn candidates(folder: &Path) -> Vec<Candidate> {
        of_folder(folder, Candidate::named, 0, &mut Vec::new())
    }

    fn shown(folder: &Path) -> Vec<PathBuf> {
        candidates(folder)
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
        assert_ne!(
            candidates(&instance).first().and_then(Candidate::source).flatten(),
            Some(&INSTANCE)
        );
        std::fs::write(instance.join("tracing_on"), b"1\n").unwrap();
        let found = candidates(&instance);
        assert_eq!((found.len(), found[0].source().flatten()), (1, Some(&INSTANCE)));
    }

    /// Some producers leave out the comment that TSDL begins with, and the magic number of packets.
    #[test]
    fn a_folder_with_tsdl_is_a_trace_also_without_marks() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("stream"), [1, 2, 3]).unwrap();
        let kind = |text: &str| {
            std::fs::write(dir.path().join("metadata"), text).unwrap();
            candidates(dir.path()).first().and_then(Candidate::source).flatten()
        };
        for text in [
            "trace { major = 1; };",
            "// by hand\n/* two\nlines */ typealias integer { size = 8; } := u8;",
        ] {
            assert_eq!(kind(text), Some(&CTF), "{text}");
        }
        for text in ["trace of a murder {", "/* trace {", "events {", "structure x"] {
            assert_ne!(kind(text), Some(&CTF), "{text}");
        }
    }

    #[test]
    fn a_folder_of_sessions_is_its_sessions() {
        let dir = tempfile::tempdir().unwrap();
        ["b-0", "a-0", ".new-0"].iter().for_each(|name| session(&dir.path().join(name)));
        std::fs::write(dir.path().join(".lock"), b"").unwrap();
        assert_eq!(shown(dir.path()), [dir.path().join("a-0"), dir.path().join("b-0")]);
        assert_eq!(candidates(&dir.path().join("a-0")).len(), 1);
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
            candidates(dir.path()).into_iter().filter_map(|found| found.location.err()).collect();
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
        let error = || candidates(&folder).pop().unwrap().location.unwrap_err();
        write("session 0 4096 /proc/self/exe\nregistry 4096 4096 /proc/self/exe\n");
        let places = candidates(&folder);
        assert_eq!(places.len(), 1);
        assert_eq!(
            places[0].location.as_ref().unwrap().unique.as_deref(),
            Some("0123456789abcdef")
        );
        // For several regions on a heap, the process is opened once.
        write("session 0 4096 heap:1:0x1000\nregistry 0 4096 heap:1:0x9000\n");
        let places = candidates(&folder);
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
            candidates(&folder).pop().unwrap().location
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

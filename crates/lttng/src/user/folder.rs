//! Finds streams in the files of a folder, as laid out with `--shm-path`:
//! `ust/uid/0/64-bit/CHANNEL_CPU`, with `metadata` beside them.
//!
//! Each channel has a stream for every possible CPU of the machine. So the existing streams show
//! which are missing: a file that is missing, truncated or damaged is a loss of the session.

use super::find::{Group, METADATA_MAX, Sessions, session};
use super::stream::{self, Lack, Raw};
use crate::Metadata;
use lastwords_bytes::{Budget, Error, ErrorKind, irregular};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Most files that are read, and greatest depth of folders.
const FILES_MAX: usize = 1 << 16;
const DEPTH_MAX: usize = 8;
/// Greatest number of CPUs of a Linux kernel (`NR_CPUS`).
const CPUS_MAX: u32 = 1 << 13;

/// The files of one folder.
#[derive(Default)]
struct Files {
    streams: Vec<(String, Raw)>,
    /// Names of files that are no streams.
    other: Vec<String>,
    /// Paths of files that begin like a stream but cannot be read as a stream, with the reasons.
    bad: BTreeMap<String, String>,
}

/// Finds all streams below a folder; each folder with streams is one trace.
///
/// # Errors
/// The folder cannot be read, or the budget is spent.
pub fn folder(root: &Path, budget: &Budget) -> Result<Sessions, Error> {
    let mut paths = Vec::new();
    list(root, 0, &mut paths, budget)?;
    paths.sort();
    let mut folders: BTreeMap<PathBuf, Files> = BTreeMap::new();
    for path in paths {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { continue };
        let name = name.to_string_lossy().into_owned();
        let files = folders.entry(parent.to_path_buf()).or_default();
        match of_file(&path, budget) {
            Ok(Some(raw)) => files.streams.push((name, raw)),
            Ok(None) => files.other.push(name),
            Err(error) if error.kind == ErrorKind::Budget => return Err(error),
            Err(error) => drop(files.bad.insert(name, format!("{error}; {}", size(&path)))),
        }
    }
    let mut found = Sessions::default();
    for (folder, files) in folders {
        let mut metadata = Metadata::default();
        if !files.streams.is_empty() {
            match read_metadata(&folder.join("metadata"), budget) {
                Ok(read) => metadata = read,
                Err(error) => found.notes.push(error.to_string()),
            }
        }
        let lost = lost(&folder, &files, metadata.channels());
        let (name, below) = names(root, &folder);
        session(
            Group { streams: files.streams, metadata, name, folder: below, lost },
            &mut found,
            budget,
        )?;
    }
    Ok(found)
}

/// Returns messages about streams that the other streams imply but that are missing or unreadable.
/// `described` is the number of channels in the metadata.
fn lost(folder: &Path, files: &Files, described: usize) -> Vec<String> {
    let mut lost = files.bad.clone();
    let mut channels: BTreeMap<&str, u64> = BTreeMap::new();
    let mut there: BTreeSet<&str> = BTreeSet::new();
    for (file, raw) in &files.streams {
        let (channel, cpu) = of_cpu(file).unwrap_or((file, 0));
        if raw.stream.cpu.is_none_or(|own| own == cpu) {
            channels.entry(channel).or_insert(raw.length);
            there.insert(file);
        }
    }
    let all = there.iter().copied().chain(files.bad.keys().chain(&files.other).map(String::as_str));
    let of_channels = all.filter_map(of_cpu).filter(|(channel, _)| channels.contains_key(channel));
    let cpus = of_channels.map(|(_, cpu)| cpu.saturating_add(1)).max().unwrap_or(0);
    for (&channel, need) in channels.iter().filter(|(channel, _)| !there.contains(*channel)) {
        let names = (0..cpus).map(|cpu| format!("{channel}_{cpu}"));
        for file in names.filter(|file| !there.contains(file.as_str())) {
            let path = folder.join(&file);
            lost.entry(file).or_insert_with(|| {
                format!("{}: {}; {need} bytes are needed", path.display(), fault(&path))
            });
        }
    }
    if !channels.is_empty() && channels.len() < described {
        let (folder, found) = (folder.display(), channels.len());
        lost.insert(
            String::new(),
            format!(
                "{folder}: the metadata describe {described} channels; streams of {found} are there"
            ),
        );
    }
    lost.into_values().collect()
}

/// Splits the name of a stream's file into channel and CPU.
fn of_cpu(file: &str) -> Option<(&str, u32)> {
    let (channel, cpu) = file.rsplit_once('_')?;
    Some((channel, cpu.parse().ok().filter(|cpu| *cpu < CPUS_MAX)?))
}

/// Message with the size of a file.
fn size(path: &Path) -> String {
    std::fs::metadata(path)
        .map_or_else(|error| error.to_string(), |meta| format!("the file has {} bytes", meta.len()))
}

/// Message about the file at a path that should be a stream.
fn fault(path: &Path) -> String {
    let meta = match std::fs::symlink_metadata(path) {
        Ok(meta) => meta,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return "no such file".to_owned();
        }
        Err(error) => return error.to_string(),
    };
    if let Some(what) = irregular(meta.file_type()) {
        return what.to_owned();
    }
    match std::fs::File::open(path) {
        Err(error) => error.to_string(),
        Ok(_) => format!("{}, which are no stream's", size(path)),
    }
}

fn list(
    folder: &Path,
    depth: usize,
    files: &mut Vec<PathBuf>,
    budget: &Budget,
) -> Result<(), Error> {
    let name = folder.display().to_string();
    let entries = std::fs::read_dir(folder).map_err(|error| Error::io(&name, 0, &error))?;
    for entry in entries {
        budget.steps(&name, 1)?;
        let entry = entry.map_err(|error| Error::io(&name, 0, &error))?;
        match entry.file_type() {
            // A folder that cannot be read counts as empty.
            Ok(kind) if kind.is_dir() && depth < DEPTH_MAX => {
                let below = list(&entry.path(), depth.saturating_add(1), files, budget);
                below.or_else(
                    |error| if error.kind == ErrorKind::Budget { Err(error) } else { Ok(()) },
                )?;
            }
            Ok(kind) if kind.is_file() && files.len() < FILES_MAX => files.push(entry.path()),
            _ => {}
        }
    }
    Ok(())
}

fn of_file(path: &Path, budget: &Budget) -> Result<Option<Raw>, Error> {
    use std::io::Read;
    let name = path.display().to_string();
    let mut head = [0u8; 16];
    let read = std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut head));
    if read.is_err() || head != super::abi::MAGIC {
        return Ok(None);
    }
    let opened = lastwords_image::open(path, budget, &lastwords_image::unwatched)?;
    let mut raw = stream::read(&name, &opened.image, 0, budget)?;
    let len = opened.image.ranges().last().map_or(0, lastwords_image::Range::end);
    if let Some(raw) = raw.as_mut().filter(|raw| len < raw.length) {
        let words = format!("the file has {len} of {} bytes", raw.length);
        raw.lack = Some(Lack { words, bytes: Some(raw.length.saturating_sub(len)) });
    }
    Ok(raw)
}

fn read_metadata(path: &Path, budget: &Budget) -> Result<Metadata, Error> {
    let name = path.display().to_string();
    let io = |error| Error::io(&name, 0, &error);
    let meta = std::fs::metadata(path).map_err(io)?;
    if let Some(what) = irregular(meta.file_type()) {
        return Err(io(std::io::Error::other(format!("{what}; it is not read"))));
    }
    if meta.len() > METADATA_MAX {
        return Err(Error::value(&name, 0, meta.len(), "at most 256 MiB"));
    }
    budget.bytes(&name, meta.len())?;
    Ok(Metadata::of_file(&std::fs::read(path).map_err(io)?))
}

/// Name of the session, and the folders between its folder and the streams':
/// `SESSION/ust/uid/0/64-bit`.
fn names(root: &Path, folder: &Path) -> (String, String) {
    let absolute = std::path::absolute(root).unwrap_or_else(|_| root.to_path_buf());
    let below = folder.strip_prefix(root).unwrap_or(Path::new(""));
    let whole = absolute.join(below);
    let parts: Vec<String> = whole.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    match parts.iter().rposition(|part| part == "ust") {
        Some(at) if at > 0 => {
            let name = parts.get(at.saturating_sub(1)).cloned().unwrap_or_default();
            (name, parts.get(at.saturating_add(1)..).unwrap_or_default().join("/"))
        }
        _ => (parts.last().cloned().unwrap_or_default(), String::new()),
    }
}

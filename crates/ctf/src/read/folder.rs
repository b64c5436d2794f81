//! Trace folders: finds the traces in a folder, and their metadata and streams.

use super::error::Error;
use super::index;
use super::siblings;
use super::trace::{Stream, Trace, join, name};
use crate::metadata::metadata;
use crate::program::Program;
use lastwords_bytes::{Budget, irregular};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Deepest nesting of folders that is searched.
const MAX_DEPTH: usize = 32;

/// The result of searching a folder.
#[derive(Debug, Default)]
pub struct OpenedFolder {
    /// The traces in the folder.
    pub traces: Vec<Trace>,
    /// Errors of traces, or parts of them, that cannot be read.
    pub faults: Vec<Error>,
}

/// Returns true if the folder, or a folder in it, has a file called `metadata` that begins as CTF
/// metadata does.
#[must_use]
pub fn is_trace(path: &Path) -> bool {
    folders(path).iter().any(|folder| begins_as_metadata(&folder.join("metadata")))
}

/// Number of bytes that show if a file is metadata: comments may come first.
const HEAD: u64 = 1 << 16;

fn begins_as_metadata(path: &Path) -> bool {
    use std::io::Read;
    let mut head = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(HEAD).read_to_end(&mut head));
    let magic = [[0x75, 0xd1, 0x1d, 0x57], [0x57, 0x1d, 0xd1, 0x75]];
    let packets = head.first_chunk::<4>().is_some_and(|first| magic.contains(first));
    read.is_ok() && (packets || head.first() == Some(&0x1e) || begins_as_tsdl(&head))
}

/// Returns true if text is TSDL: it begins with the comment that names CTF, or, as some producers
/// leave that out, with a block or a type after any comments.
fn begins_as_tsdl(text: &[u8]) -> bool {
    const BLOCKS: [&[u8]; 6] = [b"trace", b"env", b"clock", b"stream", b"event", b"callsite"];
    const TYPES: [&[u8]; 5] = [b"typealias", b"typedef", b"struct", b"enum", b"variant"];
    let mut rest = text.trim_ascii_start();
    if rest.starts_with(b"/* CTF") {
        return true;
    }
    while let Some(comment) = rest
        .strip_prefix(b"/*")
        .map(|rest| (rest, &b"*/"[..]))
        .or_else(|| Some((rest.strip_prefix(b"//")?, &b"\n"[..])))
    {
        let (inside, end) = comment;
        let Some(at) = inside.windows(end.len()).position(|window| window == end) else {
            return false;
        };
        rest = inside.get(at.saturating_add(end.len())..).unwrap_or_default().trim_ascii_start();
    }
    let follows = |word: &[u8]| rest.strip_prefix(word);
    BLOCKS
        .iter()
        .filter_map(|word| follows(word))
        .any(|rest| rest.trim_ascii_start().starts_with(b"{"))
        || TYPES
            .iter()
            .filter_map(|word| follows(word))
            .any(|rest| rest.first().is_some_and(u8::is_ascii_whitespace))
}

/// Opens all traces in a folder and the folders in it. `budget` pays for the fields of their
/// metadata and for their packets.
///
/// # Errors
/// The folder cannot be read, or contains no trace.
pub fn open(path: &Path, budget: &Arc<Budget>) -> Result<OpenedFolder, Error> {
    std::fs::read_dir(path).map_err(Error::io(path))?;
    let mut found = OpenedFolder::default();
    let folders = folders(path);
    if folders.is_empty() {
        return Err(Error::metadata(
            &path.join("metadata"),
            0,
            "there is no such file, nor one in a folder below",
        ));
    }
    for folder in folders {
        match open_one(path, &folder, budget, &mut found.faults) {
            Ok(trace) => found.traces.push(trace),
            Err(fault) => found.faults.push(fault),
        }
    }
    let mut spent = None;
    for trace in std::mem::take(&mut found.traces) {
        let mut is_part = |other: &&mut Trace| match other.is_part(&trace, budget) {
            Ok(is_part) => is_part && spent.is_none(),
            Err(error) => {
                spent.get_or_insert(error);
                false
            }
        };
        match found.traces.iter_mut().find(&mut is_part) {
            Some(other) => other.unite(trace),
            None => found.traces.push(trace),
        }
    }
    if let Some(error) = spent {
        let what = format!("{error}; traces of one UUID stay apart");
        found.faults.push(Error::metadata(path, 0, what));
    }
    Ok(found)
}

/// Returns the folders at and under `path` that have a file called `metadata`, in order of their
/// paths.
fn folders(path: &Path) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    let mut left = vec![(path.to_path_buf(), 0)];
    while let Some((folder, depth)) = left.pop() {
        if folder.join("metadata").is_file() {
            folders.push(folder);
            continue;
        }
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        if depth >= MAX_DEPTH {
            continue;
        }
        for entry in entries.flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                left.push((entry.path(), depth.saturating_add(1)));
            }
        }
    }
    folders.sort();
    folders
}

fn open_one(
    root: &Path,
    folder: &Path,
    budget: &Arc<Budget>,
    faults: &mut Vec<Error>,
) -> Result<Trace, Error> {
    let (path, known) = (folder.join("metadata"), faults.len());
    budget.admit(std::fs::metadata(&path).map_or(0, |data| lastwords_bytes::stored(&data)));
    let class = metadata(&path)?;
    faults.extend(class.missing.iter().map(|what| Error::metadata(&path, 0, what.as_str())));
    let program = Program::new(class, budget).map_err(|source| Error::Schema { path, source })?;
    let mut streams: Vec<Stream> = Vec::new();
    // The declaration of the header may be missing.
    let is_headless = program.class().header.is_none();
    faults.extend(index::missing_files(folder, budget));
    for file in data_files(folder, faults)? {
        let index = match index::of_file(&file, &program, budget) {
            Ok(index) => index,
            Err(fault) => {
                faults.push(fault);
                continue;
            }
        };
        faults.extend(index.fault);
        let Some(first) = index.first else { continue };
        if is_headless && index::begins_with_magic(&file) {
            let what = "the metadata do not describe the header with which packets begin";
            faults.push(Error::metadata(&file, 0, what));
            continue;
        }
        let packets = index.entries.into_iter().map(|entry| (0, entry)).collect();
        let stream = Stream {
            class: first.class,
            id: first.stream,
            files: vec![file],
            packets,
            memory: None,
        };
        // Files of one stream can only be ordered by the time of their first packet.
        let same = |other: &&mut Stream| {
            other.class == stream.class
                && other.id.is_some()
                && other.id == stream.id
                && first.begin.is_some()
        };
        match streams.iter_mut().find(same) {
            Some(other) => join(other, stream),
            None => streams.push(stream),
        }
    }
    let name = name(program.class(), folder.strip_prefix(root).unwrap_or(Path::new("")));
    let mut trace = Trace {
        path: folder.to_path_buf(),
        program: Arc::new(program),
        streams,
        account: None,
        is_selected: false,
        is_beside: false,
        unread: 0,
        name,
    };
    faults.extend(siblings::missing_files(&trace));
    trace.unread = faults.len().saturating_sub(known) as u64;
    Ok(trace)
}

/// Returns the files that contain packets, in order of name: all regular files that are neither
/// hidden, nor empty, nor the metadata. Anything else is reported to `faults`, because a stream's
/// file may have been there before. A folder is not reported if it is the index or contains traces.
fn data_files(folder: &Path, faults: &mut Vec<Error>) -> Result<Vec<PathBuf>, Error> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(Error::io(folder))? {
        let entry = entry.map_err(Error::io(folder))?;
        let name = entry.file_name();
        if name == "metadata" || name.as_encoded_bytes().starts_with(b".") {
            continue;
        }
        let path = entry.path();
        match std::fs::metadata(&path)
            .map(|data| (data.len(), data.is_dir(), irregular(data.file_type())))
        {
            Ok((0, _, None)) => {}
            Ok((_, _, None)) => files.push(path),
            Ok((_, true, _)) if name == "index" || !folders(&path).is_empty() => {}
            Ok((_, _, Some(what))) => faults.push(Error::io(&path)(std::io::Error::other(what))),
            Err(error) => faults.push(Error::io(&path)(error)),
        }
    }
    files.sort();
    Ok(files)
}

//! Trace folders: their metadata, their streams, and which folders are parts of one trace.

use super::error::Error;
use super::index::{self, Entry};
use crate::metadata::metadata;
use crate::program::Program;
use lastwords_bytes::irregular;
use lastwords_trace::class::{EventClass, StreamClass, TraceClass};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Deepest nesting of folders that is looked into.
const MAX_DEPTH: usize = 32;

/// A trace: one folder, or several of one identity.
#[derive(Debug)]
pub struct Trace {
    /// The folder of the metadata that counts.
    pub path: PathBuf,
    /// What decodes its packets.
    pub program: Arc<Program>,
    /// Its streams, in order of the path of their first file.
    pub streams: Vec<Stream>,
    /// As babeltrace2 calls a trace: its host, and where its folder stands below the one that was opened, if it is one folder.
    name: String,
}

/// A stream: packets in one or more files.
#[derive(Debug)]
pub struct Stream {
    /// Position of its class.
    pub class: usize,
    /// Id in the class, where packets say one.
    pub id: Option<u64>,
    /// Files.
    pub files: Vec<PathBuf>,
    /// Packets in order of time: the position of their file, and where they stand in it.
    pub packets: Vec<(u32, Entry)>,
}

impl Stream {
    /// Sizes of its packets together.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.packets.iter().map(|(_, entry)| entry.size).fold(0, u64::saturating_add)
    }
}

impl Trace {
    /// Bytes of the packets of all streams.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.streams.iter().map(Stream::bytes).fold(0, u64::saturating_add)
    }

    /// The trace class.
    #[must_use]
    pub fn class(&self) -> &TraceClass {
        self.program.class()
    }

    /// As babeltrace2 calls the trace: its host, and where its folder stands below the one that was opened.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// The name of a trace; `below`: the path from the folder that was opened to its own.
fn name(class: &TraceClass, below: &Path) -> String {
    let parts = [class.text("hostname").unwrap_or_default(), &below.to_string_lossy()];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/")
}

/// What was found in a folder.
#[derive(Debug, Default)]
pub struct Found {
    /// Traces.
    pub traces: Vec<Trace>,
    /// What of them cannot be read.
    pub faults: Vec<Error>,
}

/// Whether a folder, or one in it, has a file called `metadata` that begins as CTF metadata does.
#[must_use]
pub fn is_trace(path: &Path) -> bool {
    folders(path).iter().any(|folder| begins_as_metadata(&folder.join("metadata")))
}

fn begins_as_metadata(path: &Path) -> bool {
    use std::io::Read;
    let mut head = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(64).read_to_end(&mut head));
    let magic = [[0x75, 0xd1, 0x1d, 0x57], [0x57, 0x1d, 0xd1, 0x75]];
    let packets = head.first_chunk::<4>().is_some_and(|first| magic.contains(first));
    read.is_ok() && (packets || head.first() == Some(&0x1e) || head.trim_ascii_start().starts_with(b"/* CTF"))
}

/// Opens all traces in a folder and the folders in it.
///
/// # Errors
/// The folder cannot be read, or has no trace.
pub fn open(path: &Path) -> Result<Found, Error> {
    std::fs::read_dir(path).map_err(Error::io(path))?;
    let mut found = Found::default();
    let folders = folders(path);
    if folders.is_empty() {
        return Err(Error::metadata(&path.join("metadata"), 0, "there is no such file, nor one in a folder below"));
    }
    for folder in folders {
        match open_one(path, &folder, &mut found.faults) {
            Ok(trace) => found.traces.push(trace),
            Err(fault) => found.faults.push(fault),
        }
    }
    found.traces = joined(found.traces);
    Ok(found)
}

/// The folders at and under `path` that have a file called `metadata`, in order of their paths.
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

fn open_one(root: &Path, folder: &Path, faults: &mut Vec<Error>) -> Result<Trace, Error> {
    let path = folder.join("metadata");
    let class = metadata(&path)?;
    let program = Program::new(class).map_err(|source| Error::Schema { path, source })?;
    let mut streams: Vec<Stream> = Vec::new();
    for file in data_files(folder, faults)? {
        let index = index::of_file(&file, &program)?;
        faults.extend(index.fault);
        let Some(first) = index.first else { continue };
        let packets = index.entries.into_iter().map(|entry| (0, entry)).collect();
        let stream = Stream { class: first.class, id: first.stream, files: vec![file], packets };
        // Without a beginning nothing orders the files of one stream.
        let same = |other: &&mut Stream| {
            other.class == stream.class && other.id.is_some() && other.id == stream.id && first.begin.is_some()
        };
        match streams.iter_mut().find(same) {
            Some(other) => join(other, stream),
            None => streams.push(stream),
        }
    }
    let name = name(program.class(), folder.strip_prefix(root).unwrap_or(Path::new("")));
    Ok(Trace { path: folder.to_path_buf(), program: Arc::new(program), streams, name })
}

/// Files that hold packets: all regular ones that are neither hidden nor empty nor the metadata, in order of name. What is no
/// regular file, and can have its place there for no other reason, stands where a stream's file was.
fn data_files(folder: &Path, faults: &mut Vec<Error>) -> Result<Vec<PathBuf>, Error> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(Error::io(folder))? {
        let entry = entry.map_err(Error::io(folder))?;
        let name = entry.file_name();
        if name == "metadata" || name.as_encoded_bytes().starts_with(b".") {
            continue;
        }
        let path = entry.path();
        match std::fs::metadata(&path).map(|data| (data.len(), data.is_dir(), irregular(data.file_type()))) {
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

/// Puts the packets of `other` among those of `stream`, by time; a packet that is there already (overlapping snapshots have
/// such) does not count twice.
fn join(stream: &mut Stream, other: Stream) {
    let base = u32::try_from(stream.files.len()).unwrap_or(u32::MAX);
    stream.files.extend(other.files);
    for (file, entry) in other.packets {
        let place = stream.packets.partition_point(|(_, there)| there.begin < entry.begin);
        let same = |(_, there): &(u32, Entry)| {
            (there.size, there.begin, there.end, there.sequence) == (entry.size, entry.begin, entry.end, entry.sequence)
        };
        if !stream.packets.get(place).is_some_and(same) {
            stream.packets.insert(place, (file.saturating_add(base), entry));
        }
    }
}

/// Makes one trace of those that have one identity, as far as one of their metadata decodes both.
fn joined(traces: Vec<Trace>) -> Vec<Trace> {
    let mut joined: Vec<Trace> = Vec::new();
    for trace in traces {
        match joined.iter_mut().find(|other| are_parts(other.class(), trace.class())) {
            Some(other) => unite(other, trace),
            None => joined.push(trace),
        }
    }
    for trace in &mut joined {
        trace.streams.sort_by(|a, b| a.files.first().cmp(&b.files.first()));
    }
    joined
}

/// Whether two metadata are of one trace: they have one identity, and the one with more classes decodes the packets of the other as
/// that does. Traces with the same UUID but other classes stay apart.
fn are_parts(one: &TraceClass, other: &TraceClass) -> bool {
    let (larger, smaller) = if classes(other) > classes(one) { (other, one) } else { (one, other) };
    one.identity.uid.is_some()
        && one.identity == other.identity
        && one.header == other.header
        && smaller.streams.iter().all(|stream| {
            let same = larger.streams.iter().find(|there| there.id == stream.id);
            same.is_some_and(|there| decodes(larger, there, smaller, stream))
        })
}

/// Number of stream classes and event record classes.
fn classes(class: &TraceClass) -> usize {
    class.streams.iter().map(|stream| stream.events.len().saturating_add(1)).sum()
}

/// Whether a stream class of `larger` decodes the packets of the stream class `stream` of `smaller`, and gives the same times.
fn decodes(larger: &TraceClass, there: &StreamClass, smaller: &TraceClass, stream: &StreamClass) -> bool {
    let time = |class: &TraceClass, stream: &StreamClass| {
        let clock = stream.clock.and_then(|at| class.clocks.get(at));
        clock.map(|clock| (clock.frequency, clock.offset_seconds, clock.offset_cycles, clock.origin.clone()))
    };
    let events: HashMap<u64, &EventClass> = there.events.iter().map(|event| (event.id, event)).collect();
    time(larger, there) == time(smaller, stream)
        && there.packet_context == stream.packet_context
        && there.event_header == stream.event_header
        && there.common_context == stream.common_context
        && stream.events.iter().all(|event| {
            events.get(&event.id).is_some_and(|there| {
                there.name == event.name
                    && there.specific_context == event.specific_context
                    && there.payload == event.payload
            })
        })
}

/// The larger metadata counts for both.
fn unite(trace: &mut Trace, mut other: Trace) {
    let ids = |trace: &Trace| -> Vec<u64> { trace.class().streams.iter().map(|stream| stream.id).collect() };
    if classes(other.class()) > classes(trace.class()) {
        std::mem::swap(trace, &mut other);
    }
    trace.name = name(trace.class(), Path::new(""));
    let (into, from) = (ids(trace), ids(&other));
    for mut stream in other.streams {
        let position = from.get(stream.class).and_then(|id| into.iter().position(|other| other == id));
        let Some(class) = position else { continue };
        stream.class = class;
        let same = |there: &&mut Stream| there.class == class && there.id.is_some() && there.id == stream.id;
        match trace.streams.iter_mut().find(same) {
            Some(there) => join(there, stream),
            None => trace.streams.push(stream),
        }
    }
}

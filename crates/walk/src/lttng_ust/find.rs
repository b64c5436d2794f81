//! Where streams are: in the files of a folder, at the beginnings of pages of a process's memory.

use super::stream::{self, Raw};
use crate::lttng::{Domain, Metadata, NAMELESS, Session, metadata};
use crate::pages::{PageTables, Stitched, Whose};
use lastwords_bytes::{Budget, Error};
use lastwords_image::{Image, Watch};
use lastwords_trace::evidence::Evidence;
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Most files, depth of folders, and bytes of metadata.
const FILES_MAX: usize = 1 << 16;
const DEPTH_MAX: usize = 8;
const METADATA_MAX: u64 = 256 << 20;
/// Beginnings of mappings: the smallest page that Linux has.
const PAGE: u64 = 4096;
/// Bytes that are read at once.
const PIECE: usize = 1 << 20;
/// Most pages of streams in raw memory.
const PAGES_MAX: u64 = 1 << 22;

/// What was found.
#[derive(Debug, Default)]
pub struct Found {
    /// Sessions, each of one trace.
    pub sessions: Vec<Session>,
    /// Remarks on streams that belong to none.
    pub notes: Vec<String>,
}

/// The streams of one trace.
#[derive(Default)]
struct Group {
    streams: Vec<(String, Raw)>,
    metadata: Metadata,
    name: String,
    folder: String,
}

/// All streams below a folder, as `--shm-path` laid them out: a trace for each folder that has some.
///
/// # Errors
/// The folder cannot be read; the Budget is spent.
pub fn folder(root: &Path, budget: &Budget) -> Result<Found, Error> {
    let mut files = Vec::new();
    list(root, 0, &mut files, budget)?;
    files.sort();
    let mut groups: BTreeMap<PathBuf, Group> = BTreeMap::new();
    let mut found = Found::default();
    for path in files {
        let Some(parent) = path.parent() else { continue };
        let what = path.display().to_string();
        match of_file(&path, &what, budget) {
            Ok(Some(raw)) => {
                let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                groups.entry(parent.to_path_buf()).or_default().streams.push((file, raw));
            }
            Ok(None) => {}
            Err(error) if error.kind == lastwords_bytes::Kind::Budget => return Err(error),
            Err(error) => found.notes.push(error.to_string()),
        }
    }
    for (folder, mut group) in groups {
        (group.name, group.folder) = names(root, &folder);
        let path = folder.join("metadata");
        match read_metadata(&path, budget) {
            Ok(metadata) => group.metadata = metadata,
            Err(error) => found.notes.push(error.to_string()),
        }
        session(group, &mut found, budget)?;
    }
    Ok(found)
}

/// All streams in an image: a process's memory, or a file that is a stream's mapping.
///
/// # Errors
/// The Budget is spent.
pub fn image(image: &Arc<dyn Image>, budget: &Budget, watch: Watch<'_>) -> Result<Found, Error> {
    let mut found = Found::default();
    let mut groups: BTreeMap<[u8; 16], Group> = BTreeMap::new();
    for at in beginnings(image, watch) {
        let what = format!("{}: address {at:#x}", image.name());
        match stream::read(&what, image, at, budget) {
            Ok(Some(raw)) => match raw.uuid {
                Some(uuid) => groups.entry(uuid).or_default().streams.push((String::new(), raw)),
                None => found.notes.push(format!("{what}: a stream in which nothing was recorded")),
            },
            Ok(None) => {}
            Err(error) if error.kind == lastwords_bytes::Kind::Budget => return Err(error),
            Err(error) => found.notes.push(error.to_string()),
        }
    }
    let texts = if groups.is_empty() { Vec::new() } else { texts(image, budget)? };
    for (uuid, mut group) in groups {
        if let Some(text) = texts.iter().filter(|text| text.names(&uuid)).max_by_key(|text| text.text.len()) {
            group.metadata = text.clone();
        }
        group.name = uuid.iter().take(4).fold(NAMELESS.to_owned(), |name, byte| format!("{name}{byte:02x}"));
        session(group, &mut found, budget)?;
    }
    Ok(found)
}

/// All streams in `image`, which is physical memory at its addresses: the page tables of processes that have a stream mapped
/// tell its pages.
///
/// # Errors
/// The Budget is spent.
pub fn memory(image: &Arc<dyn Image>, budget: &Budget, watch: Watch<'_>) -> Result<Found, Error> {
    let firsts = beginnings(image, watch);
    if firsts.is_empty() || image.is_virtual() {
        return Ok(Found::default());
    }
    let wanted: HashSet<u64> = firsts.iter().copied().collect();
    let tables = PageTables::find(&**image, &wanted, Whose::Process, budget, watch)?;
    let (mut left, mut mappings) = (PAGES_MAX, Vec::new());
    for first in firsts {
        let mut length = [0u8; 8];
        if image.read(first.saturating_add(super::abi::MAGIC.len() as u64), &mut length).is_err() {
            continue;
        }
        let count = u64::from_le_bytes(length).div_ceil(PAGE).min(left);
        budget.steps("streams", count)?;
        // Of those that have it mapped, the one that has used most of it.
        let pages = tables.runs(first, count).into_iter().next().unwrap_or_else(|| vec![Some(first)]);
        left = left.saturating_sub(pages.len() as u64);
        mappings.push(pages);
    }
    let stitched: Arc<dyn Image> = Arc::new(Stitched::new(image, mappings));
    self::image(&stitched, budget, watch)
}

/// All metadata that lie in an image as text: those of a session or consumer daemon.
///
/// # Errors
/// The Budget is spent.
pub fn texts(image: &Arc<dyn Image>, budget: &Budget) -> Result<Vec<Metadata>, Error> {
    let mut texts = Vec::new();
    let mut bytes = Vec::new();
    for range in image.ranges().iter().filter(|range| range.hole.is_none()) {
        let mut at = range.address;
        while at < range.end() {
            at = image.next_data(at, range.end());
            // With the beginning of what follows, so that nothing is cut in two.
            let want = PIECE.saturating_add(metadata::BEGINNING_MAX);
            let got = read_some(image, at, range.end(), want, &mut bytes);
            let mut from = 0;
            while let Some(found) = metadata::beginning(bytes.get(..got).unwrap_or_default(), from) {
                if found >= PIECE {
                    break;
                }
                texts.push(text(image, at.saturating_add(found as u64), range.end(), budget)?);
                from = found.saturating_add(1);
            }
            at = at.saturating_add(PIECE as u64);
        }
    }
    Ok(texts)
}

/// The text from `at` on, up to the first byte that is none.
fn text(image: &Arc<dyn Image>, at: u64, end: u64, budget: &Budget) -> Result<Metadata, Error> {
    let mut metadata = Metadata { text: Vec::new(), is_partial: true };
    let mut bytes = Vec::new();
    let mut next = at;
    while next < end && (metadata.text.len() as u64) < METADATA_MAX {
        let got = read_some(image, next, end, PIECE, &mut bytes);
        let part = bytes.get(..got).unwrap_or_default();
        let len = part.iter().position(|byte| !metadata::is_text(*byte)).unwrap_or(part.len());
        budget.bytes("metadata", len as u64)?;
        metadata.text.extend_from_slice(part.get(..len).unwrap_or_default());
        next = next.saturating_add(len as u64);
        if len < PIECE {
            break;
        }
    }
    metadata.cut();
    Ok(metadata)
}

/// Reads up to `want` bytes from `at` on; how many there are.
fn read_some(image: &Arc<dyn Image>, at: u64, end: u64, want: usize, bytes: &mut Vec<u8>) -> usize {
    let len = usize::try_from(end.saturating_sub(at)).unwrap_or(usize::MAX).min(want);
    bytes.clear();
    bytes.resize(len, 0);
    match image.read(at, bytes) {
        Ok(()) => len,
        Err(hole) => usize::try_from(hole.address.saturating_sub(at)).unwrap_or(0).min(len),
    }
}

/// Addresses of pages that begin like a stream.
fn beginnings(image: &Arc<dyn Image>, watch: Watch<'_>) -> Vec<u64> {
    let mut found = Vec::new();
    let mut bytes = Vec::new();
    let total = image.ranges().iter().map(|range| range.len).fold(0, u64::saturating_add);
    let mut done = 0u64;
    for range in image.ranges().iter().filter(|range| range.hole.is_none()) {
        let mut at = range.address;
        while at < range.end() {
            let next = image.next_data(at, range.end()) & !PAGE.saturating_sub(1);
            at = next.max(at);
            let got = read_some(image, at, range.end(), PIECE, &mut bytes);
            let pages = bytes.get(..got).unwrap_or_default().chunks(PAGE as usize);
            let begins = pages.enumerate().filter(|(_, page)| page.starts_with(&super::abi::MAGIC));
            found.extend(begins.map(|(n, _)| at.saturating_add(PAGE.saturating_mul(n as u64))));
            at = at.saturating_add(PIECE as u64);
        }
        done = done.saturating_add(range.len);
        watch(lastwords_image::Progress { what: "looking for LTTng's streams", done, total: Some(total) });
    }
    found
}

fn list(folder: &Path, depth: usize, files: &mut Vec<PathBuf>, budget: &Budget) -> Result<(), Error> {
    let name = folder.display().to_string();
    let entries = std::fs::read_dir(folder).map_err(|error| Error::io(&name, 0, &error))?;
    for entry in entries {
        budget.steps(&name, 1)?;
        let entry = entry.map_err(|error| Error::io(&name, 0, &error))?;
        match entry.file_type() {
            // What cannot be read below is as if it were not there.
            Ok(kind) if kind.is_dir() && depth < DEPTH_MAX => {
                let below = list(&entry.path(), depth.saturating_add(1), files, budget);
                below.or_else(|error| if error.kind == lastwords_bytes::Kind::Budget { Err(error) } else { Ok(()) })?;
            }
            Ok(kind) if kind.is_file() && files.len() < FILES_MAX => files.push(entry.path()),
            _ => {}
        }
    }
    Ok(())
}

fn of_file(path: &Path, what: &str, budget: &Budget) -> Result<Option<Raw>, Error> {
    use std::io::Read;
    let mut head = [0u8; 16];
    let read = std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut head));
    if read.is_err() || head != super::abi::MAGIC {
        return Ok(None);
    }
    let opened = lastwords_image::open(path, budget, &lastwords_image::unwatched)?;
    stream::read(what, &opened.image, 0, budget)
}

fn read_metadata(path: &Path, budget: &Budget) -> Result<Metadata, Error> {
    let name = path.display().to_string();
    let io = |error| Error::io(&name, 0, &error);
    let len = std::fs::metadata(path).map_err(io)?.len();
    if len > METADATA_MAX {
        return Err(Error::value(&name, 0, len, "at most 256 MiB"));
    }
    budget.bytes(&name, len)?;
    Ok(Metadata::of_file(&std::fs::read(path).map_err(io)?))
}

/// The session's name and the folders between its own and the streams': `SESSION/ust/uid/0/64-bit`.
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

/// Makes a session of a trace's streams.
fn session(group: Group, found: &mut Found, budget: &Budget) -> Result<(), Error> {
    let mut streams = group.streams;
    // Of most streams; those that hold nothing have none.
    let mut votes: BTreeMap<[u8; 16], usize> = BTreeMap::new();
    streams.iter().filter_map(|(_, raw)| raw.uuid).for_each(|uuid| {
        let count = votes.entry(uuid).or_default();
        *count = count.saturating_add(1);
    });
    let Some((uuid, _)) = votes.into_iter().max_by_key(|(_, count)| *count) else { return Ok(()) };
    let Some(shape) = streams.iter().find(|(_, raw)| raw.uuid == Some(uuid)).map(|(_, raw)| raw.shape) else {
        return Ok(());
    };
    streams.retain(|(file, raw)| {
        let is_kept = raw.shape == shape && raw.uuid == Some(uuid);
        if !is_kept && raw.uuid.is_some() {
            found.notes.push(format!("{file}: a stream of another trace"));
        }
        is_kept
    });
    streams.sort_by_key(|(_, raw)| (raw.stream.channel, raw.stream.cpu, std::cmp::Reverse(raw.stream.ring.produced)));
    // A process may have mapped a stream twice.
    streams.dedup_by_key(|(file, raw)| (file.clone(), raw.stream.channel, raw.stream.cpu));
    let mut metadata = group.metadata;
    let mut evidence = Evidence::default();
    let gone = metadata.cut();
    if gone > 0 {
        evidence.notes.push(format!("the last {gone} bytes of the metadata are no whole declaration"));
    }
    let mut session = Session {
        name: group.name,
        domain: Domain::User,
        folder: group.folder,
        created: String::new(),
        is_active: None,
        uuid,
        shape,
        page_size: PAGE,
        metadata,
        is_cut: false,
        streams: Vec::new(),
        evidence,
    };
    for (file, mut raw) in streams {
        let suffix = raw.stream.cpu.map_or_else(String::new, |cpu| format!("_{cpu}"));
        raw.stream.channel_name = file.strip_suffix(&suffix).unwrap_or(&file).to_owned();
        session.evidence.notes.append(&mut raw.notes);
        session.add(raw.stream, budget)?;
    }
    session.name_by_metadata();
    found.sessions.push(session);
    Ok(())
}

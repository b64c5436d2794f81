//! Finds streams at page boundaries in memory, and builds sessions from streams found in memory and
//! in folders.

use super::stream::{self, Lack, Raw};
use crate::{Domain, Metadata, NAMELESS, Session, Shape, metadata};
use lastwords_bytes::{Budget, Error};
use lastwords_image::process_pages::{PAGE, PAGE_LEN, PageTables, Stitched, Whose, pieces};
use lastwords_image::{Image, Watch};
use lastwords_trace::evidence::{Cause, Evidence, Gap};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// Most bytes of metadata that are accepted.
pub(super) const METADATA_MAX: u64 = 256 << 20;
/// Number of bytes read at once.
const PIECE: usize = 1 << 20;
/// Most pages of streams that are mapped from raw memory.
const PAGES_MAX: u64 = 1 << 22;

/// The sessions that were found.
#[derive(Debug, Default)]
pub struct Sessions {
    /// Sessions, one for each trace.
    pub sessions: Vec<Session>,
    /// Notes about streams that belong to no session.
    pub notes: Vec<String>,
}

/// The streams of one trace.
#[derive(Default)]
pub(super) struct Group {
    /// The streams, each with the name of its file; the name is empty in memory.
    pub(super) streams: Vec<(String, Raw)>,
    pub(super) metadata: Metadata,
    pub(super) name: String,
    pub(super) folder: String,
    /// Messages about streams that must have existed and are missing.
    pub(super) lost: Vec<String>,
}

/// Finds all streams in an image: the memory of a process, or a file that is a stream's mapping.
///
/// # Errors
/// The budget is spent.
pub fn image(image: &Arc<dyn Image>, budget: &Budget, watch: Watch<'_>) -> Result<Sessions, Error> {
    let mut found = Sessions::default();
    let mut groups: BTreeMap<[u8; 16], Group> = BTreeMap::new();
    for at in beginnings(image, budget, watch)? {
        let what = format!("{}: address {at:#x}", image.name());
        match stream::read(&what, image, at, budget) {
            Ok(Some(raw)) => match raw.uuid {
                Some(uuid) => groups.entry(uuid).or_default().streams.push((String::new(), raw)),
                None => found.notes.push(format!("{what}: {}", without_packets(&raw))),
            },
            Ok(None) => {}
            Err(error) if error.kind == lastwords_bytes::ErrorKind::Budget => return Err(error),
            Err(error) => found.notes.push(error.to_string()),
        }
    }
    let mut texts = if groups.is_empty() { Vec::new() } else { texts(image, budget)? };
    texts.sort_by_key(|text| std::cmp::Reverse(text.text.len()));
    let bytes = texts.iter().map(|text| text.text.len() as u64).fold(0, u64::saturating_add);
    for (uuid, mut group) in groups {
        budget.bytes("metadata", bytes)?;
        // Each text of metadata belongs to one trace.
        if let Some(longest) = texts.iter().position(|text| text.names(&uuid)) {
            group.metadata = texts.remove(longest);
        }
        group.name =
            uuid.iter().take(4).fold(NAMELESS.to_owned(), |name, byte| format!("{name}{byte:02x}"));
        session(group, &mut found, budget)?;
    }
    Ok(found)
}

/// Finds all streams in `image`, an image of physical memory. The pages of a stream come from the
/// page tables of a process that has it mapped.
///
/// # Errors
/// The budget is spent.
pub fn memory(
    image: &Arc<dyn Image>,
    budget: &Budget,
    watch: Watch<'_>,
) -> Result<Sessions, Error> {
    let firsts = beginnings(image, budget, watch)?;
    if firsts.is_empty() || image.is_virtual() {
        return Ok(Sessions::default());
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
        // Of several processes that map the stream, take the first run, which has the most pages.
        let pages =
            tables.runs(first, count).into_iter().next().unwrap_or_else(|| vec![Some(first)]);
        left = left.saturating_sub(pages.len() as u64);
        mappings.push(pages);
    }
    let stitched: Arc<dyn Image> = Arc::new(Stitched::new(image, mappings));
    self::image(&stitched, budget, watch)
}

/// Finds all metadata that are text in an image: those of session and consumer daemons.
///
/// # Errors
/// The budget is spent.
pub fn texts(image: &Arc<dyn Image>, budget: &Budget) -> Result<Vec<Metadata>, Error> {
    let mut texts = Vec::new();
    let mut bytes = Vec::new();
    for range in image.ranges().iter().filter(|range| range.hole.is_none()) {
        let mut at = range.address;
        while at < range.end() {
            at = image.next_data(at, range.end());
            // Read past the piece by the longest start of metadata, so that a start across the
            // boundary is found.
            let want = PIECE.saturating_add(metadata::BEGINNING_MAX);
            budget.bytes(image.name(), want as u64)?;
            let got = read_some(image, at, range.end(), want, &mut bytes);
            let piece = bytes.get(..got).unwrap_or_default();
            let mut next = metadata::beginning(piece, 0);
            while let Some(found) = next.filter(|found| *found < PIECE) {
                next = metadata::beginning(piece, found.saturating_add(1));
                // Each text is read once: it ends where the next begins.
                let place = |offset: usize| at.saturating_add(offset as u64);
                texts.push(text(image, place(found), next.map_or(range.end(), place), budget)?);
            }
            at = at.saturating_add(PIECE as u64);
        }
    }
    Ok(texts)
}

/// Reads the text from `at` on, up to the first byte that is no text or to the start of another
/// text.
fn text(image: &Arc<dyn Image>, at: u64, end: u64, budget: &Budget) -> Result<Metadata, Error> {
    let mut metadata = Metadata { text: Vec::new(), is_partial: true };
    let mut bytes = Vec::new();
    let mut next = at;
    while next < end && (metadata.text.len() as u64) < METADATA_MAX {
        let got = read_some(image, next, end, PIECE, &mut bytes);
        budget.bytes("metadata", got as u64)?;
        let is_whole = metadata.append(bytes.get(..got).unwrap_or_default());
        next = next.saturating_add(got as u64);
        if is_whole || got < PIECE {
            break;
        }
    }
    metadata.cut();
    Ok(metadata)
}

/// Reads up to `want` bytes from `at` on; returns the number read.
fn read_some(image: &Arc<dyn Image>, at: u64, end: u64, want: usize, bytes: &mut Vec<u8>) -> usize {
    let len = usize::try_from(end.saturating_sub(at)).unwrap_or(usize::MAX).min(want);
    bytes.clear();
    bytes.resize(len, 0);
    match image.read(at, bytes) {
        Ok(()) => len,
        Err(hole) => usize::try_from(hole.address.saturating_sub(at)).unwrap_or(0).min(len),
    }
}

/// Finds the addresses of pages that begin with the magic of a stream.
fn beginnings(
    image: &Arc<dyn Image>,
    budget: &Budget,
    watch: Watch<'_>,
) -> Result<Vec<u64>, Error> {
    let mut found = Vec::new();
    pieces(&**image, "looking for LTTng's streams", budget, watch, |at, bytes| {
        let pages = bytes.chunks(PAGE_LEN).enumerate();
        let begins = pages.filter(|(_, page)| page.starts_with(&super::abi::MAGIC));
        found.extend(begins.map(|(n, _)| at.saturating_add(PAGE.saturating_mul(n as u64))));
        Ok(())
    })?;
    Ok(found)
}

/// Message for a stream whose trace is unknown.
fn without_packets(raw: &Raw) -> String {
    match raw.stream.ring.produced {
        0 => "a stream in which nothing was recorded".to_owned(),
        produced => {
            format!("a stream in which {produced} bytes were written; none of its packets is there")
        }
    }
}

/// The trace UUID of most streams, and the shape of their headers.
fn trace(streams: &[(String, Raw)]) -> Option<([u8; 16], Shape)> {
    let mut votes: BTreeMap<[u8; 16], usize> = BTreeMap::new();
    streams.iter().filter_map(|(_, raw)| raw.uuid).for_each(|uuid| {
        let count = votes.entry(uuid).or_default();
        *count = count.saturating_add(1);
    });
    let (uuid, _) = votes.into_iter().max_by_key(|(_, count)| *count)?;
    let (_, raw) = streams.iter().find(|(_, raw)| raw.uuid == Some(uuid))?;
    Some((uuid, raw.shape))
}

/// Builds a session from the streams of a trace. If no stream names its trace, only notes are
/// added.
pub(super) fn session(group: Group, found: &mut Sessions, budget: &Budget) -> Result<(), Error> {
    let Group { mut streams, mut metadata, name, folder, mut lost } = group;
    let Some((uuid, shape)) = trace(&streams) else {
        found.notes.append(&mut lost);
        found
            .notes
            .extend(streams.iter().map(|(file, raw)| format!("{file}: {}", without_packets(raw))));
        return Ok(());
    };
    let mut idle = Vec::new();
    streams.retain(|(file, raw)| {
        let is_kept = raw.shape == shape && raw.uuid == Some(uuid);
        match raw.uuid {
            _ if is_kept => {}
            Some(_) => lost.push(format!("{file}: a stream of another trace")),
            None if raw.stream.ring.produced == 0 && raw.lack.is_none() => idle.push(file.clone()),
            None => {
                let lack =
                    raw.lack.as_ref().map_or_else(String::new, |lack| format!("{}; ", lack.words));
                lost.push(format!("{file}: {lack}{}", without_packets(raw)));
            }
        }
        is_kept
    });
    streams.sort_by_key(|(_, raw)| {
        (raw.stream.channel, raw.stream.cpu, std::cmp::Reverse(raw.stream.ring.produced))
    });
    // A process may have mapped a stream twice.
    streams.dedup_by_key(|(file, raw)| (file.clone(), raw.stream.channel, raw.stream.cpu));
    let mut evidence = Evidence::default();
    evidence.notes.extend(metadata.cut());
    if !idle.is_empty() {
        evidence.notes.push(format!("nothing was recorded in {}", idle.join(", ")));
    }
    let empty = Session::new(Domain::User, uuid, shape, PAGE);
    let mut session = Session { name, folder, metadata, evidence, ..empty };
    lost.into_iter().for_each(|place| session.lose(place));
    for (file, mut raw) in streams {
        let suffix = raw.stream.cpu.map_or_else(String::new, |cpu| format!("_{cpu}"));
        raw.stream.channel_name = file.strip_suffix(&suffix).unwrap_or(&file).to_owned();
        session.evidence.notes.append(&mut raw.notes);
        if let Some(Lack { words, bytes }) = raw.lack {
            let stream = Some(session.streams.len());
            session.evidence.gaps.push(Gap::new(stream, Cause::Missing, words).with_bytes(bytes));
        }
        session.add(raw.stream, budget)?;
    }
    session.name_by_metadata();
    found.sessions.push(session);
    Ok(())
}

//! Traces and their streams: from a folder, from several that are parts of one trace, or in memory.

use super::index::Entry;
use crate::program::{Hides, Program, SchemaError};
use lastwords_bytes::Budget;
use lastwords_trace::class::{EventClass, StreamClass, TraceClass};
use lastwords_trace::evidence::Evidence;
use lastwords_trace::source::{OpenSpan, Packets, Told};
use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A trace: one folder, several folders of one identity, or packets in memory.
#[derive(Debug, Clone)]
pub struct Trace {
    /// The folder whose metadata is used.
    pub path: PathBuf,
    /// The decoder of the packets.
    pub program: Arc<Program>,
    /// The streams, in order of the path of their first file.
    pub streams: Vec<Stream>,
    /// The recovered and lost amounts if they are known before the packets are read; otherwise the
    /// packets report losses.
    pub account: Option<Account>,
    /// The events were selected by CPU, name and time when the trace was made, so all of them are
    /// wanted.
    pub is_selected: bool,
    /// The events accompany those of another trace, as a kernel's log does, and are not counted.
    pub is_beside: bool,
    /// Number of parts of the files that could not be read when the folder was searched. Their
    /// events are missing.
    pub unread: u64,
    /// The name that babeltrace2 gives the trace: its host, and the path of its folder below the
    /// opened folder, if it is one folder.
    pub(super) name: String,
}

/// The account of a trace, which is known before its packets are read.
#[derive(Clone)]
pub struct Account(Arc<dyn Told>);

impl Account {
    /// Returns what was found and lost. It may first read what was not checked yet.
    #[must_use]
    pub fn evidence(&self) -> &Evidence {
        self.0.told()
    }

    /// Returns the spans that were open when recording ended.
    #[must_use]
    pub fn open_spans(&self) -> &[OpenSpan] {
        self.0.told_spans()
    }
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Account").finish_non_exhaustive()
    }
}

/// A stream: packets in one or more files, or in memory.
#[derive(Debug, Clone)]
pub struct Stream {
    /// Position of the stream class.
    pub class: usize,
    /// Id of the stream in its class, if packets carry one.
    pub id: Option<u64>,
    /// The files that contain the packets.
    pub files: Vec<PathBuf>,
    /// Packets in order of time: the position of the file in `files`, and the entry of the packet.
    pub packets: Vec<(u32, Entry)>,
    /// The packets that are not in a file.
    pub memory: Option<Memory>,
}

/// The packets of a stream that are in memory, or are made on demand.
#[derive(Clone)]
pub struct Memory {
    /// Source of the packets.
    pub source: Arc<dyn Packets>,
    /// Position of the stream in `source`.
    pub stream: usize,
    /// The stream's name in messages.
    pub name: String,
    /// The CPU; none if the stream is not bound to one.
    pub cpu: Option<u32>,
    /// Bytes of all packets together, as far as that is known before they are read.
    pub bytes: u64,
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory")
            .field("stream", &self.stream)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Stream {
    /// Returns the sizes of the packets together, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let memory = self.memory.as_ref().map_or(0, |memory| memory.bytes);
        self.packets.iter().map(|(_, entry)| entry.size).fold(memory, u64::saturating_add)
    }

    /// Returns the stream's name in messages: its first file, or the name of its memory.
    #[must_use]
    pub fn place(&self) -> String {
        let file = self.files.first().map(|file| file.display().to_string());
        file.or_else(|| self.memory.as_ref().map(|memory| memory.name.clone())).unwrap_or_default()
    }
}

impl Trace {
    /// Makes a trace whose packets are in memory. `path` is the file in which that memory was
    /// found.
    ///
    /// # Errors
    /// The class cannot be compiled to a decoder of packets.
    pub fn in_memory(
        path: PathBuf,
        class: TraceClass,
        streams: Vec<Stream>,
        account: Arc<dyn Told>,
    ) -> Result<Self, SchemaError> {
        let name = name(&class, Path::new(""));
        let budget = Arc::new(Budget::for_input(
            streams.iter().map(Stream::bytes).fold(0, u64::saturating_add),
        ));
        let program = Arc::new(Program::new(class, &budget)?);
        Ok(Self {
            path,
            program,
            streams,
            account: Some(Account(account)),
            is_selected: false,
            is_beside: false,
            unread: 0,
            name,
        })
    }

    /// Returns the same trace with hidden fields: see [`Program::hiding`].
    ///
    /// # Errors
    /// The budget is spent.
    pub fn hiding(self, hides: &dyn Hides) -> Result<Self, SchemaError> {
        Ok(Self { program: Arc::new(self.program.hiding(hides)?), ..self })
    }

    /// Returns the bytes of the packets of all streams.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.streams.iter().map(Stream::bytes).fold(0, u64::saturating_add)
    }

    /// Returns the trace class.
    #[must_use]
    pub fn class(&self) -> &TraceClass {
        self.program.class()
    }

    /// Returns the name that babeltrace2 gives the trace: its host, and the path of its folder
    /// below the opened folder.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the name of the session or instance: a property, the name of the trace class, or
    /// [`Trace::name`].
    #[must_use]
    pub fn title(&self) -> &str {
        let class = self.class();
        let named = class.text("trace_name").or(class.identity.name.as_deref());
        named.unwrap_or_else(|| self.name())
    }

    /// Both have one identity, and one of their metadata decodes the packets of both. `budget` pays
    /// a step for each event record class that is compared.
    ///
    /// # Errors
    /// The budget is spent.
    pub fn is_part(&self, other: &Self, budget: &Budget) -> Result<bool, lastwords_bytes::Error> {
        let (one, other) = (self.class(), other.class());
        if one.identity.uid.is_none() || one.identity != other.identity {
            return Ok(false);
        }
        budget.steps("metadata of one UUID", classes(one).min(classes(other)) as u64)?;
        Ok(are_parts(one, other))
    }

    /// Takes in the streams of a part of the same trace ([`Trace::is_part`]); the larger metadata
    /// counts for both. A packet that both have is read once.
    pub fn unite(&mut self, mut other: Self) {
        let ids = |trace: &Self| -> Vec<u64> {
            trace.class().streams.iter().map(|stream| stream.id).collect()
        };
        if classes(other.class()) > classes(self.class()) {
            std::mem::swap(self, &mut other);
        }
        self.name = name(self.class(), Path::new(""));
        let (into, from) = (ids(self), ids(&other));
        self.unread = self.unread.saturating_add(other.unread);
        for mut stream in other.streams {
            let position =
                from.get(stream.class).and_then(|id| into.iter().position(|other| other == id));
            let Some(class) = position else { continue };
            stream.class = class;
            let same = |there: &&mut Stream| {
                there.class == class && there.id.is_some() && there.id == stream.id
            };
            match self.streams.iter_mut().find(same) {
                Some(there) => join(there, stream),
                None => self.streams.push(stream),
            }
        }
        self.streams.sort_by(|a, b| a.files.first().cmp(&b.files.first()));
    }
}

/// Returns the name of a trace. `below` is the path from the opened folder to the trace's own.
pub(super) fn name(class: &TraceClass, below: &Path) -> String {
    let parts = [class.text("hostname").unwrap_or_default(), &below.to_string_lossy()];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/")
}

/// Merges the packets of `other` into those of `stream` by time. Snapshots overlap: a packet that
/// two files contain is read once, from the file that contains more of it.
pub(super) fn join(stream: &mut Stream, other: Stream) {
    let base = u32::try_from(stream.files.len()).unwrap_or(u32::MAX);
    stream.files.extend(other.files);
    // Positions of packets of `stream`, the first one last.
    let mut places: HashMap<Same, Vec<usize>> = HashMap::new();
    for (place, (_, entry)) in stream.packets.iter().enumerate().rev() {
        Same::from_entry(entry)
            .into_iter()
            .flatten()
            .for_each(|key| places.entry(key).or_default().push(place));
    }
    let mut added = Vec::new();
    for (file, entry) in other.packets {
        let file = file.saturating_add(base);
        let first = |key: Same| {
            let places = places.get_mut(&key)?;
            let is_taken =
                |place: &usize| stream.packets.get(*place).is_none_or(|(file, _)| *file >= base);
            while places.last().is_some_and(is_taken) {
                places.pop();
            }
            places.last().copied()
        };
        let same = Same::from_entry(&entry).into_iter().flatten().filter_map(first).min();
        match same.and_then(|place| stream.packets.get_mut(place)) {
            Some(same) if (same.1.end, same.1.size) < (entry.end, entry.size) => {
                *same = (file, entry)
            }
            Some(_) => {}
            None => added.push((file, entry)),
        }
    }
    merge(&mut stream.packets, added);
}

/// Merges packets into others by time. Of packets that begin at one time, the added ones come
/// first.
fn merge(packets: &mut Vec<(u32, Entry)>, added: Vec<(u32, Entry)>) {
    let mut before = std::mem::take(packets).into_iter().peekable();
    for (file, entry) in added {
        packets
            .extend(std::iter::from_fn(|| before.next_if(|(_, there)| there.begin < entry.begin)));
        packets.push((file, entry));
    }
    packets.extend(before);
}

/// A key to find the same packet in two files of one stream. Two entries are of the same packet if
/// they have a key in common; one file may contain more of the packet than the other. The packets
/// begin at the same time and have the same sequence number. Without sequence numbers they are the
/// same if their times overlap, because the times of different packets never overlap.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Same {
    Numbered { begin: u64, sequence: u64 },
    Overlapping { begin: u64 },
    Alike { begin: u64, end: u64, size: u64 },
}

impl Same {
    fn from_entry(entry: &Entry) -> [Option<Self>; 2] {
        let Entry { begin, end, size, .. } = *entry;
        match entry.sequence {
            Some(sequence) => [Some(Self::Numbered { begin, sequence }), None],
            None => {
                let lasts = begin < end && end != u64::MAX;
                [
                    lasts.then_some(Self::Overlapping { begin }),
                    Some(Self::Alike { begin, end, size }),
                ]
            }
        }
    }
}

/// Returns true if two metadata of one identity belong to one trace: the one with more classes must
/// decode the packets of the other in the same way. Traces with the same UUID but other classes
/// stay separate.
fn are_parts(one: &TraceClass, other: &TraceClass) -> bool {
    let (larger, smaller) = if classes(other) > classes(one) { (other, one) } else { (one, other) };
    one.header == other.header
        && smaller.streams.iter().all(|stream| {
            let same = larger.streams.iter().find(|there| there.id == stream.id);
            same.is_some_and(|there| decodes(larger, there, smaller, stream))
        })
}

/// Returns the number of stream classes and event record classes.
fn classes(class: &TraceClass) -> usize {
    class.streams.iter().map(|stream| stream.events.len().saturating_add(1)).sum()
}

/// Returns true if the stream class `there` of `larger` decodes the packets of the stream class
/// `stream` of `smaller`, and gives the same times.
fn decodes(
    larger: &TraceClass,
    there: &StreamClass,
    smaller: &TraceClass,
    stream: &StreamClass,
) -> bool {
    let time = |class: &TraceClass, stream: &StreamClass| {
        let clock = stream.clock.and_then(|at| class.clocks.get(at));
        clock.map(|clock| {
            (clock.frequency, clock.offset_seconds, clock.offset_cycles, clock.origin.clone())
        })
    };
    let alike = time(larger, there) == time(smaller, stream)
        && there.packet_context == stream.packet_context
        && there.event_header == stream.event_header
        && there.common_context == stream.common_context;
    let events: HashMap<u64, &EventClass> = match alike {
        true => there.events.iter().map(|event| (event.id, event)).collect(),
        false => return false,
    };
    stream.events.iter().all(|event| {
        events.get(&event.id).is_some_and(|there| {
            there.name == event.name
                && there.specific_context == event.specific_context
                && there.payload == event.payload
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(packets: &[(u64, u64, u64, Option<u64>)]) -> Stream {
        let entry = |&(begin, end, size, sequence)| {
            (0, Entry { offset: begin, size, begin, end, sequence })
        };
        Stream {
            class: 0,
            id: Some(1),
            files: vec!["f".into()],
            packets: packets.iter().map(entry).collect(),
            memory: None,
        }
    }

    /// Returns for each packet the file that it is read from, and its end.
    fn joined(
        one: &[(u64, u64, u64, Option<u64>)],
        other: &[(u64, u64, u64, Option<u64>)],
    ) -> Vec<(u32, u64)> {
        let mut into = stream(one);
        join(&mut into, stream(other));
        into.packets.iter().map(|(file, entry)| (*file, entry.end)).collect()
    }

    #[test]
    fn a_packet_that_a_later_snapshot_saw_written_further_is_read_once() {
        let (early, late) = ((20, 24, 4096, Some(1)), (20, 29, 4096, Some(1)));
        let (before, after) = ((10, 19, 4096, Some(0)), (30, 39, 4096, Some(2)));
        assert_eq!(joined(&[before, early], &[late, after]), [(0, 19), (1, 29), (1, 39)]);
        assert_eq!(joined(&[late, after], &[before, early]), [(1, 19), (0, 29), (0, 39)]);
        // Of two entries with the same end, the larger is used. An entry without an end does not
        // count as shorter.
        assert_eq!(joined(&[(20, 24, 4096, Some(1))], &[(20, 24, 8192, Some(1))]), [(1, 24)]);
        // Without sequence numbers, the times must overlap.
        assert_eq!(joined(&[(10, 14, 4096, None)], &[(10, 19, 8192, None)]), [(1, 19)]);
        assert_eq!(joined(&[(10, 14, 4096, None)], &[(10, 14, 4096, None)]), [(0, 14)]);
    }

    /// Joins 200,000 packets of no duration in two files, all at one time or each at its own. A
    /// linear search for each packet would take minutes.
    #[test]
    fn many_packets_are_joined() {
        for step in [0, 1] {
            let packets: Vec<_> = (0..100_000).map(|n| (step * n, step * n, 8, None)).collect();
            let others: Vec<_> =
                packets.iter().map(|packet| (packet.0, packet.1, 16, None)).collect();
            assert_eq!(joined(&packets, &others).len(), 200_000);
            assert_eq!(joined(&packets, &packets).len(), 100_000);
        }
    }

    #[test]
    fn packets_that_begin_alike_and_are_not_the_same_stay() {
        // These packets are different: another sequence number; a packet of no duration before one
        // that begins at its end; two packets of one file.
        assert_eq!(joined(&[(10, 14, 4096, Some(1))], &[(10, 19, 4096, Some(2))]).len(), 2);
        assert_eq!(joined(&[(10, 10, 4096, None)], &[(10, 19, 4096, None)]).len(), 2);
        let unknown = (u64::MAX, u64::MAX, 64, None);
        assert_eq!(joined(&[(1, 2, 64, None)], &[unknown, unknown]).len(), 3);
    }
}

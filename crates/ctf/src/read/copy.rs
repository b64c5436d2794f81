//! Writes a trace as CTF. Every event is decoded. Packets of files that cannot be decoded are left
//! out; packets in memory are written as their source made them.

use super::error::Error;
use super::index::Entry;
use super::packet_times::{self, Times};
use super::stream::{Next, Reader, Watch};
use super::trace::{Stream, Trace};
use crate::Totals;
use crate::metadata::{Version, emit};
use crate::output::{create_file, create_folder, empty_folder};
use lastwords_trace::parallel;
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::SyncSender;

/// Writes `traces` as CTF of a version under `out`, which must not exist or must be empty: one
/// folder, or one for each trace. Packets are copied. Metadata is copied too if it has that
/// version, otherwise it is written again. Packets that lack the time at which they begin get one,
/// and metadata that describes it, because babeltrace2 aborts without it. Errors of reading go to
/// `faults`, and the number of bytes read to `watch`. Returns the counts for each trace.
///
/// # Errors
/// A file cannot be read or written, or the version cannot express a field class.
pub fn copy(
    traces: &[Trace],
    version: Version,
    out: &Path,
    watch: Watch<'_>,
    faults: &mut dyn FnMut(Error),
) -> crate::Result<Vec<Totals>> {
    // A field class that the version cannot express is refused before anything is written.
    let metadata: Vec<Vec<u8>> =
        traces.iter().map(|trace| metadata_of(trace, version)).collect::<crate::Result<_>>()?;
    empty_folder(out)?;
    let mut totals = Vec::new();
    let mut names = Names::default();
    for (trace, metadata) in traces.iter().zip(metadata) {
        let folder = match traces {
            [_] => out.to_path_buf(),
            _ => names
                .unused(out, trace.path.file_name().map(Path::new).unwrap_or(Path::new("trace"))),
        };
        if folder != out {
            create_folder(&folder)?;
        }
        totals.push(copy_trace(trace, &metadata, &folder, watch, faults)?);
    }
    Ok(totals)
}

/// The paths in use.
#[derive(Default)]
struct Names {
    taken: HashSet<PathBuf>,
    /// The last number that was appended to each path.
    numbers: HashMap<PathBuf, u64>,
}

impl Names {
    /// Returns a path under `out` that is not in use, and marks it as used.
    fn unused(&mut self, out: &Path, name: &Path) -> PathBuf {
        let first = out.join(name);
        if self.taken.insert(first.clone()) {
            return first;
        }
        let number = self.numbers.entry(first).or_insert(1);
        loop {
            *number = number.saturating_add(1);
            let path = out.join(format!("{}-{number}", name.display()));
            if self.taken.insert(path.clone()) {
                return path;
            }
        }
    }
}

/// Returns the metadata of a copy: that of the trace's file if it has this version and describes
/// the copy, otherwise newly written metadata.
fn metadata_of(trace: &Trace, version: Version) -> crate::Result<Vec<u8>> {
    if let Some(class) = packet_times::extended(trace.class()).filter(|_| !is_in_memory(trace)) {
        return emit(&class, version).map(String::into_bytes);
    }
    if trace.account.is_none() && (trace.class().version == 1) == (version == Version::V1_8) {
        let from = trace.path.join("metadata");
        return std::fs::read(&from).map_err(crate::Error::io(&from, "read"));
    }
    emit(trace.class(), version).map(String::into_bytes)
}

/// Returns true if packets are in memory. Their source writes all times.
fn is_in_memory(trace: &Trace) -> bool {
    trace.streams.iter().any(|stream| stream.memory.is_some())
}

fn copy_trace(
    trace: &Trace,
    metadata: &[u8],
    folder: &Path,
    watch: Watch<'_>,
    faults: &mut dyn FnMut(Error),
) -> crate::Result<Totals> {
    let mut names = Names::default();
    let streams = trace.streams.iter().map(|stream| {
        let name = match &stream.memory {
            Some(memory) => OsStr::new(&memory.name),
            None => stream.files.first().and_then(|file| file.file_name()).unwrap_or_default(),
        };
        (stream, names.unused(folder, Path::new(name)))
    });
    let streams: Vec<(&Stream, PathBuf)> = streams.collect();
    let mut totals = Totals::default();
    let hear = |fault| {
        totals.faults = totals.faults.saturating_add(1);
        faults(fault);
    };
    let copy = |(stream, path): &(&Stream, PathBuf), teller: &_| {
        let class = trace.class().streams.get(stream.class).filter(|_| !is_in_memory(trace));
        copy_stream(
            Reader::new(trace, stream).watched(watch),
            class.and_then(Times::from_class),
            path,
            teller,
        )
    };
    let copied = parallel::map_telling(&streams, parallel::cpus(), copy, hear);
    for stream in copied {
        totals.add(&stream?);
    }
    let path = folder.join("metadata");
    create_file(&path)?.write_all(metadata).map_err(crate::Error::io(&path, "write"))?;
    totals.bytes = totals.bytes.saturating_add(metadata.len() as u64);
    Ok(totals)
}

/// Copies one stream. Errors of reading are sent to `faults`. A stream in memory that has no
/// packets has no file.
fn copy_stream(
    mut reader: Reader<'_>,
    times: Option<Times>,
    path: &Path,
    faults: &SyncSender<Error>,
) -> crate::Result<Totals> {
    let in_memory = reader.stream().memory.is_some();
    let mut copier = Copier { stream: reader.stream(), times, open: None, file: None, path };
    if !in_memory {
        copier.file()?;
    }
    let mut pending: Option<Pending> = None;
    let mut latest = 0;
    let mut totals = Totals::default();
    let mut events = 0;
    loop {
        match reader.advance() {
            Next::Event(event) => {
                if let Some(packet) = &mut pending {
                    packet.begin.get_or_insert(event.clock);
                }
                events = u64::saturating_add(events, 1).saturating_add(reader.pass());
                latest = reader.clock();
            }
            Next::Loss(loss) => totals.lose(loss),
            Next::Fault(fault) => {
                // Events of a packet that cannot be decoded to its end are not in the copy of a
                // file, so they are not counted.
                if !in_memory {
                    (pending, events) = (None, 0);
                }
                // The receiver exists until all streams are copied.
                let _ = faults.send(fault);
            }
            next @ (Next::Packet | Next::End) => {
                if let Some(packet) = pending.take() {
                    totals.bytes = totals.bytes.saturating_add(copier.packet(packet)?);
                    totals.packets = totals.packets.saturating_add(1);
                }
                totals.events = totals.events.saturating_add(std::mem::take(&mut events));
                if matches!(next, Next::End) {
                    break;
                }
                if in_memory {
                    totals.bytes = totals.bytes.saturating_add(copier.bytes(&reader.window().0)?);
                    totals.packets = totals.packets.saturating_add(1);
                } else {
                    pending = reader.place().map(|(file, entry)| Pending {
                        file,
                        entry,
                        begin: None,
                        least: latest,
                        header_end: reader.packet().map_or(0, |packet| packet.context_at),
                        events_at: reader.packet().map_or(0, |packet| packet.events_at),
                    });
                }
            }
        }
    }
    totals.streams = u64::from(copier.file.is_some());
    Ok(totals)
}

/// A packet that is being decoded.
struct Pending {
    /// Position of its file.
    file: u32,
    entry: Entry,
    /// Clock of its first event.
    begin: Option<u64>,
    /// Clock at the end of the packet before it.
    least: u64,
    /// End of the packet header, in bits from the packet's beginning.
    header_end: u64,
    /// End of the packet context, in bits from the packet's beginning.
    events_at: u64,
}

struct Copier<'a> {
    stream: &'a Stream,
    times: Option<Times>,
    open: Option<(u32, File)>,
    file: Option<File>,
    path: &'a Path,
}

impl Copier<'_> {
    /// Returns the file of the copy; creates it at the first call.
    fn file(&mut self) -> crate::Result<&mut File> {
        match &mut self.file {
            Some(file) => Ok(file),
            file => Ok(file.insert(create_file(self.path)?)),
        }
    }

    /// Appends these bytes of a packet and returns their number.
    fn bytes(&mut self, bytes: &[u8]) -> crate::Result<u64> {
        let written = self.file()?.write_all(bytes);
        written.map_err(crate::Error::io(self.path, "write")).map(|()| bytes.len() as u64)
    }

    /// Appends a packet and returns its number of bytes.
    fn packet(&mut self, packet: Pending) -> crate::Result<u64> {
        let (number, entry) = (packet.file, packet.entry);
        let from = self.stream.files.get(number as usize).map_or(Path::new(""), PathBuf::as_path);
        if self.open.as_ref().is_none_or(|(open, _)| *open != number) {
            self.open = Some((number, File::open(from).map_err(crate::Error::io(from, "read"))?));
        }
        let (Some((_, file)), Some(to)) = (&mut self.open, &mut self.file) else { return Ok(0) };
        file.seek(SeekFrom::Start(entry.offset)).map_err(crate::Error::io(from, "read"))?;
        let (mut rest, mut written) = (entry.size, 0);
        if let Some(times) = &self.times {
            let mut head =
                vec![0; usize::try_from(packet.events_at.div_ceil(8).min(entry.size)).unwrap_or(0)];
            file.read_exact(&mut head).map_err(crate::Error::io(from, "read"))?;
            rest = rest.saturating_sub(head.len() as u64);
            let end = Some(entry.end).filter(|end| *end != u64::MAX);
            let begin = packet.begin.or(end).unwrap_or(packet.least);
            let begin = end.map_or(begin, |end| end.min(begin));
            let head = times.insert(&head, packet.header_end, begin).ok_or_else(|| {
                let path = from.display();
                crate::Error::Schema(format!(
                    "packets without a time at which they begin, whose lengths cannot grow by one ({path}); write text, or JSON lines"
                ))
            })?;
            to.write_all(&head).map_err(crate::Error::io(self.path, "write"))?;
            written = head.len() as u64;
        }
        // Between regular files, the standard library lets the kernel copy.
        let copied = std::io::copy(&mut file.take(rest), to)
            .map_err(crate::Error::io(self.path, "write"))?;
        Ok(copied.saturating_add(written))
    }
}

//! A kernel's trace as CTF: a folder for a trace array, a stream for each CPU, a packet for each sub-buffer.
//!
//! Every event format becomes an event class with its fields by name; numbers keep their bytes, text ends with a NUL.
//! The common fields and the name of the task are the context of every event.

mod class;

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use lastwords_trace::ftrace::{Array, Ring, Tracing};

use super::beside::Beside;
use super::choice::Choice;
use super::page::{Cursor, Event};
use super::text::{At, Common, Options, Printer, Summary};
use class::{Class, classes, trace_class};
use lastwords_ctf::write::packets::{Header, Last};
use lastwords_ctf::{Error, Result};
use lastwords_ctf::{Version, emit};
use lastwords_ctf::{create_file, create_folder};

/// Greatest reading of a clock that is believed: readers count nanoseconds in an `i64`.
const LIMIT: u64 = 1 << 62;
/// Faults that a summary keeps.
const MOST_NOTES: usize = 100;

/// Writes the chosen events of one trace array into a folder, which must not exist.
///
/// # Errors
/// There is no such array; only the last events are asked for; a file cannot be written.
pub fn write(
    folder: &Path,
    tracing: &Tracing,
    array: usize,
    choice: &Choice,
    beside: &Beside,
    version: Version,
) -> Result<Summary> {
    if choice.last.is_some() {
        return Err(Error::Schema("the last so many events: CTF is written packet by packet".into()));
    }
    let options = Options { snapshot: choice.snapshot, ..Options::default() };
    let (Some(of), Some(ring)) = (tracing.arrays.get(array), choice.ring(tracing, array)?) else {
        return Ok(Summary::default());
    };
    let classes = classes(tracing);
    let uuid = uuid(tracing, of, ring);
    let metadata = emit(&trace_class(tracing, of, ring, beside, uuid, &classes), version)?;
    create_folder(folder)?;
    let mut writer = Writer {
        tracing,
        choice,
        wanted: choice.ids(tracing),
        classes,
        printer: Printer::new(tracing, of, ring, &options),
        summary: Summary::default(),
        unknown: 0,
        content: Vec::new(),
        scratch: Vec::new(),
    };
    for lane in choice.lanes(ring) {
        writer.stream(folder, ring, lane, uuid)?;
    }
    let path = folder.join("metadata");
    create_file(&path)?.write_all(metadata.as_bytes()).map_err(Error::io(&path, "write"))?;
    let mut summary = writer.summary;
    summary.bytes += metadata.len() as u64;
    if writer.unknown > 0 {
        summary.notes.push(format!("{} events have no format; CTF cannot express them", writer.unknown));
    }
    summary.notes.extend(class::remark(of));
    Ok(summary)
}

/// An id that is the same each time the trace is written: of what the machine is, and of what its rings hold.
fn uuid(tracing: &Tracing, array: &Array, ring: &dyn Ring) -> [u8; 16] {
    let mut text = format!("{} {} {}", tracing.uname, array.name, array.clock).into_bytes();
    let mut bytes = Vec::new();
    for (lane, cpu) in ring.cpus().iter().enumerate() {
        text.extend(cpu.cpu.to_le_bytes());
        text.extend(cpu.stats.entries.to_le_bytes());
        if cpu.sub_buffers > 0 {
            ring.sub_buffer(lane, 0, &mut bytes);
            text.extend(bytes.iter().take(64));
        }
    }
    // FNV-1a of 128 bits, as RFC 9562's version 8.
    let mix =
        |hash: u128, byte: &u8| (hash ^ u128::from(*byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
    let hash = text.iter().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, mix);
    let mut uuid = hash.to_be_bytes();
    uuid[6] = uuid[6] & 0x0f | 0x80;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    uuid
}

struct Writer<'a> {
    tracing: &'a Tracing,
    choice: &'a Choice,
    wanted: Vec<bool>,
    /// By id.
    classes: Vec<Option<Class<'a>>>,
    printer: Printer<'a>,
    summary: Summary,
    /// Events without a format.
    unknown: u64,
    /// Events of the packet.
    content: Vec<u8>,
    scratch: Vec<u8>,
}

/// One CPU's file on its way.
struct Stream {
    path: PathBuf,
    file: Option<File>,
    header: Header,
    cpu: u32,
    lane: usize,
    last: Last,
}

impl Writer<'_> {
    /// Writes one CPU's file; a CPU without events has none.
    fn stream(&mut self, folder: &Path, ring: &dyn Ring, lane: usize, uuid: [u8; 16]) -> Result<()> {
        let Some(cpu) = ring.cpus().get(lane) else { return Ok(()) };
        let big = self.tracing.byte_order == lastwords_bytes::ByteOrder::Big;
        let mut stream = Stream {
            path: folder.join(format!("cpu-{}", cpu.cpu)),
            file: None,
            header: Header { big, uuid, stream_id: 0, instance: u64::from(cpu.cpu), cpu: cpu.cpu },
            cpu: cpu.cpu,
            lane,
            last: Last { end: 0, sequence: 0, discarded: 0 },
        };
        let mut bytes = Vec::new();
        for index in 0..cpu.sub_buffers {
            let info = ring.sub_buffer(lane, index, &mut bytes);
            if index > 0
                && let Some(missed) = info.missed
            {
                stream.last.discarded = stream.last.discarded.saturating_add(missed.unwrap_or(1).min(LIMIT));
            }
            let (layout, order) = (self.tracing.header_page, self.tracing.byte_order);
            let from = (layout.data_offset as usize).saturating_add(info.consumed);
            let mut cursor = Cursor::of(&bytes, layout, order, &info);
            let mut begin = None;
            self.content.clear();
            while let Some(next) = cursor.next(&bytes) {
                match next {
                    Ok(event) if event.payload.start < from || event.time < ring.time_start() => {}
                    Ok(event) => {
                        if self.event(&bytes, &event, &mut stream) {
                            begin = begin.or(Some(stream.last.end));
                        }
                    }
                    Err(error) => {
                        self.summary.faults += 1;
                        if self.summary.notes.len() < MOST_NOTES {
                            let cpu = stream.cpu;
                            self.summary.notes.push(format!("CPU {cpu}: sub-buffer {index}: {error}"));
                        }
                    }
                }
            }
            if let Some(begin) = begin {
                self.packet(&mut stream, begin)?;
            }
        }
        Ok(())
    }

    /// Appends an event to the packet; false where it is not wanted or cannot be expressed.
    fn event(&mut self, bytes: &[u8], event: &Event, stream: &mut Stream) -> bool {
        let payload = bytes.get(event.payload.clone()).unwrap_or_default();
        let common = Common::read(payload, self.tracing.byte_order);
        let id = usize::from(common.id);
        let in_time = self.choice.since.is_none_or(|since| event.time >= since)
            && self.choice.until.is_none_or(|until| event.time <= until);
        if !in_time || !self.wanted.get(id).copied().unwrap_or(false) {
            return false;
        }
        let Some(class) = self.classes.get(id).and_then(Option::as_ref) else {
            self.unknown += 1;
            return false;
        };
        if event.time > LIMIT {
            self.summary.faults += 1;
            return false;
        }
        // Clocks of one CPU do not go back, unless its memory is damaged.
        self.summary.faults += u64::from(event.time < stream.last.end);
        stream.last.end = stream.last.end.max(event.time);
        let at = At { time: event.time, cpu: stream.cpu, lane: stream.lane, common };
        let order = self.tracing.byte_order;
        class::put(&mut self.content, order, stream.last.end, at, &self.printer);
        for cell in &class.cells {
            cell.put(&mut self.content, payload, order, at, &mut self.printer, &mut self.scratch);
        }
        self.summary.events += 1;
        true
    }

    fn packet(&mut self, stream: &mut Stream, begin: u64) -> Result<()> {
        let header = stream.header.bytes(stream.last, begin, self.content.len());
        stream.last.sequence += 1;
        let file = match &mut stream.file {
            Some(file) => file,
            None => stream.file.insert(create_file(&stream.path)?),
        };
        let written = file.write_all(&header).and_then(|()| file.write_all(&self.content));
        written.map_err(Error::io(&stream.path, "write"))?;
        self.summary.bytes += (header.len() + self.content.len()) as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests;

//! Presents a trace array as a [`lastwords_ctf::read::Trace`]: a stream for each CPU and a packet
//! for each sub-buffer. A packet is made when a reader asks for it.
//!
//! Every event format becomes an event class, and its fields keep their names. Numbers keep their
//! bytes, and text ends with a NUL. The common fields and the name of the task are the context of
//! every event. If a part of a sub-buffer cannot be converted, its packet has a [`Defect`].

mod class;
mod encode;

use lastwords_bytes::low_u16;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use crate::{Array, Ring, Tracing, counters};
use lastwords_trace::class::TraceClass;
use lastwords_trace::evidence::Evidence;
use lastwords_trace::source::{Defect, PacketInfo, PacketReader, Packets};

use super::choice::{Choice, selected_lanes};
use super::page::{Cursor, Event};
use super::text::{Common, EventInfo, Options, Printer};
use class::{Cell, cells, trace_class};
pub(crate) use class::{clock, event_class, framed, origin, text};
pub(crate) use encode::{packet, put, put_header, put_text};
use encode::{put_context, put_raw};
use lastwords_ctf::read::{Memory, Stream, Trace};
use lastwords_ctf::write::packets::{HEADER_LEN, Header, Last};
use lastwords_ctf::{Error, Result, Version};

/// Greatest clock value that is written to a folder. Readers count nanoseconds in an `i64`.
const LIMIT: u64 = 1 << 62;

/// The form in which the events are needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A CTF folder: names are valid in this version, and times never decrease.
    Folder(Version),
    /// Lines of text: the context of an event has the text that the kernel prints for it, and the
    /// number of events that are missing before it.
    Lines,
    /// Any other use.
    Plain,
}

/// Remarks on how events are converted, collected from all readers of a trace. Each remark is kept
/// once.
pub type Remarks = Arc<Mutex<BTreeSet<String>>>;

/// Returns the selected events of one trace array. `path` is the file of the kernel. The caller
/// applies [`Choice::last`]. `offset` is added to the clock's readings to get nanoseconds since the
/// epoch, if it is known.
///
/// # Errors
/// The array or its snapshot does not exist.
pub fn trace(
    path: &Path,
    tracing: &Arc<Tracing>,
    array: usize,
    choice: &Choice,
    offset: Option<i64>,
    form: Form,
    remarks: &Remarks,
) -> Result<Trace> {
    let of = tracing.arrays.get(array);
    let (of, ring) = of.and_then(|of| Some((of, of.shown(choice.snapshot)?))).ok_or_else(|| {
        Error::Schema(format!("trace array {array}: the array or its snapshot does not exist"))
    })?;
    let packets = ArrayPackets {
        tracing: Arc::clone(tracing),
        array: of.clone(),
        ring: Arc::clone(ring),
        wanted: choice.ids(tracing),
        choice: choice.clone(),
        // If all ids are used, the event format with the last id has no class.
        unknown: (0..=u16::MAX)
            .rev()
            .find(|id| !tracing.formats.contains_key(id))
            .unwrap_or(u16::MAX),
        form,
        uuid: uuid(tracing, array, of, &**ring),
        options: Options {
            choice: Choice { events: Vec::new(), ..choice.clone() },
            ..Options::default()
        },
        remarks: Arc::clone(remarks),
    };
    let class = trace_class(&packets, of, &**ring, offset);
    packets.remark(class::remark(of));
    let lanes = selected_lanes(&**ring, &choice.cpus);
    let source: Arc<dyn Packets> = Arc::new(packets);
    let stream = |lane: usize| {
        let cpu = ring.cpus().get(lane)?;
        let bytes = (cpu.sub_buffers as u64).saturating_mul(cpu.sub_buffer_size.into());
        let name = format!("cpu-{}", cpu.cpu);
        Some(in_memory(&source, lane, u64::from(cpu.cpu), name, Some(cpu.cpu), bytes))
    };
    let streams = lanes.into_iter().filter_map(stream).collect();
    let mut account = tracing.evidence.clone();
    account.append(ring.checked());
    account.append(Evidence { gaps: counters(&**ring).collect(), ..Evidence::default() });
    selected(path, class, streams, account)
}

/// Returns a trace in memory that is marked as selected already.
pub(crate) fn selected(
    path: &Path,
    class: TraceClass,
    streams: Vec<Stream>,
    account: Evidence,
) -> Result<Trace> {
    let trace = Trace::in_memory(path.to_owned(), class, streams, Arc::new(account));
    let mut trace = trace.map_err(|error| Error::Schema(error.to_string()))?;
    trace.is_selected = true;
    Ok(trace)
}

/// Returns a stream that reads the packets of `source`.
pub(crate) fn in_memory(
    source: &Arc<dyn Packets>,
    stream: usize,
    id: u64,
    name: String,
    cpu: Option<u32>,
    bytes: u64,
) -> Stream {
    let memory = Memory { source: Arc::clone(source), stream, name, cpu, bytes };
    Stream { class: 0, id: Some(id), files: Vec::new(), packets: Vec::new(), memory: Some(memory) }
}

/// Returns an id that is the same each time the trace is written. It is computed from the machine's
/// description and from the content of the rings. The ids of a machine's arrays sort in the order
/// of the arrays, as events of equal time do.
fn uuid(tracing: &Tracing, index: usize, array: &Array, ring: &dyn Ring) -> [u8; 16] {
    let mut text = format!("{} {} {}", tracing.uname, array.name, array.clock_name()).into_bytes();
    let mut bytes = Vec::new();
    for (lane, cpu) in ring.cpus().iter().enumerate() {
        text.extend(cpu.cpu.to_le_bytes());
        text.extend(cpu.stats.entries.to_le_bytes());
        if cpu.sub_buffers > 0 {
            ring.sub_buffer(lane, 0, &mut bytes);
            text.extend(bytes.iter().take(64));
        }
    }
    // FNV-1a of 128 bits; version 8 of RFC 9562.
    let mix = |hash: u128, byte: &u8| {
        (hash ^ u128::from(*byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
    };
    let hash = text.iter().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, mix);
    let mut uuid = hash.to_be_bytes();
    let [high, low] = low_u16(index as u64).to_be_bytes();
    (uuid[0], uuid[1]) = (high, low);
    uuid[6] = uuid[6] & 0x0f | 0x80;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    uuid
}

/// Makes the packets of a ring.
struct ArrayPackets {
    tracing: Arc<Tracing>,
    array: Array,
    ring: Arc<dyn Ring>,
    choice: Choice,
    /// Selected events, by event id.
    wanted: Vec<bool>,
    /// Id of the class of events that have no format, or whose fields lie outside the event. These
    /// events are kept as bytes.
    unknown: u16,
    form: Form,
    uuid: [u8; 16],
    options: Options,
    remarks: Remarks,
}

impl ArrayPackets {
    fn remark(&self, remarks: impl IntoIterator<Item = String>) {
        self.remarks.lock().unwrap_or_else(PoisonError::into_inner).extend(remarks);
    }
}

impl Packets for ArrayPackets {
    fn packets_of(&self, lane: usize) -> Box<dyn PacketReader + '_> {
        let (cpu, count) =
            self.ring.cpus().get(lane).map_or((u32::MAX, 0), |cpu| (cpu.cpu, cpu.sub_buffers));
        let order = self.tracing.byte_order;
        let classes = self.tracing.formats.keys().next_back().map_or(0, |id| usize::from(*id) + 1);
        Box::new(CpuPackets {
            source: self,
            lane,
            cpu,
            count,
            next: 0,
            classes: vec![None; classes],
            printer: Printer::new(&self.tracing, &self.array, &*self.ring, &self.options),
            header: Header { order, uuid: self.uuid, stream_id: 0, instance: u64::from(cpu), cpu },
            last: Last { end: 0, sequence: 0, discarded: 0 },
            lost: None,
            faults: Faults::default(),
            defect: None,
            page: Vec::new(),
            scratch: Vec::new(),
        })
    }
}

/// Makes the packets of one CPU's sub-buffers.
struct CpuPackets<'a> {
    source: &'a ArrayPackets,
    lane: usize,
    cpu: u32,
    count: usize,
    next: usize,
    /// The fields of each event class, by event id. They are computed when the first event of the
    /// class is read.
    classes: Vec<Option<Vec<Cell<'a>>>>,
    printer: Printer<'a>,
    header: Header,
    last: Last,
    /// Set if events are missing before the next event: their number, if it is known.
    lost: Option<Option<u64>>,
    faults: Faults,
    defect: Option<Defect>,
    page: Vec<u8>,
    scratch: Vec<u8>,
}

impl PacketReader for CpuPackets<'_> {
    fn next_packet(&mut self, bytes: &mut Vec<u8>) -> Option<PacketInfo> {
        let mut page = std::mem::take(&mut self.page);
        let mut found = None;
        // The reader asks for a defect after each call.
        while found.is_none() && self.defect.is_none() && self.next < self.count {
            found = self.packet(&mut page, bytes);
        }
        self.page = page;
        self.source.remark(self.printer.notes.drain(..));
        found
    }

    fn defect(&mut self) -> Option<Defect> {
        self.defect.take()
    }
}

/// The faults of a sub-buffer.
#[derive(Default)]
struct Faults {
    /// Number of events whose fields lie outside the event.
    outside: u64,
    /// Number of events whose time exceeds [`LIMIT`].
    late: u64,
    /// Number of events whose time is before the time of the preceding event.
    back: u64,
    /// The error that ended decoding early, if there was one.
    misfit: Option<String>,
}

impl Faults {
    /// Returns all faults in words and resets them.
    fn take(&mut self) -> Option<String> {
        let Self { outside, late, back, misfit } = std::mem::take(self);
        let counts = [
            (outside, "events kept as bytes, because their fields lie outside the event"),
            (late, "events left out, because their times do not fit 62 bits"),
            (back, "events moved to the time of the preceding event, because theirs is earlier"),
        ];
        let counts = counts
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{what}: {count}"));
        let all: Vec<String> = misfit.into_iter().chain(counts).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }
}

impl CpuPackets<'_> {
    /// Returns the packet of the next sub-buffer, or `None` if no event of the sub-buffer is
    /// selected.
    fn packet(&mut self, page: &mut Vec<u8>, bytes: &mut Vec<u8>) -> Option<PacketInfo> {
        let (index, ring) = (self.next, &*self.source.ring);
        self.next = self.next.saturating_add(1);
        let info = ring.sub_buffer(self.lane, index, page);
        // Events that were overwritten before the first sub-buffer are not a gap in the recording.
        if let Some(missed) = info.missed.filter(|_| index > 0) {
            self.lost = Some(missed);
            self.last.discarded =
                self.last.discarded.saturating_add(missed.unwrap_or(1).min(LIMIT));
        }
        let (layout, order) = (self.source.tracing.header_page, self.source.tracing.byte_order);
        let from = (layout.data_offset as usize).saturating_add(info.consumed);
        let mut cursor = Cursor::in_sub_buffer(page, layout, order, &info);
        let mut begin = None;
        bytes.clear();
        bytes.resize(HEADER_LEN, 0);
        while let Some(next) = cursor.next(page) {
            match next {
                Ok(event) if event.payload.start < from || event.time < ring.time_start() => {}
                Ok(event) => begin = begin.or(self.event(page, &event, bytes)),
                Err(error) => {
                    self.faults.misfit =
                        Some(format!("{error}: the rest of the sub-buffer is lost"))
                }
            }
        }
        self.defect = self.faults.take().map(|what| Defect { sequence: index as u64, what });
        let made =
            begin.and_then(|begin| packet(bytes, &self.header, begin, self.last, info.verdict));
        // The next packet's number tells that events of a bad sub-buffer are missing.
        let numbers = [begin.is_some(), info.verdict.is_loss()].map(u64::from);
        self.last.sequence = numbers.into_iter().fold(self.last.sequence, u64::saturating_add);
        made
    }

    /// Appends an event to the packet if it is selected. Returns its time in the packet.
    fn event(&mut self, page: &[u8], event: &Event, out: &mut Vec<u8>) -> Option<u64> {
        let (packets, payload) = (self.source, page.get(event.payload.clone()).unwrap_or_default());
        let (tracing, order) = (&*packets.tracing, packets.tracing.byte_order);
        let common = Common::read(payload, order);
        if !packets.choice.wants_time(event.time)
            || !packets.wanted.get(usize::from(common.id)).copied().unwrap_or(false)
            || (packets.choice.filter.is_some() && !self.printer.matches(payload, self.cpu))
        {
            return None;
        }
        let mut time = event.time;
        if matches!(packets.form, Form::Folder(_)) {
            if time > LIMIT {
                self.faults.late = self.faults.late.saturating_add(1);
                return None;
            }
            // Clocks of one CPU do not go back unless the memory is damaged.
            self.faults.back = self.faults.back.saturating_add(u64::from(time < self.last.end));
            time = time.max(self.last.end);
        }
        self.last.end = self.last.end.max(time);
        let at = EventInfo { time: event.time, cpu: self.cpu, lane: self.lane, common };
        let kind = usize::from(common.id);
        let known = || tracing.formats.get(&common.id).filter(|_| common.id != packets.unknown);
        let kept = self.classes.get_mut(kind).and_then(Option::take);
        let class =
            kept.or_else(|| known().map(|format| cells(format, tracing.word_size, packets.form)));
        let begin = out.len();
        put_header(out, order, common.id, time);
        let (printer, scratch) = (&mut self.printer, &mut self.scratch);
        put_context(out, payload, at, self.lost.take(), packets, printer, scratch);
        let fields = out.len();
        let mut put = |cell: &Cell<'_>| cell.put(out, payload, order, at, printer, scratch);
        if class.as_ref().and_then(|cells| cells.iter().try_for_each(&mut put)).is_none() {
            self.faults.outside = self.faults.outside.saturating_add(u64::from(class.is_some()));
            let context = out.split_off(begin);
            put_header(out, order, packets.unknown, time);
            out.extend_from_slice(
                context
                    .get(out.len().saturating_sub(begin)..fields.saturating_sub(begin))
                    .unwrap_or_default(),
            );
            put_raw(out, payload, order, common.id);
        }
        if let Some(place) = self.classes.get_mut(kind) {
            *place = class;
        }
        Some(time)
    }
}

#[cfg(test)]
mod tests;

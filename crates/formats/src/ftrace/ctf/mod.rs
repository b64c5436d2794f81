//! A trace array as a [`lastwords_ctf::read::Trace`]: a stream for each CPU, a packet for each sub-buffer, which is made when it is asked
//! for.
//!
//! Every event format becomes an event class with its fields by name; numbers keep their bytes, text ends with a NUL. The common fields
//! and the name of the task are the context of every event. What cannot be made of a sub-buffer is a [`Defect`] of its packet.

mod class;
mod encode;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use lastwords_trace::class::TraceClass;
use lastwords_trace::evidence::Evidence;
use lastwords_trace::ftrace::{Array, Ring, Tracing, counters};
use lastwords_trace::source::{Defect, PacketInfo, PacketReader, Packets};

use super::choice::Choice;
use super::page::{Cursor, Event};
use super::text::{At, Common, Options, Printer};
use class::{Cell, cells, trace_class};
pub(crate) use class::{clock, event_class, framed, origin, text};
pub(crate) use encode::{packet, put_header, put_text};
use encode::{put_context, put_raw};
use lastwords_ctf::read::{Memory, Stream, Trace};
use lastwords_ctf::write::packets::{HEADER_LEN, Header, Last};
use lastwords_ctf::{Error, Result, Version};

/// Greatest reading of a clock that a folder has: readers count nanoseconds in an `i64`.
const LIMIT: u64 = 1 << 62;

/// What the events are made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A folder of CTF: with names that the version has, and times that do not go back.
    Folder(Version),
    /// Lines of text: an event has the text that the kernel prints of it, and how many events are missing before it, in its context.
    Lines,
    /// Anything else.
    Plain,
}

/// Remarks of all readers of a trace on how its events are made, each once.
pub type Remarks = Arc<Mutex<BTreeSet<String>>>;

/// The chosen events of one trace array, whose kernel was found at `path`; which are the last of them is for others to say. `offset`: what
/// its clock lacks to nanoseconds since the epoch, where that is known.
///
/// # Errors
/// There is no such array, or no snapshot of it.
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
    let (of, ring) = of
        .and_then(|of| Some((of, of.shown(choice.snapshot)?)))
        .ok_or_else(|| Error::Schema(format!("trace array {array}: there is none, or no snapshot of it")))?;
    let made = Made {
        tracing: Arc::clone(tracing),
        array: of.clone(),
        ring: Arc::clone(ring),
        wanted: choice.ids(tracing),
        choice: choice.clone(),
        // Where all ids are taken, the last kind has no class.
        unknown: (0..=u16::MAX).rev().find(|id| !tracing.formats.contains_key(id)).unwrap_or(u16::MAX),
        form,
        uuid: uuid(tracing, array, of, &**ring),
        options: Options { snapshot: choice.snapshot, ..Options::default() },
        remarks: Arc::clone(remarks),
    };
    let class = trace_class(&made, of, &**ring, offset);
    made.remark(class::remark(of));
    let lanes = choice.lanes(&**ring);
    let source: Arc<dyn Packets> = Arc::new(made);
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

/// A trace in memory that has what is wanted.
pub(crate) fn selected(path: &Path, class: TraceClass, streams: Vec<Stream>, account: Evidence) -> Result<Trace> {
    let trace = Trace::in_memory(path.to_owned(), class, streams, account);
    let mut trace = trace.map_err(|error| Error::Schema(error.to_string()))?;
    trace.is_selected = true;
    Ok(trace)
}

/// A stream of the packets of `source`.
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

/// An id that is the same each time the trace is written: of what the machine is, and of what its rings hold. Those of a machine are in the
/// order of its arrays, as events of one time are.
fn uuid(tracing: &Tracing, index: usize, array: &Array, ring: &dyn Ring) -> [u8; 16] {
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
    let [high, low] = (index as u16).to_be_bytes();
    (uuid[0], uuid[1]) = (high, low);
    uuid[6] = uuid[6] & 0x0f | 0x80;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    uuid
}

/// Makes packets of a ring.
struct Made {
    tracing: Arc<Tracing>,
    array: Array,
    ring: Arc<dyn Ring>,
    choice: Choice,
    /// By event id.
    wanted: Vec<bool>,
    /// Id of the class of events that no format describes, or whose fields do not lie in them: they stand as bytes.
    unknown: u16,
    form: Form,
    uuid: [u8; 16],
    options: Options,
    remarks: Remarks,
}

impl Made {
    fn remark(&self, remarks: impl IntoIterator<Item = String>) {
        self.remarks.lock().unwrap_or_else(PoisonError::into_inner).extend(remarks);
    }
}

impl Packets for Made {
    fn packets_of(&self, lane: usize) -> Box<dyn PacketReader + '_> {
        let (cpu, count) = self.ring.cpus().get(lane).map_or((u32::MAX, 0), |cpu| (cpu.cpu, cpu.sub_buffers));
        let big = self.tracing.byte_order == lastwords_bytes::ByteOrder::Big;
        let classes = self.tracing.formats.keys().next_back().map_or(0, |id| usize::from(*id) + 1);
        Box::new(Lane {
            made: self,
            lane,
            cpu,
            count,
            next: 0,
            classes: vec![None; classes],
            printer: Printer::new(&self.tracing, &self.array, &*self.ring, &self.options),
            header: Header { big, uuid: self.uuid, stream_id: 0, instance: u64::from(cpu), cpu },
            last: Last { end: 0, sequence: 0, discarded: 0 },
            lost: None,
            wrong: Wrong::default(),
            defect: None,
            page: Vec::new(),
            scratch: Vec::new(),
        })
    }
}

/// Makes packets of one CPU's sub-buffers.
struct Lane<'a> {
    made: &'a Made,
    lane: usize,
    cpu: u32,
    count: usize,
    next: usize,
    /// By event id; made when the first of a kind comes.
    classes: Vec<Option<Vec<Cell<'a>>>>,
    printer: Printer<'a>,
    header: Header,
    last: Last,
    /// Events are missing before the next one.
    lost: Option<Option<u64>>,
    wrong: Wrong,
    defect: Option<Defect>,
    page: Vec<u8>,
    scratch: Vec<u8>,
}

impl PacketReader for Lane<'_> {
    fn next_packet(&mut self, bytes: &mut Vec<u8>) -> Option<PacketInfo> {
        let mut page = std::mem::take(&mut self.page);
        let mut found = None;
        // Whoever reads asks for a defect after each call.
        while found.is_none() && self.defect.is_none() && self.next < self.count {
            found = self.packet(&mut page, bytes);
        }
        self.page = page;
        self.made.remark(self.printer.notes.drain(..));
        found
    }

    fn defect(&mut self) -> Option<Defect> {
        self.defect.take()
    }
}

/// What is wrong in a sub-buffer.
#[derive(Default)]
struct Wrong {
    /// Events whose fields do not lie in them.
    outside: u64,
    /// Events whose times are beyond [`LIMIT`].
    late: u64,
    /// Events whose times are before that of the event before.
    back: u64,
    /// Where its events end too early, and why.
    misfit: Option<String>,
}

impl Wrong {
    /// All of it in words.
    fn take(&mut self) -> Option<String> {
        let Self { outside, late, back, misfit } = std::mem::take(self);
        let counts = [
            (outside, "events kept as bytes, as their fields do not lie in them"),
            (late, "events left out, as their times do not fit 62 bits"),
            (back, "events moved to the time of the event before, as theirs is earlier"),
        ];
        let counts = counts.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{what}: {count}"));
        let all: Vec<String> = misfit.into_iter().chain(counts).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }
}

impl Lane<'_> {
    /// The packet of the next sub-buffer; none where no event of it is wanted.
    fn packet(&mut self, page: &mut Vec<u8>, bytes: &mut Vec<u8>) -> Option<PacketInfo> {
        let (index, ring) = (self.next, &*self.made.ring);
        self.next = self.next.saturating_add(1);
        let info = ring.sub_buffer(self.lane, index, page);
        // What was overwritten before the first sub-buffer is no gap in the recording.
        if let Some(missed) = info.missed.filter(|_| index > 0) {
            self.lost = Some(missed);
            self.last.discarded = self.last.discarded.saturating_add(missed.unwrap_or(1).min(LIMIT));
        }
        let (layout, order) = (self.made.tracing.header_page, self.made.tracing.byte_order);
        let from = (layout.data_offset as usize).saturating_add(info.consumed);
        let mut cursor = Cursor::of(page, layout, order, &info);
        let mut begin = None;
        bytes.clear();
        bytes.resize(HEADER_LEN, 0);
        while let Some(next) = cursor.next(page) {
            match next {
                Ok(event) if event.payload.start < from || event.time < ring.time_start() => {}
                Ok(event) => begin = begin.or(self.event(page, &event, bytes)),
                Err(error) => self.wrong.misfit = Some(format!("{error}: what is behind it is lost")),
            }
        }
        self.defect = self.wrong.take().map(|what| Defect { sequence: index as u64, what });
        let begin = begin?;
        let made = packet(bytes, &self.header, begin, self.last, info.verdict);
        self.last.sequence = self.last.sequence.saturating_add(1);
        made
    }

    /// Appends an event to the packet, if it is wanted; its time there.
    fn event(&mut self, page: &[u8], event: &Event, out: &mut Vec<u8>) -> Option<u64> {
        let (made, payload) = (self.made, page.get(event.payload.clone()).unwrap_or_default());
        let (tracing, order) = (&*made.tracing, made.tracing.byte_order);
        let common = Common::read(payload, order);
        if !made.choice.wants_time(event.time) || !made.wanted.get(usize::from(common.id)).copied().unwrap_or(false) {
            return None;
        }
        let mut time = event.time;
        if matches!(made.form, Form::Folder(_)) {
            if time > LIMIT {
                self.wrong.late = self.wrong.late.saturating_add(1);
                return None;
            }
            // Clocks of one CPU do not go back, unless its memory is damaged.
            self.wrong.back = self.wrong.back.saturating_add(u64::from(time < self.last.end));
            time = time.max(self.last.end);
        }
        self.last.end = self.last.end.max(time);
        let at = At { time: event.time, cpu: self.cpu, lane: self.lane, common };
        let kind = usize::from(common.id);
        let known = || tracing.formats.get(&common.id).filter(|_| common.id != made.unknown);
        let kept = self.classes.get_mut(kind).and_then(Option::take);
        let class = kept.or_else(|| known().map(|format| cells(format, tracing.word_size, made.form)));
        let begin = out.len();
        put_header(out, order, common.id, time);
        let (printer, scratch) = (&mut self.printer, &mut self.scratch);
        put_context(out, payload, at, self.lost.take(), made, printer, scratch);
        let fields = out.len();
        let mut put = |cell: &Cell<'_>| cell.put(out, payload, order, at, printer, scratch);
        if class.as_ref().and_then(|cells| cells.iter().try_for_each(&mut put)).is_none() {
            self.wrong.outside = self.wrong.outside.saturating_add(u64::from(class.is_some()));
            let context = out.split_off(begin);
            put_header(out, order, made.unknown, time);
            out.extend_from_slice(
                context.get(out.len().saturating_sub(begin)..fields.saturating_sub(begin)).unwrap_or_default(),
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

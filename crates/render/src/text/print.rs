//! Prints traces as text. Events are collected in batches. If the trace is large, the batches are
//! formatted on as many threads as there are CPUs.

use super::Style;
use super::babeltrace;
use super::batch::{Batch, Context, Record, Window};
use super::columns;
use super::pipeline::{Formatter, Pipeline};
use super::plan::{StreamPlan, plan};
use super::time::{TimeOfDay, Zone};
use super::value::Writer;
use crate::Totals;
use crate::choose::{Chosen, Filter};
use crate::events::{Note, Out, Tally};
use crate::streams::StreamInfo;
use lastwords_bytes::low_u32;
use lastwords_ctf::read::{Due, Error, Loss, Reader, Sink, Trace, run};
use lastwords_ctf::uuid_text;
use lastwords_trace::class::Scope;
use lastwords_trace::parallel;
use std::sync::Arc;

/// Number of events in a batch for other threads. Formatting so many events costs much more than
/// passing the batch to a thread.
const BATCH: usize = 8192;
/// Number of events in a batch without threads. So few events stay in the CPU's cache.
const SMALL_BATCH: usize = 512;
/// Maximum memory of a batch, in bytes: windows that earlier batches do not have, and text in
/// excess of the events' bytes.
const BATCH_BYTES: u64 = 8 << 20;
/// Number of bytes of packets from which on threads save more time than they cost.
const WORTH_THREADS: u64 = 1 << 20;
/// The scopes before the fields of an event.
const HEADERS: [Scope; 3] = [Scope::PacketHeader, Scope::PacketContext, Scope::EventHeader];

/// Facts about the stream classes of all traces. The classes are numbered trace after trace.
struct Classes {
    /// The number of the first class of each trace.
    firsts: Vec<usize>,
    /// True for each class and event class whose fields depend on data before the event.
    depends: Vec<Vec<bool>>,
}

impl Classes {
    fn new(traces: &[Trace]) -> Self {
        let (mut firsts, mut depends) = (Vec::new(), Vec::new());
        for trace in traces {
            firsts.push(depends.len());
            let class = trace.class();
            depends.extend(class.streams.iter().enumerate().map(|(stream, of)| {
                (0..of.events.len())
                    .map(|event| class.depends_on(stream, event, &HEADERS))
                    .collect::<Vec<_>>()
            }));
        }
        Self { firsts, depends }
    }

    fn position(&self, of: &StreamInfo) -> usize {
        self.firsts.get(of.trace).map_or(usize::MAX, |first| first.wrapping_add(of.class))
    }

    fn depends(&self, class: usize, event: usize) -> bool {
        self.depends.get(class).and_then(|of| of.get(event)).copied().unwrap_or(false)
    }
}

/// Prints the chosen events in a style.
///
/// # Errors
/// `out` cannot be written or wants no more lines.
pub(super) fn print<'o>(
    chosen: Chosen<'_>,
    style: Style,
    zone: &Zone,
    out: Out<'o>,
    notes: &'o mut dyn FnMut(Note),
) -> crate::Result<Totals> {
    let (threads, full) = match out {
        Out::Lines(_) => (1, 1),
        Out::File(_) if chosen.bytes() >= WORTH_THREADS && parallel::cpus() > 1 => {
            (parallel::cpus(), BATCH)
        }
        Out::File(_) => (1, SMALL_BATCH),
    };
    let Chosen { traces, mut readers, facts, filter, passed } = chosen;
    let classes = Classes::new(traces);
    let plans: Vec<StreamPlan<'_>> =
        if style.is_babeltrace() { traces.iter().flat_map(plan).collect() } else { Vec::new() };
    let form = match style {
        Style::Ftrace => columns::Form::Kernel,
        _ => columns::Form::Own { with_ids: style == Style::FieldsWithIds },
    };
    let columns = (!style.is_babeltrace()).then(|| columns::Plan::new(traces, &facts, form));
    let formatter = || match &columns {
        Some(plan) => Formatter::Columns(columns::Lines::new(plan, traces, zone)),
        None => Formatter::Babeltrace(babeltrace::Lines::new(&plans, traces, zone)),
    };
    let state = |facts: &StreamInfo| {
        let class = classes.position(facts);
        let is_independent = !classes.depends.get(class).is_some_and(|of| of.contains(&true));
        let context = Arc::new(Context::new(Vec::new()));
        StreamState {
            trace: facts.trace,
            class,
            is_independent,
            context,
            last: (0, 0, 0),
            window: 0,
        }
    };
    let streams = facts.iter().map(state).collect();
    std::thread::scope(|scope| {
        let pipeline = if threads == 1 {
            Pipeline::inline(formatter(), out)
        } else {
            let (pipeline, queue) = Pipeline::threads(threads, out);
            let queue = Arc::new(queue);
            for _ in 0..threads {
                let (queue, formatter) = (Arc::clone(&queue), formatter());
                scope.spawn(move || queue.work(formatter));
            }
            pipeline
        };
        let mut printer = Printer {
            traces,
            plans: &plans,
            classes: &classes,
            streams,
            filter,
            notes,
            moments: TimeOfDay::new(zone, b"[", b"]"),
            previous: None,
            batch: Batch::default(),
            full,
            bytes: 0,
            number: 0,
            pipeline,
            tally: Tally::new(&facts, &passed),
            failed: None,
        };
        run(&mut readers, &mut printer);
        printer.flush();
        printer.tally.finish(printer.failed, printer.pipeline.bytes(), printer.notes)
    })
}

struct Printer<'p, 't, 'o> {
    traces: &'t [Trace],
    /// The plan of each class in babeltrace2's style. The list is empty for other styles.
    plans: &'p [StreamPlan<'t>],
    classes: &'p Classes,
    /// The state of each stream.
    streams: Vec<StreamState>,
    filter: Filter<'t>,
    notes: &'o mut dyn FnMut(Note),
    /// Formats the times in messages about losses.
    moments: TimeOfDay,
    /// Time of the last event.
    previous: Option<i64>,
    batch: Batch,
    /// Number of events in a full batch.
    full: usize,
    /// Memory of the batch, in bytes.
    bytes: u64,
    /// Number of the batch.
    number: u64,
    pipeline: Pipeline<'p, 't, 'o>,
    tally: Tally,
    failed: Option<std::io::Error>,
}

struct StreamState {
    trace: usize,
    /// Number of its class among the classes of all traces.
    class: usize,
    /// The fields of no event depend on data before the event.
    is_independent: bool,
    /// Context of the current packet, as text.
    context: Arc<Context>,
    /// State at the last event of the stream: the number of the batch, the reader's number of the
    /// window, and the decoder's count of text in excess of the events' bytes.
    last: (u64, u64, u64),
    /// Position of the last event's window in the batch.
    window: u32,
}

impl Printer<'_, '_, '_> {
    /// Passes the batch to the pipeline. Returns false if writing has failed.
    fn send(&mut self) -> bool {
        let events = &mut self.tally.totals.events;
        *events = events.wrapping_add(self.batch.records.len() as u64);
        if self.failed.is_none() {
            self.failed = self.pipeline.put(&mut self.batch).err();
        }
        self.batch.restart(self.previous);
        self.number = self.number.wrapping_add(1);
        self.bytes = 0;
        self.failed.is_none()
    }

    /// Writes all events that were read so far.
    fn flush(&mut self) {
        if self.send() {
            self.failed = self.pipeline.drain().err();
        }
    }

    /// Adds the memory of a stream's next event to that of the batch, and adds the event's window
    /// to the batch if it is new.
    #[cold]
    fn update(
        &mut self,
        stream: usize,
        now: (u64, u64, u64),
        reader: &mut Reader<'_>,
        is_timed: bool,
    ) {
        let Some(state) = self.streams.get_mut(stream) else { return };
        let before = std::mem::replace(&mut state.last, now);
        let bytes = if before.1 == now.1 { 0 } else { reader.parts().2.bytes.len() as u64 };
        self.bytes =
            self.bytes.saturating_add(bytes).saturating_add(now.2.saturating_sub(before.2));
        if (before.0, before.1) != (now.0, now.1) {
            state.window = low_u32(self.batch.windows.len() as u64);
            let (bytes, base, content_end) = reader.window();
            let context = Arc::clone(&state.context);
            let (trace, plan) = (state.trace, state.class);
            self.batch.windows.push(Window {
                bytes,
                base,
                content_end,
                context,
                stream,
                trace,
                plan,
                is_timed,
            });
        }
    }

    fn moment(&mut self, nanoseconds: Option<i64>) -> String {
        let mut text = Vec::new();
        match nanoseconds {
            Some(nanoseconds) => self.moments.put(nanoseconds, &mut text),
            None => text.extend_from_slice(b"[??:??:??.?????????]"),
        }
        String::from_utf8_lossy(&text).into_owned()
    }
}

impl Sink for Printer<'_, '_, '_> {
    #[inline]
    fn event(&mut self, stream: usize, reader: &mut Reader<'_>, event: &Due) -> bool {
        if !self.filter.wants(stream, reader, event) {
            return true;
        }
        let Some(state) = self.streams.get_mut(stream) else { return true };
        if !state.is_independent && self.classes.depends(state.class, event.class) {
            let decoder = reader.parts().1.clone();
            self.batch.decoders.push((self.batch.records.len(), decoder));
        }
        let now = (self.number, reader.windows(), reader.parts().1.paid());
        if state.last != now {
            self.update(stream, now, reader, event.nanoseconds.is_some());
        }
        let Some(state) = self.streams.get(stream) else { return true };
        let nanoseconds = event.nanoseconds.unwrap_or(0);
        if event.nanoseconds.is_some() {
            self.previous = event.nanoseconds;
        }
        // Each class takes memory for its name, so there are fewer than 2^32 classes.
        self.batch.records.push(Record {
            window: state.window,
            class: low_u32(event.class as u64),
            body: event.body,
            nanoseconds,
        });
        (self.batch.records.len() < self.full && self.bytes < BATCH_BYTES) || self.send()
    }

    fn packet(&mut self, stream: usize, reader: &mut Reader<'_>) {
        self.tally.packet(stream);
        let Some(state) = self.streams.get_mut(stream) else { return };
        let Some(scope) = self.plans.get(state.class).and_then(|plan| plan.context.as_ref()) else {
            return;
        };
        let mut context = Vec::new();
        if let Some(packet) = reader.packet().copied() {
            let mut writer = Writer { out: &mut context, formats: &scope.formats, hidden: 0 };
            let (program, decoder, bytes) = reader.parts();
            // This cannot fail: the reader has accepted the same bytes.
            let _ = program.visit_context(decoder, &packet, bytes.bytes, &mut writer);
        }
        state.context = Arc::new(Context::new(context));
    }

    fn loss(&mut self, stream: usize, reader: &mut Reader<'_>, loss: Loss) {
        self.tally.loss(stream, loss);
        let Some(state) = self.streams.get(stream) else { return };
        let Some(trace) = self.traces.get(state.trace) else { return };
        let class = trace.class();
        let what = if loss.packets { "packet" } else { "event" };
        let plural = if loss.count == 1 { "" } else { "s" };
        let range = match loss.between {
            Some((begin, end)) => {
                let (begin, end) = (reader.nanoseconds(begin), reader.nanoseconds(end));
                format!("between {} and {}", self.moment(begin), self.moment(end))
            }
            None => "(unknown time range)".to_owned(),
        };
        let uuid = class
            .uuid
            .map_or("(no UUID)".to_owned(), |uuid| format!("(UUID: {})", uuid_text(&uuid)));
        let id = class.streams.get(reader.stream().class).map_or(0, |class| class.id);
        let own =
            reader.stream().id.map_or("no stream ID".to_owned(), |id| format!("stream ID: {id}"));
        let text = format!(
            "Tracer discarded {} {what}{plural} {range} in trace \"{}\" {uuid} within stream \"{}\" (stream class ID: \
             {id}, {own}).",
            loss.count,
            trace.name(),
            reader.stream().place()
        );
        (self.notes)(Note::Loss(loss, text));
    }

    fn fault(&mut self, stream: usize, fault: Error) {
        self.tally.fault(stream);
        self.flush();
        (self.notes)(Note::Fault(fault));
    }
}

//! Any CTF trace in babeltrace2's default form, as version 2.1.1 prints it.

mod batch;
mod line;
mod pipeline;
mod plan;
mod value;

use super::time::{TimeOfDay, Zone};
use crate::select::Selection;
use batch::{Batch, Context, Formatter, Record, Window};
use lastwords_ctf::read::{Due, Error, Loss, Reader, Sink, Trace, run};
use lastwords_ctf::uuid_text;
use lastwords_trace::parallel;
use pipeline::Pipeline;
use plan::{StreamPlan, plan};
use std::io::Write;
use std::sync::Arc;
use value::Writer;

/// Events that become text together: so many that handing them to another thread costs little beside.
const BATCH: usize = 8192;
/// Without threads: so few that they stay in the cache.
const SMALL_BATCH: usize = 512;
/// Bytes of packets from which on threads gain more than they cost.
const WORTH_THREADS: u64 = 1 << 20;

/// What [`print()`] did.
#[derive(Debug, Default)]
pub struct Printed {
    /// Events printed.
    pub events: u64,
    /// Why writing ended.
    pub failed: Option<std::io::Error>,
}

/// Prints what is selected of `traces`, of which there is a reader for each stream; what is missing and what cannot be
/// read goes to `notes`. Large traces on as many threads as there are CPUs.
pub fn print(
    traces: &[Trace],
    readers: &mut [(usize, Reader<'_>)],
    selection: &Selection,
    zone: &Zone,
    out: &mut dyn Write,
    notes: &mut dyn FnMut(Note),
) -> Printed {
    let mut firsts = Vec::new();
    let mut plans: Vec<StreamPlan<'_>> = Vec::new();
    for trace in traces {
        firsts.push(plans.len());
        plans.extend(plan(trace, selection));
    }
    let plan = |trace: usize, class: usize| firsts.get(trace).map_or(usize::MAX, |first| first + class);
    let bytes = readers.iter().map(|(_, reader)| reader.stream().bytes());
    let large = bytes.fold(0, u64::saturating_add) >= WORTH_THREADS;
    let threads = if large { parallel::cpus() } else { 1 };
    let formatter = || Formatter::new(&plans, traces, zone);
    let state = |(trace, reader): &(usize, Reader<'_>)| {
        let plan = plan(*trace, reader.stream().class);
        StreamState {
            trace: *trace,
            plan,
            all_alike: plans.get(plan).is_some_and(|plan| plan.all_alike),
            context: Arc::new(Context::new(Vec::new())),
            known: None,
            window: 0,
        }
    };
    let streams = readers.iter().map(state).collect();
    std::thread::scope(|scope| {
        let pipeline = if threads == 1 {
            Pipeline::here(formatter(), out)
        } else {
            let (pipeline, queue) = Pipeline::threads(threads, out);
            let queue = Arc::new(queue);
            for _ in 0..threads {
                let (queue, formatter) = (Arc::clone(&queue), formatter());
                scope.spawn(move || queue.work(formatter));
            }
            pipeline
        };
        let mut printer = Printer::new(traces, &plans, streams, selection, zone, pipeline, notes);
        run(readers, &mut printer);
        printer.finish()
    })
}

/// Something besides events.
#[derive(Debug)]
pub enum Note {
    /// Events or packets are missing; the same in babeltrace2's words.
    Loss(Loss, String),
    /// Something cannot be read.
    Fault(Error),
}

struct Printer<'p, 't, 'o> {
    traces: &'t [Trace],
    plans: &'p [StreamPlan<'t>],
    /// By stream.
    streams: Vec<StreamState>,
    selection: &'o Selection,
    notes: &'o mut dyn FnMut(Note),
    /// For remarks.
    moments: TimeOfDay,
    previous: Option<i64>,
    batch: Batch,
    /// Events of a full batch.
    full: usize,
    /// Counts batches.
    number: u64,
    pipeline: Pipeline<'p, 't, 'o>,
    printed: Printed,
}

struct StreamState {
    trace: usize,
    /// Position of its class's plan.
    plan: usize,
    /// As [`StreamPlan::all_alike`].
    all_alike: bool,
    /// Context of the packet that is read, as text.
    context: Arc<Context>,
    /// The batch and the reader's window that `window` is the position of.
    known: Option<(u64, u64)>,
    window: u32,
}

impl<'p, 't, 'o> Printer<'p, 't, 'o> {
    fn new(
        traces: &'t [Trace],
        plans: &'p [StreamPlan<'t>],
        streams: Vec<StreamState>,
        selection: &'o Selection,
        zone: &Zone,
        pipeline: Pipeline<'p, 't, 'o>,
        notes: &'o mut dyn FnMut(Note),
    ) -> Self {
        Self {
            traces,
            plans,
            streams,
            selection,
            notes,
            moments: TimeOfDay::new(zone, b"[", b"]"),
            previous: None,
            batch: Batch::default(),
            full: if pipeline.has_threads() { BATCH } else { SMALL_BATCH },
            number: 0,
            pipeline,
            printed: Printed::default(),
        }
    }

    fn finish(mut self) -> Printed {
        self.flush();
        self.printed
    }

    /// Sends the batch on its way; false where writing has failed.
    fn send(&mut self) -> bool {
        self.printed.events += self.batch.records.len() as u64;
        if self.printed.failed.is_none() {
            self.printed.failed = self.pipeline.put(&mut self.batch).err();
        }
        self.batch.restart(self.previous);
        self.number += 1;
        self.printed.failed.is_none()
    }

    /// Writes all events up to here.
    fn flush(&mut self) {
        if self.send() {
            self.printed.failed = self.pipeline.drain().err();
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
        let Some(state) = self.streams.get_mut(stream) else { return true };
        if !state.all_alike {
            let plan = self.plans.get(state.plan);
            let Some(class) = plan.and_then(|plan| plan.events.get(event.class)) else { return true };
            if !class.wanted || event.nanoseconds.is_some_and(|moment| !self.selection.wants_time(moment)) {
                return true;
            }
            if class.depends {
                let decoder = reader.parts().1.clone();
                self.batch.decoders.push((self.batch.records.len(), decoder));
            }
        }
        let known = Some((self.number, reader.windows()));
        if state.known != known {
            state.known = known;
            state.window = self.batch.windows.len() as u32;
            let (bytes, base, content_end) = reader.window();
            let context = Arc::clone(&state.context);
            let (trace, plan) = (state.trace, state.plan);
            let is_timed = event.nanoseconds.is_some();
            self.batch.windows.push(Window { bytes, base, content_end, context, trace, plan, is_timed });
        }
        let nanoseconds = event.nanoseconds.unwrap_or(0);
        if event.nanoseconds.is_some() {
            self.previous = event.nanoseconds;
        }
        // Classes are in memory, each with a name: fewer than 2^32.
        self.batch.records.push(Record {
            window: state.window,
            class: event.class as u32,
            body: event.body,
            nanoseconds,
        });
        self.batch.records.len() < self.full || self.send()
    }

    fn packet(&mut self, stream: usize, reader: &mut Reader<'_>) {
        let Some(state) = self.streams.get_mut(stream) else { return };
        let mut context = Vec::new();
        if let Some(scope) = self.plans.get(state.plan).and_then(|plan| plan.context.as_ref())
            && let Some(packet) = reader.packet().copied()
        {
            let mut writer = Writer { out: &mut context, parts: &scope.parts, hidden: 0 };
            let (program, decoder, bytes) = reader.parts();
            // The packet's own reading of the same bytes went well.
            let _ = program.visit_context(decoder, &packet, bytes.bytes, &mut writer);
        }
        state.context = Arc::new(Context::new(context));
    }

    fn loss(&mut self, stream: usize, reader: &mut Reader<'_>, loss: Loss) {
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
        let uuid = class.uuid.map_or("(no UUID)".to_owned(), |uuid| format!("(UUID: {})", uuid_text(&uuid)));
        let id = class.streams.get(reader.stream().class).map_or(0, |class| class.id);
        let own = reader.stream().id.map_or("no stream ID".to_owned(), |id| format!("stream ID: {id}"));
        let file = reader.stream().files.first().map(|file| file.display().to_string()).unwrap_or_default();
        let text = format!(
            "Tracer discarded {} {what}{plural} {range} in trace \"{}\" {uuid} within stream \"{file}\" (stream class ID: \
             {id}, {own}).",
            loss.count,
            trace.name()
        );
        (self.notes)(Note::Loss(loss, text));
    }

    fn fault(&mut self, _: usize, fault: Error) {
        self.flush();
        (self.notes)(Note::Fault(fault));
    }
}

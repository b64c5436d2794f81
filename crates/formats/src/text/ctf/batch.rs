//! Events on their way to text: which bytes they stand in, and how a batch of them becomes lines.

use super::plan::{EventPlan, StreamPlan};
use super::value::Writer;
use crate::text::number::Constant;
use crate::text::page::{Line, Page, Put};
use crate::text::time::{Stamp, Zone};
use lastwords_ctf::program::{Decoder, Part};
use lastwords_ctf::read::Trace;
use std::sync::Arc;

/// A window over a packet of a stream.
pub(super) struct Window {
    pub(super) bytes: Arc<Vec<u8>>,
    /// Where the first byte stands in the packet, bytes.
    pub(super) base: u64,
    /// Where the packet's content ends, bits.
    pub(super) content_end: u64,
    /// The packet's context, as text.
    pub(super) context: Arc<Context>,
    /// Its stream has a clock.
    pub(super) is_timed: bool,
    /// Positions of the trace and of its stream class's plan.
    pub(super) trace: usize,
    pub(super) plan: usize,
}

/// A packet's context, as text.
pub(super) struct Context {
    alone: Constant,
    /// With a comma, if it is not empty.
    before_others: Constant,
}

impl Context {
    pub(super) fn new(mut text: Vec<u8>) -> Self {
        let alone = Constant::new(&text);
        if !text.is_empty() {
            text.extend_from_slice(b", ");
        }
        Self { alone, before_others: Constant::new(&text) }
    }
}

/// An event.
pub(super) struct Record {
    /// Position of its window.
    pub(super) window: u32,
    /// Position of its class.
    pub(super) class: u32,
    /// Where its contexts begin, bits from the packet's beginning.
    pub(super) body: u64,
    /// Its time, where the window's stream has a clock.
    pub(super) nanoseconds: i64,
}

/// Events in order.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) windows: Vec<Window>,
    pub(super) records: Vec<Record>,
    /// For records whose fields depend on what stands before them: the position of the record.
    pub(super) decoders: Vec<(usize, Decoder)>,
    /// Time of the event before.
    pub(super) previous: Option<i64>,
}

impl Batch {
    /// Without events, behind some.
    pub(super) fn restart(&mut self, previous: Option<i64>) {
        self.windows.clear();
        self.records.clear();
        self.decoders.clear();
        self.previous = previous;
    }
}

/// Makes lines.
pub(super) struct Formatter<'p, 't> {
    plans: &'p [StreamPlan<'t>],
    traces: &'t [Trace],
    /// By trace.
    decoders: Vec<Decoder>,
    stamp: Stamp,
    /// Contexts and fields that are not of a flat form.
    fields: Vec<u8>,
}

impl<'p, 't> Formatter<'p, 't> {
    pub(super) fn new(plans: &'p [StreamPlan<'t>], traces: &'t [Trace], zone: &Zone) -> Self {
        let decoders = traces.iter().map(|trace| trace.program.decoder()).collect();
        Self { plans, traces, decoders, stamp: Stamp::new(zone), fields: Vec::new() }
    }

    /// Appends a line for each event.
    pub(super) fn put(&mut self, batch: &mut Batch, page: &mut Page) {
        self.stamp.previous = batch.previous;
        let mut decoders = batch.decoders.iter_mut().peekable();
        for (position, record) in batch.records.iter().enumerate() {
            let Some(window) = batch.windows.get(record.window as usize) else { continue };
            let plan = self.plans.get(window.plan);
            let Some((plan, class)) = plan.and_then(|plan| Some((plan, plan.events.get(record.class as usize)?)))
            else {
                continue;
            };
            if window.is_timed {
                self.stamp.go(record.nanoseconds);
            }
            let within = record.body.wrapping_sub(8 * window.base);
            if let Some(flat) = class.line.as_ref().filter(|_| within.is_multiple_of(8)) {
                let bytes = window.bytes.get((within / 8) as usize..).unwrap_or_default();
                let context = &window.context;
                let context = if flat.is_empty { &context.alone } else { &context.before_others };
                page.line(|line| {
                    self.head(window, class, line);
                    context.put(line);
                    flat.put(bytes, line);
                    true
                });
            } else {
                let decoder = decoders.next_if(|(of, _)| *of == position).map(|(_, decoder)| decoder);
                self.fields(plan, class, record, window, decoder);
                page.line(|line| {
                    self.head(window, class, line);
                    line.text(&self.fields);
                    true
                });
            }
        }
    }

    /// Up to the contexts.
    #[inline]
    fn head(&self, window: &Window, class: &EventPlan<'t>, line: &mut Line<'_>) {
        if window.is_timed {
            self.stamp.put(line);
        }
        class.head.put(line);
    }

    /// Contexts and fields, with the line feed.
    fn fields(
        &mut self,
        plan: &StreamPlan<'t>,
        class: &EventPlan<'t>,
        record: &Record,
        window: &Window,
        decoder: Option<&mut Decoder>,
    ) {
        let out = &mut self.fields;
        out.clear();
        window.context.alone.put(out);
        let decoder = decoder.or_else(|| self.decoders.get_mut(window.trace));
        let (Some(decoder), Some(trace)) = (decoder, self.traces.get(window.trace)) else { return out.push(b'\n') };
        let part = Part { bytes: &window.bytes, base: window.base, content_end: window.content_end };
        let mut first = window.context.alone.bytes().is_empty();
        let mut at = record.body;
        for scope in [&plan.common, &class.specific, &class.payload].into_iter().flatten() {
            if !first {
                out.extend_from_slice(b", ");
            }
            first = false;
            let mut writer = Writer { out, parts: &scope.parts, hidden: 0 };
            match trace.program.visit(decoder, scope.code, &part, at, &mut writer) {
                Ok(end) => at = end,
                Err(_) => break,
            }
        }
        out.push(b'\n');
    }
}

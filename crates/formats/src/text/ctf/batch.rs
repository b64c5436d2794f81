//! Events on their way to text: which bytes they stand in, and how a batch of them becomes lines.

use super::plan::{EventPlan, StreamPlan};
use super::value::Writer;
use crate::ctf::read::Trace;
use crate::text::number::Constant;
use crate::text::time::{Stamp, Zone};
use lastwords_trace::ctf::{Decoder, Part};
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
    pub(super) window: usize,
    /// Position of its class.
    pub(super) class: usize,
    /// Where its contexts begin, bits from the packet's beginning.
    pub(super) body: u64,
    pub(super) nanoseconds: Option<i64>,
    /// Where its fields depend on what stands before them.
    pub(super) decoder: Option<Box<Decoder>>,
}

/// Events in order.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) windows: Vec<Window>,
    pub(super) records: Vec<Record>,
    /// Time of the event before.
    pub(super) previous: Option<i64>,
}

impl Batch {
    /// Without events, behind some.
    pub(super) fn restart(&mut self, previous: Option<i64>) {
        self.windows.clear();
        self.records.clear();
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
}

impl<'p, 't> Formatter<'p, 't> {
    pub(super) fn new(plans: &'p [StreamPlan<'t>], traces: &'t [Trace], zone: &Zone) -> Self {
        let decoders = traces.iter().map(|trace| trace.program.decoder()).collect();
        Self { plans, traces, decoders, stamp: Stamp::new(zone) }
    }

    /// Appends a line for each event.
    pub(super) fn put(&mut self, batch: &mut Batch, out: &mut Vec<u8>) {
        self.stamp.previous = batch.previous;
        for record in &mut batch.records {
            let Some(window) = batch.windows.get(record.window) else { continue };
            let plan = self.plans.get(window.plan);
            let Some((plan, class)) = plan.and_then(|plan| Some((plan, plan.events.get(record.class)?))) else {
                continue;
            };
            if let Some(nanoseconds) = record.nanoseconds {
                self.stamp.put(nanoseconds, out);
            }
            class.head.put(out);
            self.fields(plan, class, record, window, out);
        }
    }

    #[inline]
    fn fields(
        &mut self,
        plan: &StreamPlan<'t>,
        class: &EventPlan<'t>,
        record: &mut Record,
        window: &Window,
        out: &mut Vec<u8>,
    ) {
        let within = record.body.wrapping_sub(8 * window.base);
        if let Some(line) = class.line.as_ref().filter(|_| within.is_multiple_of(8)) {
            let context = &window.context;
            if line.is_empty { &context.alone } else { &context.before_others }.put(out);
            line.put(window.bytes.get((within / 8) as usize..).unwrap_or_default(), out);
            return;
        }
        window.context.alone.put(out);
        let decoder = match &mut record.decoder {
            Some(decoder) => Some(&mut **decoder),
            None => self.decoders.get_mut(window.trace),
        };
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

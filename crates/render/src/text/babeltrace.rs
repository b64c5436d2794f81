//! Formats lines as babeltrace2 2.1.1 prints them.

use super::batch::{Batch, Record, Window};
use super::plan::{EventPlan, StreamPlan};
use super::time::{Stamp, Zone};
use super::value::Writer;
use lastwords_ctf::program::Decoder;
use lastwords_ctf::read::Trace;
use lastwords_trace::text::page::{Line, Page, Put};

/// Formats the events of batches.
pub(super) struct Lines<'p, 't> {
    plans: &'p [StreamPlan<'t>],
    traces: &'t [Trace],
    /// The decoder of each trace.
    decoders: Vec<Decoder>,
    stamp: Stamp,
    /// Buffer for the contexts and fields of an event without a flat form.
    fields: Vec<u8>,
}

impl<'p, 't> Lines<'p, 't> {
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
            let Some((plan, class)) =
                plan.and_then(|plan| Some((plan, plan.events.get(record.class as usize)?)))
            else {
                continue;
            };
            if window.is_timed {
                self.stamp.set(record.nanoseconds);
            }
            let within = record.body.wrapping_sub(window.base.wrapping_mul(8));
            if let Some(flat) = class.line.as_ref().filter(|_| within.is_multiple_of(8)) {
                let bytes = window.bytes.get((within / 8) as usize..).unwrap_or_default();
                let context = &window.context;
                let context = if flat.is_empty { &context.alone } else { &context.before_others };
                page.line(|line| {
                    self.head(window, class, line);
                    context.put(line);
                    if flat.put(bytes, line).is_none() {
                        line.block(b"\n", 1);
                    }
                    true
                });
            } else {
                let decoder =
                    decoders.next_if(|(of, _)| *of == position).map(|(_, decoder)| decoder);
                self.fields(plan, class, record, window, decoder);
                page.line(|line| {
                    self.head(window, class, line);
                    line.text(&self.fields);
                    true
                });
            }
        }
    }

    /// Appends the part of the line before the contexts.
    #[inline]
    fn head(&self, window: &Window, class: &EventPlan<'t>, line: &mut Line<'_>) {
        if window.is_timed {
            self.stamp.put(line);
        }
        class.head.put(line);
    }

    /// Formats contexts and fields, and a line feed.
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
        let (Some(decoder), Some(trace)) = (decoder, self.traces.get(window.trace)) else {
            return out.push(b'\n');
        };
        let part = window.part();
        let mut first = window.context.alone.bytes().is_empty();
        let mut at = record.body;
        for scope in [&plan.common, &class.specific, &class.payload].into_iter().flatten() {
            if !first {
                out.extend_from_slice(b", ");
            }
            first = false;
            let mut writer = Writer { out, formats: &scope.formats, hidden: 0 };
            match trace.program.visit(decoder, scope.code, &part, at, &mut writer) {
                Ok(end) => at = end,
                Err(_) => break,
            }
        }
        out.push(b'\n');
    }
}

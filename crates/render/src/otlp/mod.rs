//! Writes OTLP, the protocol of OpenTelemetry, as JSON lines, which the collector's receiver
//! `otlpjsonfile` reads. docs/OTLP.md describes the content.
//!
//! Each line is one object with the log records (`resourceLogs`) or the spans (`resourceSpans`) of
//! one trace. The names and types come from OpenTelemetry's schema (`opentelemetry/proto` of
//! <https://github.com/open-telemetry/opentelemetry-proto> at 1.9.0) and its mapping to JSON: names in
//! lowerCamelCase, integers of 64 bits as text, ids in hexadecimal digits, enumerations as numbers.

mod attributes;
mod ids;
mod lines;
mod record;
mod resource;
mod spans;

use crate::events::Note;
use crate::iter::{EventRef, Events, Order, Value};
use crate::select::Selection;
use crate::spans::{OpenSpan, Step};
use crate::{Error, Result, Totals};
use attributes::Attributes;
use lastwords_ctf::read::{Trace, Watch};
use lines::Lines;
use record::{Record, Severity};
use resource::resource;
use spans::Spans;
use std::io::{self, Write};

/// What is written.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    /// The traces.
    pub traces: &'a [Trace],
    /// The spans that were open when recording ended.
    pub open_spans: &'a [OpenSpan],
    /// True for each trace that is known to have ended: its open spans will not be closed.
    pub ended: &'a [bool],
}

/// What was written.
#[derive(Debug, Default)]
pub struct Written {
    /// The counts of events, packets and losses, and of the bytes.
    pub totals: Totals,
    traces: Vec<Seen>,
}

/// What was seen of a trace.
#[derive(Debug, Default)]
struct Seen {
    /// The resource, as JSON.
    resource: Vec<u8>,
    /// The newest time of an event, in nanoseconds since the epoch.
    newest: Option<i64>,
    counts: Counts,
}

/// Numbers of spans of a trace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Counts {
    closed: u64,
    open: u64,
    /// The closing was read, and the opening was not.
    without_begin: u64,
    /// The opening was read, and neither the closing nor that the span was open.
    without_end: u64,
    /// It was open, and nothing relates its times to real time: it is not written.
    undated: u64,
}

/// How a trace ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// What recorded it died.
    Died,
    /// What recorded it ended as it wanted to.
    Well,
    /// It is not known.
    Unknown,
}

/// What is known of the end of a trace and of its losses.
#[derive(Debug, Clone)]
pub struct Verdict {
    /// How it ended, in one sentence.
    pub text: String,
    /// How it ended.
    pub ending: Ending,
    /// The time of the end, in nanoseconds since the epoch, if it is known.
    pub time: Option<i64>,
    /// Further facts, by the names of attributes.
    pub facts: Vec<(&'static str, Value)>,
}

/// The name of the event of a verdict.
const VERDICT: &str = "lastwords.verdict";

/// Writes the selected events and the spans. Errors of reading go to `notes`. `watch` receives the
/// number of bytes that were read. The caller appends the verdicts ([`Written::verdict`]).
///
/// # Errors
/// `out` cannot be written.
pub fn write<'t>(
    input: Input<'t>,
    selection: &'t Selection,
    out: &mut dyn Write,
    watch: Watch<'t>,
    notes: &mut dyn FnMut(Note),
) -> Result<Written> {
    let mut writer = Writer::new(input, out);
    let mut events = Events::new(input.traces, selection, Order::Time, watch);
    let mut failed = None;
    while failed.is_none() {
        if let Some(mut event) = events.advance() {
            failed = writer.event(&mut event).err();
            continue;
        }
        match events.fault() {
            Some(fault) => notes(Note::Fault(fault)),
            None => break,
        }
    }
    if failed.is_none() {
        failed = writer.end(selection).err();
    }
    let totals = events.finish(failed, writer.lines.bytes(), notes)?;
    Ok(Written { totals, traces: writer.seen })
}

/// Writes events and spans.
struct Writer<'t, 'o> {
    input: Input<'t>,
    /// The numbers that ids are derived from, by trace.
    seen: Vec<Seen>,
    spans: Spans,
    lines: Lines<'o>,
}

/// The number of a trace that ids are derived from.
struct TraceNumber {
    /// The trace's UUID; zeros if it has none.
    uuid: [u8; 16],
}

/// Returns true if the times of a trace are since the epoch.
fn is_dated(trace: &Trace) -> bool {
    trace.class().clocks.iter().all(|clock| clock.is_since_epoch())
}

impl<'t, 'o> Writer<'t, 'o> {
    fn new(input: Input<'t>, out: &'o mut dyn Write) -> Self {
        let seen = |trace: &Trace| {
            let mut json = Vec::new();
            resource(trace).array(&mut json);
            Seen { resource: json, ..Seen::default() }
        };
        let number = |trace: &Trace| TraceNumber { uuid: trace.class().uuid.unwrap_or_default() };
        let spans = Spans::new(input.traces.iter().map(number).collect(), input.open_spans);
        Self {
            input,
            seen: input.traces.iter().map(seen).collect(),
            spans,
            lines: Lines::new(out, input.traces.len()),
        }
    }

    fn event(&mut self, event: &mut EventRef<'_, '_>) -> io::Result<()> {
        let Some(trace) = self.input.traces.get(event.trace()) else { return Ok(()) };
        let Some(seen) = self.seen.get_mut(event.trace()) else { return Ok(()) };
        let record = Record::new(trace, event);
        seen.newest = seen.newest.max(record.time);
        let Seen { resource, counts, .. } = seen;
        let key = record.span_key();
        let step = Step::parse(&record.name).map(|(step, name)| (step, name.to_owned()));
        let own = key.zip(step).filter(|_| record.time.is_some());
        match own {
            Some((key, (Step::New, name))) if self.spans.has_room(&key) => {
                // An older span of this id was closed by an event that is missing.
                if let Some(unended) = self.spans.open(key, name, record) {
                    counts.without_end = counts.without_end.saturating_add(1);
                    self.lines.log(key.0, resource, &unended)?;
                }
                return Ok(());
            }
            Some((key, (Step::Close, _))) => {
                if let Some(span) = self.spans.close(&key, &record) {
                    counts.closed = counts.closed.saturating_add(1);
                    return self.lines.span(key.0, resource, &span);
                }
                counts.without_begin = counts.without_begin.saturating_add(1);
            }
            Some((_, (Step::New, _))) => {
                counts.without_end = counts.without_end.saturating_add(1);
            }
            Some((key, (Step::Record, _))) => self.spans.record(&key, &record),
            _ => {}
        }
        let ids = self.spans.ids_of(key, &record);
        self.lines.log(record.trace, resource, &record.json(ids))
    }

    /// Writes the spans that were not closed, and what is left in memory.
    fn end(&mut self, selection: &Selection) -> io::Result<()> {
        let is_wanted = |span: &&OpenSpan| selection.wants_name(&format!("span:new {}", span.name));
        for span in self.input.open_spans.iter().filter(is_wanted) {
            if self.spans.is_closed(span) {
                continue;
            }
            let is_over = self.input.ended.get(span.trace).copied().unwrap_or(false);
            let Some(Seen { resource, counts, .. }) = self.seen.get_mut(span.trace) else {
                continue;
            };
            if span.opened < 0 || !self.input.traces.get(span.trace).is_some_and(is_dated) {
                counts.undated = counts.undated.saturating_add(1);
                continue;
            }
            counts.open = counts.open.saturating_add(1);
            self.lines.span(span.trace, resource, &self.spans.open_json(span, is_over))?;
        }
        for (trace, opening) in self.spans.rest() {
            let Some(Seen { resource, counts, .. }) = self.seen.get_mut(trace) else { continue };
            counts.without_end = counts.without_end.saturating_add(1);
            self.lines.log(trace, resource, &opening)?;
        }
        self.lines.end(self.seen.iter().map(|seen| seen.resource.as_slice()))
    }
}

impl Written {
    /// Appends the record with the verdict on the trace at a position, and counts its bytes.
    ///
    /// # Errors
    /// `out` cannot be written.
    pub fn verdict(&mut self, trace: usize, verdict: &Verdict, out: &mut dyn Write) -> Result<()> {
        let Some(seen) = self.traces.get(trace) else { return Ok(()) };
        let mut attributes = Attributes::default();
        verdict.facts.iter().for_each(|(name, value)| attributes.put(name, value));
        let Counts { closed, open, without_begin, without_end, undated } = seen.counts;
        for (name, count) in [
            ("lastwords.spans.closed", closed),
            ("lastwords.spans.open", open),
            ("lastwords.spans.without_begin", without_begin),
            ("lastwords.spans.without_end", without_end),
            ("lastwords.spans.undated", undated),
        ] {
            attributes.count(name, count);
        }
        // The time tells what it is the time of.
        let of = match verdict.time {
            Some(_) => Some("end"),
            None => seen.newest.map(|_| "newest_event"),
        };
        of.iter().for_each(|of| attributes.text("lastwords.time_of", of));
        let severity = match verdict.ending {
            Ending::Died => Some(Severity::FATAL),
            Ending::Well => Some(Severity::INFO),
            Ending::Unknown => None,
        };
        let mut json = Vec::new();
        let time = verdict.time.or(seen.newest).filter(|time| *time >= 0);
        record::head(&mut json, time, severity, VERDICT, verdict.text.as_bytes());
        attributes.member(&mut json);
        json.push(b'}');
        let mut lines = Lines::new(out, 1);
        let written = lines.log(0, &seen.resource, &json);
        let written = written.and_then(|()| lines.end([seen.resource.as_slice()].into_iter()));
        self.totals.bytes = self.totals.bytes.saturating_add(lines.bytes());
        written.map_err(Error::Output)
    }
}

//! Makes spans of the events that report their opening and closing, and of the table of open spans.

use super::TraceNumber;
use super::attributes::Attributes;
use super::ids::{Ids, Recorded, derived, member};
use super::record::Record;
use crate::iter::Value;
use crate::json::text;
use crate::spans::{OpenSpan, Opened, SpanKey};
use std::collections::{HashMap, HashSet};
use std::io::Write as _;

/// Most ancestors of a span that are followed to find its root.
const MAX_ANCESTORS: usize = 256;

/// The status of a span that was open at the end: `STATUS_CODE_ERROR`.
const OPEN: &str = ",\"status\":{\"code\":2,\"message\":\"open when the recording ended\"}";

/// A span whose opening was read.
struct Open {
    name: String,
    begin: i64,
    ids: Ids,
    /// The id of the parent.
    parent: Option<[u8; 8]>,
    attributes: Attributes,
    /// The log record of the opening, which is written if no end is found.
    record: Vec<u8>,
}

/// The spans of all traces.
pub(super) struct Spans {
    /// The numbers of the traces.
    traces: Vec<TraceNumber>,
    opened: Opened<Open>,
    /// The spans that were open at the end: the parent, and ids that the program recorded.
    table: HashMap<SpanKey, (u64, Recorded)>,
    /// Spans of the table whose closing was recorded before they were taken out of it.
    closed: HashSet<SpanKey>,
}

impl Spans {
    pub(super) fn new(traces: Vec<TraceNumber>, open_spans: &[OpenSpan]) -> Self {
        let table = open_spans.iter().flat_map(|span| {
            let recorded = Recorded::from_text(&span.fields);
            span.keys().map(|key| (key, (span.parent, recorded)))
        });
        let table = table.collect();
        Self { traces, opened: Opened::default(), table, closed: HashSet::new() }
    }

    /// Returns true if another span can be opened, or this one once more.
    pub(super) fn has_room(&self, key: &SpanKey) -> bool {
        self.opened.has_room() || self.opened.has(key)
    }

    /// Opens a span. Returns the record of the opening of an older span of this id, whose end is
    /// missing.
    pub(super) fn open(&mut self, key: SpanKey, name: String, record: Record) -> Option<Vec<u8>> {
        self.closed.remove(&key);
        let unended = self.opened.close(&key).map(|old| old.record);
        let parent = record.parent();
        let above = (parent != 0).then(|| self.ids((key.0, key.1, parent)));
        let number = self.traces.get(key.0);
        let own = number.map(|number| derived(number, key.1, key.2, key.2))?;
        let ids = Ids {
            trace: record.recorded.trace.or(above.map(|ids| ids.trace)).unwrap_or(own.trace),
            span: record.recorded.span.unwrap_or(own.span),
        };
        let open = Open {
            name,
            begin: record.time.unwrap_or(0),
            ids,
            parent: above.map(|ids| ids.span),
            attributes: record.span_attributes(),
            record: record.json(Some(ids)),
        };
        self.opened.open(key, open);
        unended
    }

    /// Notes further values of a span.
    pub(super) fn record(&mut self, key: &SpanKey, record: &Record) {
        let Some(open) = self.opened.get_mut(key) else { return };
        record.add_to(&mut open.attributes);
        open.ids.trace = record.recorded.trace.unwrap_or(open.ids.trace);
        open.ids.span = record.recorded.span.unwrap_or(open.ids.span);
    }

    /// Closes a span. Returns the span; none if its opening was not read.
    pub(super) fn close(&mut self, key: &SpanKey, record: &Record) -> Option<Vec<u8>> {
        if self.table.contains_key(key) {
            self.closed.insert(*key);
        }
        let mut open = self.opened.close(key)?;
        record.add_to(&mut open.attributes);
        Some(json(&open, record.time.unwrap_or(open.begin), ""))
    }

    /// Returns true if the closing of a span in the table was read.
    pub(super) fn is_closed(&self, span: &OpenSpan) -> bool {
        span.keys().iter().any(|key| self.closed.contains(key))
    }

    /// Returns a span that was open at the end. `is_over`: it will not be closed any more.
    pub(super) fn open_json(&mut self, span: &OpenSpan, is_over: bool) -> Vec<u8> {
        let keys = span.keys();
        let read = keys.iter().find_map(|key| self.opened.close(key));
        let mut open = read.unwrap_or_else(|| {
            let [key, _] = keys;
            let mut attributes = Attributes::default();
            attributes.number("thread.id", span.tid);
            attributes.number("process.pid", span.pid);
            Open {
                name: span.name.clone(),
                begin: span.opened,
                ids: self.ids(key),
                parent: (span.parent != 0).then(|| self.ids((key.0, key.1, span.parent)).span),
                attributes,
                record: Vec::new(),
            }
        });
        open.attributes.put("lastwords.open", &Value::Bool(true));
        if !span.fields.is_empty() {
            open.attributes.text("lastwords.span.fields", &span.fields);
        }
        open.attributes.count("lastwords.span.threads", span.threads.into());
        if let Some(tid) = span.entered {
            open.attributes.number("lastwords.span.entered_by", tid);
        }
        let age = i64::try_from(span.age).unwrap_or(i64::MAX);
        let end = span.opened.saturating_add(age).max(open.begin);
        json(&open, end, if is_over { OPEN } else { "" })
    }

    /// Returns the records of the openings of spans of which no end was found, each with the
    /// position of its trace.
    pub(super) fn rest(&mut self) -> Vec<(usize, Vec<u8>)> {
        self.opened.rest().into_iter().map(|(key, open)| (key.0, open.record)).collect()
    }

    /// Returns the ids of an event's record. `key` is the span that it is of or in.
    pub(super) fn ids_of(&self, key: Option<SpanKey>, record: &Record) -> Option<Ids> {
        let known = key.map(|key| self.ids(key));
        match (record.recorded, known) {
            (Recorded { trace: Some(trace), span: Some(span) }, _) => Some(Ids { trace, span }),
            // The span is one of another trace.
            (Recorded { trace: Some(trace), .. }, Some(known)) if known.trace != trace => None,
            _ => known,
        }
    }

    /// Returns the ids of a span. What is known of its ancestors decides its trace.
    fn ids(&self, key: SpanKey) -> Ids {
        if let Some(open) = self.opened.get(&key) {
            return open.ids;
        }
        let own = self.table.get(&key).and_then(|(_, recorded)| recorded.span);
        let span = own.unwrap_or(key.2.to_be_bytes());
        let mut at = key;
        for _ in 0..MAX_ANCESTORS {
            if let Some(open) = self.opened.get(&at) {
                return Ids { trace: open.ids.trace, span };
            }
            match self.table.get(&at) {
                Some((_, Recorded { trace: Some(trace), .. })) => {
                    return Ids { trace: *trace, span };
                }
                Some((parent, _)) if *parent != 0 => at.2 = *parent,
                _ => break,
            }
        }
        let none = TraceNumber { uuid: [0; 16] };
        let number = self.traces.get(key.0).unwrap_or(&none);
        Ids { trace: derived(number, key.1, at.2, at.2).trace, span }
    }
}

/// Returns a span.
fn json(span: &Open, end: i64, status: &str) -> Vec<u8> {
    let mut out = b"{\"name\":".to_vec();
    text(&mut out, span.name.as_bytes());
    member(&mut out, "traceId", &span.ids.trace);
    member(&mut out, "spanId", &span.ids.span);
    span.parent.iter().for_each(|parent| member(&mut out, "parentSpanId", parent));
    // `SPAN_KIND_INTERNAL`.
    let _ = write!(
        out,
        ",\"kind\":1,\"startTimeUnixNano\":\"{}\",\"endTimeUnixNano\":\"{end}\"",
        span.begin,
    );
    span.attributes.member(&mut out);
    out.extend_from_slice(status.as_bytes());
    out.push(b'}');
    out
}

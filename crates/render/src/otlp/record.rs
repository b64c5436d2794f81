//! An event as a log record.

use super::attributes::{Attributes, string};
use super::ids::{Ids, Recorded, member};
use crate::iter::{EventRef, Field, Value};
use crate::json::text;
use crate::spans::SpanKey;
use crate::text::message_of;
use lastwords_ctf::read::Trace;
use lastwords_trace::class::LogLevel;
use std::io::Write as _;

/// A severity: OTLP's number, and the word at the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Severity(u8, &'static str);

impl Severity {
    pub(super) const FATAL: Self = Self(21, "FATAL");
    pub(super) const INFO: Self = Self(9, "INFO");

    /// Returns the severity of a level, by the mapping of syslog's levels in OpenTelemetry's data
    /// model. Its five kinds of debug messages that LTTng has besides are one.
    fn from_level(level: LogLevel) -> Self {
        match level.number() {
            0 => Self(21, "EMERG"),
            1 => Self(19, "ALERT"),
            2 => Self(18, "CRIT"),
            3 => Self(17, "ERROR"),
            4 => Self(13, "WARN"),
            5 => Self(10, "NOTICE"),
            6 => Self::INFO,
            _ if level.word() == "trace" => Self(1, "TRACE"),
            _ => Self(5, "DEBUG"),
        }
    }

    /// Returns the severity of a line of the kernel's log.
    fn from_kernel(level: u64) -> Option<Self> {
        // The last of them is `KERN_DEBUG`.
        match level {
            7 => Some(Self(5, "DEBUG")),
            level => LogLevel::from_number(level).filter(|_| level < 7).map(Self::from_level),
        }
    }
}

/// An event.
pub(super) struct Record {
    /// Position of the trace.
    pub(super) trace: usize,
    /// `provider:name`.
    pub(super) name: String,
    /// Nanoseconds since the epoch, if the clock's relation to it is known.
    pub(super) time: Option<i64>,
    pub(super) pid: Option<i64>,
    /// The fields, without the message.
    pub(super) fields: Vec<Field>,
    /// Ids that the program recorded in fields.
    pub(super) recorded: Recorded,
    severity: Option<Severity>,
    body: Vec<u8>,
    /// Attributes besides the fields.
    around: Vec<(String, Value)>,
}

impl Record {
    pub(super) fn new(trace: &Trace, event: &mut EventRef<'_, '_>) -> Self {
        let class = trace.class();
        let read = event.to_event();
        let kind = &read.kind;
        let is_dated = super::is_dated(trace);
        // OTLP has no times before the epoch.
        let time = read.time.filter(|time| is_dated && *time >= 0);
        let mut around: Vec<(String, Value)> = Vec::new();
        let mut add = |name: &str, value: Option<Value>| {
            around.extend(value.map(|value| (name.to_owned(), value)));
        };
        let known = |id: Option<i64>| id.map(Value::Signed);
        let comm = read.comm.as_ref().map(|name| Value::Text(name.clone().into_bytes()));
        add("thread.id", known(read.tid));
        add("thread.name", comm);
        add("process.pid", known(read.pid));
        add("cpu.logical_number", read.cpu.map(|cpu| Value::Unsigned(cpu.into())));
        if !trace.is_beside && !class.is_ftrace() {
            add("lastwords.channel", Some(Value::Text(kind.channel.clone().into_bytes())));
        }
        if time.is_none() {
            add("lastwords.clock_ns", read.time.map(Value::Signed));
        }
        let mut severity = kind.level.map(Severity::from_level);
        let (mut fields, mut contexts) = (read.fields, read.contexts);
        let take = |list: &mut Vec<Field>, name: &str| {
            let is_text = |field: &Field| {
                field.name == name
                    && matches!(&field.value, Value::Text(t) if std::str::from_utf8(t).is_ok())
            };
            let at = list.iter().position(is_text)?;
            if let Value::Text(text) = list.remove(at).value { Some(text) } else { None }
        };
        let body = if trace.is_beside {
            let level = fields.iter().find(|field| field.name == "level");
            severity = level.and_then(|level| Severity::from_kernel(level.value.number()?));
            take(&mut fields, "text")
        } else if class.is_ftrace() {
            take(&mut contexts, "text")
        } else if kind.format.is_empty() {
            take(&mut fields, "message")
        } else {
            Some(message_of(&kind.format, &fields).into_bytes())
        };
        // An event of `tracing` whose message is constant is named by it.
        let body = body.unwrap_or_else(|| kind.name.clone().into_bytes());
        around.extend(contexts.into_iter().map(|field| (field.name, field.value)));
        let recorded = Recorded::from_fields(&fields);
        let (trace_number, name) = (read.trace, kind.whole_name());
        let pid = read.pid.or_else(|| trace.class().number("vpid"));
        Self { trace: trace_number, name, time, pid, fields, recorded, severity, body, around }
    }

    /// Returns the key of the span that the event is of or in.
    pub(super) fn span_key(&self) -> Option<SpanKey> {
        let id = self.span_field().and_then(|field| field.value.number());
        id.filter(|id| *id != 0).map(|id| (self.trace, self.pid, id))
    }

    /// Returns the field with lastwords' own id of the span. If the program has a field of this
    /// name, it is in front.
    fn span_field(&self) -> Option<&Field> {
        let is_own = |field: &&Field| {
            let rest = field.name.strip_prefix("span_id");
            let is_number = |rest: &str| {
                let digits = rest.strip_prefix('_');
                digits.is_some_and(|digits| digits.parse::<u32>().is_ok())
            };
            rest.is_some_and(|rest| rest.is_empty() || is_number(rest))
                && matches!(field.value, Value::Unsigned(_))
        };
        self.fields.iter().rfind(is_own)
    }

    /// Returns the id of the parent of the span that the event opens, or 0.
    pub(super) fn parent(&self) -> u64 {
        let parent = self.fields.iter().rfind(|field| field.name == "parent_id");
        parent.and_then(|field| field.value.number()).unwrap_or(0)
    }

    /// Returns the attributes of the span that the event opens: fields without the ids, which the
    /// span has, and the thread.
    pub(super) fn span_attributes(&self) -> Attributes {
        let own = self.span_field().map(|field| field.name.as_str());
        let is_id = |field: &&Field| {
            Some(field.name.as_str()) == own
                || field.name == "parent_id" && matches!(field.value, Value::Unsigned(_))
        };
        let mut attributes = Attributes::default();
        attributes.fields(self.fields.iter().filter(|field| !is_id(field)));
        self.around.iter().for_each(|(name, value)| attributes.put(name, value));
        attributes
    }

    /// Gives a span the values of this event, which is of the span.
    pub(super) fn add_to(&self, attributes: &mut Attributes) {
        let own = self.span_field().map(|field| field.name.as_str());
        let fields = self.fields.iter().filter(|field| Some(field.name.as_str()) != own);
        fields.for_each(|field| attributes.set(&field.name, &field.value));
    }

    /// Returns the log record.
    pub(super) fn json(&self, ids: Option<Ids>) -> Vec<u8> {
        let mut out = Vec::new();
        head(&mut out, self.time, self.severity, &self.name, &self.body);
        let mut attributes = Attributes::default();
        attributes.fields(&self.fields);
        self.around.iter().for_each(|(name, value)| attributes.put(name, value));
        attributes.member(&mut out);
        let trace = ids.map(|ids| ids.trace).or(self.recorded.trace);
        let span = ids.map(|ids| ids.span);
        trace.iter().for_each(|id| member(&mut out, "traceId", id));
        span.iter().for_each(|id| member(&mut out, "spanId", id));
        out.push(b'}');
        out
    }
}

/// Appends a log record up to its body.
pub(super) fn head(
    out: &mut Vec<u8>,
    time: Option<i64>,
    severity: Option<Severity>,
    name: &str,
    body: &[u8],
) {
    out.extend_from_slice(b"{\"eventName\":");
    text(out, name.as_bytes());
    if let Some(time) = time {
        // The event was observed by who recorded it, at its time.
        let _ = write!(out, ",\"timeUnixNano\":\"{time}\",\"observedTimeUnixNano\":\"{time}\"");
    }
    if let Some(Severity(number, word)) = severity {
        let _ = write!(out, ",\"severityNumber\":{number},\"severityText\":\"{word}\"");
    }
    out.extend_from_slice(b",\"body\":");
    string(out, body);
}

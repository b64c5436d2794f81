//! Spans of sessions: the events that report their changes, and those that were open at the end.

use lastwords_trace::source::Source;

/// A span's trace, its process and its id there: processes that record in one session may use the
/// same ids.
pub type SpanKey = (usize, Option<i64>, u64);

/// A span that was open when recording ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenSpan {
    /// Position of the trace.
    pub trace: usize,
    /// Id of the span.
    pub id: u64,
    /// Id of the span's parent, or 0.
    pub parent: u64,
    /// Time at which it was opened, nanoseconds since the epoch.
    pub opened: i64,
    /// Process that opened it.
    pub pid: u32,
    /// Thread that opened it.
    pub tid: u32,
    /// `target::name`.
    pub name: String,
    /// The fields as `key=value`, separated by blanks.
    pub fields: String,
}

impl OpenSpan {
    /// Returns the spans of a source. `trace` is its position.
    pub fn all(source: &dyn Source, trace: usize) -> impl Iterator<Item = Self> + '_ {
        source.open_spans().iter().map(move |span| Self {
            trace,
            id: span.id,
            parent: span.parent,
            opened: i64::try_from(source.schema().clock.nanoseconds(span.opened)).unwrap_or(0),
            pid: span.opener.0,
            tid: span.opener.1,
            name: format!("{}::{}", span.target, span.name),
            fields: span.fields.clone(),
        })
    }
}

/// The change of a span that an event reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The span was opened.
    New,
    /// A thread entered the span.
    Enter,
    /// A thread left the span.
    Exit,
    /// The span was closed.
    Close,
}

impl Step {
    /// Returns the step and the name of the span, if the event with this name is of a span.
    #[must_use]
    pub fn parse(event: &str) -> Option<(Self, &str)> {
        let (step, name) = event.strip_prefix("span:")?.split_once(' ')?;
        let step = match step {
            "new" => Self::New,
            "enter" => Self::Enter,
            "exit" => Self::Exit,
            "close" => Self::Close,
            _ => return None,
        };
        Some((step, name))
    }
}

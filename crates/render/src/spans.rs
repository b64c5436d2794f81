//! Spans of sessions: the events that report their changes, and those that were open at the end.

use lastwords_trace::source::Source;
use std::collections::HashMap;

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
    /// Time from its opening to the latest time in the trace, nanoseconds.
    pub age: u64,
    /// Process that opened it.
    pub pid: u32,
    /// Thread that opened it.
    pub tid: u32,
    /// Number of threads that were in it.
    pub threads: u32,
    /// Thread that entered it last, if that thread was still in it.
    pub entered: Option<u32>,
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
            age: span.age,
            pid: span.opener.0,
            tid: span.opener.1,
            threads: span.threads,
            entered: span.entered.map(|(_, tid)| tid),
            name: format!("{}::{}", span.target, span.name),
            fields: span.fields.clone(),
        })
    }

    /// Returns the keys that events may have for the span. Where events name no process, nor the
    /// session who created it, its spans have none.
    #[must_use]
    pub fn keys(&self) -> [SpanKey; 2] {
        [Some(i64::from(self.pid)), None].map(|pid| (self.trace, pid, self.id))
    }
}

/// Maximum number of spans that [`Opened`] holds.
pub(crate) const MAX_OPEN: usize = 1 << 16;

/// The spans whose opening was read, and whose closing was not. It pairs the two, with what a
/// writer keeps of the opening.
pub(crate) struct Opened<T>(HashMap<SpanKey, T>);

impl<T> Default for Opened<T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<T> Opened<T> {
    /// Returns true if there is room for another span.
    pub(crate) fn has_room(&self) -> bool {
        self.0.len() < MAX_OPEN
    }

    /// Returns true if the opening of the span was read.
    pub(crate) fn has(&self, key: &SpanKey) -> bool {
        self.0.contains_key(key)
    }

    /// Returns what was kept of the opening.
    pub(crate) fn get(&self, key: &SpanKey) -> Option<&T> {
        self.0.get(key)
    }

    /// Returns what was kept of the opening.
    pub(crate) fn get_mut(&mut self, key: &SpanKey) -> Option<&mut T> {
        self.0.get_mut(key)
    }

    /// Notes that the span was opened. The caller has checked that there is room.
    pub(crate) fn open(&mut self, key: SpanKey, kept: T) {
        self.0.insert(key, kept);
    }

    /// Notes that the span was closed. Returns what was kept of its opening; none if that was not
    /// read.
    pub(crate) fn close(&mut self, key: &SpanKey) -> Option<T> {
        self.0.remove(key)
    }

    /// Returns the spans that were not closed, in the order of their keys.
    pub(crate) fn rest(&mut self) -> Vec<(SpanKey, T)> {
        let mut rest: Vec<_> = self.0.drain().collect();
        rest.sort_by_key(|(key, _)| *key);
        rest
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
    /// The span got further values.
    Record,
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
            "record" => Self::Record,
            "close" => Self::Close,
            _ => return None,
        };
        Some((step, name))
    }
}

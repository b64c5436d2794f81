//! Compares a run that ended well with one that did not: events by name, the sequences of threads,
//! spans.
//!
//! Two runs are compared whole if both are recovered from their beginning. If a ring has
//! overwritten the beginning of one, only the time before the end that both have is compared
//! ([`Range`]), and sequences of threads are not, because nothing shows where they begin. An event
//! that a run lacks is unknown, not missing, if that run has lost events.

mod events;
mod run;
mod spans;
mod threads;

pub use events::{EventRow, Finding};
pub use run::{Names, Run};
pub use spans::{DurationFinding, Durations, SpanRow};
pub use threads::{Divergence, How, Threads, Unmatched};

use serde::{Serialize, Serializer};

/// Name of the format of [`Diff`].
pub const SCHEMA: &str = "lastwords.diff.v1";

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Range {
    /// Both runs from their beginning to their end.
    Whole,
    /// The last nanoseconds of both.
    Last(u64),
    /// Nothing: one of them has no time that is recovered without a gap.
    Nothing,
}

/// `"whole"`, `"nothing"`, or an object with `last_ns` as text.
impl Serialize for Range {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Whole => serializer.serialize_str("whole"),
            Self::Nothing => serializer.serialize_str("nothing"),
            Self::Last(time) => serializer.collect_map([("last_ns", time.to_string())]),
        }
    }
}

/// The facts about one of the runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Side {
    /// Number of its events that are compared.
    pub events: u64,
    /// Number of all its events.
    pub all_events: u64,
    /// Number of its threads.
    pub threads: u64,
    /// The time that is compared, nanoseconds; none if its events have no times.
    pub compared_ns: Option<u64>,
    /// It is recovered from its beginning.
    pub from_beginning: bool,
    /// Events are lost by the rules of `--strict`, so that an event that is not there is unknown.
    pub losses: bool,
    /// The losses in words.
    pub lost: String,
}

/// The differences of two runs.
#[derive(Debug, Clone, Serialize)]
pub struct Diff {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// The run that ended well.
    pub good: Side,
    /// The run that did not.
    pub bad: Side,
    /// What is compared.
    pub range: Range,
    /// Events by name.
    pub events: Vec<EventRow>,
    /// The threads and where their sequences diverge.
    pub threads: Threads,
    /// Spans by name.
    pub spans: Vec<SpanRow>,
}

impl Diff {
    /// Compares two runs whose events have the same names.
    #[must_use]
    pub fn new(names: &Names, good: &Run, bad: &Run) -> Self {
        let range = range(good, bad);
        let since = |run: &Run| match range {
            Range::Whole => None,
            Range::Last(time) => run.end.map(|end| end.saturating_sub_unsigned(time)),
            Range::Nothing => Some(i64::MAX),
        };
        let (good_since, bad_since) = (since(good), since(bad));
        let counts = [good.counts(names, good_since), bad.counts(names, bad_since)];
        let side = |run: &Run, counts: &[u64], since: Option<i64>| {
            let begin = since.max(run.begin);
            let span = |(begin, end): (i64, i64)| u64::try_from(end.saturating_sub(begin)).ok();
            Side {
                events: counts.iter().fold(0, |sum, count| sum.saturating_add(*count)),
                all_events: run
                    .threads
                    .iter()
                    .map(|thread| thread.events.len() as u64)
                    .fold(0, u64::saturating_add),
                threads: run.threads.len() as u64,
                compared_ns: begin.zip(run.end).filter(|_| range != Range::Nothing).and_then(span),
                from_beginning: run.complete_from.is_none(),
                losses: run.has_losses,
                lost: run.lost.clone(),
            }
        };
        let [good_counts, bad_counts] = &counts;
        Self {
            schema: SCHEMA,
            good: side(good, good_counts, good_since),
            bad: side(bad, bad_counts, bad_since),
            range,
            events: events::rows(names, [good, bad], [good_counts, bad_counts]),
            threads: threads::compare(names, good, bad, range),
            spans: spans::rows(names, (good, good_since), (bad, bad_since)),
        }
    }

    /// Returns true if nothing differs clearly.
    #[must_use]
    pub fn is_same(&self) -> bool {
        let is_counted =
            |row: &EventRow| row.finding.is_some_and(|finding| finding != Finding::Unknown);
        let is_span = |row: &SpanRow| row.never_ended || row.slower.is_some();
        !self.events.iter().any(is_counted)
            && !self.spans.iter().any(is_span)
            && self.threads.diverged.is_empty()
            && self.threads.unmatched.is_empty()
    }
}

/// Returns what of two runs can be compared.
fn range(good: &Run, bad: &Run) -> Range {
    if good.complete_from.is_none() && bad.complete_from.is_none() {
        return Range::Whole;
    }
    let span = |run: &Run| {
        let from = run.complete_from.or(run.begin)?;
        u64::try_from(run.end?.checked_sub(from)?).ok()
    };
    match span(good).zip(span(bad)).map(|(good, bad)| good.min(bad)) {
        Some(time) if time > 0 => Range::Last(time),
        _ => Range::Nothing,
    }
}

#[cfg(test)]
mod tests;

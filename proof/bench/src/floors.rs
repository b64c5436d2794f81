//! The floors that `--check` compares results with.

use std::fmt;

use super::contenders::Payload;
use Payload::{A, B};

/// A row of results: contender, payload, threads.
pub(super) type Row = (&'static str, Payload, usize);

/// A bound of a ratio.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Limit {
    AtMost(f64),
    AtLeast(f64),
    /// None: the ratio is reported, whatever it is, and also where it was not measured.
    Reported,
}

impl Limit {
    fn admits(self, value: f64) -> bool {
        match self {
            Self::AtMost(limit) => value <= limit,
            Self::AtLeast(limit) => value >= limit,
            Self::Reported => true,
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(limit) => write!(f, "<= {limit}"),
            Self::AtLeast(limit) => write!(f, ">= {limit}"),
            Self::Reported => f.write_str("-"),
        }
    }
}

/// The time of one row divided by that of another is at most, or at least, so much.
pub(super) struct Floor {
    what: &'static str,
    time: Row,
    by: Row,
    limit: Limit,
}

impl Floor {
    /// The contenders that it needs.
    pub(super) fn needs(&self) -> [&'static str; 2] {
        [self.time.0, self.by.0]
    }

    /// Compares, by the medians that `median` knows.
    pub(super) fn verdict(&self, median: impl Fn(Row) -> Option<f64>) -> Verdict {
        let value = median(self.time).zip(median(self.by)).map(|(time, by)| time / by);
        Verdict::new(self.what, self.limit, value)
    }
}

/// A floor, and what was measured; nothing where a row is missing.
pub(super) struct Verdict {
    pub(super) what: &'static str,
    pub(super) limit: Limit,
    pub(super) value: Option<f64>,
}

impl Verdict {
    pub(super) fn new(what: &'static str, limit: Limit, value: Option<f64>) -> Self {
        Self { what, limit, value }
    }

    pub(super) fn is_met(&self) -> bool {
        self.limit == Limit::Reported || self.value.is_some_and(|value| self.limit.admits(value))
    }
}

const fn floor(what: &'static str, time: Row, by: Row, limit: Limit) -> Floor {
    Floor { what, time, by, limit }
}

use Limit::{AtLeast, AtMost, Reported};

const F: Row = ("floor", A, 1);
const F2: Row = ("floor", A, 2);
const RSEQ_A: Row = ("lastwords-rseq", A, 1);
const RSEQ_B: Row = ("lastwords-rseq", B, 1);

/// The floors of `bench record`.
pub(super) const RECORD: &[Floor] = &[
    floor("event! with rseq, to F", RSEQ_A, F, AtMost(1.35)),
    floor("the same with a string", RSEQ_B, F, AtMost(1.65)),
    floor("lockless, to F", ("lastwords-lockless", A, 1), F, AtMost(3.5)),
    floor("an event of tracing, to F", ("lastwords-tracing", A, 1), F, AtMost(4.5)),
    floor("a span of tracing entered and left, to F", ("lastwords-span", A, 1), F, AtMost(6.0)),
    floor(
        "an event of tracing, our subscriber, to F",
        ("lastwords-tracing-event", A, 1),
        F,
        AtMost(3.0),
    ),
    floor("the same under with_default", ("lastwords-tracing-scoped", A, 1), F, AtMost(4.5)),
    floor(
        "a span of tracing with an event, our subscriber, to F",
        ("lastwords-tracing-span", A, 1),
        F,
        AtMost(16.0),
    ),
    floor(
        "the same, our layer on a registry",
        ("lastwords-tracing-span-layer", A, 1),
        F,
        AtMost(20.0),
    ),
    floor(
        "12 optional fields of tracing, to F",
        ("lastwords-tracing-optional", A, 1),
        F,
        AtMost(12.0),
    ),
    floor(
        "the registry alone under with_default, to F",
        ("tracing-registry-scoped", A, 1),
        F,
        Reported,
    ),
    floor("the registry alone, a span, to F", ("tracing-registry-span", A, 1), F, Reported),
    floor("the registry that frees spans, to F", ("tracing-registry-closing", A, 1), F, Reported),
    floor("an event of tracing that is only read, to F", ("tracing-reads", A, 1), F, Reported),
    floor("the same with 12 optional fields", ("tracing-reads-optional", A, 1), F, Reported),
    floor("disabled, to F", ("lastwords-off", A, 1), F, AtMost(0.1)),
    floor("two threads, to F of two", ("lastwords-rseq", A, 2), F2, AtMost(1.4)),
    floor("LTTng-UST, to ours", ("lttng", A, 1), RSEQ_A, Reported),
    floor("LTTng-UST with a string, to ours", ("lttng", B, 1), RSEQ_B, Reported),
    floor("backbeat with its TSC clock, to ours", ("backbeat-tsc", A, 1), RSEQ_A, Reported),
    floor("the same with a string", ("backbeat-tsc", B, 1), RSEQ_B, Reported),
    floor(
        "tracing-flight-recorder, to our layer",
        ("tracing-flight-recorder", A, 1),
        ("lastwords-tracing", A, 1),
        AtLeast(4.0),
    ),
    floor("from C, to Rust", ("lastwords-c", A, 1), RSEQ_A, AtMost(1.1)),
    floor("from C with a string, to Rust", ("lastwords-c", B, 1), RSEQ_B, AtMost(1.1)),
];

#[cfg(test)]
mod tests {
    use super::super::contenders;
    use super::*;

    #[test]
    fn every_row_is_a_contender_measured_so() {
        for (name, payload, _) in RECORD.iter().flat_map(|floor| [floor.time, floor.by]) {
            let contender = contenders::ALL.iter().find(|contender| contender.name == name);
            assert!(
                contender.is_some_and(|contender| contender.takes(payload)),
                "{name} {payload}"
            );
        }
    }

    #[test]
    fn verdicts() {
        let floor = floor("x", RSEQ_A, F, Limit::AtMost(1.5));
        let with = |ours: f64| move |row: Row| Some(if row == F { 10.0 } else { ours });
        assert!(floor.verdict(with(15.0)).is_met());
        assert!(!floor.verdict(with(15.1)).is_met());
        assert!(!floor.verdict(|_| None).is_met());
        assert!(Limit::AtLeast(8.0).admits(8.0) && !Limit::AtLeast(8.0).admits(7.9));
    }

    #[test]
    fn a_reported_ratio_is_never_a_failure() {
        let floor = floor("x", ("lttng", A, 1), RSEQ_A, Limit::Reported);
        assert!(floor.verdict(|_| None).is_met());
        assert!(floor.verdict(|row| Some(if row == RSEQ_A { 10.0 } else { 1.0 })).is_met());
    }
}

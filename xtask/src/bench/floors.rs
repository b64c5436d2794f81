//! What `--check` holds us to.

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
}

impl Limit {
    fn admits(self, value: f64) -> bool {
        match self {
            Self::AtMost(limit) => value <= limit,
            Self::AtLeast(limit) => value >= limit,
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(limit) => write!(f, "<= {limit}"),
            Self::AtLeast(limit) => write!(f, ">= {limit}"),
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

    /// Compares, by the medians that `median` knows. Where a peer's time is divided by ours, F and the model are divided by too.
    pub(super) fn verdict(&self, median: impl Fn(Row) -> Option<f64>) -> Verdict {
        let to = |by| median(self.time).zip(median(by)).map(|(time, by)| time / by);
        let model = ("model", self.by.1, self.by.2);
        let best = |(name, row)| Some(Best { name, value: to(row)? });
        let bests = [("F itself", F), ("the model", model)].into_iter().filter_map(best);
        let bests = if matches!(self.limit, Limit::AtLeast(_)) { bests.collect() } else { Vec::new() };
        Verdict { bests, ..Verdict::new(self.what, self.limit, to(self.by)) }
    }
}

/// A floor, and what was measured; nothing where a row is missing.
pub(super) struct Verdict {
    pub(super) what: &'static str,
    pub(super) limit: Limit,
    pub(super) value: Option<f64>,
    /// The values of what does less than a recorder has to, least first.
    bests: Vec<Best>,
}

/// The value of something that does less than a recorder has to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Best {
    pub(super) name: &'static str,
    pub(super) value: f64,
}

impl Verdict {
    pub(super) fn new(what: &'static str, limit: Limit, value: Option<f64>) -> Self {
        Self { what, limit, value, bests: Vec::new() }
    }

    /// What does less than a recorder has to and is not admitted: where that is F, this machine cannot show the floor, whoever
    /// records; where it is the model, not with these headers.
    pub(super) fn out_of_reach(&self) -> Option<Best> {
        self.bests.iter().copied().find(|best| !self.limit.admits(best.value))
    }

    pub(super) fn is_met(&self) -> bool {
        self.value.is_some_and(|value| self.limit.admits(value))
    }
}

const fn floor(what: &'static str, time: Row, by: Row, limit: Limit) -> Floor {
    Floor { what, time, by, limit }
}

const F: Row = ("floor", A, 1);
const F2: Row = ("floor", A, 2);
const RSEQ_A: Row = ("lastwords-rseq", A, 1);
const RSEQ_B: Row = ("lastwords-rseq", B, 1);

/// The floors of `bench record`.
pub(super) const RECORD: &[Floor] = &[
    floor("event! with rseq, to F", RSEQ_A, F, Limit::AtMost(1.5)),
    floor("the same with a string", RSEQ_B, F, Limit::AtMost(1.8)),
    floor("lockless, to F", ("lastwords-lockless", A, 1), F, Limit::AtMost(3.3)),
    floor("an event of tracing, to F", ("lastwords-tracing", A, 1), F, Limit::AtMost(4.5)),
    floor("a span of tracing entered and left, to F", ("lastwords-span", A, 1), F, Limit::AtMost(6.5)),
    floor("disabled, to F", ("lastwords-off", A, 1), F, Limit::AtMost(0.1)),
    floor("two threads, to F of two", ("lastwords-rseq", A, 2), F2, Limit::AtMost(1.4)),
    floor("LTTng-UST, to ours", ("lttng", A, 1), RSEQ_A, Limit::AtLeast(8.0)),
    floor("LTTng-UST with a string, to ours", ("lttng", B, 1), RSEQ_B, Limit::AtLeast(8.0)),
    floor("backbeat with its TSC clock, to ours", ("backbeat-tsc", A, 1), RSEQ_A, Limit::AtLeast(2.0)),
    floor("the same with a string", ("backbeat-tsc", B, 1), RSEQ_B, Limit::AtLeast(2.0)),
    floor(
        "tracing-flight-recorder, to our layer",
        ("tracing-flight-recorder", A, 1),
        ("lastwords-tracing", A, 1),
        Limit::AtLeast(4.0),
    ),
    floor("from C, to Rust", ("lastwords-c", A, 1), RSEQ_A, Limit::AtMost(1.1)),
    floor("from C with a string, to Rust", ("lastwords-c", B, 1), RSEQ_B, Limit::AtMost(1.1)),
];

#[cfg(test)]
mod tests {
    use super::super::contenders;
    use super::*;

    #[test]
    fn every_row_is_a_contender_measured_so() {
        for (name, payload, _) in RECORD.iter().flat_map(|floor| [floor.time, floor.by]) {
            let contender = contenders::ALL.iter().find(|contender| contender.name == name);
            assert!(contender.is_some_and(|contender| contender.takes(payload)), "{name} {payload}");
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
    fn what_f_itself_does_not_reach_nor_the_model() {
        let times = |lttng: f64| {
            move |row: Row| {
                Some(match row {
                    F => 10.0,
                    ("model", A, 1) => 12.0,
                    RSEQ_A => 14.0,
                    _ => lttng,
                })
            }
        };
        let floor = floor("x", ("lttng", A, 1), RSEQ_A, Limit::AtLeast(8.0));
        let out_of_reach = |lttng| floor.verdict(times(lttng)).out_of_reach().map(|best| (best.name, best.value));
        assert_eq!(out_of_reach(70.0), Some(("F itself", 7.0)));
        assert_eq!(out_of_reach(90.0), Some(("the model", 7.5)));
        assert_eq!(out_of_reach(100.0), None);
        assert!(!floor.verdict(times(100.0)).is_met());
    }
}

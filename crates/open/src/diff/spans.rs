//! Compares spans by name: how long they took, and which never ended.

use super::run::{Names, Run};
use serde::Serialize;
use std::collections::BTreeMap;

/// Spans of each run that are needed to compare medians.
const LEAST: usize = 10;
/// Spans of each run that are needed to compare the slowest.
const LEAST_FOR_TAIL: usize = 100;
/// Medians differ clearly only by this factor.
const MEDIAN_FACTOR: f64 = 1.5;
/// Medians differ clearly only by this many nanoseconds: what recording itself takes, and what it
/// takes on a machine that has more to do, is less.
const LEAST_DIFFERENCE_NS: u64 = 1_000;
/// The slowest differ clearly only by this factor.
const TAIL_FACTOR: f64 = 2.0;

/// How long the spans of a name took in a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Durations {
    /// Number of spans whose beginning and end are recovered.
    pub ended: u64,
    /// Number of spans that never ended.
    pub open: u64,
    /// Median, nanoseconds.
    pub median_ns: Option<u64>,
    /// 95th percentile, nanoseconds.
    pub p95_ns: Option<u64>,
    #[serde(skip)]
    p90: u64,
    #[serde(skip)]
    max: u64,
}

/// How durations differ clearly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DurationFinding {
    /// Half of the spans of the bad run took longer than nine of ten of the good run, 1.5
    /// times its median, and a microsecond more.
    Slower,
    /// The same, with the runs exchanged.
    Faster,
    /// One of 20 spans of the bad run took longer than each of the good run, and twice its 95th
    /// percentile.
    SlowestSlower,
    /// The same, with the runs exchanged.
    SlowestFaster,
}

/// The spans of a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SpanRow {
    /// `target::name`.
    pub name: String,
    /// In the good run.
    pub good: Durations,
    /// In the bad run.
    pub bad: Durations,
    /// More of them never ended in the bad run than in the good run.
    pub never_ended: bool,
    /// The bad run has lost events, so that the end of a span may be one of them.
    pub is_unsure: bool,
    /// How their durations differ, if they do clearly.
    pub slower: Option<DurationFinding>,
}

/// Returns a row for each name of a span, those that differ first.
pub(super) fn rows(
    names: &Names,
    (good, good_since): (&Run, Option<i64>),
    (bad, bad_since): (&Run, Option<i64>),
) -> Vec<SpanRow> {
    let (of_good, of_bad) = (durations(good, good_since), durations(bad, bad_since));
    let all: std::collections::BTreeSet<&u32> = of_good.keys().chain(of_bad.keys()).collect();
    let row = |name: &u32| {
        let own = |of: &BTreeMap<u32, Durations>| of.get(name).copied().unwrap_or_default();
        let (in_good, in_bad) = (own(&of_good), own(&of_bad));
        SpanRow {
            name: names.text(*name).to_owned(),
            good: in_good,
            bad: in_bad,
            never_ended: in_bad.open > in_good.open,
            is_unsure: bad.has_losses,
            slower: finding(&in_good, &in_bad),
        }
    };
    let mut rows: Vec<SpanRow> = all.into_iter().map(row).collect();
    let is_plain = |row: &SpanRow| !row.never_ended && row.slower.is_none();
    rows.sort_by(|a, b| (is_plain(a), &a.name).cmp(&(is_plain(b), &b.name)));
    rows
}

fn durations(run: &Run, since: Option<i64>) -> BTreeMap<u32, Durations> {
    let mut all: BTreeMap<u32, (Vec<u64>, u64)> = BTreeMap::new();
    for span in &run.spans {
        let (ended, open) = all.entry(span.name).or_default();
        if span.is_open {
            *open = open.saturating_add(1);
        }
        let Some((begin, end)) = span.begin.zip(span.end) else { continue };
        if since.is_none_or(|since| end >= since) {
            ended.extend(u64::try_from(end.saturating_sub(begin)).ok());
        }
    }
    all.into_iter().map(|(name, (ended, open))| (name, Durations::new(ended, open))).collect()
}

impl Durations {
    fn new(mut all: Vec<u64>, open: u64) -> Self {
        all.sort_unstable();
        let last = all.len().saturating_sub(1);
        let part = |percent: usize| all.get(last.saturating_mul(percent) / 100).copied();
        Self {
            ended: all.len() as u64,
            open,
            median_ns: part(50),
            p95_ns: part(95),
            p90: part(90).unwrap_or(0),
            max: all.last().copied().unwrap_or(0),
        }
    }

    fn has(&self, least: usize) -> bool {
        self.ended >= least as u64
    }
}

/// Returns true if a value is larger than another by a factor.
fn exceeds(value: u64, other: u64, factor: f64) -> bool {
    value as f64 >= other as f64 * factor && value > other
}

/// Returns true if half of the spans of one run took longer than nine of ten of the other.
fn is_slower(one: &Durations, other: &Durations) -> bool {
    let (Some(median), Some(others)) = (one.median_ns, other.median_ns) else { return false };
    one.has(LEAST)
        && other.has(LEAST)
        && median > other.p90
        && exceeds(median, others, MEDIAN_FACTOR)
        && median.abs_diff(others) >= LEAST_DIFFERENCE_NS
}

/// Returns true if one of 20 spans of one run took longer than each of the other.
fn has_slower_tail(one: &Durations, other: &Durations) -> bool {
    let (Some(p95), Some(others)) = (one.p95_ns, other.p95_ns) else { return false };
    one.has(LEAST_FOR_TAIL)
        && other.has(LEAST_FOR_TAIL)
        && p95 > other.max
        && exceeds(p95, others, TAIL_FACTOR)
}

fn finding(good: &Durations, bad: &Durations) -> Option<DurationFinding> {
    let rules = [
        (is_slower(bad, good), DurationFinding::Slower),
        (is_slower(good, bad), DurationFinding::Faster),
        (has_slower_tail(bad, good), DurationFinding::SlowestSlower),
        (has_slower_tail(good, bad), DurationFinding::SlowestFaster),
    ];
    rules.into_iter().find(|(applies, _)| *applies).map(|(_, finding)| finding)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_differ_by_a_factor_and_by_more_than_recording_takes() {
        let equal = |ns: u64| Durations::new(vec![ns; LEAST], 0);
        assert_eq!(finding(&equal(180), &equal(110)), None);
        assert_eq!(finding(&equal(1_800), &equal(2_700)), None);
        assert_eq!(finding(&equal(2_000), &equal(3_000)), Some(DurationFinding::Slower));
        assert_eq!(finding(&equal(3_000), &equal(2_000)), Some(DurationFinding::Faster));
        assert_eq!(finding(&equal(10_000), &equal(11_000)), None);
    }
}

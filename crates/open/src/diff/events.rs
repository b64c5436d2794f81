//! Compares the numbers of events by name.

use super::run::{Names, Run};
use serde::Serialize;

/// A frequency differs clearly only if the share of the event among all events changes by this
/// factor.
const FACTOR: f64 = 2.0;
/// And only if the difference is more than this number of standard deviations of chance.
const DEVIATIONS: f64 = 4.0;

/// How the numbers of an event differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Finding {
    /// Only the good run has it.
    OnlyGood,
    /// Only the bad run has it.
    OnlyBad,
    /// Only one of the runs has it, but the other one has lost events.
    Unknown,
    /// It is a larger part of the events of the good run.
    Rarer,
    /// It is a larger part of the events of the bad run.
    MoreFrequent,
}

/// The numbers of an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EventRow {
    /// `provider:name`.
    pub name: String,
    /// Number of events in the good run.
    pub good: u64,
    /// Number of events in the bad run.
    pub bad: u64,
    /// How the numbers differ, if they do clearly.
    pub finding: Option<Finding>,
}

/// Returns a row for each name, those that differ first.
pub(super) fn rows(names: &Names, [good, bad]: [&Run; 2], counts: [&[u64]; 2]) -> Vec<EventRow> {
    let totals = counts.map(|counts| counts.iter().fold(0, |sum: u64, n| sum.saturating_add(*n)));
    let [of_good, of_bad] = counts;
    let row = |(number, (in_good, in_bad)): (usize, (&u64, &u64))| {
        let name = u32::try_from(number).ok()?;
        let has_any = *in_good > 0 || *in_bad > 0;
        // A run that is empty in the range, or lost events, does not show that one is missing.
        let finding = match (in_good, in_bad) {
            (0, _) if good.has_losses || totals[0] == 0 => Some(Finding::Unknown),
            (_, 0) if bad.has_losses || totals[1] == 0 => Some(Finding::Unknown),
            (0, _) => Some(Finding::OnlyBad),
            (_, 0) => Some(Finding::OnlyGood),
            (a, b) => share(*a, *b, totals),
        };
        has_any.then(|| EventRow {
            name: names.text(name).to_owned(),
            good: *in_good,
            bad: *in_bad,
            finding,
        })
    };
    let mut rows: Vec<EventRow> = of_good.iter().zip(of_bad).enumerate().filter_map(row).collect();
    rows.sort_by(|a, b| (a.finding.is_none(), &a.name).cmp(&(b.finding.is_none(), &b.name)));
    rows
}

/// Returns how the share of an event among all events differs, if it does clearly.
fn share(good: u64, bad: u64, totals: [u64; 2]) -> Option<Finding> {
    let [all_good, all_bad] = totals.map(|total| total as f64);
    let (a, b) = (good as f64, bad as f64);
    let (n, p) = (a + b, all_good / (all_good + all_bad));
    let deviation = (n * p * (1.0 - p)).sqrt();
    let is_chance = (a - n * p).abs() <= DEVIATIONS * deviation;
    let ratio = (b / all_bad) / (a / all_good);
    match ratio {
        _ if is_chance => None,
        ratio if ratio >= FACTOR => Some(Finding::MoreFrequent),
        ratio if ratio <= 1.0 / FACTOR => Some(Finding::Rarer),
        _ => None,
    }
}

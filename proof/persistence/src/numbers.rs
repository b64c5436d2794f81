//! Counters and a histogram beside the events: what is added to them, and what a loss of power may
//! leave of it.

use anyhow::{Context as _, Result, ensure};
use lastwords::Persist;
use lastwords_testkit::random::mix;
use lastwords_trace::metrics::Metrics;

/// The counters. The names take one cache line of an entry, and three.
const COUNTERS: [&str; 3] = [
    "a",
    "b",
    "a name of so many bytes that entries have it in three lines of the caches, not one",
];
/// The histogram.
const HISTOGRAM: &str = "h";
/// From this event on, all entries of the tables have their names.
const FULL: u64 = 24;

/// The numbers that an event goes with.
#[derive(Debug, Clone, Copy)]
pub(super) enum Addition {
    /// To a counter, by its index.
    Counter(usize, u64),
    Value(u64),
    /// To a counter for which there is no entry.
    Refused,
    RefusedValue,
}

/// Entries of the tables. Where signals interrupt, a metric may get several.
pub(super) fn room(nested: u64) -> [u32; 2] {
    if nested == 0 { [COUNTERS.len() as u32, 1] } else { [32, 16] }
}

impl Addition {
    /// The addition of the event of a number.
    pub(super) fn new(number: u64, nested: u64) -> Self {
        let (dice, amount) = (mix(number ^ 0xadd), mix(number ^ 0x5eed) >> 20);
        match (dice % 6) as usize {
            counter @ ..3 => Self::Counter(counter, amount),
            // Each needs its entry before all are taken.
            _ if number < FULL || nested > 0 => Self::Value(amount),
            3 => Self::Value(amount),
            4 => Self::Refused,
            _ => Self::RefusedValue,
        }
    }

    /// Makes it.
    pub(super) fn make(self) {
        use lastwords::__private::{add_named, record_named};
        let is_name = match self {
            Self::Counter(counter, amount) => add_named(COUNTERS[counter], amount),
            Self::Value(value) => record_named(HISTOGRAM, value),
            Self::Refused => add_named("refused", 1),
            Self::RefusedValue => record_named("refused", 1),
        };
        assert!(is_name, "a name without room");
    }

    fn amount(self) -> u64 {
        match self {
            Self::Counter(_, amount) | Self::Value(amount) => amount,
            Self::Refused | Self::RefusedValue => 1,
        }
    }
}

/// What was added: each addition, and whether its call has returned.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    pub(super) all: Vec<(Addition, bool)>,
}

impl Numbers {
    /// Judges what was recovered. Numbers that are persisted one by one are those of the additions
    /// that have returned, and of some of those in flight; others are not larger than what was
    /// begun.
    pub(super) fn judge(&self, found: &Metrics, persist: Persist) -> Result<()> {
        let is_each = persist == Persist::Event;
        ensure!(!is_each || found.unknown == 0, "TORN: {} entries of the tables", found.unknown);
        for (index, name) in COUNTERS.iter().enumerate() {
            let value = found.counters.iter().find(|one| one.name == *name);
            let of = |one| matches!(one, Addition::Counter(at, _) if at == index);
            self.fits(value.map_or(0, |one| one.value), of, is_each).context(*name)?;
        }
        let lost = |one| matches!(one, Addition::Refused);
        self.fits(found.lost_additions, lost, is_each).context("refused additions")?;
        let lost = |one| matches!(one, Addition::RefusedValue);
        self.fits(found.lost_values, lost, is_each).context("refused values")?;
        if !is_each {
            return Ok(());
        }
        let one = found.histograms.iter().find(|one| one.name == HISTOGRAM);
        let (sum, count) = match one {
            Some(one) => {
                let sum = one.sum.context("TORN: a histogram whose sum is not known")?;
                (sum, one.count() - one.in_flight)
            }
            None => (0, 0),
        };
        let is_value = |one| matches!(one, Addition::Value(_));
        self.fits(sum, is_value, true).context("the sum of the histogram")?;
        let returned = self.all.iter().filter(|(one, returned)| *returned && is_value(*one));
        ensure!(returned.count() as u64 <= count, "LOST: the histogram has {count} values");
        Ok(())
    }

    /// Looks for a set of additions in flight with which the sum is that number.
    fn fits(&self, found: u64, of: impl Fn(Addition) -> bool, is_each: bool) -> Result<()> {
        let of_it = || self.all.iter().filter(|(one, _)| of(*one));
        let sum = |returned: bool| -> u64 {
            of_it().filter(|one| one.1 == returned).map(|one| one.0.amount()).sum()
        };
        let (done, begun) = (sum(true), sum(true) + sum(false));
        ensure!(found <= begun, "INVENTED: {found}, and only {begun} was added");
        if !is_each {
            return Ok(());
        }
        let sums = of_it().filter(|one| !one.1).fold(vec![done], |mut sums, (one, _)| {
            sums.extend(sums.clone().iter().map(|sum| sum + one.amount()));
            sums
        });
        ensure!(sums.contains(&found), "LOST: {found} of {done} that was persisted");
        Ok(())
    }
}

//! Computes the trace's clock from the samples in the session region.

use super::clock_area::{Clock, Created, NANOSECONDS, Sample};
use super::info::ClockInfo;
use lastwords_trace::clock::Clock as TraceClock;
use lastwords_trace::evidence::Gap;
use std::ops::RangeInclusive;

/// The frequencies, in ticks a second, that a counter may have. Another one is damage.
const FREQUENCIES: RangeInclusive<u64> = 1_000..=100_000_000_000;
/// The frequency is refined by two samples if they are at least this far apart, ns.
const MIN_SPAN: u64 = 1_000_000_000;

impl Clock {
    /// The sample to use: the newest one, or the valid sample with the greatest clock. The recorder
    /// never names sample 0 the newest.
    fn reference(&self, notes: &mut Vec<String>) -> Option<Sample> {
        let is_one = |s: &Sample| s.clock != 0;
        let newest = self
            .samples
            .get(self.newest as usize)
            .copied()
            .filter(|s| is_one(s) && self.newest != 0);
        if newest.is_none() && (self.newest != 0 || self.samples.iter().any(is_one)) {
            notes.push(format!(
                "clock: sample {} is named the newest and is not: another is used",
                self.newest
            ));
        }
        newest.or_else(|| {
            self.samples.iter().copied().filter(|s| s.clock != 0).max_by_key(|s| s.clock)
        })
    }

    /// Measured ticks per second from the sample `first` to `newest`, and the nanoseconds between
    /// them; none if they are too close.
    fn measured(first: Sample, newest: Sample) -> Option<(u64, u64)> {
        let span = newest.monotonic.checked_sub(first.monotonic).filter(|s| *s >= MIN_SPAN)?;
        let ticks = newest.clock.checked_sub(first.clock)?;
        let product = u128::from(ticks).checked_mul(u128::from(NANOSECONDS))?;
        let rounded = product.checked_add(u128::from(span / 2))?.checked_div(u128::from(span))?;
        Some((u64::try_from(rounded).ok()?, span))
    }

    fn frequency(
        &self,
        first: Option<Sample>,
        newest: Option<Sample>,
        notes: &mut Vec<String>,
    ) -> (u64, u64) {
        let measured = first.zip(newest).and_then(|(first, newest)| Self::measured(first, newest));
        let span = measured.map_or(0, |m| m.1);
        if self.counts_nanoseconds() {
            if self.frequency != NANOSECONDS {
                notes.push(format!(
                    "clock: a frequency of {} is given for a clock of nanoseconds; 1e9 is used",
                    self.frequency
                ));
            }
            return (NANOSECONDS, span);
        }
        let said = self.frequency;
        match measured {
            Some((ticks, span)) if said == 0 || ticks.abs_diff(said) <= said / 50 => {
                (ticks.max(1), span)
            }
            Some((ticks, span)) if one_bit_apart(said, ticks) => {
                notes.push(format!(
                    "clock: offset 8 (frequency): found {said}, of which one bit is wrong: the samples tell {ticks}, which is used"
                ));
                (ticks.max(1), span)
            }
            Some((ticks, span)) if !FREQUENCIES.contains(&said) => {
                notes.push(format!(
                    "clock: offset 8 (frequency): found {said}, which no counter has: the samples tell {ticks}, which is used"
                ));
                (ticks.max(1), span)
            }
            Some((ticks, _)) => {
                notes.push(format!(
                    "clock: the samples tell a frequency of {ticks}, the clock area {said}; the latter is used"
                ));
                (said, 0)
            }
            None if FREQUENCIES.contains(&said) => (said, 0),
            None => (NANOSECONDS, 0),
        }
    }

    /// Returns the account's lines on what is not known of a clock that was resolved.
    pub(crate) fn not_known(&self, resolved: &TraceClock) -> Vec<Gap> {
        let is_counted = self.counts_nanoseconds()
            || FREQUENCIES.contains(&self.frequency)
            || resolved.frequency != NANOSECONDS;
        let frequency = "clock: its frequency; its ticks are shown as nanoseconds";
        let relation = "clock: its relation to wall time; there is no sample of both";
        let all = [(!is_counted).then_some(frequency), (!resolved.absolute).then_some(relation)];
        all.into_iter().flatten().map(|fact| Gap::not_known(None, fact)).collect()
    }

    /// Returns the trace's clock, and the clock facts that `inspect` shows.
    pub(crate) fn resolve(
        &self,
        created: Created,
        notes: &mut Vec<String>,
    ) -> (TraceClock, ClockInfo) {
        let newest = self.reference(notes).map(|newest| self.checked(newest, created, notes));
        let first = newest.and_then(|newest| self.first(newest, created, notes));
        let (frequency, span) = self.frequency(first, newest, notes);
        let width = newest.map_or(0, |n| n.width);
        let last = newest.map_or(0, |n| n.clock);
        let monotonic_origin =
            newest.map(|newest| newest.realtime.wrapping_sub(newest.monotonic).cast_signed());
        let info = ClockInfo { kind: self.kind, frequency, width, span, last, monotonic_origin };
        let (offset_seconds, offset_ticks) =
            newest.and_then(|n| origin(n, frequency)).unwrap_or_default();
        let clock = TraceClock {
            name: info.word().into(),
            description: format!("{} of the recorded machine", info.word()),
            frequency,
            offset_seconds,
            offset_ticks,
            absolute: newest.is_some(),
        };
        (clock, info)
    }
}

/// True if flipping one bit of `said` makes it equal to `measured` within 0.1 %, the precision of a
/// frequency measured when a session is created.
fn one_bit_apart(said: u64, measured: u64) -> bool {
    (0..u64::BITS).any(|bit| (said ^ 1u64.wrapping_shl(bit)).abs_diff(measured) <= measured / 1000)
}

/// Wall time of tick 0: whole seconds, and the remainder in ticks.
fn origin(sample: Sample, frequency: u64) -> Option<(i64, u64)> {
    let frequency = i128::from(frequency.max(1));
    let ticks =
        i128::from(sample.realtime).checked_mul(frequency)?.checked_div(i128::from(NANOSECONDS))?;
    let zero = ticks.checked_sub(i128::from(sample.clock))?;
    let seconds = zero.checked_div_euclid(frequency)?;
    let rest = zero.checked_rem_euclid(frequency)?;
    Some((i64::try_from(seconds).ok()?, u64::try_from(rest).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastwords_abi::session as abi;

    fn tsc(newest: u32, samples: [Sample; 3]) -> Clock {
        Clock { kind: abi::CLOCK_TSC, newest, frequency: 2_500_000_000, samples }
    }

    fn sample(clock: u64, monotonic: u64, realtime: u64) -> Sample {
        Sample { clock, monotonic, realtime, width: 40 }
    }

    #[test]
    fn samples_refine_the_frequency() {
        let first = sample(1_000, 5_000_000_000, 1_700_000_000_000_000_000);
        let newest = sample(1_000 + 25_000_100_000, 15_000_000_000, 1_700_000_010_000_000_000);
        let mut notes = Vec::new();
        let (clock, info) =
            tsc(2, [first, Sample::default(), newest]).resolve(Created::default(), &mut notes);
        assert_eq!((clock.frequency, info.span), (2_500_010_000, 10_000_000_000));
        let error = clock.nanoseconds(newest.clock) - i128::from(newest.realtime);
        assert!(error.abs() <= 1, "{error}");
        assert!(notes.is_empty());
    }

    #[test]
    fn a_damaged_sample_is_not_believed() {
        let first = sample(1_000, 5_000_000_000, 1);
        let newest = sample(1 << 60, 15_000_000_000, 2);
        let mut notes = Vec::new();
        let (clock, _) =
            tsc(1, [first, newest, Sample::default()]).resolve(Created::default(), &mut notes);
        assert_eq!(clock.frequency, 2_500_000_000);
        assert_eq!(notes.len(), 1);
    }

    #[test]
    fn a_wrong_bit_of_the_frequency_is_told_by_the_samples() {
        let first = sample(1_000, 5_000_000_000, 1_700_000_000_000_000_000);
        let newest = sample(1_000 + 25_000_100_000, 15_000_000_000, 1_700_000_010_000_000_000);
        for bit in 28..63 {
            let mut area = tsc(2, [first, Sample::default(), newest]);
            area.frequency ^= 1 << bit;
            let mut notes = Vec::new();
            assert_eq!(
                area.resolve(Created::default(), &mut notes).0.frequency,
                2_500_010_000,
                "bit {bit}"
            );
            assert_eq!(notes.len(), 1, "{notes:?}");
        }
    }

    /// Nothing but the samples can judge a frequency, and they are too close here.
    #[test]
    fn a_frequency_that_no_counter_has_is_unknown() {
        let first = sample(1_000, 5_000_000_000, 1_700_000_000_000_000_000);
        for frequency in [1, 999, 100_000_000_001, 2_500_000_000 | 0xff << 40, u64::MAX] {
            let mut area = tsc(0, [first, Sample::default(), Sample::default()]);
            area.frequency = frequency;
            let (clock, _) = area.resolve(Created::default(), &mut Vec::new());
            assert_eq!(clock.frequency, NANOSECONDS, "{frequency}");
            let gaps = area.not_known(&clock);
            assert!(
                gaps.iter().any(|gap| gap.place.contains("frequency")),
                "{frequency}: {gaps:?}"
            );
        }
        let newest = sample(1_000 + 25_000_100_000, 15_000_000_000, 1_700_000_010_000_000_000);
        let mut area = tsc(2, [first, Sample::default(), newest]);
        area.frequency = 0xff << 40;
        let mut notes = Vec::new();
        let (clock, _) = area.resolve(Created::default(), &mut notes);
        assert_eq!((clock.frequency, notes.len()), (2_500_010_000, 1), "{notes:?}");
        assert!(area.not_known(&clock).is_empty());
    }

    #[test]
    fn no_sample_is_no_wall_time() {
        let mut notes = Vec::new();
        let (clock, _) = Clock::default().resolve(Created::default(), &mut notes);
        assert!(!clock.absolute && clock.frequency == NANOSECONDS && notes.is_empty());
        let told: Vec<String> =
            Clock::default().not_known(&clock).into_iter().map(|gap| gap.place).collect();
        assert!(
            told.len() == 2 && told[0].contains("frequency") && told[1].contains("wall time"),
            "{told:?}"
        );
    }
}

//! Lets the samples of the clock area vote on each other.
//!
//! A damaged byte may change a sample by less than a wall clock is ever set, and by less than the
//! frequency of a counter is known. The samples still contradict each other then. CLOCK_REALTIME
//! and CLOCK_MONOTONIC are slewed together: their difference is the same in all samples, unless the
//! clock was set or the machine slept, which change more than one byte. A counter has one rate
//! between all samples. A sample that contradicts the others is rejected, and a note says so.

use super::clock_area::{APART, Clock, Created, Sample, wall_difference};
use lastwords_abi::session as abi;

/// The rate of a counter, measured by a clock that is slewed, changes by at most one part in this
/// many.
const SLEW: u64 = 2000;
/// Where samples contradict each other, the frequency in the clock area is taken for exact to one
/// part in this many.
const EXACT: u64 = 1000;
/// The clock readings of a sample may lie apart by its width and so much more, ns.
const SLACK: u64 = 1000;

impl Clock {
    /// The sample to use in place of the newest, if the newest contradicts the others. A note tells
    /// of it.
    pub(super) fn replaced(
        &self,
        newest: Sample,
        created: Created,
        notes: &mut Vec<String>,
    ) -> Option<Sample> {
        let (at, outlier) = (self.index_of(newest), self.outlier());
        let mut others: Vec<(usize, Sample)> =
            self.valid().filter(|(other, _)| *other != at).collect();
        others.sort_by_key(|(_, sample)| std::cmp::Reverse(sample.clock));
        let (other, before) = others.iter().copied().find(|(other, _)| Some(*other) != outlier)?;
        let is_one_moment =
            (before.monotonic, before.realtime) == (newest.monotonic, newest.realtime);
        if is_one_moment && before.clock != newest.clock && outlier.is_none() {
            notes.push(format!(
                "clock: samples {other} and {at} are of one moment, and their clocks are {} and {}: times may be wrong by the difference",
                before.clock, newest.clock
            ));
            return None;
        }
        let is_backed =
            others.iter().any(|(_, other)| *other != before && has_same_wall(*other, before))
                || wall_difference(before, created) <= APART;
        let is_alone = !others.iter().any(|(_, other)| has_same_wall(newest, *other))
            && wall_difference(newest, created) > wall_difference(before, created);
        let is_damaged = is_alone && is_one_byte_apart(newest, before);
        if outlier != Some(at) && !(is_backed && is_damaged) {
            return None;
        }
        notes.push(rejected(at, newest) + &format!(": sample {other} is used"));
        Some(before)
    }

    /// The sample from which the frequency is measured up to the sample that is used: the first,
    /// unless it contradicts the others, of which a note tells.
    pub(super) fn first(
        &self,
        used: Sample,
        created: Created,
        notes: &mut Vec<String>,
    ) -> Option<Sample> {
        let first = self.samples.first().copied().filter(|sample| sample.clock != 0)?;
        if self.contradiction() == Some(None) {
            let what =
                "the samples contradict each other, and nothing shows which of them is damaged";
            notes.push(format!("clock: {what}: times may be wrong"));
        }
        let others: Vec<Sample> =
            self.valid().filter(|(at, _)| *at > 0).map(|(_, sample)| sample).collect();
        let contradicts = |other: &Sample| {
            !has_same_wall(first, *other) && wall_difference(*other, created) <= APART
        };
        if self.outlier() != Some(0) && (others.len() < 2 || !others.iter().all(contradicts)) {
            return Some(first);
        }
        notes.push(rejected(0, first) + ": the frequency is measured without it");
        others.into_iter().find(|other| *other != used)
    }

    /// The sample whose clock and CLOCK_MONOTONIC contradict the others.
    pub(super) fn outlier(&self) -> Option<usize> {
        self.contradiction().flatten()
    }

    /// With `mended` in the place of `newest`, the samples still contradict each other.
    pub(super) fn contradicts(&self, newest: Sample, mended: Sample) -> bool {
        let samples = self.samples.map(|sample| if sample == newest { mended } else { sample });
        Self { samples, ..*self }.contradiction().is_some()
    }

    /// Whether clock and CLOCK_MONOTONIC of the samples contradict each other, and the damaged one,
    /// if that is known: without it, those that are left keep the rate that the clock area says.
    fn contradiction(&self) -> Option<Option<usize>> {
        let all: Vec<(usize, Sample)> = self.valid().collect();
        if self.kind == abi::CLOCK_MONOTONIC {
            // Both readings are of one clock.
            let is_odd = |(_, sample): &&(usize, Sample)| {
                sample.clock.abs_diff(sample.monotonic) > uncertainty(*sample)
            };
            let mut odd = all.iter().filter(is_odd);
            let first = odd.next().filter(|_| all.len() > 1)?;
            return Some(odd.next().is_none().then_some(first.0));
        }
        let [a, b, c] = *all.as_slice() else { return None };
        let said = self.ticks_a_second();
        let pairs = [(a.0, b.1, c.1), (b.0, a.1, c.1), (c.0, a.1, b.1)];
        if pairs.iter().any(|(_, one, other)| one.monotonic == other.monotonic) {
            return None;
        }
        let rates = pairs.map(|(left_out, one, other)| (rate(one, other), left_out));
        let known = rates.iter().filter_map(|(rate, _)| *rate);
        let spread = known.clone().max()?.abs_diff(known.clone().min()?);
        if known.count() == rates.len() && spread <= said / SLEW {
            return None;
        }
        let mut distances = rates
            .map(|(rate, left_out)| (rate.map_or(u64::MAX, |rate| rate.abs_diff(said)), left_out));
        distances.sort_unstable();
        let [(nearest, left_out), (next, _), _] = distances;
        Some((nearest <= said / EXACT && next / 2 > nearest).then_some(left_out))
    }

    /// The samples, with their positions.
    fn valid(&self) -> impl Iterator<Item = (usize, Sample)> {
        self.samples.iter().copied().enumerate().filter(|(_, sample)| sample.clock != 0)
    }
}

fn rejected(at: usize, sample: Sample) -> String {
    let Sample { clock, monotonic, realtime, .. } = sample;
    format!(
        "clock: sample {at} is rejected, as its clock {clock}, monotonic {monotonic} and realtime {realtime} do not fit the other samples"
    )
}

/// Ticks a second of CLOCK_MONOTONIC between two samples; none where one of the clocks went back.
fn rate(one: Sample, other: Sample) -> Option<u64> {
    let (early, late) = if one.monotonic < other.monotonic { (one, other) } else { (other, one) };
    let ticks = u128::from(late.clock.checked_sub(early.clock)?).checked_mul(1_000_000_000)?;
    u64::try_from(ticks.checked_div(u128::from(late.monotonic.checked_sub(early.monotonic)?))?).ok()
}

/// How far the clock readings of a sample may lie apart, ns.
fn uncertainty(sample: Sample) -> u64 {
    sample.width.min(APART).saturating_add(SLACK)
}

/// CLOCK_REALTIME of `sample` if CLOCK_MONOTONIC and it are as far apart as in `other`, and how
/// exactly that is known.
fn expected(sample: Sample, other: Sample) -> (u64, u64) {
    let realtime = sample.monotonic.wrapping_add(other.realtime.wrapping_sub(other.monotonic));
    (realtime, uncertainty(sample).saturating_add(uncertainty(other)))
}

fn has_same_wall(sample: Sample, other: Sample) -> bool {
    let (realtime, uncertainty) = expected(sample, other);
    sample.realtime.abs_diff(realtime) <= uncertainty
}

/// Another byte in one place makes the wall time or CLOCK_MONOTONIC of a sample fit.
fn is_one_byte_apart(sample: Sample, other: Sample) -> bool {
    let bytes = (0..u64::BITS)
        .step_by(8)
        .flat_map(|at| (1..=0xff_u64).map(move |flips| flips.wrapping_shl(at)));
    bytes.into_iter().any(|flips| {
        let (realtime, monotonic) = (sample.realtime ^ flips, sample.monotonic ^ flips);
        has_same_wall(Sample { realtime, ..sample }, other)
            || has_same_wall(Sample { monotonic, ..sample }, other)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use abi::{CLOCK_MONOTONIC, CLOCK_TSC};

    const WALL: u64 = 1_700_000_000_000_000_000;
    const HOUR: u64 = 3_600_000_000_000;

    /// Clock areas as the recorder leaves them: new, half a second old, and after 20 and 20.7
    /// seconds, at a rate that is not quite what was measured.
    fn areas(kind: u32) -> Vec<Clock> {
        let is_tsc = kind == CLOCK_TSC;
        let at = |ns: u64| Sample {
            clock: if is_tsc { 7_000 + ns * 5 / 2 + ns / 40_000 } else { HOUR + ns },
            monotonic: HOUR + ns + 20,
            realtime: WALL + HOUR + ns + 7,
            width: 48,
        };
        let none = Sample::default();
        let of = |newest, samples| Clock {
            kind,
            newest,
            frequency: if is_tsc { 2_500_000_000 } else { 1_000_000_000 },
            samples,
        };
        let (first, late, later) = (at(0), at(20_000_000_000), at(20_700_000_000));
        vec![
            of(1, [first, first, none]),
            of(2, [first, first, at(500_000_000)]),
            of(2, [first, late, later]),
            of(1, [first, later, late]),
        ]
    }

    const CREATED: Created =
        Created { realtime: WALL + HOUR - 30_000_000, monotonic: HOUR - 30_000_000 };

    /// Every value of every byte of every sample: times that are not told to be wrong are right as
    /// far as the samples can tell, and those of a long session are right though a sample is
    /// damaged.
    #[test]
    fn no_byte_of_a_sample_moves_times_untold() {
        for kind in [CLOCK_TSC, CLOCK_MONOTONIC] {
            for (n, area) in areas(kind).into_iter().enumerate() {
                let mut notes = Vec::new();
                let (right, _) = area.resolve(CREATED, &mut notes);
                assert!(notes.is_empty(), "{notes:?}");
                let ends = [area.samples[0].clock, area.samples[area.newest as usize].clock];
                for (sample, field, byte, flips) in damages() {
                    let mut bad = area;
                    if bad.samples[sample] == Sample::default() {
                        continue;
                    }
                    *field(&mut bad.samples[sample]) ^= flips << (8 * byte);
                    let (clock, _) = bad.resolve(CREATED, &mut notes);
                    let errors =
                        ends.map(|end| clock.nanoseconds(end).abs_diff(right.nanoseconds(end)));
                    let error = errors.into_iter().max().unwrap_or(0);
                    let told = std::mem::take(&mut notes);
                    let what =
                        || format!("{kind} {n}: sample {sample}, {bad:?}: {error} ns, {told:?}");
                    // A slewed clock changes by so much between two samples; young sessions have
                    // too few samples for a vote.
                    let slewed =
                        [20_700_000_000 / SLEW, 700_000_000 / SLEW][usize::from(sample > 0)];
                    let unknown = if n < 2 { 12_000_000 } else { slewed };
                    let bound = u128::from(if kind == CLOCK_TSC { unknown } else { 3_000 });
                    assert!(
                        error <= bound || (!told.is_empty() && (n < 2 || error <= 2 * bound)),
                        "{}",
                        what()
                    );
                    assert!(error <= 3_000 || !told.is_empty() || kind == CLOCK_TSC, "{}", what());
                }
            }
        }
    }

    type Field = fn(&mut Sample) -> &mut u64;

    fn damages() -> impl Iterator<Item = (usize, Field, u32, u64)> {
        let fields: [Field; 4] =
            [|s| &mut s.clock, |s| &mut s.monotonic, |s| &mut s.realtime, |s| &mut s.width];
        let of = move |(sample, field)| {
            (0..8).flat_map(move |byte| (1..256).map(move |flips| (sample, field, byte, flips)))
        };
        (0..3).flat_map(move |sample| fields.map(|field| (sample, field))).flat_map(of)
    }
}

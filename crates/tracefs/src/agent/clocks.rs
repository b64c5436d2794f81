//! Measures the difference between the clocks of a guest and its host.

use super::wire::{Answer, Ask};
use super::{ANSWER, EACH, ENDED};
use anyhow::{Context, bail, ensure};
use lastwords_ftrace::dat::ShiftSample;
use lastwords_open::tracer_now;
use lastwords_stream::{Heard, Line};
use std::os::fd::BorrowedFd;
use std::time::Instant;

/// The rates of two clocks differ by at most one part of so many (100 ppm): crystals do by less, and
/// the clocks of a host and its guest count the same crystal.
const DRIFT: u64 = 10_000;

/// Most measurements of a recording. A file has all of them for each CPU.
const MOST: usize = 512;

/// A measurement of the difference between two clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measured {
    /// The reading of the guest's clock in nanoseconds.
    pub time: u64,
    /// Nanoseconds to add to the guest's clock for the host's.
    pub offset: i64,
    /// Nanoseconds by which the offset is wrong at most.
    pub error: u64,
}

impl Measured {
    /// Makes a measurement of a reading of the guest's clock that was made between two readings of
    /// the host's clock, in nanoseconds.
    ///
    /// # Errors
    /// No clock of a kernel has such a reading, which is of 63 bits.
    fn between(before: u64, guest: u64, after: u64) -> anyhow::Result<Self> {
        let is_reading = i64::try_from(guest).is_ok();
        ensure!(
            is_reading,
            "{guest} ns as the reading of its clock, which are more than 292 years"
        );
        let round_trip = after.saturating_sub(before);
        let middle = before.saturating_add(round_trip / 2);
        let offset = i128::from(middle).saturating_sub(i128::from(guest));
        let offset = i64::try_from(offset).context("the difference of the clocks")?;
        Ok(Self { time: guest, offset, error: round_trip.div_ceil(2) })
    }
}

/// Asks for the guest's clock so many times, and returns the measurement with the least error. An
/// agent that is slow is asked less often.
///
/// # Errors
/// The connection is broken, the agent does not answer, its answer is no reading of a clock, it has
/// ended the recording, or the other end of `ended` was closed.
pub(super) fn measure(
    line: &Line,
    clock: &str,
    times: usize,
    ended: Option<BorrowedFd<'_>>,
) -> anyhow::Result<Measured> {
    let (mut best, begun): (Option<Measured>, _) = (None, Instant::now());
    for _ in 0..times {
        if best.is_some() && begun.elapsed() >= EACH {
            break;
        }
        let now = || tracer_now(clock).with_context(|| format!("the clock {clock}"));
        let before = now()?;
        line.say(&Ask::Clock)?;
        let answer = line.hear(ANSWER, ended)?;
        let after = now()?;
        let guest = match answer {
            Heard::Message(Answer::Clock { nanoseconds }) => nanoseconds,
            Heard::Message(other) => return Err(other.unexpected(line)),
            Heard::Ended => bail!("{}: {ENDED}", line.peer()),
            Heard::Nothing => {
                bail!("{}: it has not answered for {} seconds", line.peer(), ANSWER.as_secs())
            }
        };
        let measured = Measured::between(before, guest, after);
        let measured = measured.with_context(|| line.peer().to_string())?;
        if best.is_none_or(|best| measured.error < best.error) {
            best = Some(measured);
        }
    }
    best.context("no measurement")
}

/// The differences between two clocks during a recording, in order of time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClockShift {
    /// The measurements. Between two of them, readers interpolate.
    pub measured: Vec<Measured>,
    /// One measurement is kept of as many.
    keep_each: usize,
    /// Measurements that were made since the last that was kept.
    passed: usize,
    /// Measurements that were dropped because the guest's clock had not gone on since the one
    /// before.
    back: usize,
}

impl ClockShift {
    /// Adds a measurement. Of many, each second is dropped.
    pub(super) fn add(&mut self, measured: Measured) {
        if self.is_back(&measured) {
            return;
        }
        self.passed = self.passed.saturating_add(1);
        if self.passed >= self.keep_each {
            self.add_last(measured);
        }
    }

    /// Adds a measurement that must be kept.
    pub(super) fn add_last(&mut self, measured: Measured) {
        if self.is_back(&measured) {
            return;
        }
        self.passed = 0;
        self.measured.push(measured);
        if self.measured.len() > MOST {
            let mut at = 0usize;
            self.measured.retain(|_| {
                at = at.saturating_add(1);
                at % 2 == 1
            });
            self.keep_each = self.keep_each.max(1).saturating_mul(2);
        }
    }

    /// Returns true if the guest's clock has not gone on since the last measurement, and counts that.
    /// Two measurements of one time give no line.
    fn is_back(&mut self, measured: &Measured) -> bool {
        let is_back = self.measured.last().is_some_and(|last| last.time >= measured.time);
        self.back = self.back.saturating_add(usize::from(is_back));
        is_back
    }

    /// Returns how many measurements contradict the one before them: the guest's clock was set, was
    /// stopped, or went back. Around such a measurement, times have no known error.
    #[must_use]
    pub fn contradictions(&self) -> usize {
        let contradict = |a: &Measured, b: &Measured| {
            let drift = b.time.abs_diff(a.time).div_ceil(DRIFT);
            let errors = a.error.saturating_add(b.error).saturating_add(drift);
            b.offset.abs_diff(a.offset) > errors
        };
        let pairs = self.measured.iter().zip(self.measured.iter().skip(1));
        pairs.filter(|(a, b)| contradict(a, b)).count().saturating_add(self.back)
    }

    /// Returns the measurements, each limited by all others: a clock cannot have gone further since
    /// a better measurement than `DRIFT` allows. Measurements that contradict each other keep their
    /// own errors.
    #[must_use]
    pub fn refined(&self) -> Vec<Measured> {
        let own = |at: &Measured| {
            let error = i64::try_from(at.error).unwrap_or(i64::MAX);
            (at.time, at.offset.saturating_sub(error), at.offset.saturating_add(error))
        };
        let mut limits: Vec<(u64, i64, i64)> = self.measured.iter().map(own).collect();
        for _ in 0..2 {
            let mut before: Option<(u64, i64, i64)> = None;
            for limit in &mut limits {
                if let Some((time, low, high)) = before {
                    let drift = limit.0.abs_diff(time).div_ceil(DRIFT);
                    let drift = i64::try_from(drift).unwrap_or(i64::MAX);
                    let low = low.saturating_sub(drift).max(limit.1);
                    let high = high.saturating_add(drift).min(limit.2);
                    if low <= high {
                        (limit.1, limit.2) = (low, high);
                    }
                }
                before = Some(*limit);
            }
            // The second pass goes back in time.
            limits.reverse();
        }
        let measured = |(time, low, high): (u64, i64, i64)| {
            let width = high.abs_diff(low);
            Measured {
                time,
                offset: low.saturating_add_unsigned(width / 2),
                error: width.div_ceil(2),
            }
        };
        limits.into_iter().map(measured).collect()
    }

    /// Returns the measurements for a file.
    pub(super) fn samples(&self) -> Vec<ShiftSample> {
        let sample = |at: Measured| ShiftSample { time: at.time, offset: at.offset };
        self.refined().into_iter().map(sample).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_true_difference_is_within_the_error() {
        // The guest's clock is at 7 when the host's is at `at`.
        for (before, after, at) in
            [(100u64, 200u64, 100u64), (100, 200, 200), (100, 201, 130), (5, 5, 5)]
        {
            let measured = Measured::between(before, 7, after).unwrap();
            let wrong = measured.offset.abs_diff(at as i64 - 7);
            assert!(wrong <= measured.error, "{before} {after} {at}: {measured:?}");
        }
        let negative = Measured::between(1_000, 9_000_000_000_000, 1_010).unwrap();
        assert_eq!((negative.offset, negative.error), (1_005 - 9_000_000_000_000, 5));
        let most = Measured::between(0, i64::MAX as u64, 0).unwrap();
        assert_eq!((most.offset, most.error), (-i64::MAX, 0));
        // Clocks that go back have no negative error.
        assert_eq!(Measured::between(200, 7, 100).unwrap().error, 0);
        for guest in [1 << 63, u64::MAX] {
            let error = Measured::between(0, guest, 10).unwrap_err().to_string();
            assert!(error.contains(&guest.to_string()), "{error}");
        }
    }

    #[test]
    fn many_measurements_are_thinned_out_and_both_ends_are_kept() {
        let mut shift = ClockShift::default();
        let of = |time: u64| Measured { time, offset: 0, error: time };
        (0..100_000).for_each(|time| shift.add(of(time)));
        shift.add_last(of(100_000));
        let times: Vec<u64> = shift.measured.iter().map(|measured| measured.time).collect();
        assert!((MOST / 2..=MOST).contains(&times.len()), "{}", times.len());
        assert_eq!((times.first(), times.last()), (Some(&0), Some(&100_000)));
        assert!(times.windows(2).all(|pair| (1..1024).contains(&(pair[1] - pair[0]))));
        assert_eq!(shift.contradictions(), 0);
        // A clock that stands still adds nothing, and is noted.
        shift.add_last(of(100_000));
        shift.add(of(5));
        assert_eq!((shift.measured.len(), shift.contradictions()), (times.len(), 2));
    }

    #[test]
    fn a_good_measurement_limits_the_bad_ones_around_it() {
        let second = 1_000_000_000;
        let of = |measured: &[(u64, i64, u64)]| {
            let mut shift = ClockShift::default();
            for (time, offset, error) in measured {
                shift.add_last(Measured { time: *time, offset: *offset, error: *error });
            }
            shift.refined()
        };
        // The true difference is 1,000,000 at first, and grows by 10 us each second.
        let truth = |time: u64| 1_000_000 + (time / second * 10_000) as i64;
        let drawn: [(u64, i64, u64); 5] = [
            (0, 30_000_000, 32_000_000),
            (second, -700, 2_000),
            (2 * second, 5_000_000, 6_000_000),
            (3 * second, 900, 1_000),
            (4 * second, -4_000_000, 4_000_000),
        ];
        let measured = drawn.map(|(time, wrong, error)| (time, truth(time) + wrong, error));
        let refined = of(&measured);
        for at in &refined {
            assert!(at.offset.abs_diff(truth(at.time)) <= at.error, "{at:?}");
            assert!(at.error <= 102_500, "{at:?}");
        }
        assert_eq!((refined[3].offset, refined[3].error), (truth(3 * second) + 900, 1_000));
        assert_eq!(refined.iter().map(|at| at.time).collect::<Vec<_>>(), drawn.map(|at| at.0));
        // A clock that was set: each measurement keeps its own.
        let set = of(&[(0, 0, 10), (second, 5_000_000, 10)]);
        assert_eq!((set[0].offset, set[1].offset, set[1].error), (0, 5_000_000, 10));
    }

    #[test]
    fn a_clock_that_was_set_contradicts_and_one_that_drifts_does_not() {
        let of = |offsets: &[(u64, i64)]| {
            let mut shift = ClockShift::default();
            for (time, offset) in offsets {
                shift.add_last(Measured { time: *time, offset: *offset, error: 10 });
            }
            shift.contradictions()
        };
        let second = 1_000_000_000;
        assert_eq!(of(&[(0, 0), (second, 100_000), (2 * second, 0)]), 0);
        assert_eq!(of(&[(0, 0), (second, 100_021), (2 * second, 100_000)]), 1);
        assert_eq!(of(&[(0, 0), (second, i64::MIN), (2 * second, i64::MAX)]), 2);
        assert_eq!(of(&[(second, 0), (0, 0)]), 1);
    }
}

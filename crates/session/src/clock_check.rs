//! Tells damage in the clock area from a wall clock that was set.
//!
//! The clock area has no checksum. Its samples are compared with each other and with the clocks in
//! the session's identity, which has a checksum.

use super::clock_area::{APART, Clock, Created, Sample, wall_difference};

/// A wall clock is slewed by at most one part in this many.
const SLEW: u64 = 2000;
/// The frequency of a counter is known to one part in this many.
const RATE: u64 = 50;
/// Smaller differences of wall time are ignored, ns.
const STEP: u64 = 1_000_000_000;
/// A flipped bit is taken as the cause only if its value is at least this many times the difference
/// that may occur anyway.
const CLEAR: u64 = 1024;

/// A field of a sample: its name, its offset in the sample, and its accessor.
type Field = (&'static str, u64, fn(&mut Sample) -> &mut u64);

const FIELDS: [Field; 3] = [
    ("clock", 0, |s| &mut s.clock),
    ("monotonic", 8, |s| &mut s.monotonic),
    ("realtime", 16, |s| &mut s.realtime),
];

impl Clock {
    /// Returns the newest sample, with one wrong bit corrected if only that correction makes all
    /// clocks agree. Adds notes about corrections and disagreements.
    pub(crate) fn checked(
        &self,
        newest: Sample,
        created: Created,
        notes: &mut Vec<String>,
    ) -> Sample {
        if created.monotonic == 0 {
            return newest;
        }
        if self.keeps_rate(newest) && wall_difference(newest, created) <= STEP {
            return self.replaced(newest, created, notes).unwrap_or(newest);
        }
        let mut found: Vec<(Field, Sample)> = Vec::new();
        for field in FIELDS {
            for bit in 0..u64::BITS {
                let mut mended = newest;
                *field.2(&mut mended) ^= 1u64.wrapping_shl(bit);
                let may_differ = tolerance(mended, created);
                // A user may have set the wall clock, and suspend changes the two others; nothing
                // changes the counter alone.
                let is_clear =
                    field.1 == 0 || 1u64.wrapping_shl(bit) >= may_differ.saturating_mul(CLEAR);
                let fits =
                    self.keeps_rate(mended) && wall_difference(mended, created) <= may_differ;
                if is_clear && fits && !self.contradicts(newest, mended) {
                    found.push((field, mended));
                }
            }
        }
        match found.as_slice() {
            // With only one other sample, it is unknown which of the two is wrong.
            [((name, ..), _)] if *name == "clock" && self.others(newest).count() < 2 => {}
            [((name, offset, of), mended)] => {
                let (mut was, mut is) = (newest, *mended);
                notes.push(format!(
                    "clock: sample {}, offset {offset} ({name}): found {}, expected {}: one bit, by the other samples and the time when the \
                     session was made",
                    self.index_of(newest),
                    of(&mut was),
                    of(&mut is)
                ));
                return *mended;
            }
            _ => {}
        }
        self.replaced(newest, created, notes).unwrap_or_else(|| {
            self.tell(newest, created, notes);
            newest
        })
    }

    fn tell(&self, newest: Sample, created: Created, notes: &mut Vec<String>) {
        let index = self.index_of(newest);
        if !self.keeps_rate(newest) {
            let Sample { clock, monotonic, .. } = newest;
            notes.push(format!(
                "clock: sample {index}: clock {clock} and monotonic {monotonic} do not fit the other samples and the frequency {}; \
                 times may be wrong",
                self.frequency
            ));
        }
        if wall_difference(newest, created) > STEP {
            notes.push(format!(
                "clock: sample {index}: realtime {}: wall time and CLOCK_MONOTONIC are {} ns further apart or nearer than when the session was \
                 made: the clock was set, the machine slept, or the sample is damaged",
                newest.realtime,
                wall_difference(newest, created)
            ));
        }
    }

    fn others(&self, newest: Sample) -> impl Iterator<Item = &Sample> {
        let index = self.index_of(newest);
        self.samples
            .iter()
            .enumerate()
            .filter(move |(n, s)| *n != index && s.clock != 0)
            .map(|(_, s)| s)
    }

    /// True if clock and CLOCK_MONOTONIC advanced by the same time between this sample and each
    /// other one.
    fn keeps_rate(&self, sample: Sample) -> bool {
        let frequency = u128::from(self.ticks_a_second());
        let outlier = self.outlier().and_then(|at| self.samples.get(at));
        let others =
            self.samples.iter().filter(|s| s.clock != 0 && self.is_other(s) && Some(*s) != outlier);
        others.into_iter().all(|other| {
            let ticks = sample.clock.abs_diff(other.clock);
            let elapsed = sample.monotonic.abs_diff(other.monotonic);
            let by_clock = u128::from(ticks)
                .saturating_mul(u128::from(STEP))
                .checked_div(frequency)
                .unwrap_or(0);
            let by_clock = u64::try_from(by_clock).unwrap_or(u64::MAX);
            let same_way = ticks == 0
                || elapsed < APART
                || (sample.clock > other.clock) == (sample.monotonic > other.monotonic);
            same_way && by_clock.abs_diff(elapsed) <= (elapsed / RATE).saturating_add(APART)
        })
    }

    /// True if the sample is not the one marked as the newest.
    fn is_other(&self, sample: &Sample) -> bool {
        self.samples.get(self.newest as usize) != Some(sample)
    }
}

/// Largest drift since the session's creation of a wall clock that was not set, ns.
fn tolerance(sample: Sample, created: Created) -> u64 {
    (sample.monotonic.abs_diff(created.monotonic) / SLEW).saturating_add(APART)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastwords_abi::session::CLOCK_TSC;

    const HOUR: u64 = 3_600_000_000_000;
    const WALL: u64 = 1_700_000_000_000_000_000;

    /// A counter of 2.5 GHz; samples at creation and after 20 and 21 seconds.
    fn area() -> (Clock, Created) {
        let at = |seconds: u64| Sample {
            clock: 7_000 + seconds * 2_500_000_000,
            monotonic: HOUR + seconds * STEP,
            realtime: WALL + seconds * STEP,
            width: 40,
        };
        let clock = Clock {
            kind: CLOCK_TSC,
            newest: 2,
            frequency: 2_500_000_000,
            samples: [at(0), at(20), at(21)],
        };
        (clock, Created { realtime: WALL - 30_000_000, monotonic: HOUR - 30_000_000 })
    }

    #[test]
    fn one_bit_of_the_newest_sample_is_put_right_or_said() {
        let (clock, created) = area();
        for (name, _, of) in FIELDS {
            for bit in 31..34 {
                let mut bad = clock;
                *of(&mut bad.samples[2]) ^= 1 << bit;
                let mut notes = Vec::new();
                bad.checked(bad.samples[2], created, &mut notes);
                assert!(!notes.is_empty(), "{name}: bit {bit}");
            }
            for bit in 34..63 {
                let mut bad = clock;
                *of(&mut bad.samples[2]) ^= 1 << bit;
                let mut notes = Vec::new();
                let found = bad.checked(bad.samples[2], created, &mut notes);
                assert_eq!(found, clock.samples[2], "{name}: bit {bit}: {notes:?}");
                assert!(
                    notes.len() == 1 && notes[0].contains(name),
                    "{name}: bit {bit}: {notes:?}"
                );
            }
        }
    }

    #[test]
    fn a_wall_clock_that_was_set_is_no_damage() {
        let (clock, created) = area();
        for step in [
            1_000_000_000i64,
            -1_000_000_000,
            3_600_000_000_000,
            -86_400_000_000_000,
            5_123_456_789,
        ] {
            let mut set = clock;
            set.samples[2].realtime = set.samples[2].realtime.wrapping_add_signed(step);
            let mut notes = Vec::new();
            assert_eq!(
                set.checked(set.samples[2], created, &mut notes),
                set.samples[2],
                "{step}: {notes:?}"
            );
        }
        let mut notes = Vec::new();
        assert_eq!(clock.checked(clock.samples[2], created, &mut notes), clock.samples[2]);
        assert!(notes.is_empty(), "{notes:?}");
    }
}

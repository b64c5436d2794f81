//! The clock options of a file: TIME_SHIFT, TSC2NSEC and OFFSET. `timestamp_calc` of trace-cmd
//! (`trace-input.c`) applies them to every time in this order.

use lastwords_bytes::{Error, Reader};

/// Flag of TIME_SHIFT: the offset between two samples is interpolated.
pub(super) const INTERPOLATE: u32 = 1;

/// A sample of the difference to another machine's clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Sample {
    time: i64,
    offset: i64,
    scaling: i64,
    fraction: i64,
}

/// The time correction of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Correction {
    /// Samples by CPU, in order of time.
    samples: Vec<Vec<Sample>>,
    interpolates: bool,
    /// Factor and shift that convert the readings of a time stamp counter to nanoseconds.
    nanoseconds: Option<(u32, u32)>,
    /// Nanoseconds that are added to every time.
    offset: i64,
    /// The number of the recording whose clock the corrected times are by.
    pub(super) shifted_to: Option<u64>,
}

impl Correction {
    /// Returns true if the correction changes no time.
    pub(super) fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Returns true if the correction converts the readings of a time stamp counter to nanoseconds.
    pub(super) fn is_in_ns(&self) -> bool {
        self.nanoseconds.is_some()
    }

    /// Reads the option OFFSET: a number as text.
    pub(super) fn add_offset(&mut self, text: &str) {
        let (digits, radix) =
            text.trim().strip_prefix("0x").map_or((text.trim(), 10), |digits| (digits, 16));
        self.offset = self.offset.wrapping_add(i64::from_str_radix(digits, radix).unwrap_or(0));
    }

    /// Reads the option TSC2NSEC: factor, shift, and an offset that trace-cmd does not use for
    /// times.
    pub(super) fn read_nanoseconds(&mut self, from: &mut Reader<'_>) -> Result<(), Error> {
        let (factor, shift) = (from.u32()?, from.u32()?);
        from.u64()?;
        if shift > 63 {
            return Err(from.unexpected(u64::from(shift), "a shift of at most 63 bits"));
        }
        self.nanoseconds = (factor != 0).then_some((factor, shift));
        Ok(())
    }

    /// Reads the option TIME_SHIFT: the id of the other trace, flags and the number of CPUs; for
    /// each CPU the number of samples, their times, offsets and factors; then, in newer files, the
    /// number of fraction bits of each factor.
    pub(super) fn read_shift(&mut self, from: &mut Reader<'_>) -> Result<(), Error> {
        let other = from.u64()?;
        let flags = from.u32()?;
        let mut all: Vec<Vec<Sample>> = Vec::new();
        for _ in 0..from.u32()? {
            let count = from.u32()? as usize;
            // Each sample has at least 24 bytes.
            if count > from.left() / 24 {
                return Err(from.unexpected(count as u64, "samples that fit into the option"));
            }
            let mut samples = vec![Sample::default(); count];
            let parts: [fn(&mut Sample) -> &mut i64; 3] = [
                |sample| &mut sample.time,
                |sample| &mut sample.offset,
                |sample| &mut sample.scaling,
            ];
            for part in parts {
                for sample in &mut samples {
                    *part(sample) = from.u64()?.cast_signed();
                }
            }
            all.push(samples);
        }
        if from.left() > 0 {
            for sample in all.iter_mut().flatten() {
                sample.fraction = from.u64()?.cast_signed();
                if !(0..64).contains(&sample.fraction) {
                    return Err(from
                        .unexpected(sample.fraction.cast_unsigned(), "at most 63 fraction bits"));
                }
            }
        }
        for samples in &mut all {
            samples.sort_by_key(|sample| sample.time);
            samples.dedup_by_key(|sample| sample.time);
        }
        (self.samples, self.interpolates) = (all, flags & INTERPOLATE != 0);
        self.shifted_to = Some(other);
        Ok(())
    }

    /// Returns the corrected time.
    pub(super) fn apply(&self, cpu: u32, time: u64) -> u64 {
        let samples = usize::try_from(cpu).ok().and_then(|cpu| self.samples.get(cpu));
        let time = samples.map_or(time, |samples| self.shifted(samples, time));
        let time = match self.nanoseconds {
            Some((factor, shift)) => scaled(time, factor.into(), shift),
            None => time,
        };
        time.wrapping_add_signed(self.offset)
    }

    /// Returns the time by the other machine's clock.
    fn shifted(&self, samples: &[Sample], time: u64) -> u64 {
        if let [only] = samples {
            return time.wrapping_add_signed(only.offset);
        }
        // The first sample of the pair around the time is used; at the ends, the first or the last
        // pair.
        let behind = samples.partition_point(|sample| sample.time.cast_unsigned() <= time);
        let first = behind.saturating_sub(1).min(samples.len().saturating_sub(2));
        let Some((min, max)) = samples.get(first).zip(samples.get(first.saturating_add(1))) else {
            return time;
        };
        let offset = if self.interpolates { between(min, max, time) } else { min.offset };
        scaled(time, min.scaling.cast_unsigned(), u32::try_from(min.fraction).unwrap_or(0))
            .wrapping_add_signed(offset)
    }
}

/// Returns `time * factor >> shift`, with a product of 128 bits.
fn scaled(time: u64, factor: u64, shift: u32) -> u64 {
    let product = u128::from(time).wrapping_mul(u128::from(factor)) >> shift;
    // As in trace-cmd, the upper half of a product that is too large is lost.
    u64::try_from(product & u128::from(u64::MAX)).unwrap_or(u64::MAX)
}

/// Returns the offset at a time by the line through two samples.
fn between(min: &Sample, max: &Sample, time: u64) -> i64 {
    let [from, to] = [min, max].map(|sample| (i128::from(sample.time), i128::from(sample.offset)));
    // Each difference has at most 65 bits. trace-cmd computes the product in 64 bits.
    let delta = to.0.wrapping_sub(from.0);
    let product = i128::from(time.cast_signed())
        .wrapping_sub(from.0)
        .saturating_mul(to.1.wrapping_sub(from.1));
    let rounded = product.saturating_add(delta / 2).checked_div(delta).unwrap_or(0);
    let offset = from.1.wrapping_add(rounded);
    i64::try_from(offset).unwrap_or(if offset < 0 { i64::MIN } else { i64::MAX })
}

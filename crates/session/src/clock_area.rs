//! The clock area of the session region, and the samples in it.

use lastwords_abi::session as abi;

/// The contents of the clock area.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Clock {
    pub(crate) kind: u32,
    pub(crate) newest: u32,
    pub(crate) frequency: u64,
    pub(crate) samples: [Sample; 3],
}

/// Readings of the three clocks at one moment; `monotonic`, `realtime` and `width` in nanoseconds.
/// `clock` 0 = no sample.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) clock: u64,
    pub(crate) monotonic: u64,
    pub(crate) realtime: u64,
    pub(crate) width: u64,
}

/// Frequency of clocks that count nanoseconds.
pub(super) const NANOSECONDS: u64 = 1_000_000_000;

impl Clock {
    pub(super) fn counts_nanoseconds(&self) -> bool {
        matches!(
            self.kind,
            abi::CLOCK_MONOTONIC
                | abi::CLOCK_MONOTONIC_RAW
                | abi::CLOCK_BOOTTIME
                | abi::CLOCK_REALTIME
        )
    }

    /// Frequency in ticks per second: fixed for clocks that count nanoseconds, else as in the clock
    /// area.
    pub(crate) fn ticks_a_second(&self) -> u64 {
        if self.counts_nanoseconds() { NANOSECONDS } else { self.frequency }
    }

    pub(super) fn index_of(&self, sample: Sample) -> usize {
        self.samples.iter().position(|s| s == &sample).unwrap_or(0)
    }
}

/// CLOCK_REALTIME and CLOCK_MONOTONIC, read one after the other when the session was created; ns. A
/// checksum covers them.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Created {
    pub(crate) realtime: u64,
    pub(crate) monotonic: u64,
}

/// Largest time between the clock readings of one sample, ns.
pub(super) const APART: u64 = 1_000_000;

/// Change of the difference between wall time and CLOCK_MONOTONIC since the session was created,
/// ns.
pub(super) fn wall_difference(sample: Sample, created: Created) -> u64 {
    let then = i128::from(created.realtime).saturating_sub(i128::from(created.monotonic));
    let now = i128::from(sample.realtime).saturating_sub(i128::from(sample.monotonic));
    u64::try_from(then.abs_diff(now)).unwrap_or(u64::MAX)
}

//! Places in the merged order of events.

/// A place in the merged order of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place(pub(super) i64);

/// Converts a clock reading to a key of the order.
#[inline]
pub(super) fn ticks(clock: u64) -> i64 {
    i64::try_from(clock).unwrap_or(i64::MAX)
}

/// The first packets of a stream, which are passed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Skip {
    /// Their number.
    pub packets: usize,
    /// Their bound. No later event of the stream comes before it.
    pub(super) bound: i64,
}

/// Returns true if the nanoseconds are a time. The least and the greatest number stand for times
/// that do not fit 64 bits.
#[inline]
pub(super) fn is_time(nanoseconds: &i64) -> bool {
    !matches!(*nanoseconds, i64::MIN | i64::MAX)
}

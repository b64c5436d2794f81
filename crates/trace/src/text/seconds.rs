//! Times of a clock as seconds.

use super::number::{nine, unsigned};
use super::page::Put;

/// Nanoseconds of a second.
const NANOSECONDS: u64 = 1_000_000_000;
/// Digits behind the point.
pub const FRACTION: usize = 9;

fn put_negative(nanoseconds: i64, out: &mut impl Put) {
    out.block(b"-", 1);
    seconds(nanoseconds.unsigned_abs(), out);
}

/// Appends a time of a clock that is not related to the time of day: `S.nnnnnnnnn`.
#[cold]
pub fn put_seconds(nanoseconds: i64, out: &mut impl Put) {
    match u64::try_from(nanoseconds) {
        Ok(magnitude) => seconds(magnitude, out),
        Err(_) => put_negative(nanoseconds, out),
    }
}

/// Appends a time that is not negative: `S.nnnnnnnnn`.
pub fn seconds(magnitude: u64, out: &mut impl Put) {
    unsigned(out, magnitude / NANOSECONDS);
    out.block(b".", 1);
    out.block(&nine((magnitude % NANOSECONDS) as u32), FRACTION);
}

//! Times of day, one conversion a second.

use super::number::{nine, two};
use jiff::Timestamp;
use jiff::tz::TimeZone;

const GIGA: i64 = 1_000_000_000;

/// A time zone for times of day.
#[derive(Debug, Clone)]
pub struct Zone(TimeZone);

impl Zone {
    /// The machine's: `TZ`, else /etc/localtime, else UTC.
    #[must_use]
    pub fn local() -> Self {
        Self(TimeZone::try_system().unwrap_or(TimeZone::UTC))
    }

    /// Greenwich.
    #[must_use]
    pub fn utc() -> Self {
        Self(TimeZone::UTC)
    }

    /// Seconds east of Greenwich at a moment.
    fn offset(&self, second: i64) -> i64 {
        Timestamp::from_second(second).map_or(0, |t| i64::from(self.0.to_offset(t).seconds()))
    }
}

/// Writes times of day: `HH:MM:SS.nnnnnnnnn`.
#[derive(Debug)]
pub(crate) struct TimeOfDay {
    zone: Zone,
    /// First nanosecond of the second whose text is known.
    begin: i64,
    text: [u8; 9],
    known: bool,
}

impl TimeOfDay {
    pub(crate) fn new(zone: &Zone) -> Self {
        Self { zone: zone.clone(), begin: 0, text: *b"00:00:00.", known: false }
    }

    /// Appends the time of day; before 1970, seconds: `-S.nnnnnnnnn`.
    #[inline]
    pub(crate) fn put(&mut self, nanoseconds: i64, out: &mut Vec<u8>) {
        self.put_in(b"", b"", nanoseconds, out);
    }

    /// Appends the time of day between two short texts, together at most 14 bytes.
    #[inline]
    pub(crate) fn put_in(&mut self, before: &[u8], behind: &[u8], nanoseconds: i64, out: &mut Vec<u8>) {
        let mut within = nanoseconds.wrapping_sub(self.begin).cast_unsigned();
        if !self.known || within >= GIGA.cast_unsigned() {
            if nanoseconds < 0 {
                out.extend_from_slice(before);
                put_negative(nanoseconds, out);
                out.extend_from_slice(behind);
                return;
            }
            self.move_to(nanoseconds);
            within = nanoseconds.wrapping_sub(self.begin).cast_unsigned();
        }
        let mut all = [0; 32];
        let (head, rest) = all.split_at_mut(before.len());
        head.copy_from_slice(before);
        rest[..9].copy_from_slice(&self.text);
        rest[9..18].copy_from_slice(&nine(within as u32));
        rest[18..18 + behind.len()].copy_from_slice(behind);
        let end = out.len() + 18 + before.len() + behind.len();
        out.extend_from_slice(&all);
        out.truncate(end);
    }

    #[cold]
    fn move_to(&mut self, nanoseconds: i64) {
        let second = nanoseconds / GIGA;
        let of_day = (second + self.zone.offset(second)).rem_euclid(86_400) as u32;
        let parts = [two(of_day / 3600), two(of_day / 60 % 60), two(of_day % 60)];
        for (place, pair) in self.text.chunks_exact_mut(3).zip(parts) {
            place[..2].copy_from_slice(&pair);
        }
        self.begin = second * GIGA;
        self.known = true;
    }
}

fn put_negative(nanoseconds: i64, out: &mut Vec<u8>) {
    let magnitude = nanoseconds.unsigned_abs();
    out.push(b'-');
    super::number::unsigned(out, magnitude / GIGA.cast_unsigned());
    out.push(b'.');
    out.extend_from_slice(&nine((magnitude % GIGA.cast_unsigned()) as u32));
}

/// Appends `YYYY-MM-DDTHH:MM:SS.nnnnnnnnnZ`; seconds where the year is out of reach.
pub(crate) fn rfc3339(nanoseconds: i64, out: &mut Vec<u8>) {
    let second = nanoseconds.div_euclid(GIGA);
    let within = nanoseconds.rem_euclid(GIGA) as u32;
    let (year, month, day) = civil(second.div_euclid(86_400));
    let of_day = second.rem_euclid(86_400) as u32;
    super::number::unsigned(out, year.unsigned_abs());
    for (mark, number) in
        [(b'-', month), (b'-', day), (b'T', of_day / 3600), (b':', of_day / 60 % 60), (b':', of_day % 60)]
    {
        out.push(mark);
        out.extend_from_slice(&two(number));
    }
    out.push(b'.');
    out.extend_from_slice(&nine(within));
    out.push(b'Z');
}

/// Year, month, day of a day since 1970-01-01: 400-year cycles that begin in March.
fn civil(day: i64) -> (i64, u32, u32) {
    let shifted = day + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month as u32, (of_year - (153 * from_march + 2) / 5 + 1) as u32)
}

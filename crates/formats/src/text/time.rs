//! Times of day, one conversion a second.

use super::number::{nine, nine_before, two, unsigned};
use super::page::Put;
use jiff::Timestamp;
use jiff::tz::TimeZone;

const GIGA: i64 = 1_000_000_000;
const NANOSECONDS: u64 = GIGA.cast_unsigned();
/// Most bytes before a time, and most behind it.
const AROUND: usize = 8;
/// Bytes of `HH:MM:SS.`.
const TO_SECOND: usize = 9;
/// Bytes of `nnnnnnnnn`.
const FRACTION: usize = 9;

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
    /// First nanosecond of the second that `second` shows.
    begin: i64,
    known: bool,
    /// The text before each time, then `HH:MM:SS.`.
    second: [u8; AROUND + TO_SECOND],
    /// Bytes before the time.
    before: usize,
    /// The text behind each time, and its bytes.
    behind: ([u8; AROUND], usize),
}

impl TimeOfDay {
    /// Times between two texts of at most eight bytes each.
    pub(crate) fn new(zone: &Zone, before: &[u8], behind: &[u8]) -> Self {
        let mut second = [0; AROUND + TO_SECOND];
        second[..before.len()].copy_from_slice(before);
        second[before.len()..before.len() + TO_SECOND].copy_from_slice(b"00:00:00.");
        let mut after = [0; AROUND];
        after[..behind.len()].copy_from_slice(behind);
        let behind = (after, behind.len());
        Self { zone: zone.clone(), begin: 0, known: false, second, before: before.len(), behind }
    }

    /// Appends the time of day; before 1970, seconds: `-S.nnnnnnnnn`.
    #[inline]
    pub(crate) fn put(&mut self, nanoseconds: i64, out: &mut impl Put) {
        let (behind, length) = self.behind;
        let mut within = nanoseconds.wrapping_sub(self.begin).cast_unsigned();
        if !self.known || within >= NANOSECONDS {
            if nanoseconds < 0 {
                out.block(&self.second, self.before);
                put_negative(nanoseconds, out);
                return out.block(&behind, length);
            }
            self.move_to(nanoseconds);
            within = nanoseconds.wrapping_sub(self.begin).cast_unsigned();
        }
        out.block(&self.second, self.before + TO_SECOND);
        out.block(&nine_before(within as u32, b""), FRACTION);
        out.block(&behind, length);
    }

    #[cold]
    fn move_to(&mut self, nanoseconds: i64) {
        let second = nanoseconds / GIGA;
        let of_day = (second + self.zone.offset(second)).rem_euclid(86_400) as u32;
        let parts = [two(of_day / 3600), two(of_day / 60 % 60), two(of_day % 60)];
        for (place, pair) in self.second[self.before..self.before + TO_SECOND].chunks_exact_mut(3).zip(parts) {
            place[..2].copy_from_slice(&pair);
        }
        self.begin = second * GIGA;
        self.known = true;
    }
}

/// Bytes of `[HH:MM:SS.`, of `nnnnnnnnn] (+0.`, and of `nnnnnnnnn) `.
const TO_FRACTION: usize = 10;
const TO_DELTA: usize = 15;
const TO_END: usize = 11;

/// Times of day, each with the time since the one before: `[HH:MM:SS.nnnnnnnnn] (+S.nnnnnnnnn) `.
#[derive(Debug)]
pub(crate) struct Stamp {
    time: TimeOfDay,
    /// The time before.
    pub(crate) previous: Option<i64>,
    /// What stands before the nanoseconds of the second that `time` shows.
    second: [u8; 16],
    /// Nanoseconds within that second, and since the time before, where that was less than one earlier.
    near: (u32, u32),
    /// All of it elsewhere.
    far: Vec<u8>,
}

impl Stamp {
    /// Before the first time.
    pub(crate) fn new(zone: &Zone) -> Self {
        let time = TimeOfDay::new(zone, b"[", b"] (+");
        Self { time, previous: None, second: [0; 16], near: (0, 0), far: Vec::new() }
    }

    /// Goes on to a time; what passed since the one before is, where that was later, what babeltrace2 makes of it.
    #[inline]
    pub(crate) fn go(&mut self, nanoseconds: i64) {
        let since =
            self.previous.replace(nanoseconds).map(|previous| nanoseconds.wrapping_sub(previous).cast_unsigned());
        let within = nanoseconds.wrapping_sub(self.time.begin).cast_unsigned();
        let Some(since) = since.filter(|since| *since < NANOSECONDS && within < NANOSECONDS && self.time.known) else {
            return self.go_far(nanoseconds, since);
        };
        self.far.clear();
        self.near = (within as u32, since as u32);
    }

    /// Appends where it is.
    #[inline]
    pub(crate) fn put(&self, out: &mut impl Put) {
        if !self.far.is_empty() {
            return out.text(&self.far);
        }
        // Digits are joined to what stands behind them in a register: patched into a template they would be in the way of
        // reading it.
        let (within, since) = self.near;
        out.block(&self.second, TO_FRACTION);
        out.block(&nine_before(within, b"] (+0."), TO_DELTA);
        out.block(&nine_before(since, b") "), TO_END);
    }

    #[cold]
    fn go_far(&mut self, nanoseconds: i64, since: Option<u64>) {
        let out = &mut self.far;
        out.clear();
        self.time.put(nanoseconds, out);
        self.second[..TO_FRACTION].copy_from_slice(&self.time.second[..TO_FRACTION]);
        match since {
            Some(since) => {
                unsigned(out, since / NANOSECONDS);
                out.push(b'.');
                out.extend_from_slice(&nine((since % NANOSECONDS) as u32));
            }
            None => out.extend_from_slice(b"?.?????????"),
        }
        out.extend_from_slice(b") ");
    }
}

fn put_negative(nanoseconds: i64, out: &mut impl Put) {
    out.block(b"-", 1);
    seconds(nanoseconds.unsigned_abs(), out);
}

/// Appends a time of a clock that nothing relates to the time of day: `S.nnnnnnnnn`.
#[cold]
pub(crate) fn put_seconds(nanoseconds: i64, out: &mut impl Put) {
    match u64::try_from(nanoseconds) {
        Ok(magnitude) => seconds(magnitude, out),
        Err(_) => put_negative(nanoseconds, out),
    }
}

fn seconds(magnitude: u64, out: &mut impl Put) {
    unsigned(out, magnitude / NANOSECONDS);
    out.block(b".", 1);
    out.block(&nine((magnitude % NANOSECONDS) as u32), FRACTION);
}

/// Appends `YYYY-MM-DDTHH:MM:SS.nnnnnnnnnZ`; seconds where the year is out of reach.
pub(crate) fn rfc3339(nanoseconds: i64, out: &mut Vec<u8>) {
    let second = nanoseconds.div_euclid(GIGA);
    let within = nanoseconds.rem_euclid(GIGA) as u32;
    let (year, month, day) = civil(second.div_euclid(86_400));
    let of_day = second.rem_euclid(86_400) as u32;
    unsigned(out, year.unsigned_abs());
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

//! Formats times of day. The conversion from seconds is done once for each second.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use lastwords_bytes::low_u32;
use lastwords_trace::text::number::{nine, nine_before, two, unsigned};
use lastwords_trace::text::page::Put;
use lastwords_trace::text::{FRACTION, put_seconds};

const GIGA: i64 = 1_000_000_000;
const NANOSECONDS: u64 = GIGA.cast_unsigned();
/// Maximum number of bytes of the text before a time.
const MAX_BEFORE: usize = 8;
/// Maximum number of bytes of the text after a time.
const MAX_BEHIND: usize = 7;
/// Length of `HH:MM:SS.`.
const TO_SECOND: usize = 9;

/// How times are shown: as times of day in a time zone, or as the time before a moment.
#[derive(Debug, Clone)]
pub struct Zone {
    zone: TimeZone,
    /// The moment, in nanoseconds since the epoch.
    end: Option<i64>,
}

impl Default for Zone {
    fn default() -> Self {
        Self::utc()
    }
}

impl Zone {
    /// Returns the time zone of the machine: `TZ`, or else /etc/localtime, or else UTC.
    #[must_use]
    pub fn local() -> Self {
        Self { zone: TimeZone::try_system().unwrap_or(TimeZone::UTC), end: None }
    }

    /// Returns UTC.
    #[must_use]
    pub fn utc() -> Self {
        Self { zone: TimeZone::UTC, end: None }
    }

    /// Returns the same with times as seconds before a moment, in nanoseconds since the epoch:
    /// `-0.003200000`.
    #[must_use]
    pub fn before(self, end: i64) -> Self {
        Self { end: Some(end), ..self }
    }

    /// Returns true if times are seconds before a moment.
    pub(super) fn is_relative(&self) -> bool {
        self.end.is_some()
    }

    /// Returns the offset from UTC at a moment, in seconds.
    fn offset(&self, second: i64) -> i64 {
        Timestamp::from_second(second).map_or(0, |t| i64::from(self.zone.to_offset(t).seconds()))
    }
}

/// Writes times of day: `HH:MM:SS.nnnnnnnnn`.
#[derive(Debug)]
pub struct TimeOfDay {
    zone: Zone,
    /// First nanosecond of the second in `second`.
    begin: i64,
    known: bool,
    /// The text before each time, then `HH:MM:SS.`.
    second: [u8; MAX_BEFORE + TO_SECOND],
    /// Length of the text before the time.
    before: usize,
    /// The text after each time, and its length.
    behind: ([u8; MAX_BEHIND], usize),
}

impl TimeOfDay {
    /// Sets the texts before each time, of at most eight bytes, and after it, of at most seven
    /// bytes.
    #[must_use]
    pub fn new(zone: &Zone, before: &[u8], behind: &[u8]) -> Self {
        let mut second = [0; MAX_BEFORE + TO_SECOND];
        second
            .iter_mut()
            .zip(before.iter().chain(b"00:00:00."))
            .for_each(|(place, byte)| *place = *byte);
        let mut after = [0; MAX_BEHIND];
        after.iter_mut().zip(behind).for_each(|(place, byte)| *place = *byte);
        let behind = (after, behind.len());
        Self { zone: zone.clone(), begin: 0, known: false, second, before: before.len(), behind }
    }

    /// Returns true if times are seconds before a moment, whatever their clock's origin.
    pub(crate) fn is_relative(&self) -> bool {
        self.zone.is_relative()
    }

    /// Appends the time of day. A time before 1970 is appended as seconds: `-S.nnnnnnnnn`.
    #[inline]
    pub fn put(&mut self, nanoseconds: i64, out: &mut impl Put) {
        let (behind, length) = self.behind;
        let mut within = nanoseconds.wrapping_sub(self.begin).cast_unsigned();
        if !self.known || within >= NANOSECONDS {
            // The time of no second is cached then.
            if let Some(since) = self
                .zone
                .end
                .map(|end| nanoseconds.saturating_sub(end))
                .or((nanoseconds < 0).then_some(nanoseconds))
            {
                out.block(&self.second, self.before);
                put_seconds(since, out);
                return out.block(&behind, length);
            }
            self.move_to(nanoseconds);
            within = nanoseconds.wrapping_sub(self.begin).cast_unsigned();
        }
        out.block(&self.second, self.before.wrapping_add(TO_SECOND));
        out.block(&nine_before(low_u32(within), &behind), FRACTION.wrapping_add(length));
    }

    #[cold]
    fn move_to(&mut self, nanoseconds: i64) {
        let second = nanoseconds / GIGA;
        let of_day = low_u32(
            second.wrapping_add(self.zone.offset(second)).rem_euclid(86_400).cast_unsigned(),
        );
        let parts = [two(of_day / 3600), two(of_day / 60 % 60), two(of_day % 60)];
        let time = self.second.iter_mut().skip(self.before).take(TO_SECOND);
        // Two digits are replaced, and the mark after them is kept.
        let digits = parts.into_iter().flat_map(|[tens, ones]| [Some(tens), Some(ones), None]);
        for (place, digit) in time.zip(digits) {
            *place = digit.unwrap_or(*place);
        }
        self.begin = second.wrapping_mul(GIGA);
        self.known = true;
    }
}

/// Lengths of `[HH:MM:SS.`, of `nnnnnnnnn] (+0.`, and of `nnnnnnnnn) `.
const TO_FRACTION: usize = 10;
const TO_DELTA: usize = 15;
const TO_END: usize = 11;

/// Formats times of day, each with the time since the previous event: `[HH:MM:SS.nnnnnnnnn]
/// (+S.nnnnnnnnn) `.
#[derive(Debug)]
pub(crate) struct Stamp {
    time: TimeOfDay,
    /// Time of the previous event.
    pub(crate) previous: Option<i64>,
    /// The text before the nanoseconds, for the current second of `time`.
    second: [u8; 16],
    /// Nanoseconds within that second, and since the previous event, if both are less than a
    /// second.
    near: (u32, u32),
    /// The whole text in other cases, or empty.
    whole: Vec<u8>,
}

impl Stamp {
    /// Returns a stamp that has no previous time.
    pub(crate) fn new(zone: &Zone) -> Self {
        let time = TimeOfDay::new(zone, b"[", b"] (+");
        Self { time, previous: None, second: [0; 16], near: (0, 0), whole: Vec::new() }
    }

    /// Sets the time. If the previous time was later, the difference wraps around, as in
    /// babeltrace2.
    #[inline]
    pub(crate) fn set(&mut self, nanoseconds: i64) {
        let since = self
            .previous
            .replace(nanoseconds)
            .map(|previous| nanoseconds.wrapping_sub(previous).cast_unsigned());
        let within = nanoseconds.wrapping_sub(self.time.begin).cast_unsigned();
        let Some(since) =
            since.filter(|since| *since < NANOSECONDS && within < NANOSECONDS && self.time.known)
        else {
            return self.set_whole(nanoseconds, since);
        };
        self.whole.clear();
        self.near = (low_u32(within), low_u32(since));
    }

    /// Appends the time.
    #[inline]
    pub(crate) fn put(&self, out: &mut impl Put) {
        if !self.whole.is_empty() {
            return out.text(&self.whole);
        }
        // The digits and the text after them are joined in a register. Digits written into a
        // template would delay reading the template.
        let (within, since) = self.near;
        out.block(&self.second, TO_FRACTION);
        out.block(&nine_before(within, b"] (+0."), TO_DELTA);
        out.block(&nine_before(since, b") "), TO_END);
    }

    #[cold]
    fn set_whole(&mut self, nanoseconds: i64, since: Option<u64>) {
        let out = &mut self.whole;
        out.clear();
        self.time.put(nanoseconds, out);
        let time = self.time.second.iter().take(TO_FRACTION);
        self.second.iter_mut().zip(time).for_each(|(place, byte)| *place = *byte);
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

/// Formats times as in RFC 3339. The text up to the point is kept for the next time in the same
/// second.
#[derive(Debug, Default)]
pub(crate) struct Rfc3339 {
    second: Option<i64>,
    text: Vec<u8>,
}

impl Rfc3339 {
    /// Appends `YYYY-MM-DDTHH:MM:SS.nnnnnnnnnZ`.
    pub(crate) fn put(&mut self, nanoseconds: i64, out: &mut Vec<u8>) {
        let second = nanoseconds.div_euclid(GIGA);
        if self.second != Some(second) {
            self.second = Some(second);
            self.text.clear();
            up_to_point(second, &mut self.text);
        }
        out.extend_from_slice(&self.text);
        out.extend_from_slice(&nine(low_u32(nanoseconds.rem_euclid(GIGA).cast_unsigned())));
        out.push(b'Z');
    }
}

/// Appends `YYYY-MM-DDTHH:MM:SS.`. jiff has a date for every time in 64 bits of nanoseconds.
fn up_to_point(second: i64, out: &mut Vec<u8>) {
    let time = Timestamp::from_second(second).unwrap_or_default();
    out.extend_from_slice(time.strftime("%FT%T.").to_string().as_bytes());
}

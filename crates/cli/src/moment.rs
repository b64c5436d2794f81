//! Moments on the command line: `--since`, `--until`.

use jiff::civil::{DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use std::str::FromStr;

const GIGA: i64 = 1_000_000_000;

/// A moment as it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    /// Nanoseconds since the epoch.
    At(i64),
    /// A time of day, nanoseconds since midnight: of the day of the newest event.
    TimeOfDay(i64),
    /// Nanoseconds before the newest event.
    BeforeEnd(i64),
}

impl Moment {
    /// It is counted from the newest event.
    pub(crate) fn needs_end(self) -> bool {
        !matches!(self, Self::At(_))
    }

    /// Nanoseconds since the epoch; `end` is the time of the newest event.
    pub(crate) fn resolve(self, end: i64) -> i64 {
        match self {
            Self::At(at) => at,
            Self::BeforeEnd(before) => end.saturating_sub(before),
            Self::TimeOfDay(of_day) => midnight(end).saturating_add(of_day),
        }
    }
}

/// The begin of the day of a time, in the machine's zone.
fn midnight(at: i64) -> i64 {
    let zoned = |at| Some(Timestamp::from_nanosecond(i128::from(at)).ok()?.to_zoned(zone()));
    let begin = |at: Zoned| at.start_of_day().ok();
    zoned(at).and_then(begin).and_then(|z| nanoseconds(z.timestamp())).unwrap_or(0)
}

fn zone() -> TimeZone {
    TimeZone::try_system().unwrap_or(TimeZone::UTC)
}

fn nanoseconds(at: Timestamp) -> Option<i64> {
    i64::try_from(at.as_nanosecond()).ok()
}

impl FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse(text).ok_or_else(|| {
            "not a moment: give 2026-11-21T09:08:31.5Z, \"2026-11-21 09:08:31\", a time of day 09:08:31.5, seconds since \
             the epoch @1795252111.5, or -2s (500ms, 3min, 1h) before the newest event"
                .to_owned()
        })
    }
}

fn parse(text: &str) -> Option<Moment> {
    let text = text.trim();
    if let Some(seconds) = text.strip_prefix('@') {
        return scaled(seconds, GIGA).map(Moment::At);
    }
    if let Some(before) = text.strip_prefix('-') {
        return duration(before).map(Moment::BeforeEnd);
    }
    if let Ok(at) = text.parse::<Timestamp>() {
        return nanoseconds(at).map(Moment::At);
    }
    // A date and time reads as a time of day, too: it comes first.
    if let Ok(local) = text.parse::<DateTime>() {
        return nanoseconds(local.to_zoned(zone()).ok()?.timestamp()).map(Moment::At);
    }
    let of_day: Time = text.parse().ok()?;
    i64::try_from(of_day.duration_since(Time::midnight()).as_nanos()).ok().map(Moment::TimeOfDay)
}

fn duration(text: &str) -> Option<i64> {
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let unit = match unit {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" | "" => GIGA,
        "m" | "min" => 60 * GIGA,
        "h" => 3600 * GIGA,
        _ => return None,
    };
    scaled(number, unit)
}

/// A decimal number times a unit, exact to the unit's last place.
fn scaled(number: &str, unit: i64) -> Option<i64> {
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !(part.is_empty() || digits(part)) || part.len() > 18 {
        return None;
    }
    let whole: i64 = whole.parse().ok()?;
    let places = 10i128.checked_pow(u32::try_from(part.len()).ok()?)?;
    let part: i128 = if part.is_empty() { 0 } else { part.parse().ok()? };
    let part = i64::try_from(part * i128::from(unit) / places).ok()?;
    whole.checked_mul(unit)?.checked_add(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Option<Moment> {
        parse(text)
    }

    #[test]
    fn every_form() {
        assert_eq!(at("1970-01-01T00:00:01.5Z"), Some(Moment::At(1_500_000_000)));
        assert_eq!(at("@1.000000001"), Some(Moment::At(1_000_000_001)));
        assert_eq!(at("-2s"), Some(Moment::BeforeEnd(2 * GIGA)));
        assert_eq!(at("-1.5"), Some(Moment::BeforeEnd(1_500_000_000)));
        assert_eq!(at("-500ms"), Some(Moment::BeforeEnd(500_000_000)));
        assert_eq!(at("-3min"), Some(Moment::BeforeEnd(180 * GIGA)));
        assert_eq!(at("00:00:01.25"), Some(Moment::TimeOfDay(1_250_000_000)));
        assert!(matches!(at("2026-11-21 09:08:31"), Some(Moment::At(_))));
    }

    #[test]
    fn what_is_no_moment_is_refused() {
        for text in ["", "-", "@", "@x", "-1x", "-s", "1.2.3", "yesterday", "@99999999999999999999", "@1.-5"] {
            assert_eq!(at(text), None, "{text}");
        }
    }

    #[test]
    fn counted_from_the_end() {
        assert_eq!(Moment::BeforeEnd(5).resolve(100), 95);
        assert_eq!(Moment::At(7).resolve(100), 7);
    }
}

//! Parses moments of the command line: `--since` and `--until`.

use crate::say;
use crate::table::plain;
use jiff::civil::{DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use std::str::FromStr;
use std::sync::OnceLock;
use std::time::Duration;

const GIGA: i64 = 1_000_000_000;

/// A moment as the user wrote it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    /// Nanoseconds since the epoch.
    At(i64),
    /// Seconds as a trace prints them, in nanoseconds. In a kernel's trace they are readings of its
    /// clock, otherwise they count since the epoch.
    Printed(i64),
    /// A whole number: seconds, as [`Moment::Printed`], or ticks of a clock that counts no
    /// nanoseconds.
    Whole(u64),
    /// A time on the day of the newest event, in nanoseconds since midnight.
    TimeOfDay(i64),
    /// A time before the newest event, in nanoseconds.
    BeforeEnd(i64),
}

impl Moment {
    /// Returns true if the moment depends on the newest event.
    pub(crate) fn needs_end(self) -> bool {
        matches!(self, Self::TimeOfDay(_) | Self::BeforeEnd(_))
    }

    /// Returns true if the moment is a date or a time of day.
    pub(crate) fn is_date(self) -> bool {
        matches!(self, Self::At(_) | Self::TimeOfDay(_))
    }

    /// Returns true if the moment in nanoseconds has more than 64 bits.
    pub(crate) fn is_out_of_range(self) -> bool {
        matches!(self, Self::Whole(seconds) if seconds > (i64::MAX / GIGA).unsigned_abs())
    }

    /// Returns the moment in nanoseconds since the epoch. `end` is the time of the newest event.
    pub(crate) fn resolve(self, end: i64) -> i64 {
        match self {
            Self::At(at) | Self::Printed(at) => at,
            Self::Whole(seconds) => {
                i64::try_from(seconds).map_or(i64::MAX, |seconds| seconds.saturating_mul(GIGA))
            }
            Self::BeforeEnd(before) => end.saturating_sub(before),
            Self::TimeOfDay(of_day) => midnight(end).saturating_add(of_day),
        }
    }
}

/// Returns the beginning of the day of a time, in the chosen time zone.
fn midnight(at: i64) -> i64 {
    let zoned = |at| Some(Timestamp::from_nanosecond(i128::from(at)).ok()?.to_zoned(zone()));
    let begin = |at: Zoned| at.start_of_day().ok();
    zoned(at).and_then(begin).and_then(|z| nanoseconds(z.timestamp())).unwrap_or(0)
}

/// The time zone of dates and times of day. If it is not set, the system's zone is used.
static ZONE: OnceLock<TimeZone> = OnceLock::new();

/// Reads moments as UTC, as `--utc` prints times. This must be called before the command line is
/// parsed.
pub(crate) fn read_as_utc() {
    // No other code sets the zone, so this cannot fail.
    let _ = ZONE.set(TimeZone::UTC);
}

/// Prints a note if the environment names a time zone that this machine does not know: times are
/// UTC then.
pub(crate) fn note_unknown_zone() {
    let named = std::env::var("TZ").unwrap_or_default();
    // UTC needs no zone data.
    let is_utc = named.is_empty() || ["UTC", "Etc/UTC"].contains(&named.as_str());
    if !is_utc && ZONE.get().is_none() && TimeZone::try_system().is_err() {
        let named = plain(&named);
        say::note(format_args!("TZ: {named} is no time zone of this machine: times are UTC"));
    }
}

fn zone() -> TimeZone {
    ZONE.get().cloned().unwrap_or_else(|| TimeZone::try_system().unwrap_or(TimeZone::UTC))
}

fn nanoseconds(at: Timestamp) -> Option<i64> {
    i64::try_from(at.as_nanosecond()).ok()
}

/// The reason why a text is not a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wrong {
    /// The text has none of the forms.
    Form,
    /// The moment is outside the range of times.
    Range,
}

impl FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse(text).map_err(|wrong| match wrong {
            Wrong::Form => "not a moment: give 2026-11-21T09:08:31.5Z, \"2026-11-21 09:08:31\", a time of day 09:08:31.5, \
                            seconds as a trace prints them 17.6 (or @17.6), or -2s (500ms, 3min, 1h) before the newest event"
                .to_owned(),
            Wrong::Range => out_of_range(),
        })
    }
}

/// The message for a moment outside the range of times.
pub(crate) fn out_of_range() -> String {
    let most = i64::MAX / GIGA;
    format!(
        "out of range: times are nanoseconds of 64 bits, at most {most} s from the epoch or before the newest event"
    )
}

fn parse(text: &str) -> Result<Moment, Wrong> {
    let text = text.trim();
    let (number, is_marked) = text.strip_prefix('@').map_or((text, false), |number| (number, true));
    if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) {
        return number.parse().map(Moment::Whole).map_err(|_| Wrong::Range);
    }
    // A number alone is seconds as they are printed, never a time of day.
    match scaled(number, GIGA) {
        Err(Wrong::Form) if !is_marked => {}
        seconds => return seconds.map(Moment::Printed),
    }
    if let Some(before) = text.strip_prefix('-') {
        return duration(before).map(Moment::BeforeEnd);
    }
    if let Ok(at) = text.parse::<Timestamp>() {
        return nanoseconds(at).map(Moment::At).ok_or(Wrong::Range);
    }
    // A date with a time also parses as a time of day, so this form comes first.
    if let Ok(local) = text.parse::<DateTime>() {
        let at = local.to_zoned(zone()).map_err(|_| Wrong::Range)?;
        return nanoseconds(at.timestamp()).map(Moment::At).ok_or(Wrong::Range);
    }
    let of_day: Time = text.parse().map_err(|_| Wrong::Form)?;
    i64::try_from(of_day.duration_since(Time::midnight()).as_nanos())
        .map(Moment::TimeOfDay)
        .map_err(|_| Wrong::Range)
}

/// Parses a length of time: `10s`, `1.5ms`, `2min`.
pub(crate) fn length(text: &str) -> Result<Duration, String> {
    let nanos = duration(text).map_err(|wrong| match wrong {
        Wrong::Form => {
            "expected a number and a unit (ns, us, ms, s, min, h), such as 10s or 1.5ms".to_owned()
        }
        Wrong::Range => "it is too long".to_owned(),
    })?;
    Ok(Duration::from_nanos(nanos.unsigned_abs()))
}

/// Returns a length of time as [`length`] reads it.
pub(crate) fn length_text(length: Duration) -> String {
    let nanos = length.as_nanos();
    let units = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1000)];
    let (unit, size) =
        units.into_iter().find(|(_, size)| nanos.is_multiple_of(*size)).unwrap_or(("ns", 1));
    format!("{}{unit}", nanos / size)
}

fn duration(text: &str) -> Result<i64, Wrong> {
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let unit = match unit {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" | "" => GIGA,
        "m" | "min" => 60 * GIGA,
        "h" => 3600 * GIGA,
        _ => return Err(Wrong::Form),
    };
    scaled(number, unit)
}

/// Multiplies a decimal number by a unit, exact to a nanosecond.
fn scaled(number: &str, unit: i64) -> Result<i64, Wrong> {
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !(part.is_empty() || digits(part)) || part.len() > 18 {
        return Err(Wrong::Form);
    }
    // The text has only digits here, so a number that does not parse is too large.
    let whole: i64 = whole.parse().map_err(|_| Wrong::Range)?;
    let places = 10i128.pow(part.len() as u32);
    let part: i128 = part.parse().unwrap_or(0);
    let part = i64::try_from(part * i128::from(unit) / places).map_err(|_| Wrong::Range)?;
    whole.checked_mul(unit).and_then(|whole| whole.checked_add(part)).ok_or(Wrong::Range)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Option<Moment> {
        parse(text).ok()
    }

    #[test]
    fn lengths_are_read_as_they_are_written() {
        for text in ["10s", "1500us", "7ns", "250ms", "0s", "3600s"] {
            assert_eq!(length_text(length(text).expect(text)), text);
        }
        assert_eq!(length("1.5ms"), Ok(Duration::from_micros(1500)));
        assert_eq!(length("2min"), Ok(Duration::from_secs(120)));
        assert!(length("s").is_err() && length("-1s").is_err() && length("99999999999h").is_err());
    }

    #[test]
    fn what_is_too_far_is_told_from_what_is_none() {
        for text in
            ["@99999999999.5", "-9999999999h", "@99999999999999999999", "9999-01-01T00:00:00Z"]
        {
            assert_eq!(parse(text), Err(Wrong::Range), "{text}");
        }
        for text in ["@", "@1.-5", "-1x", "soon"] {
            assert_eq!(parse(text), Err(Wrong::Form), "{text}");
        }
    }

    #[test]
    fn every_form() {
        assert_eq!(at("1970-01-01T00:00:01.5Z"), Some(Moment::At(1_500_000_000)));
        assert_eq!(at("@1.000000001"), Some(Moment::Printed(1_000_000_001)));
        assert_eq!(at("17.6"), Some(Moment::Printed(17_600_000_000)));
        assert_eq!([at("10"), at("@10")], [Some(Moment::Whole(10)); 2]);
        assert_eq!(Moment::Whole(10).resolve(0), 10 * GIGA);
        assert_eq!(
            ["9223372036", "9223372037"].map(|text| at(text).map(Moment::is_out_of_range)),
            [Some(false), Some(true)]
        );
        assert_eq!(at("-2s"), Some(Moment::BeforeEnd(2 * GIGA)));
        assert_eq!(at("-1.5"), Some(Moment::BeforeEnd(1_500_000_000)));
        assert_eq!(at("-500ms"), Some(Moment::BeforeEnd(500_000_000)));
        assert_eq!(at("-3min"), Some(Moment::BeforeEnd(180 * GIGA)));
        assert_eq!(at("00:00:01.25"), Some(Moment::TimeOfDay(1_250_000_000)));
        assert!(matches!(at("2026-11-21 09:08:31"), Some(Moment::At(_))));
    }

    #[test]
    fn what_is_no_moment_is_refused() {
        for text in [
            "",
            "-",
            "@",
            "@x",
            "-1x",
            "-s",
            "1.2.3",
            "yesterday",
            "@99999999999999999999",
            "@1.-5",
        ] {
            assert_eq!(at(text), None, "{text}");
        }
    }

    #[test]
    fn counted_from_the_end() {
        assert_eq!(Moment::BeforeEnd(5).resolve(100), 95);
        assert_eq!(Moment::At(7).resolve(100), 7);
    }
}

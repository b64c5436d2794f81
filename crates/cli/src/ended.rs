//! Formats times and endings of sessions for people.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use lastwords::{Ended, Ending};
pub(crate) use lastwords_open::why::signal_name;

/// Returns one line: `ended 2026-11-23 23:39:32 by process 12: SIGSEGV`.
pub(crate) fn line(ended: &Ended) -> String {
    format!("{}: {}", seen_at(ended, &time(ended.at)), how(ended))
}

/// Returns when a session ended, for readers elsewhere: `last seen alive 2026-11-23 23:39:32 UTC`.
pub(crate) fn when_in_utc(ended: &Ended) -> String {
    seen_at(ended, &utc(ended.at))
}

/// Formats a reading of a clock, in nanoseconds, as seconds, as `report` prints it.
pub(crate) fn seconds(time: impl Into<i128>) -> String {
    let microseconds = time.into().div_euclid(1000);
    format!("{}.{:06}", microseconds.div_euclid(1_000_000), microseconds.rem_euclid(1_000_000))
}

fn seen_at(ended: &Ended, at: &str) -> String {
    let by = if ended.pid == 0 { String::new() } else { format!(" by process {}", ended.pid) };
    let seen = if ended.how == Ending::Killed { "last seen alive" } else { "ended" };
    format!("{seen} {at}{by}")
}

/// Returns how a session ended in one or two words.
pub(crate) fn how(ended: &Ended) -> String {
    match ended.how {
        Ending::Signal(Some(number)) => signal_name(number),
        Ending::Signal(None) => "unknown signal".to_owned(),
        Ending::Exit(Some(status)) | Ending::Closed(Some(status)) if status > 0 => {
            format!("exit {status}")
        }
        how => how.name().to_owned(),
    }
}

/// Formats nanoseconds since the epoch as date and time of day in the system's time zone.
pub(crate) fn time(nanoseconds: u64) -> String {
    formatted(nanoseconds, "%F %T")
}

/// Formats nanoseconds since the epoch as the time of day in milliseconds.
pub(crate) fn precise_time(nanoseconds: i64) -> String {
    formatted(u64::try_from(nanoseconds).unwrap_or(0), "%H:%M:%S%.3f")
}

/// Formats nanoseconds since the epoch as `--since` takes them.
pub(crate) fn date_and_time(nanoseconds: i64) -> String {
    formatted(u64::try_from(nanoseconds).unwrap_or(0), "%F %T%.6f")
}

pub(crate) fn short_time(nanoseconds: u64) -> String {
    formatted(nanoseconds, "%m-%d %H:%M:%S")
}

/// Formats nanoseconds since the epoch as date and time of day in UTC, and says so.
pub(crate) fn utc(nanoseconds: u64) -> String {
    in_zone(nanoseconds, "%F %T UTC", TimeZone::UTC)
}

/// Formats nanoseconds since the epoch as date and time of day in milliseconds, in UTC.
pub(crate) fn precise_utc(nanoseconds: u64) -> String {
    in_zone(nanoseconds, "%F %T%.3f UTC", TimeZone::UTC)
}

fn formatted(nanoseconds: u64, format: &str) -> String {
    in_zone(nanoseconds, format, TimeZone::try_system().unwrap_or(TimeZone::UTC))
}

fn in_zone(nanoseconds: u64, format: &str, zone: TimeZone) -> String {
    match Timestamp::from_nanosecond(i128::from(nanoseconds)) {
        Ok(at) => at.to_zoned(zone).strftime(format).to_string(),
        Err(_) => "-".into(),
    }
}

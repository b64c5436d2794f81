//! Prints a reading as text, and formats its numbers for the screen too.

use super::reading::{EventRow, LossRow, Reading, RingRow, Sort, State};
use crate::ended;
use crate::metrics;
use crate::progress::human_bytes;
use crate::table::{Table, plain};
use lastwords_open::duration;
use lastwords_render::evidence::SpanReport;

/// Most open spans in a table.
const MOST_SPANS: usize = 20;

/// The head of the table of events.
pub(super) const EVENTS: [&str; 6] = ["EVENTS/S", "BYTES/S", "EVENTS", "BYTES", "CHANNEL", "EVENT"];
/// The head of the table of rings.
pub(super) const RINGS: [&str; 8] =
    ["CHANNEL", "CPU", "MODE", "SIZE", "FULL", "BYTES/S", "OLDEST", "HOLDS"];
/// The head of the table of open spans.
pub(super) const SPANS: [&str; 4] = ["OPEN FOR", "THREAD", "ID", "SPAN"];

/// Returns a reading as tables.
pub(super) fn table(reading: &Reading, sort: Sort) -> String {
    let mut rows = reading.events.clone();
    sort.sort(&mut rows);
    let mut events = Table::new(EVENTS);
    rows.iter().for_each(|row| events.row(event(row)));
    let mut rings = Table::new(RINGS);
    used(&reading.rings).for_each(|row| rings.row(ring(row)));
    let mut text = format!("{}\n{}\n\n", head(reading), sums(reading));
    match events.is_empty() {
        true => text.push_str("no events\n"),
        false => text.push_str(&events.render()),
    }
    if !rings.is_empty() {
        text.push_str(&format!("\n{}", rings.render()));
    }
    match reading.spans().len() {
        0 if reading.open_spans.is_none() => {
            text.push_str("\nopen spans: not known, there is no table of them\n");
        }
        0 => {}
        count => {
            let mut spans = Table::new(SPANS);
            reading.spans().iter().take(MOST_SPANS).for_each(|row| spans.row(span(reading, row)));
            let more = count.saturating_sub(MOST_SPANS);
            let more = if more > 0 { format!("... and {more} more\n") } else { String::new() };
            text.push_str(&format!("\n{}{more}", spans.render()));
        }
    }
    if !reading.metrics.is_empty() {
        text.push_str(&format!("\n{}", metrics::text(&reading.metrics, 0)));
    }
    text.push('\n');
    losses(reading).iter().for_each(|line| text.push_str(&format!("{line}\n")));
    text
}

/// Returns the rings that hold anything, or that have lost events.
pub(super) fn used(rings: &[RingRow]) -> impl Iterator<Item = &RingRow> {
    rings.iter().filter(|ring| ring.held > 0 || ring.written > Some(0) || ring.overwritten > 0)
}

/// Returns what the session is, in a line.
pub(super) fn head(reading: &Reading) -> String {
    let state = match (reading.state, &reading.ended, &reading.unknown_end) {
        (State::Live, ..) if reading.recording => "live".to_owned(),
        (State::Live, ..) => "live, recording is stopped".to_owned(),
        (State::Ended, Some(ended), _) => ended::line(&ended.0),
        (State::Ended, None, Some(why)) => format!("end unknown: {}", plain(why)),
        (State::Ended, None, None) => "ended".to_owned(),
        (State::Destroyed, ..) => "removed".to_owned(),
    };
    let which = if reading.state == State::Live { "in" } else { "before its newest event, in" };
    format!("{}: {state}; {which} {}", reading.session, duration(reading.interval.as_secs_f64()))
}

/// Returns the sums over all events, in a line.
pub(super) fn sums(reading: &Reading) -> String {
    let [interval, total] = reading.sum();
    let per_second = |count: u64| super::reading::rate(count, reading.interval);
    let at_least = |is_exact: bool| if is_exact { "" } else { "at least " };
    format!(
        "{}{} events/s, {}/s; {}{} events, {} in all",
        at_least(reading.exact),
        number(per_second(interval.events)),
        human_bytes(per_second(interval.bytes) as u64),
        at_least(reading.exact_total),
        total.events,
        human_bytes(total.bytes),
    )
}

/// Returns the cells of an event.
pub(super) fn event(row: &EventRow) -> [String; 6] {
    [
        number(row.events_per_second),
        number(row.bytes_per_second),
        row.total.events.to_string(),
        row.total.bytes.to_string(),
        plain(&row.channel),
        plain(&row.event),
    ]
}

/// Returns the cells of a ring.
pub(super) fn ring(row: &RingRow) -> [String; 8] {
    let time = |seconds: Option<f64>| seconds.map_or_else(|| "-".to_owned(), duration);
    [
        plain(&row.channel),
        row.cpu.map_or_else(|| "any".to_owned(), |cpu| cpu.to_string()),
        row.mode.to_owned(),
        human_bytes(row.size),
        format!("{} %", percent(row)),
        row.bytes_per_second.map_or_else(|| "-".to_owned(), number),
        time(row.oldest_seconds),
        time(row.holds_seconds),
    ]
}

/// Returns how full a ring is. Only a ring that has overwritten events is 100 % full.
pub(super) fn percent(row: &RingRow) -> u64 {
    // A ring in overwrite mode empties its oldest sub-buffer before it writes the next.
    if row.overwritten > 0 {
        return 100;
    }
    let percent = u128::from(row.held) * 100 / u128::from(row.size.max(1));
    u64::try_from(percent).unwrap_or(100).min(100)
}

/// Returns the cells of an open span.
pub(super) fn span(reading: &Reading, row: &SpanReport) -> [String; 4] {
    let fields =
        if row.fields.is_empty() { String::new() } else { format!("{{{}}}", plain(&row.fields)) };
    let thread = match (row.threads, row.entered_tid) {
        (0, _) | (_, None) => format!("{}", row.tid),
        (_, Some(entered)) => format!("{entered} in it"),
    };
    [
        duration(reading.age(row)),
        thread,
        row.id.to_string(),
        format!("{}::{}{fields}", plain(&row.target), plain(&row.name)),
    ]
}

/// Returns a line for each loss, or one that says that nothing was lost.
pub(super) fn losses(reading: &Reading) -> Vec<String> {
    let line = |row: &LossRow| {
        let new = if row.interval > 0 {
            format!(" ({} of them in this interval)", row.interval)
        } else {
            String::new()
        };
        let channel = row
            .channel
            .as_ref()
            .map_or_else(String::new, |channel| format!("channel {}: ", plain(channel)));
        format!("lost: {channel}{} {}{new}, {}", row.count, row.what, row.cause)
    };
    let mut lines: Vec<String> = reading.losses.iter().map(line).collect();
    if lines.is_empty() {
        lines.push("nothing lost".to_owned());
    }
    if reading.uncounted_bytes > 0 {
        lines.push(format!(
            "not counted: {}, which were overwritten, cleared or consumed before they could be counted",
            human_bytes(reading.uncounted_bytes)
        ));
    }
    lines
}

/// Formats a rate: with a decimal below 100.
pub(super) fn number(rate: f64) -> String {
    if rate > 0.0 && rate < 99.95 { format!("{rate:.1}") } else { format!("{rate:.0}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::top::reading::event_rows;
    use lastwords_open::Count;
    use std::time::Duration;

    /// Names that differ in control characters only are two names as data, and cannot control a
    /// terminal.
    #[test]
    fn data_has_exact_names() {
        let names = ["a\u{1}b", "a\u{1b}b"];
        let count = [Count { events: 1, bytes: 8 }; 2];
        let totals = names.map(|name| (("main".to_owned(), name.to_owned()), count)).into();
        let rows = event_rows(&totals, Duration::from_secs(1));
        assert_eq!([&rows[0].event, &rows[1].event], names);
        assert_eq!(event(&rows[1])[5], "a\\u{1b}b");
    }
}

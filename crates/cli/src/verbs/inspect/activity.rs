//! Prints how many events of each name a trace has, and when.

use crate::ended;
use crate::table::Table;
use lastwords_open::duration;
use lastwords_open::inspect::{Activity, TICKS};
use lastwords_render::missing::count;
use std::collections::BTreeSet;
use std::io::{self, Write};

/// The number of rows of a table that are printed without `--verbose`.
pub(super) const ROWS: usize = 20;

/// Writes the span of the events, their number and their rate. `indent` precedes each line.
pub(super) fn write_head(
    activity: Option<&Activity>,
    indent: &str,
    out: &mut dyn Write,
) -> io::Result<()> {
    let Some(activity) = activity else {
        return writeln!(out, "{indent}events     not known: nothing describes them");
    };
    if let (Some(begin), Some(end)) = (activity.begin_ns, activity.end_ns) {
        writeln!(out, "{indent}time       {}", times(activity, begin, end))?;
    }
    let names = activity.events.iter().filter(|named| named.count > 0).map(|named| &named.name);
    let names = names.collect::<BTreeSet<_>>().len();
    let of = if names > 1 { format!(" of {names} names") } else { String::new() };
    let selected = if activity.selected {
        ", selected by the options; losses and rings are those of all"
    } else {
        ""
    };
    writeln!(out, "{indent}events     {}{of}{selected}", activity.total)?;
    let Some(highest) = activity.histogram.iter().max().filter(|_| activity.histogram.len() > 1)
    else {
        return Ok(());
    };
    writeln!(out, "{indent}rate       {}", sparkline(&activity.histogram))?;
    let (column, highest) = (length(activity, activity.column_ns), count(*highest, "event"));
    writeln!(out, "{indent}           a column is {column}; the highest has {highest}")
}

/// Writes a row for each name, the most frequent first: without `all` at most [`ROWS`].
pub(super) fn write_events(
    activity: &Activity,
    all: bool,
    indent: usize,
    out: &mut dyn Write,
) -> io::Result<()> {
    let events = &activity.events;
    let has_channels = events
        .first()
        .is_some_and(|first| events.iter().any(|named| named.channel != first.channel));
    let mut table = if has_channels {
        Table::new(["COUNT", "EVENT", "CHANNEL"])
    } else {
        Table::new(["COUNT", "EVENT"])
    };
    let shown = if all { events.len() } else { ROWS };
    for named in events.iter().take(shown) {
        let channel = has_channels.then(|| named.channel.clone());
        table.row([named.count.to_string(), named.name.clone()].into_iter().chain(channel));
    }
    let mut table = table.indent(indent);
    if !table.is_empty() {
        write!(out, "{}", std::mem::take(&mut table).render())?;
    }
    write_more(events.len(), shown, "name", &" ".repeat(indent), out)
}

/// Writes how many rows of `len` were left out after those that are shown. `what` is the word for
/// one.
pub(super) fn write_more(
    len: usize,
    shown: usize,
    what: &str,
    indent: &str,
    out: &mut dyn Write,
) -> io::Result<()> {
    match len.checked_sub(shown) {
        None | Some(0) => Ok(()),
        Some(more) => writeln!(
            out,
            "{indent}and {}; --verbose lists all",
            count(more as u64, &format!("more {what}"))
        ),
    }
}

/// Formats the time from the first event to the last; none if all are of one moment.
pub(crate) fn span(activity: &Activity) -> Option<String> {
    let (begin, end) = activity.begin_ns.zip(activity.end_ns)?;
    Some(end.abs_diff(begin)).filter(|span| *span > 0).map(|span| length(activity, span))
}

/// Formats a length of time in the unit of the events' clock.
fn length(activity: &Activity, length: u64) -> String {
    if activity.unit == TICKS { count(length, "tick") } else { duration(length as f64 / 1e9) }
}

/// Formats the times of the first and the last event: as dates, or by a clock of a kernel or one
/// that nothing relates to real time, as `report` prints it.
fn times(activity: &Activity, begin: i64, end: i64) -> String {
    let is_of_clock = !activity.since_epoch || activity.offset_ns != 0;
    let unit = if activity.unit == TICKS {
        " in ticks of the clock"
    } else if is_of_clock {
        " s"
    } else {
        ""
    };
    let text = |time: i64| match unit {
        "" => ended::date_and_time(time),
        " s" => ended::seconds(time.saturating_sub(activity.offset_ns)),
        _ => time.to_string(),
    };
    let Some(took) = span(activity) else { return format!("{}{unit} (one moment)", text(begin)) };
    let (first, last) = (text(begin), text(end));
    // The last event has no date if it is that of the first.
    let date = first.split_once(' ').map_or("", |(date, _)| date);
    let last = last.strip_prefix(date).unwrap_or(&last).trim_start();
    format!("{first} to {last}{unit} ({took})")
}

/// Draws numbers as a line of blocks, as high as the numbers are of the greatest one. Zero is a
/// blank.
fn sparkline(numbers: &[u64]) -> String {
    const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let most = u128::from(numbers.iter().copied().max().unwrap_or(0).max(1));
    let height =
        |number: &u64| usize::try_from((u128::from(*number) * 8).div_ceil(most)).unwrap_or(8);
    numbers.iter().map(|number| BLOCKS[height(number)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_the_unit_of_their_clock() {
        let of = |begin: i64, end: i64, unit| Activity {
            selected: false,
            total: 2,
            events: Vec::new(),
            begin_ns: Some(begin),
            end_ns: Some(end),
            since_epoch: false,
            unit,
            column_ns: 1,
            histogram: Vec::new(),
            offset_ns: 0,
        };
        for (begin, end, unit, said) in [
            (5, 5, "ns", "0.000000 s (one moment)"),
            (1_000, 2_001_000, "ns", "0.000001 to 0.002001 s (2.0 ms)"),
            (7, 8, TICKS, "7 to 8 in ticks of the clock (1 tick)"),
            (7, 7, TICKS, "7 in ticks of the clock (one moment)"),
            (
                i64::MIN + 1,
                i64::MAX - 1,
                TICKS,
                "-9223372036854775807 to 9223372036854775806 in ticks of the clock (18446744073709551613 ticks)",
            ),
        ] {
            assert_eq!(times(&of(begin, end, unit), begin, end), said);
        }
        assert_eq!(span(&of(5, 5, "ns")), None);
    }

    #[test]
    fn a_line_of_blocks() {
        assert_eq!(sparkline(&[0, 1, 2, 3, 4, 5, 6, 7, 8]), " ▁▂▃▄▅▆▇█");
        assert_eq!(sparkline(&[1, 0, 1_000_000]), "▁ █");
        assert_eq!(sparkline(&[u64::MAX, u64::MAX / 2]), "█▄");
        assert_eq!(sparkline(&[]), "");
    }
}

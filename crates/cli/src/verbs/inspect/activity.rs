//! Prints how many events of each name a trace has, and when.

use crate::ended;
use crate::table::Table;
use lastwords_open::duration;
use lastwords_open::inspect::Activity;
use std::collections::BTreeSet;
use std::io::{self, Write};

/// The number of rows of a table that are printed without `--verbose`.
pub(super) const ROWS: usize = 20;

/// Writes the span of the events, their number and their rate. `indent` precedes each line.
pub(super) fn write_head(activity: Option<&Activity>, indent: &str, out: &mut dyn Write) -> io::Result<()> {
    let Some(activity) = activity else { return writeln!(out, "{indent}events     not known: nothing describes them") };
    if let (Some(begin), Some(end)) = (activity.begin_ns, activity.end_ns) {
        writeln!(out, "{indent}time       {}", span(activity, begin, end))?;
    }
    let names = activity.events.iter().filter(|named| named.count > 0).map(|named| &named.name);
    let names = names.collect::<BTreeSet<_>>().len();
    let of = if names > 1 { format!(" of {names} names") } else { String::new() };
    let selected = if activity.selected { ", selected by the options; losses and rings are those of all" } else { "" };
    writeln!(out, "{indent}events     {}{of}{selected}", activity.total)?;
    let Some(highest) = activity.histogram.iter().max().filter(|_| activity.histogram.len() > 1) else { return Ok(()) };
    writeln!(out, "{indent}rate       {}", sparkline(&activity.histogram))?;
    let column = duration(activity.column_ns as f64 / 1e9);
    writeln!(
        out,
        "{indent}           a column is {column}; the highest has {highest} event{}",
        if *highest == 1 { "" } else { "s" }
    )
}

/// Writes a row for each name, the most frequent first: without `all` at most [`ROWS`].
pub(super) fn write_events(activity: &Activity, all: bool, indent: usize, out: &mut dyn Write) -> io::Result<()> {
    let events = &activity.events;
    let has_channels = events.first().is_some_and(|first| events.iter().any(|named| named.channel != first.channel));
    let mut table =
        if has_channels { Table::new(["COUNT", "EVENT", "CHANNEL"]) } else { Table::new(["COUNT", "EVENT"]) };
    let shown = if all { events.len() } else { ROWS };
    for named in events.iter().take(shown) {
        let channel = has_channels.then(|| named.channel.clone());
        table.row([named.count.to_string(), named.name.clone()].into_iter().chain(channel));
    }
    let mut table = table.indent(indent);
    if !table.is_empty() {
        write!(out, "{}", std::mem::take(&mut table).render())?;
    }
    write_more(events.len(), shown, "events", &" ".repeat(indent), out)
}

/// Writes how many rows of `len` were left out after those that are shown.
pub(super) fn write_more(len: usize, shown: usize, what: &str, indent: &str, out: &mut dyn Write) -> io::Result<()> {
    match len.checked_sub(shown) {
        None | Some(0) => Ok(()),
        Some(more) => writeln!(out, "{indent}and {more} more {what}; --verbose lists all"),
    }
}

/// Formats the span of the events: as dates, or by a clock of a kernel or one that nothing relates to real time, as `report`
/// prints it.
fn span(activity: &Activity, begin: i64, end: i64) -> String {
    let took = match end.abs_diff(begin) {
        0 => "one moment".to_owned(),
        took => duration(took as f64 / 1e9),
    };
    if !activity.since_epoch || activity.offset_ns != 0 {
        let seconds = |time: i64| {
            let microseconds = time.saturating_sub(activity.offset_ns).div_euclid(1000);
            format!("{}.{:06}", microseconds.div_euclid(1_000_000), microseconds.rem_euclid(1_000_000))
        };
        return format!("{} to {} s ({took})", seconds(begin), seconds(end));
    }
    let date = |time: i64| {
        let text = ended::time(u64::try_from(time).unwrap_or(0));
        text.split(' ').next().unwrap_or_default().to_owned()
    };
    let until = if date(begin) == date(end) { String::new() } else { date(end) + " " };
    format!("{} {} to {until}{} ({took})", date(begin), ended::precise_time(begin), ended::precise_time(end))
}

/// Draws numbers as a line of blocks, as high as the numbers are of the greatest one. Zero is a blank.
fn sparkline(numbers: &[u64]) -> String {
    const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let most = u128::from(numbers.iter().copied().max().unwrap_or(0).max(1));
    let height = |number: &u64| usize::try_from((u128::from(*number) * 8).div_ceil(most)).unwrap_or(8);
    numbers.iter().map(|number| BLOCKS[height(number)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_blocks() {
        assert_eq!(sparkline(&[0, 1, 2, 3, 4, 5, 6, 7, 8]), " ▁▂▃▄▅▆▇█");
        assert_eq!(sparkline(&[1, 0, 1_000_000]), "▁ █");
        assert_eq!(sparkline(&[u64::MAX, u64::MAX / 2]), "█▄");
        assert_eq!(sparkline(&[]), "");
    }
}

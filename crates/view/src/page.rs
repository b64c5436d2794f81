//! Writes the page: columns and slices as compressed binary data, everything else as JSON.

use crate::blocks::{BLOCK, compressed};
use crate::collected::{Collected, Columns, FilterFacts};
use crate::html::Html;
use crate::names::{Cpu, NONE, Names, Thread};
use crate::slices::{Slice, Slices, Track};
use crate::{classes::Kind, gaps};
use flate2::Compression;
use serde::Serialize;
use std::collections::HashMap;
use std::io::{self, Write};

/// The death of a kernel, session or process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Death {
    /// The name of what died: `kernel 6.12.0 on host`, `session shop, process 12`.
    pub what: String,
    /// A word for its mark on the axis: `panic`, `end`.
    pub word: String,
    /// When, for people.
    pub when: String,
    /// When by the clock of the page, in nanoseconds as text, if it is known.
    pub time: Option<String>,
    /// Why, in one sentence.
    pub why: String,
    /// Further lines: the backtrace.
    pub details: Vec<String>,
}

/// The facts that the page shows besides events.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Facts {
    /// Title of the page.
    pub title: String,
    /// The deaths, the most important first.
    pub deaths: Vec<Death>,
    /// Panics and signals that the process survived.
    pub survived: Vec<Death>,
    /// Lines about the machine and the inputs.
    pub machine: Vec<String>,
    /// The account of each trace, in the words of `report`.
    pub accounts: Vec<String>,
    /// The losses of each trace in a few words.
    pub losses: Vec<String>,
    /// Something is lost by the rules of `--strict`.
    pub lost: bool,
    /// Remarks.
    pub notes: Vec<String>,
}

/// The JSON of the page. `page/data.js` reads it.
#[derive(Serialize)]
struct Head<'a> {
    #[serde(flatten)]
    facts: &'a Facts,
    /// Time of the page's beginning in nanoseconds, as text: JavaScript's numbers do not hold it.
    start: String,
    absolute: bool,
    /// The times of all events are exact in JavaScript's numbers.
    exact: bool,
    /// End of the page, and the range that is shown first: nanoseconds from the beginning.
    end: f64,
    home: [f64; 2],
    /// Numbers of events in equal parts of that range, which are shown until the columns are read.
    preview: Vec<u32>,
    rows: usize,
    counted: u64,
    read: u64,
    limit: u64,
    /// Number of events in a block of fields, and the number of the first row in the first block.
    block: u64,
    blocks: usize,
    skip: u64,
    kinds: &'a [Kind],
    /// The fields of structures, for filters.
    shapes: &'a [serde_json::Value],
    /// The facts of each trace, for filters.
    filter_of: &'a [FilterFacts],
    /// Number of events of each kind.
    counts: Vec<u64>,
    traces: &'a [String],
    machines: &'a [String],
    /// The machine of each trace.
    machine_of: &'a [u32],
    processes: &'a [(u32, i64, String)],
    cpus: &'a [Cpu],
    threads: &'a [Thread],
    labels: &'a [String],
    tracks: &'a [Track],
    slices: usize,
    /// The slices that were open when recording ended.
    open: Vec<Open<'a>>,
    gaps: Vec<gaps::Row<'a>>,
    log: Vec<(u64, u64, &'a str)>,
    /// Rows whose time is more than 32 bits of nanoseconds behind the row before: row and
    /// difference.
    wide: Vec<(usize, Difference)>,
    /// The same for the begins of slices, which are in order of their tracks.
    wide_begins: Vec<(usize, Difference)>,
    /// Slices that are longer than 32 bits of nanoseconds: slice and length.
    wide_lengths: Vec<(usize, Difference)>,
    /// The rows are in the order in which they were read.
    sorted: bool,
    slices_not_drawn: u64,
    /// Number of events of threads that have no row.
    without_row: u64,
    /// Number of events whose fields are too long for the page.
    cut: u64,
}

/// A slice that was open when recording ended.
#[derive(Serialize)]
struct Open<'a> {
    slice: usize,
    /// Ids of its span and of the span's parent as text; none if it is of no span, 0 if there is no
    /// parent.
    span: Option<String>,
    parent: Option<String>,
    /// The fields that the span had at the end, if they are known.
    text: &'a str,
    /// Number of threads that were in the span, if it is known, and the one that entered it last.
    threads: Option<u32>,
    last: Option<u32>,
}

/// Returns the slices that were open when recording ended, in their order.
fn open<'a>(slices: &Slices, names: &'a Names) -> Vec<Open<'a>> {
    let one = |(at, slice): (usize, &Slice)| {
        let span = *slices.open.get(slice.open as usize)?;
        let end = span.and_then(|span| span.end);
        let text = end.and_then(|end| names.labels.get(end.fields as usize));
        let inside = end.and_then(|end| end.inside);
        Some(Open {
            slice: at,
            span: span.map(|span| span.id.to_string()),
            parent: span.map(|span| span.parent.to_string()),
            text: text.map_or("", String::as_str),
            threads: inside.map(|inside| inside.threads),
            last: inside.and_then(|inside| inside.last),
        })
    };
    slices.all.iter().enumerate().filter_map(one).collect()
}

/// Number of parts of the preview.
const PREVIEW: usize = 390;
/// Largest number below which JavaScript's numbers hold all integers.
const EXACT: u64 = 1 << 53;
/// Lines of the log that follow the last event within this time, in nanoseconds, are shown at
/// first.
const SHORTEST: i64 = 10_000_000;

/// Writes the page.
///
/// # Errors
/// `out` cannot be written.
pub fn write(mut collected: Collected, facts: &Facts, out: &mut dyn Write) -> io::Result<()> {
    let order = sort(&mut collected);
    let start = collected.columns.times.first().copied().unwrap_or(0);
    let offset = |time: i64| offset(start, time);
    let last = collected.columns.times.last().copied().unwrap_or(start);
    let end = collected.slices.all.iter().map(|slice| slice.end).fold(last, i64::max);
    let home = home(&collected, end);
    let (read, (counted, _)) = (collected.counted, collected.counts());
    let Collected { columns, names, mut slices, gaps, blocks, log, dropped, .. } = collected;
    let (cut, (blocks, first)) = (blocks.cut, blocks.finish());
    // A slice without a length comes before the one of its track that begins where it ends.
    slices.all.sort_by_key(|slice| (slice.track, slice.begin, slice.end));
    let row = |event: u64| -> Option<u64> {
        let row = event.checked_sub(dropped)?;
        match &order {
            None => Some(row),
            Some(order) => order.place.get(usize::try_from(row).ok()?).copied().map(u64::from),
        }
    };
    let (times, wide) = deltas(columns.times.iter().copied(), start);
    let (begins, wide_begins) = deltas(slices.all.iter().map(|slice| slice.begin), start);
    let (lengths, wide_lengths) = lengths(&slices.all);
    let head = Head {
        facts,
        start: start.to_string(),
        absolute: collected.absolute,
        exact: last.checked_sub(start).is_some_and(|range| range.unsigned_abs() < EXACT),
        end: offset(end),
        home: [offset(home.0), offset(home.1)],
        preview: preview(&columns.times, home),
        rows: columns.times.len(),
        counted,
        read,
        limit: collected.limit,
        block: BLOCK,
        blocks: blocks.len(),
        skip: dropped.saturating_sub(first),
        kinds: &collected.kinds,
        shapes: &collected.shapes,
        filter_of: &collected.filter_of,
        counts: counts(&columns.kinds, collected.kinds.len()),
        traces: &collected.traces,
        machines: &collected.machines,
        machine_of: &collected.machine_of,
        processes: &collected.processes,
        cpus: &names.cpus,
        threads: &names.threads,
        labels: &names.labels,
        tracks: &slices.tracks,
        slices: slices.all.len(),
        open: open(&slices, &names),
        gaps: gaps.iter().map(|gap| gap.row(offset)).collect(),
        log: log
            .iter()
            .filter_map(|line| Some((row(line.event)?, line.level, line.text.as_str())))
            .collect(),
        wide,
        wide_begins,
        wide_lengths,
        sorted: order.is_none(),
        slices_not_drawn: collected.slices_not_drawn,
        without_row: without_row(&columns, &collected.kinds),
        cut,
    };
    let mut html = Html::begin(out, &facts.title)?;
    html.json("head", &head)?;
    html.program()?;
    html.bytes("times", &compressed(&times, LEVEL))?;
    put_columns(&mut html, &columns)?;
    if let Some(order) = &order {
        html.bytes("order", &compressed(&words(order.row.iter().copied()), LEVEL))?;
    }
    html.bytes("slice-begins", &compressed(&begins, LEVEL))?;
    html.bytes("slice-lengths", &compressed(&lengths, LEVEL))?;
    put_slices(&mut html, &slices.all, row)?;
    for block in &blocks {
        html.block(block)?;
    }
    html.end()
}

/// How well columns are compressed.
const LEVEL: Compression = Compression::new(3);

fn put_columns(html: &mut Html<'_>, columns: &Columns) -> io::Result<()> {
    html.bytes("kinds", &compressed(&words(columns.kinds.iter().copied()), LEVEL))?;
    html.bytes("threads", &compressed(&words(columns.threads.iter().copied()), LEVEL))?;
    html.bytes("cpus", &compressed(&words(columns.cpus.iter().copied()), LEVEL))
}

fn put_slices(
    html: &mut Html<'_>,
    slices: &[Slice],
    row: impl Fn(u64) -> Option<u64>,
) -> io::Result<()> {
    let of = |number: fn(&Slice) -> u32| words(slices.iter().map(number));
    let place = |event: u64| row(event).and_then(|row| u32::try_from(row).ok()).unwrap_or(NONE);
    let event = |slice: &Slice| place(slice.event);
    let opening = |slice: &Slice| place(slice.opening);
    html.bytes("slice-tracks", &compressed(&of(|slice| slice.track), LEVEL))?;
    html.bytes("slice-labels", &compressed(&of(|slice| slice.label), LEVEL))?;
    html.bytes("slice-threads", &compressed(&of(|slice| slice.thread), LEVEL))?;
    html.bytes("slice-events", &compressed(&words(slices.iter().map(event)), LEVEL))?;
    html.bytes("slice-openings", &compressed(&words(slices.iter().map(opening)), LEVEL))?;
    html.bytes("slice-parents", &compressed(&parents(slices), LEVEL))?;
    html.bytes(
        "slice-flags",
        &compressed(&slices.iter().map(|slice| slice.flags).collect::<Vec<_>>(), LEVEL),
    )
}

/// Returns for each slice of a span the position of the slice of its parent.
fn parents(slices: &[Slice]) -> Vec<u8> {
    let positions = (0..).zip(slices).filter(|(_, slice)| slice.span != NONE);
    let places: HashMap<u32, u32> = positions.map(|(at, slice)| (slice.span, at)).collect();
    words(slices.iter().map(|slice| places.get(&slice.parent).copied().unwrap_or(NONE)))
}

/// Returns a time as nanoseconds from the beginning. JavaScript has the same numbers: exact up to
/// [`EXACT`].
#[expect(clippy::cast_precision_loss, reason = "the page says so where times are not exact")]
fn offset(start: i64, time: i64) -> f64 {
    i128::from(time).saturating_sub(i128::from(start)) as f64
}

/// Returns the number of times in each of [`PREVIEW`] equal parts of a range.
fn preview(times: &[i64], (from, to): (i64, i64)) -> Vec<u32> {
    let mut bins = vec![0u32; PREVIEW];
    let length = i128::from(to).saturating_sub(i128::from(from)).max(1);
    for time in times {
        let place =
            i128::from(*time).saturating_sub(i128::from(from)).saturating_mul(PREVIEW as i128);
        let bin = place.checked_div_euclid(length).and_then(|bin| usize::try_from(bin).ok());
        let bin = bin.map(|bin| bin.min(PREVIEW.saturating_sub(1))).filter(|_| *time <= to);
        bin.and_then(|bin| bins.get_mut(bin))
            .into_iter()
            .for_each(|bin| *bin = bin.saturating_add(1));
    }
    bins
}

/// Returns the number of events of each kind.
fn counts(kinds: &[u32], number: usize) -> Vec<u64> {
    let mut counts = vec![0u64; number];
    for kind in kinds {
        counts
            .get_mut(*kind as usize)
            .into_iter()
            .for_each(|count| *count = count.saturating_add(1));
    }
    counts
}

/// Returns numbers as little-endian bytes.
fn words(numbers: impl Iterator<Item = u32>) -> Vec<u8> {
    numbers.flat_map(u32::to_le_bytes).collect()
}

/// A difference of times in nanoseconds. It is a number if JavaScript's numbers are exact for it,
/// else a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Difference(i128);

impl Serialize for Difference {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match i64::try_from(self.0).ok().filter(|number| number.unsigned_abs() < 1 << 53) {
            Some(number) => serializer.serialize_i64(number),
            None => serializer.collect_str(&self.0),
        }
    }
}

/// Returns the difference of each time from the time before, and the differences that do not fit 32
/// bits.
fn deltas(times: impl Iterator<Item = i64>, start: i64) -> (Vec<u8>, Vec<(usize, Difference)>) {
    let (mut bytes, mut wide, mut last) = (Vec::new(), Vec::new(), start);
    for (row, time) in times.enumerate() {
        let delta = i128::from(time).saturating_sub(i128::from(last));
        last = time;
        bytes.extend(u32::try_from(delta).unwrap_or(0).to_le_bytes());
        if u32::try_from(delta).is_err() {
            wide.push((row, Difference(delta)));
        }
    }
    (bytes, wide)
}

/// Returns the lengths of slices, and those that do not fit 32 bits.
fn lengths(slices: &[Slice]) -> (Vec<u8>, Vec<(usize, Difference)>) {
    let length = |slice: &Slice| i128::from(slice.end).saturating_sub(i128::from(slice.begin));
    let wide = slices.iter().enumerate().filter(|(_, slice)| u32::try_from(length(slice)).is_err());
    let wide = wide.map(|(at, slice)| (at, Difference(length(slice)))).collect();
    (words(slices.iter().map(|slice| u32::try_from(length(slice)).unwrap_or(0))), wide)
}

/// The order of rows in time, where they were read in another one.
struct Order {
    /// For each row of the page, the row as it was read.
    row: Vec<u32>,
    /// For each row as it was read, the row of the page.
    place: Vec<u32>,
}

/// Sorts the rows by time, where damaged traces have times that go back.
fn sort(collected: &mut Collected) -> Option<Order> {
    let columns = &mut collected.columns;
    if columns.times.is_sorted() {
        return None;
    }
    let count = u32::try_from(columns.times.len()).ok()?;
    let mut row: Vec<u32> = (0..count).collect();
    let time = |row: &u32| columns.times.get(*row as usize).copied().unwrap_or(0);
    row.sort_by_key(time);
    let mut place = vec![0; row.len()];
    for (at, own) in (0..count).zip(&row) {
        place.get_mut(*own as usize).into_iter().for_each(|place| *place = at);
    }
    columns.times = row.iter().map(time).collect();
    for column in [&mut columns.kinds, &mut columns.threads, &mut columns.cpus] {
        *column =
            row.iter().map(|row| column.get(*row as usize).copied().unwrap_or(NONE)).collect();
    }
    Some(Order { row, place })
}

/// Returns the range of time that is shown at first: that of the events, and of the log's lines
/// that follow within as much time. Lines from before the first event would stretch the view to all
/// the time since the boot.
fn home(collected: &Collected, end: i64) -> (i64, i64) {
    let is_log = |kind: u32| collected.kinds.get(kind as usize).is_some_and(|kind| kind.log);
    let rows = || collected.columns.times.iter().zip(&collected.columns.kinds);
    let mut events = rows().filter(|(_, kind)| !is_log(**kind)).map(|(time, _)| *time);
    let Some(first) = events.next() else {
        let first = rows().next().map_or(0, |(time, _)| *time);
        return (first, end);
    };
    let last = events.next_back().unwrap_or(first);
    let latest = last.saturating_add(last.saturating_sub(first).max(SHORTEST));
    let after = rows().rev().map(|(time, _)| *time).find(|time| *time <= latest);
    (first, after.unwrap_or(last).max(last))
}

/// Returns the number of events of threads that have no row. Lines of logs are of no thread.
fn without_row(columns: &Columns, kinds: &[Kind]) -> u64 {
    let is_log = |kind: u32| kinds.get(kind as usize).is_some_and(|kind| kind.log);
    let rows = columns.threads.iter().zip(&columns.kinds);
    rows.filter(|(thread, kind)| **thread == NONE && !is_log(**kind)).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_threads_without_a_row_are_counted() {
        let kind = |log| Kind {
            trace: 0,
            channel: String::new(),
            name: String::new(),
            level: "",
            timed: true,
            log,
            severity: None,
            scopes: [None; 3],
        };
        let columns = Columns {
            kinds: vec![0, 1, 0, 1, 0],
            threads: vec![NONE, NONE, 3, 4, NONE],
            ..Columns::default()
        };
        assert_eq!(without_row(&columns, &[kind(false), kind(true)]), 2);
    }

    /// The sums of the differences are the times again, as the page computes them.
    #[test]
    fn differences_add_up() {
        let times = [
            5,
            5,
            6,
            4_294_967_301,
            4_294_967_302,
            9_000_000_000,
            3,
            4,
            i64::MAX,
            i64::MAX - 1,
            i64::MIN,
        ];
        let (bytes, wide) = deltas(times.into_iter(), 5);
        let mut value = 0;
        let sums = bytes.chunks(4).enumerate().map(|(row, bytes)| {
            let wide = wide.iter().find(|(at, _)| *at == row).map(|(_, difference)| difference.0);
            value +=
                wide.unwrap_or_else(|| i128::from(u32::from_le_bytes(bytes.try_into().unwrap())));
            value
        });
        assert_eq!(sums.collect::<Vec<_>>(), times.map(|time| i128::from(time) - 5));
        assert!(wide.len() < times.len());
        let json = |number: i128| serde_json::to_string(&Difference(number)).unwrap();
        assert_eq!(
            [json(-(1 << 53) + 1), json(1 << 53), json(i128::from(i64::MAX) * 2)],
            ["-9007199254740991", "\"9007199254740992\"", "\"18446744073709551614\""]
        );
    }

    #[test]
    fn the_preview_has_each_event_of_the_range_once() {
        let times: Vec<i64> = (0..1000).map(|number| number * 7 - 100).collect();
        let inside = times.iter().filter(|time| (0..=6000).contains(*time)).count();
        assert_eq!(preview(&times, (0, 6000)).iter().sum::<u32>() as usize, inside);
        assert_eq!(preview(&[i64::MIN, 0, i64::MAX], (i64::MIN, i64::MAX)).iter().sum::<u32>(), 3);
    }
}

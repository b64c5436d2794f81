//! Perfetto's trace processor.

use super::{Found, Printed};
use crate::matrix::event::Value;
use crate::matrix::perfetto::{Wire, field, fields, packets};
use std::path::Path;
use std::process::Command;

/// A row for each argument of an event.
const QUERY: &str = "select e.id, e.ts, e.cpu, e.name, t.tid, a.key, coalesce(a.string_value, a.int_value) from ftrace_event e \
                     left join thread t using(utid) left join args a using(arg_set_id) order by e.id, a.id;";

/// A kernel's events, without the names of their tasks.
pub(super) fn kernel(program: &Path, file: &Path) -> Result<Vec<Found>, String> {
    let mut events: Vec<Found> = Vec::new();
    let mut last = String::new();
    let ahead = ahead(&std::fs::read(file).map_err(|e| e.to_string())?)?;
    for row in rows(program, QUERY, file)? {
        let [id, ns, cpu, name, tid, key, value] = &row[..] else {
            return Err(format!("a row of {row:?}"));
        };
        if *id != last {
            let number = |text: &str| text.parse::<i128>().map_err(|e| format!("{text}: {e}"));
            let cpu = number(cpu)?.try_into().unwrap_or(u32::MAX);
            let (pid, ns, name) = (number(tid)?, number(ns)? - ahead, name.clone());
            let event = Printed { pid, cpu, ns, name, ..Printed::default() };
            events.push(Found { event, fields: Vec::new() });
            last.clone_from(id);
        }
        let value = value.parse().map_or_else(|_| Value::Text(value.clone()), Value::Number);
        // Of some kinds of events the trace processor has the number of a symbol in place of the
        // function's name.
        let is_symbol = key == "function" && matches!(value, Value::Number(_));
        let fields = &mut events.last_mut().expect("an event").fields;
        fields.extend((!is_symbol).then(|| (key.clone(), value)));
    }
    Ok(events)
}

/// Nanoseconds that the time since boot is ahead of the clock of a kernel's events, by the readings
/// in the bundles: the trace processor shows the time since boot.
fn ahead(file: &[u8]) -> Result<i128, String> {
    let bundles = packets(file).filter_map(|packet| field(&packet, 1)).map(|bundle| {
        let bundle = fields(bundle.bytes());
        let reading =
            |number| field(&bundle, number).map_or(0, |wire: Wire<'_>| i128::from(wire.number()));
        reading(7) - reading(6)
    });
    let all: std::collections::BTreeSet<i128> = bundles.collect();
    match all.len() {
        0 => Ok(0),
        1 => Ok(all.into_iter().next().expect("one")),
        _ => Err(format!("the clocks are related in several ways: {all:?}")),
    }
}

/// Fails if the trace processor finds something wrong in a file. It may say that the trace lost
/// events.
pub(crate) fn accepts(program: &Path, file: &Path) -> Result<(), String> {
    let query = "select name, value from stats where severity = 'error' and value > 0 \
                 or severity = 'data_loss' and value > 0 and name not like 'ftrace_cpu_%';";
    match rows(program, query, file)? {
        rows if rows.is_empty() => Ok(()),
        rows => Err(format!("trace_processor: {}: {rows:?}", file.display())),
    }
}

/// The names of the slices that have no end, sorted.
pub(crate) fn endless_slices(program: &Path, file: &Path) -> Result<Vec<String>, String> {
    let rows = rows(program, "select name from slice where dur = -1 order by name;", file)?;
    Ok(rows.into_iter().filter_map(|row| row.into_iter().next()).collect())
}

/// A time in which a thread was in a span. Times are nanoseconds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Slice {
    pub(crate) tid: u64,
    pub(crate) span: u64,
    pub(crate) name: String,
    pub(crate) begin: u64,
    /// None if the slice has no end.
    pub(crate) end: Option<u64>,
    /// The texts of the annotations `begin` and `end`.
    pub(crate) begin_note: String,
    pub(crate) end_note: String,
}

/// The slices of threads that are no instants.
pub(crate) fn thread_slices(program: &Path, file: &Path) -> Result<Vec<Slice>, String> {
    let note = |name: &str| {
        let value = "coalesce(a.string_value, a.int_value)";
        format!(
            "coalesce((select {value} from args a where a.arg_set_id = s.arg_set_id and a.key = 'debug.{name}'), '')"
        )
    };
    let [span, begin, end] = ["span_id", "begin", "end"].map(note);
    let query = format!(
        "select tid, {span}, s.name, s.ts, s.dur, {begin}, {end} from slice s join thread_track t on s.track_id = t.id \
         join thread using(utid) where s.name not like 'span:%';"
    );
    let slice = |row: Vec<String>| {
        let [tid, span, name, begin, length, begin_note, end_note] =
            <[String; 7]>::try_from(row).map_err(|row| format!("{row:?}"))?;
        let number = |text: &str| text.parse::<u64>().map_err(|e| format!("{text}: {e}"));
        let begin = number(&begin)?;
        let end = if length == "-1" { None } else { Some(begin + number(&length)?) };
        Ok(Slice {
            tid: number(&tid)?,
            span: number(&span)?,
            name,
            begin,
            end,
            begin_note,
            end_note,
        })
    };
    rows(program, &query, file)?.into_iter().map(slice).collect()
}

/// The rows that the query gives.
fn rows(program: &Path, sql: &str, file: &Path) -> Result<Vec<Vec<String>>, String> {
    let query = tempfile::NamedTempFile::new().map_err(|e| e.to_string())?;
    std::fs::write(query.path(), sql).map_err(|e| e.to_string())?;
    let output = Command::new(program).arg("-q").arg(query.path()).arg(file).output();
    let output = output.map_err(|e| format!("{}: {e}", program.display()))?;
    if !output.status.success() {
        return Err(format!("trace_processor: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let text = String::from_utf8(output.stdout).map_err(|e| e.to_string())?;
    Ok(csv(&text).into_iter().skip(1).filter(|row| row != &[""]).collect())
}

/// Rows of words, in quotes or without; a text in quotes may have several lines.
fn csv(text: &str) -> Vec<Vec<String>> {
    let (mut rows, mut row, mut word) = (Vec::new(), Vec::new(), String::new());
    let mut is_quoted = false;
    for c in text.chars() {
        match c {
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => row.push(std::mem::take(&mut word)),
            '\n' if !is_quoted => {
                row.push(std::mem::take(&mut word));
                rows.push(std::mem::take(&mut row));
            }
            _ => word.push(c),
        }
    }
    rows
}

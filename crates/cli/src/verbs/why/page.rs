//! Prints the explanation of an end for people: one page, for a ticket. Times are in UTC.

use super::{Line, Next, Why};
use crate::account::LIMIT;
use crate::ended;
use crate::paint::bold;
use crate::say;
use crate::table::plain;
use lastwords_open::why::Verdict;
use lastwords_render::evidence::write_spans;
use std::io::{self, Write};

/// The width of the words at the beginning of a line of evidence.
const WIDTH: usize = 13;
/// Most characters of the fields of an event.
const FIELDS: usize = 300;

/// Prints a page for each.
pub(super) fn print(all: &[Why]) {
    let mut text = Vec::new();
    for (at, why) in all.iter().enumerate() {
        if at > 0 {
            text.push(b'\n');
        }
        // A vector takes all that is written.
        let _ = write(why, &mut text);
    }
    say::print(text);
}

fn write(why: &Why, out: &mut dyn Write) -> io::Result<()> {
    let Verdict { sentence, at, is_last_seen, evidence, hints, crash, .. } = &why.verdict;
    let name = format!("{} {}", why.what, plain(&why.name));
    writeln!(out, "{}: {}", bold(name.trim_end()), bold(plain(sentence)))?;
    if let Some(at) = at {
        let seen = if *is_last_seen { "last seen alive" } else { "at" };
        writeln!(out, "  {seen} {}", precise(i128::from(*at)))?;
    }
    let of = |part: &Option<String>, before: &str| {
        part.as_ref().map_or_else(String::new, |part| format!("{before}{}", plain(part)))
    };
    let (program, host) = (of(&why.program, ", program "), of(&why.hostname, " on "));
    writeln!(out, "  from {} ({}){program}{host}", plain(&why.from), plain(&why.kind))?;
    head("evidence", out)?;
    for own in evidence {
        writeln!(out, "  {:<WIDTH$} {}", own.from.words(), plain(&own.text))?;
    }
    if !hints.is_empty() {
        head("hints, which prove nothing", out)?;
        hints.iter().take(LIMIT).try_for_each(|hint| writeln!(out, "  {}", plain(hint)))?;
    }
    if let Some(crash) = crash.as_ref().filter(|crash| !crash.backtrace.is_empty()) {
        head("backtrace", out)?;
        let lines = crash.backtrace_lines();
        lines.iter().try_for_each(|line| writeln!(out, "  {}", line.trim_start()))?;
    }
    // Only sessions have levels and spans whatever they record.
    let is_session = why.what == "session";
    if is_session || why.last_error.is_some() {
        head("last error", out)?;
    }
    match &why.last_error {
        Some(error) => write_line(error, out)?,
        None if is_session => {
            writeln!(out, "  none: no event that is left has the level error")?;
        }
        None => {}
    }
    head("last events", out)?;
    if why.last_events.is_empty() {
        writeln!(out, "  none that can be read")?;
    }
    why.last_events.iter().try_for_each(|event| write_line(event, out))?;
    if is_session {
        head("spans at work", out)?;
    }
    match why.open_spans.as_deref() {
        Some([]) if is_session => writeln!(out, "  none is recorded as open")?,
        Some(spans) => write_spans(spans, LIMIT, out)?,
        None => writeln!(out, "  not known: there is no table of open spans")?,
    }
    head("lost", out)?;
    writeln!(out, "  {}", why.lost)?;
    head("look next", out)?;
    let width = why.next.iter().map(|next| next.command.chars().count()).max().unwrap_or(0);
    why.next
        .iter()
        .try_for_each(|Next { command, shows }| writeln!(out, "  {command:<width$}  {shows}"))
}

fn head(words: &str, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}", bold(words))
}

fn write_line(line: &Line, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "  {}", line_of(line))
}

/// Returns the line of an event: a session's as `report` has it, others as
/// `2026-11-29 09:00:00.123 UTC ERROR shop:failed: code=5`.
pub(super) fn line_of(line: &Line) -> String {
    if let Some(shown) = &line.shown {
        return shown.clone();
    }
    let time = line.time_ns.as_ref().and_then(|time| time.parse::<i128>().ok());
    let time = match time {
        Some(time) if line.since_epoch => precise(time),
        Some(time) => format!("{} s", ended::seconds(time)),
        None => "-".to_owned(),
    };
    let level = line.level.map_or_else(String::new, |level| format!(" {}", level.to_uppercase()));
    let thread = line.tid.map_or_else(String::new, |tid| format!(" [{tid}]"));
    let fields: String = plain(&line.fields).chars().take(FIELDS).collect();
    let cut = if line.fields.chars().count() > FIELDS { " ..." } else { "" };
    let text = format!("{time}{level}{thread} {}: {fields}{cut}", plain(&line.event));
    text.trim_end_matches([' ', ':']).to_owned()
}

fn precise(nanoseconds: i128) -> String {
    u64::try_from(nanoseconds).map_or_else(|_| "-".to_owned(), ended::precise_utc)
}

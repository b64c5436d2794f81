//! What stands on stderr beside what was recovered: verdicts, gaps, open spans, packets that could not be decoded.

use crate::table::plain;
use crate::{crash, say};
use lastwords_formats::events::Outcome;
use lastwords_formats::evidence::write_text;
use lastwords_trace::source::{OpenSpan, Source};
use lastwords_walk::own::Session;
use std::io::{self, Write};

/// Lines of each kind that a person is shown; `inspect --json` has all.
pub(crate) const LIMIT: usize = 20;

/// Prints the evidence of a session on stderr.
pub(crate) fn print(session: &Session) {
    let mut text = Vec::new();
    match write(session, LIMIT, &mut text) {
        Ok(()) => say::remark(text),
        Err(error) => say::error(error),
    }
}

/// Writes the evidence of a session for people, at most `limit` lines of each kind.
pub(crate) fn write(session: &Session, limit: usize, out: &mut dyn Write) -> io::Result<()> {
    write_text(session, limit, out)?;
    spans(session.open_spans(), limit, out)?;
    crash::write(&crash::causes(session), out)
}

/// Prints packets that could not be decoded to their end.
pub(crate) fn print_faults(outcome: &Outcome) {
    for fault in outcome.faults.iter().take(LIMIT) {
        say::note(format_args!("not decoded: {fault}"));
    }
    let more = outcome.totals.faults.saturating_sub(LIMIT as u64);
    if more > 0 {
        say::note(format_args!("{more} more packets are not decoded to their end"));
    }
}

/// A line for each span that was open.
fn spans(spans: &[OpenSpan], limit: usize, out: &mut dyn Write) -> io::Result<()> {
    if spans.is_empty() {
        return Ok(());
    }
    writeln!(out, "  {} spans were open:", spans.len())?;
    for span in spans.iter().take(limit) {
        writeln!(out, "    {}", span_line(span))?;
    }
    if spans.len() > limit {
        writeln!(out, "    ... and {} more; `inspect --json` lists all", spans.len() - limit)?;
    }
    Ok(())
}

/// `target::name{fields} opened by thread 12 of process 10, thread 13 is in it`.
fn span_line(span: &OpenSpan) -> String {
    let (pid, tid) = span.opener;
    let fields = if span.fields.is_empty() { String::new() } else { format!("{{{}}}", plain(&span.fields)) };
    let inside = span.entered.map_or_else(String::new, |(_, tid)| format!(", thread {tid} is in it"));
    let name = format!("{}::{}", plain(&span.target), plain(&span.name));
    format!("{name}{fields} opened by thread {tid} of process {pid}{inside}")
}

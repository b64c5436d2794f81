//! Shows the spans that were open, as text for people.

use super::SpanReport;
use lastwords_ctf::names::plain;
use lastwords_trace::source::{OpenSpan, Source};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Returns the spans of a source that were open; none if that is not known.
pub(super) fn reports(source: &dyn Source) -> Option<Vec<SpanReport>> {
    let all = || source.open_spans().iter().map(|span| report(source, span)).collect();
    source.knows_open_spans().then(all)
}

fn report(source: &dyn Source, span: &OpenSpan) -> SpanReport {
    SpanReport {
        id: span.id,
        parent: span.parent,
        opened_ns: source.schema().clock.nanoseconds(span.opened).to_string(),
        age_ns: span.age.to_string(),
        pid: span.opener.0,
        tid: span.opener.1,
        entered_tid: span.entered.map(|(_, tid)| tid),
        threads: span.threads,
        level: span.level,
        target: span.target.clone(),
        name: span.name.clone(),
        fields: span.fields.clone(),
    }
}

/// Writes a line for each span that was open: first the spans that a thread was in, then the other
/// spans, newest first. Equal spans share a line.
pub(super) fn write(spans: &[SpanReport], limit: usize, out: &mut dyn Write) -> io::Result<()> {
    let entered = spans.iter().filter(|span| span.threads > 0).count();
    match spans.len() {
        0 => return Ok(()),
        1 => writeln!(out, "  1 span was open:")?,
        open if entered == 0 => writeln!(out, "  {open} spans were open:")?,
        open => writeln!(
            out,
            "  {open} spans were open; the {entered} that a thread was in come first:"
        )?,
    }
    let mut groups: Vec<Vec<&SpanReport>> = Vec::new();
    let mut known = BTreeMap::new();
    for span in spans {
        // A span that a thread was in always has its own line.
        let own = (span.threads > 0).then_some(groups.len());
        let texts = [&span.target, &span.name, &span.fields];
        let at = *known
            .entry((own, texts, span.parent, span.pid, span.tid, span.level))
            .or_insert(groups.len());
        match groups.get_mut(at) {
            Some(group) => group.push(span),
            None => groups.push(vec![span]),
        }
    }
    for group in groups.iter().take(limit) {
        writeln!(out, "    {}", group_line(group, spans))?;
    }
    let more: usize = groups.iter().skip(limit).map(Vec::len).sum();
    if more > 0 {
        writeln!(out, "    ... and {more} more; `inspect --json` lists all")?;
    }
    Ok(())
}

/// Returns a line such as
/// `target::name{fields} (id 7, in 3 target::name), open for 1.5 s, thread 13 is in it; opened by
/// thread 12 of process 10`
fn group_line(group: &[&SpanReport], all: &[SpanReport]) -> String {
    let [newest, .., oldest] = group else {
        return group.first().map_or_else(String::new, |span| {
            let inside = match (span.threads, span.entered_tid) {
                (0, _) => String::new(),
                (1, Some(tid)) => format!(", thread {tid} is in it"),
                (1, None) => ", a thread is in it".into(),
                (threads, Some(tid)) => {
                    format!(", {threads} threads are in it, {tid} entered last")
                }
                (threads, None) => format!(", {threads} threads are in it"),
            };
            line(span, "", &format!("id {}", span.id), &age(span), &inside, all)
        });
    };
    let many = format!("{} times ", group.len());
    let ids = format!("ids {} to {}", oldest.id.min(newest.id), newest.id.max(oldest.id));
    let ages = format!("{} to {}", age(newest), age(oldest));
    line(newest, &many, &ids, &ages, "", all)
}

fn line(
    span: &SpanReport,
    many: &str,
    ids: &str,
    age: &str,
    inside: &str,
    all: &[SpanReport],
) -> String {
    let (pid, tid) = (span.pid, span.tid);
    let fields =
        if span.fields.is_empty() { String::new() } else { format!("{{{}}}", plain(&span.fields)) };
    let parent = match all.iter().find(|other| other.id == span.parent && other.pid == pid) {
        _ if span.parent == 0 => String::new(),
        Some(parent) => format!(", in {} {}", span.parent, name(parent)),
        None => format!(", in {}", span.parent),
    };
    format!(
        "{many}{}{fields} ({ids}{parent}), open for {age}{inside}; opened by thread {tid} of process {pid}",
        name(span)
    )
}

fn name(span: &SpanReport) -> String {
    format!("{}::{}", plain(&span.target), plain(&span.name))
}

fn age(span: &SpanReport) -> String {
    seconds(span.age_ns.parse().unwrap_or(0))
}

/// Formats a time in nanoseconds as seconds with three decimals. A time under 10 ms is formatted as
/// milliseconds with three decimals.
pub(crate) fn seconds(nanoseconds: u64) -> String {
    if nanoseconds < 10_000_000 {
        format!("{}.{:03} ms", nanoseconds / 1_000_000, nanoseconds / 1000 % 1000)
    } else {
        format!("{}.{:03} s", nanoseconds / 1_000_000_000, nanoseconds / 1_000_000 % 1000)
    }
}

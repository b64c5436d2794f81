//! Inputs that are folders of CTF traces.

use crate::exit::Outcome;
use crate::output::{Format, Line, Merged, is_stdout, to_file};
use crate::pager::Pager;
use crate::progress::Shared;
use crate::say;
use crate::select::Events;
use crate::table::plain;
use anyhow::bail;
use lastwords_ctf::read::{self, Found, Next, Reader, Trace, Watch};
use lastwords_formats::Totals;
use lastwords_formats::events::Note;
use lastwords_formats::json;
use lastwords_formats::select::Selection;
use lastwords_formats::text;
use lastwords_formats::text::Zone;
use lastwords_trace::parallel;
use serde::Serialize;
use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};

/// Opens all words as folders of CTF traces; none where the first is something else.
///
/// # Errors
/// A folder cannot be read; some words are CTF traces and others are not.
pub(crate) fn open_all(words: &[String]) -> anyhow::Result<Option<Found>> {
    let mut found = Found::default();
    for (i, word) in words.iter().enumerate() {
        let path = Path::new(word);
        if !(path.is_dir() && read::is_trace(path)) {
            if i == 0 {
                return Ok(None);
            }
            bail!("{word}: no CTF trace, but what stands before it is one; give them one by one");
        }
        let more = read::open(path)?;
        found.traces.extend(more.traces);
        found.faults.extend(more.faults);
    }
    Ok(Some(found).filter(|_| !words.is_empty()))
}

/// Converts to CTF of either version, or to text; a line for each thing written.
pub(crate) fn convert(found: &Found, events: &Events, to: Format, out: &Path) -> anyhow::Result<(Line, Outcome)> {
    events.refuse_channels()?;
    check(to)?;
    if to == Format::Json {
        return to_json(found, events, out);
    }
    let Some(version) = to.ctf_version() else { return to_text(found, events, out) };
    if !events.is_default() {
        bail!(
            "packets of a CTF trace are copied whole; --cpu, --event, --since, --until and --last are for text, json and `report`"
        );
    }
    found.faults.iter().for_each(|fault| fault_line(&fault.to_string()));
    let mut faults = found.faults.len();
    let bar = Shared::new(out.display().to_string(), bytes(found));
    let totals = read::copy(&found.traces, version, out, &|bytes| bar.add(bytes), &mut |fault| {
        faults += 1;
        fault_line(&fault.to_string());
    })?;
    drop(bar);
    Ok(written(found, out, &totals, faults))
}

/// A CTF trace can be written in the format.
///
/// # Errors
/// It cannot.
pub(crate) fn check(to: Format) -> anyhow::Result<()> {
    if matches!(to, Format::Perfetto | Format::TraceDat) {
        bail!("a CTF trace, and a session of LTTng, is written as ctf, ctf2, json or text");
    }
    Ok(())
}

/// Writes the chosen events as text, as `report` prints it.
fn to_text(found: &Found, events: &Events, out: &Path) -> anyhow::Result<(Line, Outcome)> {
    let (mut totals, mut faults) = (Totals::default(), 0);
    to_file(out, |file| {
        let mut counted = Counted { out: file, bytes: 0 };
        let title = (!is_stdout(out)).then(|| out.display().to_string());
        let printed = print(found, events, &Zone::local(), &mut counted, title);
        faults = printed.faults;
        totals = Totals { bytes: counted.bytes, faults: faults as u64, ..printed.totals };
        printed.failed.map_or(Ok(()), |failed| Err(lastwords_formats::Error::Output(failed)))
    })?;
    Ok(written(found, out, &totals, faults))
}

/// Counts what is written.
struct Counted<'a> {
    out: &'a mut dyn io::Write,
    bytes: u64,
}

impl io::Write for Counted<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let len = self.out.write(bytes)?;
        self.bytes += len as u64;
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Writes the chosen events as JSON lines.
fn to_json(found: &Found, events: &Events, out: &Path) -> anyhow::Result<(Line, Outcome)> {
    let selection = selection(found, events);
    found.faults.iter().for_each(|fault| fault_line(&fault.to_string()));
    let mut faults = found.faults.len();
    // All is read twice: for what is lost, then for the events.
    let bar = Shared::new(out.display().to_string(), bytes(found).saturating_mul(2));
    let totals = to_file(out, |file| {
        json::write(&found.traces, &selection, file, &|bytes| bar.add(bytes), &mut |note| {
            faults += usize::from(matches!(note, Note::Fault(_)));
            tell_note(&note);
        })
    })?;
    drop(bar);
    Ok(written(found, out, &totals, faults))
}

/// Bytes to read.
fn bytes(found: &Found) -> u64 {
    found.traces.iter().map(Trace::bytes).fold(0, u64::saturating_add)
}

fn merged(trace: &Trace) -> Merged {
    Merged { session: trace.name().to_owned(), from: trace.path.clone() }
}

fn written(found: &Found, out: &Path, totals: &Totals, faults: usize) -> (Line, Outcome) {
    let first = found.traces.first();
    if totals.lost_packets > 0 {
        say::warning(format_args!("{} packets are missing between those that are there", totals.lost_packets));
    }
    let line = Line {
        path: out.to_owned(),
        session: first.map(|trace| trace.name().to_owned()).unwrap_or_default(),
        from: first.map(|trace| trace.path.clone()).unwrap_or_default(),
        events: Some(totals.events),
        streams: totals.streams,
        packets: totals.packets,
        bytes: totals.bytes,
        lost_events: totals.lost_events,
        losses: faults > 0 || totals.has_losses(),
        unreadable: false,
        merged: found.traces.iter().skip(1).map(merged).collect(),
    };
    (line, if faults > 0 { Outcome::Negative } else { Outcome::Done })
}

/// Reports: text on stdout, what is missing and what cannot be read on stderr.
pub(crate) fn report(
    found: &Found,
    events: &Events,
    zone: &Zone,
    strict: bool,
    mut out: Pager,
) -> anyhow::Result<Outcome> {
    events.refuse_channels()?;
    let title = (!out.is_program()).then(|| "report".to_owned());
    let printed = print(found, events, zone, &mut out, title);
    out.finish()?;
    if printed.failed.is_none() {
        events.tell_none(printed.totals.events);
    }
    match printed.failed {
        Some(e) if e.kind() != io::ErrorKind::BrokenPipe => return Err(e.into()),
        _ => {}
    }
    Ok(match (printed.faults, strict && printed.totals.has_losses()) {
        (0, true) => Outcome::Losses,
        (0, false) => Outcome::Done,
        _ => Outcome::Negative,
    })
}

/// The result of [`print`].
struct Printed {
    totals: Totals,
    /// How many parts could not be read.
    faults: usize,
    /// Why writing ended.
    failed: Option<io::Error>,
}

/// Writes the chosen events as text; what is missing and what cannot be read goes to stderr. `title` is that of the progress, which is
/// shown if there is one.
fn print(found: &Found, events: &Events, zone: &Zone, out: &mut dyn io::Write, title: Option<String>) -> Printed {
    let selection = selection(found, events);
    let bar = title.map(|title| Shared::new(title, bytes(found)));
    let tell = |bytes| bar.iter().for_each(|bar| bar.add(bytes));
    let mut faults = found.faults.len();
    found.faults.iter().for_each(|fault| fault_line(&fault.to_string()));
    let mut notes = |note: Note| {
        faults += usize::from(matches!(note, Note::Fault(_)));
        tell_note(&note);
    };
    let written = text::write(&found.traces, text::Style::Babeltrace, &selection, zone, out, &tell, &mut notes);
    match written {
        Ok(totals) => Printed { totals, faults, failed: None },
        Err(lastwords_formats::Error::Output(error)) => {
            Printed { totals: Totals::default(), faults, failed: Some(error) }
        }
        Err(error) => Printed { totals: Totals::default(), faults, failed: Some(io::Error::other(error)) },
    }
}

fn tell_note(note: &Note) {
    match note {
        Note::Loss(_, text) => say::warning(plain(text)),
        Note::Fault(fault) => fault_line(&fault.to_string()),
    }
}

fn fault_line(text: &str) {
    say::error(plain(text));
}

fn selection(found: &Found, events: &Events) -> Selection {
    let (since, until) = events.moments();
    let relative = [since, until].iter().flatten().any(|moment| moment.needs_end());
    let end = if relative { newest(found) } else { 0 };
    Selection {
        cpus: events.cpus().into_iter().flatten().collect(),
        channels: Vec::new(),
        events: events.globs().to_vec(),
        since: since.map(|moment| moment.resolve(end)),
        until: until.map(|moment| moment.resolve(end)),
        last: events.last(),
        once: false,
    }
}

/// The end of the newest packet, nanoseconds since the epoch.
fn newest(found: &Found) -> i64 {
    let mut newest = 0;
    for trace in &found.traces {
        for stream in &trace.streams {
            let mut reader = Reader::new(trace, stream);
            let ends = stream.packets.iter().map(|(_, entry)| entry.end).filter(|end| *end != u64::MAX);
            newest = newest.max(ends.max().and_then(|end| reader.nanoseconds(end)).unwrap_or(0));
        }
    }
    newest
}

#[derive(Serialize)]
struct Report {
    schema: &'static str,
    traces: Vec<TraceSummary>,
    faults: Vec<String>,
}

#[derive(Serialize)]
struct TraceSummary {
    path: PathBuf,
    version: &'static str,
    uid: Option<String>,
    env: serde_json::Map<String, serde_json::Value>,
    clocks: Vec<String>,
    streams: Vec<StreamSummary>,
}

#[derive(Serialize)]
struct StreamSummary {
    class: u64,
    id: Option<u64>,
    files: Vec<PathBuf>,
    packets: u64,
    events: u64,
    discarded_events: u64,
    discarded_packets: u64,
    /// Nanoseconds from the clock's origin.
    begin: Option<i64>,
    end: Option<i64>,
    faults: Vec<String>,
}

/// What is in the traces: each event is decoded.
pub(crate) fn inspect(found: &Found, json: bool) -> anyhow::Result<(String, Outcome)> {
    let bar = Shared::new("inspect", bytes(found));
    let traces: Vec<TraceSummary> = found.traces.iter().map(|trace| summary(trace, &|bytes| bar.add(bytes))).collect();
    drop(bar);
    let faults: Vec<String> = found.faults.iter().map(ToString::to_string).collect();
    let faulty = !faults.is_empty() || traces.iter().flat_map(|t| &t.streams).any(|s| !s.faults.is_empty());
    let outcome = if faulty { Outcome::Negative } else { Outcome::Done };
    if json {
        let report = Report { schema: "lastwords.inspect-ctf.v1", traces, faults };
        return Ok((serde_json::to_string_pretty(&report)? + "\n", outcome));
    }
    let mut text = String::new();
    for trace in &traces {
        write_trace(trace, &mut text)?;
    }
    faults.iter().for_each(|fault| fault_line(fault));
    Ok((text, outcome))
}

fn summary(trace: &Trace, watch: Watch<'_>) -> TraceSummary {
    use lastwords_trace::schema::EnvValue;
    let class = trace.class();
    let value = |value: &EnvValue| match value {
        EnvValue::Text(text) => serde_json::json!(text),
        EnvValue::Integer(number) => serde_json::json!(number),
    };
    TraceSummary {
        path: trace.path.clone(),
        version: if class.version == 1 { "1.8" } else { "2" },
        uid: class.identity.uid.clone(),
        env: class.env.iter().map(|(key, entry)| (key.clone(), value(entry))).collect(),
        clocks: class.clocks.iter().map(|clock| format!("{}: {} Hz", clock.id, clock.frequency)).collect(),
        streams: parallel::map(&trace.streams, parallel::cpus(), |_, stream| stream_summary(trace, stream, watch)),
    }
}

fn stream_summary(trace: &Trace, stream: &read::Stream, watch: Watch<'_>) -> StreamSummary {
    let mut reader = Reader::new(trace, stream).watched(watch);
    let mut summary = StreamSummary {
        class: trace.class().streams.get(stream.class).map_or(0, |class| class.id),
        id: stream.id,
        files: stream.files.clone(),
        packets: 0,
        events: 0,
        discarded_events: 0,
        discarded_packets: 0,
        begin: None,
        end: None,
        faults: Vec::new(),
    };
    let (mut first, mut last) = (None, None);
    loop {
        match reader.advance() {
            Next::Event(event) => {
                summary.events += 1 + reader.pass();
                first = first.or(Some(event.clock));
                last = Some(reader.clock());
            }
            Next::Packet => summary.packets += 1,
            Next::Loss(loss) if loss.packets => summary.discarded_packets += loss.count,
            Next::Loss(loss) => summary.discarded_events += loss.count,
            Next::Fault(fault) => summary.faults.push(fault.to_string()),
            Next::End => break,
        }
    }
    summary.begin = first.and_then(|clock| reader.nanoseconds(clock));
    summary.end = last.and_then(|clock| reader.nanoseconds(clock));
    summary
}

fn write_trace(trace: &TraceSummary, text: &mut String) -> std::fmt::Result {
    writeln!(text, "{}: CTF {}", plain(&trace.path.display().to_string()), trace.version)?;
    for (key, value) in &trace.env {
        writeln!(text, "  {}: {}", plain(key), plain(&value.to_string()))?;
    }
    for clock in &trace.clocks {
        writeln!(text, "  clock {}", plain(clock))?;
    }
    for stream in &trace.streams {
        let file = stream.files.first().and_then(|file| file.file_name()).unwrap_or_default();
        write!(
            text,
            "  {}: class {}, {} packets, {} events",
            plain(&file.to_string_lossy()),
            stream.class,
            stream.packets,
            stream.events
        )?;
        if stream.discarded_events + stream.discarded_packets > 0 {
            write!(text, ", discarded {} events, {} packets", stream.discarded_events, stream.discarded_packets)?;
        }
        if let (Some(begin), Some(end)) = (stream.begin, stream.end) {
            let second = |ns: i64| format!("{}.{:09}", ns.div_euclid(1_000_000_000), ns.rem_euclid(1_000_000_000));
            write!(text, ", {} to {}", second(begin), second(end))?;
        }
        text.push('\n');
        for fault in &stream.faults {
            writeln!(text, "    fault: {}", plain(fault))?;
        }
    }
    Ok(())
}

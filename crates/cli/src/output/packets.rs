//! Sessions of ours and of LTTng, and folders of CTF, written in any format.

use super::{Done, Family, Format, Job, Line, Merged, to_file};
use crate::account::{self, Notes};
use crate::input::{Lttng, Session};
use crate::names::Taken;
use crate::progress::Shared;
use crate::say;
use crate::select::Chosen;
use crate::text::bytes;
use anyhow::bail;
use lastwords_ctf::read::{self, Trace};
use lastwords_ctf::{Version, write as ctf};
use lastwords_formats::text::{self, Style, Zone};
use lastwords_formats::{Totals, json, perfetto};
use lastwords_trace::evidence::Evidence;
use std::path::Path;

/// Writes one session into the job's folder.
pub(super) fn session(job: &Job<'_>, chosen: &Chosen, session: &Session, name: &str) -> anyhow::Result<Line> {
    let format = job.format(Family::Packets);
    let path = format.path(job.output, name);
    job.room(&path)?;
    if let Some(version) = format.ctf_version() {
        return session_to_ctf(job, session, version, &path);
    }
    let traces = [session.trace(Version::V2)?];
    let (totals, notes) = to_one(&traces, (format, Style::Fields), chosen, &path)?;
    notes.tell();
    Ok(line(&traces, &path, &totals, &notes))
}

/// Writes one session as a CTF folder.
pub(super) fn session_to_ctf(job: &Job<'_>, session: &Session, version: Version, path: &Path) -> anyhow::Result<Line> {
    let source = session.source();
    let total = source.evidence().sub_buffers.iter().map(|row| row.content).fold(0, u64::saturating_add);
    let bar = Shared::new(&session.name, total);
    let options = ctf::Options { version, count_events: job.count };
    let totals = ctf::write(source, path, options, &|bytes| bar.add(bytes))?;
    drop(bar);
    let line = Line::new(path, session.name.clone(), session.origin.path.clone(), &totals);
    Ok(Line {
        events: line.events.filter(|_| job.count),
        lost_events: source.evidence().lost_events(),
        losses: source.evidence().has_losses() || totals.faults > 0,
        ..line
    })
}

/// Writes one session of LTTng as a file, and tells its account.
pub(super) fn lttng(
    job: &Job<'_>,
    chosen: &Chosen,
    lttng: &Lttng,
    format: Format,
    path: &Path,
) -> anyhow::Result<Line> {
    job.room(path)?;
    let traces = [lttng.trace()?];
    let (totals, notes) = to_one(&traces, (format, Style::Babeltrace), chosen, path)?;
    notes.tell();
    let line = Line { session: lttng.session().name.clone(), ..line(&traces, path, &totals, &notes) };
    Ok(Line { losses: account::print(&account::of_lttng(lttng.session())) | line.losses, ..line })
}

/// Writes each trace in a folder of CTF into the job's folder; why some could not be written.
pub(super) fn folders(job: &Job<'_>, chosen: &Chosen, taken: &mut Taken, done: &mut Done) -> Vec<anyhow::Error> {
    let mut errors = Vec::new();
    let format = job.format(Family::Packets);
    for trace in &job.traces.ctf {
        let name = trace.path.file_name().map_or_else(|| "ctf".into(), |name| name.to_string_lossy());
        let path = format.path(job.output, &taken.name(&name));
        let traces = std::slice::from_ref(trace);
        let written = job.room(&path).and_then(|()| match format.ctf_version() {
            Some(version) => copy(traces, version, &path),
            None => to_one(traces, (format, Style::Babeltrace), chosen, &path).map(|(totals, notes)| {
                let line = line(traces, &path, &totals, &notes);
                (line, notes.unreadable)
            }),
        });
        match written {
            Ok((line, faults)) => {
                done.failed |= faults > 0;
                job.tell(line, done);
            }
            Err(error) => errors.push(error.context(trace.path.display().to_string())),
        }
    }
    errors
}

/// Copies the packets of CTF traces into a folder of a version of CTF; the line, and how much of them could not be read.
pub(super) fn copy(traces: &[Trace], version: Version, path: &Path) -> anyhow::Result<(Line, u64)> {
    let mut notes = Notes::default();
    let bar = Shared::new(path.display().to_string(), bytes(traces));
    let totals = read::copy(traces, version, path, &|bytes| bar.add(bytes), &mut |fault| {
        notes.take(lastwords_formats::events::Note::Fault(fault));
    })?;
    drop(bar);
    Ok((line(traces, path, &totals, &notes), notes.unreadable))
}

/// Writes the chosen events of traces, merged by time, as one file; text in a style.
pub(super) fn to_one(
    traces: &[Trace],
    (format, style): (Format, Style),
    chosen: &Chosen,
    path: &Path,
) -> anyhow::Result<(Totals, Notes)> {
    // JSON reads traces without an account twice: for what is lost, then for the events.
    let again = traces.iter().filter(|trace| format == Format::Json && trace.account.is_none());
    let again = again.map(Trace::bytes).fold(0, u64::saturating_add);
    let bar = Shared::new(path.display().to_string(), bytes(traces).saturating_add(again));
    let watch = |bytes| bar.add(bytes);
    let mut notes = Notes::default();
    let mut take = |note| notes.take(note);
    let shown = chosen.once();
    let totals = match format {
        Format::Perfetto => to_file(path, |out| Ok(perfetto::packets::write(traces, &shown, out, &watch, &mut take)?))?,
        Format::Json => to_file(path, |out| Ok(json::write(traces, &chosen.selection(), out, &watch, &mut take)?))?,
        Format::Text => {
            to_file(path, |out| Ok(text::write(traces, style, &shown, &Zone::local(), out, &watch, &mut take)?))?
        }
        _ => bail!("{}: CTF is a folder a trace", path.display()),
    };
    Ok((totals, notes))
}

/// The line of traces that are written together.
pub(super) fn line(traces: &[Trace], path: &Path, totals: &Totals, notes: &Notes) -> Line {
    if totals.lost_packets > 0 {
        say::warning(format_args!("{} packets are missing between those that are there", totals.lost_packets));
    }
    let name = |trace: &Trace| {
        let class = trace.class();
        let own = class.text("trace_name").or(class.identity.name.as_deref()).filter(|_| trace.account.is_some());
        own.unwrap_or_else(|| trace.name()).to_owned()
    };
    let mut all = traces.iter().map(|trace| Merged { session: name(trace), from: trace.path.clone() });
    let (session, from) = all.next().map(|first| (first.session, first.from)).unwrap_or_default();
    let merged = all.collect();
    let accounts = || traces.iter().filter_map(|trace| trace.account.as_ref());
    let lost = accounts().map(Evidence::lost_events).fold(totals.lost_events, u64::saturating_add);
    let losses = notes.unreadable > 0 || totals.faults > 0 || totals.has_losses();
    let line = Line::new(path, session, from, totals);
    Line { lost_events: lost, losses: losses || accounts().any(Evidence::has_losses), merged, ..line }
}

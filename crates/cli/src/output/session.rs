//! Sessions, written in any format.

use super::{Format, Job, Line, to_file};
use crate::input::Session;
use crate::progress::Progress;
use crate::select::Chosen;
use crate::text::bytes;
use anyhow::bail;
use lastwords_ctf::write as ctf;
use lastwords_formats::text::{self, Style, Zone};
use lastwords_formats::{Totals, json, perfetto};
use lastwords_trace::source::Source;
use std::path::Path;

/// Writes one session into the job's folder.
pub(super) fn each(job: &Job<'_>, chosen: &Chosen, session: &Session, name: &str) -> anyhow::Result<Line> {
    let format = job.to.unwrap_or(Format::Ctf);
    let path = format.path(job.output, name);
    job.room(&path)?;
    let Some(version) = format.ctf_version() else {
        let totals = to_one(&[session.source()], format, chosen, &path)?;
        return Ok(line(session, &path, &totals, true));
    };
    let totals = to_ctf(session.source(), version, job.count, &path)?;
    Ok(line(session, &path, &totals, job.count))
}

/// Writes one session as a CTF folder.
pub(super) fn to_ctf(
    source: &dyn Source,
    version: lastwords_ctf::Version,
    count: bool,
    path: &Path,
) -> anyhow::Result<Totals> {
    let mut bar = Progress::new(&source.schema().name, bytes(&[source]));
    let mut tell = |p: lastwords_trace::merge::Progress| bar.set(p.bytes);
    Ok(ctf::write(source, path, ctf::Options { version, count_events: count }, &mut tell)?)
}

/// Writes the chosen events of sessions, merged by time, as one file.
pub(super) fn to_one(sources: &[&dyn Source], format: Format, chosen: &Chosen, path: &Path) -> anyhow::Result<Totals> {
    let mut bar = Progress::new(path.display().to_string(), bytes(sources));
    let mut tell = |p: lastwords_trace::merge::Progress| bar.set(p.bytes);
    let shown = chosen.once();
    let outcome = match format {
        Format::Perfetto => to_file(path, |out| Ok(perfetto::session::write(sources, &shown, out, &mut tell)?))?,
        Format::Json => to_file(path, |out| Ok(json::write(sources, &chosen.selection(), out, &mut tell)?))?,
        Format::Text => {
            let zone = Zone::local();
            to_file(path, |out| Ok(text::write(sources, Style::Fields, &shown, &zone, out, &mut tell)?))?
        }
        _ => bail!("{}: CTF is a folder a session", path.display()),
    };
    crate::account::print_faults(&outcome);
    Ok(Totals { streams: used(sources, &chosen.cpus), ..outcome.totals })
}

/// Streams of the chosen CPUs that have packets: what a folder of CTF has as files.
pub(super) fn used(sources: &[&dyn Source], cpus: &[u32]) -> u64 {
    let is_used = |source: &dyn Source, stream: usize| source.packets(stream).next_packet(&mut Vec::new()).is_some();
    let wants = |cpu: Option<u32>| cpus.is_empty() || cpu.is_some_and(|cpu| cpus.contains(&cpu));
    let of_one = |source: &&dyn Source| {
        let streams = source.streams().iter().enumerate().filter(|(_, stream)| wants(stream.cpu));
        streams.filter(|(at, _)| is_used(*source, *at)).count() as u64
    };
    sources.iter().map(of_one).sum()
}

/// The line of one session.
pub(super) fn line(session: &Session, path: &Path, totals: &Totals, counted: bool) -> Line {
    let source = session.source();
    let line = Line::new(path, session.name.clone(), session.origin.path.clone(), totals);
    Line {
        events: line.events.filter(|_| counted),
        lost_events: source.evidence().lost_events(),
        losses: source.evidence().has_losses() || totals.faults > 0,
        ..line
    }
}

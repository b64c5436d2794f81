//! Folders of CTF, written in any format.

use super::{Done, Family, Format, Job, Line, to_file};
use crate::input::Traces;
use crate::names::Taken;
use crate::progress::Shared;
use crate::say;
use crate::select::Chosen;
use crate::table::plain;
use crate::text::{self, Form};
use lastwords_ctf::Version;
use lastwords_ctf::read::{self, Trace};
use lastwords_formats::Totals;
use lastwords_formats::json::ctf as json;
use lastwords_formats::text::Zone;
use std::path::Path;

/// Writes each trace into the job's folder; why some could not be written.
pub(super) fn each(
    job: &Job<'_>,
    chosen: &Chosen,
    traces: Vec<Trace>,
    taken: &mut Taken,
    done: &mut Done,
) -> Vec<anyhow::Error> {
    let mut errors = Vec::new();
    for trace in traces {
        let format = job.format(Family::Packets);
        let name = trace.path.file_name().map_or_else(|| "ctf".into(), |name| name.to_string_lossy());
        let path = format.path(job.output, &taken.name(&name));
        let path_of = trace.path.clone();
        let written = job.room(&path).and_then(|()| write(vec![trace], chosen, format, &path));
        match written {
            Ok((line, faults)) => {
                done.failed |= faults > 0;
                job.tell(line, done);
            }
            Err(error) => errors.push(error.context(path_of.display().to_string())),
        }
    }
    errors
}

/// Writes traces as one file or folder; the line, and how much of them could not be read.
pub(super) fn write(traces: Vec<Trace>, chosen: &Chosen, format: Format, path: &Path) -> anyhow::Result<(Line, u64)> {
    if let Some(version) = format.ctf_version() {
        return copy(&traces, version, path);
    }
    let traces = Traces { ctf: traces, ..Traces::default() };
    let (totals, faults) = match format {
        Format::Text => {
            let title = path.display().to_string();
            let form = Form { look: None, zone: Zone::local(), with_log: false, title: Some(&title) };
            let told = to_file(path, |out| text::write(&traces, chosen, &form, out))?;
            (told.totals, told.faults)
        }
        _ => to_json(&traces.ctf, chosen, path)?,
    };
    Ok((line(&traces.ctf, path, &totals, faults), faults))
}

/// Copies the packets into a folder of a version of CTF.
pub(super) fn copy(traces: &[Trace], version: Version, path: &Path) -> anyhow::Result<(Line, u64)> {
    let mut faults = 0;
    let bar = Shared::new(path.display().to_string(), bytes(traces));
    let totals = read::copy(traces, version, path, &|bytes| bar.add(bytes), &mut |fault| {
        faults += 1;
        fault_line(&fault.to_string());
    })?;
    drop(bar);
    Ok((line(traces, path, &totals, faults), faults))
}

/// Writes the chosen events as JSON lines.
pub(super) fn to_json(traces: &[Trace], chosen: &Chosen, path: &Path) -> anyhow::Result<(Totals, u64)> {
    let mut faults = 0;
    // All is read twice: for what is lost, then for the events.
    let bar = Shared::new(path.display().to_string(), bytes(traces).saturating_mul(2));
    let totals = to_file(path, |file| {
        Ok(json::write(traces, &chosen.selection(), file, &|bytes| bar.add(bytes), &mut |fault| {
            faults += 1;
            fault_line(&fault.to_string());
        })?)
    })?;
    drop(bar);
    Ok((totals, faults))
}

/// Bytes to read.
pub(crate) fn bytes(traces: &[Trace]) -> u64 {
    traces.iter().map(Trace::bytes).fold(0, u64::saturating_add)
}

/// The line of traces that are written together.
fn line(traces: &[Trace], path: &Path, totals: &Totals, faults: u64) -> Line {
    if totals.lost_packets > 0 {
        say::warning(format_args!("{} packets are missing between those that are there", totals.lost_packets));
    }
    let mut all =
        traces.iter().map(|trace| super::Merged { session: trace.name().to_owned(), from: trace.path.clone() });
    let (session, from) = all.next().map(|first| (first.session, first.from)).unwrap_or_default();
    let merged = all.collect();
    let line = Line::new(path, session, from, totals);
    Line { lost_events: totals.lost_events, losses: faults > 0 || totals.has_losses(), merged, ..line }
}

/// Says that something cannot be read.
pub(crate) fn fault_line(text: &str) {
    say::error(plain(text));
}

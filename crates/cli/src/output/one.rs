//! `convert`: one file of all traces; of CTF a folder, or a folder for each trace.

use super::{Done, Format, Job, Line, Merged, folder, is_stdout, lttng, machine, packets, to_file};
use crate::account;
use crate::input::Arrays;
use crate::names::Taken;
use crate::text::{self, Form};
use anyhow::bail;
use lastwords_ctf::Version;
use lastwords_formats::text::{Style, Zone};
use lastwords_trace::evidence::Evidence;
use std::path::PathBuf;

/// Writes all traces as one output.
///
/// # Errors
/// The format cannot hold what there is; it cannot be written.
pub(crate) fn one(mut job: Job<'_>) -> anyhow::Result<Done> {
    let format = job.to.or_else(|| Format::of_path(job.output)).unwrap_or(Format::Ctf);
    job.to = Some(format);
    check_stdout(&job, format)?;
    job.traces.choose(if format.holds_all() { Arrays::All } else { Arrays::Top })?;
    job.check()?;
    job.traces.check_readable()?;
    let chosen = job.events.choose(job.traces)?;
    job.room(job.output)?;
    check_together(&job, format)?;
    let mut done = Done::default();
    match format {
        Format::Ctf | Format::Ctf2 => folders(&job, &chosen, &mut done)?,
        Format::Text => {
            let path = job.output;
            let title = path.display().to_string();
            let title = (!is_stdout(path)).then_some(title.as_str());
            let form = Form { look: None, zone: Zone::local(), with_log: job.with_log, title };
            let mut told = text::Told::default();
            to_file(path, |out| {
                told = text::write(job.traces, &chosen, &form, out)?;
                Ok(())
            })?;
            done.failed |= told.notes.unreadable > 0;
            told.notes.tell();
            done.lines.push(line(&job, &told.totals));
        }
        _ if job.traces.arrays.len() < job.traces.len() => {
            let traces = job.traces.packets(Version::V2)?;
            let (totals, notes) = packets::to_one(&traces, (format, Style::Fields), &chosen, job.output)?;
            done.failed |= notes.unreadable > 0;
            notes.tell();
            done.lines.push(packets::line(&traces, job.output, &totals, &notes));
        }
        _ => done.lines.push(machine::one(&job, &chosen, format)?),
    }
    let shown = done.events();
    if !matches!(format, Format::Ctf | Format::Ctf2) {
        done.nothing = chosen.tell_empty(job.traces, shown);
    }
    finish(&job, done)
}

/// Adds what is known of losses to the lines, and tells of them.
fn finish(job: &Job<'_>, mut done: Done) -> anyhow::Result<Done> {
    for mut line in std::mem::take(&mut done.lines) {
        line.unreadable |= job.traces.has_unreadable();
        job.tell(line, &mut done);
    }
    done.losses |= account::print_all(job.traces, job.json);
    job.end(done)
}

/// What is to go to stdout can.
fn check_stdout(job: &Job<'_>, format: Format) -> anyhow::Result<()> {
    if !is_stdout(job.output) {
        return Ok(());
    }
    if matches!(format, Format::Ctf | Format::Ctf2 | Format::TraceDat) {
        bail!(
            "-: stdout takes text, json and perfetto; other formats are folders and files: name one (./- for one called so)"
        );
    }
    if job.json {
        bail!("--json prints on stdout, which is the output already; name a file for that");
    }
    Ok(())
}

/// The traces fit into one file of the format.
fn check_together(job: &Job<'_>, format: Format) -> anyhow::Result<()> {
    if matches!(format, Format::Ctf | Format::Ctf2 | Format::Text) {
        return Ok(());
    }
    let traces = &job.traces;
    if !traces.arrays.is_empty() && traces.arrays.len() < traces.len() {
        bail!(
            "one file of {} does not hold a kernel's trace and other traces together: use `lastwords recover`, which writes a \
             file for each, --to text, or --session to choose",
            format.word()
        );
    }
    let machines: Vec<_> = traces.origins.iter().filter(|origin| origin.machine.is_some()).collect();
    let used = machines.iter().filter(|origin| traces.arrays.iter().any(|a| std::sync::Arc::ptr_eq(&a.origin, origin)));
    match used.count() {
        0 | 1 if traces.arrays.len() < 2 || format.holds_all() => Ok(()),
        0 | 1 => bail!("{}: one instance fits in it; name one by --instance", job.output.display()),
        count => bail!("{count} kernels' traces; give them one by one, each with its own --output"),
    }
}

/// CTF: one trace is the folder that was named, several are folders in it.
fn folders(job: &Job<'_>, chosen: &crate::select::Chosen, done: &mut Done) -> anyhow::Result<()> {
    let traces = &job.traces;
    let count = traces.sessions.len()
        + traces.arrays.len()
        + usize::from(!traces.lttng.is_empty())
        + usize::from(!traces.ctf.is_empty());
    if count > 1 {
        folder(job.output)?;
    }
    let mut taken = Taken::default();
    let mut path =
        |name: &str| -> PathBuf { if count > 1 { job.output.join(taken.name(name)) } else { job.output.to_owned() } };
    let version = job.to.and_then(Format::ctf_version).unwrap_or(Version::V1_8);
    for at in &traces.sessions {
        let path = path(&at.name);
        done.lines.push(packets::session_to_ctf(job, at, version, &path)?);
    }
    for array in &traces.arrays {
        let format = job.to.unwrap_or(Format::Ctf);
        let part = machine::Part::new(job, chosen, std::slice::from_ref(array))?;
        done.lines.push(machine::write(&part, format, "trace", &path(&array.name))?);
    }
    if !traces.lttng.is_empty() {
        lttng::each(job, chosen, &traces.lttng, &path("lttng"), &mut Taken::default(), done)?;
    }
    if !traces.ctf.is_empty() {
        let (line, faults) = packets::copy(&traces.ctf, version, &path("ctf"))?;
        done.failed |= faults > 0;
        done.lines.push(line);
    }
    Ok(())
}

/// The line of one text with all traces.
fn line(job: &Job<'_>, totals: &lastwords_formats::Totals) -> Line {
    let traces = &job.traces;
    let sessions = traces.sessions.iter().map(|s| (s.source().schema().name.clone(), s.origin.path.clone()));
    let lttng = traces.lttng.iter().map(|l| (l.session().name.clone(), l.origin.path.clone()));
    let ctf = traces.ctf.iter().map(|trace| (trace.name().to_owned(), trace.path.clone()));
    let arrays = traces.arrays.iter().map(|array| ("trace".to_owned(), array.origin.path.clone()));
    let mut all = sessions.chain(lttng).chain(ctf).chain(arrays).map(|(session, from)| Merged { session, from });
    let first = all.next();
    let (session, from) = first.map(|first| (first.session, first.from)).unwrap_or_default();
    let merged = all.collect();
    let sessions = traces.sessions.iter().map(|session| session.source().evidence());
    let lttng = traces.lttng.iter().map(|lttng| &lttng.session().evidence);
    let arrays = traces.arrays.iter().filter_map(|array| account::of_array(array, traces.snapshot, true));
    let arrays: Vec<Evidence> = arrays.map(|account| account.evidence.into_owned()).collect();
    let accounts: Vec<&Evidence> = sessions.chain(lttng).chain(&arrays).collect();
    let lost = accounts.iter().map(|account| account.lost_events()).fold(totals.lost_events, u64::saturating_add);
    let losses = totals.faults > 0 || totals.has_losses() || accounts.iter().any(|account| account.has_losses());
    Line { lost_events: lost, losses, merged, ..Line::new(job.output, session, from, totals) }
}

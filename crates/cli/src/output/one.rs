//! `convert`: one file of all traces; of CTF a folder, or a folder for each trace.

use super::{Done, Format, Job, Line, Merged, ctf, folder, is_stdout, lttng, machine, session, to_file};
use crate::account;
use crate::input::Arrays;
use crate::names::Taken;
use crate::text::{self, Form};
use anyhow::bail;
use lastwords_formats::text::Zone;
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
    let chosen = job.events.choose(job.traces)?;
    job.room(job.output)?;
    let recovered = lttng::unpack(job.traces)?;
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
            done.failed |= told.faults > 0;
            account::print_faults(&told.outcome);
            done.lines.push(line(&job, &told.totals));
        }
        _ if !job.traces.sessions.is_empty() => {
            let totals = session::to_one(&job.traces.sources(), format, &chosen, job.output)?;
            done.lines.push(line(&job, &totals));
        }
        _ if !job.traces.ctf.is_empty() => {
            let (totals, faults) = ctf::to_json(&job.traces.ctf, &chosen, job.output)?;
            done.failed |= faults > 0;
            done.lines.push(line(&job, &totals));
        }
        _ => done.lines.push(machine::one(&job, &chosen, format)?),
    }
    let shown = done.events();
    if !matches!(format, Format::Ctf | Format::Ctf2) {
        done.nothing = chosen.tell_empty(job.traces, shown);
    }
    finish(&job, &recovered, done)
}

/// Adds what is known of losses to the lines, and tells of them.
fn finish(job: &Job<'_>, recovered: &lttng::Recovered, mut done: Done) -> anyhow::Result<Done> {
    if let ([first, more @ ..], [line]) = (recovered.lines.as_slice(), done.lines.as_mut_slice())
        && job.traces.sessions.is_empty()
        && job.traces.arrays.is_empty()
    {
        (line.session, line.from) = (first.session.clone(), first.from.clone());
        line.merged = more.iter().map(|l| Merged { session: l.session.clone(), from: l.from.clone() }).collect();
    }
    for line in &mut done.lines {
        line.losses |= recovered.losses();
        line.unreadable |= recovered.is_unreadable();
    }
    for line in std::mem::take(&mut done.lines) {
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
    let kinds = [traces.sessions.is_empty(), traces.ctf.is_empty(), traces.arrays.is_empty()];
    if kinds.iter().filter(|is_empty| !**is_empty).count() > 1 {
        bail!(
            "one file of {} does not hold sessions, CTF and a kernel's trace together: use `lastwords recover`, which writes a \
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
    let count = traces.sessions.len() + traces.arrays.len() + usize::from(!traces.ctf.is_empty());
    if count > 1 {
        folder(job.output)?;
    }
    let mut taken = Taken::default();
    let mut path =
        |name: &str| -> PathBuf { if count > 1 { job.output.join(taken.name(name)) } else { job.output.to_owned() } };
    let version = job.to.and_then(Format::ctf_version).unwrap_or(lastwords_ctf::Version::V1_8);
    for at in &traces.sessions {
        let path = path(&at.name);
        let totals = session::to_ctf(at.source(), version, job.count, &path)?;
        done.lines.push(session::line(at, &path, &totals, job.count));
    }
    for array in &traces.arrays {
        let format = job.to.unwrap_or(Format::Ctf);
        let part = machine::Part::new(job, chosen, std::slice::from_ref(array))?;
        done.lines.push(machine::write(&part, format, "trace", &path(&array.name))?);
    }
    if !traces.ctf.is_empty() {
        let (line, faults) = ctf::copy(&traces.ctf, version, &path("ctf"))?;
        done.failed |= faults > 0;
        done.lines.push(line);
    }
    Ok(())
}

/// The line of one file with all traces.
fn line(job: &Job<'_>, totals: &lastwords_formats::Totals) -> Line {
    let traces = &job.traces;
    let sessions = traces.sessions.iter().map(|s| (s.source().schema().name.clone(), s.origin.path.clone()));
    let ctf = traces.ctf.iter().map(|trace| (trace.name().to_owned(), trace.path.clone()));
    let arrays = traces.arrays.iter().map(|array| ("trace".to_owned(), array.origin.path.clone()));
    let mut all = sessions.chain(ctf).chain(arrays).map(|(session, from)| Merged { session, from });
    let first = all.next();
    let (session, from) = first.map(|first| (first.session, first.from)).unwrap_or_default();
    let merged = all.collect();
    let evidence = || traces.sessions.iter().map(|s| s.source().evidence());
    let lost: u64 = evidence().map(lastwords_trace::evidence::Evidence::lost_events).fold(0, u64::saturating_add);
    let losses =
        totals.faults > 0 || totals.has_losses() || evidence().any(lastwords_trace::evidence::Evidence::has_losses);
    Line {
        lost_events: lost.saturating_add(totals.lost_events),
        losses,
        merged,
        ..Line::new(job.output, session, from, totals)
    }
}

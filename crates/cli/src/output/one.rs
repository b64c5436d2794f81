//! `convert`: one file of all traces; of CTF a folder, or a folder for each trace.

use super::write::Writing;
use super::{Done, Format, Job, Merged, folder, is_stdout, lttng};
use crate::account;
use crate::input::{Arrays, Traces};
use crate::names::Taken;
use crate::select::Chosen;
use anyhow::bail;

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
    if format.ctf_version().is_some() {
        folders(&mut job, &chosen, format, &mut done)?;
    } else {
        let writing = Writing { job: &job, chosen: &chosen, traces: job.traces, path: job.output };
        done.lines.push(writing.run(format)?);
        done.nothing = chosen.tell_empty(job.traces, done.events());
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
fn folders(job: &mut Job<'_>, chosen: &Chosen, format: Format, done: &mut Done) -> anyhow::Result<()> {
    let Traces { sessions, ctf, arrays, snapshot, .. } = &mut *job.traces;
    let part = || Traces { snapshot: *snapshot, ..Traces::default() };
    let mut units: Vec<(String, Traces)> = Vec::new();
    for session in sessions.drain(..) {
        units.push((session.name.clone(), Traces { sessions: vec![session], ..part() }));
    }
    units.extend(arrays.iter().map(|array| (array.name.clone(), Traces { arrays: vec![array.clone()], ..part() })));
    if !ctf.is_empty() {
        units.push(("ctf".to_owned(), Traces { ctf: std::mem::take(ctf), ..part() }));
    }
    if units.len() > 1 {
        folder(job.output)?;
    }
    let (mut taken, is_one) = (Taken::default(), units.len() == 1);
    for (name, mut traces) in units {
        let path = if is_one { job.output.to_owned() } else { job.output.join(taken.name(&name)) };
        done.lines.push(Writing { job, chosen, traces: &traces, path: &path }.run(format)?);
        job.traces.sessions.append(&mut traces.sessions);
        job.traces.ctf.append(&mut traces.ctf);
    }
    Ok(())
}

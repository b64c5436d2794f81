//! Implements `convert`: writes one file of all traces. For CTF it writes a folder, or a folder for
//! each trace.

#[cfg(feature = "arrow")]
use super::tables;
use super::write::Writing;
use super::{Done, Family, Format, Job, folder, is_stdout, lttng};
use crate::select::Chosen;
use crate::traces::{Arrays, Traces};
use crate::{account, clocks};
use anyhow::bail;
use lastwords_open::{Body, FileNames, Trace};

/// Why the traces of applications are not in a kernel's file.
const APART: &str = "a trace.dat file has a kernel's trace, or those of applications; `lastwords recover` writes a file for each";

/// Writes all traces as one output.
///
/// # Errors
/// The format cannot hold the traces; the output cannot be written.
pub(crate) fn one(mut job: Job<'_>) -> anyhow::Result<Done> {
    let format = job.to.map_or_else(|| Format::of_output(job.output), Ok)?;
    job.to = Some(format);
    #[cfg(feature = "arrow")]
    if format == Format::Parquet && tables::is_data_set(job.output) {
        return tables::data_set(job);
    }
    check_stdout(&job, format)?;
    job.traces.choose(if format.holds_all() { Arrays::All } else { Arrays::Top })?;
    if format == Format::TraceDat && job.traces.has_arrays() {
        job.leave_out(Family::Packets, APART);
    }
    job.check()?;
    account::check_readable(job.traces)?;
    let chosen = job.events.choose(job.traces)?;
    check_together(&job, format)?;
    job.check_room(job.output)?;
    let mut done = Done::default();
    match format {
        Format::Ctf | Format::Ctf2 | Format::TraceDat => {}
        Format::Text => clocks::note_merged(job.traces, false),
        Format::Json | Format::Perfetto => clocks::note_merged(job.traces, true),
        Format::Otlp => clocks::note_undated(job.traces),
        #[cfg(feature = "arrow")]
        Format::Parquet | Format::Arrow => clocks::note_undated(job.traces),
        // No trace is written so, and `check` refused it.
        #[cfg(feature = "perf")]
        Format::PerfData => {}
    }
    if format.ctf_version().is_some() {
        folders(&job, &chosen, format, &mut done)?;
    } else {
        let (line, accounts) =
            Writing { job: &job, chosen: &chosen, traces: job.traces, path: job.output }
                .run(format)?;
        job.add_line(line, &mut done);
        done.nothing = chosen.report_empty(job.traces, done.events());
        job.account(job.traces, &accounts, &mut done);
    }
    job.end(done)
}

/// Checks that stdout can take the output.
fn check_stdout(job: &Job<'_>, format: Format) -> anyhow::Result<()> {
    if !is_stdout(job.output) {
        return Ok(());
    }
    if matches!(format, Format::Ctf | Format::Ctf2 | Format::TraceDat) {
        bail!(
            "-: stdout takes text, json, perfetto, otlp, parquet and arrow; other formats are folders and files: name one (./- for one called so)"
        );
    }
    if job.json {
        bail!("--json prints on stdout, which is the output already; name a file for that");
    }
    Ok(())
}

/// Checks that the kernels' traces fit into one file of the format.
fn check_together(job: &Job<'_>, format: Format) -> anyhow::Result<()> {
    if !matches!(format, Format::TraceDat | Format::Perfetto) {
        return Ok(());
    }
    let traces = &job.traces;
    let machines: Vec<_> =
        traces.origins.iter().filter(|origin| origin.machine.is_some()).collect();
    let used = machines
        .iter()
        .filter(|origin| traces.arrays().any(|a| std::sync::Arc::ptr_eq(&a.origin, origin)));
    match used.count() {
        0 | 1 if traces.arrays().count() < 2 || format.holds_all() => Ok(()),
        0 | 1 => bail!("{}: one instance fits in it; name one by --instance", job.output.display()),
        count => bail!("{count} kernels' traces; give them one by one, each with its own --output"),
    }
}

/// Writes CTF. A single trace becomes the folder that was named; several become folders in it.
fn folders(job: &Job<'_>, chosen: &Chosen, format: Format, done: &mut Done) -> anyhow::Result<()> {
    let of = |wanted: fn(&Body) -> bool| {
        Traces::new(job.traces.all.iter().filter(|t| wanted(&t.body)).cloned().collect())
    };
    let one = |trace: &Trace| (trace.name.clone(), Traces::new(vec![trace.clone()]));
    let (ctf, lttng) =
        (of(|body| matches!(body, Body::Ctf(_))), of(|body| matches!(body, Body::Lttng(_))));
    let mut units: Vec<(String, Traces)> =
        of(|body| matches!(body, Body::Session(_))).all.iter().map(one).collect();
    units.extend(job.traces.arrays().map(one));
    if !ctf.all.is_empty() {
        units.push(("ctf".to_owned(), ctf));
    }
    let is_one = units.len() + usize::from(!lttng.all.is_empty()) == 1;
    if !is_one || !lttng.all.is_empty() {
        job.make_room(job.output)?;
        folder(job.output)?;
    }
    let mut names = FileNames::default();
    for (name, traces) in units {
        let path =
            if is_one { job.output.to_owned() } else { job.output.join(names.unique(&name)) };
        let (line, accounts) = Writing { job, chosen, traces: &traces, path: &path }.run(format)?;
        job.add_line(line, done);
        job.account(&traces, &accounts, done);
    }
    let into = if is_one { job.output.to_owned() } else { job.output.join(names.unique("lttng")) };
    if !lttng.all.is_empty() {
        folder(&into)?;
        lttng::write(job, &lttng, &into, &mut FileNames::default(), done)?;
    }
    Ok(())
}

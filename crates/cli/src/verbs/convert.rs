//! `lastwords convert`: a trace in another format.

use crate::evidence;
use crate::exit::Outcome;
use crate::ftrace::{self, Machine};
use crate::inputs::{self, Input, Lacking};
use crate::lttng;
use crate::memory::Memory;
use crate::names::Taken;
use crate::output::machine::{Part, write};
use crate::output::{self, Format, Line, Merged, session};
use crate::select::{Events, Which};
use crate::verbs::recover::kernel::{left_out, wants_lttng};
use crate::verbs::recover::lttng::recovered;
use anyhow::bail;
use lastwords_ctf::read::Found;
use lastwords_trace::source::Source;
use std::path::PathBuf;

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "lastwords convert [OPTIONS] --output <OUT> --to <FORMAT> <TRACE>...\n       lastwords convert [OPTIONS] --output <OUT> --to <FORMAT> --pid <PID>"
)]
pub(crate) struct Args {
    /// A trace.dat file or kernel crash dump; or sessions' folders or names, process cores (several are merged by time, but
    /// for CTF); folders of CTF traces
    #[arg(value_name = "TRACE", required_unless_present = "pid")]
    inputs: Vec<String>,

    /// File to write (`-`: stdout, for text, json and perfetto); for CTF the folder
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,

    /// What to write
    #[arg(long, value_enum, value_name = "FORMAT")]
    to: Format,

    #[command(flatten)]
    which: Which,

    #[command(flatten)]
    memory: Memory,

    #[command(flatten)]
    events: Events,

    /// Where the description of the events of LTTng's user-space streams is: a metadata file, or a core of its session or
    /// consumer daemon
    #[arg(long, value_name = "FILE")]
    metadata: Option<PathBuf>,

    /// The kernel's log among the events, where its memory is the input: text, json, perfetto
    #[arg(long)]
    with_log: bool,

    /// Print data instead of lines
    #[arg(long)]
    json: bool,

    /// Exit with 3 where events were lost
    #[arg(long)]
    strict: bool,
}

/// Converts.
pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    inputs::check(&args.inputs)?;
    check_stdout(args)?;
    let (lines, lacking) = match ftrace::open_all(&args.inputs, &args.memory)? {
        Some(mut machines) if wants_lttng(&args.which, &machines) => {
            return of_lttng(args, &mut lttng::of_machines(&mut machines));
        }
        Some(machines) => (vec![of_kernel(args, &machines)?], Lacking::Nothing),
        None => {
            args.memory.refuse()?;
            if let Some(mut inputs) = lttng::open_user(&args.inputs, args.metadata.as_deref())? {
                return of_lttng(args, &mut inputs);
            }
            if args.metadata.is_some() {
                bail!("--metadata is for LTTng's user-space streams, and the input is none");
            }
            if let Some(found) = crate::ctf::open_all(&args.inputs)? {
                return of_traces(args, &found, &[]);
            }
            if args.with_log {
                bail!("--with-log is for a kernel's memory; a session has no log");
            }
            inputs::reading(&args.inputs, &args.which, |found| Ok((of_sessions(args, &found.inputs)?, found.lacking)))?
        }
    };
    tell(args, &lines)?;
    Ok(lacking.outcome(args.strict, lines.iter().any(|line| line.losses)))
}

/// What is to go to stdout can.
fn check_stdout(args: &Args) -> anyhow::Result<()> {
    if !output::is_stdout(&args.output) {
        return Ok(());
    }
    if matches!(args.to, Format::Ctf | Format::Ctf2 | Format::TraceDat) {
        bail!(
            "-: stdout takes text, json and perfetto; other formats are folders and files: name one (./- for one called so)"
        );
    }
    if args.json {
        bail!("--json prints on stdout, which is the output already; name a file for that");
    }
    Ok(())
}

/// Lines of what was written, unless that is on stdout itself.
fn tell(args: &Args, lines: &[Line]) -> anyhow::Result<()> {
    if output::is_stdout(&args.output) { Ok(()) } else { output::tell(lines, args.json) }
}

/// Converts CTF traces; `lines` tell how those were recovered that are no input themselves.
fn of_traces(args: &Args, found: &Found, lines: &[Line]) -> anyhow::Result<Outcome> {
    let (mut line, outcome) = crate::ctf::convert(found, &args.events, args.to, &args.output)?;
    if let Some(first) = lines.first() {
        (line.session, line.from) = (first.session.clone(), first.from.clone());
        line.merged =
            lines.iter().skip(1).map(|l| Merged { session: l.session.clone(), from: l.from.clone() }).collect();
    }
    line.losses |= lines.iter().any(|line| line.losses);
    line.unreadable = lines.iter().any(|line| line.unreadable);
    let lines = [line];
    tell(args, &lines)?;
    Ok(if args.strict || outcome == Outcome::Done { output::outcome(args.strict, &lines) } else { outcome })
}

/// Converts sessions of LTTng, merged by time.
fn of_lttng(args: &Args, inputs: &mut [lttng::Input]) -> anyhow::Result<Outcome> {
    if args.with_log {
        bail!("--with-log is for the kernel's own trace; a session of LTTng has no log");
    }
    crate::ctf::check(args.to)?;
    let recovered = recovered(&args.which, inputs)?;
    of_traces(args, &recovered.traces, &recovered.lines)
}

fn of_kernel(args: &Args, machines: &[Machine]) -> anyhow::Result<Line> {
    args.events.refuse_channels()?;
    let [machine] = machines else {
        bail!("{} kernels' traces; give them one by one, each with its own --output", machines.len());
    };
    if args.to == Format::TraceDat {
        args.events.refuse("a trace.dat file is written whole")?;
    }
    let arrays = match args.which.sessions.is_empty() && args.to.holds_all() {
        true => (0..machine.tracing.arrays.len()).collect(),
        false => ftrace::arrays(machine, &args.which)?,
    };
    let choice = ftrace::choice(machine, &arrays, &args.which, &args.events);
    let log = if args.with_log { ftrace::log(machine)? } else { Vec::new() };
    let part = Part { machine, arrays: &arrays, choice: &choice, log: &log };
    left_out(machine, &args.which);
    write(&part, args.to, "trace", &args.output)
}

fn of_sessions(args: &Args, sessions: &[Input]) -> anyhow::Result<Vec<Line>> {
    let lines = match args.to.ctf_version() {
        Some(version) => ctf_folders(args, sessions, version)?,
        None => {
            let sources: Vec<&dyn Source> = sessions.iter().map(|s| &*s.session as &dyn Source).collect();
            let totals = session::to_one(
                &sessions.iter().collect::<Vec<_>>(),
                args.to,
                &args.events.selection(&sources),
                &args.output,
            )?;
            let Some(first) = sessions.first() else { return Ok(Vec::new()) };
            args.events.tell_empty(&sources, totals.events);
            let mut line = session::line(first, &args.output, &totals, true);
            let merged = sessions.iter().skip(1);
            line.merged =
                merged.map(|s| Merged { session: s.session.schema().name.clone(), from: s.from.clone() }).collect();
            let all = sources.iter().map(|source| source.evidence());
            line.lost_events = all.clone().map(lastwords_trace::evidence::Evidence::lost_events).sum();
            line.losses = totals.faults > 0 || all.clone().any(lastwords_trace::evidence::Evidence::has_losses);
            vec![line]
        }
    };
    if !args.json {
        sessions.iter().for_each(evidence::print);
    }
    Ok(lines)
}

/// One session is written as the folder that was named, several as folders in it.
fn ctf_folders(args: &Args, sessions: &[Input], version: lastwords_ctf::Version) -> anyhow::Result<Vec<Line>> {
    args.events.refuse("CTF is copied packet by packet")?;
    let mut taken = Taken::default();
    let mut lines = Vec::new();
    if sessions.len() > 1 {
        output::folder(&args.output)?;
    }
    for input in sessions {
        let path = match sessions.len() {
            1 => args.output.clone(),
            _ => args.output.join(taken.name(&input.session.schema().name)),
        };
        let totals = session::to_ctf(&*input.session, version, true, &path)?;
        lines.push(session::line(input, &path, &totals, true));
    }
    Ok(lines)
}

//! Implements `lastwords recover` and `lastwords convert`: writes traces as files and folders, and
//! prints a line for each.

use crate::exit::{Facts, Outcome};
use crate::input::{Input, Search};
use crate::output::{self, Format, Job};
use crate::select::Events;
use crate::traces::Traces;
use crate::verbs::finish_consuming;
use lastwords_open::FileNames;
use std::path::{Path, PathBuf};

/// The options that `recover` and `convert` share.
#[derive(Debug, Clone, Default, clap::Args)]
struct Common {
    #[command(flatten)]
    input: Input,

    /// The format. Its help lists the formats that there are
    #[arg(long, value_enum, value_name = "FORMAT", hide_possible_values = true, help = Format::words(), long_help = Format::help())]
    to: Option<Format>,

    #[command(flatten)]
    events: Events,

    /// Write the kernel's log among the events
    ///
    /// The input must be the kernel's memory, and the format text, json, perfetto or otlp.
    #[arg(long)]
    with_log: bool,

    /// Replace existing files and folders of CTF
    #[arg(long)]
    force: bool,

    /// Print JSON in place of lines
    #[arg(long)]
    json: bool,

    /// Exit with status 3 if events were lost
    #[arg(long)]
    strict: bool,

    /// Says where fields are chosen. It is not an option
    #[arg(short = 'F', long, hide = true, value_name = "LIST", value_parser = refuse_fields)]
    fields: Option<String>,
}

fn refuse_fields(_: &str) -> Result<String, &'static str> {
    Err(
        "only `report` prints chosen fields; JSON lines have all fields, and jq chooses: jq -c '{time, id: .fields.id}'",
    )
}

/// The arguments of `recover`.
#[derive(Debug, Default, clap::Args)]
#[command(
    override_usage = "lastwords recover [OPTIONS] --output <OUT> <INPUT>...\n       lastwords recover [OPTIONS] --output <OUT> --pid <PID>"
)]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,

    /// The folder to write into, a folder or file for each trace
    ///
    /// It is made if it does not exist. If the extension of OUT names a format, OUT is one file
    /// for all traces.
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,

    /// Search all of the memory, even if no structure leads there
    ///
    /// The search finds sub-buffers of sessions and of ftrace (as text), and LTTng's packets (with
    /// --metadata FILE).
    #[arg(long)]
    carve: bool,

    /// Consume the events that are written
    ///
    /// The next run with --consume begins after them, and a session in discard mode has room for
    /// new events again. This works for sessions in their folders.
    #[arg(long, conflicts_with_all = ["pid", "metadata", "with_log", "carve", "cpus", "channels", "events", "level", "filter", "since", "until", "last"])]
    consume: bool,
}

/// The arguments of `convert`.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "lastwords convert [OPTIONS] --output <OUT> <INPUT>...\n       lastwords convert [OPTIONS] --output <OUT> --pid <PID>"
)]
pub(crate) struct Convert {
    #[command(flatten)]
    common: Common,

    /// The file to write, with all traces merged by time
    ///
    /// `-` is stdout, for text, json, perfetto, otlp, parquet and arrow. For CTF, OUT is a folder.
    /// With `--to parquet`, a folder that exists or `OUT/` is a data set, to which the crashes in
    /// the input are added, as `lastwords ingest` does.
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,
}

/// Runs `recover`.
pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let of_path = Format::of_path(&args.output);
    let is_file = of_path.is_some_and(|format| args.common.to.is_none_or(|to| to == format));
    #[cfg(feature = "perf")]
    if args.common.to.or(of_path) == Some(Format::PerfData) {
        if args.carve || args.consume {
            anyhow::bail!("--carve and --consume are for traces; perf-data has buffers of perf");
        }
        return perf_data(&args.common, &args.output, is_file);
    }
    let write = |traces: &mut Traces| {
        let target = Target { output: &args.output, carve: args.carve, is_one: is_file };
        write(&args.common, &target, traces)
    };
    if args.consume {
        return finish_consuming(args.common.input.consume(write)?);
    }
    let search = if args.carve { Search::Carved } else { Search::Checked };
    args.common.input.read(search, |mut traces| write(&mut traces)).map(|(outcome, _)| outcome)
}

/// Runs `convert`.
pub(crate) fn convert(args: &Convert) -> anyhow::Result<Outcome> {
    #[cfg(feature = "perf")]
    if args.common.to.map_or_else(|| Format::of_output(&args.output), Ok)? == Format::PerfData {
        return perf_data(&args.common, &args.output, true);
    }
    let target = Target { output: &args.output, carve: false, is_one: true };
    args.common
        .input
        .read(Search::Checked, |mut traces| write(&args.common, &target, &mut traces))
        .map(|(outcome, _)| outcome)
}

/// Writes the buffers of perf in the memory of kernels.
#[cfg(feature = "perf")]
fn perf_data(args: &Common, output: &Path, is_one: bool) -> anyhow::Result<Outcome> {
    let Common { input, events, with_log, force, json, strict, .. } = args;
    if *with_log {
        anyhow::bail!("--with-log is for text, json, perfetto and otlp");
    }
    let mut none = Traces::new(Vec::new());
    let job = Job {
        traces: &mut none,
        events,
        to: Some(Format::PerfData),
        output,
        with_log: false,
        json: *json,
        force: *force,
        carve: false,
    };
    let (done, worst_failure) = output::perf_data(input, job, is_one)?;
    let (strict, losses, failed, nothing) = (*strict, done.losses, done.failed, done.nothing);
    Ok(Facts { strict, losses, worst_failure, failed, nothing }.outcome())
}

/// The options in which the verbs differ.
struct Target<'a> {
    output: &'a Path,
    carve: bool,
    /// All traces are written into one file.
    is_one: bool,
}

/// Writes the traces. Returns the result, and whether everything was written.
fn write(
    args: &Common,
    target: &Target<'_>,
    traces: &mut Traces,
) -> anyhow::Result<(Outcome, bool)> {
    let Common { to, events, with_log, force, json, strict, .. } = args;
    let Target { output, carve, is_one } = *target;
    let (to, with_log, json, force) = (*to, *with_log, *json, *force);
    let job = Job { traces: &mut *traces, events, to, output, with_log, json, force, carve };
    let done = if is_one { output::one(job)? } else { output::each(job)? };
    let (strict, losses, failed, nothing) = (*strict, done.losses, done.failed, done.nothing);
    let worst_failure = traces.worst_failure;
    Ok((Facts { strict, losses, worst_failure, failed, nothing }.outcome(), !failed))
}

/// Writes each trace of an input into a folder, as `recover` does.
///
/// # Errors
/// Same as those of `recover`.
#[cfg(feature = "guests")]
pub(crate) fn from(
    input: Input,
    output: &Path,
    to: Option<Format>,
    force: bool,
) -> anyhow::Result<Outcome> {
    let common = Common { input, to, force, ..Common::default() };
    run(&Args { common, output: output.to_owned(), ..Args::default() })
}

/// Prepares the folder into which [`snapshot_of`] writes.
///
/// # Errors
/// The snapshot of a session with that name cannot be written there.
pub(crate) fn check_snapshot(name: &str, output: &Path) -> anyhow::Result<()> {
    output::folder(output)?;
    output::check_new(&Format::Ctf.path(output, &FileNames::default().unique(name)))
}

/// Writes the snapshot of the session in a folder as CTF. The caller marks the snapshot as being
/// read.
pub(crate) fn snapshot_of(folder: &Path, output: &Path) -> anyhow::Result<Outcome> {
    let input = Input::of_session(&folder.to_string_lossy(), true);
    let common = Common { input, to: Some(Format::Ctf), ..Common::default() };
    let target = Target { output, carve: false, is_one: false };
    common.input.find(|mut traces| write(&common, &target, &mut traces)).map(|(outcome, _)| outcome)
}

//! `lastwords recover` and `lastwords convert`: traces as files and folders, and a line for each.

use crate::exit::{Facts, Outcome};
use crate::input::{Input, Traces};
use crate::output::{self, Format, Job};
use crate::select::Events;
use crate::verbs::settle;
use lastwords_open::FileNames;
use std::path::{Path, PathBuf};

/// What `recover` and `convert` share.
#[derive(Debug, Clone, Default, clap::Args)]
struct Common {
    #[command(flatten)]
    input: Input,

    /// What to write; without it, what the ending of OUT says (.json, .jsonl, .txt, .dat, .perfetto-trace, .pftrace), or else ctf, and
    /// for a kernel's trace trace-dat
    #[arg(long, value_enum, value_name = "FORMAT")]
    to: Option<Format>,

    #[command(flatten)]
    events: Events,

    /// The kernel's log among the events, where its memory is the input: text, json, perfetto
    #[arg(long)]
    with_log: bool,

    /// Replace files, and folders of CTF, that are in the way
    #[arg(long)]
    force: bool,

    /// Print data instead of lines
    #[arg(long)]
    json: bool,

    /// Exit with 3 where events were lost
    #[arg(long)]
    strict: bool,
}

/// Arguments of `recover`.
#[derive(Debug, Default, clap::Args)]
#[command(
    override_usage = "lastwords recover [OPTIONS] --output <OUT> <INPUT>...\n       lastwords recover [OPTIONS] --output <OUT> --pid <PID>"
)]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,

    /// Folder to write into, one folder or file a trace, which is made where it is missing; or one file for all, where its ending
    /// names a format
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,

    /// Look in all of the memory, where no structure leads there: for sub-buffers of sessions and of ftrace (as text), for
    /// LTTng's packets (with --metadata FILE)
    #[arg(long)]
    carve: bool,

    /// Consume what is written: the next such run goes on behind it, and a session that discards has its room again. Only of sessions
    /// in their folders
    #[arg(long, conflicts_with_all = ["pid", "metadata", "with_log", "carve", "cpus", "channels", "events", "since", "until", "last"])]
    consume: bool,

    /// Do not count the events of CTF: counting takes longer than copying
    #[arg(long)]
    no_count: bool,
}

/// Arguments of `convert`.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "lastwords convert [OPTIONS] --output <OUT> <INPUT>...\n       lastwords convert [OPTIONS] --output <OUT> --pid <PID>"
)]
pub(crate) struct Convert {
    #[command(flatten)]
    common: Common,

    /// File to write, of all traces merged by time (`-`: stdout, for text, json and perfetto); for CTF the folder
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,
}

/// Recovers.
pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let is_file = Format::of_path(&args.output).is_some_and(|of_path| args.common.to.is_none_or(|to| to == of_path));
    let write = |traces: &mut Traces| {
        let how = How { output: &args.output, count: !args.no_count, carve: args.carve, is_one: is_file };
        write(&args.common, &how, traces)
    };
    if args.consume {
        return settle(args.common.input.consume(write)?);
    }
    args.common.input.read(args.carve, |mut traces| write(&mut traces)).map(|(outcome, _)| outcome)
}

/// Converts.
pub(crate) fn convert(args: &Convert) -> anyhow::Result<Outcome> {
    let how = How { output: &args.output, count: true, carve: false, is_one: true };
    args.common.input.read(false, |mut traces| write(&args.common, &how, &mut traces)).map(|(outcome, _)| outcome)
}

/// What differs between the verbs.
struct How<'a> {
    output: &'a Path,
    count: bool,
    carve: bool,
    /// All traces are one file.
    is_one: bool,
}

/// Writes; and whether all of it was written.
fn write(args: &Common, how: &How<'_>, traces: &mut Traces) -> anyhow::Result<(Outcome, bool)> {
    let Common { to, events, with_log, force, json, strict, .. } = args;
    let How { output, count, carve, is_one } = *how;
    let (to, with_log, json, force) = (*to, *with_log, *json, *force);
    let job = Job { traces: &mut *traces, events, to, output, with_log, json, force, count, carve };
    let done = if is_one { output::one(job)? } else { output::each(job)? };
    let (strict, losses, failed, nothing) = (*strict, done.losses, done.failed, done.nothing);
    let worst_failure = traces.worst_failure;
    Ok((Facts { strict, losses, worst_failure, failed, nothing }.outcome(), !failed))
}

/// Makes ready what [`snapshot_of`] writes into.
///
/// # Errors
/// A snapshot of a session of that name could not be written there.
pub(crate) fn check_snapshot(name: &str, output: &Path) -> anyhow::Result<()> {
    output::folder(output)?;
    output::check_new(&Format::Ctf.path(output, &FileNames::default().unique(name)))
}

/// Writes the snapshot of the session in a folder as CTF; the caller marks it as being read.
pub(crate) fn snapshot_of(folder: &Path, output: &Path) -> anyhow::Result<Outcome> {
    let input = Input::of_session(&folder.to_string_lossy(), true);
    let common = Common { input, to: Some(Format::Ctf), ..Common::default() };
    let how = How { output, count: true, carve: false, is_one: false };
    common.input.find(|mut traces| write(&common, &how, &mut traces)).map(|(outcome, _)| outcome)
}

//! `lastwords recover`: one folder or file a session, and a line for each.

mod carve;
pub(crate) mod kernel;
pub(crate) mod lttng;

use crate::exit::{Outcome, chain};
use crate::inputs::{self, Input, Lacking, Written};
use crate::memory::Memory;
use crate::output::{self, Format, Line, session};
use crate::say;
use crate::select::{Events, Which};
use crate::{evidence, ftrace, names};
use anyhow::bail;
use lastwords_trace::source::Source;
use std::path::{Path, PathBuf};

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "lastwords recover [OPTIONS] --output <OUT> <IMAGE>...\n       lastwords recover [OPTIONS] --output <OUT> --pid <PID>"
)]
pub(crate) struct Args {
    /// Sessions' folders or names, the folder of all sessions, process cores; kernel crash dumps, trace.dat files
    #[arg(value_name = "IMAGE", required_unless_present = "pid")]
    inputs: Vec<String>,

    /// Folder to write into, one folder or file a session; it is made where it is missing
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,

    /// What to write; without it, ctf for sessions, trace-dat for a kernel's trace
    #[arg(long, value_enum, value_name = "FORMAT")]
    to: Option<Format>,

    #[command(flatten)]
    which: Which,

    #[command(flatten)]
    memory: Memory,

    /// Where the description of the events of LTTng's user-space streams is: a metadata file, or a core of its session or
    /// consumer daemon
    #[arg(long, value_name = "FILE")]
    metadata: Option<PathBuf>,

    /// The kernel's log among the events, where its memory is the input: text, json, perfetto
    #[arg(long)]
    with_log: bool,

    /// Look in all of the memory, where no structure leads there: for sub-buffers of sessions and of ftrace (as text), for
    /// LTTng's packets (with --metadata FILE)
    #[arg(long)]
    carve: bool,

    /// Print data instead of lines
    #[arg(long)]
    json: bool,

    /// Exit with 3 where events were lost
    #[arg(long)]
    strict: bool,

    /// Consume what is written: the next such run goes on behind it, and a session that discards has its room again. Only of sessions
    /// in their folders
    #[arg(long, conflicts_with_all = ["pid", "metadata", "with_log", "carve"])]
    consume: bool,

    /// Do not count the events of CTF: counting takes longer than copying
    #[arg(long)]
    no_count: bool,
}

/// Recovers.
pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    inputs::check(&args.inputs)?;
    if args.consume {
        args.memory.refuse()?;
        return inputs::consuming(&args.inputs, &args.which, |found| recover_all(args, found));
    }
    if args.carve {
        return carve::run(args);
    }
    if let Some(mut machines) = ftrace::open_all(&args.inputs, &args.memory)? {
        return kernel::run(args, &mut machines);
    }
    args.memory.refuse()?;
    if let Some(outcome) = lttng::run(args)? {
        return Ok(outcome);
    }
    if args.with_log {
        bail!("--with-log is for a kernel's memory; a session has no log");
    }
    if args.metadata.is_some() {
        bail!("--metadata is for LTTng's user-space streams, and the input is none");
    }
    inputs::reading(&args.inputs, &args.which, |found| recover_all(args, found)).map(|written| written.outcome)
}

/// Makes ready what [`snapshot_of`] writes into.
///
/// # Errors
/// A snapshot of a session of that name could not be written there.
pub(crate) fn check_snapshot(name: &str, output: &Path) -> anyhow::Result<()> {
    output::folder(output)?;
    output::check_new(&Format::Ctf.path(output, &names::Taken::default().name(name)))
}

/// Writes the snapshot of the session in a folder as CTF; the caller marks it as being read.
pub(crate) fn snapshot_of(folder: &Path, output: &Path) -> anyhow::Result<Outcome> {
    let args = Args {
        inputs: vec![folder.to_string_lossy().into_owned()],
        output: output.to_path_buf(),
        to: Some(Format::Ctf),
        which: Which { snapshot: true, ..Which::default() },
        memory: Memory::default(),
        metadata: None,
        with_log: false,
        carve: false,
        json: false,
        strict: false,
        consume: false,
        no_count: false,
    };
    recover_all(&args, &inputs::open(&args.inputs, &args.which)?).map(|written| written.outcome)
}

/// Writes all sessions; one that cannot be written costs the others nothing.
///
/// # Errors
/// None could be written.
fn recover_all(args: &Args, found: &inputs::Found) -> anyhow::Result<Written> {
    output::folder(&args.output)?;
    let mut taken = names::Taken::default();
    let (mut lines, mut failed) = (Vec::new(), Vec::new());
    for input in &found.inputs {
        let name = taken.name(&input.session.schema().name);
        let line = match recover_one(args, input, &args.output, &name) {
            Ok(line) => line,
            Err(error) => {
                failed.push(error);
                continue;
            }
        };
        if !args.json {
            say::line(output::text_of(&line));
            evidence::print(input);
        }
        lines.push(line);
    }
    let last = failed.pop_if(|_| lines.is_empty());
    failed.iter().for_each(|error| say::error(chain(error)));
    if let Some(error) = last {
        return Err(error);
    }
    if args.json {
        output::print_json(&lines)?;
    }
    let lacking = if failed.is_empty() { found.lacking } else { Lacking::Named };
    let outcome = lacking.outcome(args.strict, lines.iter().any(|line| line.losses));
    Ok(Written { outcome, whole: failed.is_empty() })
}

fn recover_one(args: &Args, input: &Input, folder: &Path, name: &str) -> anyhow::Result<Line> {
    let source: &dyn Source = &*input.session;
    let format = args.to.unwrap_or(Format::Ctf);
    let path = format.path(folder, name);
    let Some(version) = format.ctf_version() else {
        let selection = Events::default().selection(&[source]);
        let totals = session::to_one(&[input], format, &selection, &path)?;
        return Ok(session::line(input, &path, &totals, true));
    };
    let totals = session::to_ctf(source, version, !args.no_count, &path)?;
    Ok(session::line(input, &path, &totals, !args.no_count))
}

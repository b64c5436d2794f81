//! `lastwords recover`: one folder or file a session, and a line for each.

mod kernel;
mod lttng;

use crate::exit::Outcome;
use crate::inputs::{self, Input};
use crate::memory::Memory;
use crate::progress::Progress;
use crate::say;
use crate::select::{Events, Which};
use crate::table::plain;
use crate::{evidence, ftrace, names};
use anyhow::{Context, bail};
use lastwords_formats::text::{self, Style, Zone};
use lastwords_formats::{Totals, create_file, create_folder, ctf, json};
use lastwords_trace::source::Source;
use serde::Serialize;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// Arguments.
#[derive(Debug, clap::Args)]
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

    /// Print data instead of lines
    #[arg(long)]
    json: bool,

    /// Exit with 3 where events were lost
    #[arg(long)]
    strict: bool,

    /// Do not count the events of CTF: counting takes longer than copying
    #[arg(long)]
    no_count: bool,
}

/// What to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// A CTF 1.8 folder: babeltrace2, Trace Compass
    Ctf,
    /// A CTF 2 folder: babeltrace2 from 2.1 on
    Ctf2,
    /// JSON lines
    Json,
    /// Text, as `report` prints it
    Text,
    /// A trace.dat file of a kernel's trace: trace-cmd, KernelShark
    TraceDat,
}

/// The line of one session.
#[derive(Debug, Serialize)]
struct Line {
    path: PathBuf,
    session: String,
    from: PathBuf,
    /// Null where they were not counted.
    events: Option<u64>,
    streams: u64,
    packets: u64,
    bytes: u64,
    /// Events known to be lost; overwritten ones and those in flight at death not counted.
    lost_events: u64,
    /// Something is lost by `--strict`'s measure, countable or not.
    losses: bool,
}

#[derive(Serialize)]
struct Report<'a> {
    schema: &'static str,
    sessions: &'a [Line],
}

/// Recovers.
pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    if let Some(machines) = ftrace::open_all(&args.inputs, &args.memory)? {
        return kernel::run(args, &machines);
    }
    if let Some(outcome) = lttng::run(args)? {
        return Ok(outcome);
    }
    inputs::reading(&args.inputs, &args.which, |sessions| recover_all(args, sessions))
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
        json: false,
        strict: false,
        no_count: false,
    };
    recover_all(&args, &inputs::open(&args.inputs, &args.which)?)
}

fn recover_all(args: &Args, sessions: &[Input]) -> anyhow::Result<Outcome> {
    if !args.output.is_dir() {
        create_folder(&args.output)?;
    }
    let mut taken = names::Taken::default();
    let mut lines = Vec::new();
    for input in sessions {
        let name = taken.name(&input.session.schema().name);
        let line = recover_one(args, input, &name)?;
        if !args.json {
            say::line(text_of(&line))?;
            evidence::print(&input.session)?;
        }
        lines.push(line);
    }
    if args.json {
        let report = Report { schema: "lastwords.recover.v1", sessions: &lines };
        say::line(serde_json::to_string_pretty(&report)?)?;
    }
    let losses = lines.iter().any(|line| line.losses);
    Ok(if args.strict && losses { Outcome::Losses } else { Outcome::Done })
}

fn recover_one(args: &Args, input: &Input, name: &str) -> anyhow::Result<Line> {
    let source: &dyn Source = &input.session;
    let (path, totals) = write(args, source, name)?;
    let counted = !(args.no_count && matches!(args.to, None | Some(Format::Ctf | Format::Ctf2)));
    Ok(Line {
        path,
        session: source.schema().name.clone(),
        from: input.from.clone(),
        events: counted.then_some(totals.events),
        streams: totals.streams,
        packets: totals.packets,
        bytes: totals.bytes,
        lost_events: lastwords_formats::evidence::lost_events(source.evidence()),
        losses: source.evidence().has_losses() || totals.faults > 0,
    })
}

fn write(args: &Args, source: &dyn Source, name: &str) -> anyhow::Result<(PathBuf, Totals)> {
    let mut bar = Progress::new(name, inputs::bytes(&[source]));
    let mut tell = |p: lastwords_trace::merge::Progress| bar.set(p.bytes);
    let version = match args.to.unwrap_or(Format::Ctf) {
        Format::TraceDat => bail!("trace-dat is for a kernel's trace; a session has ctf, ctf2, json, text"),
        Format::Ctf => ctf::Version::V1_8,
        Format::Ctf2 => ctf::Version::V2,
        Format::Json => {
            let path = args.output.join(format!("{name}.jsonl"));
            let selection = Events::default().selection(&[source]);
            let outcome = to_file(&path, |out| json::write(&[source], &selection, out, &mut tell))?;
            return Ok((path, outcome.totals));
        }
        Format::Text => {
            let path = args.output.join(format!("{name}.txt"));
            let selection = Events::default().selection(&[source]);
            let zone = Zone::local();
            let style = Style::Fields;
            let outcome = to_file(&path, |out| text::write(&[source], style, &selection, &zone, out, &mut tell))?;
            return Ok((path, outcome.totals));
        }
    };
    let path = args.output.join(name);
    let options = ctf::Options { version, count_events: !args.no_count };
    let totals = ctf::write(source, &path, options, &mut tell)?;
    Ok((path, totals))
}

/// Runs a writer over a new file; its errors name the file.
fn to_file<T>(path: &Path, write: impl FnOnce(&mut dyn Write) -> lastwords_formats::Result<T>) -> anyhow::Result<T> {
    let mut out = BufWriter::new(create_file(path)?);
    let written = write(&mut out).with_context(|| path.display().to_string())?;
    out.flush().with_context(|| path.display().to_string())?;
    Ok(written)
}

fn text_of(line: &Line) -> String {
    let events = line.events.map_or_else(|| "events not counted".to_owned(), |n| format!("{n} events"));
    let losses = match (line.losses, line.lost_events) {
        (false, _) => "nothing lost".to_owned(),
        (true, 0) => "with losses".to_owned(),
        (true, n) => format!("{n} events lost"),
    };
    format!("{}: {events}, {} streams, {losses}", plain(&line.path.to_string_lossy()), line.streams)
}

//! `lastwords report`: events as text on stdout, evidence on stderr.

use crate::exit::Outcome;
use crate::inputs::Written;
use crate::memory::Memory;
use crate::output;
use crate::pager::Pager;
use crate::progress::Shared;
use crate::say;
use crate::select::{Events, Which, once};
use crate::verbs::recover::kernel::{left_out, wants_lttng};
use crate::verbs::recover::lttng::recovered;
use crate::{ctf, evidence, ftrace, inputs, lttng};
use anyhow::bail;
use lastwords_ctf::Version;
use lastwords_ctf::read::Found;
use lastwords_formats::ftrace::text as ftrace_text;
use lastwords_formats::text::{self, Style, Zone};
use lastwords_trace::source::Source;
use std::path::PathBuf;

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = "On a terminal the text goes through $PAGER (`less -FRX` where that is unset).")]
#[command(override_usage = "lastwords report [OPTIONS] <INPUT>...\n       lastwords report [OPTIONS] --pid <PID>")]
pub(crate) struct Args {
    /// Sessions' folders or names, the folder of all sessions, process cores (several are merged by time); kernel crash dumps,
    /// trace.dat files; folders of CTF traces; shared memory and cores of programs that LTTng traced
    #[arg(value_name = "INPUT", required_unless_present = "pid")]
    inputs: Vec<String>,

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

    /// How a line looks; without it, fields for sessions, and for a kernel's trace what its own options say
    #[arg(long, value_enum, value_name = "STYLE")]
    style: Option<Look>,

    /// Times of day of Greenwich, not of the machine's zone
    #[arg(long)]
    utc: bool,

    /// The kernel's log among the events of its trace: lines that begin with `## dmesg:`
    #[arg(long)]
    with_log: bool,

    /// Exit with 3 where events were lost
    #[arg(long)]
    strict: bool,

    /// Consume what is reported: the next such report goes on behind it, and a session that discards has its room again. Only of
    /// sessions in their folders; all events of a session
    #[arg(long, conflicts_with_all = ["pid", "metadata", "with_log", "cpus", "channels", "events", "since", "until", "last"])]
    consume: bool,

    /// Print to the terminal, not through a pager
    #[arg(long)]
    no_pager: bool,
}

/// How a line looks.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Look {
    /// Time, level, CPU, thread, name, then the message or the fields
    Fields,
    /// As the kernel's `trace` file
    Ftrace,
    /// As babeltrace2: of sessions, what it prints of the CTF that `recover` writes; of CTF traces the default
    Babeltrace,
    /// Ticks, places, ids, and the bytes in hexadecimal
    Raw,
    /// Of a kernel's trace: as the kernel's option `latency-format` has it
    Latency,
}

impl Look {
    /// The form of a session's events.
    fn of_session(self) -> anyhow::Result<Style> {
        Ok(match self {
            Self::Fields => Style::Fields,
            Self::Ftrace => Style::Ftrace,
            Self::Babeltrace => Style::Babeltrace,
            Self::Raw => Style::Raw,
            Self::Latency => {
                bail!("--style latency is for a kernel's trace; sessions have fields, ftrace, babeltrace, raw")
            }
        })
    }
}

/// Reports.
pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    inputs::check(&args.inputs)?;
    if args.consume {
        args.memory.refuse()?;
        return inputs::consuming(&args.inputs, &args.which, |found| report(args, found));
    }
    if let Some(mut machines) = ftrace::open_all(&args.inputs, &args.memory)? {
        if wants_lttng(&args.which, &machines) {
            return of_lttng(args, &mut lttng::of_machines(&mut machines));
        }
        machines.iter().for_each(|machine| left_out(machine, &args.which));
        let style = match args.style {
            None => ftrace_text::Style::AsSet,
            Some(Look::Ftrace) => ftrace_text::Style::Default,
            Some(Look::Fields) => ftrace_text::Style::Fields,
            Some(Look::Raw) => ftrace_text::Style::Raw,
            Some(Look::Latency) => ftrace_text::Style::Latency,
            Some(Look::Babeltrace) => {
                bail!("--style babeltrace is for sessions; a kernel's trace has ftrace, latency, fields, raw")
            }
        };
        let pager = Pager::open(!args.no_pager);
        return ftrace::report(&machines, &args.which, &args.events, style, args.with_log, args.strict, pager);
    }
    if args.with_log {
        bail!("--with-log is for a kernel's memory; a session has no log");
    }
    args.memory.refuse()?;
    if let Some(mut inputs) = lttng::open_user(&args.inputs, args.metadata.as_deref())? {
        return of_lttng(args, &mut inputs);
    }
    if args.metadata.is_some() {
        bail!("--metadata is for LTTng's user-space streams, and the input is none");
    }
    if let Some(traces) = ctf::open_all(&args.inputs)? {
        return ctf_traces(args, &traces);
    }
    inputs::reading(&args.inputs, &args.which, |found| report(args, found)).map(|written| written.outcome)
}

fn ctf_traces(args: &Args, traces: &Found) -> anyhow::Result<Outcome> {
    if !matches!(args.style, None | Some(Look::Babeltrace)) {
        bail!("a CTF trace is reported as --style babeltrace");
    }
    let zone = if args.utc { Zone::utc() } else { Zone::local() };
    ctf::report(traces, &args.events, &zone, args.strict, Pager::open(!args.no_pager))
}

/// Reports sessions of LTTng's.
fn of_lttng(args: &Args, inputs: &mut [lttng::Input]) -> anyhow::Result<Outcome> {
    let recovered = recovered(&args.which, inputs)?;
    Ok(match ctf_traces(args, &recovered.traces)? {
        Outcome::Done => output::outcome(args.strict, &recovered.lines),
        outcome => outcome,
    })
}

fn report(args: &Args, found: &inputs::Found) -> anyhow::Result<Written> {
    let sessions = &found.inputs;
    let sources: Vec<&dyn Source> = sessions.iter().map(|s| &*s.session as &dyn Source).collect();
    let style = args.style.unwrap_or(Look::Fields).of_session()?;
    let selection = args.events.selection(&sources);
    let selection = if matches!(style, Style::Fields | Style::Ftrace) { once(selection) } else { selection };
    let zone = if args.utc { Zone::utc() } else { Zone::local() };
    // Who leaves a pager has not read all of it.
    let mut out = Pager::open(!args.no_pager && !args.consume);
    let version = if style == Style::Babeltrace { Version::V1_8 } else { Version::V2 };
    let traces = sessions.iter().map(|input| input.trace(version)).collect::<Result<Vec<_>, _>>()?;
    let bar = Shared::new("report", inputs::bytes(&sources));
    let paged = out.is_program();
    let tell = |bytes| {
        if !paged {
            bar.add(bytes);
        }
    };
    let mut faults = Vec::new();
    let written = text::write(&traces, style, &selection, &zone, &mut out, &tell, &mut |note| faults.push(note));
    let flushed = out.finish()?;
    drop(bar);
    let closed = !flushed || written.as_ref().is_err_and(lastwords_formats::Error::is_closed_pipe);
    let written = if closed { Default::default() } else { written? };
    sessions.iter().for_each(evidence::print);
    faults.iter().take(evidence::LIMIT).for_each(evidence::tell);
    if let Some(more) = faults.len().checked_sub(evidence::LIMIT).filter(|more| *more > 0) {
        say::note(format_args!("{more} more packets are not decoded to their end"));
    }
    if !closed {
        args.events.tell_empty(&sources, written.events);
    }
    let losses = written.faults > 0 || sources.iter().any(|s| s.evidence().has_losses());
    Ok(Written { outcome: found.lacking.outcome(args.strict, losses), whole: !closed })
}

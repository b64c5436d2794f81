//! Implements `lastwords report`: prints events as text on stdout and the account on stderr.

mod dumped;
mod follow;
mod kernel_text;
mod pstore;

use crate::account;
use crate::clocks;
use crate::deaths;
use crate::exit::{Facts, Outcome};
use crate::input::{Input, Search};
use crate::lines::{Lines, expression};
use crate::moment;
use crate::pager::Pager;
use crate::say;
use crate::select::{Chosen, Events};
use crate::table::plain;
use crate::text::{self, Form, LineStyle, unknown_fields};
use crate::traces::{Arrays, Traces};
use crate::verbs::finish_consuming;
use crate::verbs::inspect::span;
use lastwords_open::inspect::Activity;
use lastwords_open::{Trace, accounts_after_reading, unrelated_clocks};
use lastwords_render::Totals;
use lastwords_render::missing::count;
use lastwords_render::text::Zone;
use lastwords_render::text::chosen::Columns;
use regex::bytes::Regex;
use std::io::IsTerminal;

/// The options that choose and form events, which are not for the other parts of a memory.
const OF_EVENTS: [&str; 19] = [
    "style", "verbose", "fields", "grep", "relative", "with_log", "consume", "follow", "pid",
    "metadata", "snapshot", "cpus", "channels", "events", "level", "filter", "since", "until",
    "last",
];

/// The arguments of `report`.
#[derive(Debug, clap::Args)]
#[command(
    after_long_help = "On a terminal, the text goes through the program $PAGER, or `less -FRX` if PAGER is not set."
)]
#[command(
    override_usage = "lastwords report [OPTIONS] <INPUT>...\n       lastwords report [OPTIONS] --pid <PID>"
)]
pub(crate) struct Args {
    #[command(flatten)]
    input: Input,

    #[command(flatten)]
    events: Events,

    /// Line style
    ///
    /// By default, sessions have the style fields, CTF traces look as babeltrace2 prints them, and
    /// a kernel's trace follows its own options. In the style fields, several instances are merged
    /// by time, and each line has the name of its instance.
    #[arg(long, value_enum, value_name = "STYLE")]
    style: Option<LineStyle>,

    /// Print the ids of spans, whole names and all addresses
    ///
    /// This is for sessions in the style fields, whose lines are as short as those of the
    /// program's own log otherwise: the spans around an event, such as
    /// `order{id=202}:charge{order=202}:`, its name, its message and its fields. A span or a time
    /// that cannot be recovered is `?`.
    #[arg(short = 'v', long, conflicts_with = "fields")]
    verbose: bool,

    /// Print these fields, in this order, in place of a style
    ///
    /// An example is `time,cpu,event,id,customer`. Names are those of fields and contexts, and
    /// cpu, comm, pid, tid, level, event, channel, as in --filter. Other names are time, delta
    /// (seconds since the line before), ticks (the reading of the clock), trace (the session or
    /// instance), message (what follows the event's name in the other styles), file and line (the
    /// place in the source that the event comes from) and syscall (the name of the system call of
    /// an event of raw_syscalls). `args[0]` and
    /// `request.path` are parts of fields, `$ctx.NAME` is a context, `$fields.NAME` a field. If an
    /// event lacks a field, a hyphen is printed.
    #[arg(short = 'F', long, value_name = "LIST", value_delimiter = ',', value_parser = field, conflicts_with = "style")]
    fields: Vec<String>,

    /// The text between the fields of --fields
    ///
    /// `\t` is a tab. A value that contains the text is printed in double quotes.
    #[arg(long, value_name = "TEXT", default_value = "\\t", requires = "fields", value_parser = separator)]
    separator: String,

    /// Only events whose line matches; may be repeated
    ///
    /// REGEX is a regular expression; `(?i)` at its beginning ignores case. If the option is
    /// repeated, all expressions must match. On a terminal, the matches are highlighted. With
    /// --last, the last N matching events are printed.
    #[arg(long, short = 'g', value_name = "REGEX", value_parser = expression, conflicts_with = "consume")]
    grep: Vec<Regex>,

    /// Print and read times of day as UTC
    ///
    /// Without this option, they are in the machine's time zone.
    #[arg(long)]
    utc: bool,

    /// Print times as seconds before the newest event
    ///
    /// -0.003200000 is 3.2 milliseconds before it. If a kernel's clock does not count nanoseconds,
    /// the differences of its readings are printed.
    #[arg(long, conflicts_with = "follow")]
    relative: bool,

    /// Print the kernel's log among the events of its trace
    ///
    /// Lines of the log begin with `## dmesg:`. With -v, those about a device are followed by its
    /// SUBSYSTEM and DEVICE, as in /dev/kmsg.
    #[arg(long)]
    with_log: bool,

    /// Print the BPF programs and maps of a kernel, with their contents
    ///
    /// These are the records of ring buffers that were not consumed, and the entries of arrays and
    /// hash tables, by the types that the map has. A record has no type; its bytes are printed.
    #[cfg(feature = "bpf")]
    #[arg(long, group = "part", conflicts_with_all = OF_EVENTS)]
    bpf: bool,

    /// Print the buffers of perf of a kernel
    ///
    /// These are the buffers of each `perf record` that was running: their events, and how many
    /// records of each type are in them. `convert --to perf-data` writes the records.
    #[cfg(feature = "perf")]
    #[arg(long, group = "part", conflicts_with_all = OF_EVENTS)]
    perf: bool,

    /// Print the histograms of a kernel that its triggers made
    ///
    /// These are the triggers `hist:keys=…` of all events and instances, with the text that the
    /// kernel's files `hist` had. Rows that the trigger sorts as equal are in the order of the
    /// kernel's table. What a dump lacks is `unknown`.
    #[arg(long, group = "part", conflicts_with_all = OF_EVENTS)]
    histograms: bool,

    /// Print what pstore (ramoops) has kept in a memory
    ///
    /// These are the records of panics and oopses, the console, and messages of programs. A file
    /// that is no dump is taken as raw memory, such as a copy of the reserved range.
    #[arg(long, group = "part", conflicts_with_all = OF_EVENTS)]
    pstore: bool,

    /// Print data instead of text, with --bpf, --perf and others
    #[arg(long, requires = "part")]
    json: bool,

    /// Exit with status 3 if events were lost
    #[arg(long)]
    strict: bool,

    /// Consume the events that are reported
    ///
    /// The next report with --consume begins after them, and a session in discard mode has room
    /// for new events again. This works for sessions in their folders, and always for all events
    /// of a session. The events of a trace instance of the running kernel leave its rings, as with
    /// trace_pipe.
    #[arg(long, conflicts_with_all = ["pid", "metadata", "with_log", "cpus", "channels", "events", "level", "filter", "since", "until", "last"])]
    consume: bool,

    /// Go on, and print events as they are recorded
    ///
    /// This ends when all sessions have ended, or at Ctrl-C. It works for sessions in their
    /// folders, of which nothing is consumed, and for trace instances of the running kernel (a
    /// name, or a folder below /sys/kernel/tracing). The rings of an instance lose the events that
    /// are printed, as with trace_pipe. With --last N, only N of the events that were recorded
    /// before are printed.
    #[arg(long, short = 'f', conflicts_with_all = ["consume", "pid", "metadata", "with_log", "snapshot", "since", "until"])]
    follow: bool,

    /// Print to the terminal, not through a pager
    #[arg(long)]
    no_pager: bool,
}

/// Checks the name of a field.
fn field(text: &str) -> Result<String, String> {
    Columns::parse(&[text], "").map(|_| text.trim().to_owned())
}

/// Reads a separator, which may have the escapes `\t` and `\\`.
fn separator(text: &str) -> Result<String, String> {
    let separator = text.replace("\\\\", "\0").replace("\\t", "\t").replace('\0', "\\");
    match separator.chars().all(|c| c == '\t' || !c.is_control()) && !separator.is_empty() {
        true => Ok(separator),
        false => Err("it must be a text without control characters, or a tab".to_owned()),
    }
}

/// Runs `report`.
pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let columns = args.columns().map_err(anyhow::Error::msg)?;
    let columns = columns.as_ref();
    #[cfg(feature = "bpf")]
    if args.bpf {
        return dumped::run::<lastwords_bpf::Bpf<'_>>(args, &args.input.kernels()?);
    }
    #[cfg(feature = "perf")]
    if args.perf {
        return dumped::run::<lastwords_perf::Perf>(args, &args.input.kernels()?);
    }
    if args.histograms {
        return dumped::run::<lastwords_ftrace::memory::Histograms>(args, &args.input.kernels()?);
    }
    if args.pstore {
        return pstore::run(args);
    }
    moment::note_unknown_zone();
    if args.follow {
        return follow::run(args, columns);
    }
    let instance = kernel_text::instance(args);
    if args.consume && instance.is_some() {
        return follow::once(args, columns);
    }
    if args.consume {
        return finish_consuming(args.input.consume(|traces| report(args, columns, traces))?);
    }
    let mut is_open = false;
    let read = args.input.read(Search::Late, |mut traces| {
        is_open = true;
        report(args, columns, &mut traces)
    });
    let read = read.map(|(outcome, _)| outcome);
    match (read, instance) {
        (Err(why), Some(folder)) if !is_open => kernel_text::run(args, &folder, why),
        (read, _) => read,
    }
}

impl Args {
    fn columns(&self) -> Result<Option<Columns>, String> {
        match self.fields.is_empty() {
            true => Ok(None),
            false => Columns::parse(&self.fields, &self.separator).map(Some),
        }
    }
}

fn zone(args: &Args) -> Zone {
    if args.utc { Zone::utc() } else { Zone::local() }
}

/// Prints the report. Returns the result, and whether everything was written.
fn report(
    args: &Args,
    columns: Option<&Columns>,
    traces: &mut Traces,
) -> anyhow::Result<(Outcome, bool)> {
    traces.choose(Arrays::Top)?;
    if traces.all.is_empty() {
        // The reason was printed.
        return Ok((
            Facts { worst_failure: traces.worst_failure, ..Facts::default() }.outcome(),
            false,
        ));
    }
    if args.with_log && !traces.has_arrays() {
        anyhow::bail!("--with-log is for a kernel's memory; a session has no log");
    }
    account::check_readable(traces)?;
    let mut chosen = args.events.choose(traces)?;
    let last = chosen.last.take_if(|_| !args.grep.is_empty());
    if let Some(columns) = columns {
        let unknown = unknown_fields(traces, &chosen, columns)?;
        if !unknown.is_empty() {
            anyhow::bail!("--fields: {}", unknown.join("; "));
        }
    }
    clocks::note_merged(traces, columns.is_some());
    // A user who leaves a pager has not read everything, so a consuming read uses no pager.
    let mut out = Pager::open(!args.no_pager && !args.consume);
    let before = if args.relative { newest(args, traces)? } else { None };
    let form = Form {
        style: args.style,
        verbose: args.verbose,
        columns,
        zone: before.map_or_else(|| zone(args), |newest| zone(args).before(newest)),
        with_log: args.with_log,
        title: (!out.is_program()).then_some("report"),
        before,
        ..Form::default()
    };
    let mut lines = Lines::new(&mut out, &args.grep, last);
    if std::io::stdout().is_terminal() {
        write_head(args, columns, traces, &mut lines)?;
    }
    let mut result = text::write(traces, &chosen, &form, &mut lines)?;
    let matched = lines.finish()?;
    result.is_closed |= matched.is_none();
    let shown = if args.grep.is_empty() { result.totals.events } else { matched.unwrap_or(0) };
    let is_closed = !out.finish()? || result.is_closed;
    let accounts = accounts_after_reading(&traces.all, &result.totals, &result.notes.of_traces);
    let losses = account::print(traces, &accounts, false);
    result.notes.print_undecoded();
    for death in deaths::of_kernels(traces).chain(deaths::survived_by_kernels(traces)) {
        say::remark(format!(
            "{}: {}, {}\n",
            plain(&death.what),
            plain(&death.why),
            plain(&death.when)
        ));
    }
    let facts = Facts {
        strict: args.strict,
        losses,
        worst_failure: traces.worst_failure,
        failed: result.notes.unreadable > 0,
        nothing: !is_closed && is_nothing(args, &chosen, traces, [result.totals.events, shown]),
    };
    note_unused(columns, &result.unused, result.totals.events);
    Ok((facts.outcome(), !is_closed))
}

/// Writes for people what died and why, how much each session has and lost, and what the columns
/// are.
fn write_head(
    args: &Args,
    columns: Option<&Columns>,
    traces: &Traces,
    lines: &mut Lines<'_>,
) -> std::io::Result<()> {
    // Losses are known when the events were read, and so is when a process that was killed was last
    // alive.
    let read = traces.all.iter().map(|trace| trace.session().and_then(|_| Activity::once(trace)));
    let read: Vec<Option<(Activity, Totals)>> = read.collect();
    let totals = |(at, read): (usize, &Option<(Activity, Totals)>)| Some((at, read.as_ref()?.1));
    let each: Vec<(usize, Totals)> = read.iter().enumerate().filter_map(totals).collect();
    let accounts = accounts_after_reading(&traces.all, &Totals::default(), &each);
    // These lines have no backtraces.
    for death in deaths::find(traces, false) {
        lines.put(format_args!("# {}, {}\n", plain(&death.why), plain(&death.when)))?;
    }
    for (read, account) in read.iter().zip(accounts) {
        let Some((activity, _)) = read else { continue };
        let (name, events) = (plain(&account.name), count(activity.total, "event"));
        let span = span(activity).map_or_else(String::new, |span| format!(" over {span}"));
        lines.put(format_args!("# {name}: {events}{span}; {}\n", account.words()))?;
    }
    let has_columns = matches!(args.style, None | Some(LineStyle::Fields)) && !traces.has_arrays();
    if let Some(columns) = columns {
        lines.put(format_args!("# {}\n", columns.head()))?;
    } else if has_columns && traces.sessions().next().is_some() {
        let time = if args.relative { "SECONDS BEFORE THE END" } else { "TIME" };
        lines.put(format_args!("# {time} LEVEL [CPU] THREAD SPANS: EVENT: FIELDS\n"))?;
    }
    Ok(())
}

/// Returns the time before which `--relative` shows times: that of the newest event, in nanoseconds
/// since the epoch, or since the origin of the only clock.
///
/// # Errors
/// Nothing relates the clocks of the traces; the style has times of its own.
fn newest(args: &Args, traces: &Traces) -> anyhow::Result<Option<i64>> {
    if args.style == Some(LineStyle::Latency) {
        anyhow::bail!(
            "--style latency has times of its own, since the first event; fields, ftrace and raw have relative ones"
        );
    }
    if let Some((trace, clock)) = unrelated_clocks(&traces.all).into_iter().next() {
        anyhow::bail!(
            "{}: nothing relates its clock {} to those of the others, so that the newest event of all is not known: --relative is for such \
             a trace alone",
            plain(&trace.origin.path.display().to_string()),
            plain(&clock.name)
        );
    }
    let newest =
        |trace: &Trace| trace.newest().or_else(|| trace.ftrace().map(|ftrace| ftrace.newest()));
    Ok(traces.all.iter().filter_map(newest).max())
}

/// Prints a note for each chosen field that no event had.
fn note_unused(columns: Option<&Columns>, unused: &[usize], events: u64) {
    let names = unused.iter().filter_map(|at| columns?.name(*at)).filter(|name| *name != "delta");
    for name in names.filter(|_| events > 0) {
        say::note(format_args!("--fields: none of {events} events has {name}"));
    }
}

/// Returns true if events were selected and none is shown, and prints a note then. `counts` has the
/// events that were selected, and those of them that match `--grep`.
fn is_nothing(args: &Args, chosen: &Chosen, traces: &Traces, [selected, shown]: [u64; 2]) -> bool {
    let no_match = selected > 0 && shown == 0 && !args.grep.is_empty();
    if no_match {
        say::note(format_args!("none of {selected} events matches --grep"));
    }
    no_match || chosen.report_empty(traces, selected)
}

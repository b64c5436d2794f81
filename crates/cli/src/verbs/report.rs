//! Implements `lastwords report`: prints events as text on stdout and the account on stderr.

mod follow;

use crate::account;
use crate::clocks;
use crate::deaths;
use crate::exit::{Facts, Outcome};
use crate::input::{Arrays, Input, Search, Traces};
use crate::lines::{Lines, expression};
use crate::pager::Pager;
use crate::say;
use crate::select::{Chosen, Events};
use crate::table::plain;
use crate::text::{self, Form, LineStyle};
use crate::verbs::finish_consuming;
use lastwords_formats::text::Zone;
use lastwords_open::{Trace, accounts_after_reading};
use regex::bytes::Regex;
use std::io::IsTerminal;

/// The arguments of `report`.
#[derive(Debug, clap::Args)]
#[command(after_help = "On a terminal the text goes through $PAGER (`less -FRX` where that is unset).")]
#[command(override_usage = "lastwords report [OPTIONS] <INPUT>...\n       lastwords report [OPTIONS] --pid <PID>")]
pub(crate) struct Args {
    #[command(flatten)]
    input: Input,

    #[command(flatten)]
    events: Events,

    /// The style of a line; by default, fields for sessions and CTF as babeltrace2 prints it, while a kernel's trace
    /// follows its own options. In the style fields, several instances are merged by time, and each line has the name
    /// of its instance
    #[arg(long, value_enum, value_name = "STYLE")]
    style: Option<LineStyle>,

    /// Only events whose line matches this regular expression; `(?i)` at its begin ignores case. May be given several times: all must
    /// match. On a terminal, the matches are highlighted. With --last, the last N matching events are printed
    #[arg(long, short = 'g', value_name = "REGEX", value_parser = expression, conflicts_with = "consume")]
    grep: Vec<Regex>,

    /// Print and read times of day as UTC, not in the machine's time zone
    #[arg(long)]
    utc: bool,

    /// Print times as seconds before the newest event: -0.003200000. For sessions, LTTng and CTF
    #[arg(long, conflicts_with = "follow")]
    relative: bool,

    /// Print the kernel's log among the events of its trace, in lines that begin with `## dmesg:`
    #[arg(long)]
    with_log: bool,

    /// Exit with status 3 if events were lost
    #[arg(long)]
    strict: bool,

    /// Consume the events that are reported: the next such report begins after them, and a session that discards events
    /// has its room again. Only for sessions in their folders, and always for all events of a session
    #[arg(long, conflicts_with_all = ["pid", "metadata", "with_log", "cpus", "channels", "events", "filter", "since", "until", "last"])]
    consume: bool,

    /// Go on and print events as they are recorded, until all sessions have ended or Ctrl-C. For sessions in their folders, of which
    /// nothing is consumed, and for trace instances of the running kernel (a name, or a folder below /sys/kernel/tracing), whose rings
    /// give up the events that are printed, as with trace_pipe. With --last, only so many of the events that are there already are
    /// printed
    #[arg(long, short = 'f', conflicts_with_all = ["consume", "pid", "metadata", "with_log", "snapshot", "since", "until"])]
    follow: bool,

    /// Print to the terminal, not through a pager
    #[arg(long)]
    no_pager: bool,
}

/// Runs `report`.
pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    if args.follow {
        return follow::run(args);
    }
    if args.consume {
        return finish_consuming(args.input.consume(|traces| report(args, traces))?);
    }
    args.input.read(Search::Late, |mut traces| report(args, &mut traces)).map(|(outcome, _)| outcome)
}

fn zone(args: &Args) -> Zone {
    if args.utc { Zone::utc() } else { Zone::local() }
}

/// Prints the report. Returns the result, and whether everything was written.
fn report(args: &Args, traces: &mut Traces) -> anyhow::Result<(Outcome, bool)> {
    traces.choose(Arrays::Top)?;
    if args.with_log && !traces.has_arrays() {
        anyhow::bail!("--with-log is for a kernel's memory; a session has no log");
    }
    account::check_readable(traces)?;
    let mut chosen = args.events.choose(traces)?;
    let last = chosen.last.take_if(|_| !args.grep.is_empty());
    clocks::note_merged(traces, false);
    // A user who leaves a pager has not read everything, so a consuming read uses no pager.
    let mut out = Pager::open(!args.no_pager && !args.consume);
    if args.relative && traces.has_arrays() {
        anyhow::bail!("--relative is for sessions, LTTng and CTF; a kernel's text has the times of its own clock");
    }
    let newest = args.relative.then(|| traces.all.iter().filter_map(Trace::newest).max()).flatten();
    let form = Form {
        style: args.style,
        zone: newest.map_or_else(|| zone(args), |newest| zone(args).before(newest)),
        with_log: args.with_log,
        title: (!out.is_program()).then_some("report"),
        no_header: false,
    };
    let mut lines = Lines::new(&mut out, &args.grep, last);
    if std::io::stdout().is_terminal() {
        // These lines have no backtraces.
        for death in deaths::of(traces, false) {
            lines.put(format_args!("# {}, {}\n", plain(&death.why), plain(&death.when)))?;
        }
        let has_columns = matches!(args.style, None | Some(LineStyle::Fields)) && !traces.has_arrays();
        if has_columns && traces.sessions().next().is_some() {
            let time = if args.relative { "SECONDS BEFORE THE END" } else { "TIME" };
            lines.put(format_args!("# {time} LEVEL [CPU] THREAD EVENT: FIELDS\n"))?;
        }
    }
    let mut result = text::write(traces, &chosen, &form, &mut lines)?;
    let matched = lines.finish()?;
    result.is_closed |= matched.is_none();
    let shown = if args.grep.is_empty() { result.totals.events } else { matched.unwrap_or(0) };
    let is_closed = !out.finish()? || result.is_closed;
    let accounts = accounts_after_reading(&traces.all, &result.totals, &result.notes.of_traces);
    let losses = account::print(traces, &accounts, false);
    result.notes.print_undecoded();
    let facts = Facts {
        strict: args.strict,
        losses,
        worst_failure: traces.worst_failure,
        failed: result.notes.unreadable > 0,
        nothing: !is_closed && is_nothing(args, &chosen, traces, [result.totals.events, shown]),
    };
    Ok((facts.outcome(), !is_closed))
}

/// Returns true if events were selected and none is shown, and prints a note then. `counts` has the events that were selected, and
/// those of them that match `--grep`.
fn is_nothing(args: &Args, chosen: &Chosen, traces: &Traces, [selected, shown]: [u64; 2]) -> bool {
    let no_match = selected > 0 && shown == 0 && !args.grep.is_empty();
    if no_match {
        say::note(format_args!("none of {selected} events matches --grep"));
    }
    no_match || chosen.report_empty(traces, selected)
}

//! `lastwords report`: events as text on stdout, the account on stderr.

use crate::account;
use crate::clocks;
use crate::exit::{Facts, Outcome};
use crate::input::{Arrays, Input, Traces};
use crate::pager::Pager;
use crate::select::Events;
use crate::text::{self, Form, LineStyle};
use crate::verbs::settle;
use lastwords_formats::text::Zone;
use lastwords_open::accounts_after_reading;

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = "On a terminal the text goes through $PAGER (`less -FRX` where that is unset).")]
#[command(override_usage = "lastwords report [OPTIONS] <INPUT>...\n       lastwords report [OPTIONS] --pid <PID>")]
pub(crate) struct Args {
    #[command(flatten)]
    input: Input,

    #[command(flatten)]
    events: Events,

    /// How a line looks; without it, fields for sessions, and for a kernel's trace what its own options say. In fields, several instances are
    /// merged by time, each line with its instance's name
    #[arg(long, value_enum, value_name = "STYLE")]
    style: Option<LineStyle>,

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

/// Reports.
pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    if args.consume {
        return settle(args.input.consume(|traces| report(args, traces))?);
    }
    args.input.read(false, |mut traces| report(args, &mut traces)).map(|(outcome, _)| outcome)
}

/// Reports; and whether all of it was written.
fn report(args: &Args, traces: &mut Traces) -> anyhow::Result<(Outcome, bool)> {
    traces.choose(Arrays::Top)?;
    if args.with_log && !traces.has_arrays() {
        anyhow::bail!("--with-log is for a kernel's memory; a session has no log");
    }
    account::check_readable(traces)?;
    let chosen = args.events.choose(traces)?;
    clocks::note_merged(traces, false);
    // Who leaves a pager has not read all of it.
    let mut out = Pager::open(!args.no_pager && !args.consume);
    let form = Form {
        style: args.style,
        zone: if args.utc { Zone::utc() } else { Zone::local() },
        with_log: args.with_log,
        title: (!out.is_program()).then_some("report"),
    };
    let told = text::write(traces, &chosen, &form, &mut out)?;
    let is_closed = !out.finish()? || told.is_closed;
    let accounts = accounts_after_reading(&traces.all, &told.totals, &told.notes.of_traces);
    let losses = account::print(traces, &accounts, false);
    told.notes.tell();
    let facts = Facts {
        strict: args.strict,
        losses,
        worst_failure: traces.worst_failure,
        failed: told.notes.unreadable > 0,
        nothing: !is_closed && chosen.tell_empty(traces, told.totals.events),
    };
    Ok((facts.outcome(), !is_closed))
}

//! Implements `lastwords inspect`: prints what the inputs hold.

mod ctf;
mod kernel;
mod lttng;
mod session;

use crate::account::{self, LIMIT};
use crate::exit::{Facts, Outcome};
use crate::input::{Input, Traces};
use crate::progress::Shared;
use crate::say;
use crate::text::bytes;
use lastwords_ctf::Version;
use lastwords_open::Account;
use lastwords_open::inspect::Report;
use std::io::{self, Write};

/// The arguments of `inspect`.
#[derive(Debug, clap::Args)]
#[command(override_usage = "lastwords inspect [OPTIONS] <INPUT>...\n       lastwords inspect [OPTIONS] --pid <PID>")]
pub(crate) struct Args {
    #[command(flatten)]
    input: Input,

    /// Print data instead of text
    #[arg(long)]
    json: bool,
}

/// Inspects the inputs.
pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    args.input.find(|traces| inspect(args, &traces))
}

fn inspect(args: &Args, traces: &Traces) -> anyhow::Result<Outcome> {
    let read = traces.all.iter().filter(|trace| trace.lttng().is_none());
    let read = read.filter_map(|trace| trace.packets(Version::V2)?.ok());
    let bar = Shared::new("inspect", bytes(&read.collect::<Vec<_>>()));
    let mut report = Report::of(&traces.origins, &traces.all, &|bytes| bar.add(bytes));
    drop(bar);
    report.faults.clone_from(&traces.faults);
    if traces.symbols {
        report.sessions.iter_mut().for_each(|session| account::name_frames(&mut session.crashes));
    }
    let failed = report.traces.iter().any(|trace| trace.is_faulty());
    if args.json {
        say::line(serde_json::to_string_pretty(&report)?);
    } else {
        let mut text = Vec::new();
        write(&report, &mut text)?;
        say::print(text);
    }
    Ok(Facts { worst_failure: traces.worst_failure, failed, ..Facts::default() }.outcome())
}

/// Writes the reports for people.
fn write(report: &Report<'_>, text: &mut Vec<u8>) -> io::Result<()> {
    report.kernels.iter().try_for_each(|kernel| kernel::write(kernel, text))?;
    for input in &report.inputs {
        writeln!(text, "{}: memory of LTTng's user-space tracer", input.from.display())?;
        input.sessions.iter().try_for_each(|session| lttng::write(session, text))?;
    }
    report.traces.iter().try_for_each(|trace| ctf::write(trace, text))?;
    for session in &report.sessions {
        if !text.is_empty() {
            text.push(b'\n');
        }
        session::write(session, text)?;
    }
    Ok(())
}

/// Writes an account, indented by four blanks.
fn indented(account: &Account<'_>, out: &mut dyn Write) -> io::Result<()> {
    let mut text = Vec::new();
    account.write(LIMIT, &mut text)?;
    String::from_utf8_lossy(&text).lines().try_for_each(|line| writeln!(out, "    {line}"))
}

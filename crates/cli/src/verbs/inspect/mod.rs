//! Implements `lastwords inspect`: prints what the inputs hold.

mod activity;
mod ctf;
mod kernel;
mod losses;
mod lttng;
mod session;

pub(crate) use activity::span;

use crate::exit::{Facts, Outcome};
use crate::input::Input;
use crate::kernels::kernels;
use crate::paint::bold;
use crate::progress::Shared;
use crate::say;
use crate::select::{Chosen, Events};
use crate::table::plain;
use crate::traces::{Traces, no_arrays, no_snapshot};
use lastwords_ctf::{Error, Version, read};
use lastwords_ftrace::ctf::Form;
use lastwords_open::inspect::Report;
use lastwords_open::{Ftrace, Trace};
use std::cell::RefCell;
use std::io::{self, Write};

/// The arguments of `inspect`.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "lastwords inspect [OPTIONS] <INPUT>...\n       lastwords inspect [OPTIONS] --pid <PID>"
)]
pub(crate) struct Args {
    #[command(flatten)]
    input: Input,

    #[command(flatten)]
    events: Events,

    /// Print all events and rings, and internals
    ///
    /// Internals are what a developer of recorders wants to know: positions, addresses, the clock,
    /// how space is reserved.
    #[arg(long, short = 'v')]
    verbose: bool,

    /// Print data instead of text
    #[arg(long)]
    json: bool,
}

/// Inspects the inputs.
pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    args.input.find(|traces| inspect(args, &traces))
}

fn inspect(args: &Args, traces: &Traces) -> anyhow::Result<Outcome> {
    let lacks = |trace: &&Trace| trace.ftrace().is_some_and(|ftrace| ftrace.ring.is_none());
    let lacking: Vec<String> = traces.arrays().filter(lacks).map(no_snapshot).collect();
    lacking.iter().for_each(say::note);
    let chosen = args.events.choose(traces)?;
    let selection = chosen.selection();
    let selection = Some(&selection).filter(|_| !args.events.is_default());
    let packets = packets(traces, &chosen, selection.is_some())?;
    // The packets of arrays without a selection are made one after the other.
    let failure = RefCell::new(None);
    let make = |trace: &Trace| match of_array(trace, &chosen) {
        Ok(packets) => packets.map(Ok),
        Err(error) => {
            failure.borrow_mut().get_or_insert(error);
            None
        }
    };
    let bar = Shared::new("inspect", work(traces, &packets, selection.is_some()));
    let mut report = Report::new(
        &traces.origins,
        &traces.all,
        &packets,
        &make,
        selection,
        &|bytes| bar.add(bytes),
        traces.outside(),
    );
    drop(bar);
    failure.into_inner().map_or(Ok(()), Err)?;
    report.faults = traces.faults.iter().map(|failure| failure.why.clone()).collect();
    for session in &mut report.sessions {
        traces.name_frames(session.crashes.iter_mut().chain(session.verdict.crashes_mut()));
    }
    let unreadable: Vec<String> =
        traces.origins.iter().filter_map(|origin| no_arrays(origin, &traces.all)).collect();
    unreadable.iter().for_each(say::error);
    let failed = report.traces.iter().any(|trace| trace.is_faulty()) || !unreadable.is_empty();
    if args.json {
        say::json(&report, false)?;
    } else {
        let mut text = Vec::new();
        write(&report, args.verbose, &mut text)?;
        say::print(text);
    }
    let nothing = !lacking.is_empty() && lacking.len() == traces.all.len();
    let nothing = selection.is_some() && chosen.report_empty(traces, report.total()) || nothing;
    Ok(Facts { worst_failure: traces.worst_failure, failed, nothing, ..Facts::default() }.outcome())
}

/// Returns the packets of a kernel's trace array, if it has a ring to read.
fn of_array(trace: &Trace, chosen: &Chosen) -> anyhow::Result<Option<read::Trace>> {
    if !matches!(trace.ftrace(), Some(Ftrace { ring: Some(_), .. })) {
        return Ok(None);
    }
    let (found, ..) = kernels(&Traces::new(vec![trace.clone()]), chosen, Form::Plain, false)?;
    Ok(found.into_iter().next())
}

/// Returns the packets of each trace: of a kernel's trace array those that are chosen, and none if
/// nothing is selected.
fn packets(
    traces: &Traces,
    chosen: &Chosen,
    is_selected: bool,
) -> anyhow::Result<Vec<Option<Result<read::Trace, Error>>>> {
    let packets = |trace: &Trace| trace.packets(Version::V2);
    let mut all: Vec<Option<Result<read::Trace, Error>>> = traces.all.iter().map(packets).collect();
    if !is_selected {
        return Ok(all);
    }
    // An array without a snapshot has nothing to count if the snapshot is read.
    let has_ring =
        |(_, trace): &(usize, &Trace)| matches!(trace.ftrace(), Some(Ftrace { ring: Some(_), .. }));
    let arrays: Vec<(usize, &Trace)> = traces.all.iter().enumerate().filter(has_ring).collect();
    let own = Traces::new(arrays.iter().map(|(_, trace)| (*trace).clone()).collect());
    // The remarks are about output that this is not.
    let (found, positions, _) = kernels(&own, chosen, Form::Plain, false)?;
    for (trace, position) in found.into_iter().zip(positions) {
        let at = position.and_then(|position| arrays.get(position)).map(|(at, _)| *at);
        if let Some(place) = at.and_then(|at| all.get_mut(at)) {
            *place = Some(Ok(trace));
        }
    }
    Ok(all)
}

/// Returns the number of bytes that are read: twice those of all but a kernel's if there is a
/// selection.
fn work(traces: &Traces, packets: &[Option<Result<read::Trace, Error>>], is_selected: bool) -> u64 {
    let times = |trace: &Trace| if is_selected && trace.ftrace().is_none() { 2 } else { 1 };
    let of_ring = |trace: &Trace| -> u64 {
        let cpus = trace
            .ftrace()
            .and_then(|ftrace| ftrace.ring)
            .map(|ring| ring.cpus())
            .unwrap_or_default();
        cpus.iter().map(|cpu| cpu.sub_buffers as u64 * u64::from(cpu.sub_buffer_size)).sum()
    };
    let bytes = |(trace, packets): (&Trace, &Option<Result<read::Trace, Error>>)| match packets {
        Some(Ok(packets)) => packets.bytes(),
        Some(Err(_)) => 0,
        None => of_ring(trace),
    };
    traces
        .all
        .iter()
        .zip(packets)
        .map(|(trace, packets)| times(trace) * bytes((trace, packets)))
        .sum()
}

/// Writes the reports for people.
fn write(report: &Report<'_>, verbose: bool, text: &mut Vec<u8>) -> io::Result<()> {
    report.kernels.iter().try_for_each(|kernel| kernel::write(kernel, verbose, text))?;
    for input in &report.inputs {
        let from = bold(plain(&input.from.display().to_string()));
        writeln!(text, "{from}: memory of LTTng's user-space tracer")?;
        input.sessions.iter().try_for_each(|session| lttng::write(session, verbose, text))?;
    }
    report.traces.iter().try_for_each(|trace| ctf::write(trace, verbose, text))?;
    for session in &report.sessions {
        if !text.is_empty() {
            text.push(b'\n');
        }
        session::write(session, verbose, text)?;
    }
    Ok(())
}

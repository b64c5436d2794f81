//! Implements `view`: writes one HTML page of all traces.

use super::write::Writing;
use super::{Done, Job, to_file};
use crate::kernel_log::{log_lines, relation};
use crate::traces::{Arrays, Traces};
use crate::{account, clocks, deaths, say};
use lastwords_ctf::read;
use lastwords_ftrace::Choice;
use lastwords_ftrace::ctf::Form;
use lastwords_ftrace::log::{self, Relation};
use lastwords_open::{Account, Losses, RecoveredSession, Trace};
use lastwords_trace::source::{OpenSpan, Source};
use lastwords_view::{Collected, Facts, Inside, Options, Task, collect};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

/// Writes the page.
///
/// # Errors
/// No trace can be read; the output cannot be written.
pub(crate) fn page(mut job: Job<'_>, limit: u64) -> anyhow::Result<Done> {
    job.traces.choose(Arrays::Top)?;
    account::check_readable(job.traces)?;
    job.with_log = job.traces.has_arrays() && job.traces.arrays().all(has_log);
    let chosen = job.events.choose(job.traces)?;
    job.check_room(job.output)?;
    let mut notes = clocks::merged(job.traces, true);
    notes.iter().for_each(say::note);
    notes.extend(job.traces.arrays().filter_map(log_remark));
    notes.extend(chosen.undrawn());
    job.make_room(job.output)?;
    let writing = Writing { job: &job, chosen: &chosen, traces: job.traces, path: job.output };
    let mut collected = None;
    let (totals, read) = writing.events(
        Form::Lines,
        false,
        &chosen.once(),
        |traces, _, selection, watch, take| {
            let options = Options {
                limit,
                open_spans: job.traces.open_spans(),
                inside: inside(job.traces),
                tasks: tasks(job.traces),
            };
            let all = [traces, &loose_logs(job.traces)?].concat();
            let (events, totals) = collect(&all, selection, &options, watch, take)?;
            collected = Some(events);
            Ok(totals)
        },
    )?;
    read.print_undecoded();
    let (mut line, accounts) = writing.line(&totals, &read);
    if let Some(collected) = collected {
        let remarks = collected.remarks();
        remarks.iter().for_each(say::note);
        notes.extend(remarks);
        let facts = facts(job.traces, &accounts, notes, job.output);
        note_limit(&collected);
        to_file(job.output, |out| Ok(lastwords_view::write(collected, &facts, out)?))?;
    }
    line.bytes = std::fs::metadata(job.output).map_or(0, |file| file.len());
    let mut done = Done::default();
    job.add_line(line, &mut done);
    done.nothing = chosen.report_empty(job.traces, done.events());
    job.account(job.traces, &accounts, &mut done);
    job.end(done)
}

/// Returns a remark on how the clocks of a trace array and of the kernel's log relate, if there is
/// one. Writing prints it.
fn log_remark(array: &Trace) -> Option<String> {
    let ftrace = array.ftrace().filter(|_| has_log(array))?;
    relation(&ftrace).remark_of_trace(ftrace.array)
}

fn note_limit(collected: &Collected) {
    let (kept, read) = collected.counts();
    if kept < read {
        say::note(format_args!(
            "the page has the newest {kept} of {read} events; --limit sets how many"
        ));
    }
}

/// Returns true if the kernel's log can be read.
fn has_log(array: &Trace) -> bool {
    array.ftrace().is_some_and(|ftrace| ftrace.machine.kernel.is_some())
}

/// Returns the threads that were in open spans, by the position of the trace, the process and the id.
fn inside(traces: &Traces) -> HashMap<(usize, u32, u64), Inside> {
    let packets = traces.all.iter().filter(|trace| trace.has_packets()).enumerate();
    let sessions = packets.filter_map(|(at, trace)| Some((at, trace.session()?)));
    let of = |(at, found): (usize, &RecoveredSession)| {
        let spans = found.session.open_spans().iter();
        let one = |span: &OpenSpan| {
            let last = span.entered.map(|(_, tid)| tid);
            ((at, span.opener.0, span.id), Inside { threads: span.threads, last })
        };
        spans.map(one).collect::<Vec<_>>()
    };
    sessions.flat_map(of).collect()
}

/// Returns the tasks of kernels, with the positions of their first trace arrays behind the packets.
fn tasks(traces: &Traces) -> Vec<(usize, Task)> {
    let first = traces.of_packets().len();
    let mut tasks: Vec<(usize, Task)> = Vec::new();
    for machine in traces.arrays().filter_map(|array| Some(array.ftrace()?.machine)) {
        tasks.extend(machine.tasks().into_iter().map(|task| (first, task)));
    }
    tasks
}

fn facts(traces: &Traces, accounts: &[Account<'_>], notes: Vec<String>, output: &Path) -> Facts {
    let mut machine = Vec::new();
    for origin in &traces.origins {
        let kernel = origin.machine.as_ref();
        let named =
            kernel.map(|machine| machine.tracing.uname.trim()).filter(|name| !name.is_empty());
        let named = named.map_or_else(String::new, |name| format!(": {name}"));
        machine.push(format!("{} ({}){named}", origin.path.display(), origin.kind));
    }
    let text = |(trace, account): (&Trace, &Account<'_>)| {
        let mut text = Vec::new();
        // A vector takes all that is written.
        let _ = account::write_with_end(traces, trace, account, &mut text);
        String::from_utf8_lossy(&text).into_owned()
    };
    // The first line of an account sums it up.
    let line = |of: (&Trace, &Account<'_>)| {
        let mut text = Vec::new();
        let _ = of.1.write(0, &mut text);
        String::from_utf8_lossy(&text).lines().next().map(str::to_owned)
    };
    let losses = Losses::from_accounts(accounts);
    let names: Vec<&str> = traces.all.iter().map(|trace| trace.name.as_str()).collect();
    let from = traces.origins.first().map(|origin| origin.path.display().to_string());
    let from = from.unwrap_or_else(|| output.display().to_string());
    Facts {
        title: format!("{} - {from} - lastwords", names.join(", ")),
        deaths: deaths::find(traces, true),
        survived: deaths::survived(traces),
        machine,
        accounts: traces.all.iter().zip(accounts).map(text).collect(),
        losses: traces.all.iter().zip(accounts).filter_map(line).collect(),
        lost: losses.any,
        notes,
    }
}

/// Returns the logs of kernels whose ftrace is not among the traces: LTTng recorded there.
fn loose_logs(traces: &Traces) -> anyhow::Result<Vec<read::Trace>> {
    let mut logs = Vec::new();
    for origin in &traces.origins {
        let Some(machine) = &origin.machine else { continue };
        let is_own = |trace: &&Trace| Arc::ptr_eq(&trace.origin, origin);
        let has_array = traces.arrays().any(|array| is_own(&array));
        let Some(offset) = machine.log_real_time() else { continue };
        if has_array || !traces.all.iter().any(|trace| is_own(&trace)) {
            continue;
        }
        let lines = log_lines(Some(machine));
        logs.push(log::trace(
            &origin.path,
            lines,
            Relation::Ahead(0),
            &Choice::default(),
            Some(offset),
        )?);
    }
    Ok(logs)
}

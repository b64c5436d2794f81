//! Implements `view`: writes one HTML page of all traces.

use super::write::Writing;
use super::{Done, Job, to_file};
use crate::input::{Arrays, Traces};
use crate::text::{log_lines, relation};
use crate::{account, clocks, ended, say};
use lastwords_ctf::read;
use lastwords_formats::ftrace::Choice;
use lastwords_formats::ftrace::ctf::Form;
use lastwords_formats::ftrace::log::{self, Relation};
use lastwords_open::{Account, Crash, EndedReport, Losses, Machine, RecoveredSession, Trace};
use lastwords_view::{Collected, Death, Facts, OpenSpan, Options, Task, collect};
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
    let (totals, read) = writing.events(Form::Lines, false, &chosen.once(), |traces, selection, watch, take| {
        let options = Options { limit, open_spans: open_spans(job.traces), tasks: tasks(job.traces) };
        let all = [traces, &loose_logs(job.traces)?].concat();
        let (events, totals) = collect(&all, selection, &options, watch, take)?;
        collected = Some(events);
        Ok(totals)
    })?;
    read.print_undecoded();
    let (mut line, accounts) = writing.line(&totals, &read, true);
    if let Some(collected) = collected {
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

/// Returns a remark on how the clocks of a trace array and of the kernel's log relate, if there is one. Writing prints it.
fn log_remark(array: &Trace) -> Option<String> {
    let ftrace = array.ftrace().filter(|_| has_log(array))?;
    relation(&ftrace).remark_of_trace(ftrace.array)
}

fn note_limit(collected: &Collected) {
    let (kept, read) = collected.counts();
    if kept < read {
        say::note(format_args!("the page has the newest {kept} of {read} events; --limit sets how many"));
    }
}

/// Returns true if the kernel's log can be read.
fn has_log(array: &Trace) -> bool {
    array.ftrace().is_some_and(|ftrace| ftrace.machine.kernel.is_some())
}

/// Returns the spans that were open, with the positions of their traces among the packets.
fn open_spans(traces: &Traces) -> Vec<OpenSpan> {
    let accounts = traces.accounts();
    let of = traces.of_packets();
    let places = of.iter().enumerate().filter_map(|(trace, position)| Some((trace, accounts.get((*position)?)?)));
    let span = |(trace, account): (usize, &Account<'_>)| -> Vec<OpenSpan> {
        let span = |span: &lastwords_formats::evidence::SpanReport| OpenSpan {
            trace,
            id: span.id,
            parent: span.parent,
            opened: span.opened_ns.parse().unwrap_or(0),
            pid: span.pid,
            tid: span.tid,
            name: format!("{}::{}", span.target, span.name),
        };
        account.spans.iter().map(span).collect()
    };
    places.flat_map(span).collect()
}

/// Returns the tasks of kernels, with the positions of their first trace arrays behind the packets.
fn tasks(traces: &Traces) -> Vec<(usize, Task)> {
    let first = traces.of_packets().len();
    let mut tasks: Vec<(usize, Task)> = Vec::new();
    for machine in traces.arrays().filter_map(|array| Some(array.ftrace()?.machine)) {
        let own = machine.tasks().into_iter();
        tasks.extend(own.map(|task| (first, Task { pid: task.pid, tgid: task.tgid, comm: task.comm })));
    }
    tasks
}

fn facts(traces: &Traces, accounts: &[Account<'_>], notes: Vec<String>, output: &Path) -> Facts {
    let mut deaths: Vec<Death> = Vec::new();
    let mut machine = Vec::new();
    for origin in &traces.origins {
        let own = traces.arrays().find(|array| Arc::ptr_eq(&array.origin, origin));
        let kernel = origin.machine.as_ref();
        deaths.extend(kernel.and_then(|machine| kernel_death(machine, own)));
        let named = kernel.map(|machine| machine.tracing.uname.trim()).filter(|name| !name.is_empty());
        let named = named.map_or_else(String::new, |name| format!(": {name}"));
        machine.push(format!("{} ({}){named}", origin.path.display(), origin.kind));
    }
    traces.sessions().for_each(|found| deaths.extend(session_deaths(found)));
    let text = |(trace, account): (&Trace, &Account<'_>)| {
        let mut text = Vec::new();
        // A vector takes all that is written.
        let _ = account::write_with_end(trace, account, &mut text);
        String::from_utf8_lossy(&text).into_owned()
    };
    // The first line of an account sums it up.
    let line = |of: (&Trace, &Account<'_>)| {
        let mut text = Vec::new();
        let _ = of.1.write(0, &mut text);
        String::from_utf8_lossy(&text).lines().next().map(str::to_owned)
    };
    let losses = Losses::of(accounts);
    let names: Vec<&str> = traces.all.iter().map(|trace| trace.name.as_str()).collect();
    let from = traces.origins.first().map(|origin| origin.path.display().to_string());
    let from = from.unwrap_or_else(|| output.display().to_string());
    Facts {
        title: format!("{} - {from} - lastwords", names.join(", ")),
        deaths,
        machine,
        accounts: traces.all.iter().zip(accounts).map(text).collect(),
        losses: traces.all.iter().zip(accounts).filter_map(line).collect(),
        lost: losses.any,
        notes,
    }
}

/// Returns the offset to add to times of a kernel's log, to get nanoseconds since the epoch, if it is known. The log has
/// the times of `local_clock`.
fn log_real_time(machine: &Machine) -> Option<i64> {
    let kernel = machine.kernel.as_ref()?;
    let ahead = kernel.number("__sched_clock_offset", 8).unwrap_or(0);
    Some(kernel.time().ok()?.wall.wrapping_sub(kernel.sched_clock()?.wrapping_add(ahead)).cast_signed())
}

/// Returns the logs of kernels whose ftrace is not among the traces: LTTng recorded there.
fn loose_logs(traces: &Traces) -> anyhow::Result<Vec<read::Trace>> {
    let mut logs = Vec::new();
    for origin in &traces.origins {
        let Some(machine) = &origin.machine else { continue };
        let is_own = |trace: &&Trace| Arc::ptr_eq(&trace.origin, origin);
        let has_array = traces.arrays().any(|array| is_own(&array));
        let Some(offset) = log_real_time(machine) else { continue };
        if has_array || !traces.all.iter().any(|trace| is_own(&trace)) {
            continue;
        }
        let lines = log_lines(Some(machine));
        logs.push(log::trace(&origin.path, lines, Relation::Ahead(0), &Choice::default(), Some(offset))?);
    }
    Ok(logs)
}

/// Returns why a kernel died, if its log says so.
fn kernel_death(machine: &Machine, array: Option<&Trace>) -> Option<Death> {
    let kernel = machine.kernel.as_ref()?;
    let crash = kernel.crash(&kernel.log().rows);
    let why = crash.panic.as_ref().map(|panic| format!("Kernel panic - not syncing: {panic}"));
    let why = why.or_else(|| crash.oops.clone())?;
    let offset = match array.and_then(Trace::ftrace) {
        Some(ftrace) => {
            let ahead = if let Relation::Ahead(by) = relation(&ftrace) { by } else { 0 };
            Some((ftrace.real_time().unwrap_or(0).saturating_sub(ahead), ftrace.real_time().is_some()))
        }
        None => log_real_time(machine).map(|offset| (offset, true)),
    };
    let time = crash
        .time
        .zip(offset)
        .map(|(time, (offset, _))| i64::try_from(time).unwrap_or(i64::MAX).saturating_add(offset));
    let boot = crash.time.map(|time| format!("{}.{:06} s after boot", time / 1_000_000_000, time / 1000 % 1_000_000));
    let is_dated = offset.is_some_and(|(_, is_dated)| is_dated);
    let date = time.filter(|_| is_dated).and_then(|time| u64::try_from(time).ok()).map(ended::utc);
    let when: Vec<String> = date.into_iter().chain(boot).collect();
    let cpu = crash.cpu.map_or_else(String::new, |cpu| format!(", on CPU {cpu}"));
    Some(Death {
        what: format!("kernel {}{cpu}", machine.tracing.release),
        word: if crash.panic.is_some() { "panic" } else { "oops" }.to_owned(),
        when: when.join(", "),
        time: time.map(|time| time.to_string()),
        details: crash.oops.filter(|oops| *oops != why).into_iter().collect(),
        why,
    })
}

/// Returns the causes of death of a session's processes, or how the session ended.
fn session_deaths(found: &RecoveredSession) -> Vec<Death> {
    let name = &found.session.info().name;
    let fatal: Vec<Crash> = found.crashes().into_iter().filter(|crash| crash.is_cause_of_death).collect();
    if fatal.is_empty() {
        let ended = found.ended.as_ref().map(|ended| EndedReport::from(*ended));
        let death = |ended: EndedReport| Death {
            what: format!("session {name}"),
            word: "end".to_owned(),
            when: ended::line_in_utc(&ended),
            // A process that was killed went on after it was last seen.
            time: Some(ended.at_ns.to_string()).filter(|_| ended.how != "killed"),
            why: format!("{name}: {}", ended::how(&ended)),
            details: Vec::new(),
        };
        // A program that ended as it wanted to has not died.
        let is_wanted = |ended: &EndedReport| matches!(ended.how, "closed" | "exit") && ended.number.unwrap_or(0) == 0;
        return ended.filter(|ended| !is_wanted(ended)).map(death).into_iter().collect();
    }
    let death = |crash: Crash| {
        let fields: Vec<String> = crash.fields.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let frame = |frame: &lastwords_open::Frame| match (&frame.module, &frame.offset) {
            (Some(module), Some(offset)) => format!("{} {module}+{offset}", frame.address),
            _ => frame.address.clone(),
        };
        Death {
            what: format!("session {name}"),
            word: crash.event.rsplit(':').next().unwrap_or("end").to_owned(),
            when: crash.time_ns.parse().map_or_else(|_| String::new(), ended::utc),
            time: Some(crash.time_ns.clone()),
            why: format!("{} {}", crash.event, fields.join(" ")),
            details: crash.backtrace.iter().map(frame).collect(),
        }
    };
    fatal.into_iter().map(death).collect()
}

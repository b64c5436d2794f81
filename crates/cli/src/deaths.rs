//! Finds out what died, when and why: a kernel by its log, a session by the records of its crash
//! handlers or by the way in which it ended.

use crate::ended;
use crate::kernel_log::relation;
use crate::traces::Traces;
use lastwords::{Ended, Ending};
use lastwords_ftrace::log::Relation;
use lastwords_open::{Crash, Machine, RecoveredSession, Trace};
use lastwords_view::Death;
use std::sync::Arc;

/// Returns what died, kernels first. A session that its program ended in good order is left out.
/// With `symbols`, the frames of backtraces are named, for which the files of programs are read.
pub(crate) fn find(traces: &Traces, symbols: bool) -> Vec<Death> {
    let sessions = traces.all.iter().filter_map(|trace| Some((trace, trace.session()?)));
    of_kernels(traces)
        .chain(sessions.flat_map(|(trace, found)| session_deaths(trace, found, symbols)))
        .collect()
}

/// Returns what died of one trace, the cause of death last.
pub(crate) fn of_trace(trace: &Trace, symbols: bool) -> Vec<Death> {
    if let Some(found) = trace.session() {
        return session_deaths(trace, found, symbols);
    }
    let machine = trace.ftrace().map(|ftrace| ftrace.machine);
    machine.and_then(|machine| kernel_death(machine, Some(trace))).into_iter().collect()
}

/// Returns the kernels that died.
pub(crate) fn of_kernels(traces: &Traces) -> impl Iterator<Item = Death> {
    traces.origins.iter().filter_map(|origin| {
        let own = traces.arrays().find(|array| Arc::ptr_eq(&array.origin, origin));
        kernel_death(origin.machine.as_ref()?, own)
    })
}

/// Returns the offset to add to times of a kernel's log, to get nanoseconds since the epoch, if it
/// is known. The log has the times of `local_clock`.
pub(crate) fn log_real_time(machine: &Machine) -> Option<i64> {
    let kernel = machine.kernel.as_ref()?;
    let ahead = kernel.number("__sched_clock_offset", 8).unwrap_or(0);
    Some(
        kernel
            .time()
            .ok()?
            .wall
            .wrapping_sub(kernel.sched_clock()?.wrapping_add(ahead))
            .cast_signed(),
    )
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
            Some((
                ftrace.real_time().unwrap_or(0).saturating_sub(ahead),
                ftrace.real_time().is_some(),
            ))
        }
        None => log_real_time(machine).map(|offset| (offset, true)),
    };
    let time = crash
        .time
        .zip(offset)
        .map(|(time, (offset, _))| i64::try_from(time).unwrap_or(i64::MAX).saturating_add(offset));
    let boot = crash.time.map(|time| format!("{} s after boot", ended::seconds(time)));
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

/// Returns the panics and signals that processes of sessions survived. With `symbols`, the frames of
/// backtraces are named.
pub(crate) fn survived(traces: &Traces, symbols: bool) -> Vec<Death> {
    let sessions = traces.all.iter().filter_map(|trace| trace.session());
    let of = |found: &RecoveredSession| {
        let crashes = found.crashes().into_iter().filter(|crash| !crash.is_cause_of_death);
        let mut survived: Vec<Crash> = crashes.collect();
        if symbols {
            let _ = lastwords_open::name_frames(&mut survived);
        }
        let name = &found.session.info().name;
        survived.into_iter().map(|crash| crash_death(name, crash, " survived")).collect::<Vec<_>>()
    };
    sessions.flat_map(of).collect()
}

/// Returns what the record of a crash handler says.
fn crash_death(name: &str, crash: Crash, fate: &str) -> Death {
    Death {
        what: format!("session {name}"),
        word: format!("{}{fate}", crash.event.rsplit(':').next().unwrap_or("end")),
        when: u64::try_from(crash.nanoseconds()).map_or_else(|_| String::new(), ended::utc),
        time: Some(crash.time_ns.clone()),
        why: format!("{name}{fate}: {}", crash.summary()),
        details: crash.backtrace_lines(),
    }
}

/// Returns the causes of death of a session's processes, or how the session ended.
fn session_deaths(trace: &Trace, found: &RecoveredSession, symbols: bool) -> Vec<Death> {
    let name = &found.session.info().name;
    let mut fatal: Vec<Crash> =
        found.crashes().into_iter().filter(|crash| crash.is_cause_of_death).collect();
    if symbols {
        // The account reports the modules whose frames cannot be named.
        let _ = lastwords_open::name_frames(&mut fatal);
    }
    if fatal.is_empty() {
        let death = |ended: Ended| Death {
            what: format!("session {name}"),
            word: "end".to_owned(),
            when: ended::when_in_utc(&ended),
            // A process that was killed went on after it was last seen.
            time: Some(ended.at.to_string()).filter(|_| ended.how != Ending::Killed),
            why: format!("{name}: {}", ended::how(&ended)),
            details: Vec::new(),
        };
        // A program that ended as it wanted to has not died.
        let is_wanted = |ended: &Ended| {
            matches!(ended.how, Ending::Closed(_) | Ending::Exit(_))
                && ended.how.number().unwrap_or(0) == 0
        };
        return trace.ended().filter(|ended| !is_wanted(ended)).map(death).into_iter().collect();
    }
    fatal.into_iter().map(|crash| crash_death(name, crash, "")).collect()
}

//! Says what died, when and why: a kernel by its log, a session by the verdict of
//! [`lastwords_open::why`].

use crate::ended;
use crate::kernel_log::relation;
use crate::traces::Traces;
use lastwords::Ending;
use lastwords_ftrace::log::Relation;
use lastwords_open::why::{self, OtherCrash, Verdict};
use lastwords_open::{Crash, Machine, RecoveredSession, Trace};
use lastwords_view::Death;
use std::sync::Arc;

/// Returns what died, kernels first. A session that its program ended in good order is left out.
/// With `has_frames`, the frames of backtraces are named, for which the files of programs are read.
pub(crate) fn find(traces: &Traces, has_frames: bool) -> Vec<Death> {
    let sessions = traces.all.iter().filter_map(|trace| Some((trace, trace.session()?)));
    let deaths =
        sessions.filter_map(|(trace, found)| session_death(traces, trace, found, has_frames));
    of_kernels(traces).chain(deaths).collect()
}

/// Returns what died of one trace.
pub(crate) fn of_trace(traces: &Traces, trace: &Trace, has_frames: bool) -> Option<Death> {
    if let Some(found) = trace.session() {
        return session_death(traces, trace, found, has_frames);
    }
    let machine = trace.ftrace().map(|ftrace| ftrace.machine)?;
    kernel_death(machine, Some(trace)).filter(|_| has_died(machine))
}

/// Returns the kernels that died.
pub(crate) fn of_kernels(traces: &Traces) -> impl Iterator<Item = Death> {
    kernels(traces, has_died)
}

/// Returns what the logs of kernels have of oopses that nothing proves to be the end.
pub(crate) fn survived_by_kernels(traces: &Traces) -> impl Iterator<Item = Death> {
    let all = kernels(traces, |machine| !has_died(machine));
    all.map(|death| Death { why: format!("{}; a kernel may survive it", death.why), ..death })
}

fn kernels(traces: &Traces, is_wanted: impl Fn(&Machine) -> bool) -> impl Iterator<Item = Death> {
    traces.origins.iter().filter_map(move |origin| {
        let own = traces.arrays().find(|array| Arc::ptr_eq(&array.origin, origin));
        kernel_death(origin.machine.as_ref().filter(|machine| is_wanted(machine))?, own)
    })
}

/// Returns true if it is proven that a kernel died.
fn has_died(machine: &Machine) -> bool {
    why::kernel(machine, |_| None).is_some_and(|verdict| verdict.is_death())
}

/// Describes the panic or the oops in a kernel's log.
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
        None => machine.log_real_time().map(|offset| (offset, true)),
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

/// Returns the panics and signals that are not proven to be the end, with names of the frames of
/// backtraces: most of them were survived.
pub(crate) fn survived(traces: &Traces) -> Vec<Death> {
    let verdicts = traces
        .all
        .iter()
        .filter_map(|trace| Some((trace.session()?, traces.named_verdict(trace)?)));
    let others = |(found, verdict): (&RecoveredSession, Verdict)| {
        let name = &found.session.info().name;
        let is_evidence = |other: &OtherCrash| verdict.has_evidence(&other.crash);
        let others = verdict.others.iter().filter(|other| !is_evidence(other));
        others.map(|other| other_crash(name, other)).collect::<Vec<_>>()
    };
    survived_by_kernels(traces).chain(verdicts.flat_map(others)).collect()
}

/// Describes a crash that is not the cause of death.
fn other_crash(name: &str, OtherCrash { crash, fate, is_survived }: &OtherCrash) -> Death {
    let word = crash.event.rsplit(':').next().unwrap_or("end");
    let (word, why) = match is_survived {
        true => (format!("{word} survived"), format!("{name} survived: {}", crash.summary())),
        false => (word.to_owned(), format!("{name}: {}; {fate}", crash.summary())),
    };
    Death {
        what: format!("session {name}"),
        word,
        when: u64::try_from(crash.nanoseconds()).map_or_else(|_| String::new(), ended::utc),
        time: Some(crash.time_ns.clone()),
        why,
        details: crash.backtrace_lines(),
    }
}

/// Returns what the verdict on a session says, if it has died.
fn session_death(
    traces: &Traces,
    trace: &Trace,
    found: &RecoveredSession,
    has_frames: bool,
) -> Option<Death> {
    let verdict = if has_frames { traces.named_verdict(trace) } else { traces.verdict(trace) };
    let verdict = verdict.filter(Verdict::is_death)?;
    let name = &found.session.info().name;
    let when = match (&verdict.crash, verdict.at, trace.ended()) {
        (None, _, Some(ended)) if verdict.is_last_seen || ended.how != Ending::Killed => {
            ended::when_in_utc(&ended)
        }
        (_, at, _) => at.map_or_else(String::new, ended::utc),
    };
    let event = verdict.crash.as_ref().and_then(|crash| crash.event.rsplit(':').next());
    let raised = verdict.others.iter().filter(|other| verdict.has_evidence(&other.crash));
    let raised = raised.map(|other| format!("{}; {}", other.crash.summary(), other.fate));
    let frames = verdict.crash.iter().flat_map(Crash::backtrace_lines);
    Some(Death {
        what: format!("session {name}"),
        word: event.unwrap_or("end").to_owned(),
        when,
        // A process that was killed went on after it was last seen.
        time: match &verdict.crash {
            Some(crash) => Some(crash.time_ns.clone()),
            None => verdict.at.filter(|_| !verdict.is_last_seen).map(|at| at.to_string()),
        },
        why: format!("{name}: {}", verdict.sentence),
        details: frames.chain(raised).collect(),
    })
}

//! Handles clocks that nothing relates to real time. Events cannot be merged or selected by such a
//! clock.

use crate::moment::{Moment, out_of_range};
use crate::say;
use crate::table::plain;
use crate::traces::Traces;
use anyhow::bail;
use lastwords_open::{Body, Trace, UnrelatedClock, unrelated_clocks};

/// Prints a note for each merged trace whose clock nothing relates to real time. Its events appear
/// as if the clock began in 1970. Trace arrays are left out unless `with_arrays` is set.
pub(crate) fn note_merged(traces: &Traces, with_arrays: bool) {
    merged(traces, with_arrays).iter().for_each(say::note);
}

/// Prints a note for each trace whose clock nothing relates to real time, for a format whose times
/// are dates.
pub(crate) fn note_undated(traces: &Traces) {
    for (trace, clock) in traces.all.iter().filter_map(|t| Some((t, t.unrelated_clock()?))) {
        say::note(format_args!(
            "{}: the relation of its clock {} to real time is not known: its records have no time, and readings of that clock instead",
            name(trace),
            plain(&clock.name)
        ));
    }
}

/// Returns these notes.
pub(crate) fn merged(traces: &Traces, with_arrays: bool) -> Vec<String> {
    let unrelated = unrelated_clocks(&traces.all).into_iter();
    let unrelated = unrelated.filter(|(trace, _)| with_arrays || trace.ftrace().is_none());
    let note = |(trace, clock): (&Trace, UnrelatedClock)| {
        format!(
            "{}: the relation of its clock {} to real time is not known: its events are shown as if the clock began in 1970, not in their order among the others",
            name(trace),
            plain(&clock.name)
        )
    };
    unrelated.map(note).collect()
}

/// Refuses moments that cannot be found by the clock of a trace.
///
/// # Errors
/// A moment cannot be found. The message names the trace and its clock.
pub(crate) fn check_moments(traces: &Traces, moments: &[Option<Moment>]) -> anyhow::Result<()> {
    let given = || moments.iter().flatten();
    let clock_in_ticks = |trace: &Trace| {
        Some(trace.ftrace()?.array)
            .filter(|array| !array.is_in_ns())
            .map(|array| plain(array.clock_name()))
    };
    if given().any(|moment| !matches!(moment, Moment::Whole(_)))
        && let Some((trace, clock)) =
            traces.all.iter().find_map(|trace| Some((trace, clock_in_ticks(trace)?)))
    {
        bail!(
            "{}: its clock {clock} does not count nanoseconds: give --since and --until in ticks as they are printed (5039001)",
            name(trace)
        );
    }
    if given().any(|moment| moment.is_out_of_range())
        && traces.all.iter().any(|trace| clock_in_ticks(trace).is_none())
    {
        bail!("--since, --until: {}", out_of_range());
    }
    let unrelated = || traces.all.iter().find_map(|trace| Some((trace, trace.unrelated_clock()?)));
    if given().any(|moment| moment.is_date())
        && let Some((trace, clock)) = unrelated()
    {
        bail!(
            "{}: nothing relates its clock {} to real time, so that a date or a time of day selects none of its events: give --since and \
             --until in seconds as they are printed (17.6), or as -2s before the newest event",
            name(trace),
            plain(&clock.name)
        );
    }
    // Each trace array has its own newest event, so only the other traces need related clocks.
    if given().any(|moment| moment.needs_end())
        && let Some((trace, clock)) =
            unrelated_clocks(&traces.all).into_iter().find(|(trace, _)| trace.ftrace().is_none())
    {
        bail!(
            "{}: nothing relates its clock {} to those of the others, so that the newest event of all is not known: name it alone, or give \
             --since and --until in seconds as they are printed (17.6)",
            name(trace),
            plain(&clock.name)
        );
    }
    Ok(())
}

fn name(trace: &Trace) -> String {
    let path = trace.origin.path.display();
    plain(&match &trace.body {
        Body::Ctf(ctf) => ctf.path.display().to_string(),
        Body::Ftrace { .. } => format!("{path}: instance {}", trace.name),
        Body::Session(_) | Body::Lttng(_) => format!("{path}: session {}", trace.name),
    })
}

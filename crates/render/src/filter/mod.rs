//! Binds the names of a filter expression to the fields of events.
//!
//! A name is looked for among the fields of the payload, then among the contexts, then among the
//! names in [`BUILT_IN`]. `CPU` and `COMM` are always the CPU and the name of the task, as in the
//! kernel; `$ctx.NAME` is only a context.
//!
//! `packets` evaluates a filter on decoded events. A source that evaluates it on its own bytes is a
//! [`Described`].

pub(crate) mod bound;
pub(crate) mod names;
mod nearest;
pub(crate) mod packets;

use lastwords_ctf::read::Trace;
use lastwords_filter::{Described, Error, Filter, Name};
use lastwords_glob::is_named;
use std::collections::BTreeSet;

/// Names that mean the same for traces of several kinds, as far as a trace has them: the CPU, the
/// name of the thread, the ids of process and thread, the severity (a word and a number), the
/// event's whole name, and the channel's name.
pub const BUILT_IN: &[&str] =
    &["cpu", "CPU", "comm", "COMM", "pid", "tid", "level", "event", "channel"];

/// Checks that an event class of these traces, or an event that others describe, has each name that
/// the filter reads.
///
/// # Errors
/// No event class has a name. The error points at it in the expression, and has the names that are
/// nearest to it.
pub fn check(filter: &Filter, traces: &[Trace], others: &[&dyn Described]) -> Result<(), Error> {
    let is_known = |name: &Name| {
        names::is_known(name, traces, false) || others.iter().any(|other| other.has(name))
    };
    let Some((position, unknown)) =
        filter.names().iter().enumerate().find(|(_, name)| !is_known(name))
    else {
        return Ok(());
    };
    let reads_level = filter.names().iter().any(|name| name.plain() == Some("level"));
    let words = if reads_level { lastwords_filter::LEVEL_WORDS } else { &[] };
    let near = nearest(unknown, traces, others, words);
    let what = if unknown.is_context() { "a context" } else { "a field, a context" };
    let expected = match near.as_slice() {
        [] if unknown.is_context() => {
            format!(
                "{what} that an event of the input has; `lastwords recover --to json` shows them"
            )
        }
        [] => format!("{what} that an event of the input has, or one of {}", BUILT_IN.join(", ")),
        near => format!("{what} that an event of the input has, such as {}", near.join(", ")),
    };
    Err(filter.unknown_name(position, &expected))
}

/// Returns the names that are nearest to an unknown one, among those of the traces and `more`.
fn nearest(
    unknown: &Name,
    traces: &[Trace],
    others: &[&dyn Described],
    more: &[&str],
) -> Vec<String> {
    let is_known = |name: &Name| {
        names::is_known(name, traces, false) || others.iter().any(|other| other.has(name))
    };
    let mut known = BTreeSet::new();
    names::add_names(traces, &mut known);
    others.iter().for_each(|other| other.add_names(&mut known));
    known.retain(|name| name.starts_with("$ctx.") == unknown.is_context());
    if !unknown.is_context() {
        known.extend(BUILT_IN.iter().filter_map(|name| {
            let filter = Filter::parse(name).ok()?;
            filter.names().first().is_some_and(is_known).then(|| (*name).to_owned())
        }));
        known.extend(more.iter().map(|name| (*name).to_owned()));
    }
    nearest::names(&unknown.to_string(), &known)
}

/// Returns the known names that are nearest to `wanted`, the nearest first; none if no name is near.
#[must_use]
pub fn nearest_names(wanted: &str, known: &BTreeSet<String>) -> Vec<String> {
    nearest::names(wanted, known)
}

/// Returns the globs that match no event that the traces or others describe. Each has the names of
/// events that are nearest to it.
#[must_use]
pub fn unknown_events<'g>(
    globs: &'g [String],
    traces: &[Trace],
    others: &[&dyn Described],
) -> Vec<(&'g str, Vec<String>)> {
    let mut known = BTreeSet::new();
    for class in
        traces.iter().flat_map(|trace| &trace.class().streams).flat_map(|stream| &stream.events)
    {
        known.extend(class.name.clone());
    }
    others.iter().for_each(|other| other.add_events(&mut known));
    let unknown = globs.iter().filter(|glob| !known.iter().any(|name| is_named(glob, name)));
    let last = |name: &String| {
        name.rsplit_once(':').map_or_else(|| name.clone(), |(_, last)| last.to_owned())
    };
    let near = |glob: &str| match glob.contains(':') {
        true => nearest::names(glob, &known),
        false => nearest::names(glob, &known.iter().map(last).collect()),
    };
    unknown.map(|glob| (glob.as_str(), near(glob))).collect()
}

/// Returns none if an event class of the traces has the name that is all of `filter`. Otherwise it
/// returns the nearest names.
pub(crate) fn unknown_names(
    filter: &Filter,
    traces: &[Trace],
    more: &[&str],
) -> Option<Vec<String>> {
    let name = filter.names().first()?;
    (!names::is_known(name, traces, true)).then(|| nearest(name, traces, &[], more))
}

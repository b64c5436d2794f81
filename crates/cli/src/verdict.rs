//! The verdict on a trace, for formats that have a record of it: how what recorded it ended, and
//! what is missing.

use crate::traces::Traces;
use crate::{deaths, ended};
use lastwords::{Ended, Ending};
use lastwords_open::why;
use lastwords_open::{Account, Losses, Trace, Value};
use lastwords_render::otlp::{self, Verdict};

/// Returns true if the trace is one of a session that is known to have ended.
pub(crate) fn has_ended(traces: &Traces, trace: &Trace) -> bool {
    trace.ended().is_some() || deaths::of_trace(traces, trace, false).is_some()
}

fn text(text: &str) -> Value {
    Value::Text(text.as_bytes().to_vec())
}

/// Returns the verdict, with names of the frames of backtraces.
pub(crate) fn verdict(traces: &Traces, trace: &Trace, account: &Account<'_>) -> Verdict {
    let mut facts = Vec::new();
    let judged = traces.verdict(trace);
    facts.extend(judged.as_ref().map(|own| ("lastwords.cause", text(own.cause.word()))));
    let verdict = match deaths::of_trace(traces, trace, true) {
        Some(death) => {
            let is_crash = judged.as_ref().is_none_or(|own| own.crash.is_some());
            if is_crash {
                facts.push(("exception.type", text(&death.word)));
                facts.push(("exception.message", text(&death.why)));
            }
            if !death.details.is_empty() {
                facts.push(("exception.stacktrace", text(&death.details.join("\n"))));
            }
            if trace.ftrace().is_some() {
                facts.push(("lastwords.ended", text(&death.word)));
            }
            let time = death.time.and_then(|time| time.parse().ok());
            let text = format!("{}, {}", death.why, death.when);
            Verdict { text, ending: otlp::Ending::Died, time, facts: Vec::new() }
        }
        None => match trace.ended() {
            Some(ended) => Verdict {
                text: format!("{}: {}", trace.name, how(judged.as_ref(), &ended)),
                ending: otlp::Ending::Well,
                time: i64::try_from(ended.at).ok(),
                facts: Vec::new(),
            },
            None => {
                let why = trace.session().and_then(|found| found.unknown_end.clone());
                let why = why.map_or_else(String::new, |why| format!(": {why}"));
                let text = format!("{}: its end is not known{why}", trace.name);
                Verdict { text, ending: otlp::Ending::Unknown, time: None, facts: Vec::new() }
            }
        },
    };
    facts.extend(end(trace));
    facts.extend(losses(account));
    Verdict { facts, ..verdict }
}

/// Returns how a session ended, in the words of the verdict.
fn how(judged: Option<&why::Verdict>, ended: &Ended) -> String {
    judged.map_or_else(|| ended::how(ended), |own| own.sentence.clone())
}

/// Returns how a session ended.
fn end(trace: &Trace) -> Vec<(&'static str, Value)> {
    let Some(ended) = trace.ended() else { return Vec::new() };
    let mut facts = vec![("lastwords.ended", text(ended.how.name()))];
    match ended.how {
        Ending::Signal(Some(number)) => {
            facts.push(("lastwords.signal", text(&ended::signal_name(number))));
        }
        Ending::Exit(Some(status)) | Ending::Closed(Some(status)) => {
            facts.push(("process.exit.code", Value::Unsigned(status.into())));
        }
        _ => {}
    }
    // A process that was killed went on after it was last seen.
    let name = match ended.how {
        Ending::Killed => "lastwords.last_seen_ns",
        _ => "lastwords.ended_ns",
    };
    facts.push((name, Value::Unsigned(ended.at)));
    facts
}

/// Returns the losses of a trace, as the other outputs count them.
fn losses(account: &Account<'_>) -> Vec<(&'static str, Value)> {
    let losses = Losses::from_accounts([account]);
    let mut facts = vec![
        ("lastwords.losses", Value::Bool(losses.any)),
        ("lastwords.losses.text", text(&losses.words())),
        ("lastwords.cut_values", Value::Unsigned(losses.cut)),
        ("lastwords.changed_values", Value::Unsigned(losses.changed)),
    ];
    // With losses of unknown size, the number is a lower bound or nothing.
    let is_exact = !losses.any || losses.events > 0 && !losses.more;
    let name = if is_exact { "lastwords.lost_events" } else { "lastwords.lost_events.at_least" };
    facts.push((name, Value::Unsigned(losses.events)));
    facts
}

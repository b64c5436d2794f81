//! Compares what was read of a trace without some of its parts with what was read of the whole.

use std::collections::HashMap;
use std::ffi::OsStr;

use serde_json::Value;

use crate::read::{Event, Whole};

/// The sum of some images.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    /// Events that were read.
    pub(crate) events: u64,
    /// Events of which a part is unknown.
    pub(crate) partly: u64,
    /// Events under a trace that is not known.
    pub(crate) unattributed: u64,
    /// Events of the whole that were not read.
    pub(crate) missing: u64,
    /// Images of which nothing was read, with the reason.
    pub(crate) refused: Vec<String>,
    /// Mistakes, in words; the kind is in front of a colon.
    pub(crate) wrong: Vec<String>,
}

impl Verdict {
    /// Adds an image.
    pub(crate) fn add(&mut self, other: Self) {
        self.events += other.events;
        self.partly += other.partly;
        self.unattributed += other.unattributed;
        self.missing += other.missing;
        self.refused.extend(other.refused);
        self.wrong.extend(other.wrong);
    }
}

/// Judges an image of which nothing was read. The reason must name the file.
pub(crate) fn refused(why: &str, name: &OsStr) -> Verdict {
    let first = why.lines().find(|line| line.starts_with("error")).unwrap_or(why).to_owned();
    if why.starts_with("PANIC") || !why.contains(&*name.to_string_lossy()) {
        return Verdict { wrong: vec![format!("NO REASON: {first}")], ..Verdict::default() };
    }
    Verdict { refused: vec![format!("refused: {first}")], ..Verdict::default() }
}

type Place = (u64, String);

/// Returns the reading of the clock and the CPU of an event.
fn place(event: &Event) -> Place {
    let ticks = event.members.get("ticks").and_then(Value::as_u64).unwrap_or(0);
    (ticks, event.members.get("cpu").map(Value::to_string).unwrap_or_default())
}

/// Judges what was read.
pub(crate) fn judge(whole: &Whole, found: &Whole) -> Verdict {
    let mut known: HashMap<Place, Vec<(&Event, bool)>> = HashMap::new();
    for event in &whole.events {
        known.entry(place(event)).or_default().push((event, false));
    }
    let mut verdict = Verdict { events: found.events.len() as u64, ..Verdict::default() };
    let mut matched = 0;
    for event in &found.events {
        let all = known.get_mut(&place(event)).map(Vec::as_mut_slice).unwrap_or_default();
        let is_free = |used: &bool| !used;
        let exact = all.iter_mut().find(|(other, used)| is_free(used) && *other == event);
        let best = match exact {
            Some(exact) => Some((exact, true)),
            None => all
                .iter_mut()
                .find(|(other, used)| is_free(used) && is_part(event, other))
                .map(|other| (other, false)),
        };
        let Some(((other, used), is_exact)) = best else {
            let near = all
                .first()
                .map(|(other, _)| format!("; the whole has {other:?}"))
                .unwrap_or_default();
            verdict.wrong.push(format!("WRONG: {event:?}{near}"));
            continue;
        };
        *used = true;
        matched += 1;
        // The name of a trace may be its folder's, while every part of the event is known.
        let is_known =
            is_exact || event.members == other.members && !event.trace.starts_with("unknown");
        verdict.partly += u64::from(!is_known);
        verdict.unattributed += u64::from(other.trace != event.trace);
    }
    verdict.missing = whole.events.len() as u64 - matched;
    if !found.is_lost && (verdict.missing > 0 || verdict.partly > 0) {
        let what = format!("{} missing, {} partly", verdict.missing, verdict.partly);
        verdict.wrong.push(format!("UNTOLD: {what}; said: {}", found.said.replace('\n', " | ")));
    }
    verdict
}

/// Returns true if an event is one of the whole of which parts are unknown.
fn is_part(event: &Event, whole: &Event) -> bool {
    // A trace has the name of its host in front, if that is known.
    let is_below = whole
        .trace
        .strip_suffix(&event.trace)
        .is_some_and(|host| host.ends_with('/') || event.trace.is_empty());
    if event.trace != whole.trace && !is_below && !event.trace.starts_with("unknown") {
        return false;
    }
    // No format describes it: its bytes are shown.
    let is_raw = event.members.get("event").is_some_and(|name| name == "ftrace:unknown");
    event.members.iter().all(|(name, value)| match whole.members.get(name) {
        Some(known) if known == value => true,
        _ if is_raw && matches!(name.as_str(), "event" | "fields") => true,
        Some(known) if name == "context" => is_part_of_context(value, known, is_raw),
        Some(known) if name == "fields" => are_fields(value, known),
        // A channel whose name is not known has its number.
        Some(_) if name == "channel" => {
            event.trace.starts_with("unknown")
                || value.as_str().is_some_and(|text| text.parse::<u32>().is_ok())
        }
        // Without descriptions the level of an event is not known.
        Some(_) => value.is_null(),
        None => false,
    })
}

fn is_part_of_context(value: &Value, whole: &Value, is_raw: bool) -> bool {
    let (Some(value), Some(whole)) = (value.as_object(), whole.as_object()) else { return false };
    value.iter().all(|(name, value)| match (name.as_str(), whole.get(name)) {
        (_, Some(known)) if known == value => true,
        // A context whose name is not known has a number.
        (numbered, None) if numbered.starts_with("context") => {
            whole.values().any(|known| known == value)
        }
        ("comm", _) => value == "<...>",
        // Any number of events in front of it may be missing.
        ("lost", _) => value.as_i64().is_some_and(|lost| lost != 0),
        // Symbols, formats of printk and names of tasks may be missing: the fields are compared.
        ("text", Some(_)) => true,
        _ => is_raw && value.is_null(),
    })
}

fn are_fields(value: &Value, whole: &Value) -> bool {
    let (Some(value), Some(whole)) = (value.as_object(), whole.as_object()) else { return false };
    value.iter().all(|(name, value)| match whole.get(name) {
        Some(known) => known == value || value.is_null() || value == "unknown",
        None => false,
    })
}

//! The files `filter` of events, and how filters outlive `enable`.
//!
//! In the kernel a filter belongs to the event, whether it is enabled or not. In a session it
//! belongs to the rule that enables the event. So the mount remembers the filters of events
//! ([`Filters`]) and gives them to the rules that it writes.

use std::collections::BTreeMap;
use std::sync::Mutex;

use lastwords::rules::RuleSpec;
use lastwords_filter::{Filter, Name, Step};
use rustix::io::Errno;

use crate::buffer::{Buffer, guard};
use crate::catalog::Event;
use crate::control;
use crate::error_log::Refusal;
use crate::restriction::{self, Restriction};

/// The text of a provider's `filter`.
pub(crate) const PROVIDER_FILTER: &str = "### global filter ###\n# Use this to set filters for multiple events.\n\
     # Only events that have the fields are affected.\n";

/// Names that each event has, beside its fields.
const CONTEXTS: &[&str] =
    &["comm", "pid", "tid", "common_pid", "cpu", "CPU", "COMM", "level", "channel", "event"];

/// The filters that were set through the mount, by the pattern of the event alone.
#[derive(Debug, Default)]
pub(crate) struct Filters(Mutex<BTreeMap<String, String>>);

/// Returns the filter of an event: that of the rule that decides on it, else the one that waits for
/// it to be enabled.
pub(crate) fn of(buffer: &Buffer, rules: &[RuleSpec], event: &Event) -> Option<String> {
    let decides = rules.iter().rev().find(|rule| control::matches_rule(rule, event));
    let active = decides.filter(|rule| rule.enable).and_then(|rule| rule.filter.clone());
    // A trigger that disables the event leaves the rule with its filter behind.
    let pattern = control::pattern_of(event);
    let left = || {
        rules
            .iter()
            .rev()
            .find(|rule| rule.enable && rule.filter.is_some() && rule.pattern == pattern)
    };
    let is_off = decides.is_some_and(|rule| !rule.enable && rule.pattern == pattern);
    let left = if is_off { left().and_then(|rule| rule.filter.clone()) } else { None };
    active.or(left).or_else(|| kept(buffer, event))
}

/// Remembers the filter that an event has now, before rules change. Returns whether it has one.
pub(crate) fn remember(buffer: &Buffer, rules: &[RuleSpec], event: &Event) -> bool {
    let filter = of(buffer, rules, event);
    let has_filter = filter.is_some();
    keep(buffer, event, filter);
    has_filter
}

/// Returns the filter that is remembered for an event.
pub(crate) fn kept(buffer: &Buffer, event: &Event) -> Option<String> {
    guard(&buffer.filters.0).get(&control::pattern_of(event)).cloned()
}

/// Remembers the filter of an event, or that it has none.
fn keep(buffer: &Buffer, event: &Event, filter: Option<String>) {
    let mut kept = guard(&buffer.filters.0);
    match filter {
        Some(filter) => kept.insert(control::pattern_of(event), filter),
        None => kept.remove(&control::pattern_of(event)),
    };
}

/// Returns the text of an event's `filter`.
pub(crate) fn text(buffer: &Buffer, event: &Event) -> Result<String, Errno> {
    let (_, rules) = restriction::read(buffer)?;
    Ok(of(buffer, &rules, event)
        .map_or_else(|| "none\n".to_owned(), |filter| format!("{filter}\n")))
}

/// Sets the filter of these events. `0` and `none` remove it. Of several events, those without the
/// fields are left as they are.
pub(crate) fn set(buffer: &Buffer, events: &[&Event], command: &[u8]) -> Result<(), Errno> {
    let mut text = String::from_utf8_lossy(command).trim().to_owned();
    let filter = match text.as_str() {
        "0" | "none" => None,
        text => {
            Some(parse(text).map_err(|refusal| buffer.refuse(Errno::INVAL, command, &refusal))?)
        }
    };
    if Restriction::split(&text).is_some() {
        // It is the user's own, although it looks like one of the mount.
        text = format!("({text})");
    }
    let unknown =
        |event: &&Event| filter.as_ref().and_then(|filter| unknown_name(filter, &text, event));
    let fitting: Vec<&Event> =
        events.iter().copied().filter(|event| unknown(event).is_none()).collect();
    if fitting.is_empty() {
        let refusal = events.iter().find_map(unknown).ok_or(Errno::NOENT)?;
        return Err(buffer.refuse(Errno::INVAL, command, &refusal));
    }
    let before: Vec<Option<String>> = fitting.iter().map(|event| kept(buffer, event)).collect();
    fitting.iter().for_each(|event| keep(buffer, event, filter.as_ref().map(|_| text.clone())));
    let added = control::add_enabled(buffer, &fitting, "filter", command);
    if added.is_err() {
        fitting.iter().zip(before).for_each(|(event, before)| keep(buffer, event, before));
    }
    added
}

fn refused(error: &lastwords_filter::Error, text: &str, at: usize) -> Refusal {
    let offset = text.get(..at).map_or(0, |before| before.chars().count());
    let why = format!("found {}; expected {}", error.found(), error.expected());
    Refusal { place: "event filter parse error".to_owned(), why, offset }
}

/// Parses the expression of a filter that is written.
pub(crate) fn parse(text: &str) -> Result<Filter, Refusal> {
    Filter::parse(text).map_err(|error| refused(&error, text, error.offset()))
}

/// Returns why a filter does not fit an event: the event has no field of a name.
pub(crate) fn unknown_name(filter: &Filter, text: &str, event: &Event) -> Option<Refusal> {
    let is_field = |name: &str| event.fields.iter().any(|field| field.name == name);
    let is_unknown = |name: &Name| {
        let first = name
            .steps()
            .first()
            .map(|step| if let Step::Member(name) = step { name.as_str() } else { "" });
        !name.is_context() && !first.is_some_and(|name| is_field(name) || CONTEXTS.contains(&name))
    };
    let position = filter.names().iter().position(is_unknown)?;
    let error = filter.unknown_name(position, "a field of the event");
    // The kernel points behind the name and the blanks that follow it.
    let rest = text.get(error.offset()..).unwrap_or_default();
    let behind = rest.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_').trim_start();
    Some(refused(&error, text, text.len() - behind.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastwords_trace::schema::{Field, FieldClass};

    fn event(fields: &[&str]) -> Event {
        let field = |name: &&str| Field { name: (*name).to_owned(), class: FieldClass::Bool };
        let fields = fields.iter().map(field).collect();
        Event::made("shop", "sale", fields)
    }

    #[test]
    fn a_wrong_expression_is_told_with_its_place() {
        let refusal = parse("bytes >").unwrap_err();
        assert!(!refusal.why.is_empty() && !refusal.why.contains('\n'), "{refusal:?}");
        let text = "bytes > 1 && byte == 2";
        let refusal = unknown_name(&parse(text).unwrap(), text, &event(&["bytes"])).unwrap();
        assert_eq!(refusal.offset, 18, "{refusal:?}");
        let text = "bytes > 1 && comm == \"x\"";
        assert_eq!(unknown_name(&parse(text).unwrap(), text, &event(&["bytes"])), None);
    }
}

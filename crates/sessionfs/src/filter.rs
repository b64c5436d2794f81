//! The files `filter` and `trigger` of events, and how filters outlive `enable`.
//!
//! In the kernel a filter belongs to the event, whether it is enabled or not. In a session it belongs to the rule that enables the
//! event. So the mount remembers the filters of events ([`Filters`]) and gives them to the rules that it writes.

use std::collections::BTreeMap;
use std::sync::Mutex;

use lastwords::condition::{Action, Condition};
use lastwords::rules::RuleSpec;
use lastwords_filter::{Filter, Name, Step};
use rustix::io::Errno;

use crate::buffer::{Buffer, guard};
use crate::catalog::Event;
use crate::control;
use crate::error_log::Refusal;

/// The text of a provider's `filter`.
pub(crate) const PROVIDER_FILTER: &str = "### global filter ###\n# Use this to set filters for multiple events.\n\
     # Only events that have the fields are affected.\n";
/// The text of `trigger` of an event that has none.
const NO_TRIGGER: &str = "# Available triggers:\n# traceoff snapshot\n";

/// Names that each event has, beside its fields.
const CONTEXTS: &[&str] = &["comm", "pid", "tid", "common_pid", "cpu", "CPU", "COMM", "level", "channel", "event"];

/// The filters that were set through the mount, by the pattern of the event alone.
#[derive(Debug, Default)]
pub(crate) struct Filters(Mutex<BTreeMap<String, String>>);

/// Returns the filter of an event: that of the rule that decides on it, else the one that waits for it to be enabled.
pub(crate) fn of(buffer: &Buffer, rules: &[RuleSpec], event: &Event) -> Option<String> {
    let decides = rules.iter().rev().find(|rule| control::matches_rule(rule, event));
    let active = decides.filter(|rule| rule.enable).and_then(|rule| rule.filter.clone());
    active.or_else(|| kept(buffer, event))
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
    let rules = buffer.details()?.rules;
    Ok(of(buffer, &rules, event).map_or_else(|| "none\n".to_owned(), |filter| format!("{filter}\n")))
}

/// Sets the filter of these events. `0` and `none` remove it. Of several events, those without the fields are left as they are.
pub(crate) fn set(buffer: &Buffer, events: &[&Event], command: &[u8]) -> Result<(), Errno> {
    let text = String::from_utf8_lossy(command).trim().to_owned();
    let filter = match text.as_str() {
        "0" | "none" => None,
        text => Some(parse(text).map_err(|refusal| buffer.refuse(Errno::INVAL, command, &refusal))?),
    };
    let mut refusal = None;
    let mut is_set = false;
    for event in events {
        let unknown = filter.as_ref().and_then(|filter| unknown_name(filter, &text, event));
        if let Some(unknown) = unknown {
            refusal = Some(unknown);
            continue;
        }
        is_set = true;
        let is_enabled = control::is_on(buffer, event)?;
        keep(buffer, event, filter.as_ref().map(|_| text.clone()));
        if is_enabled {
            control::add_event(buffer, event, "filter", command)?;
        }
    }
    match refusal.filter(|_| !is_set) {
        Some(refusal) => Err(buffer.refuse(Errno::INVAL, command, &refusal)),
        None if events.is_empty() => Err(Errno::NOENT),
        None => Ok(()),
    }
}

fn refused(error: &lastwords_filter::Error, text: &str, at: usize) -> Refusal {
    let offset = text.get(..at).map_or(0, |before| before.chars().count());
    let why = format!("found {}; expected {}", error.found(), error.expected());
    Refusal { place: "event filter parse error".to_owned(), why, offset }
}

fn parse(text: &str) -> Result<Filter, Refusal> {
    Filter::parse(text).map_err(|error| refused(&error, text, error.offset()))
}

/// Returns why a filter does not fit an event: the event has no field of a name.
fn unknown_name(filter: &Filter, text: &str, event: &Event) -> Option<Refusal> {
    let is_field = |name: &str| event.fields.iter().any(|field| field.name == name);
    let is_unknown = |name: &Name| {
        let first = name.steps().first().map(|step| if let Step::Member(name) = step { name.as_str() } else { "" });
        !name.is_context() && !first.is_some_and(|name| is_field(name) || CONTEXTS.contains(&name))
    };
    let position = filter.names().iter().position(is_unknown)?;
    let error = filter.unknown_name(position, "a field of the event");
    // The kernel points behind the name and the blanks that follow it.
    let rest = text.get(error.offset()..).unwrap_or_default();
    let behind = rest.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_').trim_start();
    Some(refused(&error, text, text.len() - behind.len()))
}

/// Returns the text of an event's `trigger`: a line for each.
pub(crate) fn triggers(buffer: &Buffer, event: &Event) -> String {
    let conditions = buffer
        .handle
        .conditions()
        .into_iter()
        .filter(|one| one.pattern == control::pattern_of(event) && one.latency.is_none());
    let lines: String = conditions.map(|condition| format!("{}\n", trigger_line(&condition))).collect();
    if lines.is_empty() { NO_TRIGGER.to_owned() } else { lines }
}

fn trigger_line(condition: &Condition) -> String {
    let action = match condition.action {
        Action::Snapshot => "snapshot",
        Action::Stop => "traceoff",
    };
    let filter = condition.filter.as_ref().map_or_else(String::new, |filter| format!(" if {filter}"));
    format!("{action}:unlimited{filter}")
}

/// Adds a trigger to an event, `snapshot` or `traceoff`, with ` if FILTER`; or removes one (`!`).
pub(crate) fn set_trigger(buffer: &Buffer, event: &Event, command: &[u8]) -> Result<(), Errno> {
    let text = String::from_utf8_lossy(command).trim().to_owned();
    let (is_new, spec) = text.strip_prefix('!').map_or((true, text.as_str()), |spec| (false, spec));
    if spec.is_empty() {
        return if is_new { Ok(()) } else { Err(Errno::INVAL) };
    }
    let refuse = |errno: Errno, why: &str| Err(buffer.refuse(errno, command, &Refusal::new("trigger", why)));
    let (action, filter) = match spec.split_once(" if ") {
        Some((action, filter)) => (action.trim(), Some(filter.trim())),
        None => (spec, None),
    };
    let condition = Condition::on(control::pattern_of(event));
    let condition = match action.split_once(':').map_or(action, |(action, _)| action) {
        "snapshot" => condition,
        "traceoff" => condition.and_stop(),
        _ => return refuse(Errno::INVAL, "events of applications have the triggers snapshot and traceoff"),
    };
    if action.split_once(':').is_some_and(|(_, count)| count != "unlimited") && is_new {
        return refuse(
            Errno::INVAL,
            "a trigger has no count here; `lastwords trigger add --count N` fires at each N-th event",
        );
    }
    let of_event =
        |one: &Condition| one.pattern == condition.pattern && one.action == condition.action && one.latency.is_none();
    let (same, others): (Vec<_>, Vec<_>) = buffer.handle.conditions().into_iter().partition(of_event);
    let failed = |error| buffer.failed("trigger", command, &error);
    if is_new {
        if !same.is_empty() {
            return refuse(Errno::EXIST, "the event has such a trigger");
        }
        let condition = match filter {
            Some(text) => {
                let refusal = parse(text).map(|filter| unknown_name(&filter, text, event)).unwrap_or_else(Some);
                if let Some(refusal) = refusal {
                    let offset = refusal.offset + spec.len() - text.len();
                    return Err(buffer.refuse(Errno::INVAL, command, &Refusal { offset, ..refusal }));
                }
                condition.with_filter(text)
            }
            None => condition,
        };
        return buffer.handle.add_condition(&condition).map_err(failed);
    }
    if same.is_empty() {
        return refuse(Errno::NOENT, "the event has no such trigger");
    }
    buffer.handle.remove_conditions(Some(&condition.pattern)).map_err(failed)?;
    let mut of_pattern = others.iter().filter(|other| other.pattern == condition.pattern);
    of_pattern.try_for_each(|other| buffer.handle.add_condition(other).map_err(failed))
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

    #[test]
    fn triggers_look_as_in_the_kernel() {
        let of = |condition: Condition| trigger_line(&condition);
        assert_eq!(of(Condition::on("shop:sale")), "snapshot:unlimited");
        assert_eq!(of(Condition::on("a:b").and_stop().with_filter("n > 3")), "traceoff:unlimited if n > 3");
    }
}

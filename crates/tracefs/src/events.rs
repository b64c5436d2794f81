//! Chooses events by names and globs, and enables them with their filters.

use crate::instance::Instance;
use crate::rule::Rule;
use crate::triggers;
use anyhow::{Context, bail};
use std::collections::BTreeMap;

/// The events that can be enabled, by system.
pub(crate) type Events = BTreeMap<String, Vec<String>>;

/// Lists the events that can be enabled. They are the same in all instances.
pub(crate) fn list(top: &Instance) -> anyhow::Result<Events> {
    let mut events = Events::new();
    for (system, event) in
        top.read("available_events")?.lines().filter_map(|line| line.split_once(':'))
    {
        events.entry(system.to_owned()).or_default().push(event.to_owned());
    }
    Ok(events)
}

/// Returns the events that a pattern selects.
///
/// # Errors
/// It selects none, or a bracket in it has no end.
pub(crate) fn select(events: &Events, pattern: &str) -> anyhow::Result<Events> {
    if !lastwords_glob::is_well_formed(pattern) {
        bail!("event {pattern}: a bracket has no end");
    }
    let is = lastwords_glob::matches;
    let wanted = |system: &str, event: &str| match pattern.split_once(':') {
        Some((systems, names)) => is(systems, system) && (names.is_empty() || is(names, event)),
        None => pattern == "all" || is(pattern, system) || is(pattern, event),
    };
    let mut selected = Events::new();
    for (system, names) in events {
        let names: Vec<String> =
            names.iter().filter(|name| wanted(system, name)).cloned().collect();
        if !names.is_empty() {
            selected.insert(system.clone(), names);
        }
    }
    if selected.is_empty() {
        bail!(
            "event {pattern}: this kernel has no such event; /sys/kernel/tracing/available_events lists all"
        );
    }
    Ok(selected)
}

/// Sets the filters of all rules, then enables the events, and disables those that are left out. A
/// later rule replaces the filter of an earlier one for the same event.
///
/// # Errors
/// A rule selects no event, or the kernel refuses a filter for one of its events.
pub(crate) fn enable(top: &Instance, instance: &Instance, rules: &[Rule]) -> anyhow::Result<()> {
    let all = list(top)?;
    let chosen: Vec<(&Rule, Events)> = rules
        .iter()
        .map(|rule| Ok((rule, select(&all, &rule.pattern)?)))
        .collect::<anyhow::Result<_>>()?;
    for (rule, events) in chosen.iter().filter(|(rule, _)| !rule.filter.is_empty()) {
        for (system, event) in pairs(events) {
            instance.write(&format!("events/{system}/{event}/filter"), &rule.filter).with_context(
                || {
                    format!(
                        "the filter of -e {}: give it only to events that have its fields",
                        rule.pattern
                    )
                },
            )?;
        }
    }
    for (rule, events) in &chosen {
        let text = if rule.is_left_out { "0" } else { "1" };
        for (system, names) in events {
            if all.get(system) == Some(names) {
                instance.write(&format!("events/{system}/enable"), text)?;
                continue;
            }
            for event in names {
                instance.write(&format!("events/{system}/{event}/enable"), text)?;
            }
        }
    }
    Ok(())
}

/// Sets the triggers of all rules. They work from then on, whether or not the instance records.
///
/// # Errors
/// The kernel refuses a trigger for one of the events.
pub(crate) fn set_triggers(
    top: &Instance,
    instance: &Instance,
    rules: &[Rule],
) -> anyhow::Result<()> {
    let rules: Vec<&Rule> = rules.iter().filter(|rule| !rule.triggers.is_empty()).collect();
    if rules.is_empty() {
        return Ok(());
    }
    let all = list(top)?;
    for rule in rules {
        for (system, event) in pairs(&select(&all, &rule.pattern)?) {
            triggers::set(instance, system, event, &rule.triggers)
                .with_context(|| format!("a trigger of -e {}", rule.pattern))?;
        }
    }
    Ok(())
}

/// Returns the systems and names of events.
pub(crate) fn pairs(events: &Events) -> impl Iterator<Item = (&str, &str)> {
    events
        .iter()
        .flat_map(|(system, names)| names.iter().map(move |name| (system.as_str(), name.as_str())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(pattern: &str) -> Result<Vec<String>, String> {
        let events: Events = [
            ("sched", vec!["sched_switch", "sched_waking"]),
            ("syscalls", vec!["sys_enter_read", "sys_exit_read"]),
            ("timer", vec!["timer_start"]),
        ]
        .into_iter()
        .map(|(system, names)| (system.to_owned(), names.into_iter().map(str::to_owned).collect()))
        .collect();
        let found = select(&events, pattern).map_err(|error| error.to_string())?;
        Ok(pairs(&found).map(|(system, event)| format!("{system}:{event}")).collect())
    }

    #[test]
    fn events_are_chosen_by_names_and_globs() {
        let both = ["sched:sched_switch", "sched:sched_waking"];
        assert_eq!(names("sched:sched_switch").unwrap(), &both[..1]);
        for pattern in ["sched", "sched:*", "sched:", "sched_[sw]*"] {
            assert_eq!(names(pattern).unwrap(), both, "{pattern}");
        }
        assert_eq!(
            names("sys_*_read").unwrap(),
            ["syscalls:sys_enter_read", "syscalls:sys_exit_read"]
        );
        assert_eq!(names("all").unwrap().len(), 5);
        assert_eq!(names("*:*").unwrap().len(), 5);
        for (pattern, why) in
            [("sched:nothing", "no such event"), ("x", "no such event"), ("sched:[a", "no end")]
        {
            assert!(names(pattern).unwrap_err().contains(why), "{pattern}");
        }
    }
}

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
        // Events of programs exist while a program has them registered.
        let of_programs = match pattern.starts_with("user_events") {
            true => "; start the program that registers it first",
            false => "",
        };
        bail!(
            "event {pattern}: this kernel has no such event; /sys/kernel/tracing/available_events lists all{of_programs}"
        );
    }
    Ok(selected)
}

/// The result of all rules for an event: whether it is enabled, and the rule that has its filter.
type Made<'a> = BTreeMap<(&'a str, &'a str), (bool, Option<&'a Rule>)>;

/// Sets the filters of all rules, then enables the events, and disables those that are left out. A
/// later rule replaces what an earlier one makes of the same event, so that each event costs two
/// writes, however many rules a host wants.
///
/// # Errors
/// A rule selects no event, or the kernel refuses a filter for one of its events.
pub(crate) fn enable(top: &Instance, instance: &Instance, rules: &[Rule]) -> anyhow::Result<()> {
    let all = list(top)?;
    let mut made = Made::new();
    for rule in rules {
        let selected = select(&all, &rule.pattern)?;
        for (system, names) in &all {
            // Both are in the order of the kernel.
            let mut chosen = selected.get(system).into_iter().flatten().peekable();
            for name in names.iter().filter(|name| chosen.next_if_eq(name).is_some()) {
                let (is_on, filter) = made.entry((system, name)).or_default();
                *is_on = !rule.is_left_out;
                *filter = if rule.filter.is_empty() { *filter } else { Some(rule) };
            }
        }
    }
    for ((system, event), (_, rule)) in &made {
        let Some(rule) = rule else { continue };
        let named = || {
            format!(
                "the filter of -e {}: give it only to events that have its fields",
                rule.pattern
            )
        };
        instance
            .write(&format!("events/{system}/{event}/filter"), &rule.filter)
            .with_context(named)?;
    }
    for (system, names) in &all {
        let of = |name: &String| made.get(&(system, name)).map(|(is_on, _)| *is_on);
        let text = |is_on| if is_on { "1" } else { "0" };
        match of(names.first().unwrap_or(system)) {
            Some(is_on) if names.iter().all(|name| of(name) == Some(is_on)) => {
                instance.write(&format!("events/{system}/enable"), text(is_on))?;
            }
            _ => {
                for (name, is_on) in names.iter().filter_map(|name| Some((name, of(name)?))) {
                    instance.write(&format!("events/{system}/{name}/enable"), text(is_on))?;
                }
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

    /// The files of a test have all that was written to them.
    #[test]
    fn each_event_is_written_once_whatever_rules_there_are() {
        use std::fs;
        let folder = tempfile::tempdir().unwrap();
        let instance = Instance::top(folder.path());
        let all = ["sched:a", "sched:b", "timer:c"];
        fs::write(folder.path().join("available_events"), all.join("\n")).unwrap();
        let files = ["sched/enable", "sched/a/enable", "sched/b/enable", "sched/a/filter"];
        let files = [&files[..], &["sched/b/filter", "timer/enable", "timer/c/enable"]].concat();
        for file in &files {
            let path = folder.path().join("events").join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let rule = |pattern: &str, filter: &str, is_left_out| Rule {
            pattern: pattern.into(),
            filter: filter.into(),
            is_left_out,
            ..Rule::default()
        };
        let mut rules = Vec::new();
        for number in 0..1000 {
            rules.push(rule("*", &format!("pid == {number}"), false));
            rules.push(rule("*", "", true));
        }
        rules.extend([rule("sched", "", false), rule("sched:b", "pid != 7", false)]);
        enable(&instance, &instance, &rules).unwrap_err();
        fs::create_dir_all(folder.path().join("events/timer/c")).unwrap();
        fs::write(folder.path().join("events/timer/c/filter"), "").unwrap();
        for file in &files {
            fs::write(folder.path().join("events").join(file), "").unwrap();
        }
        enable(&instance, &instance, &rules).unwrap();
        let read =
            |file: &str| fs::read_to_string(folder.path().join("events").join(file)).unwrap();
        let texts: Vec<String> = files.iter().map(|file| read(file)).collect();
        assert_eq!(texts, ["1\n", "", "", "pid == 999\n", "pid != 7\n", "0\n", ""]);
        rules.push(rule("sched:a", "", true));
        enable(&instance, &instance, &rules).unwrap();
        assert_eq!([read("sched/a/enable"), read("sched/b/enable")], ["0\n", "1\n"]);
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
        for (pattern, why) in [
            ("sched:nothing", "available_events lists all"),
            ("x", "no such event"),
            ("sched:[a", "no end"),
            ("user_events", "start the program that registers it first"),
        ] {
            assert!(names(pattern).unwrap_err().contains(why), "{pattern}");
        }
    }
}

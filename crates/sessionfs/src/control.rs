//! The files `enable` and `set_event`, which select the events that are recorded.

use std::collections::HashSet;

use lastwords::Level;
use lastwords::rules::RuleSpec;
use lastwords_glob::{is_well_formed, matches};
use rustix::io::Errno;

use crate::buffer::Buffer;
use crate::catalog::{Catalog, Event, MARKER};
use crate::error_log::Refusal;
use crate::names;
use crate::patterns::{matches_rule, pattern_of};
use crate::restriction::{self, Restriction};
use crate::trigger;

/// Events that an `enable` file is for, by the names of folders.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Which<'a> {
    All,
    Provider(&'a str),
    Event(&'a str, &'a str),
}

/// Returns true if a channel of the session records the event.
fn is_enabled(buffer: &Buffer, channels: &[u32], event: &Event) -> bool {
    channels
        .iter()
        .any(|channel| buffer.handle.takes(*channel, &event.provider, &event.name, event.level))
}

fn channels(buffer: &Buffer) -> Result<Vec<u32>, Errno> {
    Ok(buffer.channels()?.iter().map(|channel| channel.id).collect())
}

/// Returns the text of an `enable` file: `0`, `1`, `X` where some are enabled and some are not, `?`
/// where there are none. An event that a trigger enables or disables has an asterisk.
pub(crate) fn enabled(buffer: &Buffer, which: Which<'_>) -> Result<String, Errno> {
    let (catalog, channels) = (buffer.catalog()?, channels(buffer)?);
    let events: Vec<&Event> = match which {
        Which::All => catalog.of_applications().collect(),
        Which::Provider(provider) => catalog.events(Some(provider)).collect(),
        Which::Event(provider, name) => vec![catalog.event(provider, name).ok_or(Errno::NOENT)?],
    };
    let on = events.iter().filter(|event| is_enabled(buffer, &channels, event)).count();
    let word = match on {
        _ if events.is_empty() => "?",
        0 => "0",
        on if on == events.len() => "1",
        _ => "X",
    };
    let is_target = match (which, &events[..]) {
        (Which::Event(..), [event]) => trigger::is_target(buffer, event),
        _ => false,
    };
    Ok(format!("{word}{}\n", if is_target { "*" } else { "" }))
}

/// Enables or disables events.
pub(crate) fn enable(
    buffer: &Buffer,
    which: Which<'_>,
    on: bool,
    command: &[u8],
) -> Result<(), Errno> {
    let catalog = buffer.catalog()?;
    let pattern = match which {
        Which::All => "*".to_owned(),
        Which::Provider(provider) => {
            let event = catalog.events(Some(provider)).next().ok_or(Errno::NOENT)?;
            format!("{}:*", names::glob_of(&event.provider))
        }
        Which::Event(provider, name) => {
            pattern_of(catalog.event(provider, name).ok_or(Errno::NOENT)?)
        }
    };
    add(buffer, on, pattern, "enable", command)
}

/// Returns the rule that enables an event, with the filter that is remembered for it.
fn rule_of(buffer: &Buffer, event: &Event) -> RuleSpec {
    RuleSpec { filter: buffer.filters.kept(event), ..RuleSpec::enable(pattern_of(event)) }
}

/// Gives those of the events that are enabled the filters that are remembered for them.
pub(crate) fn add_enabled(
    buffer: &Buffer,
    events: &[&Event],
    place: &str,
    command: &[u8],
) -> Result<(), Errno> {
    let channels = channels(buffer)?;
    let enabled: Vec<&&Event> =
        events.iter().filter(|event| is_enabled(buffer, &channels, event)).collect();
    let change = |_: &mut Restriction, rules: &mut Vec<RuleSpec>| {
        enabled.into_iter().for_each(|event| rule_of(buffer, event).add_to(rules));
    };
    restriction::change(buffer, change).map_err(|error| buffer.failed(place, command, &error))
}

/// Adds a rule. The events that it matches keep their filters.
fn add(
    buffer: &Buffer,
    enable: bool,
    pattern: String,
    place: &str,
    command: &[u8],
) -> Result<(), Errno> {
    let rule = RuleSpec { enable, ..RuleSpec::enable(pattern) };
    let catalog = buffer.catalog()?;
    let change = |_: &mut Restriction, rules: &mut Vec<RuleSpec>| {
        let matching = catalog.of_applications().filter(|event| matches_rule(&rule, event));
        let filtered: Vec<&Event> =
            matching.filter(|event| buffer.filters.remember(rules, event)).collect();
        rule.clone().add_to(rules);
        filtered
            .into_iter()
            .filter(|_| enable)
            .for_each(|event| rule_of(buffer, event).add_to(rules));
        // Text that is written into trace_marker is recorded even if all events are disabled.
        let is_marker = |name: &str| rule.matches(MARKER, name, Level::Info as u8);
        if !enable && (is_marker("print") || is_marker("raw_data")) {
            RuleSpec::enable(format!("{MARKER}:*")).add_to(rules);
        }
    };
    restriction::change(buffer, change).map_err(|error| buffer.failed(place, command, &error))
}

/// Returns the text of `set_event`: the events that are enabled.
pub(crate) fn set_event_text(buffer: &Buffer) -> Result<String, Errno> {
    let (catalog, channels) = (buffer.catalog()?, channels(buffer)?);
    let on = catalog.of_applications().filter(|event| is_enabled(buffer, &channels, event));
    Ok(lines(on))
}

/// Returns the text of `available_events`.
pub(crate) fn available(catalog: &Catalog) -> String {
    lines(catalog.of_applications())
}

/// Returns a line for each name. Several kinds of events may have one.
fn lines<'c>(events: impl Iterator<Item = &'c Event>) -> String {
    let mut seen = HashSet::new();
    let lines =
        events.map(|event| format!("{}:{}\n", event.provider, event.name.replace('\n', " ")));
    lines.filter(|line| seen.insert(line.clone())).collect()
}

/// Disables all events, as opening `set_event` with truncation does.
pub(crate) fn clear(buffer: &Buffer) -> Result<(), Errno> {
    add(buffer, false, "*".to_owned(), "set_event", b"")
}

/// Follows the commands in a write to `set_event`, one after the other until one fails.
pub(crate) fn set_event(buffer: &Buffer, command: &[u8]) -> Result<(), Errno> {
    let text = std::str::from_utf8(command).map_err(|_| Errno::INVAL)?;
    for word in text.split_whitespace() {
        let (on, glob) = word.strip_prefix('!').map_or((true, word), |glob| (false, glob));
        let refuse = |why: String| {
            Err(buffer.refuse(Errno::INVAL, command, &Refusal::new("set_event", why)))
        };
        if !is_well_formed(glob) {
            return refuse(format!("{glob}: a bracket has no end"));
        }
        let catalog = buffer.catalog()?;
        let patterns = patterns(&catalog, glob);
        if patterns.is_empty() {
            return refuse(format!(
                "{glob}: the session has no such event yet; `lastwords {} {glob}` takes events that are still to come",
                if on { "enable" } else { "disable" }
            ));
        }
        patterns
            .into_iter()
            .try_for_each(|pattern| add(buffer, on, pattern, "set_event", command))?;
    }
    Ok(())
}

/// Returns the globs over `provider:name` for a word of `set_event`: `provider:name`, `provider:`,
/// `:name`, or a word that is a provider's name or an event's. Returns none if no event matches.
fn patterns(catalog: &Catalog, word: &str) -> Vec<String> {
    let star = |part: &str| if part.is_empty() { "*".to_owned() } else { part.to_owned() };
    let candidates = match names::split(word) {
        Some((provider, name)) => vec![(star(provider), star(name))],
        None => vec![(word.to_owned(), "*".to_owned()), ("*".to_owned(), word.to_owned())],
    };
    let is_there = |(provider, name): &(String, String)| {
        catalog
            .of_applications()
            .any(|event| matches(provider, &event.provider) && matches(name, &event.name))
    };
    let mut found: Vec<String> =
        candidates.into_iter().filter(is_there).map(|(p, n)| format!("{p}:{n}")).collect();
    if let Some(all) = found.iter().position(|pattern| pattern == "*:*") {
        // This pattern drops the rules before it.
        found = vec![found.swap_remove(all).replace("*:*", "*")];
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catalog() -> Catalog {
        let mut catalog = Catalog::default();
        for (provider, name) in [("shop", "sale"), ("shop", "shop"), ("net::tx", "sale")] {
            let event = Event::made(provider, name, vec![]);
            catalog.providers.entry(provider.into()).or_default().insert(name.into(), event);
        }
        catalog
    }

    #[test]
    fn words_of_set_event() {
        let catalog = catalog();
        for (word, expected) in [
            ("shop:sale", &["shop:sale"][..]),
            ("shop:", &["shop:*"]),
            (":sale", &["*:sale"]),
            ("shop", &["shop:*", "*:shop"]),
            ("net::tx:sale", &["net::tx:sale"]),
            ("net::tx", &["net::tx:*"]),
            ("*:*", &["*"]),
            ("*", &["*"]),
            ("shop:refused", &[]),
            ("nobody", &[]),
        ] {
            assert_eq!(patterns(&catalog, word), expected, "{word}");
        }
    }
}

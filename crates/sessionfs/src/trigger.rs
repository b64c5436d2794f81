//! The file `trigger` of events, with the words and errors of the kernel
//! (Documentation/trace/events.rst).
//!
//! A trigger is a condition of the session, so that the application itself evaluates it.
//! `tests/trigger_model.rs` compares what is written and read here with the kernel's own file.

use lastwords::condition::{Action, Condition};
use rustix::io::Errno;

use crate::buffer::Buffer;
use crate::catalog::{Catalog, Event};
use crate::error_log::Refusal;
use crate::expression;
use crate::names;
use crate::number;
use crate::patterns::pattern_of;
use crate::restriction;
use crate::view::View;

/// The text of `trigger` of an event that has none.
const NONE: &str =
    "# Available triggers:\n# traceon traceoff snapshot enable_event disable_event\n";

/// The words of the kernel for the actions of triggers.
const WORDS: [(&str, Action); 5] = [
    ("traceon", Action::Start),
    ("traceoff", Action::Stop),
    ("snapshot", Action::Snapshot),
    ("enable_event", Action::Enable),
    ("disable_event", Action::Disable),
];

/// A command that was written.
#[derive(Debug, PartialEq, Eq)]
struct Command<'t> {
    is_new: bool,
    action: Action,
    /// The text behind the action, as far as it is no filter; none if there is none.
    argument: Option<&'t str>,
    /// The text from `if` on.
    condition: Option<&'t str>,
}

/// Splits off the text up to the first of some characters, and the blanks behind that.
fn word(text: &str, ends: impl Fn(char) -> bool) -> (&str, Option<&str>) {
    match text.split_once(ends) {
        Some((word, rest)) => (word, Some(rest.trim_start()).filter(|rest| !rest.is_empty())),
        None => (text, None),
    }
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t')
}

impl<'t> Command<'t> {
    /// Reads a command as the kernel does; none if its action is not known.
    fn parse(text: &'t str) -> Option<Self> {
        let (name, rest) = word(text.trim(), |c| c == ':' || is_blank(c));
        let (is_new, name) = name.strip_prefix('!').map_or((true, name), |name| (false, name));
        let (_, action) = WORDS.into_iter().find(|(word, _)| *word == name)?;
        let needs = matches!(action, Action::Enable | Action::Disable);
        // The argument of the other actions is a number. Without one, the rest is a filter.
        let has_argument = |rest: &&str| needs || rest.starts_with(|c: char| c.is_ascii_digit());
        let (argument, condition) = match rest.filter(has_argument) {
            Some(rest) => word(rest, is_blank),
            None => ("", rest),
        };
        Some(Self {
            is_new,
            action,
            argument: Some(argument).filter(|argument| !argument.is_empty()),
            condition,
        })
    }

    /// Returns the event that the command enables or disables, and the text of its count.
    fn target<'c>(&self, catalog: &'c Catalog) -> Option<(&'c Event, Option<&'t str>)> {
        let (provider, rest) = names::split(self.argument?)?;
        let find = |name| catalog.event(provider, name);
        let counted = |parts: Option<(&'t str, &'t str)>| {
            parts.and_then(|(name, count)| Some((find(name)?, Some(count))))
        };
        // The names of the events of markers may have colons.
        counted(rest.split_once(':'))
            .or_else(|| find(rest).map(|event| (event, None)))
            .or_else(|| counted(rest.rsplit_once(':')))
    }
}

/// Reads a count as the kernel does: what is behind a colon is ignored. The largest number stands
/// for no limit.
fn count(text: &str) -> Result<Option<u64>, Errno> {
    let number = number::unsigned(text.split(':').next().unwrap_or_default())?;
    Ok(Some(number).filter(|number| *number != u64::MAX))
}

/// Returns true for actions of which an event has only one trigger.
fn is_kind_of(one: &Condition, action: Action, events: Option<&str>) -> bool {
    let kind = |action| match action {
        Action::Start | Action::Stop => 0,
        Action::Snapshot => 1,
        Action::Enable | Action::Disable => 2,
    };
    kind(one.action) == kind(action) && one.events.as_deref() == events
}

/// Returns the triggers of an event, the newest first.
fn of_event(buffer: &Buffer, event: &Event) -> Vec<Condition> {
    if buffer.view != View::Start {
        return Vec::new();
    }
    let pattern = pattern_of(event);
    let mut found = buffer.handle.conditions();
    found.retain(|one| one.pattern == pattern && one.latency.is_none());
    found.reverse();
    found
}

/// Returns true if a trigger enables or disables the event.
pub(crate) fn is_target(buffer: &Buffer, event: &Event) -> bool {
    let pattern = pattern_of(event);
    let is_its = |one: &Condition| one.events.as_ref() == Some(&pattern);
    buffer.view == View::Start && buffer.handle.conditions().iter().any(is_its)
}

/// Returns the text of an event's `trigger`: a line for each.
pub(crate) fn text(buffer: &Buffer, event: &Event) -> Result<String, Errno> {
    let catalog = buffer.catalog()?;
    let lines: String =
        of_event(buffer, event).iter().map(|one| format!("{}\n", line(one, &catalog))).collect();
    Ok(if lines.is_empty() { NONE.to_owned() } else { lines })
}

fn line(condition: &Condition, catalog: &Catalog) -> String {
    let word =
        WORDS.iter().find(|(_, action)| *action == condition.action).map_or("", |(word, _)| *word);
    let name = |events: &String| {
        let of_pattern = |event: &&Event| pattern_of(event) == *events;
        let folders = catalog.of_applications().find(of_pattern).map(|event| &event.kind.folders);
        folders.map_or_else(
            || format!(":{events}"),
            |(provider, event)| format!(":{provider}:{event}"),
        )
    };
    let target = condition.events.as_ref().map(name).unwrap_or_default();
    let times =
        condition.times.map_or_else(|| "unlimited".to_owned(), |times| format!("count={times}"));
    let filter =
        condition.filter.as_ref().map_or_else(String::new, |filter| format!(" if {filter}"));
    format!("{word}{target}:{times}{filter}")
}

/// Adds a trigger to an event, or removes one (`!`).
pub(crate) fn set(buffer: &Buffer, event: &Event, bytes: &[u8]) -> Result<(), Errno> {
    let text = String::from_utf8_lossy(bytes);
    let refuse =
        |errno: Errno, why: &str| Err(buffer.refuse(errno, bytes, &Refusal::new("trigger", why)));
    let failed = |error| buffer.failed("trigger", bytes, &error);
    let Some(command) = Command::parse(&text) else {
        let why = if text.contains("stacktrace") {
            "the recorder takes no stacks where an event is recorded: unwinding may take the loader's lock"
        } else {
            "expected traceon, traceoff, snapshot, enable_event or disable_event"
        };
        return refuse(Errno::INVAL, why);
    };
    let catalog = buffer.catalog()?;
    let (target, times) = match command.action {
        Action::Enable | Action::Disable => match command.target(&catalog) {
            Some((target, times)) => (Some(pattern_of(target)), times),
            None => {
                return refuse(
                    Errno::INVAL,
                    "the session has no such event: enable_event:PROVIDER:EVENT[:COUNT]",
                );
            }
        },
        _ => (None, command.argument),
    };
    let pattern = pattern_of(event);
    let is_same = |one: &Condition| {
        one.pattern == pattern
            && one.latency.is_none()
            && is_kind_of(one, command.action, target.as_deref())
    };
    if !command.is_new {
        return buffer.handle.remove_conditions_if(is_same).map(drop).map_err(failed);
    }
    let times = match times.map_or(Ok(None), count) {
        Ok(times) => times,
        Err(errno) => return refuse(errno, "the count is no number"),
    };
    let filter = command.condition.map(|text| filter_of(buffer, event, text, bytes)).transpose()?;
    if buffer.handle.conditions().iter().any(is_same) {
        return refuse(Errno::EXIST, "the event has such a trigger");
    }
    if command.action == Action::Snapshot {
        buffer.handle.enable_snapshots().map_err(failed)?;
    }
    let condition = Condition {
        action: command.action,
        events: target,
        times,
        filter,
        ..Condition::on(&pattern)
    };
    buffer.handle.add_condition(&condition.always()).map_err(failed)?;
    restriction::renew(buffer, "trigger", bytes)
}

/// Returns the expression behind `if`, which the event's fields must fit.
fn filter_of(
    buffer: &Buffer,
    event: &Event,
    condition: &str,
    bytes: &[u8],
) -> Result<String, Errno> {
    let (first, text) = word(condition, is_blank);
    let Some(text) = text.filter(|_| first == "if") else {
        return Err(buffer.refuse(
            Errno::INVAL,
            bytes,
            &Refusal::new("trigger", "a filter is `if EXPRESSION`"),
        ));
    };
    let refusal = expression::parse(text)
        .map(|filter| expression::unknown_name(&filter, text, event))
        .unwrap_or_else(Some);
    let Some(refusal) = refusal else { return Ok(text.to_owned()) };
    let command = String::from_utf8_lossy(bytes);
    let before = command
        .find(text)
        .and_then(|at| command.get(..at))
        .map_or(0, |before| before.chars().count());
    Err(buffer.refuse(Errno::INVAL, bytes, &Refusal { offset: refusal.offset + before, ..refusal }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catalog() -> Catalog {
        let mut catalog = Catalog::default();
        let event = Event::made("shop::till", "sale", vec![]);
        catalog.providers.entry("shop::till".into()).or_default().insert("sale".into(), event);
        catalog
    }

    #[test]
    fn triggers_look_as_in_the_kernel() {
        let of = |condition: Condition| line(&condition, &catalog());
        assert_eq!(of(Condition::on("shop:sale")), "snapshot:unlimited");
        assert_eq!(
            of(Condition::on("a:b").and_stop().with_filter("n > 3").times(2)),
            "traceoff:count=2 if n > 3"
        );
        assert_eq!(of(Condition::on("a:b").and_start().times(0)), "traceon:count=0");
        assert_eq!(
            of(Condition::on("a:b").and_enable("shop::till:sale")),
            "enable_event:shop::till:sale:unlimited"
        );
        assert_eq!(
            of(Condition::on("a:b").and_disable("x:y*").times(1)),
            "disable_event:x:y*:count=1"
        );
    }

    #[test]
    fn counts_are_those_of_the_kernel() {
        for (text, expected) in [
            ("0x1F", Ok(Some(31))),
            ("3:4", Ok(Some(3))),
            ("18446744073709551615", Ok(None)),
            ("18446744073709551616", Err(Errno::RANGE)),
            ("", Err(Errno::INVAL)),
        ] {
            assert_eq!(count(text), expected, "{text}");
        }
    }

    #[test]
    fn commands_are_split_as_in_the_kernel() {
        let of = |text: &'static str| {
            Command::parse(text).map(|it| {
                (it.is_new, it.action, it.argument.unwrap_or("-"), it.condition.unwrap_or("-"))
            })
        };
        assert_eq!(of(" traceoff:3 if a > 1 \n"), Some((true, Action::Stop, "3", "if a > 1")));
        assert_eq!(of("traceon: if a"), Some((true, Action::Start, "-", "if a")));
        assert_eq!(of("snapshot 5"), Some((true, Action::Snapshot, "5", "-")));
        assert_eq!(of("!traceoff:count=2 if a"), Some((false, Action::Stop, "-", "count=2 if a")));
        assert_eq!(of("enable_event:a:b:2\tif c"), Some((true, Action::Enable, "a:b:2", "if c")));
        assert_eq!((of("traceoff+0"), of("hist:keys=a"), of("")), (None, None, None));
        let catalog = catalog();
        for (text, found) in [
            ("enable_event:shop::till:sale", Some(None)),
            ("enable_event:shop::till:sale:", Some(Some(""))),
            ("enable_event:shop::till:sale:3:4", Some(Some("3:4"))),
            ("enable_event:shop::till:sales", None),
            ("enable_event:shop", None),
            ("enable_event", None),
        ] {
            let command = Command::parse(text).expect("an action");
            assert_eq!(command.target(&catalog).map(|(_, count)| count), found, "{text}");
        }
    }
}

//! The files `set_event_pid`, `set_event_notrace_pid` and `tracing_cpumask`: the threads and CPUs
//! whose events are recorded.
//!
//! A restriction is a part of the filter of each rule that enables events, so that the application
//! itself evaluates it, in each of its processes: `(RESTRICTION) && (FILTER)`. The session's rules
//! are the only place where it is kept. [`change`] takes it out of the rules, lets its caller
//! change both, and puts it back, all in one step. So every rule that the mount writes has it, and
//! the filter that a user has set is found again as it was written.

use std::collections::BTreeSet;

use lastwords::Level;
use lastwords::condition::Action;
use lastwords::rules::RuleSpec;
use rustix::io::Errno;

use crate::buffer::Buffer;
use crate::catalog::{Event, MARKER};
use crate::errno::errno_of;
use crate::error_log::Refusal;
use crate::number;
use crate::patterns::{matches_rule, pattern_of};

/// The contexts that a restriction reads. An event has them, whatever its fields are called and its
/// channel records.
const THREAD: &str = "$ctx.vtid";
const CPU: &str = "$ctx.cpu_id";
/// Stands for no CPU in the set of CPUs that are recorded: a CPU that no machine has.
const NO_CPU: u32 = u32::MAX;
/// The largest id that the kernel's lists of threads take (`MAX_PID` in kernel/trace/pid_list.c of
/// Linux 6.1).
const MOST: u64 = 1 << 30;
/// The longest range of numbers that is taken for a part of a restriction: the largest number of
/// threads that Linux allows.
const LONGEST_RANGE: usize = 1 << 22;

/// The threads and CPUs whose events are recorded. An empty set restricts nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Restriction {
    /// Only these threads are recorded.
    only: BTreeSet<u32>,
    /// These threads are not recorded.
    never: BTreeSet<u32>,
    /// Only these CPUs are recorded.
    cpus: BTreeSet<u32>,
}

/// A list of threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum List {
    /// `set_event_pid`.
    Only,
    /// `set_event_notrace_pid`.
    Never,
}

impl List {
    fn file(self) -> &'static str {
        match self {
            Self::Only => "set_event_pid",
            Self::Never => "set_event_notrace_pid",
        }
    }
}

/// Returns the numbers of a set as ranges.
fn ranges(set: &BTreeSet<u32>) -> Vec<(u32, u32)> {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for number in set {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *number => *last = *number,
            _ => ranges.push((*number, *number)),
        }
    }
    ranges
}

/// Returns the expression that is true if a name has a number of a set.
fn is_one_of(name: &str, set: &BTreeSet<u32>) -> String {
    let range = |(first, last): (u32, u32)| match first == last {
        true => format!("{name} == {first}"),
        false => format!("{name} >= {first} && {name} <= {last}"),
    };
    format!("({})", ranges(set).into_iter().map(range).collect::<Vec<_>>().join(" || "))
}

/// Takes an expression of [`is_one_of`] from the begin of a text. Returns the name, the numbers,
/// and the rest.
fn take_one_of(text: &str) -> Option<(&str, BTreeSet<u32>, &str)> {
    let (inner, rest) = text.strip_prefix('(')?.split_once(')')?;
    let mut set = BTreeSet::new();
    for range in inner.split(" || ") {
        match range.split(' ').collect::<Vec<_>>().as_slice() {
            [_, "==", number] => _ = set.insert(number.parse().ok()?),
            [_, ">=", first, "&&", _, "<=", last] => {
                let range: std::ops::RangeInclusive<u32> =
                    first.parse().ok()?..=last.parse().ok()?;
                set.extend(Some(range).filter(|range| range.clone().count() <= LONGEST_RANGE)?);
            }
            _ => return None,
        }
    }
    Some((inner.split_once(' ')?.0, set, rest))
}

impl Restriction {
    fn list(&mut self, list: List) -> &mut BTreeSet<u32> {
        match list {
            List::Only => &mut self.only,
            List::Never => &mut self.never,
        }
    }

    /// Returns the expression that is true for the events that are recorded; none if all are.
    fn expression(&self) -> Option<String> {
        let parts = [("", THREAD, &self.only), ("!", THREAD, &self.never), ("", CPU, &self.cpus)];
        let parts = parts.into_iter().filter(|(.., set)| !set.is_empty());
        let parts: Vec<String> =
            parts.map(|(not, name, set)| format!("{not}{}", is_one_of(name, set))).collect();
        (!parts.is_empty()).then(|| format!("({})", parts.join(" && ")))
    }

    /// Splits the filter of a rule into the restriction and the user's own filter. Returns none if
    /// it has no restriction.
    pub(crate) fn split(filter: &str) -> Option<(Self, Option<&str>)> {
        let mut found = Self::default();
        let mut rest = filter.strip_prefix('(')?;
        loop {
            let is_negated = rest.starts_with('!');
            let (name, set, behind) = take_one_of(rest.strip_prefix('!').unwrap_or(rest))?;
            match (name, is_negated) {
                (THREAD, false) => found.only = set,
                (THREAD, true) => found.never = set,
                (CPU, false) => found.cpus = set,
                _ => return None,
            }
            match behind.strip_prefix(" && ") {
                Some(next) => rest = next,
                None => {
                    rest = behind.strip_prefix(')')?;
                    break;
                }
            }
        }
        let own = filter.get(..filter.len() - rest.len());
        if found.expression().as_deref() != own {
            return None;
        }
        match rest {
            "" => Some((found, None)),
            _ => Some((found, Some(rest.strip_prefix(" && (")?.strip_suffix(')')?))),
        }
    }

    /// Takes the restriction out of a session's rules.
    fn take(rules: &mut Vec<RuleSpec>) -> Self {
        let mut found = None;
        for rule in rules.iter_mut() {
            let Some((own, filter)) = rule.filter.as_deref().and_then(Self::split) else {
                continue;
            };
            (found, rule.filter) = (Some(own), filter.map(str::to_owned));
        }
        // `put` has added this rule, or it changes nothing.
        if found.is_some() && rules.first() == Some(&RuleSpec::enable("*")) {
            drop(rules.remove(0));
        }
        found.unwrap_or_default()
    }

    /// Puts the restriction into a session's rules. `targets` are the events that triggers enable.
    fn put(&self, rules: &mut Vec<RuleSpec>, targets: &[&Event]) {
        let Some(own) = self.expression() else { return };
        // An event that no rule matches is recorded. The restriction is kept also where all events
        // are disabled.
        let is_for_all =
            |rule: &RuleSpec| rule.pattern == "*" && rule.level.is_none() && rule.channel.is_none();
        let markers = RuleSpec::enable(format!("{MARKER}:*"));
        let is_kept = rules.iter().any(|rule| rule.enable && *rule != markers);
        if !is_kept || !rules.first().is_some_and(is_for_all) {
            rules.insert(0, RuleSpec::enable("*"));
        }
        for event in targets {
            leave_behind(rules, event);
        }
        for rule in rules.iter_mut().filter(|rule| rule.enable && **rule != markers) {
            let with = |filter: String| format!("{own} && ({filter})");
            rule.filter = Some(rule.filter.take().map_or_else(|| own.clone(), with));
        }
        // Text that is written into trace_marker is recorded for all threads.
        let decides = rules.iter().rev().find(|rule| is_for_markers(rule));
        if decides.is_some_and(|rule| rule.enable && *rule != markers) {
            markers.add_to(rules);
        }
    }
}

fn is_for_markers(rule: &RuleSpec) -> bool {
    rule.channel.is_none() && rule.matches(MARKER, "print", Level::Info as u8)
}

/// Gives an event that is disabled an enabling rule of its own before the rule that disables it. A
/// trigger that enables the event only removes the last one, so that the event has the restriction
/// then.
fn leave_behind(rules: &mut Vec<RuleSpec>, event: &Event) {
    let decides = rules.iter().rev().find(|rule| matches_rule(rule, event));
    if decides.is_none_or(|rule| rule.enable) {
        return;
    }
    let pattern = pattern_of(event);
    let is_own =
        |rule: &RuleSpec| rule.pattern == pattern && rule.level.is_none() && rule.channel.is_none();
    let filter = rules
        .iter()
        .rev()
        .find(|rule| is_own(rule) && rule.enable)
        .and_then(|rule| rule.filter.clone());
    rules.retain(|rule| !is_own(rule));
    rules.push(RuleSpec { filter, ..RuleSpec::enable(&pattern) });
    rules.push(RuleSpec::disable(pattern));
}

/// Returns the restriction of a session, and its rules without it.
pub(crate) fn read(buffer: &Buffer) -> Result<(Restriction, Vec<RuleSpec>), Errno> {
    let mut rules = buffer.rules()?;
    let restriction = Restriction::take(&mut rules);
    Ok((restriction, rules))
}

/// Changes the restriction and the rules of a session in one step. `edit` sees the rules without
/// the restriction.
pub(crate) fn change(
    buffer: &Buffer,
    edit: impl FnOnce(&mut Restriction, &mut Vec<RuleSpec>),
) -> Result<(), lastwords::Error> {
    let conditions = buffer.handle.conditions();
    let enabled: BTreeSet<String> = conditions
        .into_iter()
        .filter(|one| one.action == Action::Enable)
        .filter_map(|one| one.events)
        .collect();
    let catalog = buffer.catalog().unwrap_or_default();
    let targets: Vec<&Event> =
        catalog.of_applications().filter(|event| enabled.contains(&pattern_of(event))).collect();
    buffer.change_rules(|rules| {
        let mut restriction = Restriction::take(rules);
        edit(&mut restriction, rules);
        restriction.put(rules, &targets);
    })
}

/// Returns the text of a list of threads: an id a line, in ascending order.
pub(crate) fn text(buffer: &Buffer, list: List) -> Result<String, Errno> {
    let (mut restriction, _) = read(buffer)?;
    Ok(restriction.list(list).iter().map(|id| format!("{id}\n")).collect())
}

/// Empties a list of threads, as opening its file with truncation does.
pub(crate) fn clear(buffer: &Buffer, list: List) -> Result<(), Errno> {
    if text(buffer, list)?.is_empty() {
        return Ok(());
    }
    set(buffer, list.file(), b"", |restriction| restriction.list(list).clear())
}

/// Adds the ids that were written to a list of threads.
pub(crate) fn add(buffer: &Buffer, list: List, command: &[u8]) -> Result<(), Errno> {
    let ids =
        std::str::from_utf8(command).map_err(|_| Errno::INVAL)?.split_whitespace().map(|word| {
            let id = number::unsigned(word).map_err(|_| Errno::INVAL)?;
            u32::try_from(id).ok().filter(|_| id < MOST).ok_or(Errno::PERM)
        });
    let ids: BTreeSet<u32> = ids.collect::<Result<_, _>>().map_err(|errno| {
        let why = format!("expected ids of threads, which are numbers below {MOST}");
        buffer.refuse(errno, command, &Refusal::new(list.file(), why))
    })?;
    if ids.is_empty() {
        return Ok(());
    }
    set(buffer, list.file(), command, |restriction| restriction.list(list).extend(&ids))
}

/// Returns the text of `tracing_cpumask`: the CPUs that are recorded.
pub(crate) fn cpu_mask_text(buffer: &Buffer) -> Result<String, Errno> {
    let (restriction, _) = read(buffer)?;
    let all = &buffer.catalog()?.cpus;
    let is_recorded = |cpu: &u32| restriction.cpus.is_empty() || restriction.cpus.contains(cpu);
    Ok(cpu_mask(all.iter().copied().filter(is_recorded), all.last().map_or(0, |last| *last)))
}

/// Records only the CPUs of a mask that was written.
pub(crate) fn set_cpu_mask(buffer: &Buffer, command: &[u8]) -> Result<(), Errno> {
    let all = &buffer.catalog()?.cpus;
    let most = all.last().copied().unwrap_or(0);
    let cpus = cpus_of(&String::from_utf8_lossy(command), most);
    let cpus = cpus.map_err(|errno| {
        let why = format!("expected a mask of the CPUs 0 to {most}: groups of 8 hexadecimal digits, the highest first");
        buffer.refuse(errno, command, &Refusal::new("tracing_cpumask", why))
    })?;
    let cpus = match cpus.is_empty() {
        _ if all.is_subset(&cpus) => BTreeSet::new(),
        true => BTreeSet::from([NO_CPU]),
        false => cpus,
    };
    set(buffer, "tracing_cpumask", command, |restriction| restriction.cpus = cpus)
}

/// Returns a mask of CPUs up to `most`: groups of 32 in hexadecimal, the highest first, as the
/// kernel prints it.
fn cpu_mask(cpus: impl Iterator<Item = u32>, most: u32) -> String {
    let mut words = vec![0u32; most as usize / 32 + 1];
    cpus.for_each(|cpu| words[cpu as usize / 32] |= 1 << (cpu % 32));
    let mut width = most as usize % 32 / 4 + 1;
    let group = |word: &u32| format!("{word:0digits$x}", digits = std::mem::replace(&mut width, 8));
    words.iter().rev().map(group).collect::<Vec<_>>().join(",") + "\n"
}

/// Returns the CPUs of a mask, which are at most `most`. It is read as the kernel reads it
/// (`bitmap_parse` in lib/bitmap.c of Linux 6.1).
fn cpus_of(mask: &str, most: u32) -> Result<BTreeSet<u32>, Errno> {
    let line = mask.split('\n').next().unwrap_or_default();
    let groups = line
        .rsplit(|c: char| c.is_ascii_whitespace() || c == ',')
        .filter(|group| !group.is_empty());
    let mut cpus = BTreeSet::new();
    for (at, group) in (0u32..).zip(groups) {
        if !group.chars().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(Errno::INVAL);
        }
        let bits =
            u32::from_str_radix(group, 16).ok().filter(|_| group.len() <= 8 && at <= most / 32);
        let bits = bits.ok_or(Errno::OVERFLOW)?;
        cpus.extend((0..32).filter(|bit| bits >> bit & 1 == 1).map(|bit| at * 32 + bit));
    }
    if cpus.last().is_some_and(|last| *last > most) { Err(Errno::OVERFLOW) } else { Ok(cpus) }
}

/// Puts the restriction into the rules again, after conditions that enable events have changed.
pub(crate) fn renew(buffer: &Buffer, place: &str, command: &[u8]) -> Result<(), Errno> {
    match read(buffer)?.0 == Restriction::default() {
        true => Ok(()),
        false => set(buffer, place, command, |_| ()),
    }
}

/// Changes the restriction. What does not fit into an expression or into the session is refused
/// before anything changes.
fn set(
    buffer: &Buffer,
    place: &str,
    command: &[u8],
    edit: impl FnOnce(&mut Restriction),
) -> Result<(), Errno> {
    change(buffer, |restriction, _| edit(restriction)).map_err(|error| match error {
        lastwords::Error::Unsupported { .. } => {
            let why = format!("the filters of the events leave no room for so many ids: {error}")
                .replace('\n', " ");
            buffer.refuse(Errno::NOSPC, command, &Refusal::new(place, why))
        }
        error => buffer.refuse(
            errno_of(&error),
            command,
            &Refusal::new(place, error.to_string().replace('\n', " ")),
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn restriction(only: &[u32], never: &[u32], cpus: &[u32]) -> Restriction {
        let set = |ids: &[u32]| ids.iter().copied().collect();
        Restriction { only: set(only), never: set(never), cpus: set(cpus) }
    }

    #[test]
    fn a_restriction_is_found_again_in_a_filter() {
        assert_eq!(
            restriction(&[1, 2, 3, 7], &[5], &[0]).expression().as_deref(),
            Some(
                "(($ctx.vtid >= 1 && $ctx.vtid <= 3 || $ctx.vtid == 7) && !($ctx.vtid == 5) && ($ctx.cpu_id == 0))"
            )
        );
        assert_eq!(restriction(&[], &[], &[]).expression(), None);
        for one in [
            restriction(&[9], &[], &[]),
            restriction(&[], &[9, 10], &[]),
            restriction(&[4], &[6], &[NO_CPU]),
            restriction(&[], &[], &[0, 2]),
        ] {
            let own = one.expression().expect("it restricts");
            assert!(lastwords_filter::Filter::parse(&own).is_ok(), "{own}");
            assert_eq!(Restriction::split(&own), Some((one.clone(), None)));
            for filter in ["a == 1", "a == 1 || b == 2", "(a) && (b)", "a == \")\"", own.as_str()] {
                let both = format!("{own} && ({filter})");
                assert_eq!(Restriction::split(&both), Some((one.clone(), Some(filter))), "{both}");
            }
        }
    }

    #[test]
    fn other_filters_have_no_restriction() {
        for filter in [
            "a == 1",
            "(a == 1)",
            "($ctx.vtid == 1)",
            "(($ctx.vtid == 01))",
            "(($ctx.vtid == 1 || $ctx.vtid == 2))",
            "(($ctx.vtid == 1)) || (a)",
            "(($ctx.vtid == 1)) && a",
            "(($ctx.vtid >= 0 && $ctx.vtid <= 4294967295))",
            "(($ctx.pid == 1))",
            "((",
            "",
        ] {
            assert_eq!(Restriction::split(filter), None, "{filter}");
        }
    }

    #[test]
    fn masks_are_those_of_the_kernel() {
        assert_eq!(cpu_mask([].into_iter(), 1), "0\n");
        assert_eq!(cpu_mask(0..2, 1), "3\n");
        assert_eq!(cpu_mask(0..1, 7), "01\n");
        assert_eq!(cpu_mask([0, 32, 33].into_iter(), 33), "3,00000001\n");
        let set = |cpus: &[u32]| Ok(cpus.iter().copied().collect::<BTreeSet<u32>>());
        for (mask, cpus) in [
            ("3\n", set(&[0, 1])),
            ("", set(&[])),
            ("0", set(&[])),
            (" A ", set(&[1, 3])),
            ("3,00000001", set(&[0, 32, 33])),
            ("1,", set(&[0])),
            ("1\n2", set(&[0])),
            ("0x3", Err(Errno::INVAL)),
            ("+1", Err(Errno::INVAL)),
            ("123456789", Err(Errno::OVERFLOW)),
            ("0,0,1", Err(Errno::OVERFLOW)),
            ("8,0", Err(Errno::OVERFLOW)),
        ] {
            assert_eq!(cpus_of(mask, 34), cpus, "{mask:?}");
        }
    }
}

//! Conditions on events that fire triggers. They are kept in the session as rules are ([`super::rules`]), so that any
//! process of the user can change them while the session records. The application evaluates them behind each event that
//! it records and that has the name.

use std::sync::atomic::Ordering::{Acquire, Relaxed};

use lastwords_abi::session::{Conditions, TRIGGER_SNAPSHOT};
use lastwords_abi::sync::AtomicU64;

use super::Error;
use super::config::{Level, setters};
use super::regions::Regions;
use super::registry::EventDesc;
use super::rules::{self, Current, Line, Named, RuleSpec, Tables};
use super::session_region::{SessionRegion, locked};

/// Largest number of conditions of a session.
pub const MOST: usize = 16;

/// The action of a condition when it fires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// A snapshot, which is saved, as [`crate::trigger`] describes.
    Snapshot,
    /// Recording stops behind the event, in all processes of the session, until `lastwords start` or
    /// [`Session::resume`](crate::Session::resume).
    Stop,
}

/// A condition on events that fires triggers.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct Condition {
    /// Glob over `provider:name`, 1 to 112 bytes. The trigger has this name, too.
    pub pattern: String,
    /// Least severe level that matches, or `None` for any.
    pub level: Option<Level>,
    /// Expression that an event must fulfil (docs/FILTER.md).
    pub filter: Option<String>,
    /// Each event of this number that fulfils the condition fires: 3 is the third, the sixth, ...
    pub each: u32,
    /// The action when the condition fires.
    pub action: Action,
}

impl Condition {
    /// Fires at each event that matches a glob over `provider:name`.
    pub fn on(pattern: impl Into<String>) -> Self {
        Self { pattern: pattern.into(), level: None, filter: None, each: 1, action: Action::Snapshot }
    }

    setters! {
        /// Limits the condition to this level and more severe ones.
        up_to(it, level: Level) => it.level = Some(level);

        /// Limits the condition to events for which the expression is true.
        with_filter(it, filter: impl Into<String>) => it.filter = Some(filter.into());

        /// Fires at each `n`-th event that fulfils the condition (1 or more).
        each(it, n: u32) => it.each = n;

        /// Stops recording in place of taking a snapshot.
        and_stop(it) => it.action = Action::Stop;
    }

    /// Returns the condition as the rule that is written.
    fn line(&self) -> Result<Line, Error> {
        let wrong = |why: &str, remedy| Error::Unsupported { what: "condition", why: why.to_owned(), remedy };
        if self.pattern.is_empty() || self.pattern.len() > rules::PATTERN_LEN || self.pattern.contains('\0') {
            return Err(wrong("its glob has 0 or more than 112 bytes, or a NUL", "use 1 to 112 bytes without NUL"));
        }
        if self.pattern.starts_with("lastwords:") {
            return Err(wrong("a trigger records events of `lastwords` itself", "name events of the application"));
        }
        Line::of(RuleSpec {
            enable: self.action == Action::Snapshot,
            channel: (self.each > 1).then(|| self.each - 1),
            level: self.level,
            pattern: self.pattern.clone(),
            filter: self.filter.clone(),
        })
    }

    fn of(spec: RuleSpec) -> Self {
        let RuleSpec { enable, channel, level, pattern, filter } = spec;
        let action = if enable { Action::Snapshot } else { Action::Stop };
        Self { pattern, level, filter, each: channel.map_or(1, |before| before + 1), action }
    }
}

fn tables(conditions: &Conditions) -> Tables<'_> {
    Tables { rules: &conditions.rules, filters: Some(&conditions.filters) }
}

fn unsupported() -> Error {
    Error::unsupported("condition", "the session is of version 1.0, which has no triggers", "start a new session")
}

/// Writes the conditions of a new session.
pub(crate) fn init(view: &SessionRegion, conditions: &[Condition]) -> Result<(), Error> {
    let Some(area) = view.conditions().filter(|_| !conditions.is_empty()) else { return Ok(()) };
    check_count(conditions.len())?;
    let lines = conditions.iter().map(Condition::line).collect::<Result<Vec<_>, _>>()?;
    rules::write(tables(area), &lines)
}

fn check_count(count: usize) -> Result<(), Error> {
    let full = Error::Full { what: "condition", limit: MOST, remedy: "remove one first" };
    if count > MOST { Err(full) } else { Ok(()) }
}

/// Returns the conditions of a session.
pub(crate) fn read(view: &SessionRegion) -> Vec<Condition> {
    view.conditions().map(|area| rules::read(tables(area))).unwrap_or_default().into_iter().map(Condition::of).collect()
}

/// A condition that matches the name and level of an event.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Match<F> {
    pub(crate) each: u32,
    pub(crate) action: Action,
    /// The result of the function for its filter; none if it has none.
    pub(crate) filter: Option<F>,
}

/// Returns a bit for the place of each condition that matches an event. Allocates nothing, and needs little of the stack,
/// which may be that of a signal handler. If the conditions keep changing, none match.
pub(crate) fn places(view: &SessionRegion, desc: &EventDesc) -> u64 {
    // A trigger's own events fire none.
    let Some(area) = view.conditions().filter(|_| desc.provider != "lastwords") else { return 0 };
    let bits = |current: &Current<'_>| {
        let matching = current.rules.iter().enumerate().filter(|(_, rule)| rules::matches(rule, Named::of(desc)));
        matching.fold(0, |bits, (place, _)| bits | 1 << place)
    };
    rules::at_one_moment(tables(area), bits).unwrap_or(0)
}

/// Returns the condition at a place, if it matches an event, with what `filter` returns for the words of its filter, as
/// [`rules::judge`] does.
pub(crate) fn at<F>(
    view: &SessionRegion,
    desc: &EventDesc,
    place: usize,
    filter: impl Fn(&[AtomicU64]) -> F,
) -> Option<Match<F>> {
    let at = |current: &Current<'_>| {
        let rule = current.rules.get(place).filter(|rule| rules::matches(rule, Named::of(desc)))?;
        let action = if rule.enable.load(Relaxed) == TRIGGER_SNAPSHOT { Action::Snapshot } else { Action::Stop };
        let each = rule.channel.load(Relaxed).max(1);
        Some(Match { each, action, filter: rules::filter_of(current, rule).map(&filter) })
    };
    rules::at_one_moment(tables(view.conditions()?), at)?
}

/// Counts an event that fulfils a condition. Returns true if it fires.
pub(crate) fn hit(view: &SessionRegion, place: usize, each: u32) -> bool {
    let Some(hits) = view.conditions().and_then(|area| area.hits.get(place)) else { return false };
    (hits.fetch_add(1, Relaxed) + 1).is_multiple_of(u64::from(each.max(1)))
}

impl Regions {
    /// Adds a condition on events that fires triggers. The processes of the session follow it within milliseconds. One
    /// with the same glob, level and filter is replaced. The counts of all conditions begin anew.
    ///
    /// # Errors
    /// The condition is not valid, the list is full or held, or the session is of version 1.0.
    pub fn add_condition(&self, condition: &Condition) -> Result<(), Error> {
        let line = condition.line()?;
        let same = |old: &Line| {
            let (old, new) = (&old.spec, &line.spec);
            (&old.pattern, old.level, &old.filter) == (&new.pattern, new.level, &new.filter)
        };
        self.change_conditions(|lines| {
            lines.retain(|old| !same(old));
            lines.push(line.clone());
        })?;
        Ok(())
    }

    /// Removes the conditions with this glob; all if there is none given. Returns how many were removed.
    ///
    /// # Errors
    /// The list is held, or the session is of version 1.0.
    pub fn remove_conditions(&self, pattern: Option<&str>) -> Result<usize, Error> {
        self.change_conditions(|lines| lines.retain(|old| pattern.is_some_and(|pattern| old.spec.pattern != pattern)))
    }

    /// Returns the conditions, in order.
    #[must_use]
    pub fn conditions(&self) -> Vec<Condition> {
        read(&self.view)
    }

    /// Changes the conditions. Returns how many fewer there are.
    fn change_conditions(&self, change: impl FnOnce(&mut Vec<Line>)) -> Result<usize, Error> {
        let area = self.view.conditions().ok_or_else(unsupported)?;
        let rules = &area.rules;
        let changed: Result<Result<usize, Error>, u32> = locked(&rules.lock, &self.view.control().namespaces, || {
            // The holder of the lock is the only writer.
            let mut lines = tables(area).current(rules.turn.load(Acquire)).lines();
            let before = lines.len();
            change(&mut lines);
            check_count(lines.len())?;
            area.hits.iter().for_each(|hits| hits.store(0, Relaxed));
            rules::write(tables(area), &lines)?;
            Ok(before.saturating_sub(lines.len()))
        });
        let removed = changed.map_err(|owner| Error::Busy { what: "the list of conditions", owner })??;
        self.view.announce();
        Ok(removed)
    }
}

//! Conditions on events that fire triggers. They are kept in the session as rules are
//! ([`super::rules`]), so that any process of the user can change them while the session records.
//! The application evaluates them behind each event that it records and that has the name.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::Duration;

use lastwords_abi::session::Rule;
use lastwords_abi::sync::AtomicU64;
use lastwords_abi::triggers::{
    CONDITION_ALWAYS, CONDITION_LATENCY, Conditions, Extra, MAX_CONDITIONS, TRIGGER_SNAPSHOT,
};
use lastwords_filter::Filter;

use super::Error;
use super::action::Action;
use super::config::{Level, setters};
use super::counter::{Counter, MOST_TIMES};
use super::desc::EventDesc;
use super::dirs::Base;
use super::extra::{self, FOLDER_LEN, Fired, Own, bytes_of, words_of};
use super::latency::Part;
use super::regions::Regions;
use super::rules::{self, Current, Line, Named, RuleSpec, Tables};
use super::session_region::{SessionRegion, locked};
use super::window::Window;

/// Largest number of conditions of a session.
pub const MOST: usize = MAX_CONDITIONS;

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
    /// Glob over `provider:name`, 1 to 112 bytes, of the events that [`Action::Enable`] and
    /// [`Action::Disable`] change; none for other actions.
    pub events: Option<String>,
    /// The condition fires this often and then no more; none: without limit. The condition of a
    /// session says how often it still fires. [`Action::Start`], `Stop`, `Enable` and `Disable`
    /// fire only where they change something.
    pub times: Option<u64>,
    /// The condition also looks at events that are not recorded: because they are disabled, or
    /// recording is off. [`Action::Start`], `Enable` and `Disable` always do.
    pub always: bool,
    /// The events around the trigger that its saved snapshot has; `None`: as the session has it.
    pub window: Option<Window>,
    /// At most this number of the condition's triggers lead to anything in any such time, besides
    /// the session's limit.
    pub limit: Option<(u32, Duration)>,
    /// Folder in which the snapshot is saved, an absolute path of at most 256 bytes; `None`:
    /// beside the session.
    pub folder: Option<PathBuf>,
    /// The condition is fulfilled by an event that follows later than a threshold, in place of by
    /// the event itself.
    pub latency: Option<Latency>,
}

/// The time between an event that matches a condition and one that follows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Latency {
    /// Glob over `provider:name` of the event that follows, 1 to 112 bytes.
    pub then: String,
    /// The condition is fulfilled if the event follows later than this.
    pub above: Duration,
    /// Field or context in which both events must have equal values; `None`: they must be of the
    /// same thread.
    pub on: Option<String>,
}

impl Condition {
    /// Fires at each event that matches a glob over `provider:name`.
    pub fn on(pattern: impl Into<String>) -> Self {
        Self {
            pattern: pattern.into(),
            level: None,
            filter: None,
            each: 1,
            action: Action::Snapshot,
            events: None,
            times: None,
            always: false,
            window: None,
            limit: None,
            folder: None,
            latency: None,
        }
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

        /// Starts recording in place of taking a snapshot.
        and_start(it) => (it.action, it.always) = (Action::Start, true);

        /// Enables events by a glob over `provider:name` in place of taking a snapshot.
        and_enable(it, events: impl Into<String>) => {
            (it.action, it.events, it.always) = (Action::Enable, Some(events.into()), true);
        };

        /// Disables events by a glob over `provider:name` in place of taking a snapshot.
        and_disable(it, events: impl Into<String>) => {
            (it.action, it.events, it.always) = (Action::Disable, Some(events.into()), true);
        };

        /// Fires at most so often.
        times(it, times: u64) => it.times = Some(times);

        /// Looks at events that are not recorded, too.
        always(it) => it.always = true;

        /// Chooses the events around the trigger that its saved snapshot has.
        with_window(it, window: Window) => it.window = Some(window);

        /// Lets at most `most` (1 or more) triggers of the condition in any `period` lead to anything. Triggers above that are
        /// counted with those above the session's limit.
        with_limit(it, most: u32, period: Duration) => it.limit = Some((most, period));

        /// Saves the snapshot in this folder in place of beside the session.
        save_in(it, folder: impl Into<PathBuf>) => it.folder = Some(folder.into());

        /// Fires when an event that matches `then` follows, in the same thread, later than `above` behind one that fulfils the
        /// condition. Level and filter are those of the first event.
        then_above(it, then: impl Into<String>, above: Duration) => {
            it.latency = Some(Latency { then: then.into(), above, on: None });
        };

        /// Matches the events of a latency by equal values of a field or context, in place of by thread.
        on_equal(it, name: impl Into<String>) => if let Some(latency) = &mut it.latency {
            latency.on = Some(name.into());
        };
    }

    /// Returns the condition as the rule that is written, with what rules do not have.
    fn line(&self) -> Result<(Line, Own), Error> {
        let wrong = |why: &str, remedy| Error::unsupported("condition", why, remedy);
        let globs = [
            Some(&self.pattern),
            self.latency.as_ref().map(|latency| &latency.then),
            self.events.as_ref(),
        ];
        for glob in globs.into_iter().flatten() {
            if glob.is_empty() || glob.len() > rules::PATTERN_LEN || glob.contains('\0') {
                return Err(wrong(
                    "its glob has 0 or more than 112 bytes, or a NUL",
                    "use 1 to 112 bytes without NUL",
                ));
            }
            if glob.starts_with("lastwords:") {
                return Err(wrong(
                    "a trigger records events of `lastwords` itself",
                    "name events of the application",
                ));
            }
        }
        let is_plain = self.window.is_none() && self.folder.is_none();
        let has_limit = self.limit.is_some() && self.action.is_order();
        if self.action != Action::Snapshot && (!is_plain || has_limit) {
            return Err(wrong(
                "its action takes no snapshot",
                "give it no window, no folder and no limit",
            ));
        }
        if matches!(self.action, Action::Enable | Action::Disable) != self.events.is_some() {
            return Err(wrong(
                "to enable or disable needs a glob of events",
                "give the glob with that action alone",
            ));
        }
        if self.times.is_some_and(|times| times >= MOST_TIMES) {
            return Err(wrong("it fires too often", "use a number below 2^48 - 1, or none"));
        }
        if self.limit.is_some_and(|(most, period)| most == 0 || period.is_zero()) {
            return Err(wrong("its limit lets nothing pass", "use a number and a time above 0"));
        }
        let line = Line::from_spec(RuleSpec {
            enable: self.action == Action::Snapshot,
            channel: (self.each > 1).then(|| self.each - 1),
            level: self.level,
            pattern: self.pattern.clone(),
            filter: self.filter.clone(),
        })?;
        Ok((line, self.own()?))
    }

    /// Returns what rules do not have, as words.
    fn own(&self) -> Result<Own, Error> {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX - 1);
        let mut own = Own {
            action: self.action.word(),
            always: self.always || self.action.is_order(),
            times: self.times,
            folder: words_of(self.events.as_deref().unwrap_or_default().as_bytes()),
            window: self.window.map(Window::words),
            limit: self.limit.map_or((0, 0), |(most, period)| (most, nanos(period))),
            above: self.latency.as_ref().map(|latency| nanos(latency.above)),
            ..Own::default()
        };
        if let Some(folder) = &self.folder {
            let bytes = folder.as_os_str().as_bytes();
            if bytes.len() > FOLDER_LEN || !folder.is_absolute() || bytes.contains(&0) {
                let why = format!(
                    "{} is not an absolute path of at most {FOLDER_LEN} bytes",
                    folder.display()
                );
                return Err(Error::unsupported("condition", why, "give a short absolute path"));
            }
            // A folder that others may change, or that is not there, is refused now and not at the
            // trigger.
            Base::open(folder)?;
            own.folder = words_of(bytes);
        }
        if let Some(Latency { then, on, .. }) = &self.latency {
            own.then = words_of(then.as_bytes());
            if let Some(on) = on {
                let names = Filter::parse(on)
                    .map(|filter| filter.names().iter().map(ToString::to_string).collect());
                if names.is_ok_and(|names: Vec<String>| names != [on.trim()]) {
                    let why = format!("{on:?} is not the name of one field or context");
                    return Err(Error::unsupported(
                        "condition",
                        why,
                        "name one: `id`, `$ctx.vtid`",
                    ));
                }
                let words = rules::compile(on)?;
                own.on.get_mut(..words.len()).ok_or_else(|| too_long(on))?.copy_from_slice(&words);
            }
        }
        Ok(own)
    }

    fn from_line((line, own): (Line, Own)) -> Self {
        let RuleSpec { enable, channel, level, pattern, filter } = line.spec;
        let action = Action::from_word(own.action, enable);
        let text = |words: &[u64]| String::from_utf8_lossy(&bytes_of(words)).into_owned();
        let limit = Some(own.limit).filter(|limit| limit.1 != 0);
        let events = matches!(action, Action::Enable | Action::Disable).then(|| text(&own.folder));
        let folder =
            Some(bytes_of(&own.folder)).filter(|folder| !folder.is_empty() && events.is_none());
        let latency = own.above.map(|above| Latency {
            then: text(&own.then),
            above: Duration::from_nanos(above),
            on: rules::text_of(&own.on).filter(|on| !on.is_empty()),
        });
        Self {
            pattern,
            level,
            filter,
            each: channel.map_or(1, |before| before + 1),
            action,
            events,
            times: own.times,
            always: own.always,
            window: own.window.map(Window::from_times),
            limit: limit.map(|(most, period)| (most, Duration::from_nanos(period))),
            folder: folder.map(|folder| PathBuf::from(OsString::from_vec(folder))),
            latency,
        }
    }
}

fn too_long(on: &str) -> Error {
    let why = format!("{on:?} is too long");
    Error::unsupported("condition", why, "match the events of a latency by a shorter name")
}

fn tables(conditions: &Conditions) -> Tables<'_> {
    Tables { rules: &conditions.rules, filters: &conditions.filters }
}

/// Writes the conditions of a new session.
pub(crate) fn init(view: &SessionRegion, conditions: &[Condition]) -> Result<(), Error> {
    if conditions.is_empty() {
        return Ok(());
    }
    let lines = conditions.iter().map(Condition::line).collect::<Result<Vec<_>, _>>()?;
    write(view.conditions(), &lines)
}

/// Writes these conditions. The caller holds the lock, or nobody else sees the session yet.
fn write(area: &Conditions, lines: &[(Line, Own)]) -> Result<(), Error> {
    check_count(lines.len())?;
    let (lines, mut owns): (Vec<Line>, Vec<Own>) = lines.iter().cloned().unzip();
    rules::check(&lines)?;
    extra::give_counters(area, &mut owns);
    extra::write(area, &owns);
    rules::write(tables(area), &lines)
}

/// Returns the lines of the current table, with what rules do not have.
fn lines(area: &Conditions, current: &Current<'_>) -> Vec<(Line, Own)> {
    let own = |place| {
        extra::at(area, current.turn, place).map(|extra| Own::load(area, extra)).unwrap_or_default()
    };
    current.lines().into_iter().enumerate().map(|(place, line)| (line, own(place))).collect()
}

fn check_count(count: usize) -> Result<(), Error> {
    let full = Error::Full { what: "condition", limit: MOST, remedy: "remove one first" };
    if count > MOST { Err(full) } else { Ok(()) }
}

/// Returns the conditions of a session.
pub(crate) fn read(view: &SessionRegion) -> Vec<Condition> {
    let area = view.conditions();
    let lines =
        rules::at_one_moment(tables(area), |current| lines(area, current)).unwrap_or_default();
    lines.into_iter().map(Condition::from_line).collect()
}

/// Returns the condition that has a counter, if it is still there. The caller holds the lock.
pub(crate) fn of_counter(area: &Conditions, counter: Counter) -> Option<Condition> {
    let lines = lines(area, &tables(area).current(area.rules.turn.load(Acquire)));
    lines.into_iter().find(|(_, own)| own.counter == Some(counter)).map(Condition::from_line)
}

/// A condition that matches the name and level of an event.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Match<F> {
    pub(crate) each: u32,
    pub(crate) fired: Fired,
    /// The result of the function for its filter; none if it has none.
    pub(crate) filter: Option<F>,
    /// The part of the event in the latency of the condition; none if it has none.
    pub(crate) part: Option<Part>,
    /// The result of the function for the expression that start and end have in common; none if
    /// they have the thread.
    pub(crate) on: Option<F>,
}

/// Returns the glob of the events that end a latency.
fn ends(extra: &Extra, event: Named<'_>) -> bool {
    extra.flags.load(Relaxed) & CONDITION_LATENCY != 0 && rules::matches_glob(&extra.then, event)
}

/// Returns a bit for the place of each condition that matches an event; if `is_taken` is false, of
/// those that look at events which no channel takes. Allocates nothing, and needs little of the
/// stack, which may be that of a signal handler. If the conditions keep changing, none match.
pub(crate) fn places(view: &SessionRegion, desc: &EventDesc, is_taken: bool) -> u64 {
    // A trigger's own events fire none.
    if desc.provider == "lastwords" {
        return 0;
    }
    let (area, event) = (view.conditions(), Named::from_desc(desc));
    let bits = |current: &Current<'_>| {
        let ends =
            |place| extra::at(area, current.turn, place).is_some_and(|extra| ends(extra, event));
        let is_always = |extra: &Extra| extra.flags.load(Relaxed) & CONDITION_ALWAYS != 0;
        let looks = |place| is_taken || extra::at(area, current.turn, place).is_some_and(is_always);
        let matching = current.rules.iter().enumerate();
        let matching = matching
            .filter(|(place, rule)| looks(*place) && (rules::matches(rule, event) || ends(*place)));
        matching.fold(0, |bits, (place, _)| bits | 1 << place)
    };
    rules::at_one_moment(tables(area), bits).unwrap_or(0)
}

/// Returns the condition at a place, if it matches an event, with what `filter` returns for the
/// words of its filter, as [`rules::judge`] does.
pub(crate) fn at<F>(
    view: &SessionRegion,
    desc: &EventDesc,
    place: usize,
    filter: impl Fn(&[AtomicU64]) -> F,
) -> Option<Match<F>> {
    let (area, event) = (view.conditions(), Named::from_desc(desc));
    let at = |current: &Current<'_>| {
        let rule = current.rules.get(place)?;
        let extra = extra::at(area, current.turn, place)?;
        let is_latency = extra.flags.load(Relaxed) & CONDITION_LATENCY != 0;
        let (starts, ends) = (rules::matches(rule, event), ends(extra, event));
        if !starts && !ends {
            return None;
        }
        let action = action_of(rule, extra);
        let each = rule.channel.load(Relaxed).max(1);
        let part = is_latency.then(|| Part { starts, ends, above: extra.above.load(Relaxed) });
        let on = rules::words_of(&extra.on).filter(|_| is_latency).map(&filter);
        let fired = Fired::new(extra, action, place, current.turn);
        let own = rules::filter_of(current, rule).filter(|_| starts).map(&filter);
        Some(Match { each, fired, filter: own, part, on })
    };
    rules::at_one_moment(tables(area), at)?
}

fn action_of(rule: &Rule, extra: &Extra) -> Action {
    Action::from_word(
        extra.flags.load(Relaxed) >> 8 & 0xff,
        rule.enable.load(Relaxed) == TRIGGER_SNAPSHOT,
    )
}

/// Counts an event that fulfils a condition. Returns true if it fires.
pub(crate) fn hit(view: &SessionRegion, place: usize, each: u32) -> bool {
    let Some(hits) = view.conditions().hits.get(place) else { return false };
    (hits.fetch_add(1, Relaxed) + 1).is_multiple_of(u64::from(each.max(1)))
}

impl Regions {
    /// Adds a condition on events that fires triggers. The processes of the session follow it
    /// within milliseconds. One with the same glob, level, filter, second event and action is
    /// replaced. The counts of events of all conditions begin anew; how often they still fire
    /// stays.
    ///
    /// # Errors
    /// The condition is not valid, or the list is full or held.
    pub fn add_condition(&self, condition: &Condition) -> Result<(), Error> {
        let line = condition.line()?;
        let same = |(old, own): &(Line, Own)| {
            let (old, new) = (&old.spec, &line.0.spec);
            (&old.pattern, old.level, &old.filter) == (&new.pattern, new.level, &new.filter)
                && (own.then, own.on, own.action) == (line.1.then, line.1.on, line.1.action)
                && old.enable == new.enable
                && (own.action == 0 || own.folder == line.1.folder)
        };
        self.change_conditions(|lines| {
            lines.retain(|old| !same(old));
            lines.push(line.clone());
        })?;
        Ok(())
    }

    /// Removes the conditions with this glob; all if there is none given. Returns how many were
    /// removed.
    ///
    /// # Errors
    /// The list is held.
    pub fn remove_conditions(&self, pattern: Option<&str>) -> Result<usize, Error> {
        self.remove_conditions_if(|one| pattern.is_none_or(|pattern| one.pattern == pattern))
    }

    /// Removes the conditions for which a function returns true. Returns how many were removed.
    ///
    /// # Errors
    /// As for [`Regions::remove_conditions`].
    pub fn remove_conditions_if(
        &self,
        is_wanted: impl Fn(&Condition) -> bool,
    ) -> Result<usize, Error> {
        self.change_conditions(|lines| {
            lines.retain(|line| !is_wanted(&Condition::from_line(line.clone())))
        })
    }

    /// Returns the conditions, in order.
    #[must_use]
    pub fn conditions(&self) -> Vec<Condition> {
        read(&self.view)
    }

    /// Changes the conditions. Returns how many fewer there are.
    fn change_conditions(
        &self,
        change: impl FnOnce(&mut Vec<(Line, Own)>),
    ) -> Result<usize, Error> {
        let area = self.view.conditions();
        let rules = &area.rules;
        let changed: Result<Result<usize, Error>, u32> =
            locked(&rules.lock, &self.view.control().namespaces, || {
                // The holder of the lock is the only writer.
                let mut lines = lines(area, &tables(area).current(rules.turn.load(Acquire)));
                let before = lines.len();
                change(&mut lines);
                write(area, &lines)?;
                Ok(before.saturating_sub(lines.len()))
            });
        let removed =
            changed.map_err(|owner| Error::Busy { what: "the list of conditions", owner })??;
        self.view.announce();
        Ok(removed)
    }
}

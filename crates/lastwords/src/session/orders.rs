//! The actions of conditions that recording threads leave to the session's thread.
//!
//! A change of a session's rules takes a lock. So a recording thread only notes an order and wakes
//! the session's thread. Repeated orders cost the recording thread some loads while there is
//! nothing to change.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use lastwords_abi::session::Control;
use lastwords_abi::triggers::{Conditions, FIRES_UNLIMITED, ORDER_ASKED, ORDER_DONE};

use super::Error;
use super::action::Action;
use super::calls;
use super::condition::{self, Condition};
use super::counter::{Counter, TAG_SHIFT};
use super::extra::Fired;
use super::outcome::Outcome;
use super::rules::{self, Line, RuleSpec};
use super::session_region::{SessionRegion, locked};
use super::shared::SessionShared;
impl Fired {
    /// Takes one of the times that the condition fires. A condition that stops recording does not
    /// fire where recording is off. Async-signal-safe.
    pub(crate) fn take(&self, view: &SessionRegion) -> bool {
        if self.action == Action::Stop && view.control().recording.load(Acquire) == 0 {
            return false;
        }
        self.counter.is_none_or(|counter| counter.take(view.conditions()))
    }
}

/// Asks the session's thread for the action of a condition, unless it has been done or the
/// condition does not fire any more. Async-signal-safe.
pub(crate) fn ask(view: &SessionRegion, fired: &Fired) {
    let Some(counter) = fired.counter else { return };
    let area = view.conditions();
    let Control { rules, recording, .. } = view.control();
    let order = &area.orders[counter.place];
    let is_done = match fired.action {
        Action::Start => recording.load(Acquire) == 1,
        _ => order.load(Relaxed) == counter.order(done_in(rules.turn.load(Acquire))),
    };
    let asked = counter.order(ORDER_ASKED);
    if !is_done && counter.left(area) != Some(0) && order.swap(asked, AcqRel) != asked {
        view.announce();
    }
}

/// Returns the state of an order that is carried out, while the rules are those of a turn.
fn done_in(turn: u32) -> u64 {
    u64::from(turn) << 8 | ORDER_DONE
}

/// Carries out the orders of a session. `report` gets the glob of each condition that fired, and
/// the outcome. The session's thread calls it.
pub(crate) fn carry_out(session: &'static SessionShared, report: &mut dyn FnMut(&str, Outcome)) {
    let view = session.view();
    let area = view.conditions();
    for (place, order) in area.orders.iter().enumerate() {
        let asked = order.load(Acquire);
        if asked & FIRES_UNLIMITED != ORDER_ASKED {
            continue;
        }
        let counter = Counter { place, tag: (asked >> TAG_SHIFT) as u16 };
        // If the lock cannot be taken, the order stays.
        let fired = locked(&area.rules.lock, &view.control().namespaces, || {
            // Another process may have been faster. The holder of the lock alone carries orders
            // out.
            let is_asked = order.load(Acquire) == asked;
            is_asked.then(|| fire(view, area, counter, asked)).flatten()
        });
        if let Ok(Some((pattern, outcome))) = fired {
            view.announce();
            // The report is an event, which recording may have to start for.
            (calls::calls().changed)();
            report(&pattern, outcome);
        }
    }
}

/// Carries out one order. Returns the glob of its condition and the outcome if that changed
/// anything. The caller holds the lock.
fn fire(
    view: &SessionRegion,
    area: &Conditions,
    counter: Counter,
    asked: u64,
) -> Option<(String, Outcome)> {
    let order = &area.orders[counter.place];
    let condition = condition::of_counter(area, counter).filter(|one| one.times != Some(0));
    let Some(Condition { pattern, action, events, .. }) = condition else {
        let _ = order.compare_exchange(asked, counter.order(0), AcqRel, Relaxed);
        return None;
    };
    let switched = match (action, events) {
        (Action::Start, _) => Ok((view.control().recording.swap(1, AcqRel) == 0, 0)),
        (_, Some(events)) => switch(view, &events, action == Action::Enable),
        _ => Ok((false, 0)),
    };
    let (state, outcome) = match (switched, action) {
        (Err(_), _) => (0, Some(Outcome::NoRules)),
        (Ok((false, turn)), _) => (done_in(turn), None),
        (Ok((true, turn)), Action::Start) => (done_in(turn), Some(Outcome::Start)),
        (Ok((true, turn)), Action::Enable) => (done_in(turn), Some(Outcome::Enable)),
        (Ok((true, turn)), _) => (done_in(turn), Some(Outcome::Disable)),
    };
    let _ = order.compare_exchange(asked, counter.order(state), AcqRel, Relaxed);
    // Nobody else takes firings of this condition, so that one is there.
    let outcome = outcome.filter(|outcome| *outcome == Outcome::NoRules || counter.take(area))?;
    Some((pattern, outcome))
}

/// Enables or disables events by a glob. Returns whether that changes anything, and the turn of the
/// rules.
fn switch(view: &SessionRegion, events: &str, on: bool) -> Result<(bool, u32), Error> {
    let tables = view.rules();
    let Control { rules, namespaces, .. } = view.control();
    let done = locked(&rules.lock, namespaces, || {
        let turn = rules.turn.load(Acquire);
        let mut lines = tables.current(turn).lines();
        if !switch_lines(&mut lines, events, on)? {
            return Ok((false, turn));
        }
        rules::write(tables, &lines)?;
        Ok((true, turn.wrapping_add(1)))
    });
    done.map_err(|owner| Error::Busy { what: "the list of rules", owner })?
}

/// Enables or disables events in a list of rules. Returns whether that changes anything. A rule
/// that disabled them is removed before one is added, so that a filter which the events had is in
/// force again.
fn switch_lines(lines: &mut Vec<Line>, events: &str, on: bool) -> Result<bool, Error> {
    if is_on(lines, events) == on {
        return Ok(false);
    }
    let rule = |enable| RuleSpec { enable, ..RuleSpec::enable(events) };
    lines.retain(|line| line.spec != rule(!on));
    if is_on(lines, events) != on {
        lines.retain(|line| line.spec != rule(on));
        lines.push(Line::new(&rule(on))?);
    }
    Ok(true)
}

/// Returns whether rules enable the event of a name; for a glob of several, whether they enable
/// those that only this glob matches.
fn is_on(lines: &[Line], events: &str) -> bool {
    let name = text_of(events);
    let matches = |line: &&Line| {
        line.spec.channel.is_none() && lastwords_glob::matches(&line.spec.pattern, &name)
    };
    lines.iter().rev().find(matches).is_none_or(|line| line.spec.enable)
}

/// Returns the text that a glob without wildcards matches: `[*]` is an asterisk.
fn text_of(glob: &str) -> String {
    let mut text = String::new();
    let mut rest = glob;
    while let Some(first) = rest.chars().next() {
        let mut of_class = rest.chars().skip(1);
        let (shown, used) = match (first, of_class.next(), of_class.next()) {
            ('[', Some(only), Some(']')) => (only, 2 + only.len_utf8()),
            _ => (first, first.len_utf8()),
        };
        text.push(shown);
        rest = &rest[used..];
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(rules: &[RuleSpec]) -> Vec<Line> {
        rules.iter().map(|rule| Line::new(rule).expect("valid")).collect()
    }

    #[test]
    fn events_are_switched_and_keep_their_filters() {
        let filtered = RuleSpec::enable("a:b").with_filter("n > 3");
        let mut list = lines(&[RuleSpec::disable("*"), filtered]);
        let before = list.clone();
        for _ in 0..10 {
            assert!(!switch_lines(&mut list, "a:b", true).expect("valid"), "it is on");
            assert!(switch_lines(&mut list, "a:b", false).expect("valid"));
            assert_eq!(list.last().map(|line| &line.spec), Some(&RuleSpec::disable("a:b")));
            assert!(switch_lines(&mut list, "c:[*]", true).expect("valid"));
            assert!(switch_lines(&mut list, "a:b", true).expect("valid"));
            assert!(switch_lines(&mut list, "c:[*]", false).expect("valid"));
            assert_eq!(list, before, "nothing is left behind");
        }
        assert!(!is_on(&list, "c:[*]") && is_on(&[], "c:d"));
    }

    #[test]
    fn globs_without_wildcards_are_texts() {
        for (glob, text) in [
            ("a:b", "a:b"),
            ("a:[*]x[[]]", "a:*x[]"),
            ("a:[ab]", "a:[ab]"),
            ("[", "["),
            ("é[é]", "éé"),
        ] {
            assert_eq!(text_of(glob), text, "{glob}");
        }
    }
}

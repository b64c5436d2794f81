//! The rule that is for one event, and whether a rule matches an event.

use lastwords::rules::RuleSpec;

use crate::catalog::Event;
use crate::names;

/// Returns the glob that matches the event alone.
pub(crate) fn pattern_of(event: &Event) -> String {
    format!("{}:{}", names::glob_of(&event.provider), names::glob_of(&event.name))
}

/// Returns true if a rule for all channels matches the event.
pub(crate) fn matches_rule(rule: &RuleSpec, event: &Event) -> bool {
    rule.channel.is_none() && rule.matches(&event.provider, &event.name, event.level)
}

//! The filters that the mount remembers: how filters outlive `enable`.
//!
//! In the kernel a filter belongs to the event, whether it is enabled or not. In a session it
//! belongs to the rule that enables the event. So the mount remembers the filters of events and
//! gives them to the rules that it writes.

use std::collections::BTreeMap;
use std::sync::Mutex;

use lastwords::rules::RuleSpec;

use crate::catalog::Event;
use crate::mutex::guard;
use crate::patterns::{matches_rule, pattern_of};

/// The filters that were set through the mount, by the pattern of the event alone.
#[derive(Debug, Default)]
pub(crate) struct Filters(Mutex<BTreeMap<String, String>>);

impl Filters {
    /// Returns the filter of an event: that of the rule that decides on it, else the one that waits for
    /// it to be enabled.
    pub(crate) fn find(&self, rules: &[RuleSpec], event: &Event) -> Option<String> {
        let decides = rules.iter().rev().find(|rule| matches_rule(rule, event));
        let active = decides.filter(|rule| rule.enable).and_then(|rule| rule.filter.clone());
        // A trigger that disables the event leaves the rule with its filter behind.
        let pattern = pattern_of(event);
        let left = || {
            rules
                .iter()
                .rev()
                .find(|rule| rule.enable && rule.filter.is_some() && rule.pattern == pattern)
        };
        let is_off = decides.is_some_and(|rule| !rule.enable && rule.pattern == pattern);
        let left = if is_off { left().and_then(|rule| rule.filter.clone()) } else { None };
        active.or(left).or_else(|| self.kept(event))
    }

    /// Remembers the filter that an event has now, before rules change. Returns whether it has one.
    pub(crate) fn remember(&self, rules: &[RuleSpec], event: &Event) -> bool {
        let filter = self.find(rules, event);
        let has_filter = filter.is_some();
        self.keep(event, filter);
        has_filter
    }

    /// Returns the filter that is remembered for an event.
    pub(crate) fn kept(&self, event: &Event) -> Option<String> {
        guard(&self.0).get(&pattern_of(event)).cloned()
    }

    /// Remembers the filter of an event, or that it has none.
    pub(crate) fn keep(&self, event: &Event, filter: Option<String>) {
        let mut kept = guard(&self.0);
        match filter {
            Some(filter) => kept.insert(pattern_of(event), filter),
            None => kept.remove(&pattern_of(event)),
        };
    }
}

//! The channels of a session that a folder shows. The top level has those with which the session
//! began. A channel that was added while an application's session records is a buffer of its own,
//! as an instance of the kernel's tracer is. Those of a session of the user are shown
//! together: rings of another size are channels there ([`crate::sessions::Sessions::resize`]).

use lastwords::rules::RuleSpec;
use lastwords_control::{ChannelSummary, Details};
use lastwords_render::evidence::{Account, StreamName};
use lastwords_render::select::Selection;

/// The channels of a session that a folder shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum View {
    /// Those with which the session began; of a session of the user, all.
    Start,
    /// The one with this id, which was added later.
    Added(u32),
}

impl View {
    pub(crate) fn has(self, details: &Details, channel: &ChannelSummary) -> bool {
        match self {
            Self::Start => !is_apart(details, channel),
            Self::Added(id) => channel.id == id,
        }
    }

    /// Returns the rules of the view as those of a session that has no other channels. `added`: the
    /// ids of all channels that were added.
    pub(crate) fn rules(self, rules: &[RuleSpec], added: &[u32]) -> Vec<RuleSpec> {
        match self {
            Self::Start => rules[..start_of_tail(rules, added)].to_vec(),
            Self::Added(id) => {
                let own = rules.iter().filter(|rule| rule.channel == Some(id)).cloned();
                own.map(|rule| RuleSpec { channel: None, ..rule }).collect()
            }
        }
    }

    /// Lets `edit` change the rules of the view. Rules of an added channel come behind those for
    /// all channels, so that these do not decide for it.
    pub(crate) fn change_rules(
        self,
        rules: &mut Vec<RuleSpec>,
        added: &[u32],
        edit: impl FnOnce(&mut Vec<RuleSpec>),
    ) {
        let mut own = self.rules(rules, added);
        edit(&mut own);
        match self {
            Self::Start => own.extend(rules.drain(start_of_tail(rules, added)..)),
            Self::Added(id) => {
                rules.retain(|rule| rule.channel != Some(id));
                let stamped = own.into_iter().map(|rule| RuleSpec { channel: Some(id), ..rule });
                own = rules.drain(..).chain(stamped).collect();
            }
        }
        *rules = own;
    }
}

/// Returns where the rules begin that are all of added channels, and behind all others.
fn start_of_tail(rules: &[RuleSpec], added: &[u32]) -> usize {
    let is_added = |rule: &RuleSpec| rule.channel.is_some_and(|id| added.contains(&id));
    rules.iter().rposition(|rule| !is_added(rule)).map_or(0, |last| last + 1)
}

/// Returns true if a channel of the session is a buffer of its own.
fn is_apart(details: &Details, channel: &ChannelSummary) -> bool {
    channel.is_added && !details.is_users
}

/// Returns the names and ids of the channels that are buffers of their own.
pub(crate) fn added(details: &Details) -> impl Iterator<Item = (&str, u32)> {
    let added = details.channels.iter().filter(|channel| is_apart(details, channel));
    added.map(|channel| (channel.name.as_str(), channel.id))
}

pub(crate) fn added_ids(details: &Details) -> Vec<u32> {
    added(details).map(|(_, id)| id).collect()
}

/// A part of a session's events: those of some channels on a CPU, or on all.
#[derive(Debug, Clone, Default)]
pub(crate) struct Part {
    /// The CPU; none for all.
    pub(crate) cpu: Option<u32>,
    /// The ids of the channels; all channels if it is empty.
    pub(crate) channels: Vec<u32>,
    /// The names of the channels.
    pub(crate) names: Vec<String>,
}

impl Part {
    /// Returns the selection of the events. An event that several of the channels have appears
    /// once.
    pub(crate) fn selection(&self) -> Selection {
        let (cpus, channels) = (self.cpu.into_iter().collect(), self.names.clone());
        Selection { cpus, channels, deduplicate: true, ..Selection::default() }
    }

    /// Returns true if a stream is of the channels and, unless all CPUs are shown, of the CPU.
    pub(crate) fn has(&self, stream: &StreamName) -> bool {
        self.has_channel(stream) && (self.cpu.is_none() || stream.cpu == self.cpu)
    }

    fn has_channel(&self, stream: &StreamName) -> bool {
        self.names.is_empty() || self.names.contains(&stream.channel)
    }

    /// Returns an account without what other channels have lost.
    pub(crate) fn account<'a>(&self, mut account: Account<'a>) -> Account<'a> {
        if !self.names.is_empty() {
            let own: Vec<bool> =
                account.streams.iter().map(|stream| self.has_channel(stream)).collect();
            let is_own = |stream: usize| own.get(stream).copied().unwrap_or(true);
            let evidence = account.evidence.to_mut();
            evidence.gaps.retain(|gap| gap.stream.is_none_or(is_own));
            evidence.sub_buffers.retain(|row| is_own(row.stream));
        }
        account
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(channel: Option<u32>, pattern: &str) -> RuleSpec {
        RuleSpec { channel, ..RuleSpec::enable(pattern) }
    }

    #[test]
    fn rules_for_all_channels_do_not_decide_for_an_added_one() {
        let mut rules = vec![rule(None, "a:*"), rule(Some(7), "b:*")];
        View::Start.change_rules(&mut rules, &[7, 8], |own| RuleSpec::disable("*").add_to(own));
        assert_eq!(rules, [RuleSpec::disable("*"), rule(Some(7), "b:*")]);
        View::Added(8).change_rules(&mut rules, &[7, 8], |own| {
            assert_eq!(*own, []);
            own.push(RuleSpec::enable("c"));
        });
        assert_eq!(rules, [RuleSpec::disable("*"), rule(Some(7), "b:*"), rule(Some(8), "c")]);
        View::Added(7)
            .change_rules(&mut rules, &[7, 8], |own| assert_eq!(*own, [RuleSpec::enable("b:*")]));
        assert_eq!(rules, [RuleSpec::disable("*"), rule(Some(8), "c"), rule(Some(7), "b:*")]);
    }

    /// Another program has put a rule for all channels behind those of an added one, so that it
    /// decides there too. It still does.
    #[test]
    fn rules_of_others_keep_their_order() {
        let before = vec![rule(Some(7), "b:*"), RuleSpec::disable("b:c"), rule(Some(7), "d")];
        let mut rules = before.clone();
        View::Start.change_rules(&mut rules, &[7], |own| own.push(RuleSpec::enable("e")));
        assert_eq!(rules, [&before[..2], &[RuleSpec::enable("e"), rule(Some(7), "d")]].concat());
    }
}

//! The rules decide which events a channel takes. They are globs over `provider:name`, in order. The last rule that
//! matches decides, and without one an event is taken.
//!
//! If a channel has an enabling rule of its own with a level, it keeps to that level whatever rules for all channels
//! say. So `enable '*'` does not flood a channel for errors.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::fence;

use lastwords_abi::session::{Control, MAX_RULES, Rule, Rules};
use lastwords_glob::matches_chars;
use lastwords_ring::os;

use crate::session::Error;
use crate::session::config::{Level, setters};
use crate::session::registry::EventDesc;
use crate::session::session_region::{SessionRegion, locked, text, until_nul};

/// Largest size of a pattern, in bytes.
pub(crate) const PATTERN_LEN: usize = 112;
/// Number of times that a reader tries again if the rules change while it reads.
const READ_TRIES: u32 = 1000;

/// A rule that was read or will be written.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct RuleSpec {
    /// True if the rule enables events, false if it disables them.
    pub enable: bool,
    /// Channel id, or `None` for all channels.
    pub channel: Option<u32>,
    /// Least severe level that matches, or `None` for any.
    pub level: Option<Level>,
    /// Glob over `provider:name`: `*` is any text, `?` any character, `[a-z]` and `[!a-z]` a class.
    pub pattern: String,
}

impl RuleSpec {
    /// Enables events by a glob, in all channels.
    pub fn enable(pattern: impl Into<String>) -> Self {
        Self { enable: true, channel: None, level: None, pattern: pattern.into() }
    }

    /// Disables events by a glob, in all channels.
    pub fn disable(pattern: impl Into<String>) -> Self {
        Self { enable: false, channel: None, level: None, pattern: pattern.into() }
    }

    setters! {
        /// Limits the rule to one channel.
        in_channel(it, channel: u32) => it.channel = Some(channel);

        /// Limits the rule to this level and more severe ones.
        up_to(it, level: Level) => it.level = Some(level);
    }

    /// Returns true if `newer`, which follows in the list, decides in all cases in which `self` matches.
    fn is_shadowed_by(&self, newer: &Self) -> bool {
        let same = self.channel == newer.channel && self.level == newer.level && self.pattern == newer.pattern;
        let all = newer.pattern == "*" && newer.level.is_none();
        let limits = self.enable && self.level.is_some() && self.channel.is_some();
        same || (all && !limits && newer.channel.is_none_or(|channel| self.channel == Some(channel)))
    }
}

/// Returns true if the rules of a session let `channel` take the event. All rules are read in one consistent state.
/// Allocates nothing. If the rules keep changing, the event is taken.
pub(crate) fn takes(rules: &Rules, channel: u32, desc: &EventDesc) -> bool {
    takes_named(rules, channel, (desc.provider, desc.name), desc.level)
}

/// Does the same for an event of which only the provider, the name and the level are known.
pub(crate) fn takes_named(rules: &Rules, channel: u32, name: (&str, &str), level: u8) -> bool {
    at_one_moment(rules, |lines| decide(lines, channel, name, level)).unwrap_or(true)
}

fn decide(rules: &[Rule], channel: u32, (provider, name): (&str, &str), level: u8) -> bool {
    let level = u32::from(level);
    let event = provider.chars().chain([':']).chain(name.chars());
    let is_own = |rule: &Rule| rule.channel.load(Relaxed) == channel + 1;
    let limit_of = |rule: &Rule| Some(rule.level.load(Relaxed)).filter(|limit| *limit != 0);
    let enables = |rule: &Rule| rule.enable.load(Relaxed) != 0;
    let matches = |rule: &&Rule| {
        (rule.channel.load(Relaxed) == 0 || is_own(rule))
            && limit_of(rule).is_none_or(|limit| level < limit)
            && str::from_utf8(until_nul(&pattern(rule))).is_ok_and(|glob| matches_chars(glob, event.clone()))
    };
    let decided = rules.iter().rev().find(matches).is_none_or(enables);
    let limit = rules.iter().rev().filter(|rule| enables(rule) && is_own(rule)).find_map(limit_of);
    decided && limit.is_none_or(|limit| level < limit)
}

/// Reads the rules of a session in one consistent state. Returns no rules if they keep changing.
pub(crate) fn read(rules: &Rules) -> Vec<RuleSpec> {
    at_one_moment(rules, |lines| lines.iter().map(spec_of).collect()).unwrap_or_default()
}

/// Returns what `look` returns for the current table, if the table did not change meanwhile. Returns `None` if it
/// changed in each of [`READ_TRIES`] rounds.
fn at_one_moment<T>(rules: &Rules, look: impl Fn(&[Rule]) -> T) -> Option<T> {
    (0..READ_TRIES).find_map(|round| {
        // Acquire: the table was filled before the turn was stored.
        let turn = rules.turn.load(Acquire);
        let seen = look(table(rules, turn));
        // This pairs with the fence in `write`: a reader that saw a word of a later writer also sees the turn before
        // that writer.
        fence(Acquire);
        if rules.turn.load(Relaxed) == turn {
            return Some(seen);
        }
        os::pause(round);
        None
    })
}

/// Returns the rules in use of the table that is current in a turn.
fn table(rules: &Rules, turn: u32) -> &[Rule] {
    let which = (turn & 1) as usize;
    let used = (rules.len[which].load(Relaxed) as usize).min(MAX_RULES);
    &rules.tables[which][..used]
}

/// Returns the pattern, NUL-padded.
fn pattern(rule: &Rule) -> [u8; PATTERN_LEN] {
    let mut pattern = [0; PATTERN_LEN];
    for (bytes, word) in pattern.as_chunks_mut().0.iter_mut().zip(&rule.pattern) {
        *bytes = word.load(Relaxed).to_ne_bytes();
    }
    pattern
}

fn spec_of(rule: &Rule) -> RuleSpec {
    RuleSpec {
        enable: rule.enable.load(Relaxed) != 0,
        channel: rule.channel.load(Relaxed).checked_sub(1),
        level: rule.level.load(Relaxed).checked_sub(1).and_then(Level::of),
        pattern: text(&pattern(rule)),
    }
}

fn store(rule: &Rule, spec: &RuleSpec) {
    let mut bytes = spec.pattern.bytes();
    for word in &rule.pattern {
        word.store(u64::from_ne_bytes(std::array::from_fn(|_| bytes.next().unwrap_or(0))), Relaxed);
    }
    rule.enable.store(u32::from(spec.enable), Relaxed);
    rule.channel.store(spec.channel.map_or(0, |channel| channel + 1), Relaxed);
    rule.level.store(spec.level.map_or(0, |level| level as u32 + 1), Relaxed);
}

/// Appends a rule, removes those that it shadows, and notifies all processes of the session.
pub(crate) fn add(view: &SessionRegion, rule: &RuleSpec) -> Result<(), Error> {
    if rule.pattern.len() > PATTERN_LEN || rule.pattern.is_empty() || rule.pattern.contains('\0') {
        let why = format!("{:?} has {} bytes", rule.pattern, rule.pattern.len());
        return Err(Error::Unsupported { what: "pattern", why, remedy: "use 1 to 112 bytes without NUL" });
    }
    let Control { rules, namespaces, .. } = view.control();
    let added = locked(&rules.lock, namespaces, || {
        // The holder of the lock is the only writer.
        let mut lines: Vec<_> = table(rules, rules.turn.load(Acquire)).iter().map(spec_of).collect();
        lines.retain(|old| !old.is_shadowed_by(rule));
        lines.push(rule.clone());
        if lines.len() > MAX_RULES {
            let remedy = "enable or disable '*' first, which drops the others";
            return Err(Error::Full { what: "rule", limit: MAX_RULES, remedy });
        }
        write(rules, &lines);
        Ok(())
    });
    added.map_err(|owner| Error::Busy { what: "the list of rules", owner })??;
    view.announce();
    Ok(())
}

/// Writes these rules, at most [`MAX_RULES`]. The caller holds the lock, or nobody else sees the session yet. If the
/// caller dies in this function, the old rules stay valid.
pub(crate) fn write(rules: &Rules, lines: &[RuleSpec]) {
    let turn = rules.turn.load(Acquire);
    let next = turn.wrapping_add(1);
    // This pairs with the fence in `at_one_moment`: readers of this table, which was current one turn ago, notice the
    // change.
    fence(Release);
    let which = (next & 1) as usize;
    for (rule, line) in rules.tables[which].iter().zip(lines) {
        store(rule, line);
    }
    rules.len[which].store(lines.len().min(MAX_RULES) as u32, Relaxed);
    rules.turn.store(next, Release);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty() -> Box<Rules> {
        // SAFETY: the shape is atomics and integers, for which zeroes are a value; the box is large enough and aligned.
        unsafe { Box::<Rules>::new_zeroed().assume_init() }
    }

    /// Returns the largest number of rules, all of the same pattern.
    fn many(pattern: char) -> Vec<RuleSpec> {
        vec![RuleSpec::enable(String::from(pattern).repeat(PATTERN_LEN)); if cfg!(miri) { 4 } else { MAX_RULES }]
    }

    #[test]
    fn readers_see_the_rules_of_one_moment() {
        let rules = empty();
        let (first, second) = (many('a'), many('b'));
        write(&rules, &first);
        let rounds = if cfg!(miri) { 3 } else { 2000 };
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                for _ in 0..rounds {
                    // If the rules changed all the time, none are seen.
                    let seen = read(&rules);
                    assert!(seen.is_empty() || seen == first || seen == second, "{seen:?}");
                }
            });
            // Miri would let the writer run on while the reader reads again and again.
            let writes = if cfg!(miri) { 3 } else { usize::MAX };
            for rule in [&second, &first].into_iter().cycle().take(writes) {
                write(&rules, rule);
                std::thread::yield_now();
                if reader.is_finished() {
                    break;
                }
            }
            reader.join().expect("the reader saw whole rules");
        });
    }

    #[test]
    fn a_writer_that_died_leaves_the_rules_as_they_were() {
        let rules = empty();
        let (first, second) = (many('a'), many('b'));
        write(&rules, &first);
        // This does a part of what a writer does before it publishes.
        for rule in &rules.tables[0][..MAX_RULES / 2] {
            store(rule, &second[0]);
        }
        rules.len[0].store(7, Relaxed);
        assert_eq!(read(&rules), first);
        write(&rules, &second);
        assert_eq!(read(&rules), second);
    }
}

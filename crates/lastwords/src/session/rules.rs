//! Which events a channel takes: globs over `provider:name`, in order; the last rule that matches decides, and without one
//! an event is taken.
//!
//! A channel that has an enabling rule of its own with a level keeps to that level whatever rules for all channels say: a
//! channel for errors is not flooded by `enable '*'`.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use lastwords_abi::session::{Control, MAX_RULES, Rule};
use lastwords_ring::os;

use crate::session::config::Level;
use crate::session::registry::EventDesc;
use crate::session::{Error, session_region::SessionRegion};

/// Bytes of a pattern.
const PATTERN_LEN: usize = 112;
/// How often a reader tries for rules that do not change while it reads.
const READ_TRIES: u32 = 1000;

/// A rule, read or to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleSpec {
    /// Enables, or disables.
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
    #[must_use]
    pub fn enable(pattern: impl Into<String>) -> Self {
        Self { enable: true, channel: None, level: None, pattern: pattern.into() }
    }

    /// Disables events by a glob, in all channels.
    #[must_use]
    pub fn disable(pattern: impl Into<String>) -> Self {
        Self { enable: false, channel: None, level: None, pattern: pattern.into() }
    }

    /// In one channel only.
    #[must_use]
    pub fn in_channel(mut self, channel: u32) -> Self {
        self.channel = Some(channel);
        self
    }

    /// Of this level or a more severe one only.
    #[must_use]
    pub fn up_to(mut self, level: Level) -> Self {
        self.level = Some(level);
        self
    }

    /// Whether `newer`, behind it in the list, decides in all cases where `self` matches.
    fn is_shadowed_by(&self, newer: &Self) -> bool {
        let same = self.channel == newer.channel && self.level == newer.level && self.pattern == newer.pattern;
        let all = newer.pattern == "*" && newer.level.is_none();
        let limits = self.enable && self.level.is_some() && self.channel.is_some();
        same || (all && !limits && newer.channel.is_none_or(|channel| self.channel == Some(channel)))
    }
}

/// Whether the rules of a session let `channel` take the event, as they stood at one moment. Allocates nothing.
pub(crate) fn takes(control: &Control, channel: u32, desc: &EventDesc) -> bool {
    at_one_moment(control, || decide(raw_rules(control), channel, desc))
}

fn decide(rules: impl DoubleEndedIterator<Item = Rule> + Clone, channel: u32, desc: &EventDesc) -> bool {
    let level = u32::from(desc.level);
    let is_own = |rule: &Rule| rule.channel == channel + 1;
    let matches = |rule: &Rule| {
        (rule.channel == 0 || is_own(rule))
            && (rule.level == 0 || level < rule.level)
            && glob_of_event(pattern_of(rule), desc)
    };
    let decided = rules.clone().rev().find(matches).is_none_or(|rule| rule.enable != 0);
    let own = |rule: &Rule| rule.enable != 0 && is_own(rule) && rule.level != 0;
    let limit = rules.rev().find(own).map(|rule| rule.level);
    decided && limit.is_none_or(|limit| level < limit)
}

/// The rules of a session, as they stood at one moment.
pub(crate) fn read(control: &Control) -> Vec<RuleSpec> {
    at_one_moment(control, || copy(control))
}

/// What `look` sees while nobody changes the rules.
fn at_one_moment<T>(control: &Control, look: impl Fn() -> T) -> T {
    for round in 0..READ_TRIES {
        let before = control.generation.load(Acquire);
        let free = control.rules_lock.load(Acquire) == 0;
        let seen = look();
        std::sync::atomic::fence(Acquire);
        if free && control.generation.load(Acquire) == before && control.rules_lock.load(Acquire) == 0 {
            return seen;
        }
        os::pause(round);
    }
    // A dead owner of the lock changes nothing any more.
    look()
}

fn copy(control: &Control) -> Vec<RuleSpec> {
    raw_rules(control).map(|rule| spec_of(&rule)).collect()
}

fn raw_rules(control: &Control) -> impl DoubleEndedIterator<Item = Rule> + Clone {
    let used = (control.rules_len.load(Acquire) as usize).min(MAX_RULES);
    // SAFETY: each is valid for reads; another process may be writing it, and `at_one_moment` then looks again.
    control.rules[..used].iter().map(|rule| unsafe { core::ptr::from_ref(rule).read_volatile() })
}

fn pattern_of(rule: &Rule) -> &[u8] {
    rule.pattern.split(|byte| *byte == 0).next().unwrap_or_default()
}

fn spec_of(rule: &Rule) -> RuleSpec {
    RuleSpec {
        enable: rule.enable != 0,
        channel: rule.channel.checked_sub(1),
        level: rule.level.checked_sub(1).and_then(Level::of),
        pattern: String::from_utf8_lossy(pattern_of(rule)).into_owned(),
    }
}

fn raw_of(rule: &RuleSpec) -> Rule {
    let mut pattern = [0u8; PATTERN_LEN];
    let bytes = rule.pattern.as_bytes();
    let len = bytes.len().min(PATTERN_LEN);
    pattern[..len].copy_from_slice(&bytes[..len]);
    Rule {
        enable: u32::from(rule.enable),
        channel: rule.channel.map_or(0, |channel| channel + 1),
        level: rule.level.map_or(0, |level| level as u32 + 1),
        reserved: 0,
        pattern,
    }
}

/// Appends a rule, dropping those that it shadows, and tells all processes of the session.
pub(crate) fn add(view: &SessionRegion, rule: &RuleSpec) -> Result<(), Error> {
    if rule.pattern.len() > PATTERN_LEN || rule.pattern.is_empty() || rule.pattern.contains('\0') {
        let why = format!("{:?} has {} bytes", rule.pattern, rule.pattern.len());
        return Err(Error::Unsupported { what: "pattern", why, remedy: "use 1 to 112 bytes without NUL" });
    }
    let control = view.control();
    let mine = lastwords_ring::lock_word();
    if !os::lock(&control.rules_lock, mine, || view.is_foreign()) {
        let owner = (control.rules_lock.load(Relaxed) >> 32) as u32;
        return Err(Error::Busy { what: "the list of rules", owner });
    }
    let mut rules = copy(control);
    rules.retain(|old| !old.is_shadowed_by(rule));
    rules.push(rule.clone());
    let fits = rules.len() <= MAX_RULES;
    if fits {
        write(view, &rules);
    }
    os::unlock(&control.rules_lock, mine);
    if !fits {
        let remedy = "enable or disable '*' first, which drops the others";
        return Err(Error::Full { what: "rule", limit: MAX_RULES, remedy });
    }
    view.announce();
    Ok(())
}

/// Writes the rules; the caller holds the lock, or nobody else sees the session yet.
pub(crate) fn write(view: &SessionRegion, rules: &[RuleSpec]) {
    let table = view.rules_ptr();
    for (i, rule) in rules.iter().take(MAX_RULES).enumerate() {
        // SAFETY: `i` is below MAX_RULES, the length of the table; writers are kept apart by the lock.
        unsafe { table.add(i).write_volatile(raw_of(rule)) };
    }
    view.control().rules_len.store(rules.len().min(MAX_RULES) as u32, Release);
}

/// Matches `provider:name`.
fn glob_of_event(pattern: &[u8], desc: &EventDesc) -> bool {
    let (provider, name) = (desc.provider.as_bytes(), desc.name.as_bytes());
    glob_of(pattern, provider.len() + 1 + name.len(), |at| match at.checked_sub(provider.len()) {
        None => provider[at],
        Some(0) => b':',
        Some(behind) => name[behind - 1],
    })
}

/// Matches a text of `len` bytes against a pattern of `*`, `?` and classes. Time is at most the product of the lengths.
fn glob_of(pattern: &[u8], len: usize, text: impl Fn(usize) -> u8) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < len {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p + 1, t));
                p += 1;
                continue;
            }
            Some(_) => {
                if let Some(next) = one(pattern, p, text(t)) {
                    p = next;
                    t += 1;
                    continue;
                }
            }
            None => {}
        }
        // The last star takes one more byte.
        let Some((after, from)) = star else { return false };
        star = Some((after, from + 1));
        (p, t) = (after, from + 1);
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

/// Matches one byte; where the pattern goes on, if it does.
fn one(pattern: &[u8], p: usize, byte: u8) -> Option<usize> {
    match pattern[p] {
        b'?' => Some(p + 1),
        b'[' => match class(&pattern[p + 1..], byte) {
            Some((matches, len)) => matches.then_some(p + 1 + len),
            // No closing bracket: the bracket stands for itself.
            None => (byte == b'[').then_some(p + 1),
        },
        literal => (literal == byte).then_some(p + 1),
    }
}

/// A class behind its opening bracket: whether it matches, and its length with the closing bracket.
fn class(body: &[u8], byte: u8) -> Option<(bool, usize)> {
    let negated = matches!(body.first(), Some(b'!' | b'^'));
    let mut at = usize::from(negated);
    let first = at;
    let mut found = false;
    loop {
        let low = *body.get(at)?;
        if low == b']' && at > first {
            return Some((found != negated, at + 1));
        }
        if body.get(at + 1) == Some(&b'-') && body.get(at + 2).is_some_and(|high| *high != b']') {
            found |= (low..=body[at + 2]).contains(&byte);
            at += 3;
        } else {
            found |= low == byte;
            at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs() {
        let cases = [
            ("*", "a:b", true),
            ("a:*", "a:b", true),
            ("a:*", "ab:b", false),
            ("*:b?", "x:bc", true),
            ("*:b?", "x:b", false),
            ("net:[rt]x", "net:tx", true),
            ("net:[!rt]x", "net:tx", false),
            ("net:[a-m]*", "net:open", false),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXbYbZ", false),
            ("[x", "[x", true),
            ("", "", true),
            ("", "a", false),
        ];
        for (pattern, text, expected) in cases {
            assert_eq!(glob(pattern, text), expected, "{pattern} on {text}");
        }
    }

    fn glob(pattern: &str, text: &str) -> bool {
        glob_of(pattern.as_bytes(), text.len(), |at| text.as_bytes()[at])
    }

    #[test]
    fn a_hostile_pattern_ends() {
        let pattern = "*a".repeat(56);
        assert!(!glob(&pattern, &"b".repeat(5000)));
    }

    #[test]
    fn the_last_match_decides_and_levels_hold() {
        let desc = |name, level| EventDesc { provider: "p", name, level, format: "", file: "", line: 0, fields: &[] };
        let takes = |rules: &[RuleSpec], channel, desc: &EventDesc| decide(rules.iter().map(raw_of), channel, desc);
        let mut rules = vec![RuleSpec::disable("*"), RuleSpec::enable("p:a")];
        assert!(takes(&rules, 0, &desc("a", 3)));
        assert!(!takes(&rules, 0, &desc("b", 3)));
        rules.push(RuleSpec::enable("*").in_channel(1).up_to(Level::Warn));
        assert!(takes(&rules, 1, &desc("b", 2)));
        assert!(!takes(&rules, 1, &desc("a", 3)), "the channel's own level holds");
        rules.push(RuleSpec::enable("*"));
        assert!(takes(&rules, 0, &desc("b", 5)) && !takes(&rules, 1, &desc("b", 5)));
        assert!(takes(&[], 0, &desc("b", 5)));
    }
}

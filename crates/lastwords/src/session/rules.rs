//! The rules decide which events a channel takes. They are globs over `provider:name`, in order.
//! The last rule that matches decides, and without one an event is taken.
//!
//! If a channel has an enabling rule of its own with a level, it keeps to that level whatever rules
//! for all channels say. So `enable '*'` does not flood a channel for errors.
//!
//! An enabling rule may have a filter. If such a rule decides, only events for which the filter is
//! true are taken. The process that adds the rule parses the filter; recorders read its code
//! (`Verdict::Filtered`).

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::fence;

use lastwords_abi::session::{
    FILTERS_LEN, Filters, MAX_RULES, Rule, Rules, filter_head, filter_lens,
};
use lastwords_abi::sync::AtomicU64;
use lastwords_filter::Filter;
use lastwords_glob::matches_chars;
use lastwords_ring::os;

use crate::session::Error;
use crate::session::config::{Level, setters};
use crate::session::desc::EventDesc;
use crate::session::extra::{self, store_all};
use crate::session::text::{text, until_nul};

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
    /// Glob over `provider:name`: `*` is any text, `?` any character, `[a-z]` and `[!a-z]` a
    /// class.
    pub pattern: String,
    /// Expression that an event must fulfil, or `None` if all that match are taken. Only for rules
    /// that enable.
    pub filter: Option<String>,
}

impl RuleSpec {
    /// Enables events by a glob, in all channels.
    pub fn enable(pattern: impl Into<String>) -> Self {
        Self { enable: true, channel: None, level: None, pattern: pattern.into(), filter: None }
    }

    /// Disables events by a glob, in all channels.
    pub fn disable(pattern: impl Into<String>) -> Self {
        Self { enable: false, ..Self::enable(pattern) }
    }

    setters! {
        /// Limits the rule to one channel.
        in_channel(it, channel: u32) => it.channel = Some(channel);

        /// Limits the rule to this level and more severe ones.
        up_to(it, level: Level) => it.level = Some(level);

        /// Takes only events for which the expression is true: `bytes > 4096 && comm ~ "redis*"` (see docs/FILTER.md). It is
        /// evaluated in the application before anything is reserved. An event for which it is false or unknown, because
        /// the event lacks a field, is not recorded, and is not a loss.
        with_filter(it, filter: impl Into<String>) => it.filter = Some(filter.into());
    }

    /// Returns true if an event of this provider, name and level (1 error to 5 trace) has the name
    /// and level of the rule. The channel is not looked at.
    #[must_use]
    pub fn matches(&self, provider: &str, name: &str, level: u8) -> bool {
        fits(self.level.map(limit), &self.pattern, Named { provider, name, level })
    }

    /// Appends the rule to a list, and removes the rules that it shadows from the list.
    pub fn add_to(self, rules: &mut Vec<Self>) {
        rules.retain(|old| !old.is_shadowed_by(&self));
        rules.push(self);
    }

    /// Returns true if `newer`, which follows in the list, decides in all cases in which `self`
    /// matches.
    fn is_shadowed_by(&self, newer: &Self) -> bool {
        let same = self.channel == newer.channel
            && self.level == newer.level
            && self.pattern == newer.pattern;
        let all = newer.pattern == "*" && newer.level.is_none();
        let limits = self.enable && self.level.is_some() && self.channel.is_some();
        same || (all
            && !limits
            && newer.channel.is_none_or(|channel| self.channel == Some(channel)))
    }
}

/// The rules of a session, and their filters.
#[derive(Debug, Clone, Copy)]
pub struct Tables<'a> {
    pub(crate) rules: &'a Rules,
    pub(crate) filters: &'a Filters,
}

/// The facts about an event by which rules match.
#[derive(Debug, Clone, Copy)]
pub struct Named<'a> {
    pub(crate) provider: &'a str,
    pub(crate) name: &'a str,
    /// From 1 (error) to 5 (trace).
    pub(crate) level: u8,
}

impl Named<'_> {
    pub(crate) fn from_desc(desc: &EventDesc) -> Self {
        Named { provider: desc.provider, name: desc.name, level: desc.level }
    }
}

/// The table that is current at one moment.
pub(crate) struct Current<'a> {
    pub(crate) turn: u32,
    pub(crate) rules: &'a [Rule],
    /// The words of the filters.
    filters: &'a [AtomicU64],
}

/// The decision of a session's rules on an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict<F> {
    /// The channel does not take the event.
    Refused,
    /// The channel takes the event.
    Taken,
    /// The channel takes the event if this filter is true for it.
    Filtered(F),
}

/// Returns what the rules of a session say of an event in `channel`. All rules are read in one
/// consistent state. Allocates nothing. If the rules keep changing, the event is taken.
///
/// `filter` is called with the words of the filter that decides (see [`parts`]). Rules that change
/// meanwhile make it see other words; then its result is dropped and it is called again.
pub(crate) fn judge<F>(
    tables: Tables<'_>,
    channel: u32,
    event: Named<'_>,
    filter: impl Fn(&[AtomicU64]) -> F,
) -> Verdict<F> {
    at_one_moment(tables, |current| decide(current, channel, event, &filter))
        .unwrap_or(Verdict::Taken)
}

fn decide<F>(
    current: &Current<'_>,
    channel: u32,
    event: Named<'_>,
    filter: &impl Fn(&[AtomicU64]) -> F,
) -> Verdict<F> {
    let rules = current.rules;
    let level = u32::from(event.level);
    let is_own = |rule: &Rule| rule.channel.load(Relaxed) == channel + 1;
    let enables = |rule: &Rule| rule.enable.load(Relaxed) != 0;
    let matches =
        |rule: &&Rule| (rule.channel.load(Relaxed) == 0 || is_own(rule)) && matches(rule, event);
    let decides = rules.iter().rev().find(matches);
    let limit = rules.iter().rev().filter(|rule| enables(rule) && is_own(rule)).find_map(limit_of);
    if !decides.is_none_or(enables) || limit.is_some_and(|limit| level >= limit) {
        return Verdict::Refused;
    }
    match decides.and_then(|rule| filter_of(current, rule)) {
        Some(words) => Verdict::Filtered(filter(words)),
        None => Verdict::Taken,
    }
}

/// Returns the limit of a rule's level.
fn limit_of(rule: &Rule) -> Option<u32> {
    Some(rule.level.load(Relaxed)).filter(|limit| *limit != 0)
}

/// Returns true if the event has the name and level of the rule.
pub(crate) fn matches(rule: &Rule, event: Named<'_>) -> bool {
    str::from_utf8(until_nul(&pattern(&rule.pattern)))
        .is_ok_and(|glob| fits(limit_of(rule), glob, event))
}

/// Returns true if the event has a name that matches the glob in these words.
pub(crate) fn matches_glob(glob: &[AtomicU64; PATTERN_LEN / 8], event: Named<'_>) -> bool {
    str::from_utf8(until_nul(&pattern(glob))).is_ok_and(|glob| fits(None, glob, event))
}

/// Returns true if the event's name matches a glob and its level is below a limit. Allocates
/// nothing.
fn fits(limit: Option<u32>, glob: &str, event: Named<'_>) -> bool {
    let name = event.provider.chars().chain([':']).chain(event.name.chars());
    limit.is_none_or(|limit| u32::from(event.level) < limit) && matches_chars(glob, name)
}

/// Returns the word of a rule for its level: events below it match.
fn limit(level: Level) -> u32 {
    level as u32 + 1
}

/// Returns the words of a rule's filter, without those behind it; none if the rule has no filter.
pub(crate) fn filter_of<'a>(current: &Current<'a>, rule: &Rule) -> Option<&'a [AtomicU64]> {
    let at = (rule.filter.load(Relaxed) as usize).checked_sub(1)?;
    words_of(current.filters.get(at / 8..)?)
}

/// Returns the words of the filter at the start of some words, without those behind it; none if
/// there is no filter.
pub(crate) fn words_of(words: &[AtomicU64]) -> Option<&[AtomicU64]> {
    let head = words.first()?.load(Relaxed);
    let (text, code) = filter_lens(head);
    words.get(..1 + text.checked_add(code)?.div_ceil(8)).filter(|_| head != 0)
}

/// Splits the bytes of a filter behind its first word, `head`, into the text and the code.
pub(crate) fn parts(head: u64, bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (text, code) = filter_lens(head);
    let (text, rest) = bytes.split_at_checked(text)?;
    Some((text, rest.get(..code)?))
}

/// Reads the rules of a session in one consistent state. Returns no rules if they keep changing.
pub fn read(tables: Tables<'_>) -> Vec<RuleSpec> {
    lines(tables).into_iter().map(|line| line.spec).collect()
}

/// Returns what `look` returns for the current table, if the table did not change meanwhile.
/// Returns `None` if it changed in each of [`READ_TRIES`] rounds.
pub(crate) fn at_one_moment<T>(tables: Tables<'_>, look: impl Fn(&Current<'_>) -> T) -> Option<T> {
    let rules = tables.rules;
    (0..READ_TRIES).find_map(|round| {
        // Acquire: the table was filled before the turn was stored.
        let turn = rules.turn.load(Acquire);
        let seen = look(&tables.current(turn));
        // This pairs with the fence in `write`: a reader that saw a word of a later writer also
        // sees the turn before that writer.
        fence(Acquire);
        if rules.turn.load(Relaxed) == turn {
            return Some(seen);
        }
        os::pause(round);
        None
    })
}

impl<'a> Tables<'a> {
    /// Returns the rules in use of the table that is current in a turn, and their filters.
    pub(crate) fn current(&self, turn: u32) -> Current<'a> {
        let which = (turn & 1) as usize;
        let used = (self.rules.len[which].load(Relaxed) as usize).min(MAX_RULES);
        let filters = &self.filters.tables[which];
        Current { turn, rules: &self.rules.tables[which][..used], filters }
    }
}

/// A rule with the words of its filter. They are kept as they were read, because they may be of a
/// later version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) spec: RuleSpec,
    filter: Vec<u64>,
}

impl Line {
    /// Checks a rule and compiles its filter.
    pub(crate) fn new(spec: &RuleSpec) -> Result<Self, Error> {
        let spec = spec.clone();
        if spec.pattern.len() > PATTERN_LEN || spec.pattern.contains('\0') {
            let why = format!("{:?} has {} bytes", spec.pattern, spec.pattern.len());
            return Err(Error::unsupported("pattern", why, "use 1 to 112 bytes without NUL"));
        }
        if spec.filter.is_some() && !spec.enable {
            let why = "a rule that disables events takes none";
            return Err(Error::unsupported(
                "filter",
                why,
                "enable the events with the opposite filter",
            ));
        }
        Self::from_spec(spec)
    }

    /// Compiles the filter of a rule, or of a condition.
    pub(crate) fn from_spec(spec: RuleSpec) -> Result<Self, Error> {
        let filter = spec.filter.as_deref().map_or(Ok(Vec::new()), compile)?;
        Ok(Self { spec, filter })
    }
}

/// Returns the words of a filter.
pub(crate) fn compile(text: &str) -> Result<Vec<u64>, Error> {
    let filter = Filter::parse(text).map_err(|error| {
        let why = format!(
            "byte {}: found {}; expected {}",
            error.offset(),
            error.found(),
            error.expected()
        );
        Error::unsupported("filter", why, "docs/FILTER.md has the expressions")
    })?;
    let Some(code) = filter.encode() else {
        let why = format!(
            "an expression of {} bytes, or its nesting, is too much for a session",
            text.len()
        );
        return Err(Error::unsupported("filter", why, "use a shorter one with fewer parentheses"));
    };
    let mut bytes = [text.as_bytes(), &code].concat();
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    let words = bytes.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word));
    Ok([filter_head(text.len() as u32, code.len() as u32)].into_iter().chain(words).collect())
}

/// Returns the text of a filter.
pub(crate) fn text_of(words: &[u64]) -> Option<String> {
    let (head, rest) = words.split_first()?;
    let bytes: Vec<u8> = rest.iter().flat_map(|word| word.to_ne_bytes()).collect();
    parts(*head, &bytes).map(|(text, _)| String::from_utf8_lossy(text).into_owned())
}

/// Reads the rules of a session in one consistent state. Returns no rules if they keep changing.
pub(crate) fn lines(tables: Tables<'_>) -> Vec<Line> {
    at_one_moment(tables, |current| current.lines()).unwrap_or_default()
}

impl Current<'_> {
    pub(crate) fn lines(&self) -> Vec<Line> {
        self.rules.iter().map(|rule| self.line(rule)).collect()
    }

    fn line(&self, rule: &Rule) -> Line {
        let words = filter_of(self, rule).unwrap_or_default();
        let filter: Vec<u64> = words.iter().map(|word| word.load(Relaxed)).collect();
        Line { spec: spec_of(rule, text_of(&filter)), filter }
    }
}

/// Returns the pattern, NUL-padded.
fn pattern(words: &[AtomicU64; PATTERN_LEN / 8]) -> [u8; PATTERN_LEN] {
    let mut pattern = [0; PATTERN_LEN];
    for (bytes, word) in pattern.as_chunks_mut().0.iter_mut().zip(words) {
        *bytes = word.load(Relaxed).to_ne_bytes();
    }
    pattern
}

fn spec_of(rule: &Rule, filter: Option<String>) -> RuleSpec {
    RuleSpec {
        filter,
        enable: rule.enable.load(Relaxed) != 0,
        channel: rule.channel.load(Relaxed).checked_sub(1),
        level: rule.level.load(Relaxed).checked_sub(1).and_then(Level::from_number),
        pattern: text(&pattern(&rule.pattern)),
    }
}

/// Writes a rule. `filter` is the value of [`Rule::filter`].
fn store(rule: &Rule, spec: &RuleSpec, filter: u32) {
    rule.filter.store(filter, Relaxed);
    store_all(&rule.pattern, &extra::words_of::<{ PATTERN_LEN / 8 }>(spec.pattern.as_bytes()));
    rule.enable.store(u32::from(spec.enable), Relaxed);
    rule.channel.store(spec.channel.map_or(0, |channel| channel + 1), Relaxed);
    rule.level.store(spec.level.map_or(0, limit), Relaxed);
}

/// Returns the place of each line's filter in the words of a table, and the number of words of all
/// filters. Lines with the same filter share its words.
fn places(lines: &[Line]) -> (Vec<usize>, usize) {
    let (mut places, mut used) = (Vec::with_capacity(lines.len()), 0);
    for (at, line) in lines.iter().enumerate() {
        let same = lines[..at].iter().position(|other| other.filter == line.filter);
        places.push(same.map_or(used, |same| places[same]));
        used += if same.is_none() { line.filter.len() } else { 0 };
    }
    (places, used)
}

/// Refuses rules that do not fit into the tables.
pub(crate) fn check(lines: &[Line]) -> Result<(), Error> {
    if lines.len() > MAX_RULES {
        let remedy = "enable or disable '*' first, which drops the others";
        return Err(Error::Full { what: "rule", limit: MAX_RULES, remedy });
    }
    if places(lines).1 * 8 > FILTERS_LEN {
        let remedy = "enable or disable '*' first, which drops the others, or use shorter filters";
        return Err(Error::Full {
            what: "filter (bytes of all filters)",
            limit: FILTERS_LEN,
            remedy,
        });
    }
    Ok(())
}

/// Writes these rules. The caller holds the lock, or nobody else sees the session yet. If the
/// caller dies in this function, the old rules stay valid.
pub(crate) fn write(tables: Tables<'_>, lines: &[Line]) -> Result<(), Error> {
    check(lines)?;
    let rules = tables.rules;
    let turn = rules.turn.load(Acquire);
    let next = turn.wrapping_add(1);
    // This pairs with the fence in `at_one_moment`: readers of this table, which was current one
    // turn ago, notice the change.
    fence(Release);
    let which = (next & 1) as usize;
    let room = &tables.filters.tables[which];
    for ((rule, line), at) in rules.tables[which].iter().zip(lines).zip(places(lines).0) {
        let filter = if line.filter.is_empty() { 0 } else { at * 8 + 1 };
        store(rule, &line.spec, filter as u32);
        store_all(&room[at..], &line.filter);
    }
    rules.len[which].store(lines.len() as u32, Relaxed);
    rules.filters_turn[which].store(next, Relaxed);
    rules.turn.store(next, Release);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty() -> (Box<Rules>, Box<Filters>) {
        (zeroed(), zeroed())
    }

    fn zeroed<T>() -> Box<T> {
        // SAFETY: the shape is atomics and integers, for which zeroes are a value; the box is large
        // enough and aligned.
        unsafe { Box::<T>::new_zeroed().assume_init() }
    }

    /// Returns the largest number of rules, all of the same pattern and filter.
    fn many(pattern: char) -> Vec<Line> {
        let filter = format!(
            "{} == {:?}",
            String::from(pattern).repeat(8),
            String::from(pattern).repeat(40)
        );
        let rule = RuleSpec::enable(String::from(pattern).repeat(PATTERN_LEN)).with_filter(filter);
        vec![Line::new(&rule).expect("a rule"); if cfg!(miri) { 4 } else { MAX_RULES }]
    }

    #[test]
    fn a_spec_matches_what_its_rule_decides() {
        let memory = empty();
        let tables = Tables { rules: &memory.0, filters: &memory.1 };
        for pattern in ["*", "shop:*", "*:sale", "s?op:[a-s]ale", "shop:sale", "", "shop"] {
            for level in [None, Some(Level::Error), Some(Level::Info), Some(Level::Trace)] {
                let spec = RuleSpec { level, ..RuleSpec::disable(pattern) };
                write(tables, &[Line::new(&spec).expect("a rule")]).expect("room");
                for (provider, name) in
                    [("shop", "sale"), ("shop", "tax"), ("net::tx", "sale"), ("", "")]
                {
                    for number in 1..=5 {
                        let verdict =
                            judge(tables, 0, Named { provider, name, level: number }, |_| ());
                        let is_refused = verdict == Verdict::Refused;
                        assert_eq!(
                            spec.matches(provider, name, number),
                            is_refused,
                            "{spec:?} {provider}:{name}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn readers_see_the_rules_of_one_moment() {
        let memory = empty();
        let rules = Tables { rules: &memory.0, filters: &memory.1 };
        let (first, second) = (many('a'), many('b'));
        write(rules, &first).expect("room");
        let rounds = if cfg!(miri) { 3 } else { 2000 };
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                for _ in 0..rounds {
                    // If the rules changed all the time, none are seen.
                    let seen = lines(rules);
                    assert!(seen.is_empty() || seen == first || seen == second, "{seen:?}");
                }
            });
            // Miri would let the writer run on while the reader reads again and again.
            let writes = if cfg!(miri) { 3 } else { usize::MAX };
            for rule in [&second, &first].into_iter().cycle().take(writes) {
                write(rules, rule).expect("room");
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
        let memory = empty();
        let rules = Tables { rules: &memory.0, filters: &memory.1 };
        let (first, second) = (many('a'), many('b'));
        write(rules, &first).expect("room");
        // This does a part of what a writer does before it publishes.
        for (rule, word) in memory.0.tables[0][..MAX_RULES / 2].iter().zip(&memory.1.tables[0]) {
            store(rule, &second[0].spec, 1);
            word.store(u64::MAX, Relaxed);
        }
        memory.0.len[0].store(7, Relaxed);
        assert_eq!(lines(rules), first);
        write(rules, &second).expect("room");
        assert_eq!(lines(rules), second);
    }

    #[test]
    fn filters_that_do_not_fit_are_refused() {
        let memory = empty();
        let rules = Tables { rules: &memory.0, filters: &memory.1 };
        let long = |text: &str| {
            let filter = format!("a == {:?}", text.repeat(3000));
            Line::new(&RuleSpec::enable("*").with_filter(filter)).expect("a rule")
        };
        let [x, y, z] = ["x", "y", "z"].map(long);
        let error = write(rules, &[x.clone(), y.clone(), z]).expect_err("3 times 6 kB");
        assert!(error.to_string().contains("16384"), "{error}");
        // Equal filters are there once.
        let fitting: Vec<Line> =
            [x, y].into_iter().cycle().take(if cfg!(miri) { 4 } else { MAX_RULES }).collect();
        assert!(write(rules, &fitting).is_ok());
        assert_eq!(lines(rules), fitting, "the rules before stay");
        assert!(Line::new(&RuleSpec::disable("*").with_filter("a == 1")).is_err());
        let error = Line::new(&RuleSpec::enable("*").with_filter("a == ")).expect_err("no operand");
        let why = "filter: byte 5: found the end; expected a name, a number, text in double quotes or `(`; docs/FILTER.md has the expressions";
        assert_eq!(error.to_string(), why, "one line, with the place");
    }
}

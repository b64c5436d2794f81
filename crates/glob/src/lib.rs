//! Globs over the names of events, sessions and instances: `*` stands for any text, `?` for any
//! character, `[a-z]` and `[!a-z]` (or `[^a-z]`) for one of a class and for any other. A bracket
//! without its end stands for itself, and so does one that stands first in a class.
//!
//! ```
//! assert!(lastwords_glob::matches("net:[rt]x*", "net:rx_poll"));
//! assert!(!lastwords_glob::matches("net:[!rt]x", "net:tx"));
//! ```
//!
//! The rules of a session are such globs. The recorder and the readers use this crate, so that both
//! match the same events. Nothing is allocated.
#![no_std]
#![forbid(unsafe_code)]

/// Returns true if each bracket of the glob that opens a class has its end. A bracket without its
/// end stands for itself, which is seldom meant.
#[must_use]
pub fn is_well_formed(glob: &str) -> bool {
    let mut rest = glob.chars();
    while let Some(c) = rest.next() {
        if c == '[' {
            match class(rest.as_str(), 'a') {
                Some((_, after)) => rest = after.chars(),
                None => return false,
            }
        }
    }
    true
}

/// Returns true if `glob` matches all of `name`. The match takes time in proportion to the product
/// of both lengths at worst.
#[must_use]
pub fn matches(glob: &str, name: &str) -> bool {
    matches_chars(glob, name.chars())
}

/// Returns true if the glob matches the whole name or the part after the last colon: the glob
/// `sched_switch` matches `sched:sched_switch`.
#[must_use]
pub fn is_named(glob: &str, name: &str) -> bool {
    matches(glob, name) || name.rsplit_once(':').is_some_and(|(_, last)| matches(glob, last))
}

/// The same for a name that is in parts: `provider.chars().chain([':']).chain(name.chars())`.
#[must_use]
pub fn matches_chars(mut glob: &str, mut name: impl Iterator<Item = char> + Clone) -> bool {
    // The glob after the last star, and the name from which that part was tried last.
    let mut star = None;
    loop {
        if let Some(after) = glob.strip_prefix('*') {
            (glob, star) = (after, Some((after, name.clone())));
            continue;
        }
        let Some(c) = name.next() else { return glob.is_empty() };
        if let Some(rest) = one(glob, c) {
            glob = rest;
            continue;
        }
        // The last star takes one more character.
        let Some((after, from)) = &mut star else { return false };
        from.next();
        (glob, name) = (after, from.clone());
    }
}

/// Matches one character; the rest of the glob if that matches.
fn one(glob: &str, c: char) -> Option<&str> {
    let mut rest = glob.chars();
    let (matches, rest) = match rest.next()? {
        '?' => (true, rest.as_str()),
        // Without a closing bracket the bracket stands for itself.
        '[' => class(rest.as_str(), c).unwrap_or((c == '[', rest.as_str())),
        literal => (literal == c, rest.as_str()),
    };
    matches.then_some(rest)
}

/// Matches a class, which is given without its opening bracket: whether the character is in it, and
/// the glob after its closing bracket.
fn class(body: &str, c: char) -> Option<(bool, &str)> {
    let members = body.strip_prefix(['!', '^']).unwrap_or(body);
    let is_negated = members.len() < body.len();
    let (mut rest, mut found) = (members.chars(), false);
    loop {
        let is_first = rest.as_str().len() == members.len();
        let low = rest.next()?;
        if low == ']' && !is_first {
            return Some((found != is_negated, rest.as_str()));
        }
        let mut range = rest.clone();
        let high = match (range.next(), range.next()) {
            (Some('-'), Some(high)) if high != ']' => {
                rest = range;
                high
            }
            _ => low,
        };
        found |= (low..=high).contains(&c);
    }
}

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

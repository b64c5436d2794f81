//! The environment's settings for every session of this process: the variable `LASTWORDS`. Like `RUST_LOG`, it is for the
//! people who run a program. It is ignored in secure execution (`AT_SECURE`), where the caller cannot be trusted.
//!
//! ```text
//! LASTWORDS  = directive ("," directive)*
//! directive  = level                    events of all targets, of this level and more severe ones
//!            | target ["=" level]       events of a target, with those below it; a glob over `provider:name` where it has a `:`
//!            | "size" "=" bytes         the rings of the first channel take so many bytes at most, all CPUs together
//!            | "persist" "=" policy      when events are written back: "none", "sub-buffer" or "event"
//!            | "retain" "=" number      ended sessions of each name that stay
//!            | "retain_size" "=" bytes  bytes of all ended sessions that stay
//! level      = "off" | "error" | "warn" | "info" | "debug" | "trace"
//! bytes      = number ["K" | "M" | "G"]
//! ```
//!
//! The last directive that matches an event decides. If a directive enables events, events that match no directive are not
//! recorded. The variable is applied after the program's own settings. A wrong directive is ignored, and the session's note
//! reports it.

use lastwords_abi::session::PERSIST_WORDS;
use lastwords_ring::Persist;

use super::rules::{PATTERN_LEN, RuleSpec};
use super::{Builder, Level};
use crate::process::is_secure;

/// Name of the variable.
const NAME: &str = "LASTWORDS";
/// Largest number of directives for events; a session has room for 64 rules.
const MOST_RULES: usize = 32;

/// Applies the environment of this process to a session. Returns the directives that were not understood, for the
/// session's notes.
pub(crate) fn apply(builder: &mut Builder) -> Vec<String> {
    let asked = std::env::var_os(NAME).filter(|_| !is_secure()).unwrap_or_default();
    let asked = asked.to_string_lossy();
    let (mut rules, mut problems) = (Vec::new(), Vec::new());
    for directive in asked.split(',').map(str::trim).filter(|directive| !directive.is_empty()) {
        let mut ignore = |why| problems.push(format!("{NAME}: {directive:?} is ignored: {why}"));
        match follow(builder, directive) {
            Ok(Some(_)) if rules.len() == MOST_RULES => {
                ignore(format!("only {MOST_RULES} directives for events are accepted"));
            }
            Ok(rule) => rules.extend(rule),
            Err(why) => ignore(why),
        }
    }
    if rules.iter().any(|rule| rule.enable) {
        builder.rules.push(RuleSpec::disable("*"));
    }
    builder.rules.extend(rules);
    problems
}

/// Applies a directive. Returns its rule if it is one for events.
fn follow(builder: &mut Builder, directive: &str) -> Result<Option<RuleSpec>, String> {
    let Some((key, value)) = directive.split_once('=').map(|(key, value)| (key.trim(), value.trim())) else {
        return Ok(Some(match level(directive) {
            Some(level) => rule("*".to_owned(), level),
            None => rule(pattern(directive)?, Some(Level::Trace)),
        }));
    };
    match key {
        "size" => builder.size = Some(bytes(value)?),
        "persist" => builder.persist = Some(persist(value)?),
        "retain" => builder.retention.sessions = value.parse().map_err(|_| format!("{value:?} is no number"))?,
        "retain_size" => builder.retention.bytes = bytes(value)?,
        target => {
            let known = level(value);
            let known = known.ok_or_else(|| format!("{value:?} is none of off, error, warn, info, debug, trace"))?;
            return Ok(Some(rule(pattern(target)?, known)));
        }
    }
    Ok(None)
}

/// Makes a rule for events up to a level. Without a level, the events are off.
fn rule(pattern: String, level: Option<Level>) -> RuleSpec {
    // All events have the level `trace` or a more severe one.
    let limit = level.filter(|level| *level != Level::Trace);
    RuleSpec { enable: level.is_some(), level: limit, ..RuleSpec::enable(pattern) }
}

/// Returns the level of a word, if the word is one: `Some(None)` for `off`.
fn level(word: &str) -> Option<Option<Level>> {
    let word = word.to_ascii_lowercase();
    let number = ["off", "error", "warn", "info", "debug", "trace"].iter().position(|known| *known == word)?;
    Some(Level::of(number as u32))
}

/// Returns the glob of a target: a provider with those below it (`shop` includes `shop::db`), or the text itself if it
/// is a glob.
fn pattern(target: &str) -> Result<String, String> {
    let is_glob = target.replace("::", "").contains(':');
    let pattern = if is_glob { target.to_owned() } else { format!("{target}:*") };
    match pattern.len() {
        _ if target.is_empty() => Err("it names no target".to_owned()),
        len if len > PATTERN_LEN => Err(format!("it is longer than {PATTERN_LEN} bytes")),
        _ => Ok(pattern),
    }
}

/// Returns the policy of a word.
fn persist(word: &str) -> Result<Persist, String> {
    let number = PERSIST_WORDS.iter().position(|known| *known == word);
    let number = number.ok_or_else(|| format!("{word:?} is none of {}", PERSIST_WORDS.join(", ")))?;
    Ok(Persist::from_code(number as u32))
}

fn bytes(text: &str) -> Result<u64, String> {
    let in_unit =
        |(letter, shift): (char, u32)| Some((text.strip_suffix([letter, letter.to_ascii_lowercase()])?, shift));
    let (digits, shift) = [('K', 10), ('M', 20), ('G', 30)].into_iter().find_map(in_unit).unwrap_or((text, 0));
    let number: Option<u64> = digits.parse().ok();
    let bytes = number.and_then(|number| number.checked_mul(1 << shift));
    bytes.ok_or_else(|| format!("{text:?} is no number of bytes such as 65536, 64M or 1G"))
}

//! What the environment asks of every session of this process: the variable `LASTWORDS`, for those who run a program, as
//! `RUST_LOG` is. It is not honoured in secure execution (`AT_SECURE`), where the caller is not to be trusted.
//!
//! ```text
//! LASTWORDS  = directive ("," directive)*
//! directive  = level                    events of all targets, of this level and more severe ones
//!            | target ["=" level]       events of a target, with those below it; a glob over `provider:name` where it has a `:`
//!            | "size" "=" bytes         the rings of the first channel take so many bytes at most, all CPUs together
//!            | "retain" "=" number      ended sessions of each name that stay
//!            | "retain_size" "=" bytes  bytes of all ended sessions that stay
//! level      = "off" | "error" | "warn" | "info" | "debug" | "trace"
//! bytes      = number ["K" | "M" | "G"]
//! ```
//!
//! The last directive that matches an event decides. Where one enables events, those that no directive matches are not recorded.
//! The variable comes after what the program asks for itself. A directive that is wrong is passed over, and the session's note
//! says so.

use super::builder::Builder;
use super::config::Level;
use super::rules::RuleSpec;
use crate::process::is_secure;

/// The variable.
const NAME: &str = "LASTWORDS";
/// Most directives for events; a session has room for 64 rules.
const MOST_RULES: usize = 32;
/// Most bytes of a rule's pattern.
const MOST_PATTERN: usize = 112;

/// What is asked for.
#[derive(Default)]
pub(crate) struct Asked {
    rules: Vec<RuleSpec>,
    size: Option<u64>,
    retain: Option<usize>,
    retain_size: Option<u64>,
    /// Directives that were passed over, and why.
    problems: Vec<String>,
}

/// What the environment of this process asks for.
pub(crate) fn asked() -> Asked {
    match std::env::var_os(NAME) {
        Some(text) if !is_secure() => parse(&text.to_string_lossy()),
        _ => Asked::default(),
    }
}

impl Asked {
    /// Asks it of a session; what could not be understood, for its note.
    pub(crate) fn apply(self, builder: &mut Builder) -> String {
        builder.size = self.size.or(builder.size);
        builder.retention.sessions = self.retain.unwrap_or(builder.retention.sessions);
        builder.retention.bytes = self.retain_size.unwrap_or(builder.retention.bytes);
        if self.rules.iter().any(|rule| rule.enable) {
            builder.rules.push(RuleSpec::disable("*"));
        }
        builder.rules.extend(self.rules);
        self.problems.join("; ")
    }

    fn add(&mut self, directive: &str) -> Result<(), String> {
        let (key, value) = match directive.split_once('=') {
            Some((key, value)) => (key.trim(), Some(value.trim())),
            None => (directive, None),
        };
        match (key, value) {
            ("size", Some(value)) => self.size = Some(bytes(value)?),
            ("retain", Some(value)) => {
                self.retain = Some(value.parse().map_err(|_| format!("{value:?} is no number"))?);
            }
            ("retain_size", Some(value)) => self.retain_size = Some(bytes(value)?),
            (target, None) => match level(target) {
                Some(level) => self.rules.push(rule("*".to_owned(), level)),
                None => self.rules.push(rule(pattern(target)?, Some(Level::Trace))),
            },
            (target, Some(value)) => {
                let known = level(value);
                let known =
                    known.ok_or_else(|| format!("{value:?} is none of off, error, warn, info, debug, trace"))?;
                self.rules.push(rule(pattern(target)?, known));
            }
        }
        if self.rules.len() > MOST_RULES {
            self.rules.pop();
            return Err(format!("only {MOST_RULES} directives for events are taken"));
        }
        Ok(())
    }
}

fn parse(text: &str) -> Asked {
    let mut asked = Asked::default();
    for directive in text.split(',').map(str::trim).filter(|directive| !directive.is_empty()) {
        if let Err(why) = asked.add(directive) {
            asked.problems.push(format!("{NAME}: {directive:?} is passed over: {why}"));
        }
    }
    asked
}

/// A rule for events up to a level; none: they are off.
fn rule(pattern: String, level: Option<Level>) -> RuleSpec {
    match level {
        None => RuleSpec::disable(pattern),
        Some(Level::Trace) => RuleSpec::enable(pattern),
        Some(level) => RuleSpec::enable(pattern).up_to(level),
    }
}

/// The level of a word, where it is one: `Some(None)` for `off`.
fn level(word: &str) -> Option<Option<Level>> {
    let word = word.to_ascii_lowercase();
    let number = ["off", "error", "warn", "info", "debug", "trace"].iter().position(|known| *known == word)?;
    Some(Level::of(number as u32))
}

/// The glob of a target: of a provider, with those below it (`shop` has `shop::db`), or as it stands.
fn pattern(target: &str) -> Result<String, String> {
    let is_glob = target.replace("::", "").contains(':');
    let pattern = if is_glob { target.to_owned() } else { format!("{target}:*") };
    match pattern.len() {
        _ if target.is_empty() => Err("it names no target".to_owned()),
        len if len > MOST_PATTERN => Err(format!("it is longer than {MOST_PATTERN} bytes")),
        _ => Ok(pattern),
    }
}

fn bytes(text: &str) -> Result<u64, String> {
    let in_unit =
        |(letter, shift): (char, u32)| Some((text.strip_suffix([letter, letter.to_ascii_lowercase()])?, shift));
    let (digits, shift) = [('K', 10), ('M', 20), ('G', 30)].into_iter().find_map(in_unit).unwrap_or((text, 0));
    let number: Option<u64> = digits.parse().ok();
    let bytes = number.and_then(|number| number.checked_mul(1 << shift));
    bytes.ok_or_else(|| format!("{text:?} is no number of bytes such as 65536, 64M or 1G"))
}

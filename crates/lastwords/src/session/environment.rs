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

/// The variable.
const NAME: &str = "LASTWORDS";
/// Most directives for events; a session has room for 64 rules.
const MOST_RULES: usize = 32;
/// Most bytes of a rule's pattern.
const MOST_PATTERN: usize = 112;

/// What is asked for.
#[derive(Debug, Default)]
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
    // SAFETY: no memory is involved.
    let is_secure = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    match std::env::var_os(NAME) {
        Some(text) if !is_secure => parse(&text.to_string_lossy()),
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
    Some(match word.to_ascii_lowercase().as_str() {
        "off" => None,
        "error" => Some(Level::Error),
        "warn" => Some(Level::Warn),
        "info" => Some(Level::Info),
        "debug" => Some(Level::Debug),
        "trace" => Some(Level::Trace),
        _ => return None,
    })
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
    let wrong = || format!("{text:?} is no number of bytes such as 65536, 64M or 1G");
    let unit = text.bytes().last().map_or(0, |last| match last.to_ascii_uppercase() {
        b'K' => 10,
        b'M' => 20,
        b'G' => 30,
        _ => 0,
    });
    let digits = if unit == 0 { text } else { &text[..text.len() - 1] };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(1 << unit).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_directive() {
        let asked = parse("shop=debug, net::tx ,shop:order=off,WARN,size=64M,retain=2,retain_size=3G,");
        let rules = [
            RuleSpec::enable("shop:*").up_to(Level::Debug),
            RuleSpec::enable("net::tx:*"),
            RuleSpec::disable("shop:order"),
            RuleSpec::enable("*").up_to(Level::Warn),
        ];
        assert_eq!(asked.rules, rules);
        assert_eq!((asked.size, asked.retain, asked.retain_size), (Some(64 << 20), Some(2), Some(3 << 30)));
        assert!(asked.problems.is_empty(), "{:?}", asked.problems);
    }

    #[test]
    fn what_is_wrong_is_told_and_the_rest_is_taken() {
        for wrong in ["shop=loud", "size=big", "size=99999999999G", "size=G", "retain=-1", "=info", "retain_size="] {
            let asked = parse(&format!("{wrong},net=info"));
            assert_eq!(asked.rules, [RuleSpec::enable("net:*").up_to(Level::Info)], "{wrong}");
            assert!(asked.problems.len() == 1 && asked.problems[0].contains(wrong), "{:?}", asked.problems);
        }
        let many = parse(&vec!["a=info"; 40].join(","));
        assert_eq!((many.rules.len(), many.problems.len()), (MOST_RULES, 8));
        assert_eq!(parse(&"x".repeat(200)).problems.len(), 1);
    }
}

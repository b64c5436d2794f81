//! The environment's settings for every session of this process: the variable `LASTWORDS`. Like
//! `RUST_LOG`, it is for the people who run a program. `LASTWORDS_SECRET` and `LASTWORDS_HASHED` have
//! globs over the names of fields whose values are hidden, separated by commas. All of them are
//! ignored in secure execution (`AT_SECURE`), where the caller cannot be trusted.
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
//! The last directive that matches an event decides. If a directive enables events, events that
//! match no directive are not recorded. The variable is applied after the program's own settings. A
//! wrong directive is ignored. That is said on stderr, once in each process, in the session's note,
//! and by `lastwords list` and `report`, which also say that no event was enabled. Words that
//! switch other programs' settings on or off (`1`, `true`, `all`) and paths are wrong directives,
//! not targets.

use std::sync::Once;
use std::sync::atomic::Ordering::Relaxed;

use lastwords_abi::registry::{ENV_ASKED, ENV_IGNORED};
use lastwords_abi::session::PERSIST_WORDS;
use lastwords_ring::Persist;

use super::hidden::Way;
use super::registry::Registry;
use super::rules::{PATTERN_LEN, RuleSpec};
use super::session_region::SessionRegion;
use super::{Builder, Level};
use crate::process::{is_secure, say};
use crate::session::dirs::Folder;
use crate::session::regions;

/// Name of the variable.
const NAME: &str = "LASTWORDS";
/// The variables with globs over the names of fields, and how the values of these are hidden.
const HIDDEN: [(&str, Way); 2] =
    [("LASTWORDS_SECRET", Way::Secret), ("LASTWORDS_HASHED", Way::Hashed)];
/// Largest number of directives for events; a session has room for 64 rules.
const MOST_RULES: usize = 32;

/// Words that look like a switch. Nobody who writes one of them means a target of this name.
const SWITCHES: [&str; 10] = ["1", "on", "true", "yes", "all", "0", "no", "none", "false", "never"];
/// Those of [`SWITCHES`] that switch on.
const ON: usize = 5;

/// Says on stderr, once in this process, which directives are ignored.
fn complain(problems: &[String]) {
    static ONCE: Once = Once::new();
    if !problems.is_empty() {
        ONCE.call_once(|| say(format_args!("{}", problems.join("; "))));
    }
}

/// Applies the environment of this process to a session. Returns the directives that were not
/// understood, for the session's notes.
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
    if !rules.is_empty() {
        builder.env.push((ENV_ASKED.to_owned(), asked.to_string()));
    }
    if !problems.is_empty() {
        builder.env.push((ENV_IGNORED.to_owned(), problems.join("; ")));
    }
    builder.rules.extend(rules);
    hide(builder);
    complain(&problems);
    problems
}

/// Adds the globs of the variables [`HIDDEN`].
fn hide(builder: &mut Builder) {
    for (name, way) in HIDDEN {
        let globs = std::env::var_os(name).filter(|_| !is_secure()).unwrap_or_default();
        let globs = globs.to_string_lossy();
        let globs = globs.split(',').map(str::trim).filter(|glob| !glob.is_empty());
        builder.hidden.extend(globs.map(|glob| (glob.to_owned(), way)));
    }
}

/// Applies a directive. Returns its rule if it is one for events.
fn follow(builder: &mut Builder, directive: &str) -> Result<Option<RuleSpec>, String> {
    let Some((key, value)) =
        directive.split_once('=').map(|(key, value)| (key.trim(), value.trim()))
    else {
        return Ok(Some(match level(directive) {
            Some(level) => rule("*".to_owned(), level),
            None => rule(pattern(directive)?, Some(Level::Trace)),
        }));
    };
    match key {
        "size" => builder.size = Some(bytes(value)?),
        "persist" => builder.persist = Some(persist(value)?),
        "retain" => {
            builder.retention.sessions =
                value.parse().map_err(|_| format!("{value:?} is no number"))?
        }
        "retain_size" => builder.retention.bytes = bytes(value)?,
        target => {
            let known = level(value);
            let known = known.ok_or_else(|| {
                format!("{value:?} is none of off, error, warn, info, debug, trace")
            })?;
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
    let number = ["off", "error", "warn", "info", "debug", "trace"]
        .iter()
        .position(|known| *known == word)?;
    Some(Level::from_number(number as u32))
}

/// Returns the glob of a target: a provider with those below it (`shop` includes `shop::db`), or
/// the text itself if it is a glob.
fn pattern(target: &str) -> Result<String, String> {
    let switch = SWITCHES.iter().position(|word| target.eq_ignore_ascii_case(word));
    if let Some(switch) = switch {
        let instead =
            if switch < ON { "`trace` enables all events" } else { "`off` disables all events" };
        return Err(format!("it is no target and no level; {instead}"));
    }
    if ["/", "./", "../", "~"].iter().any(|begin| target.starts_with(begin)) {
        return Err(
            "it is a path, not a target; LASTWORDS_DIR chooses the folder of sessions".to_owned()
        );
    }
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
    let number =
        number.ok_or_else(|| format!("{word:?} is none of {}", PERSIST_WORDS.join(", ")))?;
    Ok(Persist::from_code(number as u32))
}

fn bytes(text: &str) -> Result<u64, String> {
    let in_unit = |(letter, shift): (char, u32)| {
        Some((text.strip_suffix([letter, letter.to_ascii_lowercase()])?, shift))
    };
    let (digits, shift) =
        [('K', 10), ('M', 20), ('G', 30)].into_iter().find_map(in_unit).unwrap_or((text, 0));
    let number: Option<u64> = digits.parse().ok();
    let bytes = number.and_then(|number| number.checked_mul(1 << shift));
    bytes.ok_or_else(|| format!("{text:?} is no number of bytes such as 65536, 64M or 1G"))
}

/// Returns what a session has to say about the environment of the process that made it: the
/// directives that were ignored, and that no event was enabled.
pub fn notes(folder: &Folder) -> Vec<String> {
    let read = |view: &SessionRegion, registry: &Registry| {
        let property = |wanted: &str| {
            registry.properties().find(|(key, _)| key == wanted).map(|(_, value)| value)
        };
        let is_empty = view.channels().all(|(_, channel)| channel.next_id.load(Relaxed) == 0);
        let asked = property(ENV_ASKED).filter(|_| is_empty);
        let left_none = asked.map(|asked| format!("{ENV_ASKED}={asked} left no event enabled"));
        property(ENV_IGNORED).into_iter().chain(left_none).collect()
    };
    regions::look_with_registry(folder, read).unwrap_or_default()
}

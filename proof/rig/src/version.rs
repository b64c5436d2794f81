//! The versions of programs: which is here, and whether it is new enough.

use std::fmt;
use std::process::{Command, Stdio};

/// Major, minor and patch.
pub type Version = (u32, u32, u32);

/// Found, with its version, or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// It is here, with this version.
    Found(String),
    /// It is here, but older than it may be.
    TooOld {
        /// The version as it was printed.
        found: String,
        /// The least version.
        least: Version,
    },
    /// It is not here, or it fails.
    Missing,
}

impl State {
    /// It is here and new enough.
    pub fn is_found(&self) -> bool {
        matches!(self, Self::Found(_))
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Found(version) => version.clone(),
            Self::TooOld { found, least: (a, b, c) } => {
                format!("TOO OLD: {found}, expected {a}.{b}.{c}")
            }
            Self::Missing => "MISSING".into(),
        };
        f.pad(&text)
    }
}

/// Runs a line of a shell, and judges the version that it prints.
pub fn state(probe: &str, least: Option<Version>) -> State {
    match Command::new("sh").args(["-c", probe]).stdin(Stdio::null()).output() {
        Ok(output) if output.status.success() => {
            judge(&String::from_utf8_lossy(&output.stdout), least)
        }
        _ => State::Missing,
    }
}

fn judge(printed: &str, least: Option<Version>) -> State {
    let line = printed.lines().map(str::trim).find(|l| !l.is_empty()).unwrap_or_default();
    let (found, version) = match version(line) {
        Some((word, version)) => (word.to_string(), Some(version)),
        None => ("(it tells no version)".to_string(), None),
    };
    match least {
        Some(least) if version.is_none_or(|v| v < least) => State::TooOld { found, least },
        _ => State::Found(found),
    }
}

/// The first `a.b` or `a.b.c` in a line.
fn version(line: &str) -> Option<(&str, Version)> {
    line.split(|c: char| !(c.is_ascii_digit() || c == '.')).find_map(|word| {
        let word = word.trim_end_matches('.');
        let mut numbers = word.split('.').map(str::parse);
        let (a, b) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
        Some((word, (a, b, numbers.next().and_then(Result::ok).unwrap_or(0))))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_as_tools_print_them() {
        assert_eq!(version("Babeltrace 2.0.4 \"Amqui\""), Some(("2.0.4", (2, 0, 4))));
        assert_eq!(
            version("*** Zstandard CLI (64-bit) v1.5.4, by Yann Collet ***"),
            Some(("1.5.4", (1, 5, 4)))
        );
        assert_eq!(version("GNU gdb (Debian 13.1-3) 13.1"), Some(("13.1", (13, 1, 0))));
        assert_eq!(version("none"), None);
    }

    #[test]
    fn an_old_version_is_not_enough() {
        let least = Some((2, 1, 0));
        assert!(!judge("Babeltrace 2.0.4", least).is_found());
        assert!(judge("Babeltrace 2.1.1", least).is_found());
        assert!(!judge("Babeltrace", least).is_found());
        assert!(judge("", None).is_found());
    }

    #[test]
    fn what_does_not_exist_or_fails_is_missing() {
        assert_eq!(state("no-such-program-here --version", None), State::Missing);
        assert_eq!(state("false", None), State::Missing);
    }
}

//! How a run ends: exit status, and what stands on stderr.

use crate::say;
use std::process::ExitCode;

/// How a verb ended that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Done: 0.
    Done,
    /// It looked, and what it looked for is not so, or part of what was named cannot be had: 1. What there is to say was said.
    Negative,
    /// Recovered with losses, and `--strict`: 3.
    Losses,
}

/// The exit status of a run; prints the error, with its causes, on stderr.
pub(crate) fn code(result: anyhow::Result<Outcome>) -> ExitCode {
    let told = say::failed().map(|error| anyhow::anyhow!("cannot write to stdout: {error}"));
    let status = match (&result, &told) {
        (Err(_), _) | (Ok(Outcome::Negative), _) | (Ok(Outcome::Done), Some(_)) => 1,
        (Ok(Outcome::Done), None) => 0,
        (Ok(Outcome::Losses), _) => 3,
    };
    result.err().into_iter().chain(told).for_each(|error| say::error(chain(&error)));
    ExitCode::from(status)
}

/// An error and its causes, those left out that the one before says already.
pub(crate) fn chain(error: &anyhow::Error) -> String {
    let mut text = String::new();
    let mut before = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause.clone();
        } else if !before.contains(&cause) {
            text = format!("{text}: {cause}");
        }
        before = cause;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn a_cause_is_said_once() {
        let error = std::fs::File::open("/no/such").context("/no/such: cannot open").unwrap_err();
        assert_eq!(chain(&error), "/no/such: cannot open: No such file or directory (os error 2)");
        let doubled = error.context("x: No such file or directory (os error 2)");
        assert!(chain(&doubled).starts_with("x: No such file or directory (os error 2): /no/such: cannot open: No"));
        let io = std::io::Error::from_raw_os_error(2);
        let text = format!("x: {io}");
        assert_eq!(chain(&anyhow::Error::from(io).context(text)), "x: No such file or directory (os error 2)");
    }
}

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

/// An error and its causes, each thing once: what a cause says itself is left out before it, what was said is left out behind.
pub(crate) fn chain(error: &anyhow::Error) -> String {
    let mut parts: Vec<String> = Vec::new();
    for cause in error.chain().map(ToString::to_string) {
        match parts.last_mut() {
            Some(before) if before.contains(&cause) => {}
            Some(before) if cause.starts_with(&format!("{before}: ")) => *before = cause,
            _ => parts.push(cause),
        }
    }
    parts.join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn each_thing_is_said_once() {
        let of = |causes: &[&'static str]| {
            let mut causes = causes.iter().rev();
            let first = anyhow::anyhow!(*causes.next().unwrap());
            chain(&causes.fold(first, |error, context| Err::<(), _>(error).context(*context).unwrap_err()))
        };
        assert_eq!(of(&["x: cannot open", "not there (2)"]), "x: cannot open: not there (2)");
        assert_eq!(of(&["x: cannot open: not there (2)", "not there (2)"]), "x: cannot open: not there (2)");
        assert_eq!(of(&["x", "x: not there (2)", "not there (2)"]), "x: not there (2)");
        assert_eq!(of(&["x", "y: not there (2)"]), "x: y: not there (2)");
    }
}

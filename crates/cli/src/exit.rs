//! How a run ends: exit status, and what stands on stderr.

use crate::say;
use lastwords_open::{Losses, Severity, chain};
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

/// From what the exit status of a verb that reads traces follows.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Facts {
    /// `--strict`.
    pub(crate) strict: bool,
    /// Sum of the losses in the accounts of the traces.
    pub(crate) losses: Losses,
    /// The worst of what could not be had.
    pub(crate) worst_failure: Option<Severity>,
    /// Something could not be read or written, and was told of.
    pub(crate) failed: bool,
    /// No event was left by what was selected.
    pub(crate) nothing: bool,
}

impl Facts {
    /// How the verb ends.
    pub(crate) fn outcome(self) -> Outcome {
        let losses = self.losses.any || self.worst_failure >= Some(Severity::Loss);
        match self.failed || self.nothing || self.losses.undescribed || self.worst_failure == Some(Severity::Error) {
            _ if self.strict && losses => Outcome::Losses,
            true => Outcome::Negative,
            false => Outcome::Done,
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn a_loss_is_3_only_where_it_is_asked_for() {
        let lost = |any| Losses { any, ..Losses::default() };
        let of = |strict, any, worst_failure| {
            Facts { strict, losses: lost(any), worst_failure, ..Facts::default() }.outcome()
        };
        assert_eq!([of(false, true, None), of(true, false, None)], [Outcome::Done; 2]);
        assert_eq!([of(true, true, None), of(true, false, Some(Severity::Loss))], [Outcome::Losses; 2]);
        assert_eq!([of(false, false, Some(Severity::Note)), of(false, true, Some(Severity::Loss))], [Outcome::Done; 2]);
        assert_eq!(of(false, true, Some(Severity::Error)), Outcome::Negative);
        assert_eq!(Facts { nothing: true, ..Facts::default() }.outcome(), Outcome::Negative);
    }

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

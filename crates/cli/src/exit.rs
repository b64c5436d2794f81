//! Determines the exit status of a run, and prints its errors on stderr.

use crate::say;
use lastwords_open::{Losses, Severity};
use std::process::ExitCode;

/// The result of a verb that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The verb is done: status 0.
    Done,
    /// The verb did not find what it looked for, or an input could not be read in part: status 1.
    /// The reasons were printed.
    Negative,
    /// Events were lost, and `--strict` was given: status 3.
    Losses,
    /// A command that was run has failed with this status, which becomes that of the run.
    Command(u8),
}

/// The facts that determine the exit status of a verb that reads traces.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Facts {
    /// `--strict` was given.
    pub(crate) strict: bool,
    /// The sum of the losses in the accounts of the traces.
    pub(crate) losses: Losses,
    /// The worst severity of the inputs that could not be read.
    pub(crate) worst_failure: Option<Severity>,
    /// Something could not be read or written, and this was reported.
    pub(crate) failed: bool,
    /// The selection left no event.
    pub(crate) nothing: bool,
}

impl Facts {
    /// Returns the result of the verb.
    pub(crate) fn outcome(self) -> Outcome {
        let losses = self.losses.any || self.worst_failure >= Some(Severity::Loss);
        match self.failed
            || self.nothing
            || self.losses.undescribed
            || self.worst_failure == Some(Severity::Error)
        {
            _ if self.strict && losses => Outcome::Losses,
            true => Outcome::Negative,
            false => Outcome::Done,
        }
    }
}

/// Returns the exit status of a run, and prints the error with its causes on stderr.
pub(crate) fn code(result: anyhow::Result<Outcome>) -> ExitCode {
    let stdout_error =
        say::failed().map(|error| anyhow::anyhow!("cannot write to stdout: {error}"));
    let status = match (&result, &stdout_error) {
        (Err(_), _) | (Ok(Outcome::Negative), _) | (Ok(Outcome::Done), Some(_)) => 1,
        (Ok(Outcome::Done), None) => 0,
        (Ok(Outcome::Losses), _) => 3,
        (Ok(Outcome::Command(status)), _) => *status,
    };
    result.err().into_iter().chain(stdout_error).for_each(|error| say::failure_of(&error));
    ExitCode::from(status)
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;
    use lastwords_open::chain;

    #[test]
    fn a_loss_is_3_only_where_it_is_asked_for() {
        let lost = |any| Losses { any, ..Losses::default() };
        let of = |strict, any, worst_failure| {
            Facts { strict, losses: lost(any), worst_failure, ..Facts::default() }.outcome()
        };
        assert_eq!([of(false, true, None), of(true, false, None)], [Outcome::Done; 2]);
        assert_eq!(
            [of(true, true, None), of(true, false, Some(Severity::Loss))],
            [Outcome::Losses; 2]
        );
        assert_eq!(
            [of(false, false, Some(Severity::Note)), of(false, true, Some(Severity::Loss))],
            [Outcome::Done; 2]
        );
        assert_eq!(of(false, true, Some(Severity::Error)), Outcome::Negative);
        assert_eq!(Facts { nothing: true, ..Facts::default() }.outcome(), Outcome::Negative);
    }

    #[test]
    fn each_thing_is_said_once() {
        let of =
            |causes: &[&'static str]| {
                let mut causes = causes.iter().rev();
                let first = anyhow::anyhow!(*causes.next().unwrap());
                chain(&causes.fold(first, |error, context| {
                    Err::<(), _>(error).context(*context).unwrap_err()
                }))
            };
        assert_eq!(of(&["x: cannot open", "not there (2)"]), "x: cannot open: not there (2)");
        assert_eq!(
            of(&["x: cannot open: not there (2)", "not there (2)"]),
            "x: cannot open: not there (2)"
        );
        assert_eq!(of(&["x", "x: not there (2)", "not there (2)"]), "x: not there (2)");
        assert_eq!(of(&["x", "y: not there (2)"]), "x: y: not there (2)");
    }
}

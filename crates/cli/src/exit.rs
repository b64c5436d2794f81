//! How a run ends: exit status, and what stands on stderr.

use crate::paint;
use std::io;
use std::process::ExitCode;

/// How a verb ended that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Done: 0.
    Done,
    /// It looked, and what it looked for is not so: 1, without an error message of its own.
    Negative,
    /// Recovered with losses, and `--strict`: 3.
    Losses,
}

/// The exit status of a run; prints the error, with its causes, on stderr.
pub(crate) fn code(result: anyhow::Result<Outcome>) -> ExitCode {
    match result {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::Negative) => ExitCode::from(1),
        Ok(Outcome::Losses) => ExitCode::from(3),
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{} {error:#}", paint::error("error:"));
            ExitCode::from(1)
        }
    }
}

/// The reader of our output went away (`report | head`): no reason to complain.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_pipe_is_no_error() {
        let closed = anyhow::Error::from(io::Error::from(io::ErrorKind::BrokenPipe)).context("cannot write");
        assert!(is_closed_pipe(&closed));
        assert!(!is_closed_pipe(&anyhow::anyhow!("other")));
    }
}

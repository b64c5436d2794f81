//! `lastwords clear`: what was recorded until now is passed over by readers.

use crate::control;
use crate::exit::Outcome;

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The session's name or folder; where there is only one that lives, it need not be named
    #[arg(value_name = "SESSION")]
    session: Option<String>,
}

/// Clears.
pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    control::open(args.session.as_deref())?.clear()?;
    Ok(Outcome::Done)
}

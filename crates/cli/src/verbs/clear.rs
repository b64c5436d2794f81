//! Implements `lastwords clear`: readers skip what was recorded until now.

use crate::control::SessionChoice;
use crate::exit::Outcome;

/// The arguments of `clear`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    session: SessionChoice,
}

/// Clears the session.
pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    args.session.open()?.clear()?;
    Ok(Outcome::Done)
}

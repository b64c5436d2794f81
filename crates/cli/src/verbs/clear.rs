//! `lastwords clear`: what was recorded until now is passed over by readers.

use crate::control::Named;
use crate::exit::Outcome;

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    session: Named,
}

/// Clears.
pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    args.session.open()?.clear()?;
    Ok(Outcome::Done)
}

//! Implements `lastwords clear`: readers skip what was recorded until now.

use crate::control::SessionChoice;
use crate::exit::Outcome;
use anyhow::bail;

/// The arguments of `clear`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    session: SessionChoice,

    /// Also clear a session in which no process records any more
    ///
    /// Its last events may be all that is left of a crash, and nothing brings them back.
    #[arg(short, long)]
    force: bool,
}

/// Clears the session.
pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let session = args.session.open()?;
    let summary = session.summary();
    if !args.force && !lastwords_live::is_live_summary(&summary) {
        bail!(
            "{}: the session has ended, and its last events are still in it; --force clears them",
            summary.folder.display()
        );
    }
    session.clear()?;
    Ok(Outcome::Done)
}

//! Implements `lastwords destroy`: ends sessions, and removes their folders with all events.

use crate::control;
use crate::exit::Outcome;
use crate::say;
use anyhow::{Context, bail};
use lastwords_control::{self, State, Summary};
use std::path::PathBuf;

/// The arguments of `destroy`.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "lastwords destroy [OPTIONS] <SESSION>...\n       lastwords destroy [OPTIONS] --left-over"
)]
pub(crate) struct Args {
    /// Names or folders of sessions
    #[arg(value_name = "SESSION", required_unless_present_any = ["left_over", "named"])]
    sessions: Vec<String>,

    /// The name or folder of a session; may be repeated
    #[arg(short = 's', long = "session", value_name = "SESSION", conflicts_with = "sessions")]
    named: Vec<String>,

    /// All sessions that have ended
    ///
    /// Folders whose memory was lost with its process are removed too.
    #[arg(long, conflicts_with_all = ["sessions", "named"])]
    left_over: bool,

    /// Also end and remove sessions that still record
    #[arg(short, long)]
    force: bool,
}

/// Destroys the sessions.
pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let folders = if args.left_over { left_over()? } else { named(args)? };
    for folder in &folders {
        lastwords_control::destroy(folder).with_context(|| folder.display().to_string())?;
        say::line(folder.display());
    }
    Ok(Outcome::Done)
}

fn left_over() -> anyhow::Result<Vec<PathBuf>> {
    // Nobody records in a saved snapshot or in what was received.
    let is_over = |s: &Summary| {
        s.details.as_ref().is_ok_and(|d| {
            d.unseen_end.is_some() || matches!(d.state, State::LeftOver | State::Finished)
        })
    };
    Ok(lastwords_control::list(None)?
        .into_iter()
        .filter(|s| is_over(s) || s.gone_with.is_some())
        .map(|s| s.folder)
        .collect())
}

fn named(args: &Args) -> anyhow::Result<Vec<PathBuf>> {
    let folders: Vec<PathBuf> = args
        .sessions
        .iter()
        .chain(&args.named)
        .map(|word| control::folder(word))
        .collect::<Result<_, _>>()?;
    if let Some(live) = folders.iter().find(|folder| !args.force && lastwords_live::is_live(folder))
    {
        bail!("{}: a process still records in it; --force ends it", live.display());
    }
    Ok(folders)
}

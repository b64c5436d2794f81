//! Implements `kernel extract`: saves what an instance has as a trace.dat file.

use super::hist;
use super::staying::Which;
use crate::exit::Outcome;
use crate::say;
use crate::verbs::record;
use clap::ValueHint;
use std::path::PathBuf;

/// The arguments of `kernel extract`.
#[derive(Debug, clap::Args)]
#[command(
    after_long_help = "The events leave the rings. Recording is switched off; `kernel restart` switches it on again. Histograms are saved in \
FILE.hist, and go on counting. If `extract` is killed, the same command goes on where it was."
)]
pub(super) struct Args {
    #[command(flatten)]
    which: Which,

    /// The file to write
    #[arg(short, long, value_name = "FILE", default_value = "trace.dat", value_hint = ValueHint::FilePath)]
    output: PathBuf,

    /// Replace an existing file
    #[arg(long)]
    force: bool,

    /// Exit with status 3 if events were lost
    #[arg(long)]
    strict: bool,
}

/// Saves what the instance has.
pub(super) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let mut staying = args.which.one()?;
    let (saved, was_on) = staying.extract(&args.output, args.force)?;
    record::tell(&saved);
    saved.buffers.iter().for_each(record::tell);
    if was_on {
        say::note("recording is switched off; `lastwords kernel restart` switches it on again");
    }
    let dropped = saved.histograms.as_deref().map(hist::tell).transpose()? == Some(true);
    let is_lost = dropped || saved.all().any(record::has_losses);
    Ok(if args.strict && is_lost { Outcome::Losses } else { Outcome::Done })
}

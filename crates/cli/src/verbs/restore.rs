//! Implements `restore`: cleans up after a `record` that was killed.

use crate::exit::Outcome;
use crate::say;
use crate::verbs::{kernel, record};
use std::path::PathBuf;

/// The arguments of `restore`.
#[derive(Debug, clap::Args)]
#[command(
    after_long_help = "A killed `lastwords record` leaves three things: its instance of the kernel's tracer, which goes on recording; the \
probes that it defined; and a journal of both in the folder of the user's sessions. `restore` saves the trace under the name that `record` \
was given, and removes the rest. It does nothing if no `record` was killed."
)]
pub(crate) struct Args {
    /// Remove the traces of killed recorders without saving them
    #[arg(long)]
    discard: bool,
}

/// Restores the machine's tracing, and prints what was done.
pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let mut folders: Vec<PathBuf> = lastwords_control::dirs::candidates();
    folders.dedup();
    let mut failed = false;
    for folder in folders {
        for restored in lastwords_tracefs::restore(&folder, args.discard)? {
            for saved in restored.saved.iter().chain(&restored.snapshot) {
                record::tell(saved);
                saved.buffers.iter().for_each(record::tell);
                say::line(format_args!(
                    "instance {}: saved {}",
                    restored.instance,
                    saved.path.display()
                ));
            }
            if let Some(path) = &restored.histograms {
                kernel::hist::tell(path)?;
                say::line(format_args!("instance {}: saved {}", restored.instance, path.display()));
            }
            for done in &restored.done {
                say::line(format_args!("instance {}: {done}", restored.instance));
            }
            failed |= !restored.errors.is_empty();
            restored.errors.iter().for_each(say::error);
        }
    }
    Ok(if failed { Outcome::Negative } else { Outcome::Done })
}

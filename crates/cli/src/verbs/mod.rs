//! The verbs, one module each.

mod completions;
mod doctor;
mod man;

use crate::exit::Outcome;
use clap::Subcommand;

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Can this machine keep its last words? What is missing, and the line that mends it
    Doctor(doctor::Args),
    /// Print a shell's completions
    Completions(completions::Args),
    /// Write the manual pages, one a verb, into a folder
    Man(man::Args),
}

/// Does it.
pub(crate) fn run(verb: Verb) -> anyhow::Result<Outcome> {
    match verb {
        Verb::Doctor(args) => doctor::run(&args),
        Verb::Completions(args) => completions::run(&args),
        Verb::Man(args) => man::run(&args),
    }
}

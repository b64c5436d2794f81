//! Implements `bundle`: saves the description of a kernel's events.

use crate::exit::Outcome;
use crate::say;
use crate::table::plain;
use clap::Subcommand;
use lastwords_open::Bundle;
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Save formats, symbols, modules and names of tasks of the running kernel
    Save {
        /// The bundle to write; it must not exist
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
    },
    /// Make a bundle from files that were copied from a machine
    ///
    /// They are in a folder with events/, kallsyms, modules and others.
    Pack {
        /// The folder with the files
        tree: PathBuf,
        /// The bundle to write; it must not exist
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
    },
}

/// Saves or packs a bundle, and prints a note for each missing file.
///
/// # Errors
/// The files cannot be read, or the bundle cannot be written.
pub(crate) fn run(verb: &Verb) -> anyhow::Result<Outcome> {
    let (bundle, output) = match verb {
        Verb::Save { output } => (Bundle::of_running_kernel()?, output),
        Verb::Pack { tree, output } => (Bundle::of_tree(tree)?, output),
    };
    bundle.write(output)?;
    for why in &bundle.missing {
        say::note(format_args!("not in the bundle: {}", plain(why)));
    }
    Ok(Outcome::Done)
}

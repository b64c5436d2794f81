//! `bundle`: keeps what describes the events of a kernel.

use crate::exit::Outcome;
use crate::say;
use crate::table::plain;
use clap::Subcommand;
use lastwords_open::Bundle;
use std::path::PathBuf;

/// Arguments of `bundle`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Save formats, symbols, modules and names of tasks of the running kernel
    Save {
        /// The file, which must not be there
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
    },
    /// Make a bundle of files that were copied from a machine: a folder with events/, kallsyms, modules and others
    Pack {
        /// The folder
        tree: PathBuf,
        /// The file, which must not be there
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
    },
}

/// Does it.
///
/// # Errors
/// The files cannot be read, or the bundle cannot be written.
pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let (bundle, output) = match &args.what {
        What::Save { output } => (Bundle::of_running_kernel()?, output),
        What::Pack { tree, output } => (Bundle::of_tree(tree)?, output),
    };
    bundle.write(output)?;
    for why in &bundle.missing {
        say::note(format_args!("not in the bundle: {}", plain(why)));
    }
    Ok(Outcome::Done)
}

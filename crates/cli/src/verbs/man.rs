//! Implements `lastwords man`: writes manual pages from the description of the command line.

use crate::exit::Outcome;
use crate::say;
use anyhow::Context;
use std::path::{Path, PathBuf};

/// The arguments of `man`.
#[derive(Debug, clap::Args)]
#[command(after_help = "To read one: man -l DIR/lastwords-recover.1")]
pub(crate) struct Args {
    /// The folder for the pages; it is made if it is missing
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
}

/// Writes the pages.
pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let folder = &args.output;
    std::fs::create_dir_all(folder).with_context(|| format!("{}: cannot create the folder", folder.display()))?;
    let mut command = crate::args::command();
    command.build();
    let pages = pages(&command, folder)?;
    say::line(format_args!("{pages} pages in {}", folder.display()));
    Ok(Outcome::Done)
}

/// Writes the page of a command and those of its subcommands. Returns the number of pages.
fn pages(command: &clap::Command, folder: &Path) -> anyhow::Result<usize> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name());
    let path = folder.join(format!("{name}.1"));
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone()).render(&mut page)?;
    std::fs::write(&path, page).with_context(|| format!("{}: cannot write", path.display()))?;
    let mut count = 1;
    for verb in command.get_subcommands().filter(|c| !c.is_hide_set()) {
        count += pages(verb, folder)?;
    }
    Ok(count)
}

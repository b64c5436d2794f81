//! Implements `lastwords completions SHELL`.

use crate::exit::Outcome;

/// The arguments of `completions`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The shell
    ///
    /// Its script asks the program for verbs, options, names of sessions and instances, and paths.
    #[arg(value_enum)]
    shell: clap_complete::Shell,
}

/// Prints the completions.
pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let mut text = Vec::new();
    crate::complete::script(&args.shell.to_string(), &mut text)?;
    crate::say::print(text);
    Ok(Outcome::Done)
}

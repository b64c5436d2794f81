//! Implements the verbs that are programs of their own, `lastwords sql` and `lastwords mcp`: as cargo
//! does with its subcommands, the program `lastwords-VERB` in `PATH` takes the place of this one.

use crate::exit::Outcome;
use anyhow::{Context, bail};
use std::convert::Infallible;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// The arguments of a verb that is a program of its own.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Args {
    /// The arguments of the program; --help prints them
    #[arg(value_name = "ARGUMENT", trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Becomes the program of a verb.
pub(crate) fn run(verb: &str, args: &Args) -> anyhow::Result<Outcome> {
    become_program(verb, args).map(|never| match never {})
}

fn become_program(verb: &str, args: &Args) -> anyhow::Result<Infallible> {
    let program = format!("lastwords-{verb}");
    let error = Command::new(&program).args(&args.arguments).exec();
    if error.kind() == ErrorKind::NotFound {
        bail!(
            "`lastwords {verb}` is the program {program} of the Python package, which is not in PATH: \
             build its wheel (docs/INSTALL.md), and install it: pip install 'FILE.whl[{verb}]'"
        );
    }
    Err(error).context(program)
}

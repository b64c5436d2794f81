//! The project's own commands: `cargo xtask VERB`. One module a verb; other verbs are rigs, which are programs of `proof/`.
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

mod deny;
mod rigs;
mod setup;
mod test;
mod tidy;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "The project's own checks, set-up and test runs")]
struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Check what the compiler does not: the crate graph, sizes, where `unsafe` stands, left-overs
    Tidy(tidy::Args),
    /// Install what the tests need (Debian, Ubuntu), or say exactly what is missing
    Setup(setup::Args),
    /// Run every step of CI; the one command for the tests
    Test(test::Args),
    /// Check licences, sources and advisories of all crates (cargo-deny)
    Deny(deny::Args),
    #[command(external_subcommand)]
    Rig(Vec<OsString>),
}

fn main() -> ExitCode {
    let matches = Args::command().after_help(rigs::help()).get_matches();
    let args = Args::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    rig::exit(match args.verb {
        Verb::Tidy(args) => tidy::run(&args),
        Verb::Setup(args) => setup::run(&args),
        Verb::Test(args) => test::run(&args),
        Verb::Deny(args) => deny::run(&args),
        Verb::Rig(words) => rigs::become_rig(&words),
    })
}

/// The verbs of this program itself.
fn own_verbs() -> Vec<String> {
    Args::command().get_subcommands().map(|verb| verb.get_name().to_owned()).collect()
}

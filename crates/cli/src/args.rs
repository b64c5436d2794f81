//! Defines the command line: what all verbs share.

use crate::help;
use crate::moment;
use crate::paint::When;
use crate::say;
use crate::verbs::Verb;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory, FromArgMatches, Parser};
use std::io::Write as _;

/// The whole command line.
#[derive(Debug, Parser)]
#[command(
    name = "lastwords",
    version,
    about = "A flight recorder: keeps the newest events in memory that outlives a crash, and recovers them",
    after_help = "`lastwords VERB -h` is a short help, `lastwords VERB --help` or `lastwords help VERB` a long one.",
    after_long_help = after_help(),
    max_term_width = 110
)]
pub(crate) struct Args {
    /// Use colours
    #[arg(long, global = true, value_enum, default_value_t = When::Auto, value_name = "WHEN")]
    pub(crate) color: When,

    /// The command
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

fn after_help() -> String {
    format!(
        "\
An INPUT is {}. A process core is read as the kernel, gcore or systemd-coredump leave it. Several inputs are merged in one \
timeline. Reading does not stop a session that still records.

Sessions live under $LASTWORDS_DIR, else $XDG_RUNTIME_DIR/lastwords, else /dev/shm/lastwords-UID.

With several inputs, unreadable ones are reported on stderr and the rest are read. A trace in a folder that cannot \
be read counts as a loss. A file in a folder that has nothing to recover gets a note.",
        lastwords_open::kinds_of_inputs()
    )
}

/// Parses the process's arguments. Wrong arguments end the process with status 2, and a help that
/// cannot be written with 1.
pub(crate) fn parse() -> Args {
    // Clap parses values one by one, so the time zone must be known before it parses a moment.
    if std::env::args_os().any(|word| word == "--utc") {
        moment::read_as_utc();
    }
    let matches = command().try_get_matches().unwrap_or_else(|error| end(&with_hint(error)));
    Args::from_arg_matches(&matches).unwrap_or_else(|error| end(&error.format(&mut command())))
}

/// Names the verb of `kernel` if the first word is one, and what follows is no usage of ours:
/// `trace-cmd start -e EVENT` is `lastwords kernel start -e EVENT`.
fn with_hint(mut error: clap::Error) -> clap::Error {
    let is_hinted = [ErrorKind::InvalidSubcommand, ErrorKind::UnknownArgument];
    let first = std::env::args_os().nth(1).filter(|_| is_hinted.contains(&error.kind()));
    let command = described();
    let of_kernel = command.find_subcommand("kernel");
    if let Some(verb) = first.and_then(|word| of_kernel?.find_subcommand(word)) {
        let verb = format!("kernel {}", verb.get_name());
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::String(verb));
    }
    error
}

/// Prints a help, or what is wrong with the arguments, and ends the process.
fn end(error: &clap::Error) -> ! {
    let written = error.print().and_then(|()| std::io::stdout().flush());
    let status = match say::failure(written) {
        None => error.exit_code(),
        Some(why) => {
            say::error(format_args!("cannot write to stdout: {why}"));
            1
        }
    };
    std::process::exit(status)
}

/// Returns the command with its whole help.
pub(crate) fn command() -> Command {
    help::complete(described())
}

/// Returns the command without what [`help`] adds, for manual pages, which have sections for that.
pub(crate) fn described() -> Command {
    Args::command()
}

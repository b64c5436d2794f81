//! Defines the command line: what all verbs share.

use crate::moment;
use crate::paint::When;
use crate::verbs::Verb;
use clap::{CommandFactory, Parser};

/// The whole command line.
#[derive(Debug, Parser)]
#[command(
    name = "lastwords",
    version,
    about = "A flight recorder: keeps the newest events in memory that outlives the crash, and recovers them afterwards",
    after_help = AFTER,
    max_term_width = 110,
    disable_help_subcommand = true
)]
pub(crate) struct Args {
    /// When to colour the output
    #[arg(long, global = true, value_enum, default_value_t = When::Auto, value_name = "WHEN")]
    pub(crate) color: When,

    /// The command
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

const AFTER: &str = "\
An INPUT is a session (its name or folder), a process core (as the kernel, gcore or systemd-coredump leave it), a kernel crash dump, \
raw memory (--raw), a trace.dat file, a folder of CTF, LTTng's shared memory, or a folder with any of these. Several are merged in one \
timeline. A session that still records is read without being stopped.

Sessions live under $LASTWORDS_DIR, else $XDG_RUNTIME_DIR/lastwords, else /dev/shm/lastwords-UID.

Exit status: 0 done; 1 error, also where only some of what was named can be had, or nothing matched; 2 wrong usage; 3 (with \
--strict) recovered with losses. What cannot be had beside the rest is named on stderr, and is a loss; what has nothing to recover and \
was not named is a note.";

/// Parses the process's arguments. Wrong arguments end the process with status 2.
pub(crate) fn parse() -> Args {
    // Clap parses values one by one, so the time zone must be known before it parses a moment.
    if std::env::args_os().any(|word| word == "--utc") {
        moment::read_as_utc();
    }
    Args::parse()
}

/// Returns the command, for completions and manual pages.
pub(crate) fn command() -> clap::Command {
    Args::command()
}

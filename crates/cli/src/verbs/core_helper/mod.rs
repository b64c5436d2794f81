//! Implements `lastwords core-helper`: the helper of the kernel's `core_pattern` that keeps the
//! sessions of processes which a signal kills, and then gives the core to whom it went before.
//!
//! The kernel runs `lastwords core-helper pipe ...` or `file ...` ([`pattern`] composes the line)
//! as root with the core on stdin, and keeps the dying process until the core is read ([`chain`]).
//! The work is done by parts, each with no more rights than it needs ([`part`]):
//!
//! | part | rights | what it does |
//! | --- | --- | --- |
//! | the helper | root | opens `/proc/PID` ([`dying`]), starts the others and gives them files, limits their time, passes the core on |
//! | [`core_file`] | those of the process for files | opens the core's file, and writes what the helper passes on |
//! | [`save`] | the process's user | writes the ends of sessions into their memory, and copies into files |
//! | [`search`] | none ([`sandbox`]) | reads the process's memory, and sends what it finds to the saver ([`wire`]) |

mod chain;
mod core_file;
mod dying;
mod install;
mod maps;
mod part;
mod pattern;
mod pipe_limit;
mod quota;
mod sandbox;
mod save;
mod search;
mod state;
mod wire;

pub(crate) use install::{CORE_PATTERN, Helper};
pub(crate) use pattern::is_socket;
pub(crate) use pipe_limit::{PIPE_LIMIT, WANTED_LIMIT};

use crate::exit::Outcome;
use clap::Subcommand;
use std::ffi::OsString;
use std::num::ParseIntError;
use std::path::PathBuf;
use std::str::FromStr;

/// The arguments of `core-helper`.
#[derive(Debug, clap::Args)]
#[command(
    after_long_help = "While the helper is installed, a process that a signal kills with a core dump leaves its sessions. Sessions in shared \
memory are marked with the signal. Sessions that would be lost with the process (on its heap, in a memfd, in the /dev/shm of a container) are \
copied to /dev/shm/lastwords-UID of its user, as NAME.dead-PID-ID. The core then goes to the same file or program as before. SIGKILL makes \
no core, so the kernel does not start the helper; sessions in shared memory outlive it. `install` also sets kernel.core_pipe_limit to 1024 if it is 0, \
so that the kernel waits for the helper. The kernel forgets the helper at a reboot. \
docs/CORE-HELPER.md has the details."
)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Put the helper in front of the kernel's core_pattern, as root
    Install(State),
    /// Restore the previous core_pattern
    #[command(visible_alias = "uninstall")]
    Remove(State),
    /// Print whether the helper is installed, and where cores go then
    Status {
        /// Print data instead of text
        #[arg(long)]
        json: bool,
    },
    /// The kernel runs this if cores went to a program before
    #[command(hide = true)]
    Pipe(Pipe),
    /// The kernel runs this if cores went to a file before
    #[command(hide = true)]
    File(File),
    /// The part that writes a core into a file
    #[command(hide = true)]
    Write,
    /// The part that saves the sessions of a dying process
    #[command(hide = true)]
    Save,
    /// The part that reads the memory of a dying process
    #[command(hide = true)]
    Search,
}

#[derive(Debug, clap::Args)]
struct State {
    /// The folder that keeps the previous core_pattern
    #[arg(long, value_name = "DIR", default_value = "/var/lib/lastwords")]
    state: PathBuf,
}

/// A process that the kernel is dumping.
#[derive(Debug, Clone, Copy, clap::Args)]
struct Dying {
    /// `%P`: the process's id
    pid: u32,
    /// `%s`: the signal
    signal: u8,
    /// `%d,%F`: what the user may see, and the handle of the process
    told: Told,
}

/// The kernel's facts about a process besides its id: `%d,%F`, `%d,%F+` or `%d` ([`pattern`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Told {
    /// 1 if the process's user may see its core; else the process has rights that its user has
    /// not.
    dumpable: u32,
    /// The number of the open file that is a handle of the process. Most kernels before 6.16 give
    /// none.
    handle: Option<i32>,
    /// The program that gets the core is given the handle too.
    is_shared: bool,
}

impl FromStr for Told {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, ParseIntError> {
        let (dumpable, handle) = text.split_once(',').unwrap_or((text, ""));
        let (number, is_shared) =
            handle.strip_suffix('+').map_or((handle, false), |number| (number, true));
        let handle = if number.is_empty() { None } else { Some(number.parse()?) };
        Ok(Self { dumpable: dumpable.parse()?, handle, is_shared })
    }
}

#[derive(Debug, clap::Args)]
struct Pipe {
    #[command(flatten)]
    dying: Dying,
    /// The program that gets the core, and its arguments, expanded by the kernel
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    words: Vec<OsString>,
}

#[derive(Debug, clap::Args)]
struct File {
    #[command(flatten)]
    dying: Dying,
    /// `%c`: the process's limit of the size of cores, in bytes
    limit: u64,
    /// `%p`: the process's id in its own namespace if the pattern did not have it, else `-`
    #[arg(allow_hyphen_values = true)]
    own_pid: OsString,
    /// The file's path, expanded by the kernel; kernels before 5.3 also split it
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

/// Installs, removes or shows the helper, or is the helper.
pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    match &args.what {
        What::Install(state) => install::install(&state.state),
        What::Remove(state) => install::remove(&state.state),
        What::Status { json } => install::status(*json),
        What::Pipe(pipe) => chain::pipe(pipe),
        What::File(file) => chain::file(file),
        What::Write => core_file::run(),
        What::Save => save::run(),
        What::Search => search::run(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_tells_of_a_handle_or_not() {
        let told = |text: &str| {
            text.parse::<Told>().ok().map(|told| (told.dumpable, told.handle, told.is_shared))
        };
        assert_eq!(told("1,3"), Some((1, Some(3), false)));
        assert_eq!(told("2,3+"), Some((2, Some(3), true)));
        assert_eq!(
            [told("1,"), told("1,+"), told("1")],
            [false, true, false].map(|is| Some((1, None, is)))
        );
        assert_eq!([told(""), told("1,x"), told(",3")], [None; 3]);
    }
}

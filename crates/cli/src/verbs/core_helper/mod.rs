//! Implements `lastwords core-helper`: the helper of the kernel's `core_pattern` that keeps the sessions of processes
//! which a signal kills, and then gives the core to whom it went before.
//!
//! The kernel runs `lastwords core-helper pipe ...` or `file ...` ([`pattern`] composes the line) with the core on stdin,
//! and keeps the dying process until the core is read. So the helper first starts `core-helper save` ([`save`]), which
//! reads the process's memory as the process's user and has a limited time, and only then passes the core on ([`chain`]).

mod chain;
mod install;
mod pattern;
mod process;
mod save;

pub(crate) use install::{CORE_PATTERN, Helper};

use crate::exit::Outcome;
use clap::Subcommand;
use std::ffi::OsString;
use std::path::PathBuf;

/// The arguments of `core-helper`.
#[derive(Debug, clap::Args)]
#[command(
    after_long_help = "While the helper is installed, a process that a signal kills with a core dump leaves its sessions. Sessions in shared \
memory are marked with the signal. Sessions that would be lost with the process (on its heap, in a memfd, in the /dev/shm of a container) are \
copied to /dev/shm/lastwords-UID of its user, as NAME.dead-PID-ID. The core then goes to the same file or program as before. SIGKILL makes \
no core, so the kernel does not start the helper; sessions in shared memory outlive it. The kernel forgets the helper at a reboot. \
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
    /// Restore the core_pattern that there was before `install`
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
    /// The process that saves the sessions of a dying process
    #[command(hide = true)]
    Save(Dying),
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
    /// `%d`: 1 if the process's user may see its core; else the process has rights that its user has not
    dumpable: u32,
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
        What::Save(dying) => save::run(dying),
    }
}

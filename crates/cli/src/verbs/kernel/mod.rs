//! Implements `kernel`: the kernel's own tracer in an instance that stays when the command has
//! ended, as `trace-cmd start`, `stop`, `show`, `extract` and `reset` use it.

mod agent;
mod extract;
pub(crate) mod hist;
mod show;
mod start;
mod staying;

use crate::exit::Outcome;
use clap::Subcommand;

/// The arguments of `kernel`.
#[derive(Debug, clap::Args)]
#[command(
    after_long_help = "`start` sets up the tracer in an instance of its own and leaves it recording. `show` prints what it has, `stop` and \
`restart` switch it off and on, `extract` saves it as a file, and `reset` removes the instance and restores the settings. The verbs are \
those of trace-cmd, and need root or access to /sys/kernel/tracing. `lastwords record` does all of it at once."
)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Record in an instance that stays when this command has ended
    Start(Box<start::Args>),
    /// Stop recording; what was recorded stays
    Stop(staying::Which),
    /// Record again after `stop` or `extract`
    Restart(staying::Which),
    /// Print what an instance has, as the kernel's file `trace` does
    Show(show::Args),
    /// Move what an instance has into a trace.dat file
    Extract(extract::Args),
    /// Remove an instance and what `start` has changed
    Reset(staying::Which),
    /// Print histograms that triggers make: those of an instance now, or those of a file
    ///
    /// `lastwords record -e EVENT -R hist:keys=KEY` makes them, and saves them in FILE.hist.
    Hist(hist::Args),
    /// Record this guest for its host, which runs `lastwords record -A`
    Agent(agent::Args),
}

/// Runs a verb.
pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    match &args.verb {
        Verb::Start(args) => start::run(args),
        Verb::Stop(which) => staying::switch(which, false),
        Verb::Restart(which) => staying::switch(which, true),
        Verb::Show(args) => show::run(args),
        Verb::Extract(args) => extract::run(args),
        Verb::Reset(which) => staying::reset(which),
        Verb::Hist(args) => hist::run(args),
        Verb::Agent(args) => agent::run(args),
    }
}

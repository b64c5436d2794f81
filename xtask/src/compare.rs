//! `cargo xtask compare`: ours and a peer on the same damaged inputs.

mod lttng_crash;
pub(crate) mod persistent;
mod run;

use anyhow::Result;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    peer: Peer,
}

#[derive(clap::Subcommand)]
enum Peer {
    /// LTTng's own extractor of user-space shared memory: holes in every pattern, every header field with edge values
    LttngCrash(lttng_crash::Args),
    /// The kernel itself, which reads its persistent trace instance after a reboot: damaged, moved, another kernel
    Persistent(persistent::Args),
}

/// Compares.
pub(crate) fn run(args: &Args) -> Result<()> {
    match &args.peer {
        Peer::LttngCrash(args) => lttng_crash::run(args),
        Peer::Persistent(args) => persistent::run(args),
    }
}

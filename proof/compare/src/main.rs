//! `cargo xtask compare`: ours and a peer on the same damaged inputs; and `cargo xtask
//! lttng-layouts`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;

mod lttng_crash;
mod lttng_layouts;
mod persistent;
mod run;

#[derive(Parser)]
#[command(bin_name = "cargo xtask compare", about = "Give damaged inputs to ours and to a peer")]
enum Peer {
    /// LTTng's own extractor of user-space shared memory: holes in every pattern, every header
    /// field with edge values
    LttngCrash(lttng_crash::Args),
    /// Compare the layouts of LTTng's releases with the types of its modules
    LttngLayouts(lttng_layouts::Args),
    /// The kernel itself, which reads its persistent trace instance after a reboot: damaged, moved,
    /// another kernel
    Persistent(persistent::Args),
}

fn main() -> ExitCode {
    rig::exit(match Peer::parse() {
        Peer::LttngCrash(args) => lttng_crash::run(&args),
        Peer::LttngLayouts(args) => lttng_layouts::run(&args),
        Peer::Persistent(args) => persistent::run(&args),
    })
}

//! `cargo xtask bench aborts`: how many restartable sections are aborted when threads are preempted,
//! interrupted and moved, and what an event costs then.

use std::process::Command;

use anyhow::Result;

use super::programs::Programs;
use rig::run_quietly;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Events of each row
    #[arg(long, value_name = "N", default_value_t = 200_000_000)]
    events: u64,
}

pub(super) fn run(args: &Args) -> Result<()> {
    eprintln!("building");
    let bench = Programs::build()?.bench;
    let events = args.events.to_string();
    print!("{}", run_quietly(Command::new(bench).args(["aborts", &events]))?);
    Ok(())
}

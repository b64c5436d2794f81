//! `cargo xtask hosts`: the table of hostile hosts, which is a test of the library, with its large
//! numbers.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The numbers of CI: 40 processes in place of 200, 150 sessions in place of 5,000
    #[arg(long)]
    quick: bool,
}

/// Runs the table and prints it; an error if an application did not end as it would without a
/// recorder.
pub(crate) fn run(args: &Args) -> Result<()> {
    let mut command = Command::new(rig::cargo());
    command.current_dir(rig::root()).args(["test", "-q", "-p", "lastwords", "--test", "recorder"]);
    command.args(["hosts_table", "--", "--nocapture", "--test-threads=1"]);
    if !args.quick {
        command.env("LASTWORDS_ALL_HOSTS", "1");
    }
    let status = command.status().context("cargo test")?;
    ensure!(
        status.success(),
        "an application did not end as it would without a recorder, or events are missing"
    );
    Ok(())
}

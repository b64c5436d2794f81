//! `cargo xtask cases`: the comparison with what dead kernels printed themselves, for the crash dumps
//! beside the repository. They are too large for it.

use std::process::Command;

use anyhow::{Context, Result, ensure};

/// The cases that must pass.
const CASES: &[&str] = &[
    "ftrace-6.12-basic",
    "ftrace-6.12-live-crash",
    "ftrace-6.12-arm64",
    "ftrace-6.12-persistent",
    "ftrace-7.3-instances-d31",
    "lttng-6.12-snapshot-stopped",
    "lttng-6.12-live",
    "ust-shm-crash",
    "ust-core",
];

/// Those of the gate: a kernel's instances, a dump that lacks pages, and LTTng's buffers.
const QUICK: &[&str] = &["ftrace-6.12-basic", "ftrace-7.3-instances-d31", "lttng-6.12-live"];

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The part of CI: three cases, and not the matrix
    #[arg(long)]
    quick: bool,
}

/// Compares the cases, and runs the matrix.
pub(crate) fn run(args: &Args) -> Result<()> {
    compare(if args.quick { QUICK } else { CASES })?;
    if args.quick { Ok(()) } else { crate::matrix::run(&crate::matrix::Args::default()) }
}

fn compare(cases: &[&str]) -> Result<()> {
    let shared = rig::beside();
    let check = shared.join("check-cases");
    if !check.is_file() {
        println!("no crash cases beside the repository: nothing is compared");
        return Ok(());
    }
    let lastwords = rig::programs::tested()?;
    for case in cases {
        let mut command = Command::new(&check);
        // A place for each: what it unpacks is called alike in all cases.
        command.env("CASES_CACHE", std::env::temp_dir().join(format!("lastwords-case-{case}")));
        command.env("BABELTRACE2", rig::bin().join("babeltrace2.1"));
        let status = command.arg(&lastwords).arg(shared.join("cases").join(case)).status();
        let status = status.with_context(|| check.display().to_string())?;
        ensure!(status.success(), "{} {case}: {status}", check.display());
    }
    Ok(())
}

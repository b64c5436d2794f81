//! `cargo xtask loom`: the models of the ring under the C11 memory model, and mistakes that must be
//! found.

use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Runs the models with two preemptions at most, where three take ten times as long: `RUSTFLAGS='--cfg
/// loom' cargo test --release -p lastwords-ring --test ring`. The mistakes are looked for with three.
pub(crate) fn run() -> Result<()> {
    test("loom::", &[("LOOM_MAX_PREEMPTIONS", "2")])?;
    test("loom_faults::", &[])
}

fn test(name: &str, variables: &[(&str, &str)]) -> Result<()> {
    let mut cargo = Command::new(rig::cargo());
    cargo.current_dir(rig::root()).args(["test", "--release", "-p", "lastwords-ring"]);
    cargo.args(["--test", "ring", name]).env("RUSTFLAGS", "--cfg loom");
    cargo.env("CARGO_TARGET_DIR", "target/loom").envs(variables.iter().copied());
    let status = cargo.status().context("cannot run cargo")?;
    ensure!(status.success(), "{name}: {status}");
    Ok(())
}

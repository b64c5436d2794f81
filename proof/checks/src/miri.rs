//! `cargo xtask miri`: what records, interpreted by Miri, which finds undefined behaviour: reads
//! beyond an object, data races, references that other accesses contradict.
//!
//! Miri interprets a program of another machine as well. On riscv64 the recorder has no assembly,
//! so that all of the code that runs there is checked. Calls that Miri does not know (`membarrier`,
//! `tkill`, `sched_getcpu`, masks of signals) are left out by `cfg!(miri)` in `os.rs`, `cpu.rs`,
//! `forks.rs` and `signals.rs` of `crates/ring/src`; files that are mapped, and so whole sessions,
//! cannot be had there.

use std::process::Command;

use anyhow::{Result, bail, ensure};

/// The machine for which the tests are built.
const TARGET: &str = "riscv64gc-unknown-linux-gnu";
/// Tree borrows are the newer model of references. Channels are never freed. The recorder reads
/// /proc.
const FLAGS: &str =
    "-Zmiri-disable-isolation -Zmiri-tree-borrows -Zmiri-permissive-provenance -Zmiri-ignore-leaks";

/// The runs: arguments of `cargo miri test`, and the tests that must be among those that pass.
const PARTS: &[(&[&str], &[&str])] = &[
    (
        &["-p", "lastwords-ring", "--test", "ring", "--", "small_rings"],
        &[
            "small_rings::each_way_and_shape",
            "small_rings::pages_apart",
            "small_rings::two_threads_and_a_swap",
        ],
    ),
    // The test of rules with long filters, which Miri interprets for many minutes, is left out:
    // the other ones reach the same unsafe code.
    (
        &[
            "-p",
            "lastwords",
            "--lib",
            "--",
            "record::",
            "session::rules::tests::a_",
            "session::rules::tests::r",
            "session::registry::index",
            "layer::s",
        ],
        &[
            "record::spans",
            "layer::slab",
            "layer::span_text",
            "session::rules",
            "session::registry::index",
        ],
    ),
];

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where no Miri can be had, say so and end well: the step of CI
    #[arg(long)]
    if_possible: bool,
}

/// Installs Miri where it is missing, and interprets the tests.
pub(crate) fn run(args: &Args) -> Result<()> {
    match install() {
        Ok(()) => interpret(),
        Err(error) if !args.if_possible => {
            bail!("Miri is not here, and cannot be installed: {error}")
        }
        Err(error) => {
            println!("NOT RUN: Miri is not here, and cannot be installed: {error}");
            Ok(())
        }
    }
}

/// Installs Miri, of the newest nightly compiler, unless it is there.
fn install() -> Result<()> {
    if rig::run_quietly(cargo().arg("--version")).is_ok() {
        return Ok(());
    }
    let mut rustup = Command::new("rustup");
    rustup.args(["toolchain", "install", "nightly", "--profile", "minimal", "--no-self-update"]);
    rig::run_quietly(rustup.args(["--component", "miri", "--component", "rust-src"]))?;
    rig::run_quietly(cargo().arg("--version"))?;
    Ok(())
}

/// `cargo miri`, without what the cargo that runs us has set for its own compiler.
fn cargo() -> Command {
    let mut cargo = Command::new("rustup");
    cargo.args(["run", "nightly", "cargo", "miri"]).current_dir(rig::root());
    for name in ["CARGO", "RUSTC", "RUSTDOC", "RUSTUP_TOOLCHAIN", "RUSTFLAGS"] {
        cargo.env_remove(name);
    }
    cargo
}

fn interpret() -> Result<()> {
    for (arguments, expected) in PARTS {
        let mut command = cargo();
        command.args(["test", "--target", TARGET, "--target-dir", "target/miri"]).args(*arguments);
        let printed = rig::run_quietly(command.env("MIRIFLAGS", FLAGS))?;
        print!("{printed}");
        for test in *expected {
            ensure!(printed.contains(&format!("test {test}")), "Miri ran no test {test}");
        }
    }
    Ok(())
}

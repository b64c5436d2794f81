//! The programs and libraries of the workspace, built.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// The names of the programs that the tests and the rigs run, besides the rigs themselves.
const TESTED: &[&str] = &[
    "lastwords",
    "shop",
    "server",
    "layers",
    "logging",
    "triggers",
    "heap",
    "counted",
    "rust-app",
    "tokio-app",
];

/// Builds a package for release; the folder where its programs and libraries are then.
pub fn build(package: &str) -> Result<PathBuf> {
    run(&["--release", "--package", package])?;
    Ok(target()?.join("release"))
}

/// Builds `lastwords`, the command, for release.
pub fn lastwords() -> Result<PathBuf> {
    Ok(build("lastwords-cli")?.join("lastwords"))
}

/// Builds the libraries and what tests and rigs run, for debugging; the folder where they are then.
///
/// With `--workspace`, each dependency has the features that `cargo test --workspace` gives it, and
/// is not built a second time: see `bench/Cargo.toml`.
pub fn debug() -> Result<PathBuf> {
    let programs = TESTED.iter().flat_map(|name| ["--bin", *name]);
    run(&["--workspace", "--lib"].into_iter().chain(programs).collect::<Vec<_>>())?;
    Ok(target()?.join("debug"))
}

/// Builds a rig of `proof/`, and returns the program. With `--workspace`, as [`debug`] does.
///
/// # Errors
/// There is no such rig, or it cannot be built.
pub fn rig(name: &str) -> Result<PathBuf> {
    let program = format!("lastwords-proof-{name}");
    run(&["--workspace", "--bin", &program])?;
    Ok(target()?.join("debug").join(program))
}

/// Builds the test program of this name, and returns it. With `--workspace`, as [`debug`] does.
///
/// # Errors
/// There is no such test program, or it cannot be built.
pub fn test(name: &str) -> Result<PathBuf> {
    let mut cargo = Command::new(crate::cargo());
    cargo.current_dir(crate::root()).args(["test", "--no-run", "--quiet", "--workspace", "--test"]);
    cargo.args([name, "--message-format=json-render-diagnostics"]);
    let said = crate::run_quietly(&mut cargo)?;
    let messages = said.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>()?;
    let built = messages.iter().find(|message| message["target"]["name"] == name);
    let program = built.and_then(|message| message["executable"].as_str());
    program.map(PathBuf::from).with_context(|| format!("cargo says of no test program {name}"))
}

/// Builds `lastwords`, the command, as the tests have built it: CI has no time for a release build.
/// The other commands of this program take that by default.
pub fn tested() -> Result<PathBuf> {
    Ok(debug()?.join("lastwords"))
}

/// The folder of what cargo builds.
pub fn target() -> Result<PathBuf> {
    let metadata = metadata()?;
    Ok(metadata["target_directory"].as_str().context("cargo metadata: no target_directory")?.into())
}

/// What `cargo metadata` prints of the packages of the workspace.
pub fn metadata() -> Result<Value> {
    let mut cargo = Command::new(crate::cargo());
    cargo.current_dir(crate::root()).args(["metadata", "--format-version=1", "--no-deps"]);
    Ok(serde_json::from_str(&crate::run_quietly(&mut cargo)?)?)
}

fn run(arguments: &[&str]) -> Result<()> {
    let mut cargo = Command::new(crate::cargo());
    let status =
        cargo.current_dir(crate::root()).args(["build", "--quiet"]).args(arguments).status();
    let status = status.context("cannot run cargo")?;
    ensure!(status.success(), "cargo build {}: {status}", arguments.join(" "));
    Ok(())
}

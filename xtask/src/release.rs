//! Programs of the workspace, built for speed.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Builds a package for release; the folder where its programs and libraries are then.
pub(crate) fn build(package: &str) -> Result<PathBuf> {
    let mut cargo = Command::new(crate::cargo());
    cargo.current_dir(crate::root()).args(["build", "--release", "--quiet", "--package", package]);
    let status = cargo.status().context("cannot run cargo")?;
    ensure!(status.success(), "cargo build --release --package {package}: {status}");
    let metadata = cargo_metadata::MetadataCommand::new().current_dir(crate::root()).no_deps().exec()?;
    Ok(metadata.target_directory.into_std_path_buf().join("release"))
}

/// Builds `lastwords`, the command.
pub(crate) fn lastwords() -> Result<PathBuf> {
    Ok(build("lastwords-cli")?.join("lastwords"))
}

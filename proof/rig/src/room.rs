//! Room on the disk for what is built.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::{root, shown};

/// GiB that a build of nothing but the gate takes, and of all steps.
const GATE: u64 = 5;
const ALL: u64 = 16;

/// Checks that the builds have room, unless something was built before: a full disk stops a
/// build anywhere, and does not say what was missing.
///
/// # Errors
/// There is less room; or `df` does not tell it.
pub fn check(is_gate: bool) -> Result<()> {
    if root().join("target/debug/lastwords").exists() {
        return Ok(());
    }
    let mut df = Command::new("df");
    df.args(["--output=avail", "--block-size=1M"]).arg(root());
    let output = df.output().with_context(|| shown(&df))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let free: u64 = text.lines().last().unwrap_or("").trim().parse().with_context(|| shown(&df))?;
    let least = if is_gate { GATE } else { ALL };
    ensure!(
        free >= least << 10,
        "{free} MB are free at {}, and the builds take {least} GB: make room",
        root().display()
    );
    Ok(())
}

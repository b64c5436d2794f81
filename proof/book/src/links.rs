//! Checks by lychee that links within the repository lead to a file, and to a heading of it.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use rig::wheel::LYCHEE;

/// lychee passes any heading of a file that is no Markdown: no such file is then found.
const NO_HEADINGS: &str = r"^(file:.*[.](c|cc|h|hpp|in|js|json|rs|sh|toml|yml))#.* $1:no-headings";

/// Fails if a link leads nowhere. Returns how many links were checked.
pub(super) fn check(pages: &[PathBuf]) -> Result<u64> {
    let mut command = Command::new(LYCHEE.install()?);
    command.args(["--offline", "--no-progress", "--include-fragments", "--format=json"]);
    let output = command.args(["--remap", NO_HEADINGS]).args(pages).output().context("lychee")?;
    let said = || String::from_utf8_lossy(&output.stderr).into_owned();
    let report: Value = serde_json::from_slice(&output.stdout).with_context(said)?;
    let mut wrong = Vec::new();
    for (page, links) in report["error_map"].as_object().into_iter().flatten() {
        for link in links.as_array().into_iter().flatten() {
            let (line, status) = (&link["span"]["line"], &link["status"]);
            wrong.push(format!("{page}:{line}: {}: {}", link["url"], status["details"]));
        }
    }
    if !wrong.is_empty() || !output.status.success() {
        bail!("links that lead nowhere:\n{}\n{}", wrong.join("\n"), said());
    }
    report["successful"].as_u64().context("lychee counts no links")
}

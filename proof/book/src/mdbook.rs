//! Installs mdBook beside the tools of the tests, and builds the book with it.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use rig::wheel::MDBOOK;

/// Builds the book into `target/book/html`. Returns the page to begin with.
pub(super) fn build() -> Result<PathBuf> {
    let mut command = Command::new(MDBOOK.install()?);
    let output = command.arg("build").arg(rig::root().join("book")).output().context("mdbook")?;
    let text = String::from_utf8_lossy(&output.stderr);
    // It goes on after a file to include that is missing.
    let is_good = output.status.success() && !text.contains("ERROR") && !text.contains("WARN");
    ensure!(is_good, "mdbook build: {}\n{text}", output.status);
    let page = rig::root().join("target/book/html/index.html");
    ensure!(page.is_file(), "{}: mdBook did not write it", page.display());
    Ok(page)
}

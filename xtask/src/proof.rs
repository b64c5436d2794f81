//! The rigs of `proof/`: each is a program of its own. CI runs a small count of each.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::programs;

/// 60 programs that record by `tracing`. The seed is always the same, so that a change is judged by what it changes; the program itself takes new
/// ones.
pub(crate) fn tracing() -> Result<()> {
    let babeltrace = crate::setup::bin().join("babeltrace2.1").display().to_string();
    run("lastwords-proof-tracing", &["--shapes", "60", "--seed", "1", "--babeltrace", &babeltrace])
}

/// The rows of the table of surroundings that take least time.
pub(crate) fn surroundings() -> Result<()> {
    ensure!(crate::setup::is_root(), "namespaces and limits of memory need root");
    run("lastwords-proof-surroundings", &["--quick"])
}

/// Dumps of which pages are taken out: a new kernel's instances, an aarch64's, one that is compressed.
const DUMPS: &[(&str, &str)] = &[
    ("ftrace-6.12-basic/memory.elf.zst", "100"),
    ("ftrace-6.12-arm64/memory.elf.zst", "60"),
    ("ftrace-6.12-live-crash/makedumpfile-1.7.2-d31.kdump", "40"),
];

/// 200 images of dumps without some of their pages, where the dumps are.
pub(crate) fn exclude() -> Result<()> {
    let cases = crate::test::beside().join("cases");
    if !cases.is_dir() {
        println!("no crash cases beside the repository: nothing is taken out");
        return Ok(());
    }
    DUMPS.iter().try_for_each(|(dump, images)| {
        run("lastwords-proof-exclude", &[&cases.join(dump).display().to_string(), "--images", images])
    })
}

fn run(program: &str, arguments: &[&str]) -> Result<()> {
    let path = programs::debug()?.join(program);
    let status = Command::new(&path).args(arguments).status().with_context(|| path.display().to_string())?;
    ensure!(status.success(), "{program} {}: {status}", arguments.join(" "));
    Ok(())
}

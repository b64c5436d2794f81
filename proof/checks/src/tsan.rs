//! `cargo xtask tsan`: the concurrent tests of the ring under ThreadSanitizer, and a race put there
//! on purpose that it must catch.

use std::process::{Command, Output};

use anyhow::{Context, Result, bail};

/// Runs in which the seeded race must be caught.
const RUNS: u32 = 20;

/// No report from the tests as they are; one from the seeded race.
pub(crate) fn run() -> Result<()> {
    let clean = test(&["--skip", "seeded_race"], false)?;
    if !clean.status.success() {
        bail!(
            "ThreadSanitizer or a test: {}\n{}{}",
            clean.status,
            text(&clean.stdout),
            text(&clean.stderr)
        );
    }
    print!("{}", text(&clean.stdout));
    // It forgets accesses that are long past, so that one run may show nothing.
    for run in 1..=RUNS {
        let seeded = test(&["seeded_race"], true)?;
        let reports = text(&seeded.stderr).matches("WARNING: ThreadSanitizer: data race").count();
        if !seeded.status.success() && reports > 0 {
            println!("the seeded race was caught: {reports} reports in run {run}");
            return Ok(());
        }
    }
    bail!("the seeded race was not caught in {RUNS} runs");
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs the concurrent tests, built for ThreadSanitizer by the stable compiler.
fn test(arguments: &[&str], seeded: bool) -> Result<Output> {
    let root = rig::root();
    let suppressions = root.join("crates/ring/tests/tsan.supp");
    let mut command = Command::new(rig::cargo());
    command
        .current_dir(&root)
        .args([
            "test",
            "--target",
            &host()?,
            "-p",
            "lastwords-ring",
            "--test",
            "ring",
            "concurrent",
            "--",
        ])
        .args(["--test-threads", "1", "--nocapture"])
        .args(arguments)
        .env("RUSTC_BOOTSTRAP", "1")
        .env("RUSTFLAGS", "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer")
        .env("CARGO_TARGET_DIR", root.join("target/tsan"))
        .env("TSAN_OPTIONS", format!("suppressions={}", suppressions.display()));
    if seeded {
        command.env("LASTWORDS_SEEDED_RACE", "1");
    }
    command.output().context("cargo")
}

/// The compiler's own target: a sanitizer needs it named.
fn host() -> Result<String> {
    let said = Command::new("rustc").arg("-vV").output().context("rustc")?;
    let said = text(&said.stdout);
    let host =
        said.lines().find_map(|l| l.strip_prefix("host: ")).context("rustc -vV names no host")?;
    Ok(host.to_string())
}

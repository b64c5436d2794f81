//! `cargo xtask matrix`: the sources of docs/MATRIX.md, also those that are kept beside the
//! repository.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use rig::scratch::Scratch;

#[derive(clap::Args, Debug, Default)]
pub(crate) struct Args {
    /// Write docs/MATRIX.md anew
    #[arg(long)]
    write: bool,
    /// Perfetto's trace processor; by default the one beside the repository
    #[arg(long, value_name = "PROGRAM")]
    trace_processor: Option<PathBuf>,
}

/// Runs the tests of the matrix.
pub(crate) fn run(args: &Args) -> Result<()> {
    let beside = rig::beside();
    let cases = beside.join("cases");
    ensure!(cases.is_dir(), "{}: no crash cases beside the repository", cases.display());
    let scratch = Scratch::create(&std::env::temp_dir(), "lastwords-matrix")?;
    let program = match &args.trace_processor {
        Some(program) => program.clone(),
        None => {
            let program = scratch.path().join("trace_processor");
            let mut zstd = Command::new("zstd");
            zstd.args(["-q", "-d"])
                .arg(beside.join("tools/trace_processor_shell.zst"))
                .arg("-o")
                .arg(&program);
            rig::run_quietly(&mut zstd)?;
            rig::run_quietly(Command::new("chmod").arg("700").arg(&program))?;
            program
        }
    };
    let version = rig::run_quietly(Command::new(&program).arg("--version"));
    version
        .context("Perfetto's trace processor does not run; it needs the package libprotobuf32")?;
    let mut cargo = Command::new(rig::cargo());
    cargo.current_dir(rig::root()).args([
        "test",
        "--quiet",
        "--workspace",
        "--test",
        "cli",
        "matrix",
    ]);
    cargo.env("LASTWORDS_CASES", cases.canonicalize()?).env("LASTWORDS_TRACE_PROCESSOR", program);
    if args.write {
        cargo.env("LASTWORDS_GOLDEN", "write");
    }
    let status = cargo.status().context("cannot run cargo")?;
    ensure!(status.success(), "the matrix: {status}");
    Ok(())
}

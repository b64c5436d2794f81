//! A table of surroundings: containers, limits on memory, no /proc, traps such as `exec` and
//! `closefrom`. In each of them an application must end as it does without its recorder, its
//! sessions must be kept as promised, and `lastwords list --json` must know whether they live. Root
//! runs it; namespaces go with their processes, cgroups are removed.
//!
//! ```text
//! cargo run -p lastwords-proof-surroundings -- --built target/debug [--quick] [--row NAME]
//! ```
#![forbid(unsafe_code)]

mod bench;
mod memory;
mod rows;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use clap::Parser;

use bench::Bench;
use rows::{OF_VERSION_2, ROWS};

#[derive(Parser)]
#[command(
    bin_name = "cargo xtask surroundings",
    about = "Run an application in containers, limits and traps, and judge how it ends and what is known of it"
)]
struct Args {
    /// The folder of `lastwords` and of the libraries; by default that of this program
    #[arg(long)]
    built: Option<PathBuf>,
    /// Compile the applications into this folder, for a machine without a compiler, and end
    #[arg(long, value_name = "DIR", conflicts_with_all = ["quick", "row"])]
    compile: Option<PathBuf>,
    /// The folder of applications that were compiled before
    #[arg(long, value_name = "DIR")]
    compiled: Option<PathBuf>,
    /// The rows of CI
    #[arg(long)]
    quick: bool,
    /// Rows whose name contains this
    #[arg(long, value_name = "NAME")]
    row: Option<String>,
}

fn main() -> ExitCode {
    rig::exit(run(&Args::parse()))
}

fn run(args: &Args) -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let own = std::env::current_exe()?;
    let built = match &args.built {
        Some(built) => built.canonicalize()?,
        None => own.parent().context("a folder")?.to_path_buf(),
    };
    if let Some(to) = &args.compile {
        return bench::compile(&root, &built, to);
    }
    ensure!(!args.quick || rig::is_root(), "namespaces and limits of memory need root");
    let bench = Bench::new(&root, &built, args.compiled.as_deref())?;
    let is_asked = |name: &str| args.row.as_ref().is_none_or(|part| name.contains(part.as_str()));
    let of_version_2 = if memory::is_version_2() { OF_VERSION_2 } else { &[] };
    let all = ROWS.iter().chain(of_version_2);
    let rows: Vec<_> = all.filter(|row| is_asked(row.name) && (row.quick || !args.quick)).collect();
    ensure!(!rows.is_empty(), "no such row");
    let mut failed = 0;
    for (number, row) in rows.iter().enumerate() {
        let begun = Instant::now();
        let dir = bench.place(&format!("row-{number}"))?;
        let done = (row.check)(&bench, &dir);
        let seconds = begun.elapsed().as_secs_f64();
        match done {
            Ok(()) => println!("{:<36} {seconds:>6.1} s  as it must be", row.name),
            Err(error) => {
                failed += 1;
                println!("{:<36} {seconds:>6.1} s  FAILED: {error:#}", row.name);
            }
        }
        bench.clear(&dir)?;
    }
    if of_version_2.is_empty() {
        println!(
            "control groups of version 2 do not limit memory here: {} rows were not run",
            OF_VERSION_2.len()
        );
    }
    ensure!(failed == 0, "{failed} of {} rows failed", rows.len());
    Ok(())
}

//! `cargo xtask fuzz`: runs the fuzz targets of `fuzz/` for a time each. CI does not: it replays
//! the corpus, as a test of `crates/testkit`.

use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Seconds for each target
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Processes for each target
    #[arg(long, default_value_t = 1)]
    jobs: u32,
    /// Targets; all where none is named
    targets: Vec<String>,
}

/// Runs the targets, each to the end of its time; an error if one failed.
pub(crate) fn run(args: &Args) -> Result<()> {
    let folder = rig::root().join("fuzz");
    let names = names(&folder)?;
    if let Some(wrong) = args.targets.iter().find(|t| !names.contains(t)) {
        bail!("no fuzz target `{wrong}`: there are {}", names.join(", "));
    }
    let there = Command::new(rig::cargo())
        .args(["fuzz", "--version"])
        .output()
        .context("cannot run cargo")?;
    ensure!(there.status.success(), "cargo fuzz is not there: `cargo install cargo-fuzz`");
    let chosen = names.iter().filter(|n| args.targets.is_empty() || args.targets.contains(n));
    let mut failed = Vec::new();
    for name in chosen {
        println!("==> fuzz {name}");
        // What a run finds goes to the first folder; the second is the corpus that is kept.
        let found = folder.join("corpus-local").join(name);
        std::fs::create_dir_all(&found).with_context(|| found.display().to_string())?;
        // Without a sanitizer any toolchain will do.
        let status = Command::new(rig::cargo())
            .args(["fuzz", "run", "-s", "none", name])
            .args([found.display().to_string(), format!("fuzz/corpus/{name}"), "--".into()])
            .arg(format!("-max_total_time={}", args.seconds))
            .args([
                format!("-fork={}", args.jobs),
                "-rss_limit_mb=1024".into(),
                "-timeout=10".into(),
            ])
            .current_dir(rig::root())
            .status();
        let status = status.context("cannot run cargo")?;
        if !status.success() {
            failed.push(name.as_str());
        }
    }
    if !failed.is_empty() {
        bail!("failed: {}; the inputs are in fuzz/artifacts", failed.join(", "));
    }
    Ok(())
}

/// The targets, each of which has a folder in the corpus, in order of name.
fn names(folder: &std::path::Path) -> Result<Vec<String>> {
    let corpus = folder.join("corpus");
    let entries = std::fs::read_dir(&corpus).with_context(|| corpus.display().to_string())?;
    let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let mut names = names.collect::<Result<Vec<String>>>()?;
    names.sort();
    Ok(names)
}

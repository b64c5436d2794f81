//! The text that `cargo xtask test` prints first: the tools that it will install, and the time that
//! the steps took when they last ran here.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

/// How long a run takes on two cores, with the builds of an empty `target`.
const ALL: &str = "on two cores, builds included, the gate takes about 15 minutes, and all steps take about two hours";

/// Seconds that each step took when it last passed here.
type Times = BTreeMap<String, u64>;

/// The file of the times. It goes with the builds, without which the steps take longer.
fn file() -> PathBuf {
    rig::root().join("target/test-times")
}

fn read() -> Times {
    parse(&std::fs::read_to_string(file()).unwrap_or_default())
}

fn parse(text: &str) -> Times {
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .filter_map(|(n, t)| Some((n.to_string(), t.parse().ok()?)))
        .collect()
}

/// Prints what the steps will install and how long they take.
pub(super) fn announce(names: &[&str], is_gate: bool) {
    if names.contains(&"setup") {
        let missing = crate::setup::missing(is_gate);
        match missing.is_empty() {
            true => println!("Nothing has to be installed."),
            false => println!("The step `setup` will install:\n    {}", missing.join("\n    ")),
        }
    }
    println!("{}\n", expected(names, &read()));
}

fn expected(names: &[&str], times: &Times) -> String {
    let (known, unknown): (Vec<&str>, Vec<&str>) =
        names.iter().partition(|name| times.contains_key(**name));
    let seconds: u64 = known.iter().filter_map(|name| times.get(*name)).sum();
    let took = match seconds {
        0..120 => format!("{seconds} s"),
        _ => format!("{} min", seconds.div_ceil(60)),
    };
    match (known.is_empty(), unknown.is_empty()) {
        (_, true) => {
            format!("steps: {}. When they last passed here, they took {took}.", names.len())
        }
        (true, _) => format!("steps: {}. None of them has passed here yet; {ALL}.", names.len()),
        _ => format!(
            "steps: {}. When {} of them last passed here, they took {took}. No time is known of: {}; {ALL}.",
            names.len(),
            known.len(),
            unknown.join(", ")
        ),
    }
}

/// The steps that have passed at this commit; none where files differ from it.
pub(super) fn passed_here() -> Result<Vec<String>> {
    let Some(file) = file_of_commit()? else { return Ok(Vec::new()) };
    let text = std::fs::read_to_string(file).unwrap_or_default();
    Ok(text.lines().filter_map(|line| Some(line.split_once(' ')?.0.to_owned())).collect())
}

/// Keeps that a step has passed at this commit.
pub(super) fn keep(name: &str, took: Duration) -> Result<()> {
    let Some(file) = file_of_commit()? else { return Ok(()) };
    let parent = file.parent().context("a folder")?;
    std::fs::create_dir_all(parent).with_context(|| parent.display().to_string())?;
    let opened = std::fs::File::options().create(true).append(true).open(&file);
    let written = opened.and_then(|mut file| writeln!(file, "{name} {:.0}", took.as_secs_f64()));
    written.with_context(|| file.display().to_string())
}

/// The file of the steps that have passed at this commit; none where files differ from it, or where
/// git is not here.
fn file_of_commit() -> Result<Option<PathBuf>> {
    let git = |arguments: &[&str]| -> Result<Option<String>> {
        let Ok(out) = Command::new("git").current_dir(rig::root()).args(arguments).output() else {
            return Ok(None);
        };
        Ok(out.status.success().then(|| String::from_utf8_lossy(&out.stdout).trim().to_owned()))
    };
    let is_clean = git(&["status", "--porcelain"])?.is_some_and(|changed| changed.is_empty());
    let commit = git(&["rev-parse", "HEAD"])?.filter(|_| is_clean);
    Ok(commit.map(|commit| rig::root().join("target/test-results").join(commit)))
}

/// Keeps the times of steps that passed for the next run.
pub(super) fn remember<'a>(passed: impl Iterator<Item = (&'a str, Duration)>) -> Result<()> {
    let mut times = read();
    times.extend(passed.map(|(name, took)| (name.to_string(), took.as_secs_f64().ceil() as u64)));
    let text: String = times.iter().map(|(name, seconds)| format!("{name} {seconds}\n")).collect();
    std::fs::write(file(), text).with_context(|| file().display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_added_up() {
        let times = parse("fmt 2\ntest 600\nbroken\nalso broken\n");
        assert_eq!(times.len(), 2);
        assert_eq!(
            expected(&["fmt"], &times),
            "steps: 1. When they last passed here, they took 2 s."
        );
        assert!(expected(&["fmt", "test"], &times).ends_with("they took 11 min."));
        assert!(
            expected(&["fmt", "lab"], &times)
                .contains("they took 2 s. No time is known of: lab; on two cores")
        );
        assert!(expected(&["lab"], &times).contains("None of them has passed here yet"));
    }
}

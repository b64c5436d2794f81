//! `cargo xtask test`: the gate, which CI runs; with `--full` everything. The one command for the
//! tests.
//!
//! A step is a row of [`steps`]. A peer tool that is missing fails the step that needs it; no step
//! is passed over silently.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::args::Given;

mod plan;
mod steps;

pub(crate) const HELP: &str = "\
Run every step of CI; the one command for the tests

Usage: cargo xtask test [OPTIONS]

Options:
      --step <NAME>...  Run this step alone, whole (may be given several times)
      --full            Run all steps, whole, but for those that have passed at this commit
      --part <NAME>     Run this part of all steps (code, rigs, guests), with --full
      --again           Run steps again that have passed at this commit, with --full
      --quick           Run a part that takes about two minutes once the workspace is built, needs no root and installs
                        nothing
      --keep-going      Go on after a step that failed
      --list            List the steps
  -h, --help            Print this";

struct Step {
    name: &'static str,
    does: Does,
    gate: Gate,
    what: &'static str,
}

impl Step {
    fn what(&self) -> &'static str {
        match self.does {
            Does::Rig(words) if self.what.is_empty() => crate::rigs::what(words),
            _ => self.what,
        }
    }
}

/// The part of a step that the gate runs.
enum Gate {
    Same,
    /// A smaller count, or fewer cases.
    Less(Does),
    /// The same, beside the builds and tests.
    Beside,
    /// Less, beside them.
    LessBeside(Does),
    Never,
}

enum Does {
    /// Another verb of ours, in this process.
    Verb(fn() -> Result<()>),
    /// A rig and its arguments.
    Rig(&'static str),
    /// `cargo` and these arguments.
    Cargo(&'static str),
    /// The same, with variables of the environment.
    CargoWith(&'static [(&'static str, &'static str)], &'static str),
    /// A program of the repository and its arguments.
    Script(&'static str),
}

/// Test programs that write hundreds of thousands of files, for which memory does.
const IN_MEMORY: [&str; 3] = ["render", "image", "testkit"];

/// The programs whose unit tests the gate runs: those of its rigs, and not those of `bench` and
/// `examples`.
const GATE_PROGRAMS: [&str; 5] = [
    "lastwords",
    "xtask",
    "lastwords-proof-persistence",
    "lastwords-proof-shapes",
    "lastwords-proof-tracing",
];

/// Runs the tests of all crates.
fn run_tests() -> Result<()> {
    run_tests_of(&["--bins"], &[])
}

/// Does the same for the programs that the gate needs, and for a twelfth of the cases where a test
/// tries all of many thousands.
fn run_gate_tests() -> Result<()> {
    let programs: Vec<&str> = GATE_PROGRAMS.iter().flat_map(|name| ["--bin", *name]).collect();
    run_tests_of(&programs, &[("LASTWORDS_SAMPLE", "12")])
}

/// The arguments of `cargo test` for some tests of the workspace.
fn test<'a>(which: &[&'a str]) -> Vec<&'a str> {
    [&["test", "--workspace"], which].concat()
}

/// Runs the tests of the workspace, and the unit tests of some programs. `--workspace` gives the
/// dependencies the same features, so that nothing is built twice.
fn run_tests_of(programs: &[&str], variables: &[(&str, &str)]) -> Result<()> {
    run_cargo(&[], &test(&[programs, &["--lib", "--test", "*", "--no-run"]].concat()))?;
    let metadata = rig::programs::metadata()?;
    let targets = metadata["packages"].as_array().into_iter().flatten();
    let targets = targets.flat_map(|package| package["targets"].as_array().into_iter().flatten());
    let tests = targets.filter(|target| target["kind"][0] == "test");
    let names: Vec<&str> = tests.filter_map(|target| target["name"].as_str()).collect();
    let named = |in_memory: bool| {
        let names = names.iter().filter(|name| IN_MEMORY.contains(name) == in_memory);
        names.flat_map(|name| ["--test", *name]).collect::<Vec<&str>>()
    };
    // They wait for other processes half of the time.
    let twice = || (2 * std::thread::available_parallelism().map_or(1, usize::from)).to_string();
    let threads = std::env::var("RUST_TEST_THREADS").unwrap_or_else(|_| twice());
    let variables = [variables, &[("RUST_TEST_THREADS", threads.as_str())]].concat();
    run_cargo(&variables, &test(&[programs, &["--lib"], &*named(false)].concat()))?;
    run_cargo(&[], &test(&["--doc"]))?;
    let scratch = scratch()?;
    let mut variables = variables;
    variables.extend(scratch.as_deref().and_then(Path::to_str).map(|folder| ("TMPDIR", folder)));
    let done = run_cargo(&variables, &test(&named(true)));
    scratch.map_or(Ok(()), std::fs::remove_dir_all)?;
    done
}

/// Makes a folder in memory for the files of tests, of which there are hundreds of thousands.
/// Returns none where there is little memory.
fn scratch() -> Result<Option<PathBuf>> {
    const SHM: &str = "/dev/shm";
    const LEAST_KIB: u64 = 8 << 20;
    let mounts = std::fs::read_to_string("/proc/mounts")?;
    let is_mounted = mounts.lines().any(|line| line.starts_with(&format!("tmpfs {SHM} ")));
    let memory = std::fs::read_to_string("/proc/meminfo")?;
    let available = memory.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let available = available.and_then(|kib| kib.split_whitespace().next()?.parse().ok());
    if !is_mounted || available < Some(LEAST_KIB) {
        return Ok(None);
    }
    let folder = Path::new(SHM).join(format!("lastwords-tests-{}", std::process::id()));
    std::fs::create_dir(&folder).with_context(|| folder.display().to_string())?;
    Ok(Some(folder))
}

fn run_demo() -> Result<()> {
    let program = rig::programs::tested()?;
    run_script(&program.to_string_lossy(), &["demo"])
}

/// Runs the steps; an error if one failed.
pub(crate) fn run(given: &Given) -> Result<()> {
    let steps = chosen(given)?;
    if given.has("list") {
        steps.iter().for_each(|(step, _)| println!("{:<18} {}", step.name, step.what()));
        return Ok(());
    }
    let is_gate = steps.iter().any(|(_, way)| !matches!(way, Way::Whole));
    rig::room::check(is_gate)?;
    plan::announce(&steps.iter().map(|(step, _)| step.name).collect::<Vec<_>>(), is_gate);
    let passed_before =
        if given.has("full") && !given.has("again") { plan::passed_here()? } else { Vec::new() };
    let mut results: Vec<(&str, bool, Duration)> = Vec::new();
    let mut beside: Vec<(&Step, Way, JoinHandle<Timed>)> = Vec::new();
    for (step, way) in &steps {
        if passed_before.iter().any(|name| name == step.name) {
            println!("==> {}: has passed at this commit\n", step.name);
            results.push((step.name, true, Duration::ZERO));
            continue;
        }
        println!("==> {}: {}", step.name, way.does(step).shown(step.name));
        if matches!(way, Way::Beside) {
            let does = way.does(step);
            println!(
                "==> {}: begun; what it prints is in {}\n",
                step.name,
                output_of(step.name).display()
            );
            beside.push((
                step,
                *way,
                std::thread::spawn(|| timed(|| run_beside(does, &output_of(step.name)))),
            ));
            continue;
        }
        let (done, took) = timed(|| way.does(step).run());
        told(step, &done, took, way.is_whole(step), &mut results)?;
        if done.is_err() && !given.has("keep-going") {
            break;
        }
    }
    for (step, way, thread) in beside {
        let (done, took) =
            thread.join().unwrap_or_else(|_| (Err(anyhow::anyhow!("panicked")), Duration::ZERO));
        print!("{}", std::fs::read_to_string(output_of(step.name)).unwrap_or_default());
        told(step, &done, took, way.is_whole(step), &mut results)?;
    }
    plan::remember(
        results.iter().filter(|(_, passed, _)| *passed).map(|(name, _, took)| (*name, *took)),
    )?;
    summarize(&steps.iter().map(|(step, _)| *step).collect::<Vec<_>>(), &results)
}

/// How a step is run.
#[derive(Debug, Clone, Copy)]
enum Way {
    Whole,
    InPart,
    Beside,
}

impl Way {
    fn is_whole(self, step: &Step) -> bool {
        !matches!(
            (self, &step.gate),
            (Self::InPart | Self::Beside, Gate::Less(_) | Gate::LessBeside(_))
        )
    }

    fn does(self, step: &Step) -> &Does {
        match (self, &step.gate) {
            (Self::InPart | Self::Beside, Gate::Less(part) | Gate::LessBeside(part)) => part,
            _ => &step.does,
        }
    }
}

/// How a step ended, and how long it took.
type Timed = (Result<()>, Duration);

fn timed(run: impl FnOnce() -> Result<()>) -> Timed {
    let start = Instant::now();
    (run(), start.elapsed())
}

/// Prints how a step ended, and keeps that it passed if it ran whole.
fn told<'a>(
    step: &'a Step,
    done: &Result<()>,
    took: Duration,
    is_whole: bool,
    results: &mut Vec<(&'a str, bool, Duration)>,
) -> Result<()> {
    match done {
        Ok(()) => println!("==> {}: passed in {:.1} s\n", step.name, took.as_secs_f64()),
        Err(error) => {
            println!("==> {}: FAILED in {:.1} s: {error:#}\n", step.name, took.as_secs_f64())
        }
    }
    results.push((step.name, done.is_ok(), took));
    if done.is_ok() && is_whole { plan::keep(step.name, took) } else { Ok(()) }
}

/// The file of what a step prints that runs beside others.
fn output_of(name: &str) -> PathBuf {
    rig::root().join("target").join(format!("test-{name}.log"))
}

/// The steps of a run, in the table's order, each with its way: the gate's where nothing is chosen.
fn chosen(given: &Given) -> Result<Vec<(&'static Step, Way)>> {
    let whole = |steps: &'static [Step]| Ok(steps.iter().map(|step| (step, Way::Whole)).collect());
    if ["step", "full", "quick"].iter().filter(|name| given.has(name)).count() > 1 {
        return Err(
            lexopt::Error::from("`--step`, `--full` and `--quick` exclude each other").into()
        );
    }
    if !given.has("full") && (given.has("part") || given.has("again")) {
        return Err(lexopt::Error::from("`--part` and `--again` need `--full`").into());
    }
    if given.has("quick") {
        return whole(steps::QUICK);
    }
    if given.has("step") {
        let steps = named(&given.values("step"))?;
        return Ok(steps.into_iter().map(|step| (step, Way::Whole)).collect());
    }
    if let Some(part) = given.values("part").pop() {
        let found = steps::PARTS.iter().find(|(name, _)| *name == part);
        return whole(
            found.with_context(|| format!("no part `{part}`: there are code, rigs and guests"))?.1,
        );
    }
    let way = |step: &Step| match step.gate {
        _ if given.has("full") => Some(Way::Whole),
        Gate::Same | Gate::Less(_) => Some(Way::InPart),
        Gate::Beside | Gate::LessBeside(_) => Some(Way::Beside),
        Gate::Never => None,
    };
    let mut chosen: Vec<_> = all().filter_map(|step| Some((step, way(step)?))).collect();
    // What runs beside others begins when the tools are there.
    chosen.sort_by_key(|(step, way)| (step.name != "setup", !matches!(way, Way::Beside)));
    Ok(chosen)
}

fn all() -> impl Iterator<Item = &'static Step> {
    steps::PARTS.iter().flat_map(|(_, steps)| steps.iter())
}

/// The steps of these names, in the table's order.
fn named(names: &[String]) -> Result<Vec<&'static Step>> {
    if let Some(name) = names.iter().find(|n| !all().any(|s| s.name == **n)) {
        bail!(
            "no step `{name}`: there are {}",
            all().map(|s| s.name).collect::<Vec<_>>().join(", ")
        );
    }
    Ok(all().filter(|s| names.iter().any(|n| n == s.name)).collect())
}

fn summarize(steps: &[&Step], results: &[(&str, bool, Duration)]) -> Result<()> {
    for (name, passed, took) in results {
        println!(
            "{name:<15} {:<7} {:>8.1} s",
            if *passed { "passed" } else { "FAILED" },
            took.as_secs_f64()
        );
    }
    // What runs beside others ends last, so the results are not in the order of the steps.
    for step in steps.iter().filter(|step| results.iter().all(|(name, ..)| *name != step.name)) {
        println!("{:<15} not run", step.name);
    }
    let failed = results.iter().filter(|(_, passed, _)| !passed).count();
    println!("{} passed, {failed} failed", results.len() - failed);
    let names: Vec<&str> =
        results.iter().filter(|(_, passed, _)| !passed).map(|(name, ..)| *name).collect();
    if failed > 0 {
        bail!("failed: {}", names.join(", "));
    }
    Ok(())
}

impl Does {
    fn run(&self) -> Result<()> {
        match self {
            Self::Verb(verb) => verb(),
            Self::Rig(words) => crate::rigs::run(words),
            Self::Cargo(words) => run_cargo(&[], &split(words)),
            Self::CargoWith(variables, words) => run_cargo(variables, &split(words)),
            Self::Script(program) => run_script(program, &[]),
        }
    }

    /// The command by which a user would run it, as the step of this name.
    fn shown(&self, name: &str) -> String {
        match self {
            Self::Verb(_) => format!("cargo xtask test --step {name}"),
            Self::Rig(words) => format!("cargo xtask {words}"),
            Self::Cargo(words) => format!("cargo {words}"),
            Self::CargoWith(variables, words) => {
                let set = |(name, value): &(&str, &str)| format!("{name}='{value}' ");
                format!("{}cargo {words}", variables.iter().map(set).collect::<String>())
            }
            Self::Script(program) => (*program).to_owned(),
        }
    }
}

fn split(words: &str) -> Vec<&str> {
    words.split_ascii_whitespace().collect()
}

/// Runs a rig whose output goes to a file. Cargo does not run beside others: it waits for their
/// builds, or builds again in a folder of its own what both need.
fn run_beside(does: &Does, output: &Path) -> Result<()> {
    let Does::Rig(words) = does else { bail!("only rigs run beside others") };
    crate::rigs::run_beside(words, output)
}

/// Runs a program of the repository.
fn run_script(program: &str, arguments: &[&str]) -> Result<()> {
    run_command(Command::new(rig::root().join(program)).args(arguments), program)
}

fn run_cargo(variables: &[(&str, &str)], arguments: &[&str]) -> Result<()> {
    let shown = format!("cargo {}", arguments.first().copied().unwrap_or_default());
    run_command(Command::new(rig::cargo()).args(arguments).envs(variables.iter().copied()), &shown)
}

/// Runs a command in the top folder, with the tools that are laid out on its path.
fn run_command(command: &mut Command, shown: &str) -> Result<()> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(rig::bin()).chain(std::env::split_paths(&path));
    command.current_dir(rig::root()).env("PATH", std::env::join_paths(folders)?);
    let status = command.status().with_context(|| shown.to_owned())?;
    ensure!(status.success(), "{shown}: {status}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        let names: Vec<&str> = all().map(|step| step.name).collect();
        for (index, name) in names.iter().enumerate() {
            assert!(!names[..index].contains(name), "{name}");
        }
    }

    #[test]
    fn chosen_in_the_order_of_the_table() {
        let names = |list: &[&str]| {
            let list: Vec<String> = list.iter().map(|n| (*n).to_string()).collect();
            named(&list).map(|steps| steps.iter().map(|s| s.name).collect::<Vec<_>>())
        };
        assert_eq!(names(&["fmt", "tidy"]).unwrap(), ["tidy", "fmt"]);
        assert!(
            names(&["fmt", "nothing"]).unwrap_err().to_string().starts_with("no step `nothing`")
        );
    }

    #[test]
    fn the_gate_is_a_part_of_the_whole() {
        let chosen = |words: &str| {
            let words: Vec<_> = words.split_whitespace().map(Into::into).collect();
            chosen(&crate::args::parse(HELP, &words)?.context("no help")?)
        };
        let count = |words: &str| chosen(words).unwrap().len();
        let gate = chosen("").unwrap();
        assert_eq!(gate[0].0.name, "setup");
        assert!(gate.len() < all().count() && matches!(gate[1].1, Way::Beside));
        assert_eq!(count("--full --again --keep-going"), all().count());
        let of_parts =
            ["code", "rigs", "guests"].map(|part| count(&format!("--full --part {part}")));
        assert_eq!(of_parts.iter().sum::<usize>(), all().count());
        assert!(chosen("--full --part more").is_err());
        for words in [
            "--full --quick",
            "--full --step fmt",
            "--quick --step fmt",
            "--part code",
            "--again",
            "fmt",
        ] {
            assert!(chosen(words).is_err_and(|error| error.is::<lexopt::Error>()), "{words}");
        }
    }

    #[test]
    fn one_failure_fails() {
        let steps: Vec<&Step> = all().collect();
        assert!(
            summarize(&steps, &[("setup", true, Duration::ZERO), ("tidy", false, Duration::ZERO)])
                .is_err()
        );
        assert!(summarize(&steps, &[("setup", true, Duration::ZERO)]).is_ok());
    }
}

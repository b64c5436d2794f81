//! `cargo xtask test`: every step of CI, in order; the one command for the tests.
//!
//! A step is a row of [`STEPS`]: to add one, add a row. A peer tool that is missing fails the step that needs it; no step
//! is passed over silently.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::{setup, tidy};

mod plan;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run this step alone (may be given several times)
    #[arg(long, value_name = "NAME")]
    step: Vec<String>,
    /// Run a part that takes about two minutes once the workspace is built, needs no root and installs nothing
    #[arg(long, conflicts_with = "step")]
    quick: bool,
    /// Go on after a step that failed
    #[arg(long)]
    keep_going: bool,
    /// List the steps
    #[arg(long)]
    list: bool,
}

struct Step {
    name: &'static str,
    does: Does,
    what: &'static str,
}

enum Does {
    /// Another verb of ours, in this process.
    Verb(fn() -> Result<()>),
    /// A rig and its arguments.
    Rig(&'static [&'static str]),
    /// `cargo` and these arguments.
    Cargo(&'static [&'static str]),
    /// `cargo` and these arguments, with variables of the environment.
    CargoWith(&'static [(&'static str, &'static str)], &'static [&'static str]),
    /// A program of the repository and its arguments.
    Script(&'static [&'static str]),
}

/// The steps, the quick ones first.
const STEPS: &[Step] = &[
    Step { name: "setup", does: Does::Verb(run_setup), what: "the tools that the tests need are there" },
    Step { name: "tidy", does: Does::Verb(run_tidy), what: "crate graph, sizes, where unsafe stands" },
    Step {
        name: "deny",
        does: Does::Verb(run_deny),
        what: "licences, sources and bans of all crates; advisories where their database can be reached",
    },
    Step { name: "fmt", does: Does::Cargo(&["fmt", "--all", "--check"]), what: "formatting" },
    Step {
        name: "clippy",
        does: Does::Cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]),
        what: "lints",
    },
    Step {
        name: "features",
        does: Does::Cargo(&["clippy", "-p", "lastwords", "--no-default-features", "--", "-D", "warnings"]),
        what: "lints of the library without its features",
    },
    Step { name: "test", does: Does::Verb(run_tests), what: "unit, integration and documentation tests" },
    Step {
        name: "doc",
        does: Does::CargoWith(
            &[("RUSTDOCFLAGS", "-D warnings")],
            &["doc", "--workspace", "--no-deps", "--exclude", "lastwords-cli", "--exclude", "xtask"],
        ),
        what: "the documentation builds, every link leads somewhere",
    },
    Step {
        name: "loom",
        does: Does::Verb(run_loom),
        what: "models of the ring under the C11 memory model, and mistakes that they must find",
    },
    Step {
        name: "tsan",
        does: Does::Rig(&["tsan"]),
        what: "concurrent tests of the ring under ThreadSanitizer, and a race that it must catch",
    },
    Step {
        name: "miri",
        does: Does::Rig(&["miri", "--if-possible"]),
        what: "what records, but for its assembly, interpreted by Miri; said where there is no Miri",
    },
    Step {
        name: "examples",
        does: Does::Script(&["examples/run.sh"]),
        what: "each example: run, killed, recovered, compared",
    },
    Step {
        name: "book",
        does: Does::Rig(&["book"]),
        what: "the book is built, its links lead somewhere, its commands and the README's are run",
    },
    Step {
        name: "view",
        does: Does::Rig(&["view", "--quick"]),
        what: "pages of `view` in Chromium: opened, zoomed, searched, filtered, clicked, looked at",
    },
    Step {
        name: "crash-step",
        does: Does::Rig(&["crash-step", "--quick"]),
        what: "the recorder killed at instruction after instruction, recovered and judged (a part of the whole)",
    },
    Step {
        name: "persistence",
        does: Does::Rig(&["persistence", "--quick"]),
        what: "what a loss of power may leave in persistent memory, recovered and judged (a part of the whole)",
    },
    Step {
        name: "kills",
        does: Does::Rig(&["kills", "--quick"]),
        what: "processes killed at random times, recovered and judged (a part of the whole)",
    },
    Step {
        name: "wedge",
        does: Does::Rig(&["wedge", "--quick"]),
        what: "writers of a shared session killed; the others go on (a part of the whole)",
    },
    Step {
        name: "shapes",
        does: Does::Rig(&["shapes"]),
        what: "events of random fields in sessions of random shapes; every value compared (a part of the whole)",
    },
    Step {
        name: "proof-tracing",
        does: Does::Rig(&["tracing", "--quick"]),
        what: "random events of `tracing`, killed; every value, name and span compared (a part of the whole)",
    },
    Step {
        name: "proof-surroundings",
        does: Does::Rig(&["surroundings", "--quick"]),
        what: "an application in containers, limits and traps: how it ends, what is known of it (a part of the whole)",
    },
    Step {
        name: "proof-exclude",
        does: Does::Rig(&["exclude", "--quick"]),
        what: "dumps of which pages are taken out: each line is right or unknown, each loss told (a part of the whole)",
    },
    Step {
        name: "proof-remove",
        does: Does::Rig(&["remove", "--quick"]),
        what: "traces of which sections, descriptions and pages are taken out, judged in the same way (a part of the whole)",
    },
    Step {
        name: "cases",
        does: Does::Verb(run_cases),
        what: "crash dumps of real kernels, where they are kept beside the repository: the text is the kernel's",
    },
    Step {
        name: "packages",
        does: Does::Rig(&["packages", "--quick"]),
        what: "packages of Debian and rpm: judged, and installed, used and removed in a clean Debian",
    },
    Step { name: "crates", does: Does::Rig(&["crates"]), what: "what crates.io would get of each crate" },
    Step {
        name: "lab",
        does: Does::Rig(&["lab", "--quick"]),
        what: "a kernel of Debian crashed under QEMU; every text of the dump is what it printed (a part of the whole)",
    },
    Step {
        name: "attacks",
        does: Does::Rig(&["lab", "--quick", "--scenario", "attacks"]),
        what: "a guest's user attacks the core helper and the hooks, which run as root; every core arrives",
    },
    Step {
        name: "nvdimm",
        does: Does::Rig(&["nvdimm", "--quick"]),
        what: "a guest reset while an application records in its persistent memory (a part of the whole)",
    },
    Step {
        name: "persistent-ring",
        does: Does::Rig(&["compare", "persistent", "--quick"]),
        what: "a guest's trace instance after a reboot, whole and damaged; every event is what its kernel printed (a part of the whole)",
    },
    Step {
        name: "hotplug",
        does: Does::Rig(&["hotplug", "--quick"]),
        what: "processes killed while CPUs of a guest go offline and come online; all is recovered (a part of the whole)",
    },
    Step {
        name: "ftracetest",
        does: Does::Rig(&["ftracetest", "--quick"]),
        what: "the kernel's own tests of tracefs, run on a mount of a session (those that take less than a second)",
    },
    Step {
        name: "demo",
        does: Does::Verb(run_demo),
        what: "the README's command, of the program that the tests have built",
    },
];

/// The steps of `--quick`.
const QUICK: &[Step] = &[
    Step { name: "tidy", does: Does::Verb(run_tidy), what: "crate graph, sizes, where unsafe stands" },
    Step { name: "fmt", does: Does::Cargo(&["fmt", "--all", "--check"]), what: "formatting" },
    Step { name: "unit", does: Does::Cargo(&["test", "--quiet", "--workspace", "--lib"]), what: "unit tests" },
    Step {
        name: "recovery",
        does: Does::Cargo(&["test", "--quiet", "--workspace", "--test", "recorder", "--", "sessions::", "fields::"]),
        what: "sessions recorded and recovered, with fields of all types",
    },
    Step {
        name: "quick-demo",
        does: Does::Verb(run_demo),
        what: "the README's command: a child killed, its events recovered and compared",
    },
];

fn run_setup() -> Result<()> {
    setup::run(&setup::Args::default())
}

fn run_deny() -> Result<()> {
    crate::deny::run(&crate::deny::Args {})
}

/// The cases that must pass.
const CASES: &[&str] = &[
    "ftrace-6.12-basic",
    "ftrace-6.12-live-crash",
    "ftrace-6.12-arm64",
    "ftrace-6.12-persistent",
    "ftrace-7.3-instances-d31",
    "lttng-6.12-snapshot-stopped",
    "lttng-6.12-live",
    "ust-shm-crash",
    "ust-core",
];

/// Runs the tests of all crates. Where the crash cases are, the step `cases` runs those of the matrix with more inputs and judges.
fn run_tests() -> Result<()> {
    let is_judged_later = rig::beside().join("check-cases").is_file();
    let skipped: &[&str] = if is_judged_later { &["--", "--skip", "matrix::"] } else { &[] };
    run_cargo(&[], &[&["test", "--workspace"], skipped].concat())
}

/// Runs the models of the ring with two preemptions at most, where three take ten times as long: `RUSTFLAGS='--cfg loom' cargo test --release -p
/// lastwords-ring --test ring`. The mistakes are looked for with three.
fn run_loom() -> Result<()> {
    let common = [("RUSTFLAGS", "--cfg loom"), ("CARGO_TARGET_DIR", "target/loom")];
    let test = |name, more: &[(&'static str, &'static str)]| {
        let arguments = ["test", "--release", "-p", "lastwords-ring", "--test", "ring", name];
        run_cargo(&[&common, more].concat(), &arguments)
    };
    test("loom::", &[("LOOM_MAX_PREEMPTIONS", "2")])?;
    test("loom_faults::", &[])
}

/// Runs the comparison with what the dead kernels printed themselves. The dumps are too large for the repository.
fn run_cases() -> Result<()> {
    let shared = rig::beside();
    let check = shared.join("check-cases");
    if !check.is_file() {
        println!("no crash cases beside the repository: nothing is compared");
        return Ok(());
    }
    let lastwords = rig::programs::tested()?;
    for case in CASES {
        let mut command = Command::new(&check);
        // A place for each: what it unpacks is called alike in all cases.
        command.env("CASES_CACHE", std::env::temp_dir().join(format!("lastwords-case-{case}")));
        command.env("BABELTRACE2", rig::bin().join("babeltrace2.1"));
        let status = command.arg(&lastwords).arg(shared.join("cases").join(case)).status();
        let status = status.with_context(|| check.display().to_string())?;
        if !status.success() {
            bail!("{} {case}: {status}", check.display());
        }
    }
    crate::rigs::run(&["matrix"])
}

fn run_demo() -> Result<()> {
    let program = rig::programs::tested()?;
    run_script(&[&program.to_string_lossy(), "demo"])
}

fn run_tidy() -> Result<()> {
    tidy::run(&tidy::Args {})
}

/// Runs the steps; an error if one failed.
pub(crate) fn run(args: &Args) -> Result<()> {
    if args.list {
        for step in if args.quick { QUICK } else { STEPS } {
            println!("{:<15} {}", step.name, step.what);
        }
        return Ok(());
    }
    let steps = if args.quick { QUICK.iter().collect() } else { choose(&args.step)? };
    plan::announce(&steps.iter().map(|step| step.name).collect::<Vec<_>>());
    let mut results: Vec<(&str, bool, Duration)> = Vec::new();
    for step in &steps {
        println!("==> {}: {}", step.name, step.shown());
        let start = Instant::now();
        let done = step.run();
        let took = start.elapsed();
        match &done {
            Ok(()) => println!("==> {}: passed in {:.1} s\n", step.name, took.as_secs_f64()),
            Err(error) => println!("==> {}: FAILED in {:.1} s: {error:#}\n", step.name, took.as_secs_f64()),
        }
        results.push((step.name, done.is_ok(), took));
        if done.is_err() && !args.keep_going {
            break;
        }
    }
    plan::remember(results.iter().filter(|(_, passed, _)| *passed).map(|(name, _, took)| (*name, *took)))?;
    summarize(&steps, &results)
}

/// The steps of these names, in the table's order; all of them where no name is given.
fn choose(names: &[String]) -> Result<Vec<&'static Step>> {
    if let Some(name) = names.iter().find(|n| !STEPS.iter().any(|s| s.name == **n)) {
        let known: Vec<&str> = STEPS.iter().map(|s| s.name).collect();
        bail!("no step `{name}`: there are {}", known.join(", "));
    }
    Ok(STEPS.iter().filter(|s| names.is_empty() || names.iter().any(|n| n == s.name)).collect())
}

fn summarize(steps: &[&Step], results: &[(&str, bool, Duration)]) -> Result<()> {
    for (name, passed, took) in results {
        println!("{name:<15} {:<7} {:>8.1} s", if *passed { "passed" } else { "FAILED" }, took.as_secs_f64());
    }
    for step in &steps[results.len()..] {
        println!("{:<15} not run", step.name);
    }
    let failed = results.iter().filter(|(_, passed, _)| !passed).count();
    println!("{} passed, {failed} failed", results.len() - failed);
    let names: Vec<&str> = results.iter().filter(|(_, passed, _)| !passed).map(|(name, ..)| *name).collect();
    if failed > 0 {
        bail!("failed: {}", names.join(", "));
    }
    Ok(())
}

impl Step {
    fn run(&self) -> Result<()> {
        match self.does {
            Does::Verb(verb) => verb(),
            Does::Rig(words) => crate::rigs::run(words),
            Does::Cargo(arguments) => run_cargo(&[], arguments),
            Does::CargoWith(variables, arguments) => run_cargo(variables, arguments),
            Does::Script(words) => run_script(words),
        }
    }

    /// The command by which a user would run the step.
    fn shown(&self) -> String {
        match self.does {
            Does::Verb(_) => format!("cargo xtask {}", self.name),
            Does::Rig(words) => format!("cargo xtask {}", words.join(" ")),
            Does::Cargo(arguments) => format!("cargo {}", arguments.join(" ")),
            Does::CargoWith(variables, arguments) => {
                let set = variables.iter().map(|(name, value)| format!("{name}='{value}' ")).collect::<String>();
                format!("{set}cargo {}", arguments.join(" "))
            }
            Does::Script(words) => words.join(" "),
        }
    }
}

fn run_script(words: &[&str]) -> Result<()> {
    let (program, arguments) = words.split_first().context("a script has a name")?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(rig::bin()).chain(std::env::split_paths(&path));
    let status = Command::new(rig::root().join(program))
        .current_dir(rig::root())
        .args(arguments)
        .env("PATH", std::env::join_paths(folders)?)
        .status()
        .with_context(|| (*program).to_string())?;
    if !status.success() {
        bail!("{program}: {status}");
    }
    Ok(())
}

fn run_cargo(variables: &[(&str, &str)], arguments: &[&str]) -> Result<()> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(rig::bin()).chain(std::env::split_paths(&path));
    let status = Command::new(rig::cargo())
        .current_dir(rig::root())
        .args(arguments)
        .env("PATH", std::env::join_paths(folders)?)
        .envs(variables.iter().copied())
        .status()
        .context("cargo")?;
    if !status.success() {
        bail!("cargo {}: {status}", arguments.first().copied().unwrap_or_default());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        for (index, step) in STEPS.iter().enumerate() {
            assert!(STEPS[..index].iter().all(|s| s.name != step.name), "{}", step.name);
        }
    }

    #[test]
    fn chosen_in_the_order_of_the_table() {
        let names = |list: &[&str]| {
            let list: Vec<String> = list.iter().map(|n| (*n).to_string()).collect();
            choose(&list).map(|steps| steps.iter().map(|s| s.name).collect::<Vec<_>>())
        };
        assert_eq!(names(&["fmt", "tidy"]).unwrap(), ["tidy", "fmt"]);
        assert_eq!(names(&[]).unwrap().len(), STEPS.len());
        assert!(names(&["fmt", "nothing"]).unwrap_err().to_string().starts_with("no step `nothing`"));
    }

    #[test]
    fn one_failure_fails() {
        let steps: Vec<&Step> = STEPS.iter().collect();
        assert!(summarize(&steps, &[("setup", true, Duration::ZERO), ("tidy", false, Duration::ZERO)]).is_err());
        assert!(summarize(&steps, &[("setup", true, Duration::ZERO)]).is_ok());
    }
}

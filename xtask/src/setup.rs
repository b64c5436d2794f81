//! `cargo xtask setup`: what the tests need besides Rust, from the host's own package mirrors.
//!
//! Ready in a second where everything is there and the rig `lab`, which knows the guests, is built.
//! Debian and Ubuntu are installed to (as root); elsewhere the command says what is missing.
//! Babeltrace 2.1, which reads CTF 2, is younger than the stable suites in use: it is laid
//! out under `target/tools`, beside the system's own, by [`babeltrace`].

use std::process::Command;

use anyhow::{Context, Result, bail};

mod babeltrace;
pub(crate) mod tools;

use rig::{is_root, shown};
use tools::{State, Tool};

pub(crate) const HELP: &str = "\
Install what the tests need (Debian, Ubuntu), or say exactly what is missing

Usage: cargo xtask setup [OPTIONS]

Options:
      --check  Install nothing: list each tool with its version, and fail if one is missing
  -h, --help   Print this";

/// Installs what is missing, or with `--check` only lists. What guests need may be left to the step
/// that fetches it.
pub(crate) fn run(is_check: bool, has_guests: bool) -> Result<()> {
    if !is_check {
        install(has_guests)?;
    }
    let found: Vec<(&Tool, State)> = tools::needed().map(|tool| (tool, tool.state())).collect();
    for (tool, state) in &found {
        println!("{:<16} {state:<24} {}", tool.name, tool.why);
    }
    let reader = babeltrace::state();
    println!("{:<16} {reader:<24} reads CTF 2", babeltrace::NAME);
    let deny = crate::deny::state();
    println!("{:<16} {deny:<24} step deny: licences and sources of crates", "cargo-deny");
    let kernels = if has_guests { kernels() } else { State::Found("fetched by step lab".into()) };
    println!("{:<16} {kernels:<24} steps with guests: QEMU and kernels", "kernels");
    let missing = found
        .iter()
        .map(|(_, state)| state)
        .chain([&reader, &deny, &kernels])
        .filter(|s| !s.is_found())
        .count();
    match missing {
        0 => Ok(()),
        n if is_check => {
            bail!("{n} missing; `cargo xtask setup` installs on Debian and Ubuntu:\n{}", by_hand())
        }
        n => bail!("{n} still missing after the installation:\n{}", by_hand()),
    }
}

/// Returns the tools that [`install`] would install, a line for each place that they come from.
pub(crate) fn missing() -> Vec<String> {
    let missing: Vec<&Tool> = tools::needed().filter(|tool| !tool.state().is_found()).collect();
    let mut lines = Vec::new();
    let mut add = |what: &str, names: Vec<&str>| {
        if !names.is_empty() {
            lines.push(format!("{what}: {}", names.join(" ")));
        }
    };
    add("packages, for this machine, as root", tools::packages(&missing));
    add("components of the Rust toolchain", tools::components(&missing));
    if !babeltrace::state().is_found() {
        add("in target/tools, about 30 MB", vec![babeltrace::NAME]);
    }
    if !crate::deny::state().is_found() {
        add("in target/tools, about 9 MB", vec!["cargo-deny"]);
    }
    if !kernels().is_found() {
        add(
            "in target/lab, about 400 MB (the gate: less, in the step `lab`)",
            vec!["QEMU and kernels of Debian for guests"],
        );
    }
    lines
}

/// The commands that a user would run for what is missing.
fn by_hand() -> String {
    let missing: Vec<&Tool> = tools::needed().filter(|tool| !tool.state().is_found()).collect();
    let mut lines = Vec::new();
    let packages = tools::packages(&missing);
    if !packages.is_empty() {
        let sudo = if is_root() { "" } else { "sudo " };
        lines.push(format!("    {sudo}apt-get update"));
        lines.push(format!(
            "    {sudo}apt-get install -y --no-install-recommends {}",
            packages.join(" ")
        ));
    }
    let components = tools::components(&missing);
    if !components.is_empty() {
        lines.push(format!("    rustup component add {}", components.join(" ")));
    }
    lines.push("    cargo xtask setup".into());
    lines.join("\n")
}

fn install(has_guests: bool) -> Result<()> {
    let missing: Vec<&Tool> = tools::needed().filter(|tool| !tool.state().is_found()).collect();
    let packages = tools::packages(&missing);
    if !packages.is_empty() {
        if !tools::has("apt-get") {
            bail!(
                "not found: {}; there is no apt-get here, install their like by hand",
                packages.join(", ")
            );
        }
        if !is_root() {
            bail!("not found: {}; we are not root. Run:\n{}", packages.join(", "), by_hand());
        }
        run_loudly(Command::new("apt-get").args(["-q", "update"]))?;
        run_loudly(
            Command::new("apt-get")
                .env("DEBIAN_FRONTEND", "noninteractive")
                .args(["-q", "install", "-y", "--no-install-recommends"])
                .args(&packages),
        )?;
    }
    let components = tools::components(&missing);
    if !components.is_empty() {
        if !tools::has("rustup") {
            bail!(
                "not found: {}, and no rustup to add them with: install those of your Rust",
                components.join(", ")
            );
        }
        run_loudly(Command::new("rustup").args(["component", "add"]).args(&components))?;
    }
    babeltrace::install()?;
    crate::deny::install()?;
    if !has_guests {
        return Ok(());
    }
    let lab = rig::programs::rig("lab")?;
    run_loudly(Command::new(lab).arg("prepare")).context("the kernels of the steps with guests")
}

/// The kernels of the steps with guests, as the rig that boots them finds them. It is not built
/// where nothing was fetched.
fn kernels() -> State {
    if !rig::root().join("target/lab/kernels").is_dir() {
        return State::Missing;
    }
    let lab = rig::programs::rig("lab");
    let said = lab.and_then(|lab| rig::run_quietly(Command::new(lab).args(["prepare", "--check"])));
    said.map_or(State::Missing, |kernels| State::Found(kernels.trim().to_owned()))
}

/// Runs a command whose output the user sees; an error names the command.
fn run_loudly(command: &mut Command) -> Result<()> {
    println!("+ {}", shown(command));
    let status = command.status().with_context(|| shown(command))?;
    if !status.success() {
        bail!("{}: {status}", shown(command));
    }
    Ok(())
}

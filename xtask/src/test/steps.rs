//! The steps of `cargo xtask test`. To add one, add a row.

use super::Does::{self, Cargo, CargoWith, Rig, Script, Verb};
use super::Gate::{self, Beside, Less, LessBeside, Never, Same};
use super::{Step, run_demo, run_gate_tests, run_tests};
use crate::{setup, tidy};

/// The parts of the whole, each less than 90 minutes with the builds of an empty `target`.
pub(super) const PARTS: [(&str, &[Step]); 3] = [("code", CODE), ("rigs", RIGS), ("guests", GUESTS)];

const fn step(name: &'static str, gate: Gate, does: Does, what: &'static str) -> Step {
    Step { name, does, gate, what }
}

/// A step whose verb in `rigs.rs` says what it does.
const fn rig(name: &'static str, gate: Gate, words: &'static str) -> Step {
    step(name, gate, Rig(words), "")
}

/// A step that is a part of a verb, or another way to run it.
const fn part(name: &'static str, words: &'static str, what: &'static str) -> Step {
    step(name, Never, Rig(words), what)
}

const CLIPPY: &str = "clippy --workspace --all-targets -- -D warnings";
const FEATURES: &str = "clippy -p lastwords -p lastwords-cli --no-default-features -- -D warnings";
const DOC: &str = "doc --workspace --no-deps --exclude lastwords-cli --exclude xtask";
const RECOVERY: &str =
    "test --quiet --workspace --test recorder -- sessions:: fields:: std_values:: compiled::";

const DENIED: &[(&str, &str)] = &[("RUSTDOCFLAGS", "-D warnings")];

/// The steps that check, build and test the code by itself.
const CODE: &[Step] = &[
    // What guests need, the gate leaves to the step `lab`, which fetches it while others build.
    step(
        "setup",
        Less(Verb(|| setup::run(false, true))),
        Verb(|| setup::run(false, false)),
        "the tests' tools are there",
    ),
    step("tidy", Same, Verb(tidy::run), "crate graph, sizes, where unsafe stands"),
    rig("deny", Beside, "deny"),
    step("fmt", Same, Cargo("fmt --all --check"), "formatting"),
    step("clippy", Same, Cargo(CLIPPY), "lints"),
    step("features", Never, Cargo(FEATURES), "lints of the library without its features"),
    step(
        "test",
        Less(Verb(run_gate_tests)),
        Verb(run_tests),
        "unit, integration and documentation tests",
    ),
    step("doc", Never, CargoWith(DENIED, DOC), "the documentation, and its links"),
    rig("loom", Never, "loom"),
    rig("tsan", Never, "tsan"),
    rig("miri", Never, "miri --if-possible"),
    step(
        "examples",
        Same,
        Script("examples/run.sh"),
        "each example: run, killed, recovered, compared",
    ),
    rig("book", Never, "book"),
    rig("crates", Never, "crates"),
    step(
        "demo",
        Same,
        Verb(run_demo),
        "the README's command, of the program that the tests have built",
    ),
];

/// The rigs that run on this machine. What needs hours is run by hand; these are parts.
const RIGS: &[Step] = &[
    rig("view", Never, "view --quick"),
    rig("crash-step", Same, "crash-step --quick"),
    rig("persistence", Beside, "persistence --quick"),
    rig("kills", Same, "kills --quick"),
    rig("wedge", Same, "wedge --quick"),
    rig("shapes", Less(Rig("shapes --count 32")), "shapes"),
    rig("proof-tracing", Less(Rig("tracing --shapes 20 --seed 1")), "tracing --quick"),
    rig("proof-surroundings", Never, "surroundings --quick"),
    rig("proof-exclude", LessBeside(Rig("exclude --quick")), "exclude --quick00"),
    rig("proof-remove", Never, "remove --quick"),
    rig("cases", LessBeside(Rig("cases --quick")), "cases"),
    rig("ftracetest", Never, "ftracetest --quick"),
    rig("services", Never, "services"),
    rig("proof-tables", Never, "tables --quick"),
    rig("python", Never, "python"),
    part(
        "fleet",
        "python --fleet 60 --workers 2x",
        "crashes ingested by workers of Spark, one of which is killed; Spark and DuckDB answer alike",
    ),
    part(
        "pools",
        "python --pools 60",
        "crashes ingested by workers of Dask and Ray, by the code of the book",
    ),
    rig("packages", Never, "packages --quick"),
];

/// The rigs whose guests run under QEMU.
const GUESTS: &[Step] = &[
    rig("lab", Beside, "lab --quick"),
    part("attacks", "lab --quick --scenario attacks", "a user attacks what runs as root"),
    part(
        "selinux",
        "lab --kernel 6.12 --scenario selinux",
        "services of three SELinux domains die; the helper and the units serve them",
    ),
    part(
        "systemd",
        "lab --kernel 6.12 --scenario systemd",
        "the package's units under systemd, after a reset too",
    ),
    rig("nvdimm", Never, "nvdimm --quick"),
    part("persistent-ring", "compare persistent --quick", "the kernel's ring after a reboot"),
    part(
        "why",
        "lab --kernel 6.12 --scenario why --count 2",
        "machines end in nine ways; no verdict on them is wrong",
    ),
    part(
        "guests",
        "lab --kernel 6.12 --scenario watch-guest --scenario guests",
        "guests that panic, read from outside; two guests that record each other, beside trace-cmd",
    ),
    part(
        "choice",
        "lab --kernel 6.12 --scenario choice --scenario hist",
        "what `record` chooses, beside trace-cmd, and counts, beside the kernel",
    ),
    rig("hotplug", Never, "hotplug --quick"),
];

/// The steps of `--quick`.
pub(super) const QUICK: &[Step] = &[
    step("tidy", Never, Verb(tidy::run), "crate graph, sizes, where unsafe stands"),
    step("fmt", Never, Cargo("fmt --all --check"), "formatting"),
    step("unit", Never, Cargo("test --quiet --workspace --lib"), "unit tests"),
    step(
        "recovery",
        Never,
        Cargo(RECOVERY),
        "sessions recorded and recovered, with fields of all types",
    ),
    step(
        "quick-demo",
        Never,
        Verb(run_demo),
        "the README's command: a child killed, its events compared",
    ),
];

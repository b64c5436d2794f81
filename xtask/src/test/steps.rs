//! The steps of `cargo xtask test`. To add one, add a row.

use super::Does::{self, Cargo, CargoWith, Script, Verb};
use super::Gate::{self, Beside, Less, LessBeside, Never, Same};
use super::{Step, run_demo, run_gate_tests, run_tests};
use crate::{setup, tidy};

/// The parts of the whole, each less than 90 minutes with the builds of an empty `target`.
pub(super) const PARTS: [(&str, &[Step]); 3] = [("code", CODE), ("rigs", RIGS), ("guests", GUESTS)];

const fn step(name: &'static str, gate: Gate, does: Does, what: &'static str) -> Step {
    Step { name, does, gate, what }
}

const fn rig(name: &'static str, gate: Gate, words: &'static str, what: &'static str) -> Step {
    step(name, gate, Does::Rig(words), what)
}

const CLIPPY: &str = "clippy --workspace --all-targets -- -D warnings";
const FEATURES: &str = "clippy -p lastwords -p lastwords-cli --no-default-features -- -D warnings";
const DOC: &str = "doc --workspace --no-deps --exclude lastwords-cli --exclude xtask";
const RECOVERY: &str =
    "test --quiet --workspace --test recorder -- sessions:: fields:: std_values:: compiled::";

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
    rig(
        "deny",
        Beside,
        "deny",
        "licences, sources and bans of all crates; advisories where they can be had",
    ),
    step("fmt", Same, Cargo("fmt --all --check"), "formatting"),
    step("clippy", Beside, Cargo(CLIPPY), "lints"),
    step("features", Never, Cargo(FEATURES), "lints of the library without its features"),
    step(
        "test",
        Less(Verb(run_gate_tests)),
        Verb(run_tests),
        "unit, integration and documentation tests",
    ),
    step(
        "doc",
        Never,
        CargoWith(&[("RUSTDOCFLAGS", "-D warnings")], DOC),
        "the documentation, and its links",
    ),
    rig(
        "loom",
        Never,
        "loom",
        "the ring under the C11 memory model, and mistakes that must be found",
    ),
    rig("tsan", Never, "tsan", "the ring under ThreadSanitizer, and a race that it must catch"),
    rig("miri", Never, "miri --if-possible", "what records, but for its assembly, under Miri"),
    step(
        "examples",
        Same,
        Script("examples/run.sh"),
        "each example: run, killed, recovered, compared",
    ),
    rig("book", Never, "book", "the book: built, its links, its commands and the README's"),
    rig("crates", Never, "crates", "what crates.io would get of each crate"),
    step(
        "demo",
        Same,
        Verb(run_demo),
        "the README's command, of the program that the tests have built",
    ),
];

/// The rigs that run on this machine. What needs hours is run by hand; these are parts.
const RIGS: &[Step] = &[
    rig(
        "view",
        Never,
        "view --quick",
        "pages of `view` in Chromium: opened, searched, clicked, looked at",
    ),
    rig(
        "crash-step",
        Same,
        "crash-step --quick",
        "the recorder killed at instruction after instruction",
    ),
    rig(
        "persistence",
        Beside,
        "persistence --quick",
        "what a loss of power leaves in persistent memory",
    ),
    rig("kills", Same, "kills --quick", "processes killed at random times"),
    rig("wedge", Same, "wedge --quick", "writers of a shared session killed; the others go on"),
    rig(
        "shapes",
        Less(Does::Rig("shapes --count 48")),
        "shapes",
        "random events in random sessions",
    ),
    rig(
        "proof-tracing",
        Less(Does::Rig("tracing --shapes 20 --seed 1")),
        "tracing --quick",
        "random events and spans of `tracing`",
    ),
    rig(
        "proof-surroundings",
        Never,
        "surroundings --quick",
        "an application in containers and limits",
    ),
    rig(
        "proof-exclude",
        LessBeside(Does::Rig("exclude --quick")),
        "exclude --quick --images 2000",
        "dumps of which pages are taken out",
    ),
    rig("proof-remove", Never, "remove --quick", "traces of which parts are taken out"),
    rig(
        "cases",
        LessBeside(Does::Rig("cases --quick")),
        "cases",
        "crash dumps of real kernels beside the repository",
    ),
    rig("ftracetest", Never, "ftracetest --quick", "the kernel's own tests of tracefs, on a mount"),
    rig("services", Never, "services", "services of axum and actix killed in nine ways"),
    rig(
        "proof-tables",
        Never,
        "tables --quick",
        "tables of crashes as DuckDB, PyArrow and Polars read and recompute them",
    ),
    rig("python", Never, "python", "the wheel of the Python package: built, installed, tested"),
    rig(
        "fleet",
        Never,
        "python --fleet 60 --workers 2x",
        "crashes ingested by workers of Spark, one of which is killed; Spark and DuckDB answer alike",
    ),
    rig("packages", Never, "packages --quick", "packages: judged, installed, used and removed"),
];

/// The rigs whose guests run under QEMU.
const GUESTS: &[Step] = &[
    rig(
        "lab",
        Beside,
        "lab --quick",
        "a kernel crashed; every text of the dump is what it printed",
    ),
    rig("attacks", Never, "lab --quick --scenario attacks", "a user attacks what runs as root"),
    rig(
        "selinux",
        Never,
        "lab --kernel 6.12 --scenario selinux",
        "services of three SELinux domains die; the helper and the units serve them",
    ),
    rig(
        "systemd",
        Never,
        "lab --kernel 6.12 --scenario systemd",
        "the package's units under systemd, after a reset too",
    ),
    rig("nvdimm", Never, "nvdimm --quick", "a guest reset while an application records"),
    rig("persistent-ring", Never, "compare persistent --quick", "the kernel's ring after a reboot"),
    rig(
        "why",
        Never,
        "lab --kernel 6.12 --scenario why --count 2",
        "machines end in nine ways; no verdict on them is wrong",
    ),
    rig(
        "watch-guest",
        Never,
        "lab --kernel 6.12 --scenario watch-guest",
        "guests that panic, read from outside; the dump made afterwards has the same",
    ),
    rig(
        "choice",
        Never,
        "lab --kernel 6.12 --scenario choice",
        "functions, processes and graphs that `record` chooses, beside trace-cmd",
    ),
    rig("hotplug", Never, "hotplug --quick", "processes killed while CPUs come and go"),
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

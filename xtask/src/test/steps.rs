//! The steps of `cargo xtask test`. To add one, add a row.

use super::Does::{self, Cargo, CargoWith, Rig, Script, Verb};
use super::Gate::{self, Beside, Less, Never, Same};
use crate::{deny, setup, tidy};

use super::{Step, run_cases, run_demo, run_gate_tests, run_loom, run_some_cases, run_tests};

/// The parts of the whole, each less than 90 minutes with the builds of an empty `target`.
pub(super) const PARTS: [(&str, &[Step]); 3] = [("code", CODE), ("rigs", RIGS), ("guests", GUESTS)];

const fn step(name: &'static str, gate: Gate, does: Does, what: &'static str) -> Step {
    Step { name, does, gate, what }
}

const CLIPPY: &[&str] = &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
const FEATURES: &[&str] =
    &["clippy", "-p", "lastwords", "--no-default-features", "--", "-D", "warnings"];
const DOC: &[&str] =
    &["doc", "--workspace", "--no-deps", "--exclude", "lastwords-cli", "--exclude", "xtask"];
const RECOVERY: &[&str] = &[
    "test",
    "--quiet",
    "--workspace",
    "--test",
    "recorder",
    "--",
    "sessions::",
    "fields::",
    "std_values::",
    "compiled::",
];

/// The steps that check, build and test the code by itself.
const CODE: &[Step] = &[
    // What guests need, the gate leaves to the step `lab`, which fetches it while others build.
    step(
        "setup",
        Less(Verb(|| setup::run(false, false))),
        Verb(|| setup::run(false, true)),
        "the tests' tools are there",
    ),
    step("tidy", Same, Verb(tidy::run), "crate graph, sizes, where unsafe stands"),
    step(
        "deny",
        Same,
        Verb(deny::run),
        "licences, sources and bans of all crates; advisories where they can be had",
    ),
    step("fmt", Same, Cargo(&["fmt", "--all", "--check"]), "formatting"),
    step("clippy", Same, Cargo(CLIPPY), "lints"),
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
    step(
        "loom",
        Never,
        Verb(run_loom),
        "the ring under the C11 memory model, and mistakes that must be found",
    ),
    step(
        "tsan",
        Never,
        Rig(&["tsan"]),
        "the ring under ThreadSanitizer, and a race that it must catch",
    ),
    step(
        "miri",
        Never,
        Rig(&["miri", "--if-possible"]),
        "what records, but for its assembly, under Miri",
    ),
    step(
        "examples",
        Same,
        Script(&["examples/run.sh"]),
        "each example: run, killed, recovered, compared",
    ),
    step(
        "book",
        Never,
        Rig(&["book"]),
        "the book: built, its links, its commands and the README's",
    ),
    step("crates", Never, Rig(&["crates"]), "what crates.io would get of each crate"),
    step(
        "demo",
        Same,
        Verb(run_demo),
        "the README's command, of the program that the tests have built",
    ),
];

/// The rigs that run on this machine. What needs hours is run by hand; these are parts.
const RIGS: &[Step] = &[
    step(
        "view",
        Never,
        Rig(&["view", "--quick"]),
        "pages of `view` in Chromium: opened, searched, clicked, looked at",
    ),
    step(
        "crash-step",
        Same,
        Rig(&["crash-step", "--quick"]),
        "the recorder killed at instruction after instruction",
    ),
    step(
        "persistence",
        Same,
        Rig(&["persistence", "--quick"]),
        "what a loss of power leaves in persistent memory",
    ),
    step("kills", Same, Rig(&["kills", "--quick"]), "processes killed at random times"),
    step(
        "wedge",
        Same,
        Rig(&["wedge", "--quick"]),
        "writers of a shared session killed; the others go on",
    ),
    step(
        "shapes",
        Less(Rig(&["shapes", "--count", "48"])),
        Rig(&["shapes"]),
        "random events in random sessions",
    ),
    step(
        "proof-tracing",
        Less(Rig(&["tracing", "--shapes", "20", "--seed", "1"])),
        Rig(&["tracing", "--quick"]),
        "random events and spans of `tracing`",
    ),
    step(
        "proof-surroundings",
        Never,
        Rig(&["surroundings", "--quick"]),
        "an application in containers and limits",
    ),
    step(
        "proof-exclude",
        Never,
        Rig(&["exclude", "--quick"]),
        "dumps of which pages are taken out",
    ),
    step("proof-remove", Never, Rig(&["remove", "--quick"]), "traces of which parts are taken out"),
    step(
        "cases",
        Less(Verb(run_some_cases)),
        Verb(run_cases),
        "crash dumps of real kernels beside the repository",
    ),
    step(
        "ftracetest",
        Never,
        Rig(&["ftracetest", "--quick"]),
        "the kernel's own tests of tracefs, on a mount",
    ),
    step(
        "packages",
        Never,
        Rig(&["packages", "--quick"]),
        "packages: judged, installed, used and removed",
    ),
];

/// The rigs whose guests run under QEMU.
const GUESTS: &[Step] = &[
    step(
        "lab",
        Beside,
        Rig(&["lab", "--quick"]),
        "a kernel crashed; every text of the dump is what it printed",
    ),
    step(
        "attacks",
        Never,
        Rig(&["lab", "--quick", "--scenario", "attacks"]),
        "a user attacks what runs as root",
    ),
    step(
        "nvdimm",
        Never,
        Rig(&["nvdimm", "--quick"]),
        "a guest reset while an application records",
    ),
    step(
        "persistent-ring",
        Never,
        Rig(&["compare", "persistent", "--quick"]),
        "the kernel's ring after a reboot",
    ),
    step("hotplug", Never, Rig(&["hotplug", "--quick"]), "processes killed while CPUs come and go"),
];

/// The steps of `--quick`.
pub(super) const QUICK: &[Step] = &[
    step("tidy", Never, Verb(tidy::run), "crate graph, sizes, where unsafe stands"),
    step("fmt", Never, Cargo(&["fmt", "--all", "--check"]), "formatting"),
    step("unit", Never, Cargo(&["test", "--quiet", "--workspace", "--lib"]), "unit tests"),
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

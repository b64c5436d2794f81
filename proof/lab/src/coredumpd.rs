//! The core helper on a system whose cores go to a socket: systemd-coredump's own server, as
//! Debian's sid has it, on a kernel that connects to it (6.19 and newer).
//!
//! The guest's first program does what the units do. `install` refuses the socket and says what to
//! do; the guest does that, and every core arrives where it arrived before.

use std::time::Duration;

use anyhow::Result;

use super::attacks::attacker;
use super::compare::Rows;
use super::jobs;
use super::packages::Program;
use super::{Setup, add_programs};

/// The name of the scenario, and what it does.
pub(super) const NAME: &str = "coredumpd";
pub(super) const WHAT: &str = "systemd-coredump's socket of sid, which `core-helper install` refuses, and its pipe (kernels from 6.19 on)";

/// The words of the guest's script, in order, and the seconds that each may take.
const WORDS: &[(&str, u32)] = &[
    ("prepare", 60),
    ("by_socket", 120),
    ("refused", 120),
    ("by_pipe", 120),
    ("with_helper", 180),
    ("back", 180),
];
/// Where systemd's programs are from, and which.
const SUITE: &str = "sid";
const PACKAGE: &str = "systemd-coredump";
const PROGRAMS: &[&str] = &[
    "usr/lib/systemd/systemd-coredump",
    "usr/lib/systemd/systemd-sysctl",
    "usr/bin/systemd-socket-activate",
];
const SYSCTL: &str = "usr/lib/sysctl.d/50-coredump.conf";
/// Until the guest has done all, the boot included.
const LIMIT: Duration = Duration::from_secs(1400);

/// Runs it on one kernel.
pub(super) fn run(setup: &Setup<'_>, rows: &mut Rows) -> Result<()> {
    let Setup { store, lastwords, folder, .. } = *setup;
    let (mut archive, jobs) = jobs::of_script(store, "coredumpd.sh", WORDS)?;
    archive.copy("bin/attack", &attacker(folder)?)?;
    let heap = rig::programs::debug()?.join("heap");
    add_programs(&mut archive, folder, &[("lastwords", lastwords.into()), ("heap", heap)])?;
    let root = store.program(PACKAGE, SUITE, PROGRAMS[0])?.root;
    // A library of sid takes the place of the same one of this machine: it serves older programs
    // too.
    for program in PROGRAMS {
        for (name, file) in Program::at(&root, program).files()? {
            archive.copy(&name, &file)?;
        }
    }
    archive.copy("50-coredump.conf", &root.join(SYSCTL))?;
    jobs::judge_script(setup, archive, jobs, LIMIT, rows)
}

//! A guest in which root has installed the core helper and runs the hooks, and a user attacks all
//! of it: numbers of processes that are used again, memory that cannot be read, small cores, many
//! crashes at once, folders that all may write to.
//!
//! Nothing of root's may change, and every core arrives as the kernel alone writes it. One boot,
//! all attacks; each is a row.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::compare::Rows;
use super::jobs;
use super::static_build::of_c;
use super::{Setup, add_programs};
use rig::run_quietly;

/// The name of the scenario, and what it does.
pub(super) const NAME: &str = "attacks";
pub(super) const WHAT: &str =
    "a user attacks the core helper and the hooks, which run as root; every core arrives";

/// The words of the guest's script, in order, and the seconds that each may take.
const ATTACKS: &[(&str, u32)] = &[
    ("prepare", 120),
    ("small", 120),
    ("storm", 240),
    ("slow", 240),
    ("of_setuid", 120),
    ("sandbox", 120),
    ("reuse", 180),
    ("crash_folder", 120),
    ("collector", 120),
    ("unchanged", 120),
];
/// The folders of the hooks that are attacked.
const HOOKS: &[&str] = &["hooks/kdump", "hooks/systemd"];
/// Until the guest has done all, the boot included.
const LIMIT: Duration = Duration::from_secs(1400);

/// Runs it on one kernel.
pub(super) fn run(setup: &Setup<'_>, rows: &mut Rows) -> Result<()> {
    let Setup { store, kernel, lastwords, folder, .. } = *setup;
    let (mut archive, jobs) = jobs::of_script(store, "attacks.sh", ATTACKS)?;
    archive.copy("bin/attack", &attacker(folder)?)?;
    let setpriv = run_quietly(Command::new("sh").args(["-c", "command -v setpriv"]))?;
    add_programs(
        &mut archive,
        folder,
        &[("lastwords", lastwords.into()), ("setpriv", setpriv.trim().into())],
    )?;
    archive.folder("mod");
    archive.folder("hooks");
    archive
        .program("mod/fuse.ko", &kernel.module("fuse")?.context("the kernel has no module fuse")?);
    for hooks in HOOKS {
        archive.folder(hooks);
        for entry in std::fs::read_dir(rig::root().join(hooks)).context(*hooks)? {
            let file = entry?;
            archive.copy(&format!("{hooks}/{}", file.file_name().display()), &file.path())?;
        }
    }
    jobs::judge_script(setup, archive, jobs, LIMIT, rows)
}

/// Builds the attacker's program, which also kills processes for other guests: static, so that a
/// guest needs no libraries for it.
pub(super) fn attacker(folder: &Path) -> Result<PathBuf> {
    let sources = ["attacks/attack.c", "attacks/slow.c", "attacks/probe.c"];
    of_c(folder.join("attack"), &sources)
}

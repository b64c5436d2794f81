//! Guests with LTTng's kernel tracer. What is dumped is compared with what LTTng itself records of the very same sessions:
//! before the crash, or after the machine was stopped, dumped, and went on.

mod build;
mod judge;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};
use serde_json::json;

use super::compare::{Ours, Rows};
use super::dump::{self, Dump, Format};
use super::packages::{Kernel, Program, Store};
use super::qemu::Config;
use super::{Arch, DISK, DISK_MODULES, PANIC, QEMU_MODULES, TRUTH, boot, guest_base};
use crate::setup::{make_empty, run_quietly};
use build::Tracer;

/// A row of [`SCENARIOS`]. What the guest does in each stands in `guest/lttng.sh`.
pub(super) struct Scenario {
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    /// It ends with a panic, all sessions stopped; else it is dumped while it records.
    is_stopped: bool,
    /// CPUs of the guest.
    cpus: u32,
}

/// All of them.
pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "lttng-snapshot",
        what: "a stopped session: channels of four shapes, compact and large headers, contexts",
        is_stopped: true,
        cpus: 2,
    },
    Scenario {
        name: "lttng-live",
        what: "sessions recording, stopped and fresh; discard mode, splice, a reader that stands still",
        is_stopped: false,
        cpus: 2,
    },
    Scenario { name: "lttng-4-cpus", what: "lttng-live on four CPUs", is_stopped: false, cpus: 4 },
    Scenario { name: "lttng-1-cpu", what: "lttng-live on one CPU", is_stopped: false, cpus: 1 },
];

/// The dumps that are made where the user names none.
const FORMATS: &[&str] = &["elf", "kdump-zlib", "d31-zlib"];
/// Megabytes of memory.
const MEMORY: u32 = 512;
/// Programs that the guest runs.
const PROGRAMS: &[&str] =
    &["usr/bin/lttng", "usr/bin/lttng-sessiond", "usr/lib/x86_64-linux-gnu/lttng/libexec/lttng-consumerd"];
/// The daemon does not begin without it.
const SCHEMA: &str = "usr/share/xml/lttng/session.xsd";

/// The row of that name.
pub(super) fn find(name: &str) -> Option<&'static Scenario> {
    SCENARIOS.iter().find(|scenario| scenario.name == name)
}

/// Runs one scenario on one kernel.
pub(super) fn run(
    (store, kernel): (&Store, &Kernel),
    scenario: &Scenario,
    program: &Path,
    formats: &[&'static Format],
    keep: bool,
    rows: &mut Rows,
) -> Result<()> {
    let own = FORMATS.iter().map(|name| dump::find(name)).collect::<Result<Vec<_>>>()?;
    let formats = if formats.is_empty() { &own } else { formats };
    let tracer = Tracer::of(store, kernel)?;
    let qemu = super::qemu(store, Arch::Amd64)?;
    let folder = store.runs().join(format!("{}-{}", kernel.release, scenario.name));
    make_empty(&folder)?;
    let initramfs = folder.join("initramfs");
    std::fs::write(&initramfs, archive(store, kernel, &tracer)?)?;
    let disk = folder.join("truth.tar");
    File::create(&disk)?.set_len(DISK)?;
    let disks = [disk.clone()];
    let config = config(kernel, scenario, &qemu, &initramfs, &disks, &folder);
    let dumps = dumps(&config, store, scenario, formats)?;
    std::fs::remove_file(&initramfs)?;
    run_quietly(Command::new("tar").arg("-C").arg(&folder).arg("-xf").arg(&disk))?;
    std::fs::remove_file(&disk)?;
    for dump in &dumps {
        judge::judge(rows, &Ours { program }, dump, &folder.join("truth"), scenario.is_stopped)?;
    }
    if !keep && rows.failed == 0 {
        std::fs::remove_dir_all(&folder)?;
    }
    Ok(())
}

fn config<'a>(
    kernel: &'a Kernel,
    scenario: &Scenario,
    qemu: &'a Program,
    initramfs: &'a Path,
    disks: &'a [PathBuf],
    folder: &'a Path,
) -> Config<'a> {
    Config {
        arch: Arch::Amd64,
        qemu,
        kernel: &kernel.image,
        initramfs,
        arguments: match scenario.is_stopped {
            true => "loglevel=4 panic=0 lab.scenario=lttng-snapshot lab.end=stopped",
            false => "loglevel=4 panic=0 lab.scenario=lttng-live lab.end=paused",
        },
        memory: MEMORY,
        cpus: scenario.cpus,
        more_cpu: "",
        pause_at_panic: false,
        disks,
        folder,
    }
}

/// Runs the guest to its end; the dumps.
fn dumps(config: &Config<'_>, store: &Store, scenario: &Scenario, formats: &[&'static Format]) -> Result<Vec<Dump>> {
    let mut guest = boot(config, if scenario.is_stopped { "LAB-TRUTH-DONE" } else { "LAB-PAUSE" })?;
    if scenario.is_stopped {
        guest.wait_for("end Kernel panic", PANIC)?;
    }
    guest.qmp("stop", json!({}))?;
    let made = dump::make(&mut guest, store, formats, config.folder)?;
    if !scenario.is_stopped {
        guest.qmp("cont", json!({}))?;
        guest.wait_for("LAB-TRUTH-DONE", TRUTH)?;
    }
    guest.quit()?;
    ensure!(!made.is_empty(), "no dump was made");
    Ok(made)
}

/// The guest's first file system.
fn archive(store: &Store, kernel: &Kernel, tracer: &Tracer) -> Result<Vec<u8>> {
    let modules = [DISK_MODULES, QEMU_MODULES].concat();
    let mut archive = guest_base(kernel, &store.busybox(Arch::Amd64)?, include_bytes!("../guest/lttng.sh"), &modules)?;
    let release = format!("lib/modules/{}", kernel.release);
    let mut files = Vec::new();
    for program in PROGRAMS {
        for (path, file) in tracer.program(program).files()? {
            // The session daemon looks for the consumer daemon in its place.
            let path = if path.starts_with("bin/") { (*program).to_string() } else { path };
            if !files.iter().any(|(known, _)| *known == path) {
                files.push((path, file));
            }
        }
    }
    files.push((SCHEMA.to_string(), tracer.root.join(SCHEMA)));
    for folder in [tracer.modules.clone(), tracer.modules.join("extra")] {
        for entry in std::fs::read_dir(&folder)?.flatten().filter(|entry| entry.path().is_file()) {
            let below = entry.path().strip_prefix(&tracer.modules)?.display().to_string();
            files.push((format!("{release}/{below}"), entry.path()));
        }
    }
    let mut folders = std::collections::BTreeSet::new();
    for (path, _) in &files {
        folders.extend(Path::new(path).ancestors().skip(1).map(|f| f.display().to_string()));
    }
    // Sorted, so that each stands behind the one that it is in; these two are there.
    folders.iter().filter(|f| !matches!(f.as_str(), "" | "bin" | "mod")).for_each(|folder| archive.folder(folder));
    for (path, file) in files {
        archive.copy(&path, &file)?;
    }
    Ok(archive.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_in_the_script() {
        let script = include_str!("../guest/lttng.sh");
        assert!(["lttng-snapshot", "lttng-live"].iter().all(|name| script.contains(&format!("\n{name})"))));
        assert!(FORMATS.iter().all(|name| dump::find(name).is_ok()));
        assert!(find("lttng-live").is_some());
    }
}

//! Guests with LTTng's kernel tracer. What is dumped is compared with what LTTng itself records of
//! the very same sessions: before the crash, or after the machine was stopped, dumped, and went on.

mod build;
mod judge;

use std::fs::File;
use std::path::Path;

use anyhow::{Result, ensure};
use serde_json::json;

use super::compare::{Ours, Rows};
use super::dump::{self, Dump, Format};
use super::initramfs::Archive;
use super::packages::{Kernel, Store};
use super::qemu::Config;
use super::{Arch, DISK, DISK_MODULES, PANIC, QEMU_MODULES, TRUTH, boot, guest_base, unpack};
use build::Tracer;

/// A row of [`SCENARIOS`].
pub(super) struct Scenario {
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    /// Which part of `guest/lttng.sh` it runs.
    part: &'static str,
    /// It ends with a panic, all sessions stopped; else it is dumped while it runs, and goes on.
    is_stopped: bool,
    /// CPUs of the guest.
    cpus: u32,
    /// More of the kernel's command line.
    arguments: &'static str,
}

const LIVE: Scenario = Scenario {
    name: "lttng-live",
    what: "sessions recording, stopped and fresh; discard mode, splice, a reader that stands still",
    part: "lttng-live",
    is_stopped: false,
    cpus: 2,
    arguments: "",
};

/// All of them.
pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "lttng-snapshot",
        what: "a stopped session: channels of four shapes, compact and large headers, contexts",
        part: "lttng-snapshot",
        is_stopped: true,
        ..LIVE
    },
    LIVE,
    Scenario {
        name: "lttng-shapes",
        what: "rings of 2 to 64 sub-buffers of 4 KB to 1 MB, call stacks, a ring never full, a session destroyed before",
        part: "lttng-shapes",
        ..LIVE
    },
    Scenario {
        name: "lttng-8-cpus",
        what: "lttng-live on eight CPUs of a kernel at its usual address",
        cpus: 8,
        arguments: " nokaslr",
        ..LIVE
    },
    Scenario { name: "lttng-4-cpus", what: "lttng-live on four CPUs", cpus: 4, ..LIVE },
    Scenario { name: "lttng-1-cpu", what: "lttng-live on one CPU", cpus: 1, ..LIVE },
];

/// The dumps that are made where the user names none.
const FORMATS: &[&str] = &["elf", "kdump-zlib", "d31-zlib"];
/// Megabytes of memory.
const MEMORY: u32 = 512;
/// Programs that the guest runs.
const PROGRAMS: &[&str] = &[
    "usr/bin/lttng",
    "usr/bin/lttng-sessiond",
    "usr/lib/x86_64-linux-gnu/lttng/libexec/lttng-consumerd",
];
/// The daemon does not begin without it.
const SCHEMA: &str = "usr/share/xml/lttng/session.xsd";

/// The row of that name.
pub(super) fn find(name: &str) -> Option<&'static Scenario> {
    SCENARIOS.iter().find(|scenario| scenario.name == name)
}

/// Runs one scenario on one kernel.
pub(super) fn run(
    (store, kernel, modules): (&Store, &Kernel, Option<&Path>),
    scenario: &Scenario,
    program: &Path,
    formats: &[&'static Format],
    folder: &Path,
    rows: &mut Rows,
) -> Result<()> {
    let own = FORMATS.iter().map(|name| dump::find(name)).collect::<Result<Vec<_>>>()?;
    let formats = if formats.is_empty() { &own } else { formats };
    let tracer = Tracer::prepare(store, kernel, modules)?;
    let qemu = super::qemu(store, Arch::Amd64)?;
    let initramfs = archive(store, kernel, &tracer)?.write(folder)?;
    let disk = folder.join("truth.tar");
    File::create(&disk)?.set_len(DISK)?;
    let disks = [disk.clone()];
    let end = if scenario.is_stopped { "stopped" } else { "paused" };
    let arguments = format!(
        "loglevel=4 panic=0 lab.scenario={} lab.end={end}{}",
        scenario.part, scenario.arguments
    );
    let config = Config {
        arguments: &arguments,
        memory: MEMORY,
        cpus: scenario.cpus,
        disks: &disks,
        ..Config::new(Arch::Amd64, &qemu, [&kernel.image, &initramfs, folder])
    };
    let dumps = dumps(&config, store, scenario, formats)?;
    std::fs::remove_file(&initramfs)?;
    unpack(&disk, folder)?;
    for dump in &dumps {
        let ours = Ours { program };
        judge::judge(rows, &ours, dump, &folder.join("truth"), scenario.is_stopped, &tracer.debug)?;
    }
    Ok(())
}

/// Runs the guest to its end; the dumps.
fn dumps(
    config: &Config<'_>,
    store: &Store,
    scenario: &Scenario,
    formats: &[&'static Format],
) -> Result<Vec<Dump>> {
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
fn archive(store: &Store, kernel: &Kernel, tracer: &Tracer) -> Result<Archive> {
    let modules = [DISK_MODULES, QEMU_MODULES].concat();
    let mut archive = guest_base(
        kernel,
        &store.busybox(Arch::Amd64)?,
        include_bytes!("../guest/lttng.sh"),
        &modules,
    )?;
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
    folders
        .iter()
        .filter(|f| !matches!(f.as_str(), "" | "bin" | "mod"))
        .for_each(|folder| archive.folder(folder));
    for (path, file) in files {
        archive.copy(&path, &file)?;
    }
    Ok(archive)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_in_the_script() {
        let script = include_str!("../guest/lttng.sh");
        assert!(SCENARIOS.iter().all(|row| script.contains(&format!("\n{})", row.part))));
        assert!(FORMATS.iter().all(|name| dump::find(name).is_ok()));
        assert!(find("lttng-live").is_some());
    }
}

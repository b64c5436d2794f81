//! `lastwords record` on a kernel that has what it can ask for: probes, synthetic events, tracers,
//! triggers, a receiver over vsock.
//!
//! The guest runs each recording beside what the kernel prints of the same instance, and beside
//! trace-cmd on the same events. Files and texts come out on a disk and are compared here.

mod judge;

use std::fs::File;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use super::compare::Rows;
use super::qemu::{Config, Guest};
use super::{Arch, DISK, DISK_MODULES, Setup, add_programs, guest_base, qemu, unpack};
use rig::run_quietly;

/// The name of the scenario, and what it does.
pub(super) const NAME: &str = "record";
pub(super) const WHAT: &str = "`lastwords record` with probes, synthetic events, tracers, triggers and vsock, beside the kernel's text and trace-cmd";

/// Megabytes of the guest's memory, and its CPUs.
const MEMORY: u32 = 1024;
const CPUS: u32 = 2;
/// Modules for a stream from the guest to itself.
const VSOCK: &[&str] = &["vsock", "vmw_vsock_virtio_transport_common", "vsock_loopback"];
/// Until the guest has done all.
const LIMIT: Duration = Duration::from_secs(3600);

/// Runs it on one kernel.
pub(super) fn run(setup: &Setup<'_>, rows: &mut Rows) -> Result<()> {
    run_guest(setup, include_bytes!("../guest/record.sh"), &More::default())?;
    judge::all(&setup.folder.join("out"), setup.lastwords, rows)
}

/// What a guest gets besides the program and trace-cmd.
#[derive(Default)]
pub(super) struct More {
    /// Programs of this machine, by their names.
    pub(super) programs: Vec<(&'static str, PathBuf)>,
    /// Texts, by their names.
    pub(super) files: Vec<(&'static str, String)>,
    /// Its only CPU takes a nanosecond for each instruction.
    pub(super) counts_instructions: bool,
}

/// Runs a guest that has the program, trace-cmd and a script as its first program. What the script
/// writes to the disk is in the folder `out` afterwards.
pub(super) fn run_guest(setup: &Setup<'_>, script: &[u8], more: &More) -> Result<()> {
    let Setup { store, kernel, folder, .. } = *setup;
    let initramfs = initramfs(setup, script, more)?;
    let disk = folder.join("out.tar");
    File::create(&disk)?.set_len(DISK)?;
    let program = qemu(store, Arch::Amd64)?;
    let config = Config {
        arguments: "loglevel=4 panic=0 no_timer_check",
        memory: MEMORY,
        cpus: if more.counts_instructions { 1 } else { CPUS },
        counts_instructions: more.counts_instructions,
        disks: std::slice::from_ref(&disk),
        ..Config::new(Arch::Amd64, &program, [&kernel.image, &initramfs, folder])
    };
    let mut guest = Guest::start(&config)?;
    guest.wait_for("LAB-TRUTH-DONE", LIMIT)?;
    guest.quit()?;
    unpack(&disk, folder)
}

fn initramfs(setup: &Setup<'_>, script: &[u8], more: &More) -> Result<PathBuf> {
    let Setup { store, kernel, lastwords, folder, .. } = *setup;
    let modules = [DISK_MODULES, VSOCK].concat();
    let mut archive = guest_base(kernel, &store.busybox(Arch::Amd64)?, script, &modules)?;
    let trace_cmd = run_quietly(Command::new("sh").args(["-c", "command -v trace-cmd"]));
    let trace_cmd = trace_cmd.context("trace-cmd is needed: cargo xtask setup")?;
    let programs = [("lastwords", lastwords.to_path_buf()), ("trace-cmd", trace_cmd.trim().into())];
    let programs: Vec<_> = programs.into_iter().chain(more.programs.iter().cloned()).collect();
    add_programs(&mut archive, folder, &programs)?;
    more.files.iter().for_each(|(name, text)| archive.program(name, text.as_bytes()));
    archive.write(folder)
}

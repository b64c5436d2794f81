//! BPF programs, maps and ring buffers out of the dump of a guest: a program of ours assembles BPF
//! programs that write numbered records on all CPUs at a time, consumes some, prints what is left,
//! and panics while they write on.

mod judge;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use rig::run_quietly;
use serde_json::json;

use super::compare::{Ours, Rows};
use super::qemu::Config;
use super::{Arch, DISK_MODULES, PANIC, QEMU_MODULES, Setup, boot, dump, guest_base};
use judge::Truth;

/// The name of the scenario, and what it does.
pub(super) const NAME: &str = "bpf";
pub(super) const WHAT: &str = "BPF programs, maps and ring buffers, written on four CPUs until the panic; in overwrite mode on kernels from 6.19 on";

/// As many as the program counts on.
const CPUS: u32 = 4;
/// The dumps: with all pages, and without those that makedumpfile leaves out.
const FORMATS: &[&str] = &["elf", "kdump-zlib", "d31-zlib"];
/// The first program of the guest; the second prints the truth and ends the guest.
const INIT: &[u8] = b"#!/bin/busybox sh\n. /prelude\n/bin/writer\nfail \"the writer ended\"\n";

/// Runs it on one kernel.
pub(super) fn run(setup: &Setup<'_>, rows: &mut Rows) -> Result<()> {
    let Setup { store, kernel, lastwords, folder, .. } = *setup;
    let modules = [DISK_MODULES, QEMU_MODULES].concat();
    let mut archive = guest_base(kernel, &store.busybox(Arch::Amd64)?, INIT, &modules)?;
    archive.copy("bin/writer", &writer(folder)?)?;
    let initramfs = folder.join("initramfs");
    std::fs::write(&initramfs, archive.finish())
        .with_context(|| initramfs.display().to_string())?;
    let qemu = super::qemu(store, Arch::Amd64)?;
    let config = Config {
        arguments: "loglevel=4 panic=0 no_timer_check lab.scenario=bpf",
        cpus: CPUS,
        ..Config::new(Arch::Amd64, &qemu, [&kernel.image, &initramfs, folder])
    };
    let mut guest = boot(&config, "LAB-TRUTH-DONE")?;
    guest.wait_for("end Kernel panic", PANIC)?;
    guest.qmp("stop", json!({}))?;
    let formats = FORMATS.iter().map(|name| dump::find(name)).collect::<Result<Vec<_>>>()?;
    let dumps = dump::make(&mut guest, store, &formats, folder)?;
    let truth = Truth::new(&guest.console().replace('\r', ""))?;
    guest.quit()?;
    let ours = Ours { program: lastwords };
    for dump in &dumps {
        let said = ours.run("report", dump, &["--bpf", "--json"]);
        let said = said.and_then(|text| Ok(serde_json::from_slice(&text)?));
        match said {
            Ok(said) => judge::judge(rows, dump.format, &truth, &said),
            Err(error) => rows.row(false, dump.format, &format!("{error:#}")),
        }
    }
    Ok(())
}

/// Builds the program of the guest, which needs no libraries there.
fn writer(folder: &Path) -> Result<PathBuf> {
    let program = folder.join("writer");
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-Wall", "-Wextra", "-static", "-pthread", "-o"]).arg(&program);
    run_quietly(cc.arg(rig::root().join("proof/lab/src/bpf/writer.c")))?;
    Ok(program)
}

//! BPF programs, maps and ring buffers out of the dump of a guest: a program of ours assembles BPF
//! programs that write numbered records on all CPUs at a time, consumes some, prints what is left,
//! and panics while they write on.

mod judge;

use anyhow::{Result, bail};
use serde_json::Value;

use super::compare::{Ours, Rows};
use super::dump::{self, Dump};
use super::pages::Pages;
use super::qemu::Config;
use super::static_build::of_c;
use super::{Arch, DISK_MODULES, QEMU_MODULES, Setup, guest_base};
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
    archive.copy("bin/writer", &of_c(folder.join("writer"), &["bpf/writer.c"])?)?;
    let initramfs = archive.write(folder)?;
    let qemu = super::qemu(store, Arch::Amd64)?;
    let config = Config {
        arguments: "loglevel=4 panic=0 no_timer_check lab.scenario=bpf",
        cpus: CPUS,
        ..Config::new(Arch::Amd64, &qemu, [&kernel.image, &initramfs, folder])
    };
    let (dumps, console) = dump::of_panic(&config, store, FORMATS)?;
    let truth = Truth::new(&console)?;
    let ours = Ours { program: lastwords };
    let [whole, _, cut] = dumps.as_slice() else { bail!("{} dumps", dumps.len()) };
    let pages = Pages::new(&whole.files[0], &cut.files[0])?;
    let kernel = |dump: &Dump| -> Result<Value> {
        let said = ours.run("report", dump, &["--bpf", "--json"])?;
        Ok(serde_json::from_slice::<Value>(&said)?["kernels"][0].take())
    };
    // All dumps are of the same moment.
    let whole = kernel(whole)?;
    for dump in &dumps {
        rows.part(dump.format, |rows| {
            let said = kernel(dump)?;
            // makedumpfile leaves out pages of a kernel that it does not know.
            let is_cut = dump.is_cut && said["evidence"]["losses"] == true;
            if is_cut {
                let losses = pages.judge(rows, dump.format, &said["evidence"])?;
                judge::judge_cut(rows, dump.format, (&whole, &said), &losses)?;
            } else {
                judge::judge(rows, dump.format, &truth, &said);
                let is_same = ["maps", "programs"].iter().all(|key| whole[key] == said[key]);
                let what = format!("{} as {}", dump.format, dumps[0].format);
                rows.row(is_same, &what, "maps with their records, programs");
            }
            let strict = ours.output("report", dump, &["--bpf", "--strict"])?;
            let (status, expected) = (strict.status.code(), if is_cut { 3 } else { 0 });
            let what = format!("{} --strict", dump.format);
            rows.row(status == Some(expected), &what, &format!("{status:?}"));
            Ok(())
        });
    }
    Ok(())
}

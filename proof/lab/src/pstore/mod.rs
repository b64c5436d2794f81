//! What pstore keeps in memory (ramoops): a guest panics, its memory is dumped and reset, and the
//! next boot of the same guest prints the files of pstore, which ours must equal. Debian's kernels
//! keep records of panics only; consoles and messages are tested by made memories.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::{Value, json};

use super::compare::{Ours, Rows};
use super::dump::Dump;
use super::qemu::Config;
use super::{Arch, PANIC, Setup, boot, dump, guest_base};

/// The name of the scenario, and what it does.
pub(super) const NAME: &str = "pstore";
pub(super) const WHAT: &str =
    "the records of a panic that ramoops keeps in memory, beside the files of the next boot";

/// Where the memory of ramoops begins and its bytes; megabytes of the guest.
const PLACE: u64 = 0x1000_0000;
const SIZE: u64 = 1 << 20;
const MEMORY: u32 = 512;
/// Until the second boot has printed the files.
const SECOND: Duration = Duration::from_secs(600);

/// Runs it on one kernel.
pub(super) fn run(setup: &Setup<'_>, rows: &mut Rows) -> Result<()> {
    let Setup { store, kernel, lastwords, folder, .. } = *setup;
    let init = include_bytes!("../guest/pstore.sh");
    let modules = ["reed_solomon", "ramoops"];
    let archive = guest_base(kernel, &store.busybox(Arch::Amd64)?, init, &modules)?;
    let initramfs = archive.write(folder)?;
    let arguments = format!(
        "loglevel=4 panic=0 no_timer_check memmap={}M${PLACE:#x} \
         lab.ramoops=mem_address={PLACE:#x},mem_size={SIZE:#x},record_size=0x1000,console_size=0x1000,pmsg_size=0x1000,max_reason=2",
        SIZE >> 20
    );
    let qemu = super::qemu(store, Arch::Amd64)?;
    let config = Config {
        arguments: &arguments,
        memory: MEMORY,
        reboots: true,
        ..Config::new(Arch::Amd64, &qemu, [&kernel.image, &initramfs, folder])
    };
    let mut guest = boot(&config, "LAB-FIRST-DONE")?;
    guest.wait_for("end Kernel panic", PANIC)?;
    guest.qmp("stop", json!({}))?;
    let dumps = dump::make(&mut guest, store, &[dump::find("elf")?], folder)?;
    // The reserved range alone, as a copy of /dev/mem would be.
    let range = folder.join("range");
    let name = range.to_str().context("a name")?;
    guest.qmp("pmemsave", json!({ "val": PLACE, "size": SIZE, "filename": name }))?;
    guest.qmp("system_reset", json!({}))?;
    guest.qmp("cont", json!({}))?;
    let done = "LAB-SECOND-DONE";
    guest.wait_until(done, SECOND, true, |console| console.contains(done))?;
    let truth = files(&guest.console().replace('\r', ""))?;
    guest.quit()?;
    let range = Dump { format: "range", files: vec![range], is_cut: false };
    for dump in dumps.iter().chain([&range]) {
        rows.part(dump.format, |rows| {
            let said = Ours { program: lastwords }.run("report", dump, &["--pstore", "--json"])?;
            judge(rows, dump.format, &truth, &serde_json::from_slice(&said)?);
            Ok(())
        });
    }
    Ok(())
}

/// The files of pstore that the second boot has printed: names and texts.
fn files(console: &str) -> Result<Vec<(String, String)>> {
    let printed = console.split("LAB-SECOND-DONE").next().unwrap_or_default();
    let mut files = Vec::new();
    for part in printed.split("LAB-FILE ").skip(1) {
        let mut lines = part.lines();
        let name = lines.next().context("a name")?.to_owned();
        let base64: String = lines.map(str::trim).collect();
        let text = BASE64_STANDARD.decode(base64).with_context(|| name.clone())?;
        files.push((name, String::from_utf8_lossy(&text).into_owned()));
    }
    ensure!(!files.is_empty(), "the kernel has no files");
    Ok(files)
}

/// Each file must be a zone of its kind with the same text, and each zone a file.
fn judge(rows: &mut Rows, format: &str, truth: &[(String, String)], said: &Value) {
    let zones = said["memories"][0]["zones"].as_array().cloned().unwrap_or_default();
    rows.row(
        zones.len() == truth.len(),
        format,
        &format!("{} zones, {} files", zones.len(), truth.len()),
    );
    for (name, text) in truth {
        let kind = match name.split('-').next() {
            Some("dmesg") => "record",
            Some("console") => "console",
            _ => "other",
        };
        let is_own = |zone: &&Value| zone["kind"] == kind && zone["text"] == text.as_str();
        let own = zones.iter().find(is_own);
        let time = own.map(|zone| zone["time"].to_string()).unwrap_or_default();
        let ok = own.is_some_and(|zone| zone["missing"].is_null());
        rows.row(ok, &format!("{format}: {name}"), &format!("{} bytes {time}", text.len()));
    }
    let lines: usize = truth.iter().map(|(_, text)| text.matches("of the lab, ").count()).sum();
    rows.row(lines > 50, &format!("{format}: lines of the first boot"), &lines.to_string());
}

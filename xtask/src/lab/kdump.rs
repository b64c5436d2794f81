//! The kdump path: a crash kernel's initramfs has our static program, which saves the trace out of `/proc/vmcore`.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::compare::{Rows, judge_trace_dat};
use super::initramfs::Archive;
use super::packages::{Kernel, Store};
use super::{DISK_MODULES, guest_base};

/// Memory that is kept for the crash kernel, as the kernel's `crashkernel=` takes it.
pub(super) const CRASH_MEMORY: &str = "192M";
/// Most memory of our program, kilobytes.
const MOST: u64 = 64 << 10;
/// The suite of the `kexec` that loads the crash kernel.
const KEXEC: &str = "trixie";

/// Adds what the first kernel needs to load the crash kernel.
pub(super) fn add(archive: &mut Archive, kernel: &Kernel, busybox: &Path, store: &Store, ours: &Path) -> Result<()> {
    let kexec = store.program("kexec-tools", KEXEC, "usr/sbin/kexec")?;
    archive.folder("lib");
    archive.folder("lib64");
    for (path, file) in kexec.files()? {
        archive.copy(&path, &file)?;
    }
    archive.folder("crash");
    archive.copy("crash/vmlinuz", &kernel.image)?;
    let mut crash = guest_base(kernel, busybox, include_bytes!("guest/crash.sh"), DISK_MODULES)?;
    crash.copy("bin/lastwords", ours)?;
    crash.copy("bin/save-trace", &crate::root().join("hooks/kdump/save-trace"))?;
    archive.program("crash/initramfs", &crash.finish());
    Ok(())
}

/// Judges what the crash kernel saved.
pub(super) fn judge(rows: &mut Rows, saved: &Path, truth: &Path) -> Result<()> {
    let read = |name: &str| {
        let path = saved.join(name);
        std::fs::read(&path).with_context(|| path.display().to_string())
    };
    let number = |name: &str| -> Result<u64> { Ok(String::from_utf8_lossy(&read(name)?).trim().parse()?) };
    let memory = number("memory")?;
    for verb in ["recover", "report", "inspect"] {
        let peak = number(&format!("{verb}.peak"))?;
        ensure!(peak > 0, "{verb}: no peak was measured");
        let detail = format!("{peak} KB at most, of the crash kernel's {memory}; the limit is {MOST}");
        rows.row(peak < MOST, &format!("/proc/vmcore {verb} memory"), &detail);
    }
    rows.same_text("/proc/vmcore top trace", &std::fs::read(truth.join("top/trace"))?, &read("report"));
    let said: Value = serde_json::from_slice(&read("inspect")?).context("inspect --json")?;
    let release = std::fs::read_to_string(truth.join("system/release"))?;
    let kernel = &said["kernels"][0];
    let ok = kernel["release"] == release.trim()
        && kernel["panic"].as_str().is_some_and(|p| p.contains("sysrq triggered crash"));
    rows.row(ok, "/proc/vmcore inspect", &format!("kernel {}, panic {}", kernel["release"], kernel["panic"]));
    judge_trace_dat(rows, "/proc/vmcore trace.dat", &saved.join("out/trace.dat"), truth)
}

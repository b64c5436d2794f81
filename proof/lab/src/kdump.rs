//! Our static program in a guest: in a crash kernel's initramfs, where it saves the trace out of
//! `/proc/vmcore` (the kdump path), and beside the traced kernel, where it reads `/proc/kcore`.

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
pub(super) fn add(
    archive: &mut Archive,
    kernel: &Kernel,
    busybox: &Path,
    store: &Store,
    ours: &Path,
) -> Result<()> {
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
    crash.copy("bin/save-trace", &rig::root().join("hooks/kdump/save-trace"))?;
    archive.program("crash/initramfs", &crash.finish());
    Ok(())
}

/// Judges what the crash kernel saved.
pub(super) fn judge(rows: &mut Rows, saved: &Path, truth: &Path) -> Result<()> {
    let read = |name: &str| {
        let path = saved.join(name);
        std::fs::read(&path).with_context(|| path.display().to_string())
    };
    let number =
        |name: &str| -> Result<u64> { Ok(String::from_utf8_lossy(&read(name)?).trim().parse()?) };
    let memory = number("memory")?;
    for verb in ["recover", "report", "inspect"] {
        let peak = number(&format!("{verb}.peak"))?;
        ensure!(peak > 0, "{verb}: no peak was measured");
        let detail =
            format!("{peak} KB at most, of the crash kernel's {memory}; the limit is {MOST}");
        rows.row(peak < MOST, &format!("/proc/vmcore {verb} memory"), &detail);
    }
    rows.same_text(
        "/proc/vmcore top trace",
        &std::fs::read(truth.join("top/trace"))?,
        &read("report"),
    );
    let panic = inspected(rows, "/proc/vmcore inspect", &read("inspect")?, truth)?;
    rows.row(panic.contains("sysrq triggered crash"), "/proc/vmcore panic", &panic);
    judge_trace_dat(rows, "/proc/vmcore trace.dat", &saved.join("out/trace.dat"), truth)
}

/// Judges what our program printed of the running kernel's `/proc/kcore`.
pub(super) fn judge_running(rows: &mut Rows, truth: &Path) -> Result<()> {
    let folder = truth.join("kcore");
    let read = |name: &str| {
        std::fs::read(folder.join(name)).with_context(|| format!("{name} of {}", folder.display()))
    };
    rows.same_text(
        "/proc/kcore top trace",
        &std::fs::read(truth.join("top/trace"))?,
        &read("report"),
    );
    inspected(rows, "/proc/kcore inspect", &read("inspect")?, truth).map(drop)
}

/// A row for the kernel's release that `inspect --json` printed; its panic.
fn inspected(rows: &mut Rows, name: &str, printed: &[u8], truth: &Path) -> Result<String> {
    let said: Value = serde_json::from_slice(printed).context("inspect --json")?;
    let release = std::fs::read_to_string(truth.join("system/release"))?;
    let kernel = &said["kernels"][0];
    rows.row(kernel["release"] == release.trim(), name, &format!("kernel {}", kernel["release"]));
    Ok(kernel["panic"].as_str().unwrap_or_default().to_owned())
}
